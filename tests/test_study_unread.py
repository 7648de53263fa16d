"""What a process knows of a study in SQLite is not read again, and whatever others have written is noticed."""

from __future__ import annotations

import contextlib
import random
import sqlite3
from typing import Any

import pytest

import cabai
from cabai.study import Study, create_study, load_study, statements, transactions
from cabai.study.change import Result
from cabai.study.together import change_of
from storages import before_commits
from workers import check_log

pytestmark = pytest.mark.filterwarnings("ignore::cabai.FailedPulls")


class Broken(Exception):
    """A transaction that fails as it is about to be committed."""


def new(folder: Any, name: str = "study", **options: Any) -> Study:
    usual = {"arms": ["a", "b", "c"], "family": "bernoulli", "delta": 1e-9, "storage": f"sqlite:///{folder}/cabai.db"}
    return create_study(name, **usual | options)


def told(study: Study, count: int = 3) -> None:
    for _ in range(count):
        study.tell(study.ask(), 1, cost=1.0)


def in_words(study: Study, work: Any) -> list[str]:
    """The first word of each statement that is said to the database meanwhile."""
    said: list[str] = []
    study._storage.writer.driver.set_trace_callback(lambda text: said.append(text.split()[0]))
    try:
        work()
    finally:
        study._storage.writer.driver.set_trace_callback(None)
    return said


def check_known(study: Study) -> bool:
    """Whether the study's row and pulls are known to be as they were left; then they are."""
    ledger, known = study._ledger, study._ledger._known

    def work(connection: Any) -> bool:
        if known is None or known.mark != connection.mark():
            return False
        row = statements.LOCKED_STUDY.row(connection, {**ledger.found_by(), "of_revision": -1})
        assert known.row._replace(now=None) == row._replace(now=None)
        if known.pulls is not None:
            pulls = statements.PULLS.rows(connection, ledger.of)
            assert known.pulls == {pull.number: pull for pull in pulls}
            assert list(known.pulls) == [pull.number for pull in pulls]
        return True

    found: bool = study._storage.write(work)
    return found


def test_a_single_worker_reads_nothing(folder):
    study = new(folder)
    told(study)
    asked = in_words(study, study.ask)
    assert asked == ["BEGIN", "PRAGMA", "INSERT", "UPDATE", "COMMIT"]
    pull = study.ask()
    assert in_words(study, lambda: study.tell(pull, 1, cost=1.0))[:3] == ["BEGIN", "PRAGMA", "DELETE"]


def by_sql(study: Study, text: str) -> None:
    with contextlib.closing(sqlite3.connect(study._storage.file, timeout=60)) as connection, connection:
        connection.execute(text)


OTHERS = {
    "another handle of this process": lambda study: told(load_study(study.name, storage=study.storage)),
    "another study in the same file": lambda study: told(
        create_study("other", arms=["a", "b"], family="bernoulli", storage=study.storage)
    ),
    "another connection": lambda study: by_sql(study, "UPDATE cabai_study SET created = created - 1"),
    "a lease": lambda study: study.release(study.ask()),
    "an amendment": lambda study: study.amend(lease=17.0),
}


@pytest.mark.parametrize("other", OTHERS)
def test_whatever_others_write_is_noticed(folder, other):
    study = new(folder)
    told(study)
    assert check_known(study)
    OTHERS[other](study)
    said = in_words(study, lambda: study.ask())
    assert "SELECT" in said
    check_log(study, {})
    assert check_known(study)


@pytest.mark.parametrize("where", ["file", "memory"])
def test_a_transaction_that_was_undone_is_not_taken_for_known(folder, where):
    """As its commit begins, the process knows what it is about to leave: which never comes to be."""
    study = new(folder) if where == "file" else new(folder, storage="memory", load_if_exists=True)
    told(study)
    breaks = [True]

    def fail(connection: Any) -> None:
        if breaks:
            raise Broken

    commit = study._storage.commit
    before_commits(study._storage, fail)
    with pytest.raises(Broken):
        study.ask()
    breaks.clear()
    pull = study.ask()
    study._storage.commit = commit
    assert pull.number == 4
    study.tell(pull, 1, cost=1.0)
    assert check_known(study)
    check_log(study, {})


