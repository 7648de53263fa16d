"""What the results that count show, at any moment: the evidence for pairs of arms, confidence, intervals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cabai.core.observe import weigh
from cabai.core.setup import Setup
from cabai.core.state import Record, Records
from cabai.core.stopping import interval_level, required
from cabai.families.base import lower_end, upper_end
from cabai.study import levels
from cabai.study.stand_ins import StandIn
from cabai.study.state import progress
from cabai.study.state.accounts import Accounts
from cabai.study.state.progress import Claim, Pairs, Remaining
from cabai.support.validation import InvalidInput
from cabai.thresholds import Bets, Symmetric, bets, symmetric


class Evidence(Accounts):
    """Part of the state of a study whose arms are sampled. It only looks."""

    _pairs: dict[tuple[int, int], tuple[float, float]]  # as far as they were asked for since the last event

    @property
    def setup(self) -> Setup:
        return self.settings.setup()

    @property
    def rules(self) -> Any:
        return self.setup.rules

    def rules_of(self, leader: int) -> Any:
        """The rules by which an arm is compared with its rivals."""
        return self.settings.rules_for(leader, int(np.count_nonzero(self.here)))

    def pair(self, b: int, a: int) -> tuple[float, float]:
        """The evidence that b is better than a (up to epsilon), and what is required of it, computed once per event."""
        if (b, a) not in self._pairs:
            arms, rules, t = Records(self.ordered.arms), self.rules_of(b), int(self.ordered.run["t"])
            with np.errstate(all="ignore"):
                least = float(self.setup.bound(required)(t, Record(rules)) + arms[b].price + arms[a].price)
                more = self.settings.kernels.surplus(self.ordered.arms, self.ordered.run, b, a, rules)
            self._pairs[b, a] = least + more if math.isfinite(least) else 0.0, least
        return self._pairs[b, a]

    def pairs(self, leader: int | None) -> Pairs:
        """The same of the leader and each other arm; None where there is none yet."""
        arms = self.ordered.arms
        if leader is None or not self.ordered.everything_pulled:
            return [None] * len(arms)
        return [self.pair(leader, a) if a != leader and self.here[a] else None for a in range(len(arms))]

    @property
    def shows(self) -> bool:
        return self.settings.can_test and self.setup.shows_evidence

    def about(self) -> dict[str, Any]:
        settings, threshold = self.settings, self.settings.threshold
        told = self.told if self.ended is None else self.told_at_stop
        return {
            "policy": settings.policy.address, "threshold": threshold.address,
            "proven": threshold.is_proven_for(settings.family),
            "certified": settings.is_certified and told <= (settings.certified_pulls or 0),
            "certified_pulls": settings.certified_pulls,
            "would_decide": settings.is_present and self.ended is None and self.would_decide,
            "unused": 0 if self.ended is None else self.waiting_at_stop,
        }  # fmt: skip

    def counted(self, a: int) -> tuple[int, int, float | None]:
        """The pulls of arm a that count, those that wait, and the mean of the first."""
        arm, settings = self.ordered.arms[a], self.settings
        can_show = arm["pulls"] and (settings.direction == "maximize" or "family" not in settings.missing)
        mean = float(settings.shown(arm["mean"])) if can_show else None
        return int(arm["pulls"]), int(self.told_view.arms[a]["pulls"] - arm["pulls"]), mean

    def is_excluded(self, a: int) -> bool:
        return bool(self.ordered.arms[a]["excluded"])

    def at_most(self) -> float | None:
        return self.rest_of_budget

    def claims(self) -> list[Claim]:
        """What is still to be shown, and how far it is: that the leader beats each rival."""
        leader = int(self.ordered.run["leader"])
        if not self.ordered.everything_pulled or not self.setup.shows_evidence:
            return []
        rivals = [a for a in np.flatnonzero(self.unbeaten).tolist() if a != leader]
        return [Claim(leader, a, float(self.rules["epsilon"]), *self.pair(leader, a)) for a in rivals]

    def estimate(self) -> Remaining | None:
        return None if self.settings.policy.spends_budget else progress.of_sampled(self, self.claims())  # never decides

    def lead(self, b: int, a: int) -> float | None:
        arms = self.ordered.arms
        if not (arms[b]["pulls"] and arms[a]["pulls"]):
            return None
        return float(arms[b]["mean"] - arms[a]["mean"]) * self.settings.family.unit

    def closest(self) -> tuple[int, float, float] | None:
        """The rival that the leader is furthest from beating, its evidence and what is required of it."""
        mean = self.ordered.arms["mean"]  # the best of those that no evidence shows against
        found = min(self.claims(), key=lambda each: (each.evidence - each.required, -mean[each.loser]), default=None)
        return None if found is None else (found.loser, found.evidence, found.required)

    def confidence(self) -> float:
        """1 - the smallest delta at which the leader would now beat every rival; 0 if there is none.

        It is valid at any time, by the proof of the guarantee. Arms that were dropped were beaten at delta.
        """
        closest = self.closest()
        delta, leader = self.settings.delta, int(self.ordered.run["leader"])
        if closest is None or not math.isfinite(closest[2]):
            return 1 - delta if np.count_nonzero(self.unbeaten) == 1 else 0.0
        _, z, least = closest
        gathered = z - least + float(self.rules_of(leader)["level"])  # the level that would have been reached
        if self.settings.reserve is not None or self.settings.dropped:
            chance = math.exp(min(levels.level(self.settings, leader, delta) - gathered, 0.0 - math.log(delta)))
            return max(1 - self.settings.error * max(chance, 1.0), 0.0)

        def level(chance: float) -> float:
            return float(self.settings.setup(delta=chance).rules["level"])

        low, high = math.log(delta), math.log(1 - 1e-9)  # of delta; the level falls as it grows
        if gathered > level(delta):
            return 1 - delta
        try:
            level((1 + delta) / 2)
        except InvalidInput:  # a calibrated threshold is for one delta only
            return 0.0
        if gathered <= level(math.exp(high)):
            return 0.0
        for _ in range(50):
            middle = (low + high) / 2
            low, high = (low, middle) if gathered > level(math.exp(middle)) else (middle, high)
        return 1 - math.exp(high)

    def interval(self, a: int) -> tuple[float, float]:
        """A confidence interval of the mean of arm a, from the results that count; all K hold at all times with
        probability 1 - delta.

        {q : n d(mean, q) <= log(K/delta) + price}, n and mean of the rewards that count, from the mixture of `evalue`
        for one arm alone: proven for every family, whatever the study's own threshold. Where that is `bets` or
        `symmetric`, its bets on one arm alone (docs/theory/bets.md, symmetric.md).
        """
        everything, ordered = self.settings.family.mean_range, self.ordered.arms[a]
        if ordered["pulls"] == 0 or isinstance(self.settings.family, StandIn):
            return everything
        if a in self.summed and self.settings.family.sets_first_aside:
            return everything
        if isinstance(self.setup.threshold, (Bets, Symmetric)):
            level = levels.log_parts(self.settings, a) + math.log(2 / self.settings.delta)
            of_bets = bets.interval if isinstance(self.setup.threshold, Bets) else symmetric.interval
            ends = [float(self.settings.shown(end)) for end in of_bets(Record(ordered), level)]
            return min(ends), max(ends)
        try:
            setup = self.settings.of_one_arm
        except InvalidInput:  # a user's own family, without a mixture
            return everything
        arm, rules = Record(setup.start()[0][0]), Record(setup.rules)
        for name in ("pulls", "rewards", "first", "mean"):
            setattr(arm, name, ordered[name])
        with np.errstate(all="ignore"):
            setup.bound(weigh)(arm, rules)
            if arm.tested == 0:
                return everything
            count = len(self.settings.arms)
            more = levels.log_parts(self.settings, a) - math.log(count)  # where parts of delta are not equal
            level = setup.bound(interval_level)(arm, 0, rules, count) + more / arm.tested
            ends = [setup.bound(end)(rules, arm.tested_mean, level) for end in (lower_end, upper_end)]
        low, high = sorted(float(self.settings.shown(end)) for end in ends)
        return low, high

    def variance(self, a: int) -> float | None:
        """The sample variance of the rewards of arm a that count, if it is known; as kernels see them."""
        arm, squares = self.ordered.arms[a], float(self.squares[a])
        pulls = int(arm["pulls"])
        if pulls < 2 or not math.isfinite(squares):
            return None
        away = float(arm["rewards"]) / pulls - float(arm["first"])
        return float(max(squares - pulls * away * away, 0.0) / (pulls - 1))
