"""Cost-aware best arm identification: find the best of K options, with a guarantee, for the least money."""

import cabai.interrupts as _  # noqa: F401 - first: it answers Ctrl-C while the rest is loaded
from cabai import families, policies, thresholds
from cabai.bound import Bound, bound
from cabai.calibration import Certificate, calibrate
from cabai.checks import InvalidInput
from cabai.evidence import Evidence, Statistics, evidence
from cabai.instance import Instance
from cabai.policies import policy
from cabai.simulation import Comparison, Runs, Summary, compare, simulate
from cabai.study import (
    AlreadyTold,
    FailedPulls,
    LostPull,
    NoPull,
    RunFailed,
    StorageError,
    StudyNotFound,
    StudyStopped,
    create_study,
    delete_study,
    list_studies,
    load_study,
)

__version__ = "0.1.0"
__all__ = [
    "AlreadyTold",
    "Bound",
    "Certificate",
    "Comparison",
    "Evidence",
    "FailedPulls",
    "Instance",
    "InvalidInput",
    "LostPull",
    "NoPull",
    "RunFailed",
    "Runs",
    "Statistics",
    "StorageError",
    "StudyNotFound",
    "StudyStopped",
    "Summary",
    "bound",
    "calibrate",
    "compare",
    "create_study",
    "delete_study",
    "evidence",
    "families",
    "list_studies",
    "load_study",
    "policies",
    "policy",
    "simulate",
    "thresholds",
]
