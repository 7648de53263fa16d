"""What a status knows of the arms at any moment: who may be the best, how far the leader may be from it, and ranks."""

from __future__ import annotations

import itertools
import math
import re
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import brentq, minimize_scalar

import cabai
import reference
from cabai import Instance, Statistics, simulate
from cabai.core.stopping import beats, is_settled
from cabai.datasets.capital import first_bets, largest_capital
from cabai.datasets.race import Race
from cabai.thresholds import Contrast, threshold_of
from combinations import covering
from plain_race import PlainRace
from samplers import in_turn, spoil
from studies import new, reloaded

DELTA = 0.1


def told(rewards: dict[str, list[float]], **options) -> cabai.study.Study:
    """A study that has seen these rewards of each arm, each in its turn, until it stops."""
    study = new(arms=list(rewards), policy="uniform", delta=DELTA, costs=[1.0] * len(rewards), **options)
    left = {arm: list(values) for arm, values in rewards.items()}
    while any(left.values()) and not study.stopped:
        pull = study.ask()
        study.tell(pull, left[pull.arm].pop(0))
    return study


def some_bernoulli(seed: int) -> dict[str, list[float]]:
    """60 rewards each of five arms."""
    rng = np.random.default_rng(seed)
    means = [0.7, *rng.uniform(0.1, 0.75, 4)]
    return {arm: (rng.random(60) < mean).astype(float).tolist() for arm, mean in zip("abcde", means, strict=True)}


def log_evalue(b: list[float], a: list[float], epsilon: float) -> float:
    """Of "b is at most epsilon worse than a", by mixtures over the largest likelihood under "a is better by epsilon or
    more", which is searched for."""
    (n_b, r_b), (n_a, r_a) = (len(b), sum(b)), (len(a), sum(a))

    def likelihood(n, r, q):
        return reference._x_log(r, q) + reference._x_log(n - r, 1 - q)

    def lost(q):
        return -likelihood(n_b, r_b, q) - likelihood(n_a, r_a, q + epsilon)

    if r_a / n_a - r_b / n_b >= epsilon:
        largest = likelihood(n_b, r_b, r_b / n_b) + likelihood(n_a, r_a, r_a / n_a)
    else:
        found = minimize_scalar(lost, bounds=(1e-12, 1 - epsilon - 1e-12), method="bounded", options={"xatol": 1e-12})
        largest = -found.fun
    mixtures = [reference.log_mixture("bernoulli", n, r, 0.0) for n, r in ((n_b, r_b), (n_a, r_a))]
    return sum(mixtures) - largest


@pytest.mark.parametrize("seed", [0, 1, 2, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 20))])
def test_who_may_be_best_how_far_and_who_is_better_against_mixtures_by_another_formula(seed):
    data = some_bernoulli(seed)
    study = told(data, threshold="evalue")
    status = study.status()
    seen = study.observations()
    data = {arm: [each["reward"] for each in seen if each["arm"] == arm] for arm in data}
    level, at_once = math.log(4 / DELTA), math.log(5 * 4 / DELTA)
    pairs = {(b, a): log_evalue(data[b], data[a], 0.0) for b, a in itertools.permutations("abcde", 2)}
    possible = [a for a in "abcde" if not any(z > level for (_, other), z in pairs.items() if other == a)]
    assert [arm.name for arm in status.arms if arm.may_be_best] == possible
    for arm in status.arms:
        separated = {a for (b, a), z in pairs.items() if b == arm.name and z > at_once}
        assert separated <= set(arm.better_than or [])
        direct = {a: [b for (b, other), z in pairs.items() if other == a and z > at_once] for a in "abcde"}
        follows = set(separated)
        for _ in range(5):
            follows |= {a for a in "abcde" if set(direct[a]) & follows}
        assert set(arm.better_than or []) == follows
        above = [other for other in status.arms if arm.name in (other.better_than or [])]
        assert arm.ranks == [1 + len(above), 5 - len(follows)]
    distances = []
    for a in possible:
        if a != status.leader and pairs[status.leader, a] <= level:
            mine, its = data[status.leader], data[a]
            distances.append(
                brentq(lambda eps, mine=mine, its=its: log_evalue(mine, its, eps) - level, 1e-9, 0.9, xtol=1e-9)
            )
    expected = max(distances, default=0.0)
    assert expected <= status.within * (1 + 1e-6) + 1e-9
    assert status.within <= expected * (1 + 2e-3) + 1e-9


