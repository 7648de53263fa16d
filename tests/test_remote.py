"""A study over HTTP is the same study: the same calls, the same words, and nothing is lost or doubled on the way."""

from __future__ import annotations

import inspect
import os
import random
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import cabai
from cabai.study import Study, http
from cabai.study.remote import READS, RemoteStudy
from served import InThread, Line, Process
from shell import here
from storages import close
from workers import Child

pytestmark = pytest.mark.filterwarnings("ignore::cabai.FailedPulls", "ignore::cabai.WideRewards")
ARMS = {"arms": ["small", "large"], "family": "bernoulli"}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("remote")
    found = InThread(f"sqlite:///{folder}/cabai.db")
    yield found
    found.close()
    close(str(folder))


@pytest.fixture
def address(server):
    return server.address


def both(name: str, server: InThread, **settings) -> tuple[Study, Study]:
    """A study in the database and one over HTTP, with the same settings."""
    settings = ARMS | {"seed": 5} | settings
    return (
        cabai.create_study(f"{name}, here", **settings, storage=server.storage),
        cabai.create_study(f"{name}, there", **settings, storage=server.address),
    )


def plain(value):
    """What two studies must have in common: not their names, ids and times."""
    drop = {"name", "created", "ended", "pull", "asked", "told", "waiting_for", "expires", "id", "last_result",
            "low_seconds", "high_seconds", "time", "made", "request"}  # fmt: skip
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items() if name not in drop}
    return [plain(each) for each in value] if isinstance(value, (list, tuple)) else value


def test_everything_that_a_study_has_is_there_over_http():
    public = {name for name in vars(Study) if not name.startswith("_")}
    # Written once, for both.
    same = {"name", "storage", "stopped", "decision", "accept", "add_arm", "amend", "arms", "columns", "drop",
            "to_frame", "run", "release", "renew", "report", "plot", "ask", "stop", "tell", "tell_many", "tell_counts",
            "split"}  # fmt: skip
    assert public - same <= {*vars(RemoteStudy), *READS}
    for name in public - same:
        ours, theirs = inspect.getattr_static(Study, name), inspect.getattr_static(RemoteStudy, name)
        if not isinstance(ours, property):
            assert inspect.signature(ours) == inspect.signature(theirs)


@pytest.mark.parametrize("settings", [
    {}, {"costs": [1, 2]}, {"direction": "minimize"}, {"family": "gaussian(variance=1)"}, {"max_pulls": 7},
    {"family": "bounded(low=-1, high=3)", "epsilon": 0.1}, {"policy": "ctas(exploration=0.5)", "threshold": "evalue"},
    {"arms": {"a b/c": {"model": "m", "é": [1, None]}, "<x>": None}, "on_lapse": "fail", "max_cost": 4.0},
    {"arms": ["x", "y", "z"], "family": None, "items": 40}, {"family": None, "items": ["q/1", 7, "é"], "failed": 0.25},
    {"family": None, "items": 30, "epsilon": 0.2, "speculate": float("inf"), "race": "paired"},
    {"goal": "cheapest", "epsilon": 0.4, "slack": 0.3, "running_costs": {"large": 2, "small": 1}},
])  # fmt: skip
def test_the_same_pulls_and_the_same_end(server, address, settings):
    here, there = both(f"flow {settings}"[:150], server, **settings)
    assert isinstance(there, cabai.Study)
    assert (there.settings, there.arms, there.columns) == (here.settings, here.arms, here.columns)
    chance = random.Random(3)
    for _ in range(40):
        if there.stopped:
            break
        asked = [study.ask(worker="w") for study in (here, there)]
        assert plain(vars(asked[0])) == plain(vars(asked[1]))
        reward, cost = chance.random() < 0.5 + 0.4 * (asked[0].arm == here.arms[-1]), chance.uniform(0.1, 0.2)
        told = {"failed": "out of luck"} if chance.random() < 0.1 else {"reward": np.float64(reward)}
        for study, pull in zip((here, there), asked, strict=True):
            study.tell(pull, **told, cost=np.float32(cost))
    assert plain(there.status().to_dict()) == plain(here.status().to_dict())
    assert plain(there.observations()) == plain(here.observations())
    assert (there.stopped, there.decision) == (here.stopped, here.decision)
    ours, theirs = (study.to_frame().drop(columns=["pull", "asked", "told"]) for study in (here, there))
    assert ours.equals(theirs)
    if here.settings.items is not None:
        assert there.scores() == here.scores()
    again = cabai.create_study(there.name, **ARMS | {"seed": 5} | settings, storage=address, load_if_exists=True)
    assert again.settings == there.settings


