"""Cost-aware best arm identification: find the best of K options, with a guarantee, for the least money.

Live studies:      create_study load_study list_studies delete_study import_study Study
Datasets:          evaluate Failed replay datasets prices
Before you pay:    plan
Simulated studies: Instance bound simulate compare calibrate Certificate
Evidence alone:    Statistics evidence
What rewards are:  families Family
When to stop:      thresholds Threshold
What to pull:      policies Policy policy uniform normal
What is returned:  results
What goes wrong:   errors
"""

from typing import TYPE_CHECKING

import cabai.interrupts as _  # noqa: F401 - first: it handles Ctrl-C while the rest is loading
from cabai import errors, families, policies, thresholds
from cabai.bound import bound
from cabai.core.statistics import Statistics, evidence
from cabai.families import Family
from cabai.instance import Instance
from cabai.policies import Policy, policy
from cabai.support.on_demand import DOORS, on_demand
from cabai.support.streams import normal, uniform
from cabai.support.version import __version__ as __version__
from cabai.thresholds import Threshold

if TYPE_CHECKING:
    from cabai import datasets, prices, results
    from cabai.calibration import Certificate, calibrate
    from cabai.datasets import replay
    from cabai.planning import plan
    from cabai.simulation import compare, simulate
    from cabai.study import (
        Failed,
        Study,
        create_study,
        delete_study,
        evaluate,
        import_study,
        list_studies,
        load_study,
    )

__all__ = [
    "Certificate",
    "Failed",
    "Family",
    "Instance",
    "Policy",
    "Statistics",
    "Study",
    "Threshold",
    "bound",
    "calibrate",
    "compare",
    "create_study",
    "datasets",
    "delete_study",
    "errors",
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
    "results",
    "simulate",
    "thresholds",
    "uniform",
]


DOORS["page"] = "cabai.server.serving:watched"  # what `study.run(page=True)` opens


def __dir__() -> list[str]:
    return __all__


__getattr__ = on_demand(
    "cabai",
    {
        **{name: f"cabai.{name}" for name in ("calibration", "datasets", "inspect", "prices", "results", "simulation")},
        **dict.fromkeys(("Certificate", "calibrate"), "cabai.calibration"),
        "replay": "cabai.datasets",
        "plan": "cabai.planning",
        **dict.fromkeys(("compare", "simulate"), "cabai.simulation"),
        **dict.fromkeys(("Failed", "Study", "evaluate", "import_study"), "cabai.study"),
        **dict.fromkeys(("create_study", "delete_study", "list_studies", "load_study"), "cabai.study"),
        **dict.fromkeys(errors.__all__, "cabai.errors"),
    },
)
