"""Many trajectories, compiled, on all cores or on a cluster."""

from typing import TYPE_CHECKING

from cabai.support.on_demand import on_demand

if TYPE_CHECKING:
    from cabai.simulation.results import Comparison, Comparisons, Runs, Summary, Totals
    from cabai.simulation.simulating import compare, simulate

__all__ = ["Comparison", "Comparisons", "Runs", "Summary", "Totals", "compare", "simulate"]

__getattr__ = on_demand(
    "cabai.simulation",
    {
        **dict.fromkeys(("Comparison", "Comparisons", "Runs", "Summary", "Totals"), "cabai.simulation.results"),
        **dict.fromkeys(("compare", "simulate"), "cabai.simulation.simulating"),
    },
)
