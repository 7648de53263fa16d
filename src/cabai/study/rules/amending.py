"""A study's settings, changed while it runs.

No test depends on a budget, a lease or metadata, and each holds for all epsilons at once. Arms that join or are dropped
by hand raise the required level: see `levels`, and docs/theory/amending.md for the proofs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from cabai.core.goal import BEST, checked_costs
from cabai.study.current import Transaction
from cabai.study.log.events import ACCEPTED, AMEND, BY_HAND, CERTIFICATE, DECISIONS, EVIDENCE, MAX_PULLS, STOP
from cabai.study.rules.telling import stop_at_limit
from cabai.study.settings import RUN, Settings, checked_arms
from cabai.support.validation import InvalidInput, check_names, shown
from cabai.thresholds import Calibrated

ENDED = {
    EVIDENCE: "has decided",
    ACCEPTED: "was decided by accepting what was proven",
    BY_HAND: "was stopped by hand",
    CERTIFICATE: "has reached the end of its threshold's certificate",
}
CHALLENGE = " Once it is decided, new arms can challenge its winner: cabai.evaluate(..., join=...)."


def amend(transaction: Transaction, *, by: str, **given: Any) -> None:
    """Change settings; a study that stopped at a limit continues if that limit is no longer reached."""
    before, ended = transaction.state.settings, transaction.state.ended
    certified, most = before.certified_pulls, given.get(MAX_PULLS, 0)
    if certified is not None and most > certified:
        why = f"the certificate of the threshold ends after {certified} pulls"
        raise InvalidInput(f"{why}: max_pulls can be at most {certified}, got {most}.")
    if "epsilon" in given:
        given["epsilon"] = raised(before, given["epsilon"])
    if "metadata" in given:
        check_names(given["metadata"], before.arms, "arm in metadata")
        both = before.metadata | given["metadata"]
        given["metadata"] = {arm: both[arm] for arm in before.arms if both.get(arm) is not None}
    changes = changed(before, given, again=by.endswith(RUN))  # what a run says is logged even if it was said before
    if changes and ended is not None and ended.words in ENDED and set(changes) != {"metadata"}:
        name, value = next((name, old) for name, (old, _) in changes.items() if name != "metadata")
        raise InvalidInput(
            f"study {transaction.row.name!r} {ENDED[ended.words]}: only its metadata can still be amended. Its {name} "
            f"stays {'unset' if value is None else value}."
        )
    add(transaction, changes, by)


def changed(before: Settings, after: Mapping[str, Any], *, again: bool = False) -> dict[str, list[Any]]:
    """By the name of a setting, its value before and after; those that stay the same only to say them `again`."""
    both = {name: [getattr(before, name), value] for name, value in after.items()}
    return {name: [old, new] for name, (old, new) in both.items() if again or old != new}


def add(transaction: Transaction, changes: Mapping[str, Any], by: str) -> None:
    """Amend, whatever it is; the state does the rest, and refuses settings that no study can have."""
    if changes:
        transaction.add(AMEND, words=json.dumps(changes), worker=by)
        stop_at_limit(transaction)


def accept(transaction: Transaction, epsilon: float | None, by: str) -> None:
    """Take as the decision what is proven about the leader: it is within some epsilon of the best, at most this one.

    Where its test is not the one that decides (in a champion race), or not at the same level (with a reserve), either
    of the two may be wrong, so the decision is at 2 delta.
    """
    from cabai.study.show.known import known_of

    state, name = transaction.state, transaction.row.name
    settings, ended = state.settings, state.ended
    if ended is not None and ended.words in DECISIONS:
        return
    if settings.goal != BEST:
        why = "that the likely answer is close to the best says nothing about what arms cost"
        raise InvalidInput(f"study {name!r} looks for goal {settings.goal!r}: {why}, so there is nothing to accept.")
    leader = state.leader if ended is None else ended.arm
    known = None if leader is None else known_of(state, leader)
    within = None if known is None else known.within
    if leader is None or within is None:
        raise InvalidInput(f"nothing is proven yet about the leader of study {name!r}: there is nothing to accept.")
    if epsilon is not None and within > epsilon:
        proven = f"{settings.arms[leader]!r} is only proven to be at most {within:.4g} worse than the best"
        raise InvalidInput(f"{proven}, got epsilon {epsilon:g}: accept that much, or go on.")
    is_joint = settings.reserve is None and settings.decides_by_pairs
    error = settings.error if is_joint else 2 * settings.delta
    transaction.add(STOP, words=ACCEPTED, arm=leader, reward=max(1 - error, 0.0), cost=within, worker=by)


def drop(transaction: Transaction, arm: str, by: str) -> None:
    """Drop an arm by hand. Its pulls under way are withdrawn; results that waited for them count, and may decide."""
    before = transaction.state.settings
    if arm not in before.arms:
        raise InvalidInput(f"there is no arm {shown(arm)}: the arms are {', '.join(before.arms)}.")
    if arm in before.dropped:
        return
    check_runs(transaction)
    if len(before.arms) - len(before.dropped) == 2:
        raise InvalidInput(f"only two arms are left: without {arm!r} there is nothing to compare. To end, use stop().")
    if before.reserve is None and 2 * before.delta >= 1:
        raise InvalidInput(
            "without a reserve, a decision after a drop is wrong with probability at most 2 delta = "
            f"{2 * before.delta:g}, which says nothing. If arms may be dropped, create the study with a reserve or a "
            "delta below 0.5."
        )
    add(transaction, changed(before, {"dropped": (*before.dropped, arm)}), by)


def add_arm(transaction: Transaction, arm: str, cost: float | None, metadata: Any, by: str) -> None:
    before, name = transaction.state.settings, transaction.row.name
    if before.reserve is None:
        raise InvalidInput(
            f"study {name!r} was created without a reserve, a part of delta for arms that join later, such as "
            f"reserve=0.1.{'' if before.items is None else CHALLENGE}"
        )
    check_runs(transaction)
    if arm in before.dropped:
        raise InvalidInput(f"arm {arm!r} was dropped for good: it can only join again under another name.")
    if arm in before.joined and cost in (None, before.costs and before.costs[before.arms.index(arm)]):
        return  # by this very call, if the connection broke during the commit
    if arm in before.arms:
        raise InvalidInput(f"there is already an arm {arm!r}.")
    names, kept = checked_arms({**{name: before.metadata.get(name) for name in before.arms}, arm: metadata})
    if (cost is None) != (before.costs is None):
        what = "was created with known costs: give cost=..." if cost is None else "measures costs: leave cost out"
        raise InvalidInput(f"study {name!r} {what}.")
    costs = None if before.costs is None else checked_costs([*before.costs, cost], names, "costs")
    after = {"arms": names, "costs": costs, "metadata": kept, "joined": (*before.joined, arm)}
    add(transaction, changed(before, after), by)


def check_runs(transaction: Transaction) -> None:
    """Refuse to change the arms of a study that has stopped."""
    ended = transaction.state.ended
    if ended is not None:
        more = "" if transaction.state.settings.items is None else CHALLENGE
        more = more if ended.words in ENDED else " Raise its budget with amend() first."
        raise InvalidInput(f"study {transaction.row.name!r} has stopped: its arms can no longer change.{more}")


def raised(settings: Settings, given: Any) -> float:
    """A larger epsilon. The same tests decide, for all epsilons at once; but not all of them have one."""
    epsilon = settings.family.check_epsilon(given)
    if epsilon < settings.epsilon:
        raise InvalidInput(f"epsilon can only be raised: it is {settings.epsilon:g}, got {epsilon:g}.")
    why = None
    if settings.goal != BEST:
        why = f"with goal {settings.goal!r}, epsilon is part of the question"
    elif not settings.decides_by_pairs:
        why = "a champion race looks for the best arm itself; once the leader is close enough, use accept()"
    elif settings.items is not None and settings.reserve is not None:
        why = "arms may join this race, which has a test for this epsilon only"
    elif isinstance(settings.threshold, Calibrated):
        why = "the certificate of the threshold is for this epsilon only"
    if why is not None and epsilon != settings.epsilon:
        raise InvalidInput(f"epsilon cannot be raised here: {why}.")
    return epsilon
