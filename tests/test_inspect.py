"""A race inside Inspect: what is run, told, billed and logged, with a provider that needs no network."""

from __future__ import annotations

import asyncio
import gc
import inspect
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import pytest

import cabai
from shell import here

inspect_ai = pytest.importorskip("inspect_ai")

from inspect_ai import Epochs, task_with  # noqa: E402
from inspect_ai.agent import agent  # noqa: E402
from inspect_ai.hooks import Hooks, hooks  # noqa: E402
from inspect_ai.log import list_eval_logs, read_eval_log  # noqa: E402
from inspect_ai.model import ChatMessageSystem, ModelOutput, get_model  # noqa: E402
from inspect_ai.solver import generate, solver, system_message  # noqa: E402
from inspect_ai.util import sandbox  # noqa: E402

import fake_provider as fake  # noqa: E402
from cabai.inspect import evaluate  # noqa: E402
from cabai.inspect.lanes import Lane  # noqa: E402
from cabai.settings import REQUIRED, settings_for  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::cabai.errors.FailedPulls"),
]
MODELS = ["fake/a-50", "fake/b-75", "fake/c-60"]
PRICES = {model: {"input": 10.0, "output": 100.0, "cache_read": 1.0} for model in [*MODELS, "fake/judge-100"]}


@pytest.fixture(autouse=True)
def quiet(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("INSPECT_DISPLAY", "none")
    fake.CALLS.clear()
    yield
    with warnings.catch_warnings():  # streams that Inspect leaves open
        warnings.simplefilter("ignore")
        gc.collect()


def samples_of(log):
    return read_eval_log(log.location).samples or []


def calls_of(model):
    return sum(count for (name, _), count in fake.CALLS.items() if name == model.partition("/")[2])


def test_the_best_of_three_for_less_with_a_log_for_each():
    found = evaluate(fake.sums(150), MODELS, seed=1)
    assert found.decision == "fake/b-75"
    assert found.spent < 0.7 * found.full_cost == 0.7 * 450
    assert [log.status for log in found.logs] == ["success"] * 3
    for model, log in zip(MODELS, found.logs, strict=True):
        samples = samples_of(log)
        assert {sample.id for sample in samples} == set(found.scores[model])
        assert len(samples) == len(found.scores[model]) == calls_of(model)
        about = {"cabai_arm": model, "cabai_study": found.study.name, "cabai_items": 150}
        assert about.items() <= log.eval.metadata.items()
    order = [f"q{i}" for i in found.study.settings.items.order(1)]
    for scores in found.scores.values():  # a prefix of the order, except for what was under way together
        places = sorted(order.index(id_) for id_ in scores)
        assert places[-1] < len(places) + 30


def test_scores_are_those_of_plain_inspect():
    found = evaluate(fake.sums(30), MODELS[:2], epsilon=0.2, seed=2)
    for model in MODELS[:2]:
        [log] = inspect_ai.eval(fake.sums(30), model=model)
        plain = {sample.id: float(sample.scores["match"].value == "C") for sample in log.samples}
        assert found.scores[model] == {id_: plain[id_] for id_ in found.scores[model]}


@pytest.mark.parametrize("reducer", ["pass_at_2", pytest.param(None, marks=pytest.mark.slow)])
def test_an_item_is_all_its_epochs(reducer):
    epochs = 3 if reducer is None else Epochs(3, reducer)
    found = evaluate(fake.sums(40, epochs=2), MODELS[:2], epochs=epochs, max_samples=4)
    assert found.decision == "fake/b-75"
    assert {len([s for s in samples_of(log) if s.id == "q1"]) for log in found.logs} <= {0, 3}
    assert sum(map(len, map(samples_of, found.logs))) == 3 * sum(map(len, found.scores.values())) == 3 * found.spent


def test_which_score_it_is_must_be_clear_before_anything_is_paid():
    with pytest.raises(cabai.InvalidInput, match=r"several scorers: match, includes\. Choose one: scorer='match'"):
        evaluate(fake.sums(by="two"), MODELS)
    with pytest.raises(cabai.InvalidInput, match="no scorer 'other'; it has match"):
        evaluate(fake.sums(), MODELS, scorer="other")
    assert not fake.CALLS
    with pytest.raises(cabai.RunFailed, match=r"has the keys right, nan: name one, as in scorer='keyed.key'"):
        evaluate(fake.sums(by="keyed"), MODELS)
    assert evaluate(fake.sums(40, by="keyed"), MODELS[:2], scorer="keyed.right").decision == "fake/b-75"
    assert evaluate(fake.sums(40, by="two"), MODELS[:2], scorer="includes").decision == "fake/b-75"


def test_samples_that_fail_count_as_the_worst_and_arms_that_fail_do_not_count():
    some = evaluate(fake.sums(100), ["fake/a-50-0-10", "fake/b-90"], retry_on_error=0, max_failures=9)
    assert some.decision == "fake/b-90"
    failed = [row for row in some.study.observations() if row["failed"]]
    assert failed
    assert all("provider says no" in row["failed"] and some.scores[row["arm"]][row["item"]] == 0 for row in failed)
    for by, arm, options, said in (
        ("match", "fake/x-50-0-100", {}, "provider says no"),
        ("keyed", "fake/b-75", {"scorer": "keyed.nan"}, "not scored"),
    ):
        with pytest.raises(cabai.RunFailed, match=rf"failed \d+ times in a row.*{said}") as ended:
            evaluate(fake.sums(by=by), ["fake/a-50", arm], retry_on_error=0, **options)
        assert ended.value.evaluation.scores[arm] == {}


def test_bills_are_in_dollars_for_all_models_of_a_sample():
    per_call = (100 * 10 + 10 * 100 + 1000 * 1) / 1e6
    found = evaluate(fake.sums(20), MODELS, prices=PRICES)
    assert found.spent == pytest.approx(per_call * sum(map(len, found.scores.values())))
    judged = evaluate(fake.sums(20, by="judged"), MODELS[:2], prices=PRICES)
    assert judged.spent == pytest.approx(2 * per_call * sum(map(len, judged.scores.values())))
    with pytest.raises(cabai.RunFailed, match="cannot be billed: the price of model 'fake/judge-100' is not known"):
        evaluate(fake.sums(20, by="judged"), MODELS, prices={model: PRICES[model] for model in MODELS})
    with pytest.raises(cabai.InvalidInput, match="but not of fake/b-75, fake/c-60: give all, as prices="):
        evaluate(fake.sums(60), MODELS, prices={"fake/a-50": PRICES["fake/a-50"]})


def race_to_be_killed(folder):
    models = ["fake/a-50-30", "fake/b-75-30", "fake/c-60-30"]
    return evaluate(fake.sums(200), models, name="killed", max_samples=4, seed=3, log_dir=str(folder / "logs"))


def test_a_killed_race_goes_on_and_calls_nothing_twice(tmp_path):
    code = f"import pathlib, test_inspect; test_inspect.race_to_be_killed(pathlib.Path({str(tmp_path)!r}))"
    calls, beside = tmp_path / "calls", str(Path(__file__).parent)
    environment = os.environ | {"FAKE_CALLS": str(calls), "PYTHONPATH": os.pathsep.join([beside, *sys.path])}
    process = subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE)
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and (not calls.exists() or calls.read_text().count("\n") < 60):
        time.sleep(0.02)
    process.kill()
    process.communicate()
    study = cabai.load_study("killed", storage=f"sqlite:///{tmp_path}/logs/cabai.db")
    stored = {(arm.partition("/")[2], id_) for arm, scores in study.scores().items() for id_ in scores}
    assert stored
    found = race_to_be_killed(tmp_path)
    assert (found.decision, len(found.logs)) == ("fake/b-75-30", 3)
    assert not stored & {(model, f"q{question.split()[-1]}") for model, question in fake.CALLS}
    assert len(stored) + sum(fake.CALLS.values()) == sum(map(len, found.scores.values()))
    fake.CALLS.clear()
    again = race_to_be_killed(tmp_path)
    assert (again.decision, again.scores, again.logs) == (found.decision, found.scores, [])
    assert not fake.CALLS


