"""The champion test: what it counts, that what it computes is never too large, and that chance crosses it rarely."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest
from scipy import stats

import cabai
from cabai import Instance, simulate
from cabai.core.compiling import compiled
from cabai.core.observe import observe
from cabai.core.setup import Setup
from cabai.core.state import Record, Records
from cabai.core.stopping import beats, surplus
from cabai.families import family_of, mirror_image
from cabai.thresholds import Champion, Contrast, contrast, tilts
from cabai.thresholds.champion import ChampionOfPairs
from combinations import covering
from folding import Play
from studies import new
from test_contrast import ALONE, CHANCE, FAMILIES, SAMPLERS, TIES, mean_after, quick_log_e, some_pair
from test_study_order import hostile, run_with_delays
from workers import check_replay

SLOW = pytest.mark.slow
TWO = "bernoulli", "bounded"


@cache
def setup_of(family, arms=3, mirrored=False, delta=0.1):
    kind = family_of(family)
    return Setup(mirror_image(kind) if mirrored else kind, Champion(), arms=arms, delta=delta)


def put(arm, n, mean):
    arm["pulls"], arm["tested"], arm["mean"], arm["tested_mean"], arm["rewards"] = n, n, mean, mean, n * mean


# --- What counts -----------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("arms", [3, 7])
@pytest.mark.parametrize("family", FAMILIES)
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


# --- The computed minimum --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("family", "mirrored"), covering(FAMILIES, [False, True]))
def test_the_least_f_is_never_above_a_scan(family, mirrored):
    """40 random states: never above the least of 60 means and of finer scans around it, and seldom visibly below."""
    kind, rng, close, count = family_of(family), np.random.default_rng(2), 0, 40
    setup = setup_of(family, 5, mirrored)
    shares = [math.log(0.9), math.log(1 / 80 if kind.name == "poisson" else 1 / 40)]
    for _ in range(count):
        (n_b, n_a), (mean_b, mean_a) = some_pair(rng, kind, 10**4)
        n, counted = int(n_b * 10 ** rng.uniform(-1, 1)) + 1, mean_a + (mean_b - mean_a) * rng.uniform(0.5, 1.5)
        counted = min(counted, 1.0) if kind.name == "bernoulli" else counted
        sign = -1 if mirrored else 1
        if mirrored and kind.is_symmetric and kind.name == "gaussian":
            seen = [-mean_a, -mean_b, -counted]
        elif mirrored and kind.name == "bernoulli":
            seen = [1 - mean_a, 1 - mean_b, 1 - counted]
        else:
            seen = [sign * mean for mean in (mean_a, mean_b, counted)]
        if mirrored:  # a low mean is wanted: now b is to be beaten, by a and by the counted rewards below it
            counted = mean_b - (counted - mean_a) * 0.5
            counted = max(counted, 1e-3 * mean_a) if kind.name != "gaussian" else counted
            seen[2] = {"gaussian": -counted, "bernoulli": 1 - counted}.get(kind.name, -counted)
        records, _ = setup.start()
        better, worse = (0, 1) if mirrored else (1, 0)
        sizes = [n_a, n_b]
        put(records[0], sizes[better], seen[better])
        put(records[1], sizes[worse], seen[worse])
        records[1]["rivals"], records[1]["rival_rewards"] = n, n * seen[2]
        found = float(setup.bound(surplus)(Record(setup.rules), 0, Record(records[0]), Record(records[1])))
        found += setup.rules["level"]

        def value(m, n=n, counted=counted, sizes=(n_a, n_b), means=(mean_a, mean_b)):
            if not mirrored:
                parts = (n, counted), (sizes[1], means[1])
                each = [quick_log_e(kind, (k, sizes[0]), (mean, means[0]), m) for k, mean in parts]
            else:  # upward tilts of negated rewards are downward tilts
                parts = (n, counted), (sizes[0], means[0])
                each = [quick_log_e(kind, (sizes[1], k), (means[1], mean), m) for k, mean in parts]
            return np.logaddexp(*(log + share for log, share in zip(each, shares, strict=True)))

        low, high = min(mean_a, mean_b, counted), max(mean_a, mean_b, counted)
        edges = (1e-9, 1 - 1e-9) if kind.name == "bernoulli" else (-np.inf if kind.name == "gaussian" else 1e-9, np.inf)
        low, high = max(low - (high - low), edges[0]), min(high + (high - low), edges[1])
        for points in (60, 20, 20, 20):
            scan = np.linspace(low, high, points)
            values = [value(m) for m in scan]
            at = int(np.argmin(values))
            low, high = scan[max(at - 1, 0)], scan[min(at + 1, points - 1)]
        assert found <= max(min(values), 0.0) + 1e-9
        close += found >= min(values) - 0.15
    assert close >= count - 6


@pytest.mark.parametrize("family", FAMILIES)
def test_what_a_quick_look_refuses_is_seldom_beaten(family):
    rng, setup = np.random.default_rng(4), setup_of(family, 4)
    rules, refused, beaten = Record(setup.rules), 0, 0
    for _ in range(300):
        (n_b, n_a), (mean_b, mean_a) = some_pair(rng, family_of(family), 10**4)
        if not mean_b > mean_a:
            continue
        records, _ = setup.start()
        put(records[0], n_b, mean_b)
        put(records[1], n_a, mean_a)
        n = int(rng.choice([n_b, max(n_b // 3, 1), 2 * n_b]))
        records[1]["rivals"], records[1]["rival_rewards"] = n, n * (mean_a + (mean_b - mean_a) * rng.uniform(0.7, 1))
        b, a = map(Record, records[:2])
        by, yes = setup.bound(surplus)(rules, 0, b, a), setup.bound(beats)(rules, 0, b, a)
        assert not (yes and by <= 0)
        beaten += yes
        refused += by > 0.02 and not yes
    assert beaten > 80
    assert refused <= 6


def test_with_two_arms_and_for_pairs_it_is_contrast():
    rng = np.random.default_rng(3)
    for family in FAMILIES:
        kind = family_of(family)
        one = Setup(kind, Contrast(), arms=2, delta=0.1)
        for other in (setup_of(family, 2), Setup(kind, ChampionOfPairs(), arms=2, delta=0.1)):
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


# --- The proof, step by step -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_the_sum_for_a_best_arm_does_not_rise_in_mean(family):
    """One pull of any of four arms, ahead of random states in which arm a is a best one: p C + q (the sum over all b of
    E_b) at m = mu_a is a supermartingale. Tilts up to 1, so that the means can be integrated."""
    kind, setup = family_of(family), setup_of(family, 4)
    rng, rules = np.random.default_rng(5), setup.rules.copy()
    rules["gains"][:, rules["tilts"][:, tilts.TILT] > 1, tilts.GAIN] = 0
    rules["gains"][..., tilts.GAINED] = np.cumsum(rules["gains"][..., tilts.GAIN], axis=1)
    at, look = compiled(setup.bound(contrast.log_e)), setup.bound(observe)
    counted = 0
    for _ in range(6):
        (n_b, n_a), (_, mean_a) = some_pair(rng, kind, 60)
        m = max(mean_a, 0.05) if kind.name != "gaussian" else mean_a
        m = min(max(m, 0.5), 0.95) if kind.name == "bernoulli" else m
        records, run = setup.start()
        for i, arm in enumerate(records):
            n = n_a if i == 0 else int(rng.integers(1, n_b + 2)) + 20
            mean = m * rng.uniform(0.7, 1.3 if i == 0 else 0.9) if i != 1 else m * 1.3
            mean = min(mean, 1.0) if kind.name == "bernoulli" else mean
            put(arm, n, mean)
        n = int(rng.integers(1, n_b + 2))
        records[0]["rivals"], records[0]["rival_rewards"] = n, n * m

        def log_parts(state, m=m):
            """The logs of p C and of each q E_b, for arm 0."""
            k = contrast.range_of(Record(rules), m)
            n_0, to_0 = int(state["pulls"][0]), state["rewards"][0] / state["pulls"][0] - m
            samples = [(int(state["rivals"][0]), state["rival_rewards"][0])]
            samples += [(int(state["pulls"][i]), state["rewards"][i]) for i in (1, 2, 3)]
            shares = [rules["log_counted"]] + [rules["log_leader"]] * 3
            logs = [
                at(rules, tilts.COUNT - 1, k, n, total / n - m, n_0, to_0, m, 0.0, *ALONE)[0] for n, total in samples
            ]
            return np.array(logs) + shares

        before = np.logaddexp.reduce(log_parts(records))
        for b in range(4):
            probe = records.copy()
            look(Records(probe), Record(run.copy()), Record(setup.rules), b, 1.0, 1.0)
            is_counted = probe["rivals"][0] > records["rivals"][0]
            counted += is_counted

            def after(y, b=b, is_counted=is_counted, records=records, before=before, log_parts=log_parts):
                state = records.copy()
                state["pulls"][b] += 1
                state["rewards"][b] += y
                if is_counted:
                    state["rivals"][0] += 1
                    state["rival_rewards"][0] += y
                return math.exp(np.logaddexp.reduce(log_parts(state)) - before)

            least = m - abs(m) * 0.1
            for mu in (m,) if b == 0 or kind.name == "exponential" else (m, least):
                mean = mean_after(kind, mu, after)
                assert mean <= 1 + 1e-7
                assert mu != m or mean >= 1 - 1e-7  # nothing is wasted either
    assert counted > 0


@pytest.mark.parametrize(
    ("family", "horizon"), [("bernoulli", 8), ("bounded", 8), *(pytest.param(each, 11, marks=SLOW) for each in TWO)]
)
def test_no_sampling_rule_makes_f_cross_more_often_than_promised(family, horizon):
    """Three equal arms with rewards 0 and 1, each pulled once, then the rule that maximises the chance that F of the
    last crosses x, by dynamic programming over all outcomes."""
    setup = setup_of(family, 3)
    look, test = compiled(setup.bound(observe)), compiled(setup.bound(surplus))
    rules, mu, known = setup.rules, 0.5, {}

    def crossed(state, x):
        records, _ = state
        logs = [test(rules, 0, records[b], records[2]) + rules["level"] for b in (0, 1)]
        return max(logs) >= math.log(x)

    def most(state, left, x):
        records, _ = state
        key = (
            left,
            x,
            records["pulls"].tobytes(),
            records["rewards"].tobytes(),
            *records[2][["rivals", "rival_rewards"]].item(),
        )
        if key not in known:
            if crossed(state, x):
                known[key] = 1.0
            elif left == 0:
                known[key] = 0.0
            else:
                known[key] = max(
                    sum(
                        chance * most(pulled(state, a, reward), left - 1, x)
                        for reward, chance in ((1.0, mu), (0.0, 1 - mu))
                    )
                    for a in range(3)
                )
        return known[key]

    def pulled(state, a, reward):
        records, run = state[0].copy(), state[1].base.copy()
        look(records, run[0], rules, a, reward, 1.0)
        return records, run[0]

    for x in (1.2, 1.5, 2.0):
        found = 0.0
        for outcome in range(8):
            state = setup.start()
            for a in range(3):
                state = pulled(state, a, float(outcome >> a & 1))
            found += most(state, horizon - 3, x) / 8
        print(f"F >= {x} within {horizon} pulls: at most {found:.4f}")
        assert found <= 1 / x
    assert found > 0.0


# --- Chance: by simulation -------------------------------------------------------------------------------------------


def rejected(arms, run, rules):
    """Whether any arm beats the last, the best one: all that can go wrong, whatever is decided."""
    best = len(arms) - 1
    for a in range(best):  # noqa: SIM110
        if beats(rules, run.t, arms[a], arms[best]):
            return True
    return False


def press(arms, run, rules):
    """Knows that the last arm is the best, and what counts: pulls its best rival while the counted rewards look good,
    the arm itself while it looks bad, and else the rival that may take the lead."""
    best = len(arms) - 1
    rival, other = -1, -1
    for a in range(best):
        if rival < 0 or arms[a].mean > arms[rival].mean:
            rival, other = a, rival
        elif other < 0 or arms[a].mean > arms[other].mean:
            other = a
    n = arms[best].rivals
    if n == 0:
        return rival
    ahead = arms[best].rival_rewards / n - arms[best].mean
    if ahead > 0.0:
        return rival if n < 4 * arms[best].pulls else best
    return other if other >= 0 and run.t % 3 != 0 else best


def lurk(arms, run, rules):
    """Knows the best arm and the level: hardly pulls it once it looks bad, and then gives its rivals turns."""
    best = len(arms) - 1
    if arms[best].mean >= arms[run.leader].mean or arms[best].pulls < 3:
        return best
    return best if run.t % 16 == 0 else run.t % best


def in_turn(arms, run, rules):
    return run.t % len(arms)


OWN = [press, lurk, in_turn, *(SAMPLERS[name].choose for name in ("follow", "spoil", "hunt"))]
ALL = {"co": "co", "top-two": "top-two"} | {each.__name__: cabai.policy(each, stop=rejected) for each in OWN}


def assert_errs_rarely(family, sampler, arms, trajectories, max_pulls, epsilon=0.0):
    mean, delta = TIES[family], 0.1
    instance = Instance(family, [mean - epsilon - 1e-9] * (arms - 1) + [mean], np.linspace(1, 0.3, arms))
    runs = simulate(
        instance, ALL[sampler], delta=delta, threshold="champion", trajectories=trajectories, seed=6,
        max_pulls=max_pulls, epsilon=epsilon,
    )  # fmt: skip
    errors = int(runs.wrong.sum())
    print(f"{family} {sampler} {arms} arms, epsilon {epsilon}: wrong {errors / trajectories:.5f}")
    assert stats.binom.sf(errors - 1, trajectories, delta) > CHANCE, errors / trajectories
    return errors


@pytest.mark.parametrize(("family", "sampler", "arms"), [
    ("gaussian", "press", 3), ("gaussian", "in_turn", 5), ("exponential", "co", 3),
])  # fmt: skip
def test_tied_arms_are_told_apart_as_rarely_as_promised(family, sampler, arms):
    """5000 trajectories of at most 1000 pulls."""
    errors = assert_errs_rarely(family, sampler, arms, 5000, 1000)
    assert sampler in ("press", "hunt") or errors > 0


@SLOW
@pytest.mark.parametrize("arms", [3, 10])
@pytest.mark.parametrize("sampler", ALL)
@pytest.mark.parametrize("family", TIES)
def test_tied_arms_are_told_apart_as_rarely_as_promised_in_the_long_run(family, sampler, arms):
    """100 000 trajectories of at most 300 pulls for each arm."""
    assert_errs_rarely(family, sampler, arms, 100_000, 300 * arms)


@SLOW
@pytest.mark.parametrize("arms", [3, 10])
@pytest.mark.parametrize("sampler", ["co", "top-two"])
@pytest.mark.parametrize("family", TIES)
def test_an_arm_that_is_hardly_too_far_from_the_best_is_returned_rarely_in_the_long_run(family, sampler, arms):
    """100 000 trajectories of at most 300 pulls for each arm, with an epsilon."""
    assert_errs_rarely(family, sampler, arms, 100_000, 300 * arms, epsilon=0.1)


def test_it_is_cheaper_than_contrast():
    """1 against nine arms of 0.5, at delta 0.05: at most 2.6 times the lower bound, 0.85 of contrast's bill; 1000
    trajectories with the same rewards, standard errors 0.03 and 0.006."""
    ten = Instance("gaussian", [1, *[0.5] * 9], [1] * 10)
    mine, other = (simulate(ten, delta=0.05, threshold=each, trajectories=1000) for each in ("champion", "contrast"))
    assert mine.costs.mean() < 0.85 * other.costs.mean()
    assert mine.summary().ratio < 2.6


def test_several_deltas_share_a_trajectory():
    three = Instance("gaussian", [0.8, 0.5, 0.4], [1, 0.2, 0.5])
    both = simulate(three, delta=[0.1, 1e-4], threshold="champion", trajectories=50)
    for runs in both:
        alone = simulate(three, delta=runs.delta, threshold="champion", trajectories=50)
        assert (alone.costs == runs.costs).all()


# --- Studies ---------------------------------------------------------------------------------------------------------


def test_hostile_delays_change_neither_what_counts_nor_what_is_decided(clock):
    """32 workers, failures of one arm come late: the records are those of one worker who is told in the order of
    asking."""
    for seed in range(3):
        study = new(threshold="champion", lease=1e9, delta=0.1, seed=seed)
        run_with_delays(study, clock, 32, hostile({"a": 0.9, "b": 0.5, "c": 0.4}, "c", seed))
        check_replay(study)
        play, told = Play(study.settings), study.observations()
        for each in sorted(told, key=lambda each: int(each["pull"].partition("-")[2])):
            if each["counted"]:
                play.observe(study.arms.index(each["arm"]), each["reward"], each["cost"])
        state = study._current.look(lambda found: found)
        for name in ("pulls", "rewards", "rivals", "rival_rewards"):
            assert state.ordered.arms[name].tolist() == play.arms[name].tolist()
        assert play.stops()
        assert study.decision == study.arms[play.leader]


def test_a_period_counts_as_was_clear_before_it(clock):
    """Sums of a period count whole, or not at all, by what was known before the period."""
    study = new(threshold="champion", costs=[1, 1, 1])
    study.tell_counts({"a": (10, 9), "b": (10, 5), "c": (10, 1)}, period="1")
    study.tell_counts({"a": (4, 1), "b": (20, 20), "c": (3, 0)}, period="2")
    arms = study._current.look(lambda found: found.ordered.arms)
    assert arms["rivals"].tolist() == [20, 4, 4]
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
