"""Asking: what to pull next, and whose turn it is."""

from __future__ import annotations

from typing import NamedTuple

from cabai.settings import FAIL
from cabai.study.current import Transaction
from cabai.study.given import Result
from cabai.study.log.events import ASK, LOSE, MAX_COST, OFFER, RENEW, WITHDRAW
from cabai.study.rules import warnings
from cabai.study.rules.telling import add_result
from cabai.study.state.accounts import Lease

LAPSED = "the lease ended without a result"


class Asked(NamedTuple):
    """What a worker asks for."""

    pulls: int
    worker: str | None = None
    request: str | None = None
    extra: int = 0  # evaluations that may be under way in addition to the usual number
    batch: bool = False  # all of one arm, of which nothing else is under way


def ask(transaction: Transaction, asked: Asked) -> tuple[list[Lease], str | None]:
    """The pulls handed out; if there are none, why not, or None if the study has stopped."""
    state = transaction.state
    transaction.decide()  # reused scores may decide a race before it begins
    if state.ended is not None:
        return [], None
    again = handed_before(transaction, asked)
    if again:
        return again, None
    settle_lapsed(transaction)
    if state.ended is not None:
        return [], None
    live = state.waited_for()
    lapsed = [pull for pull in live if pull.expires <= transaction.now]
    if asked.batch:
        lapsed = [pull for pull in lapsed if pull.arm == lapsed[0].arm]
    handed = offer_again(transaction, lapsed, asked)
    unpaid = sum(pull.expires <= transaction.now for pull in live) if len(handed) < asked.pulls else 0
    why = hand_out(transaction, handed, asked)
    if not handed and len(live) > unpaid:
        return [], f"{why}: tell the pulls under way first."
    if not handed:  # nothing is under way, or nothing that the budget would pay for again
        transaction.end(state.limit() or MAX_COST)
    return handed, None


def handed_before(transaction: Transaction, asked: Asked) -> list[Lease]:
    """The pulls leased to this worker for this very request, whose answer was lost; their leases are renewed."""
    if asked.request is None:
        return []
    found = [
        pull
        for pull in transaction.state.waited_for()
        if (pull.worker, pull.request) == (asked.worker, asked.request) and pull.expires > transaction.now
    ]
    for pull in found:
        transaction.add(RENEW, pull=pull.number)
    return found


def settle_lapsed(transaction: Transaction) -> None:
    """Withdraw lapsed pulls that are not needed, and fail those not offered again: both may decide, or drop arms."""
    state, seen = transaction.state, -1
    while seen < state.place:  # until all were looked at and nothing was changed
        seen = state.place
        for pull in [pull for pull in state.waited_for() if pull.expires <= transaction.now]:
            if state.ended is not None:
                return
            if pull.withdrawn:
                continue
            if not state.wants(pull.arm):
                transaction.add(WITHDRAW, pull=pull.number)
            elif state.settings.on_lapse == FAIL and pull.expires > 0:  # it was not released
                add_result(transaction, pull, Result(pull.number, failed=LAPSED), LOSE)


def offer_again(transaction: Transaction, lapsed: list[Lease], asked: Asked) -> list[Lease]:
    """As many of the lapsed pulls as are asked for, as far as the budget pays for them a second time."""
    state, handed = transaction.state, list[Lease]()
    for pull in lapsed:
        if len(handed) < asked.pulls and state.affords(pull.arm, without=1):
            with warnings.noticed(transaction, pull.arm, lapsed=pull.expires > 0):  # else it was released
                transaction.add(OFFER, pull=pull.number, worker=asked.worker, request=asked.request)
            handed.append(pull)
    return handed


def hand_out(transaction: Transaction, handed: list[Lease], asked: Asked) -> str:
    """Add new pulls to those handed out, up to as many as are asked for; returns why there are no more."""
    state = transaction.state
    why = f"the budget of study {transaction.row.name!r} is used up by pulls under way ({len(state.pulls)})"
    while len(handed) < asked.pulls and state.limit() is None:
        of_batch = handed[0].arm if asked.batch and handed else None
        found = state.choose(asked.extra, asked.pulls * asked.batch, of_batch)
        if found is None:
            return str(state.why_none)
        arm, item = found
        if not state.affords(arm):
            if state.live[arm] and not state.knows_cost[arm]:
                what = f"{'a pull of arm' if item is None else 'an evaluation of'} {state.settings.arms[arm]!r}"
                why = f"the cost of {what} is not known yet, and the first one is under way"
            break
        transaction.add(
            ASK, pull=state.asked + 1, arm=arm, item=item, worker=asked.worker, request=asked.request,
            words=state.kept_choice(),
        )  # fmt: skip
        handed.append(state.pulls[state.asked])
    return why
