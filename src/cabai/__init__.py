"""Cost-aware best arm identification: find the best of K options, with a guarantee, for the least money."""

from typing import TYPE_CHECKING, Any

import cabai.interrupts as _  # noqa: F401 - first: it answers Ctrl-C while the rest is loaded
from cabai import datasets, families, policies, prices, thresholds
from cabai.bound import Bound, bound
from cabai.calibration import Certificate, calibrate
from cabai.core.statistics import Evidence, Statistics, evidence
from cabai.datasets import MissingScores, Replay, replay
from cabai.families import Family
from cabai.instance import Instance
from cabai.planning import Plan, plan
from cabai.policies import Policy, policy
from cabai.simulation import Comparison, EngineFailed, Runs, Summary, Totals, compare, simulate
from cabai.study import (
    AlreadyTold,
    CostlyStudy,
    Evaluation,
    FailedPulls,
    LostPull,
    NoPull,
    RunFailed,
    SourceChanged,
    StorageError,
    StudyNotFound,
    StudyStopped,
    WideRewards,
    create_study,
    delete_study,
    evaluate,
    list_studies,
    load_study,
)
from cabai.support.streams import normal, uniform
from cabai.support.validation import InvalidInput
from cabai.thresholds import Threshold

if TYPE_CHECKING:
    from cabai.study import Pull, Status, Study

__version__ = "0.1.0"
__all__ = [
    "AlreadyTold",
    "Bound",
    "Certificate",
    "Comparison",
    "CostlyStudy",
    "EngineFailed",
    "Evaluation",
    "Evidence",
    "FailedPulls",
    "Family",
    "Instance",
    "InvalidInput",
    "LostPull",
    "MissingScores",
    "NoPull",
    "Plan",
    "Policy",
    "Pull",
    "Replay",
    "RunFailed",
    "Runs",
    "SourceChanged",
    "Statistics",
    "Status",
    "StorageError",
    "Study",
    "StudyNotFound",
    "StudyStopped",
    "Summary",
    "Threshold",
    "Totals",
    "WideRewards",
    "bound",
    "calibrate",
    "compare",
    "create_study",
    "datasets",
    "delete_study",
    "evaluate",
    "evidence",
    "families",
    "list_studies",
    "load_study",
    "normal",
    "plan",
    "policies",
    "policy",
    "prices",
    "replay",
    "simulate",
    "thresholds",
    "uniform",
]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    """Study, Pull and Status, loaded when first asked for: they bring the database code with them."""
    if name in ("Study", "Pull", "Status"):
        from cabai import study

        return getattr(study, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
