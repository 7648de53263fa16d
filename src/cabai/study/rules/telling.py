"""Telling what pulls returned; renewing and releasing them; the end of a study."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

from cabai.errors import AlreadyTold, LostPull
from cabai.families import Gaussian
from cabai.study.current import Transaction
from cabai.study.given import Result
from cabai.study.log import tables
from cabai.study.log.events import BY_HAND, LAPSE, MAX_COST, RELEASE, RENEW, TELL
from cabai.study.rules import warnings
from cabai.study.settings import Settings
from cabai.study.state.accounts import Lease
from cabai.support.validation import InvalidInput

LARGE = 1e200  # adding a number up to this to any double does not overflow


def tell(transaction: Transaction, results: Sequence[Result]) -> None:
    state, told = transaction.state, transaction.state.told
    for result in results:
        pull = state.pulls.get(result.number)
        if pull is None:
            check_told_before(transaction, result)
        else:
            add_result(transaction, pull, result)
    if state.told > told:
        stop_at_limit(transaction)


def add_result(transaction: Transaction, pull: Lease, result: Result, kind: str = TELL) -> None:
    settings, failed = transaction.state.settings, result.failed
    cost = cost_of(settings, pull.arm, result)
    if kind == TELL:  # who asks cannot help that a lost pull is paid
        check_size(transaction.state, pull.arm, result.reward, cost)
    may_warn = failed is not None or isinstance(settings.family, Gaussian) or settings.full_cost is not None
    with warnings.noticed(transaction, pull.arm, failed) if may_warn else nullcontext():
        transaction.add(kind, pull=pull.number, arm=pull.arm, item=pull.item, reward=result.reward, cost=cost,
                        worker=pull.worker, words=failed)  # fmt: skip


def cost_of(settings: Settings, arm: int, result: Result) -> float:
    """What a pull cost: as told, else as known, else nothing, which is allowed only for a failed pull."""
    known = settings.costs
    if result.cost is None:
        return 0.0 if known is None else known[arm]
    if result.cost == 0 and result.failed is None and settings.items is None and known is not None and all(known):
        raise InvalidInput("cost must be positive, got 0.")
    return result.cost


def check_size(state: Any, a: int, reward: float | None, cost: float) -> None:
    """Refuse what is too large to be added to the rest; a failed pull has no reward."""
    known = state.settings.steering_costs
    if max(cost, 0.0 if known is None else known[a], abs(reward or 0.0)) > LARGE and state.overflows(a, reward, cost):
        what = f"reward={reward!r}, cost={cost!r} and those told before"
        raise InvalidInput(f"{what} add up to a number that is too large to store.")


def check_told_before(transaction: Transaction, result: Result) -> None:
    """For a pull that is not under way: check that it was told the same before."""
    told = transaction.result_of(result.number)
    if told is None or told.arm is None or told.cost is None:
        raise never_asked(transaction, result.number)
    cost = cost_of(transaction.state.settings, told.arm, result)
    if (told.reward, told.cost, told.words) != (result.reward, cost, result.failed):
        first = f"failed={told.words!r}" if told.words is not None else f"reward={told.reward!r}"
        pull = transaction.pull_id(result.number)
        raise AlreadyTold(f"pull {pull} was told before with {first}, cost={told.cost!r}, which is kept.")


def never_asked(transaction: Transaction, number: int) -> InvalidInput:
    return InvalidInput(f"study {transaction.row.name!r} has handed out no pull {transaction.pull_id(number)}.")


def stop_at_limit(transaction: Transaction) -> None:
    """End the study if a limit is reached and nothing is under way, so that everything told counts."""
    state, most = transaction.state, transaction.state.settings
    limits = most.max_cost, most.max_pulls, most.certified_pulls
    if state.ended is not None or limits == (None, None, None) or state.live.any():
        return
    why, is_spent = state.limit(), state.is_spent
    arm = None if is_spent or most.max_cost is None else state.next_if_idle()
    if is_spent or (arm is not None and not state.affords(arm)):
        why = MAX_COST
    if why is not None:
        transaction.end(why)


def stop(transaction: Transaction) -> None:
    if transaction.state.ended is None:
        transaction.end(BY_HAND)


def look(transaction: Transaction) -> None:
    """End the study if what counts decides, or if a limit is reached."""
    transaction.decide()
    stop_at_limit(transaction)


def lease(transaction: Transaction, *, kind: str, pull: str, worker: str | None, offers: int | None = None) -> None:
    """Renew the lease of a pull, or end it at once if the pull is released.

    `offers` and `worker` say who calls, as far as it is known: the worker that got the pull at that offer.
    """
    number = int(pull.rpartition("-")[2])
    if number > transaction.state.asked:
        raise never_asked(transaction, number)
    held = transaction.state.pulls.get(number)
    if held is None:  # told in the meantime
        return
    only = "only that worker may now renew or release it"
    if offers not in (None, held.offers) or (worker is not None and held.worker not in (None, worker)):
        holder = "another worker" if held.worker is None else f"another worker ({held.worker!r})"
        raise LostPull(f"pull {pull} was offered to {holder}: {only}. You may still tell it: the first result counts.")
    if held.offers > 1 and offers is None and worker is None:
        raise LostPull(f"pull {pull} was offered {held.offers} times: {only}. Say who you are.")
    transaction.add(kind, pull=number)


renew, release = partial(lease, kind=RENEW), partial(lease, kind=RELEASE)


def lapse(transaction: Transaction, was_lost: Callable[[str | None], bool]) -> None:
    """Let the leases of lost workers end now."""
    for pull in list(transaction.state.pulls.values()):
        if pull.expires > transaction.now and was_lost(pull.worker):
            transaction.add(LAPSE, pull=pull.number)


def keep_tests(transaction: Transaction, tests: dict[str, Any], *, replace: bool) -> dict[str, Any]:
    """Store how each arm is tried, unless that is already known and is not to be replaced; returns what is stored. It
    may change as long as nothing was observed that counts, and nothing is under way. With items, failing counts too."""
    connection, study, state = transaction.connection, transaction.row.id, transaction.state
    [(text,)] = connection.fetch(tables.TESTS, (study,))
    known = None if text is None or replace else json.loads(text)
    told = state.told if state.settings.items is not None else (state.rewards_told + state.discarded).sum()
    is_new = told == 0 and not any(pull.expires > transaction.now for pull in state.pulls.values())
    kept = tests if known is None or is_new else tests | known  # an arm may have joined
    if kept != known:
        connection.write(tables.KEEP_TESTS, (json.dumps(kept), study))
    return kept
