"""What is told of a study's log: every result, every event, and the files that they are exported to."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from tempfile import SpooledTemporaryFile
from typing import IO, TYPE_CHECKING, Any, NamedTuple, cast

from cabai.study.current import Row
from cabai.study.log import events as log
from cabai.study.log import tables
from cabai.study.log.events import Event
from cabai.study.settings import Settings
from cabai.study.state.accounts import Lease
from cabai.support.validation import InvalidInput
from cabai.support.version import __version__

if TYPE_CHECKING:
    from cabai.study.stored import StoredStudy
    from cabai.study.study import Study

LOG = "jsonl"  # the ending of the file of a whole log
FORMULA = tuple("=+-@\t\r\n")
SMALL = 2**20  # bytes; larger files are kept on disk
FIRST, LATER = ["pull", "arm"], ["reward", "cost", "failed", "asked", "told", "worker", "offers", "counted", "late"]
OF_A_STOP = {"reward": "confidence", "cost": "epsilon"}  # what its fields mean
WORDS = {log.STOP: "reason", log.AMEND: "changes", log.COUNTS: "counts"}  # what the words of other events mean
OF_AN_ITEM = [*FIRST, "item", *LATER]
OBSERVATION = [*FIRST, *LATER, "pulls", "period", "origin"]


class End(NamedTuple):
    """What must be known of a state to say which of the results count."""

    settings: Settings
    place: int  # the last event
    stop: int | None  # the place of the stop
    through: int  # no result up to this pull is still to count; 0 in a race


def observations(events: Iterable[Event], end: End, row: Row) -> Iterator[dict[str, Any]]:
    """What is known of each result. In a study with items, the first that was told of an item counts."""
    pulls: dict[int, Lease] = {}
    seen: set[tuple[Any, Any]] = set()  # arms and items
    dropped: list[str] = []
    ended: str | None = None  # why it has stopped at this point of the log
    arms, items = end.settings.arms, end.settings.items
    columns = OBSERVATION if items is None else OF_AN_ITEM
    for event in events:
        late = end.stop is not None and event.place > end.stop
        number = event.pull or 0
        if event.kind == log.ASK:
            pulls[number] = Lease(number, event.arm, event.item, event.time, 0.0)  # type: ignore[arg-type]
        elif event.kind == log.OFFER:
            pulls[number].offers += 1
        elif event.kind == log.WITHDRAW:
            pulls[number].withdrawn = True
        elif event.kind == log.STOP:
            ended = event.words
        elif event.kind == log.AMEND:
            changes = json.loads(event.words or "")
            ended = None if ended in log.LIMITS and set(changes) & log.REOPENING else ended
            dropped = changes.get("dropped", [[], dropped])[1]
            for pull in pulls.values():
                pull.withdrawn = pull.withdrawn or arms[pull.arm] in dropped
        elif event.kind in log.RESULTS:
            is_sum = event.kind == log.COUNTS
            is_imported = items is None and event.kind in (log.COUNTS, log.IMPORT)
            told = json.loads(event.words or "") if is_sum else [(event.arm, 1, event.reward, event.cost)]
            offers = int(is_sum and event.worker is None)  # of what nobody asked for
            lease = pulls.pop(number, None) or Lease(number, 0, None, event.time, 0.0, offers=offers)
            for i, (a, many, reward, cost) in enumerate(told):
                has_score = reward is not None or end.settings.failed_score is not None
                in_order = number <= end.through and not lease.withdrawn
                counted = has_score and (in_order if items is None else (a, event.item) not in seen)
                if is_sum:
                    counted = ended is None and arms[a] not in dropped
                seen.add((a, event.item))
                found = {
                    "pull": f"{row.token}-{number + i}",
                    "arm": arms[a],
                    "item": None if items is None else items.id(event.item),  # type: ignore[arg-type]
                    "reward": reward,
                    "cost": cost,
                    "failed": None if is_sum else event.words,
                    "asked": lease.asked,
                    "told": event.time,
                    "worker": None if is_imported else event.worker,
                    "offers": lease.offers,
                    "counted": counted and not late,
                    "late": late,
                    "pulls": many,
                    "period": event.request if is_sum else None,
                    "origin": event.worker if is_imported else None,
                }
                yield {name: found[name] for name in columns}


def shown_event(event: Event, settings: Settings, row: Row) -> dict[str, Any]:
    """One event of the log: what happened, when, and who did it; only the fields that it has."""
    words: Any = None if event.kind == log.ASK else event.words  # there it is what a policy remembers
    if event.kind in (log.AMEND, log.COUNTS):
        words = json.loads(words or "")
    if event.kind == log.COUNTS:
        words = {settings.arms[a]: sums for a, *sums in words}
    names = OF_A_STOP if event.kind == log.STOP else {}
    found = {
        "place": event.place, "kind": event.kind, "time": event.time,
        "pull": None if event.pull is None else f"{row.token}-{event.pull}",
        "arm": None if event.arm is None else settings.arms[event.arm],
        "item": None if event.item is None or settings.items is None else settings.items.id(event.item),
        **{names.get(field, field): getattr(event, field) for field in ("reward", "cost", "worker", "request")},
        WORDS.get(event.kind, "failed"): words,
    }  # fmt: skip
    return {name: value for name, value in found.items() if value is not None}


def exported(study: Study, kind: str) -> bytes:
    """A study's observations as the content of a file."""
    if kind == "parquet":
        return bytes(study.to_frame().to_parquet(index=False))
    if kind == LOG:
        if not hasattr(study, "_row"):
            raise InvalidInput("a whole log cannot be exported over HTTP: use the database's URL.")
        return "".join(whole_log(cast("StoredStudy", study))).encode()
    return "".join(lines(study.columns, study.observations(), study.amendments(), kind)).encode()


