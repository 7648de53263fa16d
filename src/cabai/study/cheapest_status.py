"""What a status says about the cheapest arm that is good enough."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cabai.study.forecast import roughly
from cabai.study.settings import Settings

if TYPE_CHECKING:
    from cabai.study.books import Books
    from cabai.study.items_play import ItemsPlay
    from cabai.study.play import Play
    from cabai.study.status import ArmStatus, Status


def of_arm(play: Play, a: int) -> dict[str, Any]:
    """What a status with goal cheapest adds about an arm."""
    if play.settings.cheapest is None:
        return {}
    return {"running_cost": running_cost(play, a), "excluded": bool(play.ordered.arms[a]["excluded"])}


def of_racer(play: ItemsPlay, a: int) -> dict[str, Any]:
    """The same for an arm in a study with items."""
    if play.settings.cheapest is None:
        return {}
    return {"running_cost": running_cost(play, a), "excluded": bool(play.race.board.out[a])}


def running_cost(play: Books, a: int) -> float | None:
    """What an arm costs to run; once the study has stopped, what it cost then, since the decision is based on that."""
    if play.costs_at_stop is not None:
        return play.costs_at_stop[a]
    known = play.running_costs[a]
    return known if math.isfinite(known) else None


def best(status: Status, number: str) -> str:
    """What the decision is about: the arm decided for or, before that, the likely answer; `number` is that of arms."""
    of = ""
    if status.items is not None:
        of = f" of these {number} on these {status.items} items"
    assert status.slack is not None
    cheap = {arm.name: math.inf if arm.running_cost is None else arm.running_cost for arm in status.arms}
    answer = status.decision or status.leader
    if answer is not None and cheap[answer] == min(cheap.values()):
        return f"is within {status.epsilon:g} of the best{of}, and no arm is cheaper"
    margin = max(status.epsilon - status.slack, 0.0)
    worse = f"more than {margin:.6g} worse than the best" if margin else "worse than the best"
    return f"is within {status.epsilon:g} of the best{of}, and every cheaper arm is {worse}"


def with_standing(settings: Settings, arms: list[ArmStatus], decision: int | None) -> list[ArmStatus]:
    """The arms with their standing, with goal cheapest."""
    if settings.cheapest is None:
        return arms
    found = []
    for a, each in enumerate(arms):
        arm = replace(each, share=None)  # evidence is about pairs, and an arm is in several
        if a == decision:
            found.append(replace(arm, standing="the cheapest shown to be good enough: decided"))
        else:
            found.append(replace(arm, standing="out: too bad to be the answer") if arm.excluded else arm)
    return found


def sentence(status: Status) -> str:
    """The status of an undecided study, in a sentence."""
    rest = "" if status.forecast is None else str(status.forecast)
    if status.items is not None:
        rest = "" if status.at_most is None else f", at most about {roughly(status.at_most)} more"
    return (
        f"{status.leader} is the likely answer; evidence that {status.claim}: {status.evidence or 0.0:.2f} of "
        f"{status.required or 0.0:.2f} nats. {status.spent:.6g} spent{rest}."
    )
