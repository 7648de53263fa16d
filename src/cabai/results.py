"""What functions return: no program makes these itself."""

from typing import TYPE_CHECKING

from cabai.bound import Bound
from cabai.core.statistics import Evidence
from cabai.support.on_demand import on_demand

if TYPE_CHECKING:
    from cabai.datasets import Replay
    from cabai.planning import Plan
    from cabai.simulation import Comparison, Comparisons, Runs, Summary, Totals
    from cabai.study import Evaluation, Pull, Status

__all__ = [
    "Bound",
    "Comparison",
    "Comparisons",
    "Evaluation",
    "Evidence",
    "Plan",
    "Pull",
    "Replay",
    "Runs",
    "Status",
    "Summary",
    "Totals",
]

__getattr__ = on_demand(
    "cabai.results",
    {
        "Replay": "cabai.datasets",
        "Plan": "cabai.planning",
        **dict.fromkeys(("Comparison", "Comparisons", "Runs", "Summary", "Totals"), "cabai.simulation"),
        **dict.fromkeys(("Evaluation", "Pull", "Status"), "cabai.study"),
    },
)
