"""What a study with items will still cost: a range, from the known scores.

The missing scores are filled in a few hundred times, and the race is continued with its own test. A missing item is a
copy of an item that all arms in play have finished, so that arms stay as correlated as they are. Their means are drawn
from what is known (`posterior`), and the scores are stretched to have these means.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cabai.core.goal import CHEAPEST
from cabai.core.kernels import compiling
from cabai.datasets.board import Board
from cabai.datasets.race import CHAMPION, RACES
from cabai.planning.posterior import draws, scale_of
from cabai.study.show.status import SHARE, Forecast
from cabai.study.state.race import RaceState
from cabai.support.interruptible import interruptible

COUNT, FEWEST = 200, 40  # continuations
STEPS = 20_000_000  # pairs of arms on an item, in all continuations
LARGEST = 200_000  # scores of a dataset: copying more of them for a forecast would slow a status down
CLOSE = 0.15  # how far apart the arms of a race are, before there are data: see `posterior`
LEAST = 8  # items that all arms in play have finished: fewer are not enough


@dataclass(frozen=True)
class RaceNow:
    """A race at one moment."""

    name: str
    board: Board
    prices: NDArray[np.float64]
    bill: float
    max_cost: float | None
    seed: int
    told: int  # scores
    in_play: NDArray[np.bool_]

    @classmethod
    def of(cls, state: RaceState) -> RaceNow | None:
        """A copy; None if that would take long, or an arm's price is not known."""
        race, prices = state.race, state.paid_costs()
        if (
            race.name not in (*RACES, CHEAPEST)
            or race.scores.size > LARGEST
            or not np.isfinite(prices).all()
            or race.told == 0
        ):
            return None
        board = copied(race.board)
        # With goal cheapest, an arm that is out may come back.
        in_play = state.in_play.copy() if race.name in RACES else np.ones(len(prices), np.bool_)
        return cls(
            race.name, board, prices, state.bill, state.settings.max_cost, state.settings.seed, race.told, in_play
        )


def forecast_of(state: RaceNow) -> Forecast | None:
    """Continue a race many times; None while too few items are finished, or if it would take long."""
    from cabai.datasets.replaying import compiled_race

    in_play, (arms, items) = state.in_play, state.board.shares.shape
    finished = int(state.board.prefix[in_play].min())
    pairs = arms * (1 if state.name == CHAMPION else arms)
    count = min(COUNT, STEPS // (pairs * max(items - finished, 1)))
    if finished < LEAST or count < FEWEST:
        return None
    rng = np.random.default_rng([state.seed % 2**32, state.told])
    with compiling:
        race = interruptible(lambda: compiled_race(state.name))
    order, rank = np.arange(items), np.arange(arms)
    costs = np.repeat(state.prices[:, None], items, axis=1)
    paid, means = np.empty(count), drawn_means(state, finished, count, rng)
    for i in range(count):
        board = copied(state.board)
        _, paid[i] = race(
            board,
            order,
            filled(state, finished, means[i], rng),
            costs,
            state.prices,
            rank,
            np.zeros(arms, np.int64),
            0.0,
        )
    chance = None
    if state.max_cost is not None:
        rest = max(state.max_cost - state.bill, 0.0)
        chance, paid = float((paid <= rest).mean()), np.minimum(paid, rest)
    low, median, high = (float(np.quantile(paid, q)) for q in ((1 - SHARE) / 2, 0.5, (1 + SHARE) / 2))
    return Forecast(low, median, high, chance)


def copied(board: Board) -> Board:
    return Board._make(each.copy() if isinstance(each, np.ndarray) else each for each in board)


def filled(state: RaceNow, finished: int, means: NDArray[np.float64], rng: np.random.Generator) -> NDArray[Any]:
    """The shares of all arms on all items: known ones; elsewhere those of a known item, stretched from 0 or from 1 so
    that arms in play have these means there and shares stay in [0, 1]."""
    shares, in_play = state.board.shares, state.in_play
    like = shares[:, rng.integers(0, finished, shares.shape[1])]
    for a, mean in zip(np.flatnonzero(in_play).tolist(), means.tolist(), strict=True):
        now = float(like[a].mean())
        if mean < now:
            like[a] *= mean / now
        elif now < 1:
            like[a] = 1 - (1 - like[a]) * ((1 - mean) / (1 - now))
    return np.where(np.isnan(shares), like, shares)


def drawn_means(state: RaceNow, finished: int, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Draws of the means of the arms in play, one row each. What an item changes for all arms alike does not matter;
    the rest of the variance says how well the means are known."""
    seen = state.board.shares[state.in_play, :finished]
    mean = seen.mean(axis=1)
    apart = seen - mean[:, None] - seen.mean(axis=0) + seen.mean()
    arms = len(seen)
    variance = (float((apart**2).sum()) + 0.25) / ((arms - 1) * (finished - 1) + 1)
    return draws(scale_of("gaussian", variance), np.full(arms, float(finished)), mean, count, rng, CLOSE).clip(0, 1)
