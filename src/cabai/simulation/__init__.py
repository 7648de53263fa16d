"""Many trajectories, compiled, on all cores or on a cluster."""

from cabai.simulation.comparing import compare
from cabai.simulation.engines import EngineFailed
from cabai.simulation.results import Comparison, Runs, Summary, Totals
from cabai.simulation.simulating import simulate

__all__ = ["Comparison", "EngineFailed", "Runs", "Summary", "Totals", "compare", "simulate"]
