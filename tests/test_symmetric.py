"""Rewards of unknown variance: the bets are fair, and what is computed is never too large."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest
from scipy import stats

import cabai
import pairs
from cabai import Instance, InvalidInput, simulate
from cabai.core.observe import observe
from cabai.core.setup import Setup
from cabai.core.state import Record, Records
from cabai.core.stopping import is_settled
from cabai.families import family_of
from cabai.thresholds import Symmetric, symmetric
from combinations import covering
from pairs import check_never_above, check_quick_look
from studies import check_same_pulls, new

SLOW = pytest.mark.slow
UNKNOWN = "gaussian(variance=unknown)"


@cache
def setup_of(epsilon=0.0, delta=0.1):
    return Setup(family_of(UNKNOWN), Symmetric(), arms=2, delta=delta, epsilon=epsilon)


def state_of(setup, *rewards):
    """Records of arms that returned these rewards, in turn."""
    arms, run = setup.start()
    for a, own in enumerate(rewards):
        for reward in own:
            setup.bound(observe)(Records(arms), Record(run), Record(setup.rules), a, float(reward), 1.0)
    return arms


def log_e_of(setup, rewards_b, rewards_a):
    return pairs.log_e_of(setup, *map(Record, state_of(setup, rewards_b, rewards_a)))


def scale_and_rest(rewards):
    """The standard deviation of the first three rewards, or of more until two differ, and those after them."""
    count = next((n for n in range(3, len(rewards) + 1) if np.std(rewards[:n]) > 0), None)
    return (1.0, rewards[:0]) if count is None else (np.std(rewards[:count], ddof=1), rewards[count:])


@cache
def weights():
    """The tilts, and the weights of their pairs; the last tilt is 0."""
    tilt, q, g, _, alone = symmetric.table().T
    i, W = np.arange(len(tilt)), np.zeros((len(tilt) + 1, len(tilt) + 1))
    W[:-1, :-1] = q[:, None] * q * np.cumsum(g)[np.minimum(i[:, None], i)]
    W[-1, :-1] = W[:-1, -1] = alone
    return np.append(tilt, 0.0), W


def tilted_logs(rewards, m, sign):
    scale, rest = scale_and_rest(rewards)
    bets = sign * weights()[0] * (rest[:, None] - m) / scale
    return (bets - bets * bets / 2).sum(axis=0)


def total(rewards_b, rewards_a, m_b, m_a):
    """The worth of all bets that b is above m_b and a below m_a; those on signs win nothing from a reward at m."""
    w = symmetric.SIGNS
    up, down = tilted_logs(rewards_b, m_b, 1), tilted_logs(rewards_a, m_a, -1)
    signs = [np.prod(1 + np.sign(np.asarray(d))) for d in (rewards_b - m_b, m_a - rewards_a)]
    tilts = np.exp(np.clip(up[:, None] + down, -700, 700)) * weights()[1]
    return w * sum(signs) + (1 - 2 * w) * tilts.sum()


LAWS = {
    "gaussian": lambda rng, n: rng.normal(size=n),
    "uniform": lambda rng, n: rng.uniform(-1, 1, n),
    "t3": lambda rng, n: rng.standard_t(3, n),
    "two-point": lambda rng, n: rng.choice([-1.0, 1.0], n),
    "lattice": lambda rng, n: rng.integers(-2, 3, n) / 4,
    "equal": lambda rng, n: np.zeros(n),
}


@pytest.mark.parametrize("law", LAWS)
def test_the_worth_at_the_true_means_does_not_rise_in_mean(law):
    """One pull of either arm, by a fair coin mu +- e, ahead of 60 random states; mu at m or on its allowed side. Every
    symmetric law is a mixture of such coins. At first it is 1."""
    assert weights()[1].sum() == pytest.approx(1, abs=1e-12)
    rng = np.random.default_rng(1)
    for _ in range(60):
        data = [LAWS[law](rng, int(rng.integers(0, 12))) for _ in range(2)]
        m = rng.normal(size=2) * 0.3
        before = total(*data, *m)
        for a, away in ((0, -1), (1, 1)):
            for mu in (m[a], m[a] + away * rng.exponential()):
                e = rng.exponential() * 10 ** rng.uniform(-2, 1) * rng.integers(0, 4)
                told = ([*data[:a], np.append(data[a], y), *data[a + 1 :]] for y in (mu - e, mu + e))
                assert sum(total(*each, *m) for each in told) / 2 <= before * (1 + 1e-9)


def brute_least(rewards_b, rewards_a, epsilon=0.0):
    """The least worth over a grid of m_b <= m_a - epsilon, refined around its least points."""
    both = np.concatenate([rewards_b, rewards_a])
    wide = np.ptp(both) + 1e-9
    low, high = both.min() - wide, both.max() + wide
    best = (np.inf, 0.0)
    for points in (60, 40, 40):
        for m in np.linspace(low, high, points):
            for more in (0.0, 0.05 * wide, 0.3 * wide):
                best = min(best, (total(rewards_b, rewards_a, m - more, m + epsilon), m))
        low, high = best[1] - (high - low) / points, best[1] + (high - low) / points
    return math.log(best[0])


@pytest.mark.parametrize(("law", "epsilon"), covering(LAWS, [0.0, 0.3]))
def test_the_least_e_is_never_above_a_scan(law, epsilon):
    """9 random pairs with other scales and numbers of pulls: never above a scan, and close to it where it matters."""
    rng, setup, found, least = np.random.default_rng(2), setup_of(epsilon), [], []
    for _ in range(9):
        n, gap, ratio = rng.integers(6, 60, 2), rng.choice([0.0, 0.5, 1.0, 3.0]), 10 ** rng.uniform(-1, 1)
        data = gap + LAWS[law](rng, n[0]), ratio * LAWS[law](rng, n[1])
        found.append(log_e_of(setup, *data))
        least.append(brute_least(*data, epsilon))
    check_never_above(found, least, share=0.7, within=0.1, slack=1e-6)


def test_a_quick_look_seldom_refuses_what_is_shown():
    rng, setup, states = np.random.default_rng(3), setup_of(), []
    for _ in range(200):
        n = rng.integers(8, 300, 2)
        data = rng.uniform(0.1, 2) + LAWS["gaussian"](rng, n[0]), LAWS[str(rng.choice(list(LAWS)))](rng, n[1])
        states.append(map(Record, state_of(setup, *data)))
    check_quick_look(setup, states, beaten=50, refused=2, slack=0.02, test=is_settled)


@pytest.mark.parametrize("unit", [1e-9, 1e9, 2.0**40])
@pytest.mark.parametrize("offset", [0.0, 3.0, 1e9])
def test_units_change_no_decision(unit, offset):
    """y -> c (y + d): the evidence stays, but for the digits that an offset takes from the rewards themselves."""
    rng, setup = np.random.default_rng(4), setup_of()
    for _ in range(6):
        data = rng.uniform(0, 2) + rng.normal(size=30), rng.normal(size=20) * rng.choice([0.1, 1, 5])
        plain = log_e_of(setup, *data)
        assert log_e_of(setup, *(unit * (each + offset) for each in data)) == pytest.approx(plain, abs=1e-4)


@pytest.mark.filterwarnings("error")
def test_equal_rewards_are_told_apart_by_their_signs_only():
    setup = setup_of()
    enough = math.ceil(math.log2(10 / symmetric.SIGNS))
    ones, zeros = np.ones(100), np.zeros(100)
    assert log_e_of(setup, ones[: enough - 1], zeros[:enough]) < math.log(10) < log_e_of(setup, ones[:enough], zeros)
    assert log_e_of(setup, ones, ones) == 0.0
    late = np.append(np.ones(50), 1 + 1e-12 * np.arange(20))
    assert math.isfinite(log_e_of(setup, late, zeros))
    assert log_e_of(setup, late, np.append(np.ones(50), 2.0)) == 0.0
    assert math.isfinite(log_e_of(setup, np.append(ones, [1e90, -1e90]), np.append(zeros, [1e-90, 2e-90])))
    # All rewards of a are at most 1, all of b at least 1: at m = 1 both may be right.
    b, a = np.tile([1.0, 1.0, 1.0, 2.0], 3), np.tile([1.0, 1.0, 1.0, 0.0], 3)
    assert log_e_of(setup, b, a) <= max(brute_least(b, a), 0.0) + 1e-6


def test_intervals_hold_and_do_not_depend_on_units():
    setup, rng, level, out = setup_of(), np.random.default_rng(5), math.log(2 / 0.1), 0
    for law in ("gaussian", "t3", "two-point"):
        for _ in range(60):
            rewards = LAWS[law](rng, int(rng.integers(10, 200)))
            low, high = symmetric.interval(Record(state_of(setup, rewards)[0]), level)
            out += not low <= 0 <= high
            moved = symmetric.interval(Record(state_of(setup, 8 * rewards + 64)[0]), level)
            assert np.allclose(moved, [8 * low + 64, 8 * high + 64])
    assert out <= stats.binom.isf(1e-6, 180, 0.1)
    assert symmetric.interval(Record(state_of(setup, [1.0, 2.0, 3.0])[0]), level) == (-math.inf, math.inf)
    low, high = symmetric.interval(Record(state_of(setup, rng.normal(size=400))[0]), level)
    assert -0.3 < low < high < 0.3


@pytest.mark.parametrize(("gap", "most"), [(2.0, 2.3), (1.0, 1.6), (0.5, 1.2), pytest.param(0.25, 1.1, marks=SLOW)])
def test_not_knowing_the_variance_costs_little(gap, most):
    """Pulls of two arms in turn, over those of `evalue` with the variance known: 400 trajectories."""
    options = {"delta": 0.05, "trajectories": 400, "seed": 7}
    mine, known = (
        simulate(Instance(family, [gap, 0.0], [1, 1]), "uniform", threshold=threshold, **options).summary().steps
        for family, threshold in ((UNKNOWN, None), ("gaussian", "evalue"))
    )
    assert mine <= most * known


@pytest.mark.parametrize(("policy", "epsilon", "most"), [("top-two", 0.0, 30), ("top-two", 0.2, 120), ("co", 0.2, 90)])
def test_a_study_makes_the_pulls_of_a_simulation(policy, epsilon, most):
    instance = Instance(UNKNOWN, [1.5, 1.0, 0.5], [1, 0.5, 0.2], sd=[1.0, 0.2, 2.0])
    check_same_pulls(instance, policy, None, epsilon, most=most, seed=3, reload=epsilon == 0)


def test_top_two_never_starves_an_arm_with_equal_rewards():
    equal = simulate(Instance(UNKNOWN, [1.0, 0.7, 0.0], [1, 1, 1], sd=[1e-12, 1.0, 1e-12]), trajectories=100, seed=1)
    assert not equal.wrong.any()
    assert equal.summary().unfinished == 0


@pytest.mark.parametrize(
    ("means", "sd", "costs", "optimal"),  # the last for known variances, by Nelder-Mead
    [
        ([1.0, 0.6], [1.0, 4.0], [4, 1], [0.111, 0.889]),
        ([1.0, 0.5, 0.0], [1.0, 3.0, 0.1], [1, 1, 1], [0.25, 0.75, 0.0]),
        ([1.0, 0.0, 0.8], [1.0, 3.0, 0.1], [1, 1, 1], [0.695, 0.236, 0.069]),
    ],
)
def test_top_two_divides_pulls_as_if_it_knew_the_variances(means, sd, costs, optimal):
    """200 trajectories: within 5 standard errors, and 0.02 for the first pulls of each arm."""
    pulls = simulate(Instance(UNKNOWN, means, costs, sd=sd), delta=0.01, trajectories=200, seed=2).pulls
    shares = pulls.sum(axis=0) / pulls.sum()
    error = (pulls - shares * pulls.sum(axis=1, keepdims=True)).std(axis=0) / pulls.sum(axis=1).mean() / 200**0.5
    assert (abs(shares - optimal) < 5 * error + 0.02).all(), (shares, error)


def test_top_two_starves_no_arm_whose_first_rewards_are_almost_equal():
    """2000 trajectories. The mean of three rewards of the best arm may be low and their variance tiny; then the others,
    almost tied, were pulled instead: one bill in 90 was above five medians, one of them 180 medians."""
    instance = Instance(UNKNOWN, [0.979, 0.605, 0.59, 0.379], [1, 1, 1, 1], sd=0.7)
    bills = simulate(instance, delta=0.05, trajectories=2000, seed=4, max_pulls=10_000).costs
    assert (bills > 5 * np.median(bills)).sum() <= 2


def test_progress_counts_the_pulls_that_every_decision_needs():
    """Nine of each arm, however far apart they are: after 5 of 18, less than half is done."""
    study = new(arms=["a", "b"], family=UNKNOWN, policy="top-two")
    for reward in (3.0, 1.0, 3.1, 1.1, 3.05):
        study.tell(study.ask(), reward, cost=1)
    assert 0.1 < study.status().progress < 0.5
    assert symmetric.fewest(math.log(1 / 0.05)) == 9


def test_a_variance_that_is_not_known_is_refused_where_it_is_needed():
    for threshold in ("contrast", "evalue", "mixture", "stylized"):
        with pytest.raises(InvalidInput, match=f"^threshold {threshold} needs the variance: name it, as in family="):
            simulate(Instance(UNKNOWN, [1, 0], [1, 1]), threshold=threshold)
    for policy in ("ugape", "ocba", "ctas", "d-lucb", "thompson"):
        with pytest.raises(InvalidInput, match=f"^policy {policy} needs the variance: .* the default needs none.$"):
            simulate(Instance(UNKNOWN, [1, 0], [1, 1]), policy)
        with pytest.raises(InvalidInput, match=f"^policy {policy} needs the variance: "):
            cabai.create_study(policy, arms=["a", "b"], family="gaussian", policy=policy, storage="memory")
    for call, message in (
        (lambda: cabai.calibrate(UNKNOWN, costs=[1, 1]), "calibrate needs the variance"),
        (lambda: simulate(Instance("gaussian", [1, 0], [1, 1]), threshold="symmetric"), "leave out the threshold"),
        (lambda: Instance(UNKNOWN, [1, 0], [1, 1], sd=0), r"sd\[0\] must be positive"),
        (lambda: Symmetric().stops(cabai.Statistics(UNKNOWN, [3, 3], [1, 2]), delta=0.1), "needs the rewards themselv"),
    ):
        with pytest.raises(InvalidInput, match=message):
            call()
    assert Symmetric().is_proven_for(UNKNOWN)
    assert not Symmetric().is_proven_for("gaussian")
    assert not cabai.thresholds.EValue().is_proven_for(UNKNOWN)
