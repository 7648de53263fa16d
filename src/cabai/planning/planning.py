"""Plan before paying: what a study will cost, and what a budget can conclude."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cabai.core.goal import BEST
from cabai.datasets.reading import read_logs, read_table
from cabai.families import Family
from cabai.planning.answers import Progress, answered
from cabai.planning.races import SimulatedRaces
from cabai.planning.results import Plan
from cabai.planning.studies import SimulatedStudies
from cabai.planning.truths import Pilot, pilot_in, pilot_of
from cabai.policies import Policy
from cabai.simulation.engines import EngineLike, opened
from cabai.study.settings import Settings
from cabai.support.validation import InvalidInput, positive, probability, shown, whole
from cabai.thresholds import Threshold

CURVES = ("gap", "epsilon")


def plan(
    source: Any = None,
    *,
    means: Any = None,
    costs: Any = None,
    family: str | Family | None = None,
    arms: Sequence[str] | None = None,
    budget: float | None = None,
    delta: float | None = None,
    epsilon: float | None = None,
    chance: float = 0.8,
    policy: str | Policy | None = None,
    threshold: str | Threshold | None = None,
    direction: str | None = None,
    pilot: Any = None,
    items: int | None = None,
    race: str | None = None,
    scorer: str | None = None,
    cost_model: str = "fixed",
    law: str | None = None,
    sd: Any = None,
    curve: str | bool = False,
    worth: bool = True,
    draws: int = 500,
    seed: int = 0,
    workers: int | None = None,
    engine: EngineLike = None,
    address: str | None = None,
    progress: Progress | None = None,
) -> Plan:
    """Simulate a study before you pay: what it will cost, what a budget can conclude, and what would be enough.

    `means` and `costs` say what you know of each arm: a number; a range `"0.02..0.03"` or `(0.02, 0.03)`, in which all
    values are equally likely; a distribution `"beta(3, 97)"`, `"normal(1, 0.2)"`, `"lognormal(0.05, 0.5)"` (median,
    sigma) or `"gamma(2, 0.01)"` (shape, scale); or a distribution of SciPy. Without costs, each pull costs 1. Each of
    `draws` simulated studies has a truth of its own, drawn from that, and runs with the policy, test and defaults of
    `create_study`.

    `source` may be a `study.toml` with arms and settings; a pilot's table with the columns arm, reward and cost, from
    which plausible truths are drawn; or a study (`cabai.load_study`), with its settings and its data. With both a file
    and a pilot, give `pilot=`. A table of scores on items, or `items` with one, plans a race on a dataset of that many
    items (`cabai.evaluate`); logs of Inspect or lm-evaluation-harness are such a table (`scorer` names the score).

    With a `budget`, the plan gives the chance to decide within it, and what it is enough for at the wanted `chance`:
    the smallest epsilon, delta and gap (the best arm ahead of the next by that much, the others as given), if you left
    these out. Without a budget, it gives the budget that is enough. With `worth`, it gives what each arm adds to the
    mean bill. `curve` is "gap" or "epsilon": what studies pay at several of them; True is gap, or epsilon for a race.
    All numbers are from the same truths and rewards. `workers`, `engine` and `address` are those of `simulate`.

    >>> plan(family="bernoulli", means=["0.7..0.9", "0.4..0.6"], costs=[1, 0.5], budget=60, draws=200)
    bernoulli, maximize, 2 arms, delta 0.05, policy top-two, threshold contrast
    arm  mean      cost  is best
    1    0.7..0.9  1       100 %
    2    0.4..0.6  0.5       0 %
    The bill: median 55.5, mean at least 89.2; 90 % pay at most 204; 99 % pay at most 510.
    Chance of a decision within 60: 52 ± 4 %.
    Budget for a chance of 80 %: 128.
    Or, with a budget of 60 and that chance:
      an arm within 0.124 of the best (epsilon): chance 82 ± 3 %
      a best arm ahead of the next by 0.366 (gap), others as given: chance 80 ± 3 %
      a decision that is wrong with probability at most 0.3 (delta): chance 81 ± 3 %
    From 200 simulated studies, 1 of them cut short before a decision; ± is a standard error, seed 0.
    """
    if not isinstance(curve, bool) and curve not in CURVES:
        raise InvalidInput(f"curve must be one of {', '.join(CURVES)}, got {shown(curve)}.")
    whole(draws, "draws", 20)
    whole(seed, "seed", 0)
    probability(chance, "chance")
    given, data, pays_reward = source_of(source, pilot, with_items=items is not None, scorer=scorer)
    explicit = {
        "family": family, "delta": delta, "epsilon": epsilon, "policy": policy, "threshold": threshold,
        "direction": direction, "items": items, "race": race,
    }  # fmt: skip
    given |= {name: value for name, value in explicit.items() if value is not None}
    most = budget if budget is not None else given.pop("max_cost", None)
    rest: dict[str, Any] = {
        "budget": None if most is None else positive(most, "budget"), "chance": chance, "worth": worth, "seed": seed,
        "left_out": [name for name in ("epsilon", "delta") if explicit[name] is None], "progress": progress,
    }  # fmt: skip
    if "items" in given or (data is not None and not isinstance(data, Pilot)):
        if means is not None or sd is not None or law is not None:
            raise InvalidInput("a race on a dataset is planned from a table of scores: leave out means, law and sd.")
        if engine is not None:
            raise InvalidInput("a race on a dataset is planned in threads: leave out the engine.")
        if curve == "gap":
            raise InvalidInput("on a dataset the gap is given by the pilot's scores: curve must be 'epsilon'.")
        races = SimulatedRaces(data, given, arms=arms, costs=costs, draws=draws, seed=seed, workers=workers)
        return answered(races, curve="epsilon" if curve else None, **rest)
    studies = SimulatedStudies(
        given, data, means=means, costs=costs, arms=arms, cost_model=cost_model, law=law, sd=sd,
        pays_reward=pays_reward, draws=draws, seed=seed,
    )  # fmt: skip
    with opened(engine, workers=workers, address=address) as studies.engine:
        return answered(studies, curve="gap" if curve is True else curve or None, **rest)


def source_of(
    source: Any, pilot: Any, *, with_items: bool, scorer: str | None = None
) -> tuple[dict[str, Any], Any, bool]:
    """What a source says of a study's settings; the pilot, of rewards or, for a race, a table of scores; and whether a
    pull costs what it returns: the time it takes."""
    given, goal, pays_reward = dict[str, Any](), BEST, False
    if isinstance(source, (str, Path)) and str(source).lower().endswith(".toml"):
        from cabai.study.run.recipe import read_recipe

        recipe = read_recipe(source)
        if str(recipe.folder) not in sys.path:  # for a user's own family, threshold or policy
            sys.path.insert(0, str(recipe.folder))
        given = dict(recipe.settings)
        goal = given.get("goal", BEST)
        pays_reward = recipe.measure.reward is not None and recipe.measure.cost == recipe.measure.reward
        if "items" in given:
            given["items"] = len(given["items"].items)
    elif hasattr(source, "settings") and hasattr(source, "observations"):
        settings: Settings = source.settings.imported()
        goal = settings.goal
        names = ["arms", "family", "delta", "epsilon", "direction", "max_cost", "max_pulls"]
        names += ["policy", "threshold", "costs"] if settings.items is None else []
        given = {name: getattr(settings, name) for name in names}
        here = [a for a, arm in enumerate(settings.arms) if arm not in settings.dropped]
        given |= {name: [given[name][a] for a in here] for name in ("arms", "costs") if given.get(name)}
        if settings.items is not None:
            given |= {"items": settings.items.count, "race": settings.items.race}
        if pilot is None:
            pilot = scores_of(source) if settings.items is not None else pilot_of(source.observations())
    elif source is not None:
        if pilot is not None:
            raise InvalidInput("give one table as the pilot, got two.")
        pilot = source
    if goal != BEST:
        raise InvalidInput(
            f"a plan is for finding the best arm, got goal {shown(goal)}: simulate it, with cabai simulate --goal "
            f"{goal}, or on scores that you have, with cabai replay --goal {goal}."
        )
    if isinstance(pilot, (str, Path)) or scorer is not None:
        logs = read_logs(pilot, scorer=scorer)
        pilot = pilot if logs is None else logs
    return given, pilot if "items" in given or with_items else pilot_in(pilot), pays_reward


def scores_of(study: Any) -> Any:
    """What a study with items knows of scores, and the mean cost of an evaluation of each arm."""
    paid = pilot_of(study.observations())
    costs = {arm: float(each.mean()) for arm, each in (paid.costs or {}).items() if len(each)}
    scores, (low, high) = study.scores(), study.settings.family.mean_range
    known = set(costs) == set(scores) and sum(costs.values()) > 0
    return read_table(scores, costs=costs if known else None, low=low, high=high)
