"""A database that others have changed: one sentence says so, in Python and in the shell, and nothing is made of it.
Snapshots are only a cache: whatever happens to them, nothing changes but time."""

from __future__ import annotations

import contextlib
import json
import random
import sqlite3
from pathlib import Path
from typing import Any

import psycopg
import pytest

import cabai
import shell
from cabai.study import catalogue
from combinations import covering
from shell import here
from storages import BOTH, looked
from studies import new, refused, reloaded, start
from workers import check_log, check_replay, stored

DEEP = "[" * 100_000
RECIPE, EVENT = "UPDATE cabai_study SET recipe =", "UPDATE cabai_event SET"
ASK, TELL, LAST = "WHERE place = 1", "WHERE place = 2", "WHERE place = 9"  # of the first pull; the ask under way
NEW = "INSERT INTO cabai_event (study, place, kind, time, pull, arm, reward, cost, words) VALUES (STUDY, 10,"

DAMAGES = [
    (f"{RECIPE} ''", "is damaged: "),
    (f"{RECIPE} '{{}}'", "'family'"),
    (f"{RECIPE} '{DEEP}'", "is damaged: "),
    (f"{RECIPE} replace(recipe, '\"delta\": 0.05', '\"delta\": 7')", "delta must lie strictly between"),
    (f"{RECIPE} replace(recipe, 'bernoulli', 'bernouli')", "unknown family 'bernouli'"),
    (f"{RECIPE} replace(recipe, '[\"a\", ', '[')", "arm = 2"),
    (f"{EVENT} kind = 'bored' {ASK}", "bored"),
    (f"{EVENT} kind = 'ask' {TELL}", "is damaged: "),
    (f"{EVENT} kind = 'offer' {ASK}", "is damaged: "),
    (f"{EVENT} time = 'never' {ASK}", "its event 1 (ask) has time = 'never'"),
    (f"{EVENT} arm = 99 {ASK}", "its event 1 (ask) has arm = 99"),
    (f"{EVENT} arm = 99 {TELL}", "its event 2 (tell) has arm = 99"),
    (f"{EVENT} pull = 7 {ASK}", "is damaged: "),
    (f"{EVENT} pull = NULL {ASK}", "pull = None"),
    (f"{EVENT} item = 3 {ASK}", "item = 3"),
    (f"{EVENT} reward = 'x' {TELL}", "reward = 'x'"),
    (f"{EVENT} reward = 0.5 {TELL}", "reward = 0.5"),
    (f"{EVENT} reward = NULL {TELL}", "reward = None"),
    (f"{EVENT} words = 'no luck' {TELL}", "words = 'no luck'"),
    (f"{EVENT} cost = -1 {TELL}", "cost = -1.0"),
    (f"{EVENT} cost = NULL {TELL}", "cost = None"),
    ("DELETE FROM cabai_event WHERE place = 1", "its log has event 2 after event 0"),
    (f"{EVENT} place = 17 {LAST}", "its log has event 17 after event 8"),
    (f"{NEW} 'tell', 5.0, 99, 0, 1.0, 1.0, NULL)", "is damaged: "),
    (f"{NEW} 'stop', 5.0, NULL, 99, 0.5, NULL, 'max_cost')", "is damaged: "),
    (f"{NEW} 'stop', 5.0, NULL, 0, 0.5, NULL, 'bored')", "is damaged: "),
    (f"{NEW} 'amend', 5.0, NULL, NULL, NULL, NULL, NULL)", "is damaged: "),
    (f"{NEW} 'amend', 5.0, NULL, NULL, NULL, NULL, '{{\"max_pulls\": [null, -3]}}')", "is damaged: "),
    (f"{NEW} 'amend', 5.0, NULL, NULL, NULL, NULL, '{{\"delta\": [0.05, 0.9]}}')", "is damaged: "),
    (f"{NEW} 'amend', 5.0, NULL, NULL, NULL, NULL, '{{\"nonsense\": [1, 2]}}')", "is damaged: "),
    (f"{NEW} 'counts', 5.0, 6, NULL, NULL, NULL, '[[')", "is damaged: "),
    (f"{NEW} 'counts', 5.0, 6, NULL, NULL, NULL, '{DEEP}')", "is damaged: "),
    (f"{NEW} 'counts', 5.0, 6, NULL, NULL, NULL, '[[0, 0, 0.0, 1.0]]')", "is damaged: "),
    (f"{NEW} 'counts', 5.0, 6, NULL, NULL, NULL, '[[0, 5, 1.0, -1.0]]')", "is damaged: "),
]  # fmt: skip