@pytest.mark.parametrize("column", ["asked = 10", "told = -1", "stopped = 'x'", "through = 99"])
def test_damage_done_by_hand_is_refused_at_once(folder, column):
    """Although the number of the revision is the same as before."""
    study = new(folder)
    told(study)
    by_sql(study, f"UPDATE cabai_study SET {column}")
    with pytest.raises(cabai.StorageError, match="is damaged") if column != "asked = 10" else contextlib.nullcontext():
        pull = study.ask()
        assert pull.number == 11


@pytest.mark.parametrize("where", ["file", "memory"])
@pytest.mark.parametrize("how", ["limit", "drop", "join"])
def test_nobody_goes_on_with_settings_that_were_amended(folder, monkeypatch, where, how):
    """Ctrl-C comes when the amendment is stored and before the handle has read it; or another thread is quicker."""
    storage = {"storage": "memory"} if where == "memory" else {}
    study = new(folder, delta=0.1, reserve=0.01 if how == "join" else None, name=f"{where} {how}", **storage)
    told(study)
    with monkeypatch.context() as patched:
        patched.setattr(study, "_read", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            {"limit": lambda: study.amend(max_pulls=5), "drop": lambda: study.drop("c"),
             "join": lambda: study.add_arm("d")}[how]()  # fmt: skip
    if how == "limit":
        told(study, 2)
        with pytest.raises(cabai.StudyStopped):
            study.ask()
    elif how == "join":
        assert study.ask().arm == "d"
    else:
        study.run(lambda arm: (float(arm == "a"), 1.0))
        assert study._read(lambda ledger, connection: ledger.row(connection)).confidence == pytest.approx(0.8)


@pytest.mark.parametrize("where", ["file", "memory"])
def test_a_pull_cannot_be_told_in_the_transaction_that_hands_it_out(folder, where):
    """Somebody has the id of a pull from before the file was restored from a copy."""
    study = new(folder, **{"storage": "memory", "name": "guessed"} if where == "memory" else {})
    told(study)
    before = study.status().to_dict()

    def work(connection: Any) -> None:
        change = change_of(study._ledger, connection, None)
        [pull], _, _ = transactions.ask(change, 1, None)
        transactions.tell(change, [Result(pull.number, 1.0, 1.0)])

    with pytest.raises(cabai.InvalidInput, match="has handed out no pull"):
        study._storage.write(work)
    assert study.status().to_dict() == before
    told(study)
    check_log(study, {})


@pytest.mark.parametrize("seed", range(6))
def test_what_is_known_is_what_is_stored(folder, clock, seed):
    """Two handles of one study in one process, and whatever can happen to it, in any order."""
    chance, options = random.Random(seed), [{}, {"on_lapse": "fail"}, {"max_pulls": 60}, {"policy": "racing"}][seed % 4]
    first = new(folder, lease=20.0, seed=seed, **options)
    handles = [first, load_study("study", storage=first.storage)]
    held: list[cabai.Pull] = []
    breaks = [False]
    hits = 0

    def fail(_: Any) -> None:
        if breaks[0]:
            raise Broken

    before_commits(first._storage, fail)
    for _ in range(150):
        study = handles[0] if chance.random() < 0.8 else handles[1]
        breaks[0] = chance.random() < 0.1
        event = chance.random()
        try:
            if not held or event < 0.35:
                held += study.ask(chance.choice([1, 1, 4]), request=chance.choice([None, None, "again"]))
            elif event < 0.8:
                pull = chance.choice(held)
                what = {"failed": "no luck"} if chance.random() < 0.1 else {"reward": float(chance.random() < 0.5)}
                study.tell(pull, cost=chance.choice([0.5, 1.0]), **what)
                held.remove(pull)
            elif event < 0.85:
                study.release(chance.choice(held))
            elif event < 0.9:
                study.renew(chance.choice(held))
            elif event < 0.95:
                clock.now += 30.0
            elif event < 0.98:
                study.amend(lease=chance.choice([19.0, 20.0, 21.0]))
            else:
                by_sql(study, "UPDATE cabai_study SET created = created - 1")
        except (cabai.NoPull, cabai.AlreadyTold, cabai.LostPull, Broken):
            pass
        except cabai.StudyStopped:
            break
        breaks[0] = False
        clock.now += 0.1
        hits += sum(check_known(each) for each in handles)
    assert hits > 30
    if not options:
        check_log(first, {})
