"""A database that others have changed: one sentence says so, in Python and in the shell, and nothing is made of it."""

from __future__ import annotations

import contextlib
import json
import sqlite3

import pytest

import cabai
from cabai.study.catalogue import statuses
from cabai.study.storage import open_storage
from shell import here
from studies import new, start, tables

STUDY, ARM, PULL, LOG = "UPDATE cabai_study SET", "UPDATE cabai_arm SET", "UPDATE cabai_pull SET", "cabai_observation"
DEEP = "[" * 100_000

DAMAGES = [
    (f"{STUDY} settings = ''", "is damaged: "),
    (f"{STUDY} settings = '[]'", "its settings are not a JSON object"),
    (f"{STUDY} settings = '{{}}'", "'arms'"),
    (f"{STUDY} settings = '{DEEP}'", "is damaged: "),
    (f"{STUDY} settings = replace(settings, '\"delta\": 0.05', '\"delta\": 7')", "delta must lie strictly between"),
    (f"{STUDY} settings = replace(settings, '\"delta\": 0.05', '\"delta\": \"x\"')", "delta must be"),
    (f"{STUDY} settings = replace(settings, 'bernoulli', 'bernouli')", "unknown family 'bernouli'"),
    (f"{STUDY} settings = replace(settings, '[\"a\", ', '[')", "its arms are"),
    (f"{STUDY} settings = replace(settings, '\"lease\"', '\"least\"')", "least"),
    (f"{STUDY} memory = ''", "is damaged: "),
    (f"{STUDY} memory = '[]'", "is damaged: "),
    (f"{STUDY} memory = '{DEEP}'", "is damaged: "),
    (f"{STUDY} memory = '{{\"run\": {{\"leader\": 99}}}}'", "is damaged: "),
    (f"{STUDY} memory = '{{\"run\": {{\"leader\": \"x\"}}}}'", "is damaged: "),
    (f"{STUDY} memory = '{{\"run\": {{\"leader\": 0, \"rival\": -7}}}}'", "what its policy remembers does not fit"),
    (f"{STUDY} memory = '{{\"run\": {{\"leader\": 1e400}}}}'", "is damaged: "),
    (f"{STUDY} memory = '{{\"arms\": {{\"in_play\": [5, 5, 5]}}}}'", "what its policy remembers does not fit"),
    (f"{STUDY} memory = '{{\"arms\": {{\"nonsense\": [1, 1, 1]}}}}'", "is damaged: "),
    (f"{STUDY} memory = '{{\"arms\": {{\"in_play\": [0]}}}}'", "what its policy remembers does not fit"),
    (f"{STUDY} stopped = 5, reason = 'evidence', decision = 99", "it has decision = 99"),
    (f"{STUDY} stopped = 5, reason = 'evidence', decision = -1", "it has decision = -1"),
    (f"{STUDY} stopped = 5, reason = 'evidence'", "it has decision = None"),
    (f"{STUDY} stopped = 5, reason = 'bored', decision = 1", "reason = 'bored'"),
    (f"{STUDY} stopped = 5, reason = 'max_pulls', decision = 1, told_at_stop = 4, spent_at_stop = 4.0", "= 'max_"),
    (f"{STUDY} decision = 1", "decision = 1"),
    (f"{STUDY} told = -5", "told = -5"),
    (f"{STUDY} told = 'many'", "told = 'many'"),
    (f"{STUDY} told = 1", "its arms have 4 pulls, but 1 were told"),
    (f"{STUDY} asked = 1", "asked = 1, told = 4"),
    (f"{STUDY} spent = 'much'", "spent = 'much'"),
    (f"{STUDY} spent = -1", "spent = -1.0"),
    (f"{ARM} pulls = -5", "pulls = -5"),
    (f"{ARM} pulls = 1000000", "but 4 were told"),
    (f"{ARM} pulls = 'x'", "pulls = 'x'"),
    (f"{ARM} rewards = 1e9", "rewards = 1000000000.0"),
    (f"{ARM} rewards = 'x'", "rewards = 'x'"),
    (f"{ARM} costs = 0", "costs = 0.0"),
    (f"{ARM} spent = 9e999", "spent = inf"),
    (f"{ARM} failures = -1", "failures = -1"),
    (f"{ARM} name = 'z' WHERE number = 1", "its arms are"),
    (f"{ARM} number = 7 WHERE number = 1", "its arms are"),
    ("DELETE FROM cabai_arm WHERE number = 1 AND study = STUDY", "its arms are ['a', 'c'], not ['a', 'b', 'c']"),
    ("DELETE FROM cabai_arm WHERE study = STUDY", "its arms are [], not ['a', 'b', 'c']"),
    (f"{PULL} arm = 99", "arm = 99"),
    (f"{PULL} arm = -1", "arm = -1"),
    (f"{PULL} expires = 'never'", "expires = 'never'"),
]  # fmt: skip


