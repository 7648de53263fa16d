"""A study is its recipe and its log: states are folds, snapshots a cache, and a log can be read, moved and kept."""

from __future__ import annotations

import contextlib
import json
import random
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import cabai
from cabai.study import Study, catalogue, create_study, load_study
from cabai.study.current import new_state
from cabai.study.log import postgres
from shell import here
from storages import BOTH, looked
from studies import new, reloaded
from workers import Broken, check_known, check_replay, stored, token

pytestmark = [
    pytest.mark.filterwarnings("ignore::cabai.FailedPulls"),
    pytest.mark.filterwarnings("ignore::cabai.WideRewards"),
    pytest.mark.filterwarnings("ignore::cabai.CostlyStudy"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning"),
]
ARMS = {"arms": ["small", "large"], "family": "bernoulli"}


def restored(state: Any) -> Any:
    """What another process makes of a snapshot."""
    again = new_state(state.settings)
    again.restore(json.loads(json.dumps(state.snapshot())))
    return again


class Folder:
    """Folds a study's log as it grows; at every event, a state from the snapshot before it takes it too."""

    def __init__(self, study: Study) -> None:
        self.study, self.state, self.seen = study, new_state(study._current.recipe), 0

    def follow(self) -> None:
        log = stored(self.study)
        for event in log[self.seen :]:
            again = restored(self.state)
            assert as_told(again) == as_told(self.state)
            if event.kind == "ask":
                assert again.choose() == (event.arm, event.item)
            self.state.take(event)  # as somebody who only reads, and chooses nothing
            again.take(event)
            assert as_told(again) == as_told(self.state)
        self.seen = len(log)
        assert json.dumps(self.state.snapshot()) == self.study._current.look(lambda state: json.dumps(state.snapshot()))


def as_told(state: Any) -> Any:
    return json.dumps(state.snapshot()), state.verdict(), state.leader


def anything(study: Study, chance: random.Random, clock: Any, held: list[Any], chances: dict[str, float]) -> None:
    """One thing that can happen to a study."""
    what, event = study.settings, chance.random()
    if event < 0.35 or not held:
        held += study.ask(chance.choice([1, 1, 1, 3]), worker=chance.choice([None, "w"]),
                          request=chance.choice([None, None, "again"]))  # fmt: skip
    elif event < 0.78:
        pull = held.pop(chance.randrange(len(held)))
        fails = chance.random() < 0.1
        cost = None if what.costs is not None else chance.choice([0.25, 0.5, 1.0])
        lucky = float(chance.random() < chances.get(pull.arm, 0.5))
        study.tell(pull, None if fails else lucky, cost, failed="no luck" if fails else None)
        if chance.random() < 0.2:
            held.append(pull)  # it is told again, or something else
    elif event < 0.83:
        study.release(chance.choice(held))
    elif event < 0.87:
        study.renew(chance.choice(held))
    elif event < 0.91:
        clock.now += 30.0  # all leases end
    elif event < 0.93:
        study.amend(lease=chance.choice([19.0, 20.0, 21.0]))
    elif event < 0.95 and what.max_pulls is not None:
        study.amend(max_pulls=what.max_pulls + 5)
    elif event < 0.965 and what.items is None:
        study.drop(chance.choice(what.arms))
    elif event < 0.98 and what.reserve is not None:
        study.add_arm(f"new {len(what.arms)}", cost=None if what.costs is None else 1.0)
    elif what.items is None:
        for pull in held:
            study.tell(pull, 0, None if what.costs is not None else 1.0)
        held.clear()
        cost = [] if what.costs is not None else [3.0]
        study.tell_counts({arm: [4, chance.randrange(5), *cost] for arm in what.arms[:2]})


REFUSALS = (cabai.NoPull, cabai.AlreadyTold, cabai.LostPull, cabai.InvalidInput, Broken)
KINDS = {
    "top-two": {"policy": "top-two", "reserve": 0.2},
    "ctas": {"policy": "ctas", "costs": [1.0, 0.5, 0.25], "on_lapse": "fail"},
    "co": {"policy": "co", "max_pulls": 50, "direction": "minimize"},
    "racing": {"policy": "racing", "delta": 0.3},
    "cheapest": {"policy": "top-two", "goal": "cheapest", "epsilon": 0.2, "running_costs": [3.0, 2.0, 1.0]},
    "champion": {"items": 40, "family": None, "policy": "top-two", "race": "champion"},
    "paired": {"items": 40, "family": None, "policy": "top-two", "race": "paired", "epsilon": 0.1, "failed": 0.5,
               "max_pulls": 60},
    "cheapest race": {"items": 40, "family": None, "policy": "top-two", "goal": "cheapest", "epsilon": 0.2,
                      "failed": "stop"},
    "bounded": {"family": "bounded", "policy": "ctas", "max_cost": 30.0},
    "tas": {"policy": "tas", "threshold": "mixture", "delta": 1e-9},
    "uniform": {"policy": "uniform", "threshold": "paper", "delta": 1e-3},
    "d-lucb": {"policy": "d-lucb", "delta": 1e-3},
    "ugape": {"policy": "ugape", "family": "gaussian", "delta": 1e-3},
    "thompson": {"policy": "thompson", "family": "gaussian", "delta": 1e-9},
    "lma": {"policy": "lma", "threshold": "evalue", "delta": 1e-9},
}  # fmt: skip


def failing(_: Any) -> None:
    raise Broken


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.slow if kind in ("ugape", "lma", "d-lucb") else ()) for kind in KINDS]
)
@pytest.mark.parametrize("seeds", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_a_state_from_a_snapshot_is_the_fold_of_all_events_at_every_event(clock, kind, seeds):
    """Two handles do whatever can happen to a study, in any order, and now and then a transaction breaks."""
    seen: set[str] = set()
    for seed in range(seeds):
        chance, held = random.Random(seed), list[Any]()
        study = new(**{"delta": 0.05, "lease": 20.0, "seed": seed} | KINDS[kind])
        handles, folder, known = [study, reloaded(study)], Folder(study), 0
        commit = study._storage.commit
        for turn in range(110):
            study._storage.commit = failing if chance.random() < 0.05 else commit
            with contextlib.suppress(*REFUSALS):
                try:
                    anything(handles[turn % 5 == 0], chance, clock, held, {"a": 0.8, "b": 0.5, "c": 0.3})
                except cabai.StudyStopped:
                    break
                finally:
                    study._storage.commit = commit
                    folder.follow()
            if turn % 9 == 0:
                known += sum(map(check_known, handles))
            clock.now += 0.1
        folder.follow()
        check_replay(study)
        assert known > 2
        seen |= {event.kind for event in stored(study)}
    assert {"ask", "tell", "offer", "release", "renew", "amend"} - seen <= ({"offer"} if kind == "ctas" else set())
    if kind == "ctas":
        assert "lose" in seen
    if kind in ("top-two", "co") and seeds > 2:
        assert "counts" in seen


def test_imported_results_and_sums_are_folded_from_a_snapshot_too(clock):
    first = new()
    for reward in (1, 0, 1, 1, 0):
        first.tell(first.ask(), reward, 1.0)
    study = new(import_from=first, unseen=True)
    folder = Folder(study)
    for reward in (1, 0, 0, 1):
        study.tell(study.ask(), reward, 1.0)
        folder.follow()
    assert [event.kind for event in stored(study)][:5] == ["import"] * 5
    summed = new()
    folder = Folder(summed)
    for _ in range(2):
        summed.tell_counts({"a": (4, 2, 4.0), "b": (4, 1, 4.0)})
        summed.tell(summed.ask(), 1, 1.0)
        folder.follow()


@pytest.mark.parametrize("items", [None, 300])
def test_a_snapshot_spares_reading_what_was_before_it(items):
    """So well that nobody notices what was damaged there."""
    options = {} if items is None else {"items": items, "family": None, "policy": "top-two"}
    study = new(delta=1e-9, **options)
    for i in range(60):
        study.tell(study.ask(), float(i // 3 % 2), 1.0)
    before = study.status()
    looked(study._storage, "UPDATE cabai_event SET arm = 99 WHERE place < 20 AND study = ?", (study._row.id,))
    assert reloaded(study).status() == before
    looked(study._storage, "DELETE FROM cabai_snapshot WHERE study = ?", (study._row.id,))
    with pytest.raises(cabai.StorageError, match="is damaged"):
        reloaded(study).status()
    cabai.delete_study(study.name, storage="memory")


def test_everything_that_happened_can_be_listed(clock):
    began = clock.now
    study = new(arms=["a", "b", "c"], policy="top-two", delta=0.1, lease=20.0)
    first, second, third = study.ask(3, worker="w", request="r")
    assert study.ask(3, worker="w", request="r") == [first, second, third]
    clock.now += 1.0
    study.release(third)
    again = study.ask(worker="v")
    study.renew(again)
    clock.now += 1.0
    study.tell(first, 1, 0.5)
    study.tell(second, failed="no luck", cost=0.25)
    study._do("lapse", was_lost=lambda worker: worker == "v")
    study.tell(study.ask(worker="u"), 0, 1.0)
    study.amend(max_pulls=90, by="me")
    study.drop("c", by="me")
    for pull in study.ask(2):
        study.tell(pull, 1, 1.0)
    study.tell_counts({"a": [4, 4, 2.0], "b": [4, 0, 2.0]}, period="May")
    if not study.stopped:
        study.stop()
    log, mine = study.events(), token(study)
    assert [each["place"] for each in log] == list(range(1, len(log) + 1))
    kinds = [each["kind"] for each in log]
    assert kinds[:13] == ["ask", "ask", "ask", "renew", "renew", "renew", "release", "offer", "renew", "tell", "tell",
                          "lapse", "offer"]  # fmt: skip
    assert kinds[13:] == ["tell", "amend", "amend", "ask", "ask", "tell", "tell", "counts", "stop"]
    assert log[0] == {"place": 1, "kind": "ask", "time": began, "pull": f"{mine}-1", "arm": "a", "worker": "w",
                      "request": "r"}  # fmt: skip
    assert log[6] == {"place": 7, "kind": "release", "time": began + 1, "pull": third.id}
    assert log[7] == {"place": 8, "kind": "offer", "time": began + 1, "pull": third.id, "worker": "v"}
    assert log[9] == {"place": 10, "kind": "tell", "time": began + 2, "pull": first.id, "arm": "a", "reward": 1.0,
                      "cost": 0.5, "worker": "w"}  # fmt: skip
    assert log[10] == {"place": 11, "kind": "tell", "time": began + 2, "pull": second.id, "arm": "b", "cost": 0.25,
                       "worker": "w", "failed": "no luck"}  # fmt: skip
    assert log[14] | {"time": 0} == {"place": 15, "kind": "amend", "time": 0, "worker": "me",
                                     "changes": {"max_pulls": [None, 90]}}  # fmt: skip
    assert log[15]["changes"] == {"dropped": [[], ["c"]]}
    assert log[-2]["counts"] == {"a": [4, 4, 2.0], "b": [4, 0, 2.0]}
    assert log[-2]["request"] == "May"
    assert log[-1]["reason"] == study.status().reason
    assert log[-1]["arm"] == study.status().leader
    assert log[-1]["confidence"] == study.status().confidence


def test_the_log_is_the_same_over_http_and_in_the_shell(folder, serve):
    storage = f"sqlite:///{folder}/cabai.db"
    items = [f"q{i}" for i in range(20)]
    study = create_study("study", arms=["a", "b"], delta=0.4, items=items, storage=storage)
    for reward in (1, 0, 1):
        study.tell(study.ask(worker="w"), reward, 1.0)
    study.stop()
    log = study.events()
    assert log[0]["item"] == study.observations()[0]["item"]
    assert load_study("study", storage=serve(storage).address).events() == log
    done = here("study", "log", "study", "--storage", storage, "--json")
    assert json.loads(done.stdout) == {"log": log}
    lines = here("study", "log", "study", "--storage", storage).stdout.splitlines()
    assert len(lines) == len(log) == 7
    assert "ask" in lines[0]
    assert "worker w" in lines[0]
    assert time.strftime("%Y-%m-%d", time.gmtime(log[0]["time"])) in lines[0]
    assert "reason by hand" in lines[-1]


def whole(study: Study, file: Any) -> None:
    done = here("study", "export", study.name, "--out", str(file), "--storage", study.storage)
    assert (done.returncode, done.stderr) == (0, "")


def played(study: Study, turns: int, seed: int) -> Study:
    chance = random.Random(seed)
    for _ in range(turns):
        if study.stopped:
            break
        pull = study.ask(worker="w")
        if chance.random() < 0.1:
            study.tell(pull, failed="no luck", cost=0.5)
        else:
            study.tell(pull, float(chance.random() < (0.6 if pull.arm == "a" else 0.4)), 1.0)
    return study


MOVED = {
    "sampled": {"family": "bernoulli", "reserve": 0.1, "policy": "top-two"},
    "race": {"items": [f"q{i}" for i in range(50)], "seed": 5},
    "open race": {"items": 50, "seed": 5, "reserve": 0.1},
    "cheapest": {"family": "bernoulli", "goal": "cheapest", "epsilon": 0.1, "running_costs": [1, 2, 3]},
    "ended": {"family": "bernoulli", "max_pulls": 10},
}


@pytest.mark.parametrize("kind", MOVED)
@BOTH
def test_a_study_that_was_moved_is_the_same_and_goes_on_the_same(url, folder, kind):
    storage = f"sqlite:///{folder}/first.db"
    study = played(create_study("study", arms=["a", "b", "c"], storage=storage, **MOVED[kind]), 30, seed=1)
    if "reserve" in MOVED[kind]:
        study.add_arm("d", by="me")
        study.amend(lease=50.0)
    under_way = None if study.stopped else study.ask(worker="v")
    whole(study, folder / "study.jsonl")
    copy = cabai.import_study(folder / "study.jsonl", storage=url)
    assert copy.name == "study"
    assert copy.status() == study.status()
    assert copy.events() == study.events()
    assert copy.observations() == study.observations()
    assert copy.amendments() == study.amendments()
    assert copy.history() == study.history()
    assert (stored(copy), token(copy)) == (stored(study), token(study))
    if under_way is not None:
        for each in (study, copy):
            each.tell(under_way, 1, 1.0)
    for each in (study, copy):
        played(each, 30, seed=2)
    mine = [(event.kind, event.pull, event.arm, event.item) for event in stored(study)]
    assert [(event.kind, event.pull, event.arm, event.item) for event in stored(copy)] == mine
    assert len(mine) == (21 if kind == "ended" else len(mine))


def test_a_log_that_is_imported_next_to_its_original_has_another_token(folder):
    storage = f"sqlite:///{folder}/cabai.db"
    study = played(create_study("study", **ARMS, storage=storage), 6, seed=1)
    pull = study.ask()
    whole(study, folder / "study.jsonl")
    again = here("study", "import", str(folder / "study.jsonl"), "--storage", storage)
    assert (again.returncode, again.stdout, again.stderr.count("\n")) == (2, "", 1)
    assert "study 'study' already exists: choose another name, or delete it." in again.stderr
    done = here("study", "import", str(folder / "study.jsonl"), "--name", "copy", "--storage", storage)
    assert (done.returncode, done.stdout) == (0, "imported: copy\n")
    copy = load_study("copy", storage=storage)
    assert token(copy) != token(study)
    assert copy.ask().id.partition("-")[0] == token(copy)
    assert stored(copy)[:-1] == stored(study)
    with pytest.raises(cabai.InvalidInput, match="is not the id of a pull of study 'copy'"):
        copy.tell(pull, 1, 1.0)
    study.tell(pull, 1, 1.0)


def test_a_log_keeps_how_arms_are_tried(folder):
    (folder / "study.toml").write_text(
        'family = "bernoulli"\narms = ["a", "b"]\ncommand = "echo 1"\nmax_pulls = 3\ncost = "seconds"\n'
    )
    assert here("run", "study.toml", cwd=folder).returncode in (0, 3)
    study = load_study("study", storage=f"sqlite:///{folder}/cabai.db")
    whole(study, folder / "study.jsonl")
    copy = cabai.import_study(folder / "study.jsonl", storage=f"sqlite:///{folder}/other.db")
    tests = "SELECT tests FROM cabai_study"
    assert looked(copy._storage, tests) == looked(study._storage, tests)
    assert looked(copy._storage, tests) != [(None,)]


def spoilt(lines: list[str]) -> dict[str, list[str]]:
    """Files that are no logs."""
    about, first, second, *rest = lines

    def changed(line: str, **values: Any) -> str:
        return json.dumps(json.loads(line) | values)

    return {
        "nothing": [], "no JSON": ["nonsense"], "only a list": ["[]"],
        "another format": [changed(about, format=99), *lines[1:]],
        "no recipe": [json.dumps({"format": 1}), *lines[1:]], "half of it": [about, first, second[: len(second) // 2]],
        "a gap": [about, second, *rest], "the same twice": [about, first, first], "no event": [about, "{}"],
        "an unknown field": [about, changed(first, nonsense=1)], "an unknown arm": [about, changed(first, arm=99)],
        "a bad name": [changed(about, name=5), *lines[1:]], "a bad token": [changed(about, token="x'; --"), *lines[1:]],
        "a bad time": [changed(about, created="long ago"), *lines[1:]], "deep": ["[" * 100_000],
        "a bad recipe": [changed(about, recipe={}), *lines[1:]],
        "another pull": [about, changed(first, pull=2), second],
        "a list": [about, changed(first, worker=[1])], "no text": [about, changed(first, worker="\ud800")],
        "a time without end": [changed(about, created=float("inf")), *lines[1:]],
    }  # fmt: skip


def test_a_damaged_file_is_refused_in_one_line_and_nothing_is_made(folder):
    storage, other = f"sqlite:///{folder}/cabai.db", f"sqlite:///{folder}/other.db"
    study = played(create_study("study", **ARMS, storage=storage), 4, seed=1)
    whole(study, folder / "study.jsonl")
    lines = (folder / "study.jsonl").read_text().splitlines()
    assert len(lines) == 1 + 8
    for how, rest in spoilt(lines).items():
        (folder / "bad.jsonl").write_text("\n".join(rest))
        done = here("study", "import", str(folder / "bad.jsonl"), "--storage", other)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), (how, done.stderr)
        assert len(done.stderr) < 700
        assert cabai.list_studies(storage=other) == []
    (folder / "bad.jsonl").write_bytes(b"\xff\xfe")
    for file in (folder / "bad.jsonl", folder / "nowhere.jsonl", folder):
        done = here("study", "import", str(file), "--storage", other)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert cabai.list_studies(storage=other) == []


@BOTH
def test_a_log_with_a_period_twice_is_refused_in_one_line(url, folder):
    study = create_study("study", arms=["a", "b"], family="bernoulli", threshold="evalue", costs=[1, 1], storage=url)
    for period in ("Monday", "Tuesday"):
        study.tell_counts({"a": (10, 5), "b": (10, 6)}, period=period)
    whole(study, folder / "study.jsonl")
    (folder / "study.jsonl").write_text((folder / "study.jsonl").read_text().replace("Tuesday", "Monday"))
    with pytest.raises(cabai.InvalidInput, match="it has a pull or a period twice"):
        cabai.import_study(folder / "study.jsonl", name="copy", storage=url)
    assert cabai.list_studies(storage=url) == ["study"]


@BOTH
def test_one_of_two_imports_of_a_name_at_the_same_time_is_refused(url, folder):
    study = played(create_study("study", **ARMS, storage=url), 6, seed=1)
    whole(study, folder / "study.jsonl")
    begin = threading.Barrier(2)

    def again(_: int) -> str:
        begin.wait()
        try:
            return cabai.import_study(folder / "study.jsonl", name="copy", storage=url).name
        except cabai.InvalidInput as error:
            return str(error)

    for _ in range(5):
        with ThreadPoolExecutor(2) as threads:
            refused = "study 'copy' already exists: choose another name, or delete it."
            assert sorted(threads.map(again, range(2))) == ["copy", refused]
        cabai.delete_study("copy", storage=url)


@BOTH
def test_the_id_and_the_token_of_a_deleted_study_are_not_used_again(url):
    ids, tokens, revisions = set(), set(), set()
    for _ in range(4):
        study = create_study("study", **ARMS, storage=url)
        ids.add(study._row.id)
        tokens.add(token(study))
        revisions.add(catalogue.revision(study))
        study.tell(study.ask(), 1, 1.0)
        cabai.delete_study("study", storage=url)
        assert looked(study._storage, "SELECT count(*) FROM cabai_event") == [(0,)]
        assert looked(study._storage, "SELECT count(*) FROM cabai_snapshot") == [(0,)]
    assert len(ids) == len(tokens) == len(revisions) == 4


def test_a_study_with_items_is_not_split():
    study = new(family=None, policy="top-two", items=20)
    with pytest.raises(cabai.InvalidInput, match="has items: its race asks for them one by one"):
        study.split(10)


@BOTH
def test_an_interrupted_import_makes_nothing(url, folder, monkeypatch):
    monkeypatch.setattr(postgres, "AT_A_TIME", 3)
    study = played(create_study("study", **ARMS, storage=url), 4, seed=1)
    whole(study, folder / "study.jsonl")
    commit = study._storage.commit

    def interrupted(_: Any) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(study._storage, "commit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        cabai.import_study(folder / "study.jsonl", name="copy", storage=url)
    monkeypatch.setattr(study._storage, "commit", commit)
    assert cabai.list_studies(storage=url) == ["study"]
    assert stored(cabai.import_study(folder / "study.jsonl", name="copy", storage=url)) == stored(study)
