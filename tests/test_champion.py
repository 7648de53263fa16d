"""The champion test: what it counts, that what it computes is never too large, that no sampling rule misleads it."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest

import cabai
from cabai import Instance, simulate
from cabai.core.compiling import compiled
from cabai.core.observe import observe
from cabai.core.setup import Setup
from cabai.core.state import Record, Records
from cabai.core.stopping import surplus
from cabai.families import family_of, mirror_image
from cabai.thresholds import Champion, Contrast, threshold_of
from combinations import covering
from pairs import (
    FAMILIES,
    check_never_above,
    check_quick_look,
    least_in,
    log_e,
    pair_of,
    put,
    some_pair,
)
from studies import new
from workers import check_replay

SLOW = pytest.mark.slow


@cache
def setup_of(family, arms=3, mirrored=False, delta=0.1):
    kind = family_of(family)
    return Setup(mirror_image(kind) if mirrored else kind, Champion(), arms=arms, delta=delta)


def counts_for(arms, b, a, variance):
    """The rule in words: b has the best mean of all arms but a, and is ahead of the next by enough."""
    if arms[b]["pulls"] == 0 or arms[a]["pulls"] == 0:
        return False
    rivals = [i for i in np.argsort(-arms["mean"], kind="stable") if i != a and arms[i]["pulls"] > 0]
    if rivals[0] != b:
        return False
    if len(rivals) == 1:
        return True
    one, other = arms[b], arms[rivals[1]]
    n = one["pulls"] * other["pulls"] / (one["pulls"] + other["pulls"])
    m = (one["rewards"] + other["rewards"]) / (one["pulls"] + other["pulls"])
    gap = one["mean"] - other["mean"]
    z = n * gap**2 / (2 * variance(m)) if gap > 0 else 0.0
    return z > math.log1p(one["pulls"] / arms[a]["pulls"]) / 4


@pytest.mark.parametrize(("family", "arms"), covering(FAMILIES, [3, 7]))
def test_what_counts_is_what_the_rule_says_and_depends_on_the_past_only(family, arms):
    """300 random states, many with ties and arms that were not pulled: the arms credited, whatever the reward."""
    setup, rng, credited = setup_of(family, arms), np.random.default_rng(1), 0
    look, rules = setup.bound(observe), Record(setup.rules)
    variance = {"gaussian(variance=0.3)": lambda m: 0.3, "bernoulli": lambda m: m * (1 - m), "poisson": lambda m: m,
                "exponential": lambda m: m * m}[family]  # fmt: skip
    for _ in range(300):
        records, run = setup.start()
        for arm in records:
            if rng.random() < 0.95:
                put(arm, n := int(rng.integers(1, 50)), rng.integers(1, n + 1) / (n + 1))
        if rng.random() < 0.3:
            put(records[1], records[0]["pulls"], records[0]["mean"])
        b = int(rng.integers(arms))
        expected = [a != b and counts_for(records, b, a, variance) for a in range(arms)]
        for reward in (1.0, 2.0):
            after = records.copy()
            look(Records(after), Record(run.copy()), rules, b, reward, 1.0)
            assert (after["rivals"] > 0).tolist() == expected
            assert after["rival_rewards"].tolist() == [reward * each for each in expected]
        credited += sum(expected)
    assert credited > 100


@pytest.mark.parametrize(("family", "mirrored"), covering(FAMILIES, [False, True]))
def test_the_least_f_is_never_above_a_scan(family, mirrored):
    """40 random states: never above the least of 60 means and of finer scans around it, and seldom visibly below."""
    kind, rng, computed, exact = family_of(family), np.random.default_rng(2), [], []
    setup = setup_of(family, 5, mirrored)
    shares = [math.log(0.9), math.log(1 / 80 if kind.name == "poisson" else 1 / 40)]
    low_edge, high_edge = {"gaussian": (-np.inf, np.inf), "bernoulli": (1e-9, 1 - 1e-9)}.get(kind.name, (1e-9, np.inf))
    for _ in range(40):
        (n_b, n_a), (mean_b, mean_a) = some_pair(rng, kind, 10**4)
        n, counted = int(n_b * 10 ** rng.uniform(-1, 1)) + 1, mean_a + (mean_b - mean_a) * rng.uniform(0.5, 1.5)
        counted = min(counted, 1.0) if kind.name == "bernoulli" else counted
        if mirrored:  # a low mean is wanted: now b is to be beaten, by a and by the counted rewards below it
            counted = mean_b - (counted - mean_a) * 0.5
            counted = counted if kind.name == "gaussian" else max(counted, 1e-3 * mean_a)
        sign, offset = (-1, kind.name == "bernoulli") if mirrored else (1, 0)
        winner, loser = ((n_a, mean_a), (n_b, mean_b)) if mirrored else ((n_b, mean_b), (n_a, mean_a))
        records, _ = setup.start()
        for arm, (k, mean) in zip(records, (winner, loser), strict=False):
            put(arm, k, offset + sign * mean)
        records[1]["rivals"], records[1]["rival_rewards"] = n, n * (offset + sign * counted)
        found = float(setup.bound(surplus)(Record(setup.rules), 0, Record(records[0]), Record(records[1])))
        computed.append(found + setup.rules["level"])

        def value(m, parts=((n, counted), winner), loser=loser, sign=sign):
            pairs = [(part, loser)[::sign] for part in parts]  # upward tilts of negated rewards are downward tilts
            each = [log_e(kind, *zip(*pair, strict=True), m) for pair in pairs]
            return np.logaddexp(*(log + share for log, share in zip(each, shares, strict=True)))

        low, high = min(mean_a, mean_b, counted), max(mean_a, mean_b, counted)
        low, high = max(low - (high - low), low_edge), min(high + (high - low), high_edge)
        exact.append(least_in(value, low, high))
    check_never_above(computed, exact, share=0.85, within=0.15, slack=1e-9)


@pytest.mark.parametrize("family", FAMILIES)
def test_what_a_quick_look_refuses_is_seldom_beaten(family):
    rng, setup, states = np.random.default_rng(4), setup_of(family, 4), []
    for _ in range(300):
        (n_b, n_a), (mean_b, mean_a) = some_pair(rng, family_of(family), 10**4)
        if mean_b > mean_a:
            b, a = pair_of(setup, (n_b, n_a), (mean_b, mean_a))
            a.rivals = int(rng.choice([n_b, max(n_b // 3, 1), 2 * n_b]))
            a.rival_rewards = a.rivals * (mean_a + (mean_b - mean_a) * rng.uniform(0.7, 1))
            states.append((b, a))
    check_quick_look(setup, states, beaten=80, refused=6, slack=0.02)


def test_with_two_arms_and_for_pairs_it_is_contrast():
    rng = np.random.default_rng(3)
    for family in FAMILIES:
        kind = family_of(family)
        one = Setup(kind, Contrast(), arms=2, delta=0.1)
        for other in (setup_of(family, 2), Setup(kind, Champion().of_pairs, arms=2, delta=0.1)):
            for _ in range(10):
                pulls, means = some_pair(rng, kind, 10**4)
                found = []
                for setup in (one, other):
                    records, _ = setup.start()
                    for arm, n, mean in zip(records, pulls, means, strict=True):
                        put(arm, n, mean)
                    if setup is other:
                        records[1]["rivals"], records[1]["rival_rewards"] = 1, 0.5
                    found.append(setup.bound(surplus)(Record(setup.rules), 0, *map(Record, records)))
                assert found[0] == pytest.approx(found[1], abs=1e-3)


GAUSSIAN = "gaussian(variance=0.25)"  # rewards 0 and 1 with equal chances have no heavier tails than that


@pytest.mark.parametrize(
    ("threshold", "family", "arms", "horizon"),
    [
        ("champion", "bernoulli", 3, 8), ("champion", GAUSSIAN, 3, 7), ("hedged", GAUSSIAN, 2, 7),
        *(pytest.param("champion", each, 3, 11, marks=SLOW) for each in ("bernoulli", "bounded")),
        pytest.param("champion", GAUSSIAN, 3, 9, marks=SLOW), pytest.param("hedged", GAUSSIAN, 2, 10, marks=SLOW),
    ],
)  # fmt: skip
def test_no_sampling_rule_makes_an_arm_be_beaten_more_often_than_promised(threshold, family, arms, horizon):
    """Equal arms with rewards 0 and 1, each pulled once, then the rule that maximises the chance that the e-value
    against the last crosses x, by dynamic programming over all outcomes."""
    setup = Setup(family_of(family), threshold_of(threshold), arms=arms, delta=0.1)
    look, test = compiled(setup.bound(observe)), compiled(setup.bound(surplus))
    rules, known, last = setup.rules, {}, arms - 1
    names = setup.start()[0].dtype.names
    kept = [name for name in ("rivals", "rival_rewards", "rival_stakes", "stakes") if name in names]

    def most(state, left, x):
        records, _ = state
        own = records if threshold == "hedged" else records[last:]  # of the others, champion needs nothing else
        key = left, x, records["pulls"].tobytes(), records["rewards"].tobytes(), *(own[k].tobytes() for k in kept)
        if key not in known:
            log_e = max(test(rules, 0, records[b], records[last]) + rules["level"] for b in range(last))
            known[key] = float(log_e >= math.log(x))
            if known[key] == 0.0 and left > 0:
                after = [[most(pulled(state, a, y), left - 1, x) for y in (0.0, 1.0)] for a in range(arms)]
                known[key] = max((zero + one) / 2 for zero, one in after)
        return known[key]

    def pulled(state, a, reward):
        records, run = state[0].copy(), state[1].base.copy()
        look(records, run[0], rules, a, reward, 1.0)
        return records, run[0]

    for x in (1.2, 1.5, 2.0):
        found = 0.0
        for outcome in range(2**arms):
            state = setup.start()
            for a in range(arms):
                state = pulled(state, a, float(outcome >> a & 1))
            found += most(state, horizon - arms, x) / 2**arms
        print(f"{threshold}, {family}: above {x} within {horizon} pulls: at most {found:.4f}")
        assert found <= 1 / x
    assert found > 0.0


def test_it_is_cheaper_than_contrast():
    """1 against nine arms of 0.5, at delta 0.05: at most 2.6 times the lower bound, 0.85 of contrast's bill; 1000
    trajectories with the same rewards, standard errors 0.03 and 0.006."""
    ten = Instance("gaussian", [1, *[0.5] * 9], [1] * 10)
    mine, other = (simulate(ten, delta=0.05, threshold=each, trajectories=1000) for each in ("champion", "contrast"))
    assert mine.costs.mean() < 0.85 * other.costs.mean()
    assert mine.summary().ratio < 2.6


def test_a_period_counts_as_was_clear_before_it(clock):
    """Sums of a period count whole, or not at all, by what was known before the period: a leads then, and falls
    behind b in it."""
    study = new(threshold="champion", costs=[1, 1, 1])
    study.tell_counts({"a": (10, 9), "b": (10, 5), "c": (10, 1)}, period="1")
    study.tell_counts({"a": (40, 1), "b": (20, 20), "c": (3, 0)}, period="2")
    arms = study._current.look(lambda found: found.ordered.arms)
    assert arms["rivals"].tolist() == [20, 40, 40]
    assert arms["rival_rewards"].tolist() == [20, 1, 1]
    check_replay(study)


def test_an_epsilon_and_accepting_share_the_decisions_delta():
    """A leader that is close enough: by the test of pairs at 2 K (K - 1)/delta, at all epsilons from `within` on."""
    study = new(threshold="champion", policy="top-two", costs=[1, 1, 1])
    study.tell_counts({"a": (400, 300), "b": (400, 290), "c": (400, 100)}, period="1")
    status = study.status()
    assert [arm.may_be_best for arm in status.arms] == [True, True, False]
    assert 0 < status.within < 0.15
    pair = Setup(study.settings.family, Contrast(), arms=3, delta=study.settings.delta / 6, epsilon=status.within)
    arms, rules = study._current.look(lambda found: found.ordered.arms), pair.rules
    assert pair.bound(surplus)(Record(rules), 0, Record(arms[0]), Record(arms[1])) > 0
    rules["epsilon"] = 0.99 * status.within
    assert not pair.bound(surplus)(Record(rules), 0, Record(arms[0]), Record(arms[1])) > 0
    study.amend(epsilon=status.within)
    assert (study.decision, study.status().confidence) == ("a", 1 - study.settings.delta)


def test_what_needs_pairs_is_tested_by_pairs():
    """Ranks, arms dropped by hand, and sums without an order: as with `contrast`. Goal cheapest is refused."""
    one, other = (new(threshold=each, policy="top-two", seed=3) for each in ("champion", "contrast"))
    for study in (one, other):
        study.tell_counts({"a": (300, 250, 1), "b": (300, 150, 1), "c": (300, 50, 1)}, period="1")
    assert [arm.ranks for arm in one.status().arms] == [arm.ranks for arm in other.status().arms]
    one, other = (new(threshold=each, policy="top-two", seed=3) for each in ("champion", "contrast"))
    for study in (one, other):
        study.tell_counts({"a": (30, 25, 1), "b": (30, 20, 1), "c": (30, 5, 1)}, period="1")
        study.drop("c")
    mine, theirs = one.status(), other.status()
    assert (mine.evidence, mine.required, mine.confidence) == (theirs.evidence, theirs.required, theirs.confidence)
    with pytest.raises(cabai.InvalidInput, match="champion looks for the best arm: with goal 'cheapest'"):
        new(threshold="champion", epsilon=0.1, goal="cheapest", policy="cheapest")
    with pytest.raises(cabai.InvalidInput, match="depends on the order of the pulls"):
        Champion().stops(cabai.Statistics("bernoulli", [9, 9, 9], [8, 5, 2]), delta=0.1)
