"""What a budget is enough for: the smallest epsilon, gap and delta."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from cabai.planning.bills import Bills
from cabai.planning.searching import Found, smallest
from cabai.planning.simulating import Lab, Progress, with_epsilon
from cabai.planning.truths import Truths
from cabai.study.settings import Settings
from cabai.thresholds import Calibrated

DELTAS = [float(f"{m}e-{e}") for e in range(1, 11) for m in (5, 4, 3, 2.5, 2, 1.5, 1)]  # that a plan may find


@dataclasses.dataclass(frozen=True)
class Question:
    """What a budget is enough for, with a given chance."""

    lab: Lab
    settings: Settings
    truths: Truths
    budget: float
    chance: float
    say: Progress

    def bill(self, settings: Settings, truths: Truths) -> Bills:
        return self.lab.bill(settings, truths, max_cost=2 * self.budget, effort=self.lab.effort // 4)

    def search(self, bills: Any, start: float, least: float, most: float, guess: Any = None) -> Found:
        by_square = guess or (lambda x, ratio: 1.02 * x * math.sqrt(ratio))  # bills are proportional to 1/gap²
        return smallest(bills, start, budget=self.budget, chance=self.chance, least=least, most=most, guess=by_square)

    def epsilon(self) -> Found | None:
        """The smallest epsilon."""
        if isinstance(self.settings.threshold, Calibrated):
            return None  # it was calibrated for one epsilon
        self.say("searching for the epsilon")
        without = self.bill(with_epsilon(self.settings, 0.0), self.truths).chance(self.budget)
        if without.value >= self.chance:
            return Found(0.0, without, 0.0)
        scale, width = scale_of(self.truths), self.settings.family.mean_range
        most = 0.999 * (width[1] - width[0])
        most = most if math.isfinite(most) else 1e3 * scale

        def bills(epsilon: float) -> Bills:
            self.say(f"searching for the epsilon: {epsilon:g}")
            return self.bill(with_epsilon(self.settings, epsilon), self.truths)

        return self.search(bills, scale, min(1e-4 * scale, most), most)

    def gap(self) -> Found | None:
        """The smallest gap between the best arm and the next."""
        most, scale = self.truths.largest_gap, scale_of(self.truths)
        most = most if math.isfinite(most) and most < 1e6 * scale else 1e3 * scale
        if not most > 0:
            return None

        def bills(gap: float) -> Bills:
            self.say(f"searching for the gap: {gap:g}")
            return self.bill(self.settings, self.truths.with_gap(gap))

        return self.search(bills, min(scale, most), min(1e-4 * scale, most), most)

    def delta(self) -> Found | None:
        """The smallest delta: of those in a list or, where choices depend on delta, by a search."""
        if isinstance(self.settings.threshold, Calibrated):
            return None  # and for one delta
        self.say("searching for the delta")
        if not self.settings.policy.depends_on_delta:
            all_bills = self.lab.bills(
                self.settings, self.truths, max_cost=self.budget, effort=self.lab.effort // 4, deltas=DELTAS
            )
            chances = [bills.chance(self.budget) for bills in all_bills]
            enough = [j for j, each in enumerate(chances) if each.value >= self.chance]
            if not enough:
                return Found(None, chances[0], DELTAS[0])
            return Found(DELTAS[enough[-1]], chances[enough[-1]], DELTAS[enough[-1]])

        def bills(delta: float) -> Bills:
            return self.bill(dataclasses.replace(self.settings, delta=delta), self.truths)

        return self.search(bills, self.settings.delta, DELTAS[-1], DELTAS[0], lambda x, ratio: x ** min(1 / ratio, 8.0))


def scale_of(truths: Truths) -> float:
    """How far apart means are, roughly: where searches begin."""
    middle = float(np.median(truths.gaps))
    wide = float(np.median(np.ptp(truths.means, axis=1)))
    near = abs(float(np.median(truths.means)))
    return middle or wide or 0.1 * near or 0.1
