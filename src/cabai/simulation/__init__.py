"""Many trajectories, compiled, on all cores."""

from cabai.simulation.comparing import compare
from cabai.simulation.results import Comparison, Runs, Summary
from cabai.simulation.simulating import simulate

__all__ = ["Comparison", "Runs", "Summary", "compare", "simulate"]