@hooks(name="slow", description="Time between a sample's log and its report.")
class SlowReports(Hooks):
    seconds = 0.0

    def enabled(self):
        return self.seconds > 0

    async def on_sample_end(self, data):
        await asyncio.sleep(self.seconds)


# Seconds: with some, samples are logged that Inspect never reports.
@pytest.mark.parametrize("between", [0.3, pytest.param(0.0, marks=pytest.mark.slow)])
def test_ctrl_c_tells_what_has_finished(between, monkeypatch):
    monkeypatch.setattr(SlowReports, "seconds", between)

    def interrupt():
        deadline = time.monotonic() + 300
        while sum(fake.CALLS.values()) < 20 and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(between)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        evaluate(fake.sums(), ["fake/a-50-200", "fake/b-51-200"], name="stopped", log_dir="logs")
    study = cabai.load_study("stopped", storage="sqlite:///logs/cabai.db")
    told = {(arm, id_) for arm, scores in study.scores().items() for id_ in scores}
    logged = {
        (log.eval.metadata["cabai_arm"], sample.id)
        for log in map(read_eval_log, list_eval_logs("logs"))
        for sample in log.samples or []
        if sample.scores and not sample.error
    }
    assert told == logged
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("cabai")] == []


@pytest.mark.parametrize("method", ["next_samples", "sample_complete"])
def test_a_task_that_dies_ends_the_race(method, monkeypatch):
    """It dies with its first samples, which the race needs."""
    original = getattr(Lane, method)

    async def dies(self, *given):
        result = await original(self, *given) if method == "next_samples" or self.arm != "fake/c-60" else None
        if self.arm == "fake/c-60":
            raise RuntimeError("broken")
        return result

    monkeypatch.setattr(Lane, method, dies)
    began = time.monotonic()
    with pytest.raises(cabai.RunFailed, match="the Inspect task of arm 'fake/c-60' has ended; its log says why"):
        evaluate(fake.sums(60), MODELS, max_samples=3, log_dir="logs")
    assert time.monotonic() - began < 60
    logs = {log.eval.metadata["cabai_arm"]: log for log in map(read_eval_log, list_eval_logs("logs"))}
    assert {arm: log.status for arm, log in logs.items()} == dict.fromkeys(MODELS, "success") | {"fake/c-60": "error"}
    assert "broken" in logs["fake/c-60"].error.message


