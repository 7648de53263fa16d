"""What is stored of a study with items."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from cabai.study import damage, items_status, statements
from cabai.study.connections import Connection
from cabai.study.items_forecast import RaceState
from cabai.study.items_play import ItemsPlay
from cabai.study.ledger import Ledger
from cabai.study.status import Status


class ItemsLedger(Ledger):
    """The rows of a study with items. Its state is computed from the log, once; then from what is new in it."""

    _seen: ItemsPlay | None = None  # as it was last read

    def play_since(self, connection: Connection, row: Any, known: Any) -> Any:
        return self.caught_up(connection, row, known)

    def caught_up(self, connection: Connection, row: Any, known: ItemsPlay | None) -> ItemsPlay:
        """The state as it is stored: what is `known`, if it was stored, and what others have told since; else all."""
        arms = statements.ARMS.rows(connection, self.of)
        with self.reading():
            damage.check_arms(arms, self.settings, row.told)
        if known is not None and known.rows:
            last, *new = self.scores(connection, known.rows - 1) or [None]
            if last is not None and (last.number, last.told) == known.last:  # else it was never committed
                known.catch_up(arms, row.spent, new)
                return self.checked(known, row)
        play = ItemsPlay(self.settings)
        play.catch_up(arms, row.spent, self.scores(connection, 0))
        return self.checked(play, row)

    def scores(self, connection: Connection, after: int) -> Sequence[Any]:
        """What was told from a place of the log on."""
        found = statements.SCORES.rows(connection, {**self.of, "of_place": after})
        with self.reading():
            damage.check_scores(found, self.settings)
        return found

    def checked(self, play: ItemsPlay, row: Any) -> ItemsPlay:
        with self.reading():
            if play.rows != row.told:
                raise ValueError(f"its log has {play.rows} rows, but {row.told} were told")
            play.remember_stop(json.loads(row.memory))
        return play

    def look(self, connection: Connection) -> tuple[Status, Any]:
        row = self.row(connection)
        with self.looked_at(connection, row) as play:
            return items_status.status_of(row, play, self.pulls(connection)), RaceState.of(play)

    def all_scores(self, connection: Connection) -> Any:
        """Every score that is known, by arm and item."""
        with self.looked_at(connection, self.row(connection)) as play:
            return play.scores()

    @contextmanager
    def looked_at(self, connection: Connection, row: Any) -> Iterator[ItemsPlay]:
        """The state, for reading only; it is kept for the next reader, and never shared."""
        seen, self._seen = self._seen, None
        play = self.caught_up(connection, row, seen)
        yield play
        self._seen = play
