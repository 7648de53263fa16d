"""One transaction on a study with items."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from cabai.study.change import MILESTONES, Asker, Change, Result, cost_of
from cabai.study.items_play import ItemsPlay
from cabai.study.items_status import failing
from cabai.study.ledger import EVIDENCE
from cabai.study.pull import Pull

LESS_THAN_CERTAIN = math.nextafter(1.0, 0.0)  # 1 is only for what is known exactly, however small delta is


class ItemsChange(Change):
    """Results enter a race at once, in any order of arrival: a race uses items in its own order."""

    play: ItemsPlay

    def take(self, pull: Any, result: Result, *, lapses: int | None = None) -> None:
        play, a, cost = self.play, pull.arm, cost_of(self.settings, pull.arm, result.cost)
        play.observe(a, pull.item, result.reward, cost)
        self.log(pull, result, cost, lapses)
        play.last = (pull.number, self.now)
        if not self.is_over:
            self.decide()
        if result.failed is not None and play.failures[a] in MILESTONES:
            self.warn(failing(play, a), f" The last: {result.failed}")

    def count(self) -> None:
        """Everything told has been counted."""

    def decide(self) -> None:
        """End the study if the race is over."""
        winner = self.play.winner
        if winner is not None:
            sure = 1.0 if self.play.race.is_complete else min(1 - self.settings.delta, LESS_THAN_CERTAIN)
            self.end(EVIDENCE, sure, winner)

    def settle_lapsed(self) -> list[Any]:
        self.decide()  # reused scores may decide a race before it begins
        return super().settle_lapsed()

    def is_wanted(self, arm: int) -> bool:
        return arm in self.play.race.active(self.play.prices)

    def next_arm(self) -> int | None:
        return next((arm for arm, _ in self.play.to_come([])), None)

    def hand_out(self, live: Sequence[Any], count: int, asker: Asker, beyond: int = 0) -> tuple[list[Pull], str]:
        handed: list[Pull] = []
        settings, under_way = self.settings, self.under_way(live)
        why = f"the budget of study {self.ledger.name!r} is used up by pulls under way ({len(live)})"
        to_come = self.play.to_come(live, beyond)
        while len(handed) < count and self.reached(under_way) is None:
            found = next(to_come, None)
            if found is None:
                why = "enough is under way: its results may decide, and more would be paid for nothing"
                break
            arm, item = found
            if settings.max_cost is not None and not self.affordable(under_way)[arm]:
                if under_way[arm] and not self.play.knows_cost[arm]:
                    why = (
                        f"the cost of an evaluation of {settings.arms[arm]!r} is not known yet, and the first one is "
                        "under way"
                    )
                break
            under_way[arm] += 1
            handed.append(self.hand(arm, asker, item))
        return handed, why
