"""Cost-aware best arm identification: find the best of K options, with a guarantee, for the least money."""

from typing import TYPE_CHECKING

import cabai.interrupts as _  # noqa: F401 - first: it handles Ctrl-C while the rest is loading
from cabai import families, policies, thresholds
from cabai.bound import Bound, bound
from cabai.core.statistics import Evidence, Statistics, evidence
from cabai.families import Family
from cabai.instance import Instance
from cabai.policies import Policy, policy
from cabai.study import (
    AlreadyTold,
    CostlyStudy,
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
    import_study,
    list_studies,
    load_study,
)
from cabai.support.doors import DOORS
from cabai.support.on_demand import on_demand
from cabai.support.streams import normal, uniform
from cabai.support.validation import InvalidInput
from cabai.support.version import __version__ as __version__
from cabai.thresholds import Threshold

if TYPE_CHECKING:
    from cabai import datasets, prices
    from cabai.calibration import Certificate, calibrate
    from cabai.datasets import MissingScores, Replay, replay
    from cabai.planning import Plan, plan
    from cabai.simulation import Comparison, EngineFailed, Runs, Summary, Totals, compare, simulate
    from cabai.study import Evaluation, Failed, Pull, Status, Study, evaluate

__all__ = [
    "AlreadyTold",
    "Bound",
    "Certificate",
    "Comparison",
    "CostlyStudy",
    "EngineFailed",
    "Evaluation",
    "Evidence",
    "Failed",
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
    "import_study",
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


DOORS["page"] = "cabai.server.beside:watched"  # what `study.run(page=True)` opens
DOORS["forecast"] = "cabai.planning.forecast:Forecasts"  # what `study.status(forecast=True)` asks


def __dir__() -> list[str]:
    return __all__


__getattr__ = on_demand(
    "cabai",
    {
        **{name: f"cabai.{name}" for name in ("calibration", "datasets", "prices", "simulation")},
        **dict.fromkeys(("Certificate", "calibrate"), "cabai.calibration"),
        **dict.fromkeys(("MissingScores", "Replay", "replay"), "cabai.datasets"),
        **dict.fromkeys(("Plan", "plan"), "cabai.planning"),
        **dict.fromkeys(
            ("Comparison", "EngineFailed", "Runs", "Summary", "Totals", "compare", "simulate"), "cabai.simulation"
        ),
        **dict.fromkeys(("Evaluation", "Failed", "Pull", "Status", "Study", "evaluate"), "cabai.study"),
    },
)
