"""Threads of one process that change the same study at the same time: the first makes the changes of all that wait, in
one transaction. So one lock, one read of the state and one commit serve many."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from cabai.study import turns
from cabai.study.change import Change
from cabai.study.connections import Connection
from cabai.study.current import Current
from cabai.study.database import Storage
from cabai.study.items_change import ItemsChange
from cabai.study.ledger import Ledger
from cabai.study.turns import Turn

MOST = 64  # calls in one transaction: other processes wait for it


@dataclass(eq=False)
class Call:
    """What one thread wants to be done; `number` is the first pull that it tells."""

    work: Callable[[Change], Any]
    number: int | None
    process: int = field(default_factory=lambda: turns.process)
    since: float = field(default_factory=time.monotonic)
    alone: bool = False  # whether it changes what the study is about, so that no other can share its transaction
    is_open: bool = True  # until it is done, or its thread has given up
    result: Any = None


class Together:
    """The changes to one study by the threads of this process, each done once, in the order in which they came."""

    def __init__(self, storage: Storage, current: Current) -> None:
        self.storage, self.current = storage, current
        self.turn, self.calls = Turn(), deque[Call]()

    def do(self, work: Callable[[Change], Any], number: int | None = None, *, alone: bool = False) -> Any:
        """Get it done, by this thread or another; it is on disk when this returns."""
        call = Call(work, number, alone=alone)
        self.calls.append(call)
        try:
            with self.turn:
                if call.is_open:
                    self._lead(call)
        finally:
            call.is_open = False
        return call.result

    def _lead(self, call: Call) -> None:
        """Make this thread's change and those of waiting threads. If that fails, for whatever reason, none of it has
        been done: then this thread goes alone, and each of the others leads when its turn comes."""
        calls = [call]
        try:
            results = self._written(calls, alone=call.alone)
        except Exception:
            if len(calls) == 1:
                raise
            del calls[1:]
            results = self._written(calls, alone=True)
        for each, result in zip(calls, results, strict=True):
            each.result, each.is_open = result, False

    def _written(self, calls: list[Call], *, alone: bool) -> list[Any]:
        """What the calls return, in one transaction; unless it is to be `alone`, others join the first."""
        call = calls[0]

        def work(ledger: Ledger, connection: Connection) -> list[Any]:
            change = change_of(ledger, connection, call.number)
            if not alone:
                calls.extend(self._others(call, MOST - len(calls)))  # now that the lock is held: more may have come
            results = [each.work(change) for each in calls]
            change.save()
            return results

        return self.current.do(lambda ledger: self.storage.write(partial(work, ledger), since=call.since))

    def _others(self, leader: Call, most: int) -> Iterator[Call]:
        """The calls of other threads that wait; not those that a parent's threads left behind when it forked."""
        while most > 0 and self.calls:
            call = self.calls.popleft()
            if call.is_open and call is not leader and call.process == leader.process and not call.alone:
                most -= 1
                yield call


def change_of(ledger: Ledger, connection: Connection, number: int | None) -> Change:
    """A transaction on a study, of the kind that it needs."""
    kind = Change if ledger.settings.items is None else ItemsChange
    return kind(ledger, connection, number)
