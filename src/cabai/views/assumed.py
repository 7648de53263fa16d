"""The question of a study and the assumptions behind its guarantee, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cabai.views.words import moment, money, number

if TYPE_CHECKING:
    from cabai.study.show.status import Status

REWARDS = {
    "gaussian(variance=unknown)": "The rewards of each arm are distributed symmetrically about their mean.",
    "gaussian": "Rewards are gaussian or sub-gaussian, with at most the declared variance.",
    "bernoulli": "Rewards are 0 or 1.",
    "bounded": "Rewards lie in the declared range. Nothing else is assumed about their distribution.",
    "poisson": "Rewards are counts with a Poisson distribution.",
    "exponential": "Rewards are waiting times with an exponential distribution.",
}


def question(status: Status) -> str:
    best = "largest" if status.direction == "maximize" else "smallest"
    what = f"Which of {len(status.arms)} arms has the {best} mean reward"
    if status.items is not None:
        what = f"Which of {len(status.arms)} arms has the {best} mean score on these {status.items:,} items"
    if status.goal != "best":
        where = "" if status.items is None else f" on these {status.items:,} items"
        return (
            f"Which of {len(status.arms)} arms is the cheapest to run among those whose mean{where} is within "
            f"{status.epsilon:g} of the {best}, wrong with probability at most {status.delta:g}, for the smallest bill?"
        )
    is_asked = status.epsilon and status.reason != "accepted"  # else it is what was accepted
    good = f", or a mean within {status.epsilon:g} of it" if is_asked else ""
    return f"{what}{good}, wrong with probability at most {status.delta:g}, for the smallest bill?"


def assumptions(status: Status) -> list[str]:
    """What must be true for the guarantee to hold."""
    if status.items is not None:
        return [
            "An arm has one score on each item, whenever it is evaluated. Nothing else is assumed about the scores.",
            "The items are exactly these. They are evaluated in a random order, given by the study's seed.",
        ]
    family = status.family.split("(")[0].rsplit(":", 1)[-1]
    found = [
        "Pulls do not influence each other, and an arm's mean does not change while the study runs.",
        REWARDS.get(status.family) or REWARDS.get(family, f"Rewards follow the family {status.family}."),
        "Whether a pull fails or is lost does not depend on the reward it would have returned.",
    ]
    if status.imported:
        found.append(
            "What was imported is complete, was measured in the same way, and was not used to choose arms or settings."
        )
    if not status.proven:
        found.append(f"The threshold {status.threshold} is not proven for this family.")
    return found


def asked(status: Status, settings: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The settings as rows of a table; `settings` has those that are not in the status."""
    rows = [
        ("arms", ", ".join(arm.name for arm in status.arms)),
        ("rewards", f"{status.family}, to {status.direction}"),
        ("delta", number(status.delta)),
        ("epsilon, accepted" if status.reason == "accepted" else "epsilon", number(status.epsilon)),
        ("test", status.threshold if status.items is None else f"{status.threshold} race on {status.items:,} items"),
        ("policy", status.policy),
        *([("running costs", ", ".join(money(arm.running_cost) or "not known yet" for arm in status.arms))]
          if status.goal != "best" else []),
        *([("slack", number(status.slack))] if status.slack is not None else []),
        *([("share of delta in reserve", number(status.reserve))] if status.reserve else []),
        *([("arms added later", ", ".join(status.joined))] if status.joined else []),
        *([("arms dropped by hand", ", ".join(status.dropped))] if status.dropped else []),
        *([("imported observations", f"{status.imported:,}")] if status.imported else []),
        *([("settings amended", f"{status.amended} times")] if status.amended else []),
        ("budget", "no limit" if status.max_cost is None else money(status.max_cost)),
        ("pull limit", "no limit" if status.max_pulls is None else f"{status.max_pulls:,}"),
        *((name, str(value)) for name, value in settings.items() if value is not None),
        ("started", moment(status.created)),
        ("ended", moment(status.ended) or "still running"),
    ]  # fmt: skip
    return rows