def test_within_and_a_lead_at_most_against_every_pair_of_tilts():
    """By `contrast`: a scan of all pairs of tilts and of m, in 50 digits. A lead at most is what the pair's test does
    not refute, at the level of both pairs."""
    from pairs import least_log_e

    rng = np.random.default_rng(3)
    data = {arm: rng.normal(mean, 1, 40).tolist() for arm, mean in (("a", 0.0), ("b", 0.25))}
    status = told(data, family="gaussian", threshold="contrast").status()
    means, leader, rival = {arm: float(np.mean(values)) for arm, values in data.items()}, status.leader, status.rival
    assert status.lead == pytest.approx(means[leader] - means[rival])
    assert f"leads, ahead of {rival} by " in status.sentence
    family = cabai.families.family_of("gaussian")
    for b, a, most, level in (
        (leader, rival, status.within, math.log(1 / DELTA)), (rival, leader, status.lead_at_most, math.log(2 / DELTA)),
    ):  # fmt: skip
        for epsilon, is_shown in ((most, True), (0.97 * most, False)):
            assert (least_log_e(family, (40, 40), (means[b], means[a]), epsilon) > level) == is_shown


@pytest.mark.parametrize(("policy", "epsilon"), [("top-two", 0.35), ("co", 0.37), ("co", 0.2)])
def test_a_decision_with_an_epsilon_is_shown_to_be_within_it(policy, epsilon):
    rng = np.random.default_rng(1)
    study = new(policy=policy, costs=[1, 1, 1], epsilon=epsilon)
    status = study.run(lambda arm: float(rng.random() < {"a": 0.6, "b": 0.6, "c": 0.2}[arm]))
    assert 0 < status.within <= epsilon
    assert status.decision in [arm.name for arm in status.arms if arm.may_be_best]
    found = [line for line in status.shown if " is at most " in line]
    assert len(found) == (epsilon > 0.2)  # 0.198, said with two digits, is what the decision says already
    for line in found:
        assert line.startswith(f"{status.decision} is at most ")
        assert status.within <= float(line.split()[4]) <= status.within * 1.2


@pytest.mark.parametrize(("direction", "family", "low", "high", "draw"), [
    ("maximize", "bounded(low=-2, high=6)", -1.0, 4.0, lambda rng, mean, n: rng.normal(mean, 0.3, n).clip(-2, 6)),
    ("minimize", "poisson", 6.0, 2.0, lambda rng, mean, n: rng.poisson(mean, n).astype(float)),
    ("minimize", "exponential", 5.0, 0.5, lambda rng, mean, n: rng.exponential(mean, n)),
])  # fmt: skip
def test_distances_are_in_the_units_of_the_rewards(direction, family, low, high, draw):
    """The mean of `within` is as it was told: the arm that it speaks of cannot be further off than the family allows,
    and more data bring it closer."""
    rng, middle, found = np.random.default_rng(2), (low + high) / 2, []
    for n in (15, 45, 135):
        data = {arm: draw(rng, mean, n).tolist() for arm, mean in (("a", middle), ("b", middle), ("c", low))}
        status = told(data, family=family, direction=direction).status()
        assert status.leader in "ab"
        found.append(status.within)
    assert found[0] > found[1] > found[2] > 0
    gap = abs(float(np.mean(data["a"])) - float(np.mean(data["b"])))
    assert found[2] < gap + abs(middle - low)


def test_pairs_are_separated_at_the_level_of_all_of_them():
    """b is better than a just if it beats a at delta/K. An arm like b keeps the study from stopping."""
    seen = set()
    for more in range(0, 16, 2):
        better = [1.0] * (22 + more) + [0.0] * (18 - more)
        data = {"a": [1.0, 0.0] * 20, "b": better, "c": better}
        sums = Statistics("bernoulli", [40] * 3, [sum(values) for values in data.values()])
        weak, strong = (Contrast().beats(sums, 1, 0, delta=delta) for delta in (DELTA, DELTA / 3))
        status = told(data, threshold="contrast").status()
        assert (status.arms[0].may_be_best, "a" in status.arms[1].better_than) == (not weak, strong)
        seen.add((weak, strong))
    assert seen == {(False, False), (True, False), (True, True)}