def change(study, statement: str) -> None:
    """Change what is stored, of this study only."""
    mine = study._row.id
    if not statement.startswith("INSERT"):
        key = "id" if statement.startswith(RECIPE) else "study"
        statement += f" {'AND' if 'WHERE' in statement else 'WHERE'} {key} = {mine}"
    looked(study._storage, statement.replace("STUDY", str(mine)))


@pytest.mark.parametrize(("statement", "message"), DAMAGES, ids=lambda text: text[:80])
def test_a_damaged_study_is_refused_in_one_sentence_and_left_as_it_is(statement, message):
    study = new()
    start(study, [1, 0, 1, 1])
    pull = study.ask()
    change(study, statement)
    calls = [lambda study: study.status(), lambda study: study.ask(), lambda study: study.tell(pull, 1, 1.0), str,
             lambda study: study.observations(), lambda study: study.events(),
             lambda study: study.release(pull)]  # fmt: skip
    for call in calls:
        with refused(study, error=cabai.StorageError) as found:
            call(reloaded(study))
        said = str(found.value)
        assert said.startswith(f"the study {study.name!r} in memory is damaged: ")
        assert message in said
        assert "\n" not in said
        assert len(said) < 700
    cabai.delete_study(study.name, storage="memory")


@pytest.mark.parametrize(("items", "how", "message"), [
    (9, "item = 99", "item = 99"), (9, "item = NULL", "item = None"), (9, "reward = 7", "reward = 7"),
    (None, "arm = 99", "arm = 99"), (None, "cost = -1", "cost = -1.0"), (None, "time = 'x'", "time = 'x'"),
])  # fmt: skip
def test_a_damaged_race_is_refused_and_a_damaged_log_is_not_exported(items, how, message):
    """The log also where it is damaged before the snapshot, so that nobody has read it again."""
    study = new(**({} if items is None else {"items": items, "family": None, "policy": "top-two"}))
    start(study, [1, 0] * (40 if items is None else 2))
    change(study, f"{EVENT} {how} {TELL}")
    calls = [lambda study: study.observations(), lambda study: study.events()]
    for call in calls if items is None else [lambda study: study.status()]:
        with pytest.raises(cabai.StorageError, match=f"the study {study.name!r} in memory is damaged: .*{message}"):
            call(reloaded(study))
    cabai.delete_study(study.name, storage="memory")


def test_the_shell_says_so_in_one_line_and_still_lists_the_others(tmp_path):
    storage = f"sqlite:///{tmp_path}/cabai.db"
    for name in ("first", "second", "third"):
        study = cabai.create_study(name, arms=["a", "b"], family="bernoulli", storage=storage)
    pull = study.ask()
    looked(study._storage, "UPDATE cabai_study SET recipe = '{}' WHERE name = 'second'")
    looked(study._storage, "UPDATE cabai_event SET arm = 99")
    tell = f"tell third {pull.id} --reward 1 --cost 1"
    for command in ("status third", "ask second", "export second", "status second --json", tell, "log third"):
        said = shell.refused("study", *command.split(), code=1, cwd=tmp_path)
        assert f"the study '{command.split()[1]}' in sqlite:///cabai.db is damaged: " in said
    listed = here("study", "list", cwd=tmp_path)
    assert (listed.returncode, listed.stdout) == (1, "first: Nothing observed yet.\n")
    assert "'second' in sqlite:///cabai.db is damaged: " in listed.stderr
    assert "'third' in sqlite:///cabai.db is damaged: its event 1 (ask) has arm = 99." in listed.stderr
    assert listed.stderr.count("\n") == 1
    listed = here("study", "list", "--json", cwd=tmp_path)
    assert [study["name"] for study in json.loads(listed.stdout)["studies"]] == ["first"]
    for name in ("second", "third"):
        assert here("study", "delete", name, "--yes", cwd=tmp_path).returncode == 0
    assert here("study", "list", cwd=tmp_path).returncode == 0


