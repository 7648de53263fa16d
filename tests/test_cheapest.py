"""The cheapest arm that is good enough: the rule and its proof by enumeration, the test with a margin against its
definition and the worst sampling rule, and errors where it is hardest."""

from __future__ import annotations

import functools
import itertools
import math
import operator
from functools import cache

import numpy as np
import pytest
from scipy import stats

import reference
from cabai import Instance, Statistics, simulate
from cabai.core.goal import Cheapest, by_cost, right_answers
from cabai.core.setup import Setup
from cabai.core.state import Record
from cabai.core.within import excess, is_shown
from cabai.families import family_of, mirror_image
from cabai.policies import CheapestGoodEnough, policy_of
from cabai.study.state.sampled import first_coin
from cabai.support.streams import uniform
from cabai.thresholds import Bets, Contrast
from conftest import drawer
from pairs import check_never_above, least_log_e, least_log_e_of_bets, mirrored_pair, pair_of

CHANCE = 1e-6  # how often a statistical test here may fail by chance
SLOW = pytest.mark.slow


def decided(good, excluded, costs):
    """The rule: the cheapest arm that is shown good, if every arm cheaper than it is excluded; else None."""
    for a in by_cost(costs):
        if good[a]:
            return a
        if not excluded[a]:
            return None
    return None


def wrong_tests(means, costs, epsilon, margin):
    """The tests that must go wrong for a wrong answer, as the proof counts them: ("good", b, a*) that b was shown at
    most epsilon worse than a*, ("excluded", j, c) that j was shown better than c by more than the margin."""
    order, best = by_cost(costs), max(means)
    star = next(a for a in order if means[a] == best)
    c = next(a for a in order if means[a] >= best - margin)
    rank = order.index(c)
    found = {("good", b, star) for b in order[:rank] if means[b] < best - epsilon}
    if rank < len(means) - 1:
        found |= {("excluded", j, c) for j in order if j != c}
    return found


def test_every_truth_has_a_right_answer_which_complete_knowledge_finds():
    rng = np.random.default_rng(1)
    for _ in range(2000):
        arms = int(rng.integers(2, 7))
        means, costs = rng.integers(0, 8, arms) / 4, rng.integers(0, 4, arms).tolist()
        epsilon = float(rng.choice([0.25, 0.5, 1.0]))
        slack = epsilon * float(rng.choice([0.1, 0.5, 1.0]))
        good = [bool(means[a] > means.max() - epsilon) for a in range(arms)]
        excluded = [bool(means[a] < means.max() - (epsilon - slack)) for a in range(arms)]
        assert all(g or x for g, x in zip(good, excluded, strict=True))  # so it ends
        answer = decided(good, excluded, costs)
        right = right_answers(means, costs, epsilon, slack).tolist()
        assert answer in right
        for a in right:  # by the definition
            assert means[a] >= means.max() - epsilon
            cheaper = [b for b in range(arms) if (costs[b], b) < (costs[a], a)]
            assert all(means[b] < means.max() - (epsilon - slack) for b in cheaper)


@cache
def setup_of(family, margin, mirrored=False, threshold=Contrast, delta=0.1):
    kind = family_of(family)
    return Setup(
        mirror_image(kind) if mirrored else kind, threshold(), policy_of("cheapest"), arms=2, delta=delta,
        epsilon=2 * margin, goal=Cheapest(margin, (1.0, 2.0)),
    )  # fmt: skip


def shown_by(setup, b, a, margin):
    """log E of "b is better than a by more than the margin", as a study computes it."""
    rules = Record(setup.rules)
    with np.errstate(all="ignore"):
        found = float(setup.bound(excess)(rules, 0, b, a, -margin)) + rules.level
        assert found > rules.level or not setup.bound(is_shown)(rules, 0, b, a, -margin)
    return found


