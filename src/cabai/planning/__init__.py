"""Plan before paying: studies simulated on truths drawn from what is known."""

from cabai.planning.planning import plan
from cabai.planning.results import Plan

__all__ = ["Plan", "plan"]