def test_the_arm_that_holds_a_study_up_is_the_one_with_the_least_share():
    study = told(some_bernoulli(3))
    status = study.status()
    assert not status.stopped
    shares = {arm.name: arm.share for arm in status.arms if arm.share is not None}
    assert set(shares) == {arm.name for arm in status.arms} - {status.leader}
    assert status.rival == min(shares, key=shares.get)
    by_name = {arm.name: arm for arm in status.arms}
    assert by_name[status.rival].standing == "in: closest rival"
    assert shares[status.rival] == pytest.approx(max(status.evidence, 0) / status.required)
    assert by_name[status.leader].standing == "leads"
    assert "  closest rival" in str(status)


def test_arms_that_a_policy_has_dropped_stay_out():
    rng, seen = np.random.default_rng(4), 0
    study = new(policy="co", delta=0.2, costs=[1, 1, 1], arms=["a", "b", "c"], max_pulls=120)
    while not study.stopped:
        for pull in study.ask(10):
            study.tell(pull, float(rng.random() < {"a": 0.62, "b": 0.5, "c": 0.05}[pull.arm]))
        status = study.status()
        for arm in status.arms:
            if not arm.in_play:
                assert arm.may_be_best is False
                assert arm.share == 1.0
                assert arm.standing.startswith("out: ")
                seen += 1
        if not all(arm.in_play for arm in status.arms) and not status.stopped:
            assert re.search("Proven: a or b is the best, and .* wrong with probability at most 0.2", str(status))
    assert seen > 2


def capital_in_plain_python(race: Race, b: int, a: int, epsilon: float, level: float) -> float:
    """The largest capital so far, of a race of these two."""
    plain = PlainRace(2, race.items, delta=math.exp(-level), epsilon=epsilon, number=float)
    for j in range(min(race.board.prefix[b], race.board.prefix[a])):
        plain.tell(0, j, race.board.shares[b, j])
        plain.tell(1, j, race.board.shares[a, j])
    return plain.best[len(plain.epsilons) - 1, 0, 1]


@pytest.mark.parametrize(("epsilon", "seed"), [(0.0, 1), (0.05, 2), (0.3, 3)])
def test_how_far_the_leader_of_a_race_may_be_from_the_best_against_plain_python(epsilon, seed):
    rng = np.random.default_rng(seed)
    scores = rng.random((3, 120)) * [[0.7], [0.8], [1.0]]
    study = cabai.create_study(f"race {epsilon}", arms=list("abc"), items=120, costs=[1, 1, 1], epsilon=epsilon,
                               race="paired", delta=DELTA, max_pulls=60, seed=seed, storage="memory")  # fmt: skip
    status = study.run(lambda arm, item: float(scores["abc".index(arm), item]))
    play = study._current.look(lambda state: state)
    leader, level = "abc".index(status.leader), math.log(2 / DELTA)
    possible = [a for a, arm in enumerate(status.arms) if arm.may_be_best and a != leader]
    assert [arm.may_be_best for arm in status.arms] == [arm.in_play for arm in status.arms]
    if status.within is not None:
        for share, is_shown in ((1.0, True), (0.99, False)):
            capitals = [capital_in_plain_python(play.race, leader, a, share * status.within, level) for a in possible]
            assert all(math.log(each) >= level for each in capitals) == is_shown
    at_once = math.log(6 / DELTA)
    for b, a in itertools.permutations(range(3), 2):
        if math.log(capital_in_plain_python(play.race, b, a, 0.0, at_once)) > at_once + 1e-5:
            assert status.arms[a].name in status.arms[b].better_than


def test_a_race_that_evaluated_everything_knows_every_rank():
    scores = {"a": [1.0, 0.0, 1.0], "b": [1.0, 1.0, 1.0], "c": [0.0, 0.0, 1.0]}
    seed = 0  # with another, two items can be enough to rule c out
    study = cabai.create_study("all", arms=list("abc"), items=3, costs=[1, 1, 1], seed=seed, storage="memory")
    status = study.run(lambda arm, item: scores[arm][item])
    assert status.is_complete
    assert [arm.ranks for arm in status.arms] == [[2, 2], [1, 1], [3, 3]]
    assert status.within == 0.0
    assert reloaded(study).status() == status


# What a status claims of the arms is wrong as rarely as it says, looked at after every pull


CHANCE = 1e-6
TIES = {"gaussian": 0.5, "bernoulli": 0.5, "poisson": 1.5, "exponential": 1.0, "bounded": 0.5}


def best_is_excluded(arms, run, rules):
    """The best arm, the last, is no longer among those that may be the best; or an arm that is worse by exactly epsilon
    is shown to be at most epsilon worse."""
    best = len(arms) - 1
    for b in range(best):
        if beats(rules, run.t, arms[b], arms[best]) or is_settled(rules, run.t, arms[b], arms[best]):
            return True
    return False


