"""What a study exports: everything that was told, one row per pull, and the amendments."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from tempfile import SpooledTemporaryFile
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cabai.study import Study
    from cabai.study.connections import Connection
    from cabai.study.ledger import Ledger

AT_A_TIME = 1000  # rows of the log in memory at a time
SMALL = 2**20  # bytes; larger files are kept on disk


def exported(study: Study, kind: str) -> bytes:
    """A study's observations as the content of a file."""
    if kind == "parquet":
        return bytes(study.to_frame().to_parquet(index=False))
    return "".join(lines(study.columns, study.observations(), study.amendments(), kind)).encode()


def spooled(study: Study, kind: str) -> IO[bytes]:
    """The same as a CSV or JSON file to be read once; only a small part of it is in memory."""

    def work(ledger: Ledger, connection: Connection) -> IO[bytes]:
        row = ledger.row(connection)
        rows = observations(log(ledger, connection), row, ledger)
        amendments = [shown_amendment(each) for each in ledger.amendments_now(connection)]
        file: IO[bytes] = SpooledTemporaryFile(max_size=SMALL)  # noqa: SIM115 - whoever reads it closes it
        for line in lines(study.columns, rows, amendments, kind):
            file.write(line.encode())
        file.seek(0)
        return file

    from cabai.study.amending import shown_amendment
    from cabai.study.observed import observations

    found: IO[bytes] = study._read(work)
    return found


def log(ledger: Ledger, connection: Connection) -> Iterator[Any]:
    """Everything that was told, in the order of telling, read in small parts."""
    from cabai.study import damage, statements

    (text, given), made = statements.LOG.spelt(connection.kind, ledger.of), statements.LOG.row_type._make
    for rows in connection.stream(text, given(ledger.of), AT_A_TIME):
        some = list(map(made, rows))
        with ledger.reading():
            damage.check_log(some, ledger.settings)
        yield from some


def lines(
    columns: Sequence[str], rows: Iterable[dict[str, Any]], amendments: Sequence[dict[str, Any]], kind: str
) -> Iterator[str]:
    """The content of a CSV or JSON file, a row at a time; JSON has the amendments too."""
    if kind == "csv":
        yield csv_line(columns)
        for row in rows:
            yield csv_line([plain_text(row[name]) for name in columns])
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


def plain_text(value: Any) -> Any:
    """A value for a CSV cell: spreadsheets would run a string that begins like a formula."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r", "\n")) else value