@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize("family", ["gaussian(variance=0.3)", "bernoulli", "poisson"])
def test_what_shows_a_margin_is_never_above_a_scan_of_all_pairs_of_tilts(family, mirrored):
    """Random states near the level: never above, and mostly the same."""
    rng, kind, found, exact = np.random.default_rng(3), family_of(family), [], []
    while len(found) < 20:
        margin = float(10 ** rng.uniform(-3, -0.7))
        n_b, n_a = (int(10 ** rng.uniform(0.5, 5)) for _ in range(2))
        mean_a = {"gaussian": rng.normal(), "bernoulli": rng.uniform(0, 0.9)}.get(kind.name, 10 ** rng.uniform(-2, 2))
        V = {"gaussian": 0.3, "bernoulli": 0.2}.get(kind.name, mean_a)
        mean_b = mean_a + margin + math.sqrt(rng.uniform(4, 30) * 2 * V * (1 / n_b + 1 / n_a))
        if kind.whole_rewards:
            mean_b, mean_a = round(mean_b * n_b) / n_b, round(mean_a * n_a) / n_a
        if kind.allows_mean(mean_b) and kind.allows_mean(mean_a) and mean_b > mean_a + margin:
            pair = (n_b, n_a), (mean_b, mean_a)
            weighed_at = -margin if mirrored and not kind.is_symmetric else 0.0  # the m of the arm that is to win
            exact.append(least_log_e(kind, *pair, -margin, weighed_at))
            arms = pair_of(setup_of(family, margin, mirrored), *(mirrored_pair(kind, *pair) if mirrored else pair))
            found.append(shown_by(setup_of(family, margin, mirrored), *arms, margin))
    check_never_above(found, exact, share=0.9, within=0.1, slack=1e-9)


def test_what_bets_show_is_never_above_a_scan_of_all_pairs_of_stakes():
    rng, found, exact = np.random.default_rng(4), [], []
    while len(found) < 20:
        margin = float(10 ** rng.uniform(-3, -0.7))
        setup = setup_of("bounded", margin, threshold=Bets)
        spread, shift = 10 ** rng.uniform(-3, -1), rng.uniform(0, 0.5)
        samples = [
            np.clip(rng.normal(centre + shift, spread, int(10 ** rng.uniform(0.7, 2.3))), 0, 1)
            for centre in (margin + rng.uniform(0.02, 0.4), 0.0)
        ]
        b, a = map(Record, Statistics.of("bounded", samples).state(setup)[0])
        if b.mean > a.mean + margin:
            found.append(shown_by(setup, b, a, margin))
            exact.append(least_log_e_of_bets([(each, np.ones(len(each))) for each in samples], -margin))
    check_never_above(found, exact, share=0.9, slack=1e-9)


