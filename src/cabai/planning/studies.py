"""The plan of a study without items."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cabai.planning.bills import Amount, Bills
from cabai.planning.pilots import Pilot, posterior
from cabai.planning.priors import Prior, prior_of, priors_of
from cabai.planning.questions import Question, scale_of
from cabai.planning.results import ArmPlan, Plan, Point
from cabai.planning.searching import Found
from cabai.planning.simulating import Lab, Progress, with_epsilon, without_arm
from cabai.planning.truths import Truths, costs_of, truths_of
from cabai.simulation.engines import EngineLike, opened
from cabai.study.create import described, settings_of
from cabai.study.settings import Settings
from cabai.support.validation import InvalidInput, shown
from cabai.thresholds import Calibrated

EFFORT = 250_000_000  # pulls that may be simulated for the bill, and a quarter of that for each other number
SEARCHED = 150  # of the truths, which are used for searches
BEYOND = 10.0  # budgets, up to which a bill is simulated
FACTORS = (0.5, 0.7, 1.0, 1.4, 2.0)  # of the curve's middle


def plan_study(
    given: dict[str, Any], pilot: Pilot | None, *, means: Any, costs: Any, arms: Any, cost_model: str, law: str | None,
    sd: Any, pays_reward: bool, budget: float | None, chance: float, left_out: list[str], worth: bool,
    curve: str | None, draws: int, seed: int, workers: int | None, engine: EngineLike, address: str | None,
    progress: Progress | None,
) -> Plan:  # fmt: skip
    """The plan of a study without items."""
    if "max_pulls" in given and given["max_pulls"] is None:
        del given["max_pulls"]
    if means is None and pilot is None:
        raise InvalidInput(
            "a plan needs what is known of each arm's mean: means=[...] (--means 0.02..0.03,0.01..0.02), a pilot's "
            "table, or a stored study."
        )
    of_means = None if means is None else listed(means, "means", names_in(given, arms))
    names = names_in(given, arms) or (
        pilot.arms if pilot is not None else tuple(str(a + 1) for a in range(len(of_means or ())))
    )
    declared = given.get("costs")
    settings = settings_of_study(given | {"arms": list(names)})
    names = settings.arms
    if of_means is not None and len(of_means) != len(names):
        raise InvalidInput(f"there are {len(names)} arms, got {len(of_means)} means: give one for each arm.")
    of_costs = None
    if costs is not None or declared is not None:
        of_costs = listed(costs if costs is not None else settings.costs, "costs", names)
        if len(of_costs) != len(names):
            raise InvalidInput(f"there are {len(names)} arms, got {len(of_costs)} costs: give one for each arm.")
    of_sd = None if sd is None else sd_priors(sd, names)
    truths, words = drawn_truths(
        settings, pilot, of_means, of_costs, draws=draws, seed=seed, cost_model=cost_model, law=law, sds=of_sd
    )
    has_costs = of_costs is not None or (pilot is not None and pilot.costs is not None)
    if pays_reward and not has_costs:
        truths, words = dataclasses.replace(truths, costs=truths.means), [(mean, "its time") for mean, _ in words]
    say = progress or (lambda _: None)
    with opened(engine, workers=workers, address=address) as place:
        lab = Lab(place, seed, effort_of(settings))
        say("simulating studies")
        bills = lab.bill(settings, truths, max_cost=math.inf if budget is None else BEYOND * budget)
        some = truths.first(SEARCHED)
        solved: dict[str, Found | None] = {"budget": budget_found(bills, chance)}
        if budget is not None:
            ask = Question(lab, settings, some, budget, chance, say)
            solved |= {
                "epsilon": ask.epsilon() if "epsilon" in left_out else None,
                "gap": ask.gap(),
                "delta": ask.delta() if "delta" in left_out else None,
            }
        points: list[Point] = []
        if curve is not None:
            points = curve_points(lab, settings, some, curve, solved.get(curve), budget, say)
        plans, limit = arm_plans(lab, settings, truths, bills, words, budget, worth, say)
    notes = []
    if not has_costs and not pays_reward:
        notes.append("No costs were given, so each pull costs 1: the bill is the number of pulls.")
    if settings.family.key == "bounded" and pilot is None and law is None:
        notes.append(
            "The spread of rewards was not given (--law, --sd): two-point rewards, the widest and most expensive, are "
            "assumed."
        )
    about = f"{settings.family}, {settings.direction}, {len(names)} arms, delta {settings.delta:g}"
    about += f", epsilon {settings.epsilon:g}" if settings.epsilon else ""
    return Plan(
        about=f"{about}, policy {settings.policy}, threshold {settings.threshold}",
        direction=settings.direction, delta=settings.delta, epsilon=settings.epsilon, arms=plans, bills=bills,
        given_budget=budget, wanted=chance, seed=seed, solved=solved, limit=limit, curve_of=curve, curve=points,
        notes=notes, truths=truths,
    )  # fmt: skip


def effort_of(settings: Settings) -> int:
    """How many pulls may be simulated: fewer if the test computes something for every reward."""
    return EFFORT // 10 if "keep" in dict(settings.setup().binding) else EFFORT


def settings_of_study(given: dict[str, Any]) -> Settings:
    """The settings that `create_study` would make of these."""
    usual: dict[str, Any] = {"race": None, "failed": None, "speculate": None, "epsilon": 0.0}
    known = {key: value for key, value in given.items() if key not in ("race", "failed", "speculate")}
    checked, _ = described(**usual | {"family": None, "items": None} | known)
    return dataclasses.replace(settings_of(checked), max_cost=None)


def names_in(given: Mapping[str, Any], arms: Any) -> tuple[str, ...] | None:
    """The names of the arms, where they were given."""
    found = arms if arms is not None else given.get("arms")
    return None if found is None else tuple(found)


def listed(given: Any, name: str, names: Sequence[str] | None) -> list[Prior]:
    """A prior for each arm, from a list, or a mapping by the arms' names."""
    if isinstance(given, Mapping):
        if names is None or set(given) != set(names):
            raise InvalidInput(f"{name} must name every arm once ({', '.join(names or ())}), got {shown(dict(given))}.")
        return [prior_of(given[arm], f"{name} of {arm}") for arm in names]
    return priors_of(given, name)