CALLS = {
    "load": lambda study: cabai.load_study("none", storage=study.storage),
    "split": lambda study: [study.stop(), study.split(10)],
    "ask": lambda study: study.ask(0),
    "worker": lambda study: study.ask(worker="x" * 201),
    "request": lambda study: study.ask(request=""),
    "reward": lambda study: study.tell(study.ask(), 7, 1.0),
    "cost": lambda study: study.tell(study.ask(), 1),
    "not a pull": lambda study: study.tell("abc", 1, 1.0),
    "another's": lambda study: study.tell("12345678-1", 1, 1.0),
    "not asked": lambda study: study.tell(study.ask().id.partition("-")[0] + "-999", 1, 1.0),
    "many": lambda study: study.tell_many([{"pull": "a", "x": 1}]),
    "told": lambda study: [study.tell(study.pull, reward, 1.0) for reward in (1, 0)],
    "lost": lambda study: study.renew(study.ask(worker="a"), worker="b"),
    "scores": lambda study: study.scores(),
    "stopped": lambda study: [study.stop(), study.ask()],
    "test": lambda study: study.run(7),
    "no pull": lambda study: [study.amend(max_pulls=1), study.ask()],
}


@pytest.mark.parametrize("call", CALLS)
def test_the_same_errors_in_the_same_words(server, call, monkeypatch):
    found = []
    monkeypatch.setenv("CABAI_TOKEN", server.tokens["work"])
    for study in both(f"errors, {call}", server):
        vars(study)["pull"] = study.ask()
        with pytest.raises((cabai.InvalidInput, cabai.NoPull)) as error:
            CALLS[call](study)
        text = str(error.value).replace(study.pull.id.partition("-")[0], "ID").replace(study.storage, "STORAGE")
        found.append((type(error.value), text.replace(", there", ", here")))
    assert found[0] == found[1]


def test_whatever_else_a_study_can_do_is_the_same_over_http(server):
    found = []
    for study in both("else", server, arms=["a", "b", "c"], policy="top-two", reserve=0.1, max_pulls=3):
        first, second, third = study.ask(3, worker="w", request="né, 中\n")
        assert study.ask(3, worker="w", request="né, 中\n")[0].id == first.id
        study.renew(first)
        study.release(third)
        again = study.ask(worker="v")
        study.tell_many([{"pull": pull, "reward": 1, "cost": 0.5} for pull in (first, second, again)])
        said = [study.status().reason]
        study.amend(max_pulls=900, lease=50.0, metadata={"a": {"model": "m"}}, by="ann")
        study.add_arm("d", metadata=[1], by="ann")
        study.add_arm("e", by="ann")
        study.drop("c", by="ann")
        counts = {arm: (100, good, 2.5) for arm, good in (("a", 31), ("b", 40), ("d", 39), ("e", 10))}
        said += [study.tell_counts(counts, period="Monday", following=1000), study.split(10), study.arms]
        for call, given, options, words in (
            (study.amend, [], {"max_pulls": 1.5}, "max_pulls must be a whole number"),
            (study.drop, ["x"], {}, "there is no arm 'x'"),
            (study.tell_counts, [{"a": (100, 30, 2.5)}], {"period": "Monday"}, "Monday"),
            (study.tell_counts, [{"a": (2**62, 5, 1)}], {}, r"below 2\*\*53"),
        ):
            with pytest.raises((cabai.InvalidInput, cabai.AlreadyTold), match=words):
                call(*given, **options)
        with pytest.raises(AttributeError, match=r"study\.amend"):
            study.max_cost = 50
        found.append(plain([*said, study.status().to_dict(), study.amendments(), study.events()]))
    assert found[0] == found[1]


def test_what_is_proven_is_accepted_over_http(server):
    found = []
    for study in both("accept", server):
        study.tell_counts({"small": (300, 180, 1), "large": (300, 182, 1)})
        with pytest.raises(cabai.InvalidInput, match="only proven to be at most"):
            study.accept(epsilon=1e-6)
        study.accept(epsilon=0.9, by="ann")
        found.append(plain([study.status().to_dict(), study.events(), study.decision]))
    assert found[0] == found[1]


