"""A study: ask, tell, and what is known so far. Importing this imports SQLAlchemy."""

from __future__ import annotations

import json
import re
import secrets
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, overload

import sqlalchemy as sa

from cabai.checks import InvalidInput, amount, optional, positive, whole
from cabai.study import damage, schema, statements
from cabai.study.errors import AlreadyTold, FailedPulls, LostPull, NoPull, StudyNotFound, StudyStopped
from cabai.study.play import Play
from cabai.study.settings import Settings
from cabai.study.status import Status
from cabai.study.storage import Storage

if TYPE_CHECKING:
    import pandas as pd

OBSERVATION = ["pull", "arm", "reward", "cost", "failed", "asked", "told", "worker", "late"]  # what is kept of each
EVIDENCE, MAX_COST, MAX_PULLS, CERTIFICATE = "evidence", "max_cost", "max_pulls", "certificate"  # why a study stopped
REASONS = (EVIDENCE, MAX_COST, MAX_PULLS, CERTIFICATE)


@dataclass(frozen=True)
class Pull:
    """One trial of an arm, handed out by `ask` and to be told once."""

    id: str
    arm: str
    number: int  # in the study, from 1
    expires: float  # when the lease ends, in seconds since 1970
    offers: int = 1  # more than 1: the lease of an earlier worker ran out
    metadata: Any = field(default=None, compare=False)  # the arm's


