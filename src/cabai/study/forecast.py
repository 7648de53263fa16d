"""What a study will still cost: a range, from what is known about its arms. Only for display; no test depends on it.

A few hundred truths are drawn from what is known (`posterior`), and for each the study is continued from its current
state, with its policy and its test (`simulation.continuing`). The range leaves out a tenth of them on either side.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cabai.core.state import Record
from cabai.families import Mirrored
from cabai.families.laws import LAWS
from cabai.families.slots import variance_at
from cabai.study.kernels import compiling
from cabai.study.play import Play
from cabai.study.posterior import draws, scale_of
from cabai.study.settings import FREE
from cabai.support.aside import aside
from cabai.support.specialise import function_for

SHARE = 0.8  # of continuations that lie within the range
COUNT, FEWEST = 240, 40  # continuations; of a study that is long, the fewest
STEPS = 300_000  # pulls that may be simulated for a forecast
LEFT_OVER = 0.04  # share of continuations that need not be followed to their end
AGAIN = 0.05  # a forecast is used until the pulls have grown by this share
REST = 10.0  # and for this many times the time that it took


@dataclass(frozen=True)
class Forecast:
    """What is still to be paid before the study stops: less than `low` with a chance of a tenth, more than `high` with
    a chance of a tenth. With a budget no more than its rest is paid, and `chance` is that of a decision within it."""

    low: float
    median: float
    high: float
    chance: float | None = None

    def __str__(self) -> str:
        """The end of a sentence that says what was spent."""
        if self.chance is not None and self.low >= 0.99 * self.high:
            much = f", {roughly(self.high)} more until the budget is used up"
        else:
            much = f", between {roughly(self.low)} and {roughly(self.high)} more ({100 * SHARE:.0f} %)"
        return (
            much if self.chance is None else f"{much}; chance of a decision within the budget: {percent(self.chance)}"
        )

    def after(self, paid: float) -> Forecast:
        """The same after some more has been paid."""
        low, median, high = (max(each - paid, 0.0) for each in (self.low, self.median, self.high))
        return Forecast(low, median, high, self.chance)


class Forecasts:
    """The forecasts of a study, made on request, and not again for every pull; shared by threads."""

    def __init__(self, make: Callable[[Any], Forecast | None] | None = None) -> None:
        self.make = make  # of a study with items
        self.lock = threading.Lock()
        self.last: tuple[int, float, Any, Forecast | None] | None = None  # pulls, bill, arms in play; what was found
        self.due = 0.0
        self.at_work = threading.Lock()  # the thread that makes one in the background

    def of(self, play: Any) -> Forecast | None:
        """The forecast from a state, or None where there is none."""
        with self.lock:
            pulls, bill, arms = int(play.run["t"]), play.bill, play.arms["in_play"].tobytes()
            if self.serves(play):
                return self.known(play)
            started = time.monotonic()
            try:
                found = (self.make or forecast_of)(play)
            except Exception:  # a forecast is optional: the status must be shown without it
                found = None
            self.last = pulls, bill, arms, found
            self.due = time.monotonic() + REST * (time.monotonic() - started)
            return found

    def soon(self, play: Any) -> Forecast | None:
        """The last forecast, without delay, however old; if it is time for a newer one, it is made in the
        background."""
        if not self.serves(play) and self.at_work.acquire(blocking=False):

            def work() -> None:
                try:
                    self.of(play)
                finally:
                    self.at_work.release()

            threading.Thread(target=work, name="cabai forecasts", daemon=True).start()
        return self.known(play)

    def serves(self, play: Any) -> bool:
        """Whether the last forecast is still good enough."""
        last = self.last
        if last is None or play.arms["in_play"].tobytes() != last[2] or play.run["t"] < last[0]:
            return False
        is_close = play.run["t"] <= last[0] * (1 + AGAIN) or time.monotonic() < self.due
        return is_close and (last[3] is not None or int(play.run["t"]) == last[0])

    def known(self, play: Any) -> Forecast | None:
        """The last forecast, less what was paid since."""
        last = self.last
        return None if last is None or last[3] is None else last[3].after(play.bill - last[1])


def forecast_of(play: Play, count: int = COUNT) -> Forecast | None:
    """Continue a study many times from its current state; None while an arm has returned no reward, and if arms have
    joined or were dropped by hand."""
    from cabai.simulation.continuing import Continuations

    settings = play.settings
    if not settings.is_present or not play.told.everything_pulled or settings.joined or settings.dropped:
        return None
    if settings.reserve is not None or settings.dropped:  # each arm has its own level, or some are out
        return None
    t = int(play.run["t"])
    count = max(min(count, STEPS // (2 * t)), FEWEST)
    rng = np.random.default_rng([settings.seed % 2**32, t])
    with np.errstate(all="ignore"):
        truths = truths_of(play, count, rng)
        level = float(play.rules_of(int(play.run["leader"]))["level"])
        runs = Continuations(play.setup, play.arms, play.run, truths, seed=t, level=level)
    with compiling:
        aside(runs.compiled)
    max_pulls, max_cost = limits(play)
    open_, left, more = np.arange(count), max(STEPS, count * t), max(64, t // 2)
    while len(open_) > LEFT_OVER * count and left > 0:
        more = min(more, max(left // len(open_), 1))
        left -= max(runs.carry_on(open_, more, max_pulls, max_cost), 1)
        open_ = np.flatnonzero(~runs.over & (runs.runs["t"] < max_pulls) & (runs.runs["spent"] < max_cost))
        more *= 2
    paid, decided = runs.paid.copy(), runs.over.copy()
    if len(open_):
        total = followed_up(play, truths, paid, open_, rng)
        made = runs.runs["t"][open_] - t
        most = paid[open_] / made * (max_pulls - t)  # what that many pulls cost, if they continue as before
        decided[open_] = (total < most) & (play.bill + total < max_cost)
        paid[open_] = np.minimum(total, most)
    paid = np.minimum(paid, max_cost - play.bill)
    low, median, high = (float(np.quantile(paid, q)) for q in ((1 - SHARE) / 2, 0.5, (1 + SHARE) / 2))
    has_budget = max_pulls < 2**62 or max_cost < math.inf
    return Forecast(low, median, high, float(decided.mean()) if has_budget else None)


def limits(play: Play) -> tuple[int, float]:
    """The number of pulls with a reward, and the bill, at which the study stops in any case."""
    settings, most = play.settings, 2**62
    for limit in (settings.max_pulls, settings.certified_pulls):
        if limit is not None:
            most = min(most, limit - int(play.failures.sum() + play.discarded.sum()))
    return max(most, int(play.run["t"])), math.inf if settings.max_cost is None else settings.max_cost


def followed_up(
    play: Play, truths: Any, paid: NDArray[np.float64], open_: NDArray[np.int64], rng: np.random.Generator
) -> NDArray[np.float64]:
    """What continuations that were cut short would pay in total, from how hard their truths are.

    What a study pays is roughly proportional to that. The factor comes from continuations that ended, with truths so
    easy that nearly all like them ended.
    """
    hard = hardness(play, truths)
    order = np.argsort(hard)
    is_open = np.isin(order, open_)
    kinds = np.flatnonzero(np.cumsum(is_open) <= 0.1 * np.arange(1, len(order) + 1))
    nats = float(play.rules["level"]) + 3.0
    ratios = np.full(8, 1.3 * nats)  # a typical value, in case too few have ended
    if len(kinds) and kinds[-1] >= 8:
        alike = order[: kinds[-1] + 1]
        alike = alike[len(alike) // 2 :]
        ratios = (play.bill + paid[alike]) / hard[alike]
    total = rng.choice(ratios, len(open_)) * hard[open_]
    return np.maximum(total - play.bill, paid[open_])


def hardness(play: Play, truths: Any) -> NDArray[np.float64]:
    """About what a nat of evidence costs: the sum over rivals of what one against the best arm alone would cost if
    rewards were gaussian, 2 (sqrt(c V) + sqrt(c' V'))^2/gap^2."""
    sign = -1.0 if truths.negated else 1.0
    means, variances = sign * truths.means, truths.variances
    rows, best = np.arange(len(means)), np.argmax(means, axis=1)
    effort = np.sqrt(truths.costs * variances)
    gaps = means[rows, best][:, None] - means + float(play.rules["epsilon"])
    each = 2 * (effort[rows, best][:, None] + effort) ** 2 / np.maximum(gaps, 1e-12) ** 2
    each[rows, best] = 0.0
    return np.asarray(each.sum(axis=1), np.float64)


def truths_of(play: Play, count: int, rng: np.random.Generator) -> Any:
    """Draws of the truth, for `Continuations`."""
    from cabai.simulation.continuing import Truths

    settings, arms = play.settings, play.arms
    family = settings.kernel_family
    inner, negated = (family.inner, True) if isinstance(family, Mirrored) else (family, False)
    n, mean = arms["pulls"].astype(np.float64), arms["mean"] * (-1.0 if negated else 1.0)
    paid = play.paid_costs()
    if not (np.isfinite(paid).all() and (paid > 0).any()):
        raise ValueError("costs are not known, or there are none")
    costs = np.tile(np.where(paid > 0, paid, FREE * paid[paid > 0].min()), (count, 1))
    if inner.key == "bounded":
        part = variance_part(play, n, mean)
        means = draws(scale_of("bernoulli", 1.0), n / part, mean, count, rng).clip(1e-9, 1 - 1e-9)
        spreads = np.maximum(1 / part.clip(0, 0.999) - 1, 1e-3) * np.ones_like(means)
        return Truths(means, spreads, costs, part * means * (1 - means), LAWS["beta"].draw, negated)
    means = draws(scale_of(inner.key, float(inner.parameters.get("variance", 1.0))), n, mean, count, rng)
    means = means.clip(*inner.limits)
    spreads = np.array([[inner.spread(each) for each in row] for row in means.tolist()])
    variance = function_for(variance_at, inner.binding)
    rules = Record(play.rules)
    variances = np.array([[variance(rules, each, 1.0 - each) for each in row] for row in means.tolist()])
    return Truths(means, spreads, costs, variances, inner.drawing(means.ravel()), negated)


def variance_part(play: Play, n: NDArray[np.float64], mean: NDArray[np.float64]) -> NDArray[np.float64]:
    """The variance of each arm's rewards, as a share of what rewards of 0 and 1 with its mean would have."""
    most = np.maximum(mean * (1 - mean), 1e-12)
    found = [play.variance(a) for a in range(len(n))]
    if any(each is None for each, pulls in zip(found, n, strict=True) if pulls > 1):
        return np.ones(len(n))  # not known
    own = np.array([0.0 if each is None else each for each in found])
    known = n * (n > 1)
    common = ((known * own).sum() + most.mean()) / ((known * most).sum() + most.mean())
    part: NDArray[np.float64] = (known * own + 4 * common * most) / ((known + 4) * most)
    return part.clip(1e-6, 1.0)


def roughly(cost: float) -> str:
    """Three digits, without an exponent: 3300, not 3.3e+03."""
    return f"{float(f'{cost:.3g}'):g}"


def percent(chance: float) -> str:
    """A chance estimated by simulation is never shown as 0 % or 100 %."""
    return "less than 1 %" if chance < 0.01 else "more than 99 %" if chance > 0.99 else f"{100 * chance:.0f} %"
