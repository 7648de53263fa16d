"""A database that others have changed: one sentence says so, in Python and in the shell, and nothing is made of it.
Snapshots are only a cache: whatever happens to them, nothing changes but time."""

from __future__ import annotations

import contextlib
import json
import random
import sqlite3

import pytest

import cabai
from cabai.study import service
from combinations import covering
from shell import here
from storages import looked
from studies import new, reloaded, start, tables
from workers import check_log, check_replay, stored

DEEP = "[" * 100_000
RECIPE, EVENT = "UPDATE cabai_study SET recipe =", "UPDATE cabai_event SET"
ASK, TELL, LAST = "WHERE place = 1", "WHERE place = 2", "WHERE place = 9"  # of the first pull; the ask under way
NEW = "INSERT INTO cabai_event (study, place, kind, time, pull, arm, reward, cost, words) VALUES (STUDY, 10,"

DAMAGES = [
    (f"{RECIPE} ''", "is damaged: "),
    (f"{RECIPE} '[]'", "its settings are not a JSON object"),
    (f"{RECIPE} '{{}}'", "'family'"),
    (f"{RECIPE} '{DEEP}'", "is damaged: "),
    (f"{RECIPE} replace(recipe, '\"delta\": 0.05', '\"delta\": 7')", "delta must lie strictly between"),
    (f"{RECIPE} replace(recipe, '\"delta\": 0.05', '\"delta\": \"x\"')", "delta must be"),
    (f"{RECIPE} replace(recipe, 'bernoulli', 'bernouli')", "unknown family 'bernouli'"),
    (f"{RECIPE} replace(recipe, '[\"a\", ', '[')", "arm = 2"),
    (f"{RECIPE} replace(recipe, '\"lease\"', '\"least\"')", "least"),
    (f"{EVENT} kind = 'bored' {ASK}", "bored"),
    (f"{EVENT} kind = 'ask' {TELL}", "is damaged: "),
    (f"{EVENT} kind = 'offer' {ASK}", "is damaged: "),
    (f"{EVENT} kind = 'renew' {ASK}", "is damaged: "),
    (f"{EVENT} kind = 'withdraw' {ASK}", "is damaged: "),
    (f"{EVENT} kind = 'amend' {ASK}", "is damaged: "),
    (f"{EVENT} time = 'never' {ASK}", "its event 1 (ask) has time = 'never'"),
    (f"{EVENT} time = 9e999 {ASK}", "its event 1 (ask) has time = inf"),
    (f"{EVENT} arm = 99 {ASK}", "its event 1 (ask) has arm = 99"),
    (f"{EVENT} arm = -1 {ASK}", "its event 1 (ask) has arm = -1"),
    (f"{EVENT} arm = NULL {ASK}", "its event 1 (ask) has arm = None"),
    (f"{EVENT} arm = 99 {LAST}", "its event 9 (ask) has arm = 99"),
    (f"{EVENT} arm = 99 {TELL}", "its event 2 (tell) has arm = 99"),
    (f"{EVENT} arm = 1 {TELL}", "is damaged: "),
    (f"{EVENT} pull = 7 {ASK}", "is damaged: "),
    (f"{EVENT} pull = 1 {LAST}", "is damaged: "),
    (f"{EVENT} pull = 99 {LAST}", "is damaged: "),
    (f"{EVENT} pull = 7 {TELL}", "is damaged: "),
    (f"{EVENT} pull = NULL {ASK}", "pull = None"),
    (f"{EVENT} item = 3 {ASK}", "item = 3"),
    (f"{EVENT} reward = 'x' {TELL}", "reward = 'x'"),
    (f"{EVENT} reward = 0.5 {TELL}", "reward = 0.5"),
    (f"{EVENT} reward = 9e999 {TELL}", "reward = inf"),
    (f"{EVENT} reward = NULL {TELL}", "reward = None"),
    (f"{EVENT} words = 'no luck' {TELL}", "words = 'no luck'"),
    (f"{EVENT} cost = -1 {TELL}", "cost = -1.0"),
    (f"{EVENT} cost = 'much' {TELL}", "cost = 'much'"),
    (f"{EVENT} cost = NULL {TELL}", "cost = None"),
    ("DELETE FROM cabai_event WHERE place = 1", "its log has event 2 after event 0"),
    ("DELETE FROM cabai_event WHERE place = 3", "its log has event 4 after event 2"),
    (f"{EVENT} place = 17 {LAST}", "its log has event 17 after event 8"),
    (f"{NEW} 'tell', 5.0, 99, 0, 1.0, 1.0, NULL)", "is damaged: "),
    (f"{NEW} 'stop', 5.0, NULL, 99, 0.5, NULL, 'max_cost')", "is damaged: "),
    (f"{NEW} 'stop', 5.0, NULL, -1, 0.95, NULL, 'evidence')", "is damaged: "),
    (f"{NEW} 'stop', 5.0, NULL, NULL, 0.95, NULL, 'evidence')", "is damaged: "),
    (f"{NEW} 'stop', 5.0, NULL, 0, 0.5, NULL, 'bored')", "is damaged: "),
    (f"{NEW} 'stop', 5.0, NULL, 0, 7.0, NULL, 'evidence')", "is damaged: "),
    (f"{NEW} 'stop', 5.0, NULL, 0, 'x', NULL, 'max_cost')", "is damaged: "),
    (f"{NEW} 'amend', 5.0, NULL, NULL, NULL, NULL, NULL)", "is damaged: "),
    (f"{NEW} 'amend', 5.0, NULL, NULL, NULL, NULL, 'x')", "is damaged: "),
    (f"{NEW} 'amend', 5.0, NULL, NULL, NULL, NULL, '[]')", "is damaged: "),
    (f"{NEW} 'amend', 5.0, NULL, NULL, NULL, NULL, '{{\"max_pulls\": 3}}')", "is damaged: "),
    (f"{NEW} 'amend', 5.0, NULL, NULL, NULL, NULL, '{{\"max_pulls\": [null, -3]}}')", "is damaged: "),
    (f"{NEW} 'amend', 5.0, NULL, NULL, NULL, NULL, '{{\"delta\": [0.05, 0.9]}}')", "is damaged: "),
    (f"{NEW} 'amend', 5.0, NULL, NULL, NULL, NULL, '{{\"nonsense\": [1, 2]}}')", "is damaged: "),
    (f"{NEW} 'amend', 5.0, NULL, NULL, NULL, NULL, '{{\"dropped\": [[], [\"z\"]]}}')", "is damaged: "),
    (f"{NEW} 'counts', 5.0, 6, NULL, NULL, NULL, NULL)", "is damaged: "),
    (f"{NEW} 'counts', 5.0, 6, NULL, NULL, NULL, '[[')", "is damaged: "),
    (f"{NEW} 'counts', 5.0, 6, NULL, NULL, NULL, '{DEEP}')", "is damaged: "),
    (f"{NEW} 'counts', 5.0, 6, NULL, NULL, NULL, '[[9, 5, 1.0, 1.0]]')", "is damaged: "),
    (f"{NEW} 'counts', 5.0, 6, NULL, NULL, NULL, '[[0, 0, 0.0, 1.0]]')", "is damaged: "),
    (f"{NEW} 'counts', 5.0, 6, NULL, NULL, NULL, '[[0, 5, 9.0, 1.0]]')", "is damaged: "),
    (f"{NEW} 'counts', 5.0, 6, NULL, NULL, NULL, '[[0, 5, NaN, 1.0]]')", "is damaged: "),
    (f"{NEW} 'counts', 5.0, 6, NULL, NULL, NULL, '[[0, 5, 1.0, -1.0]]')", "is damaged: "),
]  # fmt: skip


