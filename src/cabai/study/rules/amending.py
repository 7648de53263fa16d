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
from cabai.support.validation import InvalidInput, shown
from cabai.thresholds import Calibrated

ENDED = {
    EVIDENCE: "has decided",
    ACCEPTED: "was decided by accepting what was proven",
    BY_HAND: "was stopped by hand",
    CERTIFICATE: "has reached the end of its threshold's certificate",
}


def amend(transaction: Transaction, *, by: str, **given: Any) -> None:
    """Change settings; a study that stopped at a limit continues if that limit is no longer reached."""
    before, ended = transaction.state.settings, transaction.state.ended
    certified = before.certified_pulls
    if certified is not None and given.get(MAX_PULLS, 0) > certified:
        raise InvalidInput(
            f"the certificate of the threshold ends after {certified} pulls: max_pulls can be at most {certified}, "
            f"got {given[MAX_PULLS]}."
        )
    if "epsilon" in given:
        given["epsilon"] = raised(before, given["epsilon"])
    if "metadata" in given:
        if not set(given["metadata"]) <= set(before.arms):
            raise InvalidInput(
                f"metadata must be a dictionary with names of arms as keys ({', '.join(before.arms)}), got "
                f"{shown(given['metadata'])}."
            )
        both = before.metadata | given["metadata"]
        given["metadata"] = {arm: both[arm] for arm in before.arms if both.get(arm) is not None}
    changes = {name: [getattr(before, name), value] for name, value in given.items()}
    if not by.endswith(RUN):  # what a run says is logged even if it was said before
        changes = {name: [old, new] for name, (old, new) in changes.items() if old != new}
    if changes and ended is not None and ended.words in ENDED and set(changes) != {"metadata"}:
        raise InvalidInput(
            f"study {transaction.row.name!r} {ENDED[ended.words]}: only its metadata can still be amended."
        )
    add(transaction, changes, by)


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
        raise InvalidInput(
            f"study {name!r} looks for goal {settings.goal!r}: that its likely answer is close to the best says "
            "nothing about what arms cost, so there is nothing to accept."
        )
    leader = state.leader if ended is None else ended.arm
    shown = None if leader is None else known_of(state, leader)
    within = None if shown is None else shown.within
    if leader is None or within is None:
        raise InvalidInput(f"nothing is proven yet about the leader of study {name!r}: there is nothing to accept.")
    if epsilon is not None and within > epsilon:
        raise InvalidInput(
            f"{settings.arms[leader]!r} is only proven to be at most {within:.4g} worse than the best, got epsilon "
            f"{epsilon:g}: accept that much, or go on."
        )
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
        raise InvalidInput(
            f"only two arms are left: without {arm!r} there is nothing to compare. To end the study, use stop()."
        )
    if before.reserve is None and 2 * before.delta >= 1:
        raise InvalidInput(
            f"without a reserve, a decision after {arm!r} is dropped is wrong with probability at most 2 delta = "
            f"{2 * before.delta:g}, which says nothing. If arms may be dropped, create the study with a reserve or "
            "with a delta below 0.5."
        )
    add(transaction, {"dropped": [before.dropped, (*before.dropped, arm)]}, by)


def add_arm(transaction: Transaction, arm: str, cost: float | None, metadata: Any, by: str) -> None:
    before, name = transaction.state.settings, transaction.row.name
    if before.reserve is None:
        raise InvalidInput(
            f"study {name!r} was created without a reserve: no part of delta is left for an arm that joins later. If "
            f"arms may join, create the study with a reserve, such as reserve=0.1.{challenge(before)}"
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
        known = "was created with known costs: give cost=... for the new arm too"
        raise InvalidInput(f"study {name!r} {known if cost is None else 'measures costs: leave cost out'}.")
    costs = None if before.costs is None else checked_costs([*before.costs, cost], names, "costs")
    after = {"arms": names, "costs": costs, "metadata": kept, "joined": (*before.joined, arm)}
    changes = {name: [getattr(before, name), value] for name, value in after.items()}
    add(transaction, {name: [old, new] for name, (old, new) in changes.items() if old != new}, by)


def challenge(settings: Settings) -> str:
    if settings.items is None:
        return ""
    return " Once it is decided, new arms can challenge its winner: cabai.evaluate(..., join=...)."


def check_runs(transaction: Transaction) -> None:
    """Refuse to change the arms of a study that has stopped."""
    ended = transaction.state.ended
    if ended is not None:
        more = challenge(transaction.state.settings)
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
