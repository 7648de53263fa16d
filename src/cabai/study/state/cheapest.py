"""The state of a study with goal cheapest: what is still to be shown."""

from __future__ import annotations

import math

import numpy as np

from cabai.core.state import Record, Records
from cabai.core.stopping import required
from cabai.core.within import excess
from cabai.policies.cheapest import cost_to_run, is_cheaper, likely_answer
from cabai.study.state.progress import Claim
from cabai.study.state.sampled import SampledState


class CheapestState(SampledState):
    """Its leader is the likely answer: the cheapest arm that looks good enough."""

    @property
    def leader(self) -> int | None:
        view = self.ordered
        if not view.everything_pulled:
            return view.leader
        return int(likely_answer(Records(view.arms), Record(view.run), Record(self.rules)))

    @property
    def running_costs(self) -> list[float]:
        """Those by which the results that count are compared."""
        arms = Records(self.ordered.arms)
        known = [arms[a].running_cost >= 0 or arms[a].pulls > 0 for a in range(len(arms))]
        return [float(cost_to_run(arms[a])) if is_known else math.inf for a, is_known in enumerate(known)]

    def claims(self) -> list[Claim]:
        """Those still to be shown for the likely answer; of several alternatives the closest."""
        view, answer, rules = self.ordered, self.leader, Record(self.rules)
        if answer is None or not view.everything_pulled or not self.setup.shows_evidence:
            return []
        arms, t, found = Records(view.arms), int(view.run["t"]), list[tuple[int, int, float]]()
        least, epsilon, margin = float(self.setup.bound(required)(t, rules)), float(rules.epsilon), float(rules.margin)

        def shown(b: int, a: int, epsilon: float) -> float:
            return float(self.setup.bound(excess)(rules, t, arms[b], arms[a], epsilon))

        with np.errstate(all="ignore"):
            for a in [a for a in range(len(arms)) if a != answer]:
                if arms[a].cleared_for != answer:
                    found.append((answer, a, epsilon))
                if not arms[a].excluded and is_cheaper(arms, a, answer):
                    others = (j for j in range(len(arms)) if j != a)
                    found.append((max(others, key=lambda j: shown(j, a, -margin)), a, -margin))
            return [Claim(*each, least + shown(*each), least) for each in found]

    def weakest(self) -> Claim | None:
        return min(self.claims(), key=lambda claim: claim.evidence, default=None)

    def closest(self) -> tuple[int, float, float] | None:
        """The rival in the weakest pair, its evidence and what is required of it."""
        weakest = self.weakest()
        if weakest is None:
            return None
        b, a, _, evidence, least = weakest
        return (a if b == self.leader else b), evidence, least

    def claim(self) -> str | None:
        weakest, names = self.weakest(), self.settings.arms
        if weakest is None:
            return None
        b, a, epsilon, *_ = weakest
        if epsilon > 0:
            return f"{names[b]} is within {self.settings.epsilon:g} of {names[a]}"
        margin = epsilon * self.settings.family.unit
        return f"{names[b]} is better than {names[a]} by more than {abs(margin):g}"
