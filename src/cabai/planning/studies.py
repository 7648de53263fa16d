"""Studies without items, simulated on truths drawn from what is known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from cabai.planning.answers import DELTAS, Subject
from cabai.planning.bills import Bills
from cabai.planning.priors import Prior, all_drawn, priors_of
from cabai.planning.sources import Pilot
from cabai.planning.truths import Truths, posterior
from cabai.simulation.engines import Engine
from cabai.simulation.parallel import simulate_each
from cabai.study.create import described, settings_of
from cabai.study.settings import Settings
from cabai.support.validation import InvalidInput, positive
from cabai.thresholds import threshold_of

EFFORT = 250_000_000  # pulls that may be simulated for the bill, and a quarter of that for each other number
SEARCHED = 150  # of the truths, which are used for searches
FIRST = 10_000  # pulls after which a study is first cut
MEANS, COSTS, SDS = range(3)  # streams of random numbers; pilots have another
GROWTH = 8  # the factor by which those that were cut are extended


class Studies(Subject):
    def __init__(
        self, settings: Settings, truths: Truths, words: list[tuple[str, str]], notes: list[str], *, usual: bool
    ) -> None:
        self.settings, self.truths, self.words, self.notes = settings, truths, words, notes
        self.usual = usual  # whether the threshold is the default, which depends on epsilon
        self.best = (np.bincount(truths.best, minlength=len(settings.arms)) / len(truths)).tolist()
        within = f", epsilon {settings.epsilon:g}" if settings.epsilon else ""
        self.about = (
            f"{settings.family}, {settings.direction}, {len(settings.arms)} arms, delta {settings.delta:g}{within}, "
            f"policy {settings.policy}, threshold {settings.threshold}"
        )
        self.facts = {"truths": truths}
        # fewer if the test computes something for every reward
        self.effort = EFFORT // 10 if "keep" in dict(settings.setup().binding) else EFFORT

    def on(self, engine: Engine, seed: int) -> Studies:
        """Where they are simulated, and from which seed."""
        self.engine, self.seed = engine, seed
        return self

    def bills(
        self, *, epsilon: float | None = None, gap: float | None = None, delta: float | None = None,
        without: int | None = None, limit: float = math.inf, searching: bool = True,
    ) -> Bills:  # fmt: skip
        settings, truths = self.settings, self.truths.first(SEARCHED) if searching else self.truths
        if epsilon is not None:
            settings = replace(settings, epsilon=settings.family.check_epsilon(epsilon))
            if self.usual and epsilon:
                settings = replace(settings, threshold=threshold_of(None, settings.family))
        if delta is not None:
            settings = replace(settings, delta=delta)
        if without is not None:
            arms = settings.arms[:without] + settings.arms[without + 1 :]
            settings, truths = replace(settings, arms=arms, costs=None, metadata={}), truths.without(without)
        if gap is not None:
            truths = truths.with_gap(gap)
        return self.simulated(settings, truths, [settings.delta], limit, self.effort // (4 if searching else 1))[0]

    def by_delta(self, limit: float) -> list[Bills] | None:
        if self.settings.policy.depends_on_delta:
            return None
        return self.simulated(self.settings, self.truths.first(SEARCHED), DELTAS, limit, self.effort // 4)

    def simulated(
        self, settings: Settings, truths: Truths, deltas: Sequence[float], max_cost: float, effort: int
    ) -> list[Bills]:
        """What studies with these settings pay on each of the truths, for each delta, the largest first.

        Each is cut once it has paid `max_cost`, or after a number of pulls that grows for those that are left as long
        as no more than `effort` pulls are simulated in all. So a truth that is nearly tied does not delay the others,
        and the result depends only on the seed.
        """
        setups = [settings.setup(delta) for delta in deltas]
        limits = [each for each in (settings.max_pulls, settings.certified_pulls) if each is not None]
        last = max(min(limits), len(settings.arms)) if limits else 2**62
        instances, best = truths.instances(), truths.goodness.max(axis=1)
        good = truths.goodness >= best[:, None] - settings.epsilon - 1e-12 * np.maximum(1, abs(best))[:, None]
        shape = (len(truths), len(setups))
        costs, decisions, is_cut = np.empty(shape), np.empty(shape, np.int64), np.zeros(shape, bool)
        left, most, used = np.arange(len(truths)), min(max(FIRST, len(settings.arms)), last), 0
        while True:
            found = simulate_each(
                [instances[i] for i in left], setups, numbers=left, seed=self.seed, max_pulls=most,
                max_cost=max_cost, engine=self.engine, negated=truths.negated,
            )  # fmt: skip
            costs[left], decisions[left] = found.costs, found.decisions
            unfinished = found.decisions < 0
            is_cut[left] = unfinished & (most < last)
            used += int(found.steps[:, -1].sum())
            paid_all = found.costs[:, -1] >= max_cost
            is_cut[left[paid_all]] = unfinished[paid_all]
            left = left[unfinished[:, -1] & ~paid_all]
            more = min(GROWTH * most, (effort - used) // max(1, len(left)), last)
            if not len(left) or most >= last or more < 2 * most:
                break
            most = more
        decided = decisions >= 0
        wrong = decided & ~np.take_along_axis(good, np.maximum(decisions, 0), axis=1)
        return [Bills(costs[:, j], decided[:, j], wrong[:, j], is_cut[:, j]) for j in range(len(setups))]

    def scale(self, of: str) -> float:
        """How far apart means are, roughly."""
        truths = self.truths.first(SEARCHED)
        middle = float(np.median(truths.gaps))
        wide = float(np.median(np.ptp(truths.means, axis=1)))
        near = abs(float(np.median(truths.means)))
        return middle or wide or 0.1 * near or 0.1

    def largest(self, of: str) -> float:
        low, high = self.settings.family.mean_range
        most = self.truths.first(SEARCHED).largest_gap if of == "gap" else 0.999 * (high - low)
        far = 1e6 * self.scale(of) if of == "gap" else math.inf
        return most if most < far else 1e3 * self.scale(of)

    def limit(self, bills: Bills) -> float:
        """What nine of ten studies do not exceed, as far as that is known."""
        known = bills.costs[bills.cut]
        return min(bills.quantile(0.9).value, float(known.min()) if len(known) else math.inf)


def studies_of(
    given: dict[str, Any], pilot: Pilot | None, *, means: Any, costs: Any, arms: Any, cost_model: str, law: str | None,
    sd: Any, pays_reward: bool, draws: int, seed: int,
) -> Studies:  # fmt: skip
    """Studies with these settings, on truths drawn from what is known of each arm."""
    if "max_pulls" in given and given["max_pulls"] is None:
        del given["max_pulls"]
    if means is None and pilot is None:
        raise InvalidInput(
            "a plan needs what is known of each arm's mean: means=[...] (--means 0.02..0.03,0.01..0.02), a pilot's "
            "table, or a stored study."
        )
    names = arms if arms is not None else given.get("arms", None if pilot is None else pilot.arms)
    of_means = None if means is None else priors_of(means, "means", names)
    if names is None:
        names = [str(a + 1) for a in range(len(of_means or ()))]
    declared = given.get("costs")
    settings = settings_of_study(given | {"arms": list(names)})
    names = settings.arms
    of_costs = None
    if costs is not None or declared is not None:
        of_costs = priors_of(costs if costs is not None else settings.costs, "costs", names)
    of_sd = None if sd is None else priors_of(sd, "sd", names, one_for_all=True)
    truths, words = drawn_truths(
        settings, pilot, of_means, of_costs, draws=draws, seed=seed, cost_model=cost_model, law=law, sds=of_sd
    )
    notes, has_costs = [], of_costs is not None or (pilot is not None and pilot.costs is not None)
    if not has_costs and pays_reward:
        truths, words = replace(truths, costs=truths.means), [(mean, "its time") for mean, _ in words]
    elif not has_costs:
        notes.append("No costs were given, so each pull costs 1: the bill is the number of pulls.")
    if settings.family.key == "bounded" and pilot is None and law is None:
        notes.append(
            "The spread of rewards was not given (--law, --sd): two-point rewards, the widest and most expensive, are "
            "assumed."
        )
    return Studies(settings, truths, words, notes, usual=given.get("threshold") is None)


def settings_of_study(given: dict[str, Any]) -> Settings:
    """The settings that `create_study` would make of these."""
    usual: dict[str, Any] = {"race": None, "failed": None, "speculate": None, "epsilon": 0.0}
    known = {key: value for key, value in given.items() if key not in ("race", "failed", "speculate")}
    checked, _ = described(**usual | {"family": None, "items": None} | known)
    return replace(settings_of(checked), max_cost=None)


def drawn_truths(
    settings: Settings, pilot: Pilot | None, means: list[Prior] | None, costs: list[Prior] | None, *, draws: int,
    seed: int, cost_model: str, law: str | None, sds: list[Prior] | None,
) -> tuple[Truths, list[tuple[str, str]]]:  # fmt: skip
    """The truths, and what was assumed about each arm's mean and cost, in words."""
    family, minimize, K = settings.family, settings.direction == "minimize", len(settings.arms)
    is_unknown = family.key == "symmetric"
    if is_unknown and sds is None and pilot is None:
        raise InvalidInput("a plan needs to know how much rewards vary: give their standard deviation, sd (--sd).")
    if (law is not None or (sds is not None and not is_unknown)) and family.key != "bounded":
        raise InvalidInput(f"law and sd are only for bounded rewards, which can follow any law; got family {family}.")
    if sds is not None and law is None and not is_unknown:
        raise InvalidInput("sd needs a law: give one of uniform, two-point or beta too.")
    paid = None if costs is None else all_drawn(costs, "costs", positive, draws, [seed, COSTS])
    in_words = ["1"] * K if costs is None else [each.text for each in costs]
    if means is not None:

        def check(mean: float, name: str) -> float:
            return family.check_size(family.check_mean(mean, name), name)

        drawn = all_drawn(means, "means", check, draws, [seed, MEANS])
        spread = None if sds is None else all_drawn(sds, "sd", not_negative, draws, [seed, SDS])
        ones = np.ones_like(drawn)
        truths = Truths(family, minimize, drawn, ones if paid is None else paid, cost_model, law, spread)
        return truths, [(mean.text, cost) for mean, cost in zip(means, in_words, strict=True)]
    assert pilot is not None
    if law is not None or sds is not None:
        raise InvalidInput("a pilot's rewards already show their spread: leave out law and sd.")
    found = pilot.of(settings.arms)
    truths = posterior(found, family, draws=draws, seed=seed, minimize=minimize, cost_model=cost_model, costs=paid)
    if costs is None and found.costs is not None:
        in_words = [f"{each.mean():.4g}" for each in found.costs]
    return truths, [(found.in_words(a), in_words[a]) for a in range(K)]


def not_negative(value: float, name: str) -> float:
    if value < 0:
        raise InvalidInput(f"{name} must not be negative, got {value!r}.")
    return value
