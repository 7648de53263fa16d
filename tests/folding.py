"""The state of a study, driven by hand: what a policy and a test see, without a study, a log or a clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cabai.study.current import new_state
from cabai.study.settings import Settings


class Play:
    """Rewards, as kernels see them, are observed in the order of asking; only what is said to be under way is."""

    def __init__(self, settings: Settings) -> None:
        self.state = new_state(settings)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.state, name)

    @property
    def arms(self) -> Any:
        return self.state.told_view.arms

    @property
    def run(self) -> Any:
        return self.state.told_view.run

    @property
    def kernels(self) -> Any:
        return self.state.settings.kernels

    def observe(self, a: int, reward: float, cost: float) -> None:
        self.state._observe(self.state.told_view, a, reward, cost)
        self.state.pay(a, cost)

    def stops(self) -> bool:
        return self.state._stops(self.state.ordered)

    def choose(self, under_way: Sequence[int]) -> int:
        return self.state.choose_after(under_way)


def check_order_of_asking(study: Any, *fields: str) -> None:
    """Arms have the records, and the study the decision, of one worker who was handed the same arms and told in the
    order of asking, and who stops with the first result that decides. (Nothing has failed.)"""
    play, arms = Play(study.settings), study._current.look(lambda found: found.ordered.arms)
    told = sorted(study.observations(), key=lambda each: int(each["pull"].partition("-")[2]))
    counted = sum(each["counted"] for each in told)
    assert [each["counted"] for each in told] == [i < counted for i in range(len(told))]
    for i, each in enumerate(told[:counted]):
        play.observe(study.arms.index(each["arm"]), each["reward"], each["cost"])
        assert play.stops() == (i == counted - 1)
    for name in ("pulls", "rewards", *fields):
        assert arms[name].tolist() == play.arms[name].tolist()
    assert study.decision == study.arms[play.leader]