def some_pair_is_separated(arms, run, rules):
    """Some arm is shown to be better than another: all are tied."""
    for b in range(len(arms)):
        for a in range(len(arms)):
            if a != b and beats(rules, run.t, arms[b], arms[a]):
                return True
    return False


def share_wrong(family, choose, stop, arms, trajectories, most, *, delta=DELTA, epsilon=0.0, threshold=None):
    """How often a claim is ever wrong."""
    mean = TIES[family]
    law = {"law": "beta", "sd": 0.3} if family == "bounded" else {}
    instance = Instance(family, [mean - epsilon] * (arms - 1) + [mean], np.ones(arms), **law)
    watch = cabai.policy(choose, stop=stop, cost_blind=True)
    test = threshold_of(threshold, instance.family)
    runs = simulate(
        instance, watch, delta=delta, threshold=test, trajectories=trajectories, max_pulls=most, epsilon=epsilon,
        seed=11,
    )  # fmt: skip
    wrong = int(runs.finished.sum())
    about = f"{test} {family} {choose.__name__} {stop.__name__} {arms} arms, epsilon {epsilon}"
    print(f"{about}: {wrong / trajectories:.4f}")
    assert stats.binom.sf(wrong - 1, trajectories, DELTA) > CHANCE, wrong / trajectories
    return wrong


@pytest.mark.slow
@pytest.mark.parametrize("choose", [in_turn, spoil])
@pytest.mark.parametrize("epsilon", [0.0, 0.1])
@pytest.mark.parametrize("threshold", [None, "champion"])
@pytest.mark.parametrize("family", TIES)
def test_the_best_arm_stays_among_those_that_may_be_and_no_distance_is_too_small(threshold, family, choose, epsilon):
    """20,000 trajectories of 1,000 pulls; one delta for both claims."""
    share_wrong(family, choose, best_is_excluded, 4, 20_000, 1000, epsilon=epsilon, threshold=threshold)


@pytest.mark.parametrize("family", covering(["gaussian", "poisson", "bounded"], most=1))
def test_champion_has_one_delta_for_beaten_arms_and_for_distances(family):
    """3,000 trajectories of 300 pulls."""
    share_wrong(family, spoil, best_is_excluded, 3, 3000, 300, epsilon=0.1, threshold="champion")


SEPARATED = [("gaussian", in_turn, 3, 4000, 300)]


@pytest.mark.parametrize(("family", "choose", "arms", "trajectories", "most"), SEPARATED)
def test_tied_arms_are_separated_as_rarely_as_promised_for_all_pairs_at_once(family, choose, arms, trajectories, most):
    """At delta/K, as `known` asks for."""
    wrong = share_wrong(family, choose, some_pair_is_separated, arms, trajectories, most, delta=DELTA / arms)
    assert wrong > 0 or most < 1000


@pytest.mark.slow
@pytest.mark.parametrize(("items", "gap"), [(40, 0.1), (200, 0.05), (200, 0.0)])
def test_no_epsilon_below_the_true_distance_is_ever_shown_in_a_race(items, gap):
    """20,000 orders of the items of two arms, b worse than a by exactly the gap: at the gap, and at smaller epsilons,
    all at once, b is shown to be closer as rarely as promised, though all items are looked at."""
    rng, orders, wrong = np.random.default_rng(2), 20_000, 0
    bets = first_bets(items, np.log(1 / DELTA))
    a = np.tile([0.0, 1.0], items // 2)
    b = a.copy()
    b[np.flatnonzero(a)[: round(gap * items) + 6]] = 0.0
    b[np.flatnonzero(a == 0)[:6]] = 1.0
    true = round(gap * items) / items
    epsilons = np.linspace(0, true, 4) if gap else [0.0]
    for _ in range(orders):
        shares = np.array([b, a])[:, rng.permutation(items)]
        sums = np.concatenate([np.zeros((2, 1)), shares.cumsum(axis=1)], axis=1)
        board = SimpleNamespace(shares=shares, sums=sums, prefix=np.array([items, items]))
        wrong += any(largest_capital(board, bets, 0, 1, epsilon) >= 1 / DELTA for epsilon in epsilons)
    print(items, gap, wrong / orders)
    assert stats.binom.sf(wrong - 1, orders, DELTA) > CHANCE