class Study:
    """One live run, stored. Made by `cabai.create_study` and `cabai.load_study`; may be shared by threads."""

    def __init__(self, storage: Storage, row: Any) -> None:
        self.name: str = row.name
        with damage.reading(self.name, storage.url):
            self.settings = damage.settings_of(row.settings)
        self._storage, self._id, self._token = storage, int(row.id), str(row.token)
        self._of = {"of_study": self._id}
        self._known: tuple[int, Play] | None = None  # the state as of a stamp, to spare reading it again

    @classmethod
    def create(cls, storage: Storage, name: str, settings: Settings) -> tuple[Study, bool]:
        """The study of that name, and whether it is new."""

        token = secrets.token_hex(4)

        def work(connection: sa.Connection) -> bool:
            found = find(connection, name)
            if found is not None:
                return bool(found.token == token)  # made just before, if the connection broke as it was committed
            made = connection.execute(
                sa.insert(schema.study).values(name=name, token=token, created=time.time(), settings=settings.to_json())
            )
            key = made.inserted_primary_key[0]  # type: ignore[index]
            connection.execute(
                sa.insert(schema.arm),
                [{"study": key, "number": a, "name": arm} for a, arm in enumerate(settings.arms)],
            )
            return True

        if storage.read(lambda connection: find(connection, name)) is not None:
            return cls.load(storage, name), False
        try:
            new = storage.write(work)
        except sa.exc.IntegrityError:  # another process was quicker
            new = False
        return cls.load(storage, name), new

    @classmethod
    def load(cls, storage: Storage, name: str) -> Study:
        row = storage.read(lambda connection: find(connection, name))
        if row is None:
            raise StudyNotFound(f"there is no study {name!r} in {storage.url}.")
        return cls(storage, row)

    @property
    def arms(self) -> tuple[str, ...]:
        """The arms' names."""
        return self.settings.arms

    @property
    def storage(self) -> str:
        """Where the study is stored; a password is not shown."""
        return self._storage.url

    @property
    def stopped(self) -> bool:
        """Whether the study has ended: with a decision, or at its limit without one. It never goes on again."""
        return self._storage.read(self._row).stopped is not None

    @property
    def decision(self) -> str | None:
        """The arm that is best, wrong with probability at most delta if the threshold is proven for the family.

        None until there is enough evidence. A study that stopped at its budget's limit, or where the certificate of its
        threshold ends, has no decision; `status().leader` is the best guess.
        """
        row = self._storage.read(self._row)
        return self.arms[row.decision] if row.reason == EVIDENCE else None

    @overload
    def ask(self, n: None = None, *, worker: str | None = None) -> Pull: ...
    @overload
    def ask(self, n: int, *, worker: str | None = None) -> list[Pull]: ...
    def ask(self, n: int | None = None, *, worker: str | None = None) -> Pull | list[Pull]:
        """What to pull next; with n, a list of n pulls (fewer where a budget ends).

        Each is leased to the caller: it counts as pulled when others ask, and is offered again if it is not told in
        time. Raises `StudyStopped` once the study has stopped, and `NoPull` while pulls under way use up the budget.

        With `max_cost`, a pull under way reserves its known cost, or the largest cost of its arm so far, and an arm
        that has returned no reward has one pull under way at a time. So with known costs the bill never exceeds
        `max_cost`, and without by no more than what the pulls under way cost beyond what was reserved for them. Where
        the arm that the policy chose is not paid for by what is left, no other is pulled instead: the study stops as
        soon as nothing is under way.
        """
        count = 1 if n is None else whole(n, "n", 1)
        name = checked_worker(worker)
        pulls = self._storage.write(lambda connection: self._ask(connection, count, name))
        if not pulls:
            raise StudyStopped(self._nothing_left)
        return pulls[0] if n is None else pulls

    def tell(
        self, pull: Pull | str, reward: float | None = None, cost: float | None = None, *, failed: str | None = None
    ) -> None:
        """What a pull returned and what it cost; durable when this returns.

        Telling the same again changes nothing; telling something else is refused with `AlreadyTold`. `cost` may be left
        out where the study knows it. With `failed="why"`, the cost counts (0 unless given or known) and there is no
        reward.
        """
        number = self._number(pull)
        if failed is None:
            if reward is None:
                raise InvalidInput("tell needs a reward, or failed=... with the reason why there is none.")
            reward = self.settings.family.check_reward(reward)
        elif not isinstance(failed, str) or not failed.strip():
            raise InvalidInput(f"failed must say why the pull failed, got {failed!r}.")
        elif reward is not None:
            raise InvalidInput(f"a failed pull has no reward, got {reward!r}.")
        else:
            failed = storable(failed)
        if cost is not None:
            cost = positive(cost, "cost") if failed is None else amount(cost, "cost")
            if cost < 0:
                raise InvalidInput(f"cost must not be negative, got {cost!r}.")
        elif self.settings.costs is None and failed is None:
            raise InvalidInput("tell needs a cost, since the study does not know it.")
        warned = self._storage.write(lambda connection: self._tell(connection, number, reward, cost, failed))
        if warned:
            warnings.warn(warned, FailedPulls, stacklevel=2)

    def release(self, pull: Pull | str, *, worker: str | None = None) -> None:
        """Give a pull back untried: it is the next to be offered. Does nothing if it was told meanwhile.

        Only the worker that has the pull now may do so: `LostPull` is raised if it was offered again since `pull` was
        handed out, or to another worker than the `worker` given. An id alone says nothing of who gives it back.
        """
        self._lease(pull, worker, 0.0)

    def renew(self, pull: Pull | str, *, worker: str | None = None) -> None:
        """Lease a pull anew, while it is still being tried: `run` does so by itself. Does nothing if it was told.

        Raises `LostPull` where another worker has the pull now, as `release` does.
        """
        self._lease(pull, worker, time.time() + self.settings.lease)

    def _lease(self, pull: Pull | str, worker: str | None, expires: float) -> None:
        number, name = self._number(pull), checked_worker(worker)

        def work(connection: sa.Connection) -> None:
            if number > self._lock(connection).asked:
                raise InvalidInput(f"study {self.name!r} has handed out no pull {self._token}-{number}.")
            held = connection.execute(statements.PULL, self._pull(number)).one_or_none()
            if held is None:  # told meanwhile
                return
            offered_again = isinstance(pull, Pull) and pull.offers != held.offers
            if offered_again or (name is not None and held.worker not in (None, name)):
                holder = "" if held.worker is None else f" ({held.worker!r})"
                raise LostPull(
                    f"pull {self._token}-{number} was offered to another worker{holder}, who alone may now renew it or "
                    "give it back. It may still be told: whoever tells first is counted."
                )
            connection.execute(statements.CHANGE_PULL, {**self._pull(number), "expires": expires})

        self._storage.write(work)

    def run(self, test: Callable[[str], Any], *, workers: int = 1, **options: Any) -> Status:
        """Pull until the study stops: `test(arm)` tries an arm and returns (reward, cost), or the reward alone where
        costs are known. See `cabai.study.runner.run` for what happens when it fails."""
        from cabai.study.runner import run

        if not callable(test):
            raise InvalidInput(f"test must be a function that takes an arm's name, got {test!r}.")
        return run(self, lambda pull: test(pull.arm), workers=workers, **options)

    def status(self) -> Status:
        """What is known now: every arm, the evidence, the bill, and the decision."""

        def work(connection: sa.Connection) -> Status:
            row = self._row(connection)
            pulls = self._pulls(connection)
            now = time.time()
            lapsed = sum(pull.expires <= now for pull in pulls)
            return Status.of(self, row, self._play(connection, row), [pull.arm for pull in pulls], lapsed)

        return self._storage.read(work)

    def observations(self) -> list[dict[str, Any]]:
        """Everything that was told, in the order of telling.

        One dictionary each: pull, arm, reward, cost, failed, asked, told, worker, and late, which marks what came after
        the study had stopped.
        """

        def work(connection: sa.Connection) -> list[dict[str, Any]]:
            row = self._row(connection)
            log = connection.execute(statements.LOG, self._of).all()
            with damage.reading(self.name, self.storage):
                damage.check_log(log, self.settings)
            return [self._observation(each, row.told_at_stop) for each in log]

        return self._storage.read(work)

    def to_frame(self) -> pd.DataFrame:
        """`observations` as a table, one row each, times in UTC."""
        pd = optional("pandas")
        frame = pd.DataFrame(self.observations(), columns=OBSERVATION)
        for name in ("asked", "told"):
            frame[name] = pd.to_datetime(frame[name], unit="s", utc=True)
        return frame

    def __repr__(self) -> str:
        return f"Study({self.name!r}, arms={list(self.arms)}, storage={self.storage!r})"

    def __str__(self) -> str:
        return str(self.status())

    # What follows runs inside a transaction.

    @property
    def _nothing_left(self) -> str:
        return f"study {self.name!r} has stopped: there is nothing left to pull."

    def _row(self, connection: sa.Connection, *, lock: bool = False) -> Any:
        query = statements.LOCKED_STUDY if lock else statements.STUDY
        row = connection.execute(query, {**self._of, "of_token": self._token}).one_or_none()
        if row is None:
            raise StudyNotFound(f"the study {self.name!r} has been deleted from {self.storage}.")
        with damage.reading(self.name, self.storage):
            damage.check_row(row, self.settings, REASONS)
        return row

    def _lock(self, connection: sa.Connection) -> Any:
        """The study's row; until the transaction ends nobody else can change the study."""
        return self._row(connection, lock=True)

    def _play_on(self, connection: sa.Connection, row: Any) -> Play:
        """The state of a locked study, to be changed and saved: not read again if it is known, and unknown until it is
        saved."""
        known, self._known = self._known, None
        return known[1] if known is not None and known[0] == row.stamp else self._play(connection, row)

    def _play(self, connection: sa.Connection, row: Any) -> Play:
        """The state of the study, as it is stored."""
        arms = connection.execute(statements.ARMS, self._of).all()
        with damage.reading(self.name, self.storage):
            damage.check_arms(arms, self.settings, row.told)
            sums = [arm._mapping for arm in arms]
            play = Play.restored(self.settings, sums, row.spent, row.counted, row.memory)
            damage.check_play(play)
        return play

    def _pulls(self, connection: sa.Connection) -> Sequence[Any]:
        """The pulls that are under way."""
        pulls = connection.execute(statements.PULLS, self._of).all()
        with damage.reading(self.name, self.storage):
            damage.check_pulls(pulls, self.settings)
        return pulls

    def _keep_tests(self, tests: dict[str, Any], *, anew: bool) -> dict[str, Any]:
        """Keep how each arm is tried, unless that is known already and not to be made `anew`; returns what is kept."""

        def work(connection: sa.Connection) -> dict[str, Any]:
            row = self._lock(connection)
            if row.tests is not None and not anew:
                with damage.reading(self.name, self.storage):
                    return damage.tests_of(row.tests, self.settings)
            connection.execute(statements.CHANGE_STUDY, {**self._of, "tests": json.dumps(tests)})
            return tests

        return self._storage.write(work)

    def _save(self, connection: sa.Connection, play: Play, **values: Any) -> None:
        stamp = secrets.randbits(62)
        changed = {"stamp": stamp, "memory": play.memory(), **values}
        connection.execute(statements.CHANGE_STUDY, {**self._of, **changed})
        self._known = (stamp, play)

    def _number(self, pull: Pull | str) -> int:
        """The number of a pull of this study, from the pull or its id."""
        given = pull.id if isinstance(pull, Pull) else pull
        token, _, digits = given.partition("-") if isinstance(given, str) else ("", "", "")
        if token != self._token or not re.fullmatch(r"[1-9][0-9]{0,17}", digits):
            raise InvalidInput(f"{given!r} is not the id of a pull of study {self.name!r}.")
        return int(digits)

    def _pull(self, number: int) -> dict[str, int]:
        return {**self._of, "of_number": number}

    def _handed(self, number: int, arm: int, expires: float, offers: int) -> Pull:
        name = self.arms[arm]
        return Pull(f"{self._token}-{number}", name, number, expires, offers, self.settings.metadata.get(name))

    def _observation(self, row: Any, told_at_stop: int | None) -> dict[str, Any]:
        return {
            "pull": f"{self._token}-{row.number}",
            "arm": self.arms[row.arm],
            "reward": row.reward,
            "cost": row.cost,
            "failed": row.failed,
            "asked": row.asked,
            "told": row.told,
            "worker": row.worker,
            "late": told_at_stop is not None and row.place > told_at_stop,
        }

    def _ask(self, connection: sa.Connection, count: int, worker: str | None) -> list[Pull]:
        """The pulls handed out; none if the study stops here."""
        row = self._lock(connection)
        if row.stopped is not None:
            raise StudyStopped(self._nothing_left)
        play = self._play_on(connection, row)
        now = time.time()
        expires = now + self.settings.lease
        out = self._out(connection, play, now)
        overdue = [pull for pull in out if pull.expires <= now]
        handed = []
        for pull in overdue[:count]:
            values = {"expires": expires, "worker": worker, "offers": pull.offers + 1}
            connection.execute(statements.CHANGE_PULL, {**self._pull(pull.number), **values})
            handed.append(self._handed(pull.number, pull.arm, expires, pull.offers + 1))
        under_way = [0] * len(self.arms)
        for pull in out:
            under_way[pull.arm] += 1
        fresh: list[dict[str, Any]] = []
        reason, why = None, f"the budget of study {self.name!r} is used up by pulls under way ({len(out)})"
        while len(handed) < count and (reason := self._limit(row.told + sum(under_way))) is None:
            number = row.asked + len(fresh) + 1
            after = play.copy()  # what the policy remembers of a choice that is not made must not be kept
            arm = after.choose(number, under_way)
            if not play.affordable(under_way)[arm]:
                reason = MAX_COST
                if under_way[arm] and not play.knows_cost[arm]:
                    why = f"what a pull of arm {self.arms[arm]!r} costs is not known, and the first is under way"
                break
            play = after
            under_way[arm] += 1
            fresh.append({"study": self._id, "number": number, "arm": arm, "asked": now, "expires": expires,
                          "worker": worker})  # fmt: skip
            handed.append(self._handed(number, arm, expires, 1))
        if not handed and out:
            raise NoPull(f"{why}: tell what is under way first.")
        if fresh:
            connection.execute(statements.ADD_PULL, fresh)
            self._save(connection, play, asked=row.asked + len(fresh))
        if not handed:
            assert reason is not None
            self._save(connection, play, **stop(play, reason, play.confidence(), now, row.told))
        return handed

    def _out(self, connection: sa.Connection, play: Play, now: float) -> list[Any]:
        """The pulls under way; not those of arms that were dropped once their lease has ended: nobody is asked for
        them again."""
        in_play = play.arms["in_play"]
        return [pull for pull in self._pulls(connection) if pull.expires > now or in_play[pull.arm]]

    def _limit(self, pulls: int) -> str | None:
        """Which limit so many pulls have reached, if any."""
        if self.settings.max_pulls is not None and pulls >= self.settings.max_pulls:
            return MAX_PULLS
        if self.settings.certified_pulls is not None and pulls >= self.settings.certified_pulls:
            return CERTIFICATE
        return None

    def _cannot_pay(self, connection: sa.Connection, play: Play, number: int, now: float) -> bool:
        """Whether nothing is under way and the budget does not pay for the arm that the policy would pull next."""
        none = [0] * len(self.arms)
        pays = play.affordable(none)
        return not pays.all() and not self._out(connection, play, now) and not pays[play.copy().choose(number, none)]

    def _tell(
        self, connection: sa.Connection, number: int, reward: float | None, cost: float | None, failed: str | None
    ) -> str | None:
        """Returns a warning, if there is one."""
        row = self._lock(connection)
        pull = connection.execute(statements.PULL, self._pull(number)).one_or_none()
        if pull is None:
            told = connection.execute(statements.LOGGED, self._pull(number)).one_or_none()
            self._told_before(number, told, reward, cost, failed)
            return None
        with damage.reading(self.name, self.storage):
            damage.check_pulls([pull], self.settings)
        play = self._play_on(connection, row)
        a = pull.arm
        paid = self._cost(a, cost, failed)
        if failed is None:
            assert reward is not None
            play.observe(a, self.settings.seen(reward), paid)
        else:
            play.fail(a, paid)
        if play.has_overflown:
            raise InvalidInput(f"reward={reward!r}, cost={paid!r} and those told before have sums too large to hold.")
        now, place = time.time(), row.told + 1
        connection.execute(statements.REMOVE_PULL, self._pull(number))
        connection.execute(
            statements.ADD_TO_LOG,
            {"study": self._id, "number": number, "place": place, "arm": a, "reward": reward, "cost": paid,
             "failed": failed, "asked": pull.asked, "told": now, "worker": pull.worker},
        )  # fmt: skip
        connection.execute(statements.CHANGE_ARM, {**self._of, "of_number": a, **play.sums(a)})
        changed: dict[str, Any] = {
            "told": place, "spent": float(play.run["paid"]), "counted": float(play.run["spent"]),
        }  # fmt: skip
        if row.stopped is None:
            certified, limit = self.settings.certified_pulls, self._limit(place)
            if failed is None and (certified is None or place <= certified) and play.stops():
                changed |= stop(play, EVIDENCE, 1 - self.settings.delta, now, place)
            elif play.is_spent or self._cannot_pay(connection, play, row.asked + 1, now):
                changed |= stop(play, MAX_COST, play.confidence(), now, place)
            elif limit is not None:
                changed |= stop(play, limit, play.confidence(), now, place)
        self._save(connection, play, **changed)
        warned = None if failed is None else self._failing(play, a)
        return None if warned is None else f"{warned} The last: {failed}"

    def _cost(self, arm: int, cost: float | None, failed: str | None) -> float:
        if cost is not None:
            return cost
        return self.settings.costs[arm] if self.settings.costs is not None else 0.0

    def _told_before(
        self, number: int, told: Any, reward: float | None, cost: float | None, failed: str | None
    ) -> None:
        """A pull that is not under way: was it told just this before?"""
        if told is None:
            raise InvalidInput(f"study {self.name!r} has handed out no pull {self._token}-{number}.")
        if (told.reward, told.cost, told.failed) != (reward, self._cost(told.arm, cost, failed), failed):
            first = f"failed={told.failed!r}" if told.failed is not None else f"reward={told.reward!r}"
            raise AlreadyTold(
                f"pull {self._token}-{number} was told before with {first}, cost={told.cost!r}; that stands."
            )

    def _failing(self, play: Play, a: int, *, always: bool = False) -> str | None:
        """A warning where at least 3 pulls and a tenth of an arm's have failed; at 3, 10, 30, ... unless `always`."""
        failures, pulls = int(play.failures[a]), int(play.arms[a]["pulls"])
        if failures < 3 or failures * 10 <= failures + pulls or not (always or failures in MILESTONES):
            return None
        return (
            f"{failures} of {failures + pulls} pulls of arm {self.arms[a]!r} failed. The guarantee is about the mean "
            "reward of pulls that succeed: if failing goes with a high or a low reward, that is not the mean of all."
        )


