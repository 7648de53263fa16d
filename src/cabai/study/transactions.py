"""What can be done to a study: ask, tell, renew or release.

Asking and telling are handed a transaction, which may serve several of them; if one raises, nothing of it is done. The
others are handed the study's ledger and a connection, and lock the study first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from cabai.study import statements
from cabai.study.change import Change, Result, cost_of
from cabai.study.connections import Connection
from cabai.study.errors import AlreadyTold, LostPull
from cabai.study.ledger import BY_HAND, MAX_COST, Ledger
from cabai.study.pull import Pull


def ask(
    change: Change, count: int, worker: str | None, request: str | None = None, beyond: int = 0
) -> tuple[list[Pull], str | None, list[UserWarning]]:
    """The pulls handed out; if there are none, why not, or None if the study has stopped; and warnings."""
    if change.is_over:
        return [], None, []
    asker = {"worker": worker, "request": request}
    again = change.hand_again(asker)
    if again:
        return again, None, []
    warned = len(change.warnings)
    live, why = change.settle_lapsed(), None
    handed: list[Pull] = []
    unpaid: list[Any] = []
    if not change.is_over:
        if live:
            handed, unpaid = change.offer_again(live, count, asker)
        fresh, reason = change.hand_out(live, count - len(handed), asker, beyond)
        handed += fresh
        if not handed and len(live) > len(unpaid):
            why = f"{reason}: tell the pulls under way first."
        elif not handed:  # nothing is under way, or nothing that the budget would pay for again
            limits = MAX_COST if change.settings.max_cost is not None else None
            ended = change.reached(change.under_way(live)) or limits
            assert ended is not None
            change.end(ended, change.play.confidence())
    return handed, why, change.warnings[warned:]


def tell(change: Change, results: Sequence[Result]) -> list[UserWarning]:
    """Returns warnings."""
    told, warned = change.told, len(change.warnings)
    for result in results:
        pull = change.take_pull(result.number)
        if pull is None:
            check_told_before(change, result)
        else:
            change.take(pull, result)
    if change.told > told:
        change.count()
        change.stop_at_limit()
    return change.warnings[warned:]


def look(change: Change) -> None:
    """End the study if what counts decides, or if a limit is reached."""
    if not change.is_over:
        change.decide()
        change.stop_at_limit()


def stop(change: Change) -> None:
    """End the study here, without a decision."""
    if not change.is_over:
        change.end(BY_HAND, change.play.confidence())


def lease(
    ledger: Ledger, connection: Connection, number: int, offers: int | None, worker: str | None, *, anew: bool
) -> None:
    """Renew the lease of a pull, or end it at once if the pull is released.

    `offers` and `worker` say who calls, as far as it is known: the worker that got the pull at that offer.
    """
    row = ledger.row(connection, lock=True)
    if number > row.asked:
        raise ledger.never_asked(number)
    held = ledger.pull(connection, number)
    if held is None:  # told in the meantime
        return
    if offers not in (None, held.offers) or (worker is not None and held.worker not in (None, worker)):
        holder = "" if held.worker is None else f" ({held.worker!r})"
        raise LostPull(
            f"pull {ledger.pull_id(number)} was offered to another worker{holder}: only that worker may now renew or "
            "release it. You may still tell it: the first result told counts."
        )
    if held.offers > 1 and offers is None and worker is None:
        raise LostPull(
            f"pull {ledger.pull_id(number)} was offered {held.offers} times: only the worker that has it now may renew "
            "or release it, so say which worker you are."
        )
    values = {"expires": row.now + ledger.settings.lease} if anew else {"expires": 0.0, "request": None}
    statements.CHANGE_PULL.run(connection, {**ledger.key(number), **values})


def lapse(ledger: Ledger, connection: Connection, was_lost: Callable[[str | None], bool]) -> None:
    """Let the leases of lost workers end now."""
    row = ledger.row(connection, lock=True)
    for pull in ledger.pulls(connection):
        if pull.expires > row.now and was_lost(pull.worker):
            statements.CHANGE_PULL.run(connection, {**ledger.key(pull.number), "expires": row.now})


def keep_tests(ledger: Ledger, connection: Connection, tests: dict[str, Any], *, anew: bool) -> dict[str, Any]:
    """Store how each arm is tried, unless that is already known and `anew` is false; returns what is stored. It may
    change as long as nothing was observed."""
    row = ledger.row(connection, lock=True)
    known = None if anew else ledger.tests(ledger.row(connection))
    if known is None or (known != tests and is_unobserved(ledger, connection, row)):
        ledger.save_tests(connection, tests)
        return tests
    kept = tests | known  # an arm may have joined
    if kept != known:
        ledger.save_tests(connection, kept)
    return kept


def is_unobserved(ledger: Ledger, connection: Connection, row: Any) -> bool:
    """Whether no trial has returned anything that counts, and none is under way. With items, failing counts too."""
    if any(pull.expires > row.now for pull in ledger.pulls(connection)):
        return False
    if ledger.settings.items is not None:
        return bool(row.told == 0)
    return statements.FIRST_REWARD.row(connection, ledger.of).number is None


def check_told_before(change: Change, result: Result) -> None:
    """For a pull that is not under way: check that it was told the same before."""
    change.write()
    ledger = change.ledger
    told = statements.LOGGED.row(change.connection, ledger.key(result.number))
    if told is None:
        raise ledger.never_asked(result.number)
    cost = cost_of(ledger.settings, told.arm, result.cost)
    if (told.reward, told.cost, told.failed) != (result.reward, cost, result.failed):
        first = f"failed={told.failed!r}" if told.failed is not None else f"reward={told.reward!r}"
        raise AlreadyTold(
            f"pull {ledger.pull_id(result.number)} was told before with {first}, cost={told.cost!r}, which is kept."
        )
