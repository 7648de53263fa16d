"""Cost-aware best arm identification: find the best of K options, with a guarantee, for the least money."""

from cabai import families, policies, thresholds
from cabai.bound import Bound, bound
from cabai.calibration import Certificate, calibrate
from cabai.checks import InvalidInput
from cabai.evidence import Evidence, Statistics, evidence
from cabai.instance import Instance
from cabai.policies import policy
from cabai.simulation import Comparison, Runs, Summary, compare, simulate

__version__ = "0.1.0"
__all__ = [
    "Bound",
    "Certificate",
    "Comparison",
    "Evidence",
    "Instance",
    "InvalidInput",
    "Runs",
    "Statistics",
    "Summary",
    "bound",
    "calibrate",
    "compare",
    "evidence",
    "families",
    "policies",
    "policy",
    "simulate",
    "thresholds",
]