def change(study, statement: str) -> None:
    """Change what is stored, of this study only."""
    mine = study._row.id
    if not statement.startswith("INSERT"):
        key = "id" if statement.startswith(RECIPE) else "study"
        statement += f" {'AND' if 'WHERE' in statement else 'WHERE'} {key} = {mine}"
    looked(study._storage, statement.replace("STUDY", str(mine)))


def damaged(statement: str):
    """A study of three arms with four pulls told and one under way, and then that."""
    study = new()
    start(study, [1, 0, 1, 1])
    pull = study.ask()
    change(study, statement)
    return study, pull


@pytest.mark.parametrize(("statement", "message"), DAMAGES, ids=lambda text: text[:80])
def test_a_damaged_study_is_refused_in_one_sentence_and_left_as_it_is(statement, message):
    study, pull = damaged(statement)
    before = tables(study)
    try:
        calls = [lambda study: study.status(), lambda study: study.ask(), lambda study: study.tell(pull, 1, 1.0), str,
                 lambda study: study.observations(), lambda study: study.events(),
                 lambda study: study.release(pull)]  # fmt: skip
        for call in calls:
            with pytest.raises(cabai.StorageError) as refused:
                call(reloaded(study))
            said = str(refused.value)
            assert said.startswith(f"the study {study.name!r} in memory is damaged: ")
            assert message in said
            assert "\n" not in said
            assert len(said) < 700
        assert tables(study) == before
    finally:
        cabai.delete_study(study.name, storage="memory")