def test_arms_may_be_solvers_or_tasks():
    solvers = {"plain": generate(), "wrong": [system_message("Be brief."), generate()]}
    found = evaluate(fake.sums(30), solvers, model="fake/b-75")
    assert found.status.is_complete  # they do the same
    assert (found.spent, calls_of("fake/b-75")) == (60, 60)  # as much as evaluating everything, and no more
    tasks = {"one": fake.sums(50), "two": task_with(fake.sums(50), scorer=fake.SCORERS["keyed"])}
    assert evaluate(None, {"one": tasks["one"], "two": fake.sums(50)}, model="fake/b-75").decision in tasks
    for wrong, said in [
        ({"one": fake.sums(50), "two": fake.sums(49)}, "need"),
        ({"one": fake.sums(50), "two": "fake/b-75"}, "'two' is not a task"),
    ]:
        with pytest.raises(cabai.InvalidInput, match=said):
            evaluate(None, wrong, model="fake/b-75")
    with pytest.raises(cabai.InvalidInput, match="the arms are models"):
        evaluate(fake.sums(), MODELS, model="fake/b-75")
    for option in ("sample_id", "sample_shuffle", "log_samples"):
        with pytest.raises(cabai.InvalidInput, match=f"{option} is not for a race"):
            evaluate(fake.sums(), MODELS, **{option: 1})


@agent
def careful(prompt):
    """Asks the model with the prompt in front of what it was given."""

    async def execute(state):
        state.output = await get_model().generate([ChatMessageSystem(content=prompt), *state.messages])
        state.messages.append(state.output.message)
        return state

    return execute


@solver
def by_shell(words):
    """Answers with what a command prints in the sandbox: the question's last word, or nothing."""

    async def solve(state, generate):
        done = await sandbox().exec(["sh", "-c", f"echo {words}", "sh", state.input_text.split()[-1]])
        state.output = ModelOutput.from_content("shell", done.stdout)
        return state

    return solve


def test_arms_may_be_agents_and_may_work_in_a_sandbox():
    found = evaluate(fake.sums(20), {"agent": careful("Think."), "plain": generate()}, model="fake/b-75")
    assert (found.status.is_complete, found.scores["agent"]) == (True, found.scores["plain"])
    boxed = task_with(fake.sums(40), sandbox="local")
    found = evaluate(boxed, {"right": by_shell("$1"), "wrong": by_shell("nothing")}, model="fake/b-75")
    assert (found.decision, [log.status for log in found.logs]) == ("right", ["success"] * 2)
    assert set(found.scores["right"].values()) == {1.0}
    assert found.spent < 0.5 * found.full_cost


def test_another_dataset_under_the_same_name_is_refused_and_earlier_scores_are_reused():
    evaluate(fake.sums(40), MODELS[:2], name="same", log_dir="logs")
    changed = fake.sums(40)
    changed.dataset[3].target = "another"
    with pytest.raises(cabai.InvalidInput, match="already exists with other settings: its items"):
        evaluate(changed, MODELS[:2], name="same", log_dir="logs")
    again = evaluate(fake.sums(40), MODELS[:2], name="same", log_dir="logs")
    assert (again.decision is not None, again.logs) == (True, [])
    first = evaluate(fake.sums(60), MODELS[:2], max_cost=12)
    assert (first.decision, first.spent) == (None, 12)
    goal = {"goal": "cheapest", "epsilon": 0.5, "slack": 0.05, "costs": [1, 20, 5]}
    cheap = evaluate(fake.sums(60), MODELS, reuse=first, **goal)
    assert cheap.decision == "fake/a-50"
    assert cheap.spent < sum(cost * len(cheap.scores[arm]) for arm, cost in zip(MODELS, goal["costs"], strict=True))


