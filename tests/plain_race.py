"""Races on shared items once more, as docs/theory/race.md defines them and as plainly as can be: to compare with.

With `number=Fraction` sums and capitals are exact, and nothing is done for rounding. With `number=float` it is what a
straightforward program would be: the benchmarks measure against that.
"""

from __future__ import annotations

import math
from fractions import Fraction

COUNT, LARGEST, CAUTION = 8, 0.9, 10


class PlainRace:
    def __init__(self, arms, items, *, delta, epsilon=0, race="paired", speculate=0.1, number=Fraction):
        self.arms, self.items, self.race, self.speculate, self.number = arms, items, race, speculate, number
        rivals = 1 if race == "champion" else arms - 1
        level = math.log(rivals / delta)
        least = min(0.5, math.sqrt(2 * level / items))
        self.bets = [number(least * (1 / least) ** (g / (COUNT - 1))) for g in range(COUNT - 1)] + [number(1)]
        self.limits = [max(bet, number(LARGEST)) for bet in self.bets]
        self.target = number(rivals) / number(delta)
        self.scores = [{} for _ in range(arms)]
        self.prefix = [0] * arms
        self.sums = [[number(0)] for _ in range(arms)]  # of the first j scores
        self.beaten, self.out = [False] * arms, [False] * arms
        self.epsilons = [number(0)] if epsilon == 0 else [number(0), number(epsilon)]
        pairs = [(b, a) for b in range(arms) for a in range(arms) if a != b]
        tests = [(e, b, a) for e in range(len(self.epsilons)) for b, a in pairs]
        whose = tests if race == "paired" else list(range(arms))
        self.capital = {key: [number(1) / COUNT] * COUNT for key in whose}
        self.best = {key: number(1) for key in whose}
        self.seen = dict.fromkeys(pairs, 0)
        self.squares = dict.fromkeys(pairs, number(0))
        self.column = 0

    def tell(self, arm, position, score):
        assert position not in self.scores[arm]
        self.scores[arm][position] = self.number(score)
        while self.prefix[arm] in self.scores[arm]:
            self.sums[arm].append(self.sums[arm][-1] + self.scores[arm][self.prefix[arm]])
            self.prefix[arm] += 1
        if self.race == "champion":
            self.look_at_columns()
        else:
            for other in range(self.arms):
                if other != arm:
                    self.look_at_pair(arm, other)
                    self.look_at_pair(other, arm)
            self.out = [False] * self.arms if all(self.beaten) else list(self.beaten)

    def look_at_pair(self, b, a):
        while self.seen[b, a] < min(self.prefix[a], self.prefix[b]):
            for e in range(len(self.epsilons)):
                self.bet((e, b, a), b, a, self.seen[b, a], self.epsilons[e])
                if self.is_certain(b, a, self.seen[b, a], self.epsilons[e]):
                    self.best[e, b, a] = math.inf
            self.beaten[a] = self.beaten[a] or self.best[0, b, a] >= self.target
            self.seen[b, a] += 1

    def bet(self, key, b, a, j, epsilon):
        """Stake on item j that b is better than a."""
        left = self.items - j
        m = (-self.items * epsilon - (self.sums[b][j] - self.sums[a][j])) / self.number(left)
        if -1 < m < 1:
            gain = (1 + self.scores[b][j] - self.scores[a][j]) / (1 + m)
            for g in range(COUNT):
                x = min(self.bets[g] * self.items / left * (1 + m), self.limits[g])
                self.capital[key][g] *= (1 - x) + x * gain
            self.best[key] = max(self.best[key], sum(self.capital[key]))

    def is_certain(self, b, a, j, epsilon):
        """Whether the mean difference is above -epsilon even if all items after j go to a."""
        return self.sums[b][j + 1] - self.sums[a][j + 1] - (self.items - j - 1) > -self.items * epsilon

    def look_at_columns(self):
        while self.column < self.items:
            left, j = [a for a in range(self.arms) if not self.out[a]], self.column
            if any(self.prefix[a] <= j for a in left):
                return
            for a in left:
                strength = {
                    b: float(self.sums[b][j] - self.sums[a][j]) / math.sqrt(float(self.squares[b, a]) + CAUTION)
                    for b in left
                    if b != a
                }
                rival = max(strength, key=strength.__getitem__, default=None)
                if rival is not None and strength[rival] > 0:
                    self.bet(a, rival, a, j, 0)
            for b, a in self.squares:
                if b in left and a in left:
                    self.squares[b, a] += (self.scores[b][j] - self.scores[a][j]) ** 2
            ahead = max(left, key=lambda a: self.sums[a][j + 1])
            for a in left:
                if self.is_certain(ahead, a, j, 0):
                    self.best[a] = math.inf
                if a != ahead and self.best[a] >= self.target:
                    self.out[a] = True
            self.column += 1

    def leader(self, costs):
        begun = [a for a in range(self.arms) if not self.out[a] and self.prefix[a]]
        return min(begun, key=lambda a: (-self.sums[a][-1] / self.prefix[a], costs[a]), default=None)

    def active(self, costs):
        leader, last = self.leader(costs), len(self.epsilons) - 1
        left = [a for a in range(self.arms) if not self.out[a]]
        if leader is None or self.race == "champion":
            return left
        return [a for a in left if a == leader or self.best[last, leader, a] < self.target]

    def winner(self, costs):
        active = self.active(costs)
        if self.leader(costs) is None:
            return None
        if len(active) > 1 and any(self.prefix[a] < self.items for a in active):
            return None
        leader = self.leader(costs)
        if self.prefix[leader] < self.items:
            return leader
        finished = [a for a in range(self.arms) if self.prefix[a] == self.items]
        return min(finished, key=lambda a: (-self.sums[a][-1], costs[a]))

    def next(self, costs, under_way):
        active = self.active(costs)
        told = sum(map(len, self.scores))
        more = self.speculate * told if self.speculate < math.inf else math.inf
        if sum(map(len, under_way)) >= max(2 * len(active), more):
            return None
        reached = {a: self.reached(a, under_way[a]) for a in active}
        able = [a for a in active if reached[a] < self.items]
        arm = min(able, key=lambda a: (reached[a], costs[a]), default=None)
        return None if arm is None else (arm, reached[arm])

    def reached(self, arm, busy):
        position = self.prefix[arm]
        while position in busy or position in self.scores[arm]:
            position += 1
        return position
