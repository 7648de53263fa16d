"""A study in a database."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from cabai.errors import NoPull, SourceChanged, StudyStopped
from cabai.study.current import CurrentState, Row, Transaction
from cabai.study.given import Pull, checked_label, checked_result, checked_worker
from cabai.study.log import tables
from cabai.study.log.database import Storage, reading
from cabai.study.log.events import DECISIONS, LIMITS, REOPENING, STOP, Event, check_event
from cabai.study.rules import amending, asking, telling
from cabai.study.rules import counts as counting
from cabai.study.settings import Settings
from cabai.study.state.accounts import Lease, Point
from cabai.study.study import Study, warn
from cabai.support.validation import InvalidInput

if TYPE_CHECKING:  # what is only shown is imported when it is: `ask` and `tell` start sooner
    from cabai.study.show.exporting import End
    from cabai.study.show.status import Status
    from cabai.views.study_view import StudyView

T = TypeVar("T")
AT_A_TIME = 1000  # events in memory at a time
CHANGES: dict[str, Callable[..., None]] = {
    "stop": telling.stop, "accept": amending.accept, "amend": amending.amend, "drop": amending.drop,
    "add_arm": amending.add_arm,
}  # fmt: skip
DIGITS = re.compile(r"[1-9][0-9]{0,17}")  # of a pull's number, in its id


class StoredStudy(Study):
    """A study in a database: its row, and its state as this process knows it."""

    def __init__(self, storage: Storage, row: Row) -> None:
        self._storage, self._row = storage, row
        self._current = CurrentState(storage, row)

    @property
    def name(self) -> str:
        return self._row.name

    @property
    def settings(self) -> Settings:
        return self._current.settings

    @property
    def storage(self) -> str:
        return self._storage.url

    @property
    def stopped(self) -> bool:
        return self._ended() is not None

    @property
    def decision(self) -> str | None:
        ended = self._ended()
        if ended is None or ended.words not in DECISIONS or ended.arm is None:
            return None
        return (self.arms if ended.arm < len(self.arms) else self._renewed().arms)[ended.arm]

    def _ended(self) -> Event | None:
        """The event that stopped the study, if it has; without a look at the rest of its log."""
        ended = None
        for event in self._current.stops_and_amendments():
            if event.kind == STOP:
                ended = event
            elif ended is not None and ended.words in LIMITS and set(json.loads(event.words or "")) & REOPENING:
                ended = None  # it was raised
        return ended

    def _ask(
        self, count: int, worker: str | None, request: str | None = None, *, extra: int = 0, batch: bool = False
    ) -> tuple[list[Pull], list[UserWarning]]:
        asked = asking.Asked(count, checked_worker(worker), checked_label(request, "request"), extra, batch)

        def work(transaction: Transaction) -> tuple[list[Pull], str | None, list[UserWarning]]:
            leases, why, warned = asking.ask(transaction, asked)
            return [self._handed(each, transaction.state.settings) for each in leases], why, warned

        pulls, why, warned = self._change(work)
        if pulls:
            return pulls, warned
        warn(warned)
        if why is not None:
            raise NoPull(why)
        raise StudyStopped(f"study {self.name!r} has stopped: there is nothing left to pull.")

    def _handed(self, lease: Lease, settings: Settings) -> Pull:
        """A pull, as it is handed out."""
        arm, items = settings.arms[lease.arm], settings.items
        item = None if items is None or lease.item is None else items.id(lease.item)
        return Pull(self._pull_id(lease.number), arm, lease.number, lease.expires, lease.offers,
                    settings.metadata.get(arm), item)  # fmt: skip

    def _tell(self, results: Sequence[dict[str, Any]]) -> list[UserWarning]:
        self._prepare()
        checked = [checked_result(self, **each) for each in results]
        return self._change(lambda transaction: telling.tell(transaction, checked))

    def _tell_counts(
        self, sums: Sequence[counting.Sum], period: str, following: int | None
    ) -> tuple[dict[str, float], list[UserWarning]]:
        return self._change(lambda transaction: counting.tell(transaction, sums, period, following))

    def _split(self, pulls: int) -> dict[str, int]:
        def work(state: Any) -> dict[str, int]:
            if state.ended is not None:
                raise StudyStopped(f"study {self.name!r} has stopped: there is nothing left to pull.")
            return dict(zip(state.settings.arms, counting.split_within(state, pulls), strict=True))

        self._prepare()
        return self._current.look(work)

    def _do(self, name: str, **given: Any) -> None:
        self._change(lambda transaction: CHANGES[name](transaction, **given))

    def amendments(self) -> list[dict[str, Any]]:
        names = ("made", "by", "changes", "reopened")
        return self._current.look(lambda state: [{name: each[name] for name in names} for each in state.amendments])

    def status(self) -> Status:
        from cabai.study.show.looking import status_of

        return self._current.look(lambda state: status_of(state, self._row, self._storage.now()))

    def history(self) -> list[Point]:
        return self._current.look(lambda state: list(state.points))

    def events(self) -> list[dict[str, Any]]:
        from cabai.study.show.exporting import shown_event

        end = self._end()
        return [shown_event(event, end.settings, self._row) for event in self._log(end.place)]

    def observations(self) -> list[dict[str, Any]]:
        from cabai.study.show.exporting import observations

        end = self._end()
        return list(observations(self._log(end.place), end, self._row))

    def _end(self) -> End:
        """What the log alone does not say about it."""
        from cabai.study.show.exporting import End

        return self._current.look(lambda state: End.of(state))

    def _log(self, last: int) -> Iterator[Event]:
        """The events up to that place, read in small parts."""
        place = 0
        while place < last:
            rows = self._storage.fetch(tables.SOME_EVENTS, (place, self._row.id, AT_A_TIME))
            for event in self._current.reader.events(rows):
                if event.place > last:
                    return
                with reading(self.name, self.storage):
                    check_event(event, self.settings)
                yield event
            if rows[-1][0] is None:
                return
            place = rows[-1][0]

    def scores(self) -> dict[str, dict[str | int, float]]:
        if self.settings.items is None:
            raise InvalidInput(f"study {self.name!r} has no items, so no scores on them: see observations().")
        return self._current.look(lambda state: dict(state.scores()))

    def _seen(self) -> StudyView:
        from cabai.study.show.looking import status_of
        from cabai.views.study_view import StudyView

        def work(state: Any) -> StudyView:
            now = self._storage.now()
            status = status_of(state, self._row, now)
            failures = self._failures(state) if status.failures else []
            return StudyView(status, list(state.points), self._under_way(state), failures, now)

        return self._current.look(work)

    def _failures(self, state: Any) -> list[dict[str, Any]]:
        """Why pulls have failed, and how often: the most frequent reasons, by arm."""
        rows = self._storage.fetch(tables.FAILURES, (self._row.id, state.place))
        names = "arm", "reason", "count", "last"
        return [dict(zip(names, (state.settings.arms[arm], *rest), strict=True)) for arm, *rest in rows]

    def _under_way(self, state: Any) -> list[dict[str, Any]]:
        """The pulls that are under way, and who has them."""
        found = []
        for lease in state.pulls.values():
            pull = self._handed(lease, state.settings)
            found.append({"id": pull.id, "arm": pull.arm, "item": pull.item, "number": pull.number,
                          "asked": lease.asked, "expires": lease.expires, "offers": lease.offers,
                          "worker": lease.worker})  # fmt: skip
        return found

    def _lease(self, pull: Pull | str, worker: str | None, *, renew: bool) -> None:
        number, name = self._number(pull), checked_worker(worker)
        offers = pull.offers if isinstance(pull, Pull) else None
        self._change(lambda transaction: telling.lease(transaction, number, offers, name, renew=renew))

    def _lapse(self, was_lost: Callable[[str | None], bool]) -> None:
        self._change(lambda transaction: telling.lapse(transaction, was_lost))

    def _keep_tests(self, tests: dict[str, Any], *, replace: bool) -> dict[str, Any]:
        return self._change(lambda transaction: telling.keep_tests(transaction, tests, replace=replace))

    def _look(self) -> None:
        """Decide, or stop at a limit, by what was imported."""
        self._change(telling.look)

    def _change(self, work: Callable[[Transaction], T]) -> T:
        self._prepare()
        return self._current.change(work)

    def _renewed(self) -> Settings:
        return self._current.look(lambda state: state.settings)  # type: ignore[no-any-return]

    def _pull_id(self, number: int) -> str:
        return f"{self._row.token}-{number}"

    def _number(self, pull: Pull | str) -> int:
        if isinstance(pull, Pull) and pull.id == self._pull_id(pull.number):
            return pull.number
        given = pull.id if isinstance(pull, Pull) else pull
        token, _, digits = given.partition("-") if isinstance(given, str) else ("", "", "")
        if token != self._row.token or not DIGITS.fullmatch(digits):
            raise InvalidInput(f"{given!r} is not the id of a pull of study {self.name!r}.")
        return int(digits)

    def _prepare(self) -> None:
        """Import the user's own code of this study; warn, once, if its source has changed."""
        changed = self._current.import_own()
        if changed:
            warning = (
                f"the source of {', '.join(changed)} has changed since study {self.name!r} was created: the guarantee "
                "holds only if it still computes the same."
            )
            warn([SourceChanged(warning)])
