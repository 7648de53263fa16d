"""Racing: Chernoff-Overlap with every cost taken as 1, so pulls are divided equally among the arms in play."""

from dataclasses import dataclass

from cabai.policies.co import CO


@dataclass(frozen=True)
class Racing(CO):
    """CO that ignores costs: pull each arm in play in turn, drop the arms that the leader beats.

    Like `co`, it never ends between tied arms once the best arm was dropped.

    >>> import cabai
    >>> instance = cabai.Instance("bernoulli", means=[0.9, 0.5], costs=[1, 0.1])
    >>> cabai.simulate(instance, "racing", trajectories=100).summary().errors
    0
    """

    name = "racing"
    cost_blind = True