def test_run_loops_over_http_and_takes_over_what_a_killed_run_had_under_way(address):
    items = cabai.create_study("run items", arms=["a", "b"], items=60, storage=address, costs=[1, 1])
    assert items.run(lambda arm, item: float(arm == "b"), workers=4).decision == "b"
    study = cabai.create_study("killed", **ARMS, storage=address)
    gone = study.ask(2, worker=f"{socket.gethostname()}:{os.getpid()}:abcdef:0")  # of a run that has ended
    assert study.run(lambda arm: (arm == "large", 0.1)).decision == "large"
    offers = {each["pull"]: each["offers"] for each in study.observations()}
    assert [offers[pull.id] for pull in gone] == [2, 2]


def test_evaluate_works_over_http(address):
    answers = {"small": [1, 0, 1, 0] * 50, "large": [1, 1, 1, 0] * 50}
    about = {"seed": 1, "name": "eval", "storage": address}
    found = cabai.evaluate(["small", "large"], range(200), lambda arm, item: answers[arm][item], **about)
    again = cabai.evaluate(["small", "large"], range(200), lambda arm, item: 1 / 0, **about)
    assert (found.decision, found.spent) == (again.decision, again.spent) == ("large", 46.0)
    ids, about = [{"id": f"q{i}"} for i in range(200)], about | {"name": "eval with ids"}  # with their fingerprints
    assert cabai.evaluate(["a", "b"], ids, lambda arm, item: arm == "b", **about).decision == "b"
    changed = [*ids[:-1], {"id": "q199", "text": "new"}]
    with pytest.raises(cabai.InvalidInput, match="its items"):
        cabai.evaluate(["a", "b"], changed, lambda arm, item: arm == "b", **about)
    with pytest.raises(cabai.InvalidInput, match="cannot be reused over HTTP"):
        cabai.evaluate(["a", "x"], range(200), lambda arm, item: 1, **about | {"name": "e", "seed": 2}, reuse="eval")


def test_what_http_does_not_do_is_said(address, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parent.parent / "docs" / "examples")
    study = cabai.create_study("refusals", **ARMS, storage=address)
    with pytest.raises(cabai.InvalidInput, match="cannot be deleted over HTTP"):
        cabai.delete_study("refusals", storage=address)
    with pytest.raises(cabai.InvalidInput, match="a server runs no code that a request names"):
        cabai.create_study("own", **ARMS, policy="thompson:thompson", storage=address)
    with pytest.raises(cabai.InvalidInput, match="send less at a time"):
        study.tell_many([{"pull": f"12345678-{i}", "reward": 1, "cost": 1.0} for i in range(1, 30000)])
    recipe = f'family = "bernoulli"\ncommand = "x"\narms = ["a", "b"]\nstorage = "{address}"'
    (tmp_path / "study.toml").write_text(recipe)
    done = here("run", str(tmp_path / "study.toml"))
    assert done.returncode == 2
    assert "accepts no commands" in done.stderr


def test_tokens_are_needed_and_come_from_the_address_or_the_environment(server, address, monkeypatch):
    bare = f"http://127.0.0.1:{server.port}"
    monkeypatch.delenv("CABAI_TOKEN", raising=False)
    with pytest.raises(cabai.InvalidInput, match=r"a token is needed.*CABAI_TOKEN"):
        cabai.list_studies(storage=bare)
    with pytest.raises(cabai.InvalidInput, match="refused: the token is not one of this server"):
        cabai.list_studies(storage=f"http://wrong@127.0.0.1:{server.port}")
    names = cabai.list_studies(storage=address)
    assert cabai.list_studies(storage=f"{bare}/?token={server.tokens['read']}") == names
    monkeypatch.setenv("CABAI_TOKEN", server.tokens["read"])
    assert cabai.list_studies(storage=bare) == names
    cabai.create_study("readable", **ARMS, storage=address)
    study = cabai.load_study("readable", storage=bare)
    assert study.status().pulls == 0
    with pytest.raises(cabai.InvalidInput, match="for reading only"):
        study.ask()
    assert server.tokens["work"] not in repr(study) + study.storage


def test_addresses_that_make_no_sense_are_refused_and_a_server_that_is_not_there_at_once():
    for url in ("http://", "http://h:x", "http://h/path", "https://h?x=1", "http://[", "http://é@h"):
        with pytest.raises(cabai.InvalidInput):
            cabai.load_study("x", storage=url)
    started = time.monotonic()
    with pytest.raises(cabai.StorageError, match="cannot be reached"):
        cabai.load_study("x", storage="http://127.0.0.1:9")
    assert time.monotonic() - started < http.PATIENCE / 4