class Plain(reference.Run):
    """The policy for gaussian rewards of variance 1, from the sums of what was observed."""

    def __init__(self, setup, running, epsilon, margin, seed, draw):
        super().__init__("gaussian", 1.0, len(running), "contrast", 0.1, draw)
        self.setup, self.running, self.epsilon, self.margin = setup, running, epsilon, margin
        self.excluded, self.cleared, self.stream = set(), {}, np.array([(first_coin(seed),)], [("stream", "u8")])

    def parts(self, b, a, shift):
        """What each arm adds to the evidence that b is better than a less the shift."""
        n_b, n_a, gap = self.N[b], self.N[a], self.means[b] - self.means[a] + shift
        if gap <= 0:
            return 0.0, 0.0
        return n_b * (gap * n_a / (n_a + n_b)) ** 2 / 2, n_a * (gap * n_b / (n_a + n_b)) ** 2 / 2

    def is_shown(self, b, a, shift):
        arms = self.setup.start()[0][:2]
        for arm, i in zip(arms, (b, a), strict=True):
            arm["tested"], arm["tested_mean"] = self.N[i], self.means[i]
        with np.errstate(all="ignore"):
            return bool(
                self.setup.bound(is_shown)(Record(self.setup.rules), 0, Record(arms[0]), Record(arms[1]), shift)
            )

    def answer(self):
        """After a pull: what is decided, if anything is."""
        arms = range(len(self.running))
        for b, a in itertools.permutations(arms, 2):
            if a not in self.excluded and self.is_shown(b, a, -self.margin):
                self.excluded.add(a)
        c = next(a for a in by_cost(self.running) if a not in self.excluded)
        for a in arms:
            if a != c and self.cleared.get(a) != c and self.is_shown(c, a, self.epsilon):
                self.cleared[a] = c
        good = [a == c and all(self.cleared.get(other) == c for other in arms if other != c) for a in arms]
        return decided(good, [a in self.excluded for a in arms], self.running)

    def choose(self):
        arms, order, means, leader = range(self.K), by_cost(self.running), self.means, self.best
        least = min(arms, key=lambda a: self.C[a] * self.N[a])
        spent = functools.reduce(operator.add, self.C)  # not `sum`, which rounds better from Python 3.12 on
        if self.C[least] * self.N[least] < spent / 16:
            return least
        enough = means[leader] - (self.epsilon + self.margin) / 2
        good = [a for a in arms if means[a] >= enough and a not in self.excluded]
        answer = next(a for a in order if a in good or a == leader)
        candidate = next(a for a in order if a not in self.excluded)
        pairs = []
        for a in arms:
            if a != answer and not (candidate == answer and self.cleared.get(a) == answer):
                pairs.append((answer, a, self.epsilon))
            if a not in self.excluded and order.index(a) < order.index(answer):
                pairs.append((self.witness(a, leader), a, -self.margin))
        b, a, shift = min(pairs, key=lambda pair: sum(self.parts(*pair)))
        part_b, part_a = self.parts(b, a, shift)
        per_b, per_a = part_b * self.N[b] / self.C[b], part_a * self.N[a] / self.C[a]
        if min(per_b, per_a) <= 0:
            per_b, per_a = self.N[a] * self.N[b] / self.C[b], self.N[b] * self.N[a] / self.C[a]
        with np.errstate(over="ignore"):
            return b if uniform(Record(self.stream[0])) * (per_b + per_a) < per_b else a

    def witness(self, a, leader):
        """Who is shown better than a for the least cost."""
        found = {}
        for j in range(len(self.running)):
            gap = self.means[j] - self.means[a] - self.margin
            if j != a and gap > 0:
                missing = max(float(self.setup.rules["level"]) + 2 - sum(self.parts(j, a, -self.margin)), 0.1)
                roots = [math.sqrt(self.C[i] / self.N[i]) for i in (j, a)]
                found[j] = missing * (sum(roots) / gap) ** 2
        return min(found, key=found.__getitem__, default=leader)


@pytest.mark.parametrize("seed", range(2))
def test_the_policy_makes_the_pulls_of_a_plain_one(seed):
    instance = Instance("gaussian", [1.0, 0.9, 0.3, -2.0], [1, 0.5, 0.1, 0.3])
    running, epsilon, slack, most = [4, 1, 2, 3], 1.2, 0.5, 150
    runs = simulate(
        instance, goal="cheapest", epsilon=epsilon, slack=slack, running_costs=running, delta=0.1, trajectories=1,
        seed=seed, max_pulls=most, grid=range(4, most + 1),
    )  # fmt: skip
    expected = [*range(4), *np.diff(runs.path[0][: runs.steps[0] - 3], axis=0).argmax(axis=1).tolist()]
    goal = Cheapest(slack, tuple(running))
    setup = Setup(instance.family, Contrast(), policy_of("cheapest"), arms=4, delta=0.1, epsilon=epsilon, goal=goal)
    plain = Plain(setup, running, epsilon, epsilon - slack, seed, drawer(instance, seed, 0))
    while (answer := plain.answer()) is None and plain.t < most:
        plain.pull(plain.choose())
    assert plain.order == expected
    assert (-1 if answer is None else answer) == runs.decisions[0]