def spooled(study: StoredStudy, kind: str) -> IO[bytes]:
    """The same as a CSV or JSON file to be read once; only a small part of it is in memory."""
    end, amendments = study._read("end"), study.amendments()
    rows = observations(study._log(end.place), end, study._row)
    file: IO[bytes] = SpooledTemporaryFile(max_size=SMALL)  # noqa: SIM115 - the reader closes it
    for line in lines(study.columns, rows, amendments, kind):
        file.write(line.encode())
    file.seek(0)
    return file


def whole_log(study: StoredStudy) -> Iterator[str]:
    """A study whole, a line at a time: its recipe, and then its events, for `cabai.import_study`."""
    end, row = study._read("end"), study._row
    [(tests,)] = study._storage.fetch(tables.TESTS, (row.id,))
    about: dict[str, Any] = {"cabai": __version__, "format": tables.FORMAT, "name": row.name, "token": row.token}
    about |= {
        "created": row.created,
        "recipe": json.loads(row.recipe),
        "tests": None if tests is None else json.loads(tests),
    }
    yield json.dumps(about) + "\n"
    for event in study._log(end.place):
        yield json.dumps({name: value for name, value in event._asdict().items() if value is not None}) + "\n"


def lines(
    columns: Sequence[str], rows: Iterable[dict[str, Any]], amendments: Sequence[dict[str, Any]], kind: str
) -> Iterator[str]:
    """The content of a CSV or JSON file, a row at a time; JSON has the amendments too."""
    if kind == "csv":
        yield csv_line(columns)
        for row in rows:
            cells = [row[name] for name in columns]  # spreadsheets would run a string that begins like a formula
            yield csv_line([f"'{each}" if isinstance(each, str) and each[:1] in FORMULA else each for each in cells])
        return
    yield '{"observations": ['
    for i, row in enumerate(rows):
        yield (", " if i else "") + json.dumps(row, allow_nan=False)
    yield f'], "amendments": {json.dumps(amendments, allow_nan=False)}}}\n'


def csv_line(cells: Sequence[Any]) -> str:
    """One row of CSV. Python before 3.13 quotes a string with a carriage return only if rows end in one too."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerow(cells)
    return text.getvalue().removesuffix("\r\n") + "\n"