@pytest.mark.parametrize("what", ["cabai_study SET recipe", "cabai_event SET worker"])
def test_what_the_database_itself_cannot_read_hides_no_other_study(folder, what):
    storage = f"sqlite:///{folder}/cabai.db"
    for name in ("first", "second"):
        study = cabai.create_study(name, arms=["a", "b"], family="bernoulli", storage=storage)
        study.ask()
    key = "study" if "event" in what else "id"
    mine = "(SELECT id FROM cabai_study WHERE name = 'first')"
    looked(study._storage, f"UPDATE {what} = CAST(X'FF' AS TEXT) WHERE {key} = {mine}")
    found, damaged = catalogue.every("status", storage)
    assert [status.name for _, status in found.values()] == ["second"]
    assert len(damaged) == 1
    assert "Could not decode to UTF-8" in damaged[0]
    listed, wrong = catalogue.every("listed", storage)
    assert [each["name"] for _, each in listed.values()] == ["second"]
    assert len(wrong) == 1


GARBAGE = {
    "deleted": "DELETE FROM cabai_snapshot",
    "empty": "UPDATE cabai_snapshot SET state = ''",
    "truncated": "UPDATE cabai_snapshot SET state = substr(state, 1, length(state) / 2)",
    "one letter": "UPDATE cabai_snapshot SET state = substr(state, 1, 999) || '7' || substr(state, 1001)",
    "another number": """UPDATE cabai_snapshot SET state = replace(state, '"asked": ', '"asked": 1')""",
    "no JSON": "UPDATE cabai_snapshot SET state = 'nonsense'",
    "deep": f"UPDATE cabai_snapshot SET state = '{DEEP}'",
    "no text": "UPDATE cabai_snapshot SET state = X'FF00FF'",
    "no UTF-8": "UPDATE cabai_snapshot SET state = CAST(X'FF' AS TEXT)",
    "another place": "UPDATE cabai_snapshot SET place = place + 1",
    "beyond the end": "UPDATE cabai_snapshot SET place = 1000000",
    "another version": "UPDATE cabai_snapshot SET version = 'x'",
}


@pytest.mark.parametrize(("how", "items"), covering(GARBAGE, [None, 200]))
def test_whatever_happens_to_a_snapshot_changes_nothing(folder, how, items):
    options = {"family": "bernoulli"} if items is None else {"items": items, "seed": 4}
    chance, told = random.Random(3), {}
    study = cabai.create_study("study", arms=["a", "b", "c"], delta=1e-9, storage=f"sqlite:///{folder}/cabai.db",
                               **options)  # fmt: skip
    for turn in range(120):
        pull, reward = study.ask(), float(chance.random() < 0.5)
        study.tell(pull, reward, cost=1.0)
        told[pull.id] = (reward, 1.0, None)
        if turn % 40 == 39:
            assert looked(study._storage, "SELECT count(*) FROM cabai_snapshot") == [(1,)]
            before = study.status()
            looked(study._storage, GARBAGE[how])
            study = cabai.load_study("study", storage=study.storage)
            assert study.status() == before
    if items is None:
        check_log(study, told)
        check_replay(study)
    assert len(stored(study)) == 240


