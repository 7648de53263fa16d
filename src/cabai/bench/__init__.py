"""The bench: policies on suites of published instances, and their leaderboard."""

from cabai.bench.running import Bench, bench
from cabai.bench.suites import SUITES

__all__ = ["SUITES", "Bench", "bench"]
