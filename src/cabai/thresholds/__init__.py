"""How much evidence is enough: when one arm beats another. One file per threshold."""

from __future__ import annotations

from cabai.support.registry import Registry
from cabai.thresholds.base import ALL_FAMILIES, Threshold
from cabai.thresholds.calibrated import Calibrated
from cabai.thresholds.contrast import Contrast
from cabai.thresholds.evalue import EValue
from cabai.thresholds.kt import KT
from cabai.thresholds.mixture import Mixture
from cabai.thresholds.paper import Paper
from cabai.thresholds.stylized import Stylized

__all__ = [
    "ALL_FAMILIES", "DEFAULT", "KT", "THRESHOLDS", "Calibrated", "Contrast", "EValue", "Mixture", "Paper", "Stylized",
    "Threshold", "threshold_of",
]  # fmt: skip

DEFAULT = "evalue"  # of simulations, comparisons and studies alike: what was simulated is what runs
THRESHOLDS: Registry[Threshold] = Registry("threshold", Paper, Stylized, KT, Mixture, EValue, Contrast, Calibrated)


def threshold_of(given: str | Threshold) -> Threshold:
    """The threshold of that name, or the threshold itself.

    >>> print(threshold_of("paper(alpha=1.2)"))
    paper(alpha=1.2)
    """
    return THRESHOLDS.get(given)
