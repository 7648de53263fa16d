"""Z: how strongly the data prefer one arm over another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cabai.core.evidence import evidence as evidence_of
from cabai.core.observe import weigh
from cabai.core.setup import Setup
from cabai.core.state import Record
from cabai.families import Family, family_of
from cabai.support.specialise import specialised
from cabai.support.validation import InvalidInput, check_kind, numbers


class Statistics:
    """Summary statistics of the data: for each arm its pulls N, the sum R of its rewards, and its first reward.

    Every threshold except `bets` uses only these. The first rewards are only needed for `evalue`, and not for bernoulli
    and bounded rewards. `bets` needs the rewards themselves (`Statistics.of`) or the sums of their squares, with which
    it finds slightly less evidence.

    >>> seen = Statistics.of("bernoulli", [[1, 1, 0, 1], [0, 1, 0, 0]])
    >>> seen
    Statistics('bernoulli', pulls=[4, 4], rewards=[3.0, 1.0])
    >>> seen.pulls, seen.rewards, seen.first, seen.means, seen.leader
    (array([4, 4]), array([3., 1.]), array([1., 0.]), array([0.75, 0.25]), 0)
    """

    def __init__(
        self,
        family: str | Family,
        pulls: Sequence[int] | NDArray[np.int64],
        rewards: Sequence[float] | NDArray[np.float64],
        *,
        first: Sequence[float] | NDArray[np.float64] | None = None,
        squares: Sequence[float] | NDArray[np.float64] | None = None,
        variance: float | None = None,
    ) -> None:
        self.family = family_of(family, variance)
        counts, sums = numbers(pulls, "pulls"), numbers(rewards, "rewards")
        firsts = None if first is None else numbers(first, "first")
        self.squares = None if squares is None else numbers(squares, "squares")
        if len({len(each) for each in (counts, sums, firsts, self.squares) if each is not None}) > 1:
            raise InvalidInput("pulls, rewards, first and squares must have the same length, one entry per arm.")
        if len(counts) < 2:
            raise InvalidInput("evidence needs at least 2 arms, got 1.")
        for a in range(len(counts)):
            if not 1 <= counts[a] < 2**53 or counts[a] != int(counts[a]):
                raise InvalidInput(f"pulls[{a}] must be a whole number of at least 1, got {pulls[a]!r}.")
            self.family.check_mean((sums[a] / counts[a]).item(), f"rewards[{a}] / pulls[{a}]")
            if self.family.whole_rewards and sums[a] != int(sums[a]):
                raise InvalidInput(f"rewards[{a}] must be a whole number for {self.family}, got {rewards[a]!r}.")
            if firsts is not None:
                self.family.check_reward(firsts[a].item(), f"first[{a}]")
                if not fits(self.family, counts[a].item(), sums[a].item(), firsts[a].item()):
                    raise InvalidInput(
                        f"first[{a}] = {firsts[a]:g} cannot be one of {counts[a]:g} rewards with sum {sums[a]:g}."
                    )
        self._pulls, self._rewards, self._first = counts.astype(np.int64), sums, firsts
        self.samples: list[list[float]] | None = None  # the rewards themselves, if known

    def __len__(self) -> int:
        return len(self._pulls)

    @classmethod
    def of(
        cls, family: str | Family, samples: Sequence[Sequence[float]], *, variance: float | None = None
    ) -> Statistics:
        """Compute the statistics from each arm's rewards, given in the order they were observed."""
        kind = family_of(family, variance)
        for a, rewards in enumerate(samples):
            for i, reward in enumerate(numbers(rewards, f"samples[{a}]")):
                kind.check_reward(reward.item(), f"samples[{a}][{i}]")
        sums = [float(np.sum(rewards)) for rewards in samples]
        found = cls(kind, [len(rewards) for rewards in samples], sums, first=[rewards[0] for rewards in samples])
        found.samples = [list(map(float, rewards)) for rewards in samples]
        return found

    @property
    def pulls(self) -> NDArray[np.int64]:
        """The number of pulls of each arm."""
        return self._pulls.copy()

    @property
    def rewards(self) -> NDArray[np.float64]:
        """The sum of the rewards of each arm."""
        return self._rewards.copy()

    @property
    def first(self) -> NDArray[np.float64] | None:
        """The first reward of each arm, if known."""
        return None if self._first is None else self._first.copy()

    @property
    def means(self) -> NDArray[np.float64]:
        """The mean reward of each arm."""
        means: NDArray[np.float64] = self.rewards / self.pulls
        return means

    @property
    def leader(self) -> int:
        """The index of the arm with the largest mean; the lowest one if tied."""
        return int(self.means.argmax())

    def state(self, setup: Setup) -> tuple[NDArray[Any], np.void]:
        """The records of arms and run after these data, as far as the threshold uses them."""
        if self.first is None and setup.threshold.needs_first(self.family):
            raise InvalidInput(f"this threshold needs each arm's first reward for {self.family}; give first=[...].")
        arms, run = setup.start()
        seen = [self.family.scaled(mean) for mean in self.means.tolist()]
        sums = self.rewards if self.family.unit == 1.0 else seen * self.pulls
        arms["pulls"], arms["rewards"], arms["mean"] = self.pulls, sums, seen
        arms["first"] = np.nan if self.first is None else [self.family.scaled(each) for each in self.first.tolist()]
        run["t"], run["leader"] = self.pulls.sum(), self.leader
        if setup.threshold.arm_fields:
            setup.threshold.recall(arms, self)
        renew = setup.bound(weigh)
        for arm in arms:
            renew(Record(arm), Record(setup.rules))
        return arms, run

    def __repr__(self) -> str:
        return f"Statistics({str(self.family)!r}, pulls={self.pulls.tolist()}, rewards={self.rewards.tolist()})"


