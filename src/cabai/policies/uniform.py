"""Uniform sampling: a baseline."""

from dataclasses import dataclass

from cabai.policies.base import Policy


def choose(arms, run, rules):
    return run.t % len(arms)


@dataclass(frozen=True)
class Uniform(Policy):
    """Pull the arms in turn until the leader beats every rival.

    >>> import cabai
    >>> instance = cabai.Instance("bernoulli", means=[0.9, 0.5], costs=[1, 0.1])
    >>> cabai.simulate(instance, "uniform", trajectories=100).summary().errors
    0
    """

    name = "uniform"
    choose = staticmethod(choose)
    cost_blind = True