def test_the_command_and_what_replay_says_of_its_logs(tmp_path):
    task = f"{Path(__file__).parent / 'fake_provider.py'}@sums"
    models = [each for model in MODELS for each in ("--model", model)]
    done = here("inspect", task, *models, "-T", "count=80", "--log-dir", "logs", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["decision"], len(found["logs"])) == ("fake/b-75", 3)
    refused = here("replay", "logs", cwd=tmp_path)
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "is the log of a race" in refused.stderr
    for wrong, said in [
        ((str(tmp_path / "none.py@sums"), *models), "cannot be loaded"),
        ((task, "--model", "nobody/x", "--model", "fake/a-50"), "the model nobody/x cannot be used"),
        ((task, *models, "-T", "count"), "-T must be name=value"),
    ]:
        failed = here("inspect", *wrong, cwd=tmp_path)
        assert (failed.returncode, failed.stderr.count("\n")) == (2, 1), failed.stderr
        assert said in failed.stderr


@pytest.mark.parametrize("display", ["plain", pytest.param("none", marks=pytest.mark.slow)])
def test_the_page_of_a_race_and_inspects_own_display(display, tmp_path):
    task = f"{Path(__file__).parent / 'fake_provider.py'}@sums"
    command = ["inspect", task, "--model", "fake/a-50", "--model", "fake/held-75", "--name", "seen", "--seed", "1"]
    process = subprocess.Popen(
        [sys.executable, "-m", "cabai", *command, "--page", "--display", display], cwd=tmp_path, text=True,
        env=os.environ | {"FAKE_GO": str(tmp_path / "go")}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    page = process.stderr.readline()
    assert page.startswith("page: http://127.0.0.1:")
    address, told = urlsplit(page.split()[1]), 0
    bearer = {"Authorization": f"Bearer {address.query.partition('=')[2]}"}

    def look(path):
        with urlopen(Request(f"http://{address.netloc}{path}", headers=bearer), timeout=10) as answer:
            return answer.read().decode()

    assert "<title>seen" in look(address.path)
    deadline = time.monotonic() + 300
    while not told and time.monotonic() < deadline:
        told = json.loads(look(f"/api{address.path}"))["pulls"]
    assert told
    (tmp_path / "go").touch()
    out, err = process.communicate(timeout=300)
    assert (process.returncode, err) == (0, "")  # nothing of the page's server disturbs the display
    assert "fake/held-75 has the highest mean" in out
    own = {model for model in ("fake/a-50", "fake/held-75") if re.search(rf"{model}.* Samples: +\d+/", out)}
    assert own == (set() if display == "none" else {"fake/a-50", "fake/held-75"})


def test_replays_of_whole_logs_bill_tokens_and_plans_take_a_scorer(tmp_path, monkeypatch):
    (tmp_path / "prices.toml").write_text("".join(
        f'["{model}"]\ninput = 10\noutput = 100\ncache_read = 1\n' for model in MODELS
    ))  # fmt: skip
    monkeypatch.setenv("CABAI_PRICES", str(tmp_path / "prices.toml"))
    for model in MODELS:
        inspect_ai.eval(fake.sums(60, by="two"), model=model, log_dir="whole")
    table = cabai.datasets.read_table("whole", scorer="match")
    assert table.costs.min() == table.costs.max() == pytest.approx(3000e-6)
    assert "computed by cabai.prices from the tokens" in str(cabai.replay(table, repeats=3))
    assert cabai.plan("whole", scorer="match", draws=20, worth=False).items == 60
    with pytest.raises(cabai.InvalidInput, match="has several scores"):
        cabai.plan("whole", draws=20)
    monkeypatch.delenv("CABAI_PRICES")
    assert cabai.datasets.read_table("whole", scorer="match").costs is None


def test_it_takes_what_the_table_of_settings_lists():
    given, own = inspect.signature(evaluate).parameters, {"task", "page", "options"}
    written = {name: each.default for name, each in given.items() if name not in own}
    written = {name: REQUIRED if default is inspect.Parameter.empty else default for name, default in written.items()}
    assert written == {name: row.default_in("inspect") for name, row in settings_for("inspect").items()}