def fits(family: Family, pulls: float, total: float, first: float) -> bool:
    """Whether `pulls` rewards of a family can have this sum and this first reward."""
    rest, rounding = total - first, 1e-12 * pulls * (abs(total) + abs(first))
    if pulls == 1:
        return abs(rest) <= rounding
    if family.name == "bounded":  # its sums are rounded, and the first reward is never set aside
        low, high = family.mean_range
        return low * (pulls - 1) - rounding <= rest <= high * (pulls - 1) + rounding
    return family.allows_mean(rest / (pulls - 1))


@dataclass(frozen=True)
class Evidence:
    """The result of `cabai.evidence`: `pairwise[a, b]` is Z of arm a over b, negative if the data prefer b.

    >>> found = evidence(Statistics("gaussian", pulls=[100, 100], rewards=[150, 100]))
    >>> found.leader, round(float(found.pairwise[0, 1]), 2), round(found.overall, 2)
    (0, 6.25, 6.25)
    """

    pairwise: NDArray[np.float64]
    leader: int

    @property
    def overall(self) -> float:
        """Z(t): the evidence of the leader over its closest rival; 0 if the best mean is tied."""
        return float(np.delete(self.pairwise[self.leader], self.leader).min())


def evidence(statistics: Statistics) -> Evidence:
    """Compute the evidence Z in the data, for each pair of arms and overall.

    Z_{a,b} = N_a d(mean_a, m) + N_b d(mean_b, m), where m is their pooled mean. This is the log likelihood ratio of
    "each arm has its own mean" and "both have the same mean", here with the sign of mean_a - mean_b.

    >>> z = evidence(Statistics("gaussian", pulls=[100, 100, 10], rewards=[150, 100, 5]))
    >>> z.pairwise
    array([[ 0.        ,  6.25      ,  4.54545455],
           [-6.25      ,  0.        ,  1.13636364],
           [-4.54545455, -1.13636364,  0.        ]])
    >>> z.leader, z.overall
    (0, 4.545...)
    """
    check_kind(statistics, Statistics, "evidence takes cabai.Statistics")
    arms = [
        SimpleNamespace(tested=n, tested_mean=statistics.family.scaled(mean))
        for n, mean in zip(statistics.pulls, statistics.means, strict=True)
    ]
    family = statistics.family
    rules, of_pair = SimpleNamespace(**family.parameters), specialised(evidence_of, family.binding)
    preferred = np.array([[of_pair(rules, a, b) for b in arms] for a in arms])
    return Evidence(preferred - preferred.T, statistics.leader)
