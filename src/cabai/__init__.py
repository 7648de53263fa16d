"""Cost-aware best arm identification: find the best of K options, with a guarantee, for the least money."""

from cabai import families, thresholds
from cabai.bound import Bound, bound
from cabai.checks import InvalidInput
from cabai.evidence import Evidence, Statistics, evidence
from cabai.instance import Instance

__version__ = "0.1.0"
__all__ = ["Bound", "Evidence", "Instance", "InvalidInput", "Statistics", "bound", "evidence", "families", "thresholds"]
