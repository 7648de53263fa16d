"""The sampling rule of two arms that most often makes something happen, by dynamic programming over all outcomes."""

from __future__ import annotations

import math

import numpy as np


def most_often_crossed(crossed, mu, horizon, mu_a=None):
    """The largest chance, over all rules that see everything, that a level is crossed within `horizon` pulls.

    A reward is one of two values, the larger with the chance mu on arm b, and on arm a unless mu_a is given.
    crossed[n_b, n_a][i, j]: the level is crossed after n_b and n_a pulls, i and j of which had the larger value.
    """
    mu_a = mu if mu_a is None else mu_a
    ahead = {n: crossed[n, horizon - n].astype(float) for n in range(1, horizon)}
    for t in range(horizon - 1, 1, -1):
        now = {}
        for n in range(1, t):
            pull_b = mu * ahead[n + 1][1:, :] + (1 - mu) * ahead[n + 1][:-1, :]
            pull_a = mu_a * ahead[n][:, 1:] + (1 - mu_a) * ahead[n][:, :-1]
            now[n] = np.where(crossed[n, t - n], 1.0, np.maximum(pull_b, pull_a))
        ahead = now
    return float(np.array([1 - mu, mu]) @ ahead[1] @ np.array([1 - mu_a, mu_a]))


def check_no_rule_crosses(table, mus, horizon):
    """E of two equal arms reaches x with a chance of at most 1/x, all that can go wrong with two arms at delta = 1/x,
    also by the rule that maximises it; table(n_b, n_a) is log E after so many pulls, over their larger values."""
    tables, most = {(n, t - n): table(n, t - n) for t in range(2, horizon + 1) for n in range(1, t)}, 0.0
    for mu in mus:
        for x in (1.5, 2.0, 5.0, 20.0):
            crossed = {pulls: log_e >= math.log(x) for pulls, log_e in tables.items()}
            found = most_often_crossed(crossed, mu, horizon)
            assert found <= 1 / x
            most = max(most, found * x)
    assert most > 0.03  # so that it could have failed