JUST = 1e-9
# How far arms are below the best, by running cost and in units of epsilon; the slack is half of it. And the arms
# that a wrong answer needs to look worse than they are.
HARDEST = {
    "the cheap arm is just within the margin": ([0.5, 0.0], [0]),
    "the cheap arm is just not good": ([1.0 + JUST, 0.0], [1]),
    "three could exclude it": ([0.5, 0.0, 0.0, 0.0], [0]),
    "two are just not good": ([1.0 + JUST, 1.0 + JUST, 0.5, 0.0], [2, 3]),
    "both": ([1.0 + JUST, 0.5, 0.0, 0.0, 0.0], [1]),
}
BEST_AND_EPSILON = {
    "gaussian(variance=0.04)": (0.0, 0.2),
    "bernoulli": (0.9, 0.6),
    "poisson": (2.0, 1.4),
    "bounded": (0.7, 0.4),
}


def misleading(means, costs, epsilon, lowered):
    """Pulls the arm whose estimate helps the truth most, so who misleads already is left alone; and stops, with a wrong
    answer, as soon as any of the claims is shown that the proof needs to be shown seldom."""
    truth, signs = tuple(means), tuple(1.0 if a in lowered else -1.0 for a in range(len(means)))
    claims = wrong_tests(means, costs, epsilon, epsilon / 2 + 1e-12)
    listed = tuple((b, a, epsilon if kind == "good" else -epsilon / 2) for kind, b, a in sorted(claims))
    wrong = next(a for a in range(len(means)) if a not in right_answers(np.array(means), costs, epsilon, epsilon / 2))

    def choose(arms, run, rules):
        chosen, most = 0, -1e300
        for a in range(len(arms)):
            helps = signs[a] * (arms[a].mean - truth[a]) * math.sqrt(arms[a].pulls)
            if helps > most:
                chosen, most = a, helps
        return chosen

    def stop(arms, run, rules):
        for b, a, shift in listed:
            if is_shown(rules, run.t, arms[b], arms[a], shift):
                run.leader = wrong
                return True
        return False

    members = {"name": "misleading", "choose": staticmethod(choose), "stop": staticmethod(stop), "__module__": __name__}
    return type("Misleading", (CheapestGoodEnough,), members)()


FEW = ["the cheap arm is just within the margin", "the cheap arm is just not good", "both"]
QUICK = [("gaussian(variance=0.04)", case, "cheapest", 5000, 400) for case in (FEW[0], "two are just not good")]
LONG = [
    pytest.param(family, case, sampler, 20_000, 800, marks=SLOW)
    for family in BEST_AND_EPSILON
    for case in (HARDEST if "gaussian" in family else FEW)
    for sampler in ("cheapest", "cheapest(uniform=true)", "misleading")
]


@pytest.mark.parametrize(("family", "case", "sampler", "trajectories", "max_pulls"), [*QUICK, *LONG])
def test_errors_are_as_rare_as_promised_where_they_are_likeliest(family, case, sampler, trajectories, max_pulls):
    (below, lowered), (best, epsilon) = HARDEST[case], BEST_AND_EPSILON[family]
    means = [best - epsilon * each for each in below]
    costs = np.linspace(0.3, 1, len(means))
    instance = Instance(family, means, costs, **({"law": "beta", "sd": 0.2} if family == "bounded" else {}))
    policy = misleading(means, costs.tolist(), epsilon, lowered) if sampler == "misleading" else sampler
    runs = simulate(
        instance, policy, goal="cheapest", epsilon=epsilon, delta=0.1, trajectories=trajectories, seed=7,
        max_pulls=max_pulls, workers=2,
    )  # fmt: skip
    errors, finished = int(runs.wrong.sum()), int(runs.finished.sum())
    print(f"\n{family}, {case}, {sampler}: {errors / trajectories:.4f} wrong, {finished} of {trajectories} finished")
    assert stats.binom.sf(errors - 1, trajectories, 0.1) > CHANCE
    assert trajectories > 5000 or (finished > 1000 and errors > 0)
