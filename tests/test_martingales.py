"""The step that every proof of a default test rests on: at the mean of a best arm, the sum does not rise in mean."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from cabai.core.observe import observe
from cabai.core.setup import Setup
from cabai.core.state import Record, Records
from cabai.families import family_of
from cabai.thresholds import contrast, threshold_of, tilts

GAUSSIAN, SD = "gaussian(variance=0.3)", math.sqrt(0.3)
TESTS = [
    *(("contrast", family, 2) for family in (GAUSSIAN, "bernoulli", "poisson", "exponential")),
    *(("champion", family, 4) for family in (GAUSSIAN, "bernoulli", "poisson", "exponential", "bounded")),
    ("champion", GAUSSIAN, 3), ("hedged", GAUSSIAN, 2), ("bets", "bounded", 2),
]  # fmt: skip


def law(family, mu):
    """Rewards with this mean, and their chances: exact, or to the last digits by quadrature."""
    if family == GAUSSIAN:
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
