"""What a study will still cost: a range, from what is known about its arms. Only for display; no test depends on it.

A few hundred truths are drawn from what is known (`posterior`), and for each the study is continued from its current
state, with its policy and its test (`simulation.continuing`). The range leaves out a tenth of them on either side.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cabai.core.kernels import compiling
from cabai.core.state import Record
from cabai.families import Mirrored
from cabai.families.laws import LAWS
from cabai.families.slots import variance_at
from cabai.planning import race_forecast
from cabai.planning.posterior import draws, scale_of
from cabai.study.settings import FREE
from cabai.study.show.status import SHARE, Forecast
from cabai.study.state.sampled import SampledState
from cabai.support.interruptible import interruptible
from cabai.support.specialise import function_for

COUNT, FEWEST = 240, 40  # continuations; of a study that is long, the fewest
STEPS = 300_000  # pulls that may be simulated for a forecast
LEFT_OVER = 0.04  # share of continuations that need not be followed to their end
AGAIN = 0.05  # a forecast is used until the pulls have grown by this share
REST = 10.0  # and for this many times the time that it took


class Moment(NamedTuple):
    """A study at one moment, for a forecast: a copy of its state, which does not change."""

    state: Any
    pulls: int
    bill: float
    in_play: bytes  # which arms are


class Forecasts:
    """The forecasts of a study, made on request, and not again for every pull; shared by threads."""

    def __init__(self, *, items: bool) -> None:
        self.items = items
        self.make: Callable[[Any], Forecast | None] = race_forecast.forecast_of if items else forecast_of
        self.lock = threading.Lock()
        self.last: tuple[int, float, Any, Forecast | None] | None = None  # pulls, bill, arms in play; what was found
        self.due = 0.0
        self.at_work = threading.Lock()  # the thread that makes one in the background

    def moment(self, state: Any) -> Moment | None:
        """What a forecast needs of a state; None if there can be no forecast."""
        if state.ended is not None:
            return None
        if self.items:
            now = race_forecast.RaceNow.of(state)
            return None if now is None else Moment(now, now.told, now.bill, now.in_play.tobytes())
        run, arms = state.told_view.run, state.told_view.arms
        return Moment(state.trial(), int(run["t"]), state.bill, arms["in_play"].tobytes())

    def of(self, moment: Moment) -> Forecast | None:
        """The forecast from a state, or None where there is none."""
        with self.lock:
            if self.serves(moment):
                return self.known(moment)
            started = time.monotonic()
            try:
                found = self.make(moment.state)
            except Exception:  # a forecast is optional: the status must be shown without it
                found = None
            self.last = moment.pulls, moment.bill, moment.in_play, found
            self.due = time.monotonic() + REST * (time.monotonic() - started)
            return found

    def soon(self, moment: Moment) -> Forecast | None:
        """The last forecast, without delay, however old; if it is time for a newer one, it is made in the
        background."""
        if not self.serves(moment) and self.at_work.acquire(blocking=False):

            def work() -> None:
                try:
                    self.of(moment)
                finally:
                    self.at_work.release()

            threading.Thread(target=work, name="cabai forecasts", daemon=True).start()
        return self.known(moment)

    def serves(self, moment: Moment) -> bool:
        """Whether the last forecast is still good enough."""
        last = self.last
        if last is None or moment.in_play != last[2] or moment.pulls < last[0]:
            return False
        is_close = moment.pulls <= last[0] * (1 + AGAIN) or time.monotonic() < self.due
        return is_close and (last[3] is not None or moment.pulls == last[0])

    def known(self, moment: Moment) -> Forecast | None:
        """The last forecast, less what was paid since."""
        last = self.last
        return None if last is None or last[3] is None else last[3].after(moment.bill - last[1])


def forecast_of(state: SampledState, count: int = COUNT) -> Forecast | None:
    """Continue a study many times from its current state; None while an arm has returned no reward, and if arms have
    joined or were dropped by hand."""
    from cabai.simulation.continuing import Continuations

    settings = state.settings
    if not settings.is_present or not state.told_view.everything_pulled or settings.joined or settings.dropped:
        return None
    if settings.reserve is not None or settings.dropped:  # each arm has its own level, or some are out
        return None
    t = int(state.told_view.run["t"])
    count = max(min(count, STEPS // (2 * t)), FEWEST)
    rng = np.random.default_rng([settings.seed % 2**32, t])
    with np.errstate(all="ignore"):
        truths = truths_of(state, count, rng)
        level = float(state.rules_of(int(state.told_view.run["leader"]))["level"])
        runs = Continuations(state.setup, state.told_view.arms, state.told_view.run, truths, seed=t, level=level)
    with compiling:
        interruptible(runs.compiled)
    max_pulls, max_cost = limits(state)
    open_, left, more = np.arange(count), max(STEPS, count * t), max(64, t // 2)
    while len(open_) > LEFT_OVER * count and left > 0:
        more = min(more, max(left // len(open_), 1))
        left -= max(runs.carry_on(open_, more, max_pulls, max_cost), 1)
        open_ = np.flatnonzero(~runs.over & (runs.runs["t"] < max_pulls) & (runs.runs["spent"] < max_cost))
        more *= 2
    paid, decided = runs.paid.copy(), runs.over.copy()
    if len(open_):
        total = followed_up(state, truths, paid, open_, rng)
        made = runs.runs["t"][open_] - t
        most = paid[open_] / made * (max_pulls - t)  # what that many pulls cost, if they continue as before
        decided[open_] = (total < most) & (state.bill + total < max_cost)
        paid[open_] = np.minimum(total, most)
    paid = np.minimum(paid, max_cost - state.bill)
    low, median, high = (float(np.quantile(paid, q)) for q in ((1 - SHARE) / 2, 0.5, (1 + SHARE) / 2))
    has_budget = max_pulls < 2**62 or max_cost < math.inf
    return Forecast(low, median, high, float(decided.mean()) if has_budget else None)


def limits(state: SampledState) -> tuple[int, float]:
    """The number of pulls with a reward, and the bill, at which the study stops in any case."""
    settings, most = state.settings, 2**62
    for limit in (settings.max_pulls, settings.certified_pulls):
        if limit is not None:
            most = min(most, limit - int(state.accounts["failures"].sum() + state.accounts["discarded"].sum()))
    return max(most, int(state.told_view.run["t"])), math.inf if settings.max_cost is None else settings.max_cost


def followed_up(
    state: SampledState, truths: Any, paid: NDArray[np.float64], open_: NDArray[np.int64], rng: np.random.Generator
) -> NDArray[np.float64]:
    """What continuations that were cut short would pay in total, from how hard their truths are.

    What a study pays is roughly proportional to that. The factor comes from continuations that ended, with truths so
    easy that nearly all like them ended.
    """
    hard = hardness(state, truths)
    order = np.argsort(hard)
    is_open = np.isin(order, open_)
    kinds = np.flatnonzero(np.cumsum(is_open) <= 0.1 * np.arange(1, len(order) + 1))
    nats = float(state.rules["level"]) + 3.0
    ratios = np.full(8, 1.3 * nats)  # a typical value, in case too few have ended
    if len(kinds) and kinds[-1] >= 8:
        alike = order[: kinds[-1] + 1]
        alike = alike[len(alike) // 2 :]
        ratios = (state.bill + paid[alike]) / hard[alike]
    total = rng.choice(ratios, len(open_)) * hard[open_]
    return np.maximum(total - state.bill, paid[open_])


def hardness(state: SampledState, truths: Any) -> NDArray[np.float64]:
    """About what a nat of evidence costs: the sum over rivals of what one against the best arm alone would cost if
    rewards were gaussian, 2 (sqrt(c V) + sqrt(c' V'))^2/gap^2."""
    sign = -1.0 if truths.negated else 1.0
    means, variances = sign * truths.means, truths.variances
    rows, best = np.arange(len(means)), np.argmax(means, axis=1)
    effort = np.sqrt(truths.costs * variances)
    gaps = means[rows, best][:, None] - means + float(state.rules["epsilon"])
    each = 2 * (effort[rows, best][:, None] + effort) ** 2 / np.maximum(gaps, 1e-12) ** 2
    each[rows, best] = 0.0
    return np.asarray(each.sum(axis=1), np.float64)


def truths_of(state: SampledState, count: int, rng: np.random.Generator) -> Any:
    """Draws of the truth, for `Continuations`."""
    from cabai.simulation.continuing import Truths

    settings, arms = state.settings, state.told_view.arms
    family = settings.kernel_family
    inner, negated = (family.inner, True) if isinstance(family, Mirrored) else (family, False)
    n, mean = arms["pulls"].astype(np.float64), arms["mean"] * (-1.0 if negated else 1.0)
    paid = state.paid_costs()
    if not (np.isfinite(paid).all() and (paid > 0).any()):
        raise ValueError("costs are not known, or there are none")
    costs = np.tile(np.where(paid > 0, paid, FREE * paid[paid > 0].min()), (count, 1))
    if inner.key == "bounded":
        part = variance_part(state, n, mean)
        means = draws(scale_of("bernoulli", 1.0), n / part, mean, count, rng).clip(1e-9, 1 - 1e-9)
        spreads = np.maximum(1 / part.clip(0, 0.999) - 1, 1e-3) * np.ones_like(means)
        return Truths(means, spreads, costs, part * means * (1 - means), LAWS["beta"].draw, negated)
    means = draws(scale_of(inner.key, float(inner.parameters.get("variance", 1.0))), n, mean, count, rng)
    means = means.clip(*inner.limits)
    spreads = np.array([[inner.spread(each) for each in row] for row in means.tolist()])
    variance = function_for(variance_at, inner.binding)
    rules = Record(state.rules)
    variances = np.array([[variance(rules, each, 1.0 - each) for each in row] for row in means.tolist()])
    return Truths(means, spreads, costs, variances, inner.drawing(means.ravel()), negated)


def variance_part(state: SampledState, n: NDArray[np.float64], mean: NDArray[np.float64]) -> NDArray[np.float64]:
    """The variance of each arm's rewards, as a share of what rewards of 0 and 1 with its mean would have."""
    most = np.maximum(mean * (1 - mean), 1e-12)
    found = [state.variance(a) for a in range(len(n))]
    if any(each is None for each, pulls in zip(found, n, strict=True) if pulls > 1):
        return np.ones(len(n))  # not known
    own = np.array([0.0 if each is None else each for each in found])
    known = n * (n > 1)
    common = ((known * own).sum() + most.mean()) / ((known * most).sum() + most.mean())
    part: NDArray[np.float64] = (known * own + 4 * common * most) / ((known + 4) * most)
    return part.clip(1e-6, 1.0)
