"""Thresholds found by simulation: how little evidence is enough."""

from cabai.calibration.calibrating import calibrate
from cabai.calibration.certificate import Certificate, Searched

__all__ = ["Certificate", "Searched", "calibrate"]