# Stores of another version of the tables are refused in one sentence, and left as they were


EARLIER = json.loads((Path(__file__).parent / "stores" / "0007.json").read_text())
TYPES = {int: "BIGINT", float: "DOUBLE PRECISION", str: "TEXT", type(None): "TEXT"}
REFUSED = (
    "was made by another version of cabai: export its studies with that version, and import them here. Nothing was "
    "changed."
)


def connect(url: str) -> Any:
    """Without cabai."""
    if url.startswith("postgresql"):
        return contextlib.closing(psycopg.connect(url))
    driver = sqlite3.connect(url.removeprefix("sqlite:///"))
    driver.execute("PRAGMA journal_mode = WAL")  # as every version of cabai has it
    return contextlib.closing(driver)


def make(url: str, tables: dict[str, list[dict[str, Any]]]) -> None:
    mark = "%s" if url.startswith("postgresql") else "?"
    with connect(url) as connection:
        for name, rows in tables.items():
            columns = {column: {type(row[column]) for row in rows} - {type(None)} for column in rows[0]}
            kinds = {column: TYPES[(kinds or {type(None)}).pop()] for column, kinds in columns.items()}
            connection.execute(f"CREATE TABLE {name} ({', '.join(f'{each} {kinds[each]}' for each in kinds)})")
            marks = ", ".join([mark] * len(kinds))
            for row in rows:
                connection.execute(f"INSERT INTO {name} VALUES ({marks})", tuple(row.values()))
        connection.commit()


def as_it_is(url: str, folder: Path) -> Any:
    """Every byte of the files; of a server, every row of every table."""
    if not url.startswith("postgresql"):
        return {file.name: file.read_bytes() for file in folder.iterdir()}
    with connect(url) as connection:
        names = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        return {name: sorted(connection.execute(f"SELECT * FROM {name}").fetchall(), key=repr) for (name,) in names}


STORES = {
    "an earlier version": EARLIER["tables"] | {"cabai_version": [{"version_num": EARLIER["revision"]}]},
    "the first version": {"cabai_study": [{"id": 1, "name": "study"}]},
    "a newer version": {"cabai_tables": [{"version": 2}], "cabai_study": [{"id": 1, "name": "study"}]},
    "no version": {"cabai_tables": [{"version": 1}, {"version": 2}]},
    "nonsense": {"cabai_tables": [{"version": "one"}]},
}


@BOTH
@pytest.mark.parametrize("store", STORES)
def test_a_store_of_another_version_is_refused_and_left_as_it_was(url, folder, store):
    make(url, STORES[store])
    before = as_it_is(url, folder)
    for call in (
        lambda: cabai.list_studies(storage=url),
        lambda: cabai.load_study("decided", storage=url),
        lambda: cabai.create_study("new", arms=["a", "b"], family="bernoulli", storage=url),
        lambda: cabai.delete_study("decided", storage=url),
    ):
        with pytest.raises(cabai.StorageError) as refused:
            call()
        assert str(refused.value).endswith(f" {REFUSED}")
        assert str(refused.value).startswith(f"storage {url.partition('?')[0][:10]}")
        assert "\n" not in str(refused.value)
    assert as_it_is(url, folder) == before


@BOTH
def test_tables_of_others_are_left_alone(url, folder):
    """A database may have tables that have nothing to do with cabai."""
    make(url, {"study": [{"id": 1, "name": "mine"}], "event": [{"id": 1}]})
    study = cabai.create_study("study", arms=["a", "b"], family="bernoulli", storage=url)
    study.tell(study.ask(), 1, cost=1.0)
    assert cabai.load_study("study", storage=url).status().pulls == 1
    with connect(url) as connection:
        assert connection.execute("SELECT * FROM study").fetchall() == [(1, "mine")]
        assert connection.execute("SELECT * FROM event").fetchall() == [(1,)]