MILESTONES = frozenset(step * 10**power for step in (3, 10) for power in range(8))


def stop(play: Play, reason: str, confidence: float, now: float, told: int) -> dict[str, Any]:
    """What is kept of a study's end."""
    return {
        "stopped": now, "reason": reason, "decision": play.leader, "confidence": confidence,
        "told_at_stop": told, "spent_at_stop": float(play.run["paid"]),
    }  # fmt: skip


def checked_worker(worker: Any) -> str | None:
    """Who asks, as it can be stored."""
    if worker is not None and (not isinstance(worker, str) or len(worker) > 200):
        raise InvalidInput(f"worker must be a text of at most 200 characters, got {worker!r}.")
    return None if worker is None else storable(worker)


def storable(text: str) -> str:
    """A text from outside, such as an error's, with what no database can hold spelt out: half characters and NUL."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


def find(connection: sa.Connection, name: str) -> Any:
    return connection.execute(sa.select(schema.study).where(schema.study.c.name == name)).one_or_none()


def names(storage: Storage) -> list[str]:
    query = sa.select(schema.study.c.name).order_by(schema.study.c.id)
    return storage.read(lambda connection: [str(row.name) for row in connection.execute(query)])


def delete(storage: Storage, name: str) -> None:
    def work(connection: sa.Connection) -> None:
        if connection.execute(sa.delete(schema.study).where(schema.study.c.name == name)).rowcount == 0:
            raise StudyNotFound(f"there is no study {name!r} in {storage.url}.")

    storage.write(work)
