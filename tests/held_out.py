"""Simulated studies, stopped after some pulls and carried on with the truth: did the forecast cover what was paid?"""

from __future__ import annotations

from typing import Any

import numpy as np

from cabai import Instance
from cabai.families.laws import LAWS
from cabai.planning.forecast import Forecast, forecast_of
from cabai.simulation.continuing import Continuations, Truths
from cabai.study.settings import Settings
from folding import Play

# What the truths are drawn from: the means of arms, and standard deviations of a reward where they are free.
PRIORS = {
    "gaussian": lambda rng, arms: rng.normal(0, 0.5, arms),
    "bernoulli": lambda rng, arms: rng.uniform(0.2, 0.8, arms),
    "bounded": lambda rng, arms: rng.uniform(0.35, 0.65, arms),
    "poisson": lambda rng, arms: rng.uniform(1, 3, arms),
    "exponential": lambda rng, arms: np.exp(rng.uniform(-0.7, 0.7, arms)),
}
MOST = 5_000_000  # pulls of one study


def settings_of(family: str, arms: int, costs: Any, **options: Any) -> Settings:
    usual = {"policy": "top-two", "threshold": None, "epsilon": 0.0, "delta": 0.05, "direction": "maximize"} | options
    return Settings.checked(
        arms=[str(a) for a in range(arms)], family="gaussian(variance=1)" if family == "gaussian" else family,
        costs=costs, max_cost=None, max_pulls=None, lease=1.0, on_lapse="offer", seed=0, **usual,
    )  # fmt: skip


def truth_of(family: str, means: Any, costs: Any) -> Truths:
    law = {"law": "beta", "sd": 0.2} if family == "bounded" else {}
    instance = Instance("gaussian" if family == "gaussian" else family, means, costs, **law)
    draw = LAWS["beta"].draw if law else instance.drawing
    row = [np.array([each]) for each in (instance.means, instance.spreads, instance.costs)]
    return Truths(*row, np.ones((1, len(means))), draw)


def held_out(family: str, pulls: int, seed: int, **options: Any) -> tuple[Forecast, float] | None:
    """The forecast of a study after so many pulls, and what it paid from there on; None if it was over before."""
    rng = np.random.default_rng(seed)
    arms = int(rng.integers(2, 5))
    means, costs = PRIORS[family](rng, arms), np.exp(rng.uniform(-1.5, 1.5, arms))
    settings, truth = settings_of(family, arms, costs.tolist(), **options), truth_of(family, means, costs)
    play = Play(settings)
    runs = Continuations(play.setup, play.arms, play.run, truth, seed=seed)
    runs.carry_on(np.zeros(1, np.int64), pulls, MOST, np.inf)
    if runs.over[0] or pulls < arms:
        return None
    play.told_view.arms = runs.arms[0].view(play.setup.layout.arm).copy()
    play.told_view.run = runs.runs[:1].view(play.setup.layout.run).copy()[0]
    data = play.arms
    if "squares" in (data.dtype.names or ()):
        play.state.squares = data["squares"] - 2 * data["first"] * data["rewards"] + data["pulls"] * data["first"] ** 2
    found = forecast_of(play.state)
    assert found is not None
    before = float(runs.paid[0])
    runs.stretch = 1
    runs.carry_on(np.zeros(1, np.int64), MOST, MOST, np.inf)
    paid = float(runs.paid[0]) - before
    assert runs.over[0] or paid > found.high  # a near tie: then it is clear that the range did not hold
    return found, paid