def damaged(statement: str):
    """A study of three arms with four pulls told and one under way, and then that."""
    study = new()
    start(study, [1, 0, 1, 1])
    pull = study.ask()
    if statement.startswith("UPDATE"):
        key = "id" if statement.startswith(STUDY) else "study"
        statement += f" {'AND' if 'WHERE' in statement else 'WHERE'} {key} = {study._ledger.id}"
    work = statement.replace("STUDY", str(study._ledger.id))
    study._storage.write(lambda connection: connection.execute(work))
    return study, pull


@pytest.mark.parametrize(("statement", "message"), DAMAGES)
def test_a_damaged_study_is_refused_in_one_sentence_and_left_as_it_is(statement, message):
    study, pull = damaged(statement)
    before = tables(study)

    def loaded():
        return cabai.load_study(study.name, storage="memory")

    calls = [lambda: loaded().ask(), lambda: loaded().tell(pull, 1, 1.0), lambda: str(loaded()),
             lambda: loaded().observations(), lambda: loaded().decision, lambda: loaded().release(pull)]  # fmt: skip
    with pytest.raises(cabai.StorageError) as refused:
        loaded().status()
    said = str(refused.value)
    assert said.startswith(f"the study {study.name!r} in memory is damaged: ")
    assert message in said
    assert "\n" not in said
    assert len(said) < 700
    assert tables(study) == before
    for call in calls:
        with contextlib.suppress(cabai.StorageError):
            call()
    cabai.delete_study(study.name, storage="memory")


@pytest.mark.parametrize(
    ("change", "message"),
    [("arm = 99", "arm = 99"), ("arm = -1", "arm = -1"), ("reward = 'x'", "reward = 'x'"), ("cost = -1", "cost = -1.0"),
     ("failed = 'x'", "failed = 'x'"), ("told = 'x'", "told = 'x'"), ("place = 'x'", "place = 'x'")],
)  # fmt: skip
def test_a_damaged_log_is_not_exported(change, message):
    study, _ = damaged(f"UPDATE {LOG} SET {change}")
    with pytest.raises(cabai.StorageError, match=f"the study {study.name!r} in memory is damaged: it has .*{message}"):
        study.observations()


def test_a_study_in_use_notices_that_it_was_damaged():
    study, pull = damaged(f"{STUDY} told = 'many'")
    for call in (study.ask, study.status, lambda: study.tell(pull, 1, 1.0), lambda: study.stopped):
        with pytest.raises(cabai.StorageError, match="is damaged: it has asked = 5, told = 'many'"):
            call()


def test_the_shell_says_so_in_one_line_and_still_lists_the_others(tmp_path):
    storage = f"sqlite:///{tmp_path}/cabai.db"
    for name in ("first", "second", "third"):
        study = cabai.create_study(name, arms=["a", "b"], family="bernoulli", storage=storage)
    pull = study.ask()
    with contextlib.closing(sqlite3.connect(tmp_path / "cabai.db")) as connection:
        connection.execute("UPDATE cabai_study SET settings = '{}' WHERE name = 'second'")
        connection.execute(
            "UPDATE cabai_arm SET pulls = -5 WHERE study = (SELECT id FROM cabai_study WHERE name = 'third')"
        )
        connection.commit()
    for arguments in (["status", "third"], ["ask", "second"], ["export", "second"], ["status", "second", "--json"],
                      ["tell", "third", pull.id, "--reward", "1", "--cost", "1"]):  # fmt: skip
        done = here("study", *arguments, cwd=tmp_path)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
        assert f"the study '{arguments[1]}' in sqlite:///cabai.db is damaged: " in done.stderr
    listed = here("study", "list", cwd=tmp_path)
    assert (listed.returncode, listed.stdout) == (1, "first: Nothing observed yet.\n")
    assert "'second' in sqlite:///cabai.db is damaged: " in listed.stderr
    assert "'third' in sqlite:///cabai.db is damaged: it has name = 'a', pulls = -5, failures = 0." in listed.stderr
    assert listed.stderr.count("\n") == 1
    listed = here("study", "list", "--json", cwd=tmp_path)
    assert [study["name"] for study in json.loads(listed.stdout)["studies"]] == ["first"]
    assert here("study", "delete", "second", "--yes", cwd=tmp_path).returncode == 0
    assert here("study", "delete", "third", "--yes", cwd=tmp_path).returncode == 0
    assert here("study", "list", cwd=tmp_path).returncode == 0


def test_what_the_database_itself_cannot_read_hides_no_other_study(tmp_path):
    storage = f"sqlite:///{tmp_path}/cabai.db"
    for name in ("first", "second"):
        cabai.create_study(name, arms=["a", "b"], family="bernoulli", storage=storage)
    with contextlib.closing(sqlite3.connect(tmp_path / "cabai.db")) as connection:
        connection.execute("UPDATE cabai_study SET memory = CAST(X'FF' AS TEXT) WHERE name = 'first'")
        connection.commit()
    found, damaged = statuses(open_storage(storage))
    assert [status.name for status in found] == ["second"]
    assert len(damaged) == 1
    assert "Could not decode to UTF-8" in damaged[0]