def test_the_shell_speaks_http(server, monkeypatch):
    monkeypatch.setenv("CABAI_TOKEN", server.tokens["work"])
    storage = ["--storage", f"http://127.0.0.1:{server.port}"]
    assert here("study", "create", "shell", "--arms", "a,b", "--family", "bernoulli", *storage).returncode == 0
    pull, arm = here("study", "ask", "shell", *storage).stdout.split()
    assert arm == "a"
    assert here("study", "tell", "shell", pull, "--reward", "1", "--cost", "0.5", *storage).returncode == 0
    assert "a leads so far" in here("study", "status", "shell", *storage).stdout
    assert "shell: a leads so far" in here("study", "list", *storage).stdout
    assert pull in here("study", "export", "shell", *storage).stdout
    assert "Stopped by hand" in here("study", "stop", "shell", *storage).stdout
    assert here("study", "ask", "shell", *storage).returncode == 3
    assert here("study", "delete", "shell", "--yes", *storage).returncode == 2


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_parent_and_forked_child_both_go_on(folder):
    storage = f"sqlite:///{folder}/cabai.db"
    process = Process(storage, folder)
    study = cabai.create_study("forked", **ARMS, storage=process.line.strip())

    def work(report) -> None:
        for _ in range(30):
            report("asked", study.ask().id)

    child = Child(work)
    mine: list[str] = []
    work(lambda _, pull: mine.append(pull))
    theirs = [words[1] for words in child.reports()]
    assert child.end() == 0
    assert len({*mine, *theirs}) == 60
    process.end(signal.SIGTERM)


# Broken lines and killed servers


@pytest.mark.parametrize(("clients", "pulls", "kills"), [(6, 12, 1), pytest.param(50, 200, 5, marks=pytest.mark.slow)])
def test_lines_that_are_cut_and_servers_that_are_killed_lose_nothing_and_double_nothing(
    folder, clients, pulls, kills, monkeypatch
):
    storage = f"sqlite:///{folder}/cabai.db"
    study = cabai.create_study("cut", arms=["a", "b", "c"], family="gaussian(variance=1)", delta=1e-9, storage=storage)
    process = Process(storage, folder)
    line = Line(process.port, seed=1, cut=0.05)
    made = http.Server.__init__

    def patient(self, url: str) -> None:  # also at first contact: the line is cut there too
        made(self, url)
        self.was_reached = True

    monkeypatch.setattr(http.Server, "__init__", patient)
    told = dict[str, tuple]()

    def work(seed: int) -> None:
        """Ask and tell so often, and keep what was acknowledged."""
        mine = cabai.load_study("cut", storage=f"http://{process.token}@127.0.0.1:{line.port}")
        chance = random.Random(seed)
        for _ in range(pulls):
            pull = mine.ask(worker=f"w{seed}")
            reward, cost = chance.gauss(), chance.uniform(0.1, 1.0)
            mine.tell(pull, reward, cost)
            assert pull.id not in told
            told[pull.id] = (reward, cost, pull.offers)

    with ThreadPoolExecutor(clients) as threads:
        working = [threads.submit(work, seed) for seed in range(clients)]
        for kill in range(kills):
            goal = (kill + 1) * clients * pulls // (kills + 1)
            while len(told) < goal and not all(each.done() for each in working):
                time.sleep(0.01)
            process.end(signal.SIGKILL)
            process.start()
    assert [each.exception() for each in working] == [None] * clients
    line.close()
    assert line.cuts > clients
    assert process.end(signal.SIGTERM) == (-signal.SIGTERM, "")
    # Everything acknowledged is stored once, as it was told; and nothing else was ever handed out.
    seen = {each["pull"]: (each["reward"], each["cost"], each["offers"]) for each in study.observations()}
    assert len(told) == clients * pulls
    assert seen == told
    assert {offers for *_, offers in seen.values()} == {1}  # no lease was lost, so none was offered again
    status = study.status()
    assert (status.under_way, status.waiting) == (0, 0)
    assert study._current.look(lambda state: state.asked) == clients * pulls
    assert status.spent == pytest.approx(sum(cost for _, cost, _ in told.values()))