def sd_priors(sd: Any, names: Sequence[str]) -> list[Prior]:
    """One for each arm; a single one is for all."""
    several = isinstance(sd, (list, np.ndarray)) or (isinstance(sd, str) and "," in sd)
    found = priors_of(sd, "sd") if several else [prior_of(sd, "sd")]
    found = found * len(names) if len(found) == 1 else found
    if len(found) != len(names):
        raise InvalidInput(f"there are {len(names)} arms, got {len(found)} sd: give one for all, or one for each arm.")
    return found


def drawn_truths(
    settings: Settings, pilot: Pilot | None, means: list[Prior] | None, costs: list[Prior] | None, *, draws: int,
    seed: int, cost_model: str, law: str | None, sds: list[Prior] | None,
) -> tuple[Truths, list[tuple[str, str]]]:  # fmt: skip
    """The truths, and what was assumed about each arm's mean and cost, in words."""
    family, minimize, K = settings.family, settings.direction == "minimize", len(settings.arms)
    if (law is not None or sds is not None) and family.key != "bounded":
        raise InvalidInput(f"law and sd are only for bounded rewards, which can follow any law; got family {family}.")
    if sds is not None and law is None:
        raise InvalidInput("sd needs a law: give one of uniform, two-point or beta too.")
    if means is not None:
        ones = [prior_of(1, "cost")] * K
        truths = truths_of(
            family, means, costs or ones, draws=draws, seed=seed, minimize=minimize, cost_model=cost_model, law=law,
            sds=sds,
        )  # fmt: skip
        return truths, [(mean.text, cost.text) for mean, cost in zip(means, costs or ones, strict=True)]
    assert pilot is not None
    if law is not None or sds is not None:
        raise InvalidInput("a pilot's rewards already show their spread: leave out law and sd.")
    found, paid = pilot.of(settings.arms), None
    if costs is not None:
        paid = costs_of(costs, draws, seed)
    truths = posterior(found, family, draws=draws, seed=seed, minimize=minimize, cost_model=cost_model, costs=paid)
    words = []
    for a in range(K):
        cost = costs[a].text if costs is not None else "1"
        if costs is None and found.costs is not None:
            cost = f"{found.costs[a].mean():.4g}"
        words.append((found.in_words(a), cost))
    return truths, words


def budget_found(bills: Bills, chance: float) -> Found | None:
    """The budget that is enough; without a value if only a budget that is not enough is known. None: no budget is
    enough."""
    needed = bills.needed(chance)
    if needed is None:
        return None
    return Found(None if needed.at_least else needed.value, bills.chance(needed.value), needed.value)


def curve_points(
    lab: Lab, settings: Settings, truths: Truths, of: str, found: Found | None, budget: float | None, say: Progress
) -> list[Point]:
    """What studies pay at several gaps or epsilons around the one that was found, or around a typical gap."""
    middle = found.value if found is not None and found.value else scale_of(truths)
    most = (
        truths.largest_gap if of == "gap" else 0.999 * (settings.family.mean_range[1] - settings.family.mean_range[0])
    )
    points = []
    for factor in FACTORS:
        at = float(f"{factor * middle:.3g}")
        if at < most:
            say(f"the bill at {of} {at:g}")
            own = settings if of == "gap" else with_epsilon(settings, at)
            moved = truths.with_gap(at) if of == "gap" else truths
            limit = math.inf if budget is None else BEYOND * budget
            points.append(Point(at, lab.bill(own, moved, max_cost=limit, effort=lab.effort // 4)))
    return points


def arm_plans(
    lab: Lab, settings: Settings, truths: Truths, bills: Bills, words: list[tuple[str, str]], budget: float | None,
    worth: bool, say: Progress,
) -> tuple[list[ArmPlan], float]:  # fmt: skip
    """Each arm: how often it is the best, and what it adds to a bill of at most a limit: the budget or, without one,
    the bill that nine of ten studies do not exceed, as far as that is known."""
    best = np.bincount(truths.best, minlength=len(settings.arms)) / len(truths)
    if budget is not None:
        limit = budget
    else:
        known = bills.costs[bills.cut]
        limit = min(bills.quantile(0.9).value, float(known.min()) if len(known) else math.inf)
    can = worth and len(settings.arms) > 2 and not isinstance(settings.threshold, Calibrated)
    plans = []
    for a, name in enumerate(settings.arms):
        adds = without = None
        if can:
            say(f"what {name} adds")
            count = min(SEARCHED, len(truths))
            less = lab.bill(
                without_arm(settings, a), truths.first(count).without(a), max_cost=limit, effort=lab.effort // 4
            )
            adds = difference(bills, less, limit)
            without = less.chance(budget) if budget is not None else None
        plans.append(ArmPlan(name, *words[a], float(best[a]), adds, without))
    return plans, limit if can else math.inf


def difference(bills: Bills, less: Bills, limit: float) -> Amount | None:
    """What an arm adds, from the same truths with and without it; None where studies were cut below the limit."""
    count = len(less)
    if (bills.cut & (bills.costs < limit))[:count].any() or (less.cut & (less.costs < limit)).any():
        return None
    more = bills.up_to(limit)[:count] - less.up_to(limit)
    return Amount(float(more.mean()), float(more.std(ddof=1)) / math.sqrt(count))
