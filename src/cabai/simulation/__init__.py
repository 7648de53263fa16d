"""Many trajectories, compiled, on all cores or on a cluster."""

from typing import TYPE_CHECKING

from cabai.support.on_demand import on_demand

if TYPE_CHECKING:
    from cabai.simulation.comparing import compare
    from cabai.simulation.results import Comparison, Comparisons, Runs, Summary, Totals
    from cabai.simulation.simulating import simulate

__all__ = ["Comparison", "Comparisons", "Runs", "Summary", "Totals", "compare", "simulate"]

__getattr__ = on_demand(
    "cabai.simulation",
    {
        "compare": "cabai.simulation.comparing",
        **dict.fromkeys(("Comparison", "Comparisons", "Runs", "Summary", "Totals"), "cabai.simulation.results"),
        "simulate": "cabai.simulation.simulating",
        "comparing": "cabai.simulation.comparing",
    },
)