@pytest.mark.parametrize(
    ("change_", "message"),
    [("item = 99", "item = 99"), ("item = -1", "item = -1"), ("item = NULL", "item = None"),
     ("item = 'x'", "item = 'x'"), ("reward = 7", "reward = 7")],
)  # fmt: skip
def test_a_damaged_race_is_refused(change_, message):
    study = new(items=9, family=None, policy="top-two")
    start(study, [1, 0, 1, 1])
    change(study, f"{EVENT} {change_} {TELL}")
    with pytest.raises(cabai.StorageError, match=rf"is damaged: its event 2 \(tell\) has .*{message}"):
        reloaded(study).status()
    cabai.delete_study(study.name, storage="memory")


@pytest.mark.parametrize(
    ("change_", "message"),
    [("arm = 99", "arm = 99"), ("arm = -1", "arm = -1"), ("reward = 'x'", "reward = 'x'"), ("cost = -1", "cost = -1.0"),
     ("words = 'x'", "words = 'x'"), ("time = 'x'", "time = 'x'")],
)  # fmt: skip
def test_a_damaged_log_is_not_exported(change_, message):
    """Also where it is damaged before the snapshot, so that nobody has read it again."""
    study = new()
    start(study, [1, 0] * 40)
    change(study, f"{EVENT} {change_} {TELL}")
    for call in (lambda study: study.observations(), lambda study: study.events()):
        with pytest.raises(cabai.StorageError, match=f"the study {study.name!r} in memory is damaged: .*{message}"):
            call(reloaded(study))
    cabai.delete_study(study.name, storage="memory")


def test_the_shell_says_so_in_one_line_and_still_lists_the_others(tmp_path):
    storage = f"sqlite:///{tmp_path}/cabai.db"
    for name in ("first", "second", "third"):
        study = cabai.create_study(name, arms=["a", "b"], family="bernoulli", storage=storage)
    pull = study.ask()
    with contextlib.closing(sqlite3.connect(tmp_path / "cabai.db")) as connection:
        connection.execute("UPDATE cabai_study SET recipe = '{}' WHERE name = 'second'")
        connection.execute("UPDATE cabai_event SET arm = 99")
        connection.commit()
    for arguments in (["status", "third"], ["ask", "second"], ["export", "second"], ["status", "second", "--json"],
                      ["tell", "third", pull.id, "--reward", "1", "--cost", "1"], ["log", "third"],
                      ["log", "second"]):  # fmt: skip
        done = here("study", *arguments, cwd=tmp_path)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
        assert f"the study '{arguments[1]}' in sqlite:///cabai.db is damaged: " in done.stderr
    listed = here("study", "list", cwd=tmp_path)
    assert (listed.returncode, listed.stdout) == (1, "first: Nothing observed yet.\n")
    assert "'second' in sqlite:///cabai.db is damaged: " in listed.stderr
    assert "'third' in sqlite:///cabai.db is damaged: its event 1 (ask) has arm = 99, pull = 1." in listed.stderr
    assert listed.stderr.count("\n") == 1
    listed = here("study", "list", "--json", cwd=tmp_path)
    assert [study["name"] for study in json.loads(listed.stdout)["studies"]] == ["first"]
    assert here("study", "delete", "second", "--yes", cwd=tmp_path).returncode == 0
    assert here("study", "delete", "third", "--yes", cwd=tmp_path).returncode == 0
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
    found, damaged = service.overview(storage)
    assert [status.name for status in found] == ["second"]
    assert len(damaged) == 1
    assert "Could not decode to UTF-8" in damaged[0]
    listed, wrong = service.listed(storage, {})
    assert [each.name for _, each in listed.values()] == ["second"]
    assert len(wrong) == 1


# Snapshots


GARBAGE = {
    "deleted": "DELETE FROM cabai_snapshot",
    "empty": "UPDATE cabai_snapshot SET state = ''",
    "truncated": "UPDATE cabai_snapshot SET state = substr(state, 1, length(state) / 2)",
    "one letter": "UPDATE cabai_snapshot SET state = substr(state, 1, 999) || '7' || substr(state, 1001)",
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
