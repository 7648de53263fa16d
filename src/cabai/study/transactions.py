"""The changes of a study, each within one transaction: ask, tell, lease anew or give back.

Each is handed the study's ledger and a connection, locks the study first, and either does all or raises and does
nothing. Importing this imports SQLAlchemy.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from cabai.study import clock, statements
from cabai.study.errors import AlreadyTold, LostPull, NoPull
from cabai.study.ledger import CERTIFICATE, EVIDENCE, MAX_COST, MAX_PULLS, Ledger
from cabai.study.play import Play
from cabai.study.pull import Pull
from cabai.study.settings import Settings
from cabai.study.status import failing
from cabai.support.validation import InvalidInput

MILESTONES = frozenset(step * 10**power for step in (3, 10) for power in range(8))  # failures of an arm to warn at


def ask(ledger: Ledger, connection: sa.Connection, count: int, worker: str | None) -> list[Pull]:
    """The pulls handed out; none if the study has stopped, or stops here."""
    row = ledger.row(connection, lock=True)
    if row.stopped is not None:
        return []
    settings, play, now = ledger.settings, ledger.play_on(connection, row), clock.now()
    expires = now + settings.lease
    out = being_tried(ledger, connection, play, now)
    handed = []

    def hand(number: int, arm: int, offers: int) -> None:
        name = settings.arms[arm]
        metadata = settings.metadata.get(name)
        handed.append(Pull(ledger.pull_id(number), name, number, expires, offers, metadata))

    overdue = [pull for pull in out if pull.expires <= now]
    for pull in overdue[:count]:
        values = {"expires": expires, "worker": worker, "offers": pull.offers + 1}
        connection.execute(statements.CHANGE_PULL, {**ledger.key(pull.number), **values})
        hand(pull.number, pull.arm, pull.offers + 1)
    under_way = [0] * len(settings.arms)
    for pull in out:
        under_way[pull.arm] += 1
    fresh: list[dict[str, Any]] = []
    reason, why = None, f"the budget of study {ledger.name!r} is used up by pulls under way ({len(out)})"
    while len(handed) < count and (reason := limit(settings, row.told + sum(under_way))) is None:
        number = row.asked + len(fresh) + 1
        after = play.copy()  # what the policy remembers of a choice that is not made must not be kept
        arm = after.choose(under_way)
        if not play.affordable(under_way)[arm]:
            reason = MAX_COST
            if under_way[arm] and not play.knows_cost[arm]:
                why = f"what a pull of arm {settings.arms[arm]!r} costs is not known, and the first is under way"
            break
        play = after
        under_way[arm] += 1
        fresh.append({"study": ledger.id, "number": number, "arm": arm, "asked": now, "expires": expires,
                      "worker": worker})  # fmt: skip
        hand(number, arm, 1)
    if not handed and out:
        raise NoPull(f"{why}: tell what is under way first.")
    if fresh:
        connection.execute(statements.ADD_PULL, fresh)
        ledger.save(connection, play, asked=row.asked + len(fresh))
    if not handed:
        assert reason is not None
        ledger.save(connection, play, **ending(play, reason, play.confidence(), now, row.told))
    return handed


def tell(
    ledger: Ledger,
    connection: sa.Connection,
    number: int,
    reward: float | None,
    cost: float | None,
    failed: str | None,
) -> str | None:
    """Returns a warning, if there is one."""
    row = ledger.row(connection, lock=True)
    pull = ledger.pull(connection, number)
    if pull is None:
        check_told_before(ledger, connection, number, reward, cost, failed)
        return None
    settings, play, a = ledger.settings, ledger.play_on(connection, row), pull.arm
    paid = cost_of(settings, a, cost)
    if failed is None:
        assert reward is not None
        play.observe(a, settings.seen(reward), paid)
    else:
        play.fail(a, paid)
    if play.has_overflown:
        raise InvalidInput(f"reward={reward!r}, cost={paid!r} and those told before have sums too large to hold.")
    now, place = clock.now(), row.told + 1
    connection.execute(statements.REMOVE_PULL, ledger.key(number))
    connection.execute(
        statements.ADD_TO_LOG,
        {"study": ledger.id, "number": number, "place": place, "arm": a, "reward": reward, "cost": paid,
         "failed": failed, "asked": pull.asked, "told": now, "worker": pull.worker},
    )  # fmt: skip
    connection.execute(statements.CHANGE_ARM, {**ledger.of, "of_number": a, **play.sums(a)})
    changed: dict[str, Any] = {
        "told": place, "spent": float(play.run["spent"]), "counted": float(play.run["counted"]),
    }  # fmt: skip
    if row.stopped is None:
        certified, reached = settings.certified_pulls, limit(settings, place)
        if failed is None and (certified is None or place <= certified) and play.stops():
            changed |= ending(play, EVIDENCE, 1 - settings.delta, now, place)
        elif play.is_spent or cannot_pay(ledger, connection, play, now):
            changed |= ending(play, MAX_COST, play.confidence(), now, place)
        elif reached is not None:
            changed |= ending(play, reached, play.confidence(), now, place)
    ledger.save(connection, play, **changed)
    if failed is None or play.failures[a] not in MILESTONES:
        return None
    warned = failing(play, a)
    return None if warned is None else f"{warned} The last: {failed}"


def lease(
    ledger: Ledger, connection: sa.Connection, number: int, offers: int | None, worker: str | None, expires: float
) -> None:
    """Let the lease of a pull end at another time: at once, if it is given back.

    `offers` and `worker` say who speaks, as far as it is known: the worker that was handed the pull at that offer.
    """
    if number > ledger.row(connection, lock=True).asked:
        raise ledger.never_asked(number)
    held = ledger.pull(connection, number)
    if held is None:  # told meanwhile
        return
    if offers not in (None, held.offers) or (worker is not None and held.worker not in (None, worker)):
        holder = "" if held.worker is None else f" ({held.worker!r})"
        raise LostPull(
            f"pull {ledger.pull_id(number)} was offered to another worker{holder}, who alone may now renew it or "
            "give it back. It may still be told: whoever tells first is counted."
        )
    connection.execute(statements.CHANGE_PULL, {**ledger.key(number), "expires": expires})


def keep_tests(ledger: Ledger, connection: sa.Connection, tests: dict[str, Any], *, anew: bool) -> dict[str, Any]:
    """Keep how each arm is tried, unless that is known already and not to be made `anew`; returns what is kept."""
    row = ledger.row(connection, lock=True)
    known = None if anew else ledger.tests(row)
    if known is None:
        ledger.save_tests(connection, tests)
    return tests if known is None else known


def being_tried(ledger: Ledger, connection: sa.Connection, play: Play, now: float) -> list[Any]:
    """The pulls under way; not those of arms that were dropped once their lease has ended: nobody is asked for them
    again."""
    in_play = play.arms["in_play"]
    return [pull for pull in ledger.pulls(connection) if pull.expires > now or in_play[pull.arm]]


def limit(settings: Settings, pulls: int) -> str | None:
    """Which limit so many pulls have reached, if any."""
    if settings.max_pulls is not None and pulls >= settings.max_pulls:
        return MAX_PULLS
    if settings.certified_pulls is not None and pulls >= settings.certified_pulls:
        return CERTIFICATE
    return None


def cannot_pay(ledger: Ledger, connection: sa.Connection, play: Play, now: float) -> bool:
    """Whether nothing is under way and the budget does not pay for the arm that the policy would pull next."""
    none = [0] * len(ledger.settings.arms)
    pays = play.affordable(none)
    return not pays.all() and not being_tried(ledger, connection, play, now) and not pays[play.copy().choose(none)]


def cost_of(settings: Settings, arm: int, cost: float | None) -> float:
    """What a pull cost: as it was told, else as it is known, else nothing, which only a failed pull may."""
    if cost is not None:
        return cost
    return settings.costs[arm] if settings.costs is not None else 0.0


def check_told_before(
    ledger: Ledger,
    connection: sa.Connection,
    number: int,
    reward: float | None,
    cost: float | None,
    failed: str | None,
) -> None:
    """A pull that is not under way: was it told just this before?"""
    told = connection.execute(statements.LOGGED, ledger.key(number)).one_or_none()
    if told is None:
        raise ledger.never_asked(number)
    if (told.reward, told.cost, told.failed) != (reward, cost_of(ledger.settings, told.arm, cost), failed):
        first = f"failed={told.failed!r}" if told.failed is not None else f"reward={told.reward!r}"
        raise AlreadyTold(
            f"pull {ledger.pull_id(number)} was told before with {first}, cost={told.cost!r}; that stands."
        )


def ending(play: Play, reason: str, confidence: float, now: float, told: int) -> dict[str, Any]:
    """What is kept of a study's end."""
    return {
        "stopped": now, "reason": reason, "decision": play.leader, "confidence": confidence,
        "told_at_stop": told, "spent_at_stop": float(play.run["spent"]),
    }  # fmt: skip
