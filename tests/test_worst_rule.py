"""No sampling rule makes a test cross a level more often than promised: the one that does it most often, which knows
the means and sees everything, by dynamic programming over all outcomes; and the step that every proof rests on."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from cabai.core.compiling import compiled
from cabai.core.goal import Cheapest
from cabai.core.observe import observe
from cabai.core.setup import Setup
from cabai.core.state import Record, Records
from cabai.core.stopping import surplus
from cabai.core.within import excess
from cabai.families import family_of
from cabai.policies import policy_of
from cabai.thresholds import contrast, threshold_of, tilts

SLOW = pytest.mark.slow


def most_often_crossed(crossed, mu, horizon, mu_a):
    """The largest chance, over all rules that see everything, that a level is crossed within `horizon` pulls.

    A reward is one of two values, the larger with the chance mu on arm b, and mu_a on arm a.
    crossed[n_b, n_a][i, j]: the level is crossed after n_b and n_a pulls, i and j of which had the larger value.
    """
    ahead = {n: crossed[n, horizon - n].astype(float) for n in range(1, horizon)}
    for t in range(horizon - 1, 1, -1):
        now = {}
        for n in range(1, t):
            pull_b = mu * ahead[n + 1][1:, :] + (1 - mu) * ahead[n + 1][:-1, :]
            pull_a = mu_a * ahead[n][:, 1:] + (1 - mu_a) * ahead[n][:, :-1]
            now[n] = np.where(crossed[n, t - n], 1.0, np.maximum(pull_b, pull_a))
        ahead = now
    return float(np.array([1 - mu, mu]) @ ahead[1] @ np.array([1 - mu_a, mu_a]))


def records_after(setup, values, horizon):
    """For each number of pulls, the records of an arm 0, 1, 2 ... of whose rewards had the larger of two values."""
    look, found = compiled(setup.bound(observe)), [setup.start()[0][:1]]
    for n in range(1, horizon):
        records = np.zeros(n + 1, setup.layout.arm)
        for k in range(n + 1):
            arms, run = setup.start()
            arms[0] = found[-1][max(k - 1, 0)]
            look(arms, run, setup.rules, 0, values[k > 0], 1.0)
            records[k] = arms[0]
        found.append(records)
    return found


def all_log_e(b, a, rules, margin, found):
    for i in range(len(b)):
        for j in range(len(a)):
            found[i, j] = surplus(rules, 0, b[i], a[j]) + rules.level


def all_log_e_of_a_margin(b, a, rules, margin, found):
    for i in range(len(b)):
        for j in range(len(a)):
            found[i, j] = excess(rules, 0, b[i], a[j], -margin) + rules.level


@pytest.mark.parametrize(
    ("threshold", "family", "values", "margin", "horizon"),
    [
        ("evalue", "bernoulli", (0.0, 1.0), 0.0, 40), ("contrast", "bernoulli", (0.0, 1.0), 0.0, 40),
        ("bets", "bounded", (0.2, 0.9), 0.0, 40), ("contrast", "bernoulli", (0.0, 1.0), 0.1, 40),
        pytest.param("contrast", "bernoulli", (0.0, 1.0), 0.0, 60, marks=SLOW),
        pytest.param("bets", "bounded", (0.0, 1.0), 0.1, 40, marks=SLOW),
        *(pytest.param("bets", "bounded", values, 0.0, 80, marks=SLOW)
          for values in ((0.0, 1.0), (0.2, 0.9), (0.0, 0.3), (0.6, 1.0))),
    ],
)  # fmt: skip
def test_no_sampling_rule_makes_e_cross_more_often_than_promised(threshold, family, values, margin, horizon):
    """Two arms whose rewards are one of two values and which are equal, or differ by exactly the margin: E reaches x
    with a chance of at most 1/x, all that can go wrong with two arms at delta = 1/x."""
    given = {"arms": 2, "delta": 0.1}
    if margin > 0:
        given |= {"policy": policy_of("cheapest"), "epsilon": 2 * margin, "goal": Cheapest(margin, (1.0, 2.0))}
    setup, most, tables = Setup(family_of(family), threshold_of(threshold), **given), 0.0, {}
    records, fill = records_after(setup, values, horizon), all_log_e_of_a_margin if margin > 0 else all_log_e
    fill = compiled(setup.bound(fill))
    for t in range(2, horizon + 1):
        for n in range(1, t):
            tables[n, t - n] = np.empty((n + 1, t - n + 1))
            fill(records[n], records[t - n], setup.rules, margin, tables[n, t - n])
    for mu in (0.05, 0.5, 0.9, 0.95) if margin == 0 else (0.1, 0.15, 0.5, 0.95, 1.0):
        for x in (1.5, 2.0, 5.0, 20.0):
            crossed = {pulls: log_e >= math.log(x) for pulls, log_e in tables.items()}
            found = most_often_crossed(crossed, mu, horizon, mu - margin)
            assert found <= 1 / x
            most = max(most, found * x)
    assert most > 0.03  # so that it could have failed


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


# --- The step of every proof: at the mean of a best arm, the sum does not rise in mean


KNOWN, SD = "gaussian(variance=0.3)", math.sqrt(0.3)
TESTS = [
    *(("contrast", family, 2) for family in (KNOWN, "bernoulli", "poisson", "exponential")),
    *(("champion", family, 4) for family in (KNOWN, "bernoulli", "poisson", "exponential", "bounded")),
    ("champion", KNOWN, 3), ("hedged", KNOWN, 2), ("bets", "bounded", 2),
]  # fmt: skip


def law(family, mu):
    """Rewards with this mean, and their chances: exact, or to the last digits by quadrature."""
    if family == KNOWN:
        nodes, chances = np.polynomial.hermite_e.hermegauss(24)
        return mu + SD * nodes, chances / math.sqrt(2 * math.pi)
    if family == "exponential":
        nodes, chances = np.polynomial.laguerre.laggauss(32)
        return mu * nodes, chances
    if family == "poisson":
        counts = np.arange(0.0, 30.0)
        return counts, stats.poisson.pmf(counts, mu)
    if family == "bernoulli":
        return np.array([0.0, 1.0]), np.array([1 - mu, mu])
    return mu + min(mu, 1 - mu) * np.array([-1, -0.4, 0.4, 1]), np.array([0.2, 0.3, 0.3, 0.2])


def without_large_tilts(rules):
    """Tilts up to 1, so that the means can be integrated."""
    rules = rules.copy()
    if "gains" in rules.dtype.names:
        rules["gains"][:, rules["tilts"][:, tilts.TILT] > 1, tilts.GAIN] = 0
        rules["gains"][..., tilts.GAINED] = np.cumsum(rules["gains"][..., tilts.GAIN], axis=1)
    if "scales" in rules.dtype.names:
        rules["scales"][rules["scales"][:, tilts.RATE] > 1 / SD, tilts.WEIGHT] = 0
    return rules


@pytest.mark.parametrize(("threshold", "family", "arms"), TESTS)
def test_the_sum_against_a_best_arm_does_not_rise_in_mean(threshold, family, arms):
    """One pull of any arm ahead of random states: at m = mu_a, E of the pair or, for champion, p C + q (the sum over
    all b of E_b). Where the arm that is pulled has this mean too, nothing is lost either."""
    setup, counting = Setup(family_of(family), threshold_of(threshold), arms=arms, delta=0.1), 0
    look, at, rules = setup.bound(observe), setup.bound(contrast.pair_log_e), without_large_tilts(setup.rules)
    rng, of_pair = np.random.default_rng(arms), rules.copy()
    for name, value in {"log_counted": -np.inf, "hedged": 0.0}.items():  # the part q E_b alone
        if name in rules.dtype.names:
            of_pair[name] = value
    last = len(rules["stakes"]) - 1 if "stakes" in rules.dtype.names else tilts.COUNT - 1

    def log_sum(records, a, m):
        k = contrast.range_of(Record(rules), m) if "ranges" in rules.dtype.names else 0
        to, parts = records["mean"] - m, []
        for b in (i for i in range(arms) if i != a):
            own = Record(of_pair if parts else rules)
            pair = Record(records[b]), Record(records[a])
            parts.append(at(own, last, *pair, k, to[b], to[a], m, 0.0)[0])
        return np.logaddexp.reduce(parts)

    def after(state, b, reward):
        records, run = state[0].copy(), state[1].copy()
        look(Records(records), Record(run), Record(rules), b, reward, 1.0)
        return records, run

    for _ in range(4):
        m, state = float(rng.uniform(0.3, 0.7)), setup.start()
        for t in range(int(rng.integers(10, 60)) + arms):
            b = t if t < arms else int(rng.choice(arms, p=[0.5, *[0.5 / (arms - 1)] * (arms - 1)]))
            values, chances = law(family, m * (1.2 if b == 0 else 0.9))
            state = after(state, b, float(rng.choice(values, p=chances / chances.sum())))
        a = arms - 1 if threshold != "champion" else int(state[0]["rivals"].argmax())
        before = log_sum(state[0], a, m)
        for b in range(arms):
            for mu in (m, 1.1 * m if b == a else 0.9 * m):
                values, chances = law(family, mu)
                found = [after(state, b, float(y))[0] for y in values]
                counting += threshold == "champion" and b != a and found[0]["rivals"][a] > state[0]["rivals"][a]
                mean = sum(p * math.exp(log_sum(each, a, m) - before) for each, p in zip(found, chances, strict=True))
                assert mean <= 1 + 1e-7
                assert mu != m or mean >= 1 - 1e-7
    assert counting or threshold != "champion"
