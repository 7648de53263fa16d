"""Live studies from the shell: `cabai study ...` and `cabai run study.toml`, as their users meet them."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest

import cabai
from shell import apart, here, refused, run_file
from storages import BOTH, close

pytestmark = pytest.mark.filterwarnings("ignore::cabai.FailedPulls")
JUDGE = """
import json, random, sys, time
random.seed(f"{sys.argv[1]} {sys.argv[2]}")
arm = sys.argv[1]
print("thinking ...")
print(json.dumps({"reward": int(random.random() < {"small": 0.2, "large": 0.9}[arm]), "cost": 0.5}))
"""
RECIPE = f"""
family = "bernoulli"
command = ["{sys.executable}", "judge.py", "{{arm}}", "{{pull}}"]
arms = ["small", "large"]
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "judge.py").write_text(JUDGE)
    (tmp_path / "judges.toml").write_text(RECIPE)
    return tmp_path


def status(folder, name="judges"):
    return json.loads(here("study", "status", name, "--json", cwd=folder).stdout)


def test_a_script_in_any_language_can_run_a_study(tmp_path):
    def tell(pull, *options, by=here):
        return by("study", "tell", "judges", pull, *options, cwd=tmp_path)

    create = "--arms small,large --family bernoulli --max-pulls 3 --metadata"
    made = apart("study", "create", "judges", *create.split(), '{"large": {"model": "m2"}}', cwd=tmp_path)
    assert (made.returncode, made.stdout) == (0, "created: judges, 2 arms, in sqlite:///cabai.db\n")
    asked = apart("study", "ask", "judges", "-n", "2", "--worker", "me", "--json", cwd=tmp_path)
    pulls = json.loads(asked.stdout)["pulls"]
    assert [(pull["arm"], pull["metadata"]) for pull in pulls] == [("small", None), ("large", {"model": "m2"})]
    first, second = (pull["id"] for pull in pulls)
    for _ in range(2):  # again, as after a lost answer
        told = tell(first, "--reward", "1", "--cost", "0.5")
        assert (told.returncode, told.stderr) == (0, "")
    other = tell(first, "--reward", "0", "--cost", "0.5", by=apart)
    said = f"cabai: pull {first} was told before with reward=1.0, cost=0.5, which is kept.\n"
    assert (other.returncode, other.stderr) == (2, said)
    tell(second, "--failed", "no answer", "--cost", "0.25")
    third, arm = here("study", "ask", "judges", cwd=tmp_path).stdout.rstrip("\n").split("\t")
    assert arm == "large"  # of which nothing is known yet
    waiting = apart("study", "ask", "judges", cwd=tmp_path)
    assert (waiting.returncode, waiting.stdout) == (4, "")
    ended = tell(third, "--reward", "0", "--cost", "1", "--json")
    assert json.loads(ended.stdout) == {"stopped": True, "decision": None, "spent": 1.75}
    stopped = apart("study", "ask", "judges", "--json", cwd=tmp_path)
    said = {"error": "study 'judges' has stopped: there is nothing left to pull."}
    assert (stopped.returncode, json.loads(stopped.stderr)) == (3, said)
    shown = here("study", "status", "judges", cwd=tmp_path).stdout
    assert "Undecided: small is at most 0.93 worse than the best" in shown
    assert "1 failed" in shown
    listed = json.loads(here("study", "list", "--json", cwd=tmp_path).stdout)["studies"]
    assert [(each["name"], each["stopped"], each["leader"]) for each in listed] == [("judges", True, "small")]
    rows = list(csv.DictReader(io.StringIO(here("study", "export", "judges", cwd=tmp_path).stdout)))
    assert [(row["pull"], row["arm"], row["reward"], row["failed"], row["worker"]) for row in rows] == [
        (first, "small", "1.0", "", "me"), (second, "large", "", "no answer", "me"), (third, "large", "0.0", "", ""),
    ]  # fmt: skip
    for kind in ("csv", "json", "parquet"):
        assert here("study", "export", "judges", "--out", f"all.{kind}", cwd=tmp_path).returncode == 0
        assert (tmp_path / f"all.{kind}").stat().st_size > 100
    assert apart("study", "delete", "judges", cwd=tmp_path, stdin=subprocess.DEVNULL).returncode == 2
    assert here("study", "delete", "judges", "--yes", cwd=tmp_path).stdout == "deleted: judges\n"
    assert json.loads(here("study", "list", "--json", cwd=tmp_path).stdout) == {"studies": []}


CREATE = ["study", "create", "x", "--arms", "a,b", "--family", "poisson"]


BAD = [
    (["study", "status", "nope"], "there are no studies in sqlite:///cabai.db: the file does not exist"),
    ([*CREATE[:-1], "bernouli"], "did you mean bernoulli"),
    ([*CREATE, "--costs", "1"], "2 numbers, one per arm"),
    ([*CREATE, "--metadata", "{"], "must be JSON"),
    ([*CREATE, "--metadata", '{"a": ' + "9" * 5000 + "}"], "--metadata must be JSON, got '{\"a\": 999"),
    ([*CREATE, "--metadata", '{"a": ' + "[" * 50_000], "--metadata must be JSON"),
    ([*CREATE, "--storage", "memory"],
     "a study in memory is lost when the command ends: choose a storage such as sqlite:///cabai.db."),
    (["study", "list", "--storage", "mysql://u:secret@h/d"], "got mysql://..."),
    (["study", "export", "x", "--out", ""], "--out must end in .csv, .json, .parquet or .jsonl, got ''"),
    (["run", "nope.toml"], "cannot read nope.toml"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "message"), BAD)
def test_bad_input_is_one_line_and_leaves_nothing_behind(arguments, message, tmp_path):
    assert message in refused(*arguments, cwd=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_spreadsheet_runs_nothing_that_was_exported_as_csv(tmp_path):
    storage, formulas = f"sqlite:///{tmp_path}/cabai.db", ["=1+1", "+1", "-1", "@SUM(A1)", "\tx", "\rx"]
    study = cabai.create_study("x", arms=["=cmd", "plain"], family="gaussian(variance=1)", storage=storage)
    for formula in formulas:
        study.tell(study.ask(worker=formula), failed=formula)
    study.tell(study.ask(), -2.5, 1.0)
    here("study", "export", "x", "--out", "all.csv", cwd=tmp_path)
    with open(tmp_path / "all.csv", newline="") as file:
        *failures, last = csv.DictReader(file)
    for row, formula in zip(failures, formulas, strict=True):
        assert (row["failed"], row["worker"]) == (f"'{formula}", f"'{formula}")
        assert row["arm"] in ("'=cmd", "plain")
    assert last["reward"] == "-2.5"
    shown = json.loads(here("study", "export", "x", "--json", cwd=tmp_path).stdout)["observations"]
    assert [row["failed"] for row in shown] == [*formulas, None]


def test_a_script_that_creates_its_study_can_be_started_again(tmp_path):
    assert here(*CREATE, cwd=tmp_path).returncode == 0
    assert "study 'x' already exists" in refused(*CREATE, cwd=tmp_path)
    loaded = here(*CREATE, "--load-if-exists", cwd=tmp_path)
    assert (loaded.returncode, loaded.stdout) == (0, "ready: x, 2 arms, in sqlite:///cabai.db\n")
    said = refused(*CREATE, "--delta", "0.1", "--load-if-exists", cwd=tmp_path)
    assert "its delta is 0.05, not 0.1. Settings never change: choose another name, or delete the" in said


def test_storage_can_come_from_the_environment(folder):
    """Of `cabai run` too, unless the file names one."""
    environment = {"CABAI_STORAGE": "sqlite:///elsewhere.db"}
    here(*CREATE, cwd=folder, env=environment)
    (folder / "named.toml").write_text(RECIPE + "max_pulls = 1\nstorage = 'sqlite:///named.db'\n")
    (folder / "judges.toml").write_text(RECIPE + "max_pulls = 1\n")
    for file in ("judges.toml", "named.toml"):
        assert here("run", file, cwd=folder, env=environment).returncode == 3
    assert cabai.list_studies(storage=f"sqlite:///{folder}/elsewhere.db") == ["x", "judges"]
    assert cabai.list_studies(storage=f"sqlite:///{folder}/named.db") == ["named"]


def test_many_failures_are_a_warning_of_one_line(tmp_path):
    study = cabai.create_study("x", arms=["a", "b"], family="poisson", storage=f"sqlite:///{tmp_path}/cabai.db")
    for _ in range(2):
        study.tell(study.ask(), failed="broken")
    done = here("study", "tell", "x", study.ask().id, "--failed", "broken again", cwd=tmp_path)
    assert done.returncode == 0
    said = r"cabai: warning: 3 of 3 pulls of arm 'a' failed\. The guarantee covers .* The last: broken again\n"
    assert re.fullmatch(said, done.stderr)


def test_run_decides_and_running_again_changes_nothing(folder):
    done = apart("run", "judges.toml", cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Decided: large has the largest mean, wrong with probability at most 0.05" in done.stdout
    assert here("run", str(folder / "judges.toml"), cwd="/").stdout == done.stdout  # paths are the file's
    known = status(folder)
    assert (known["decision"], known["spent"]) == ("large", 0.5 * known["pulls"])


def test_an_arm_that_changes_between_two_runs_is_refused_unless_it_is_said_to_be_the_same(folder):
    """Else the rewards of two different things would be taken for those of one."""
    file = folder / "judges.toml"
    file.write_text(RECIPE + "max_pulls = 4\n")
    before = here("run", "judges.toml", "--json", cwd=folder).stdout
    for changed in (RECIPE.replace('"judge.py"', '"./judge.py"'), RECIPE + 'cost = "seconds"\n'):
        file.write_text(changed + "max_pulls = 4\n")
        said = refused("run", "judges.toml", cwd=folder)
        assert re.search("of arm 'small' is .*when the study 'judges' ran before.*run with --changed", said)
        assert here("run", "judges.toml", "--changed", "--json", cwd=folder).stdout == before
        assert here("run", "judges.toml", "--json", cwd=folder).stdout == before  # that is how it is tried now
    file.write_text(RECIPE + "delta = 0.1\nmax_pulls = 4\n")  # that is another matter
    assert "its delta is 0.05, not 0.1" in refused("run", "judges.toml", "--changed", cwd=folder)


def test_a_study_may_be_made_by_a_program_and_run_from_a_file_and_the_other_way_round(folder):
    storage, settings = f"sqlite:///{folder}/cabai.db", {"family": "bernoulli", "max_pulls": 3}
    arms = {"small": {"size": 1}, "large": {"size": 2}}
    file = folder / "judges.toml"
    text = RECIPE.replace('arms = ["small", "large"]', "max_pulls = 3\n[arms.small]\nsize = 1\n[arms.large]\nsize = 2")
    file.write_text(text)
    cabai.create_study("judges", arms=arms, storage=storage, **settings)
    assert here("run", "judges.toml", cwd=folder).returncode == 3
    assert cabai.create_study("judges", arms=arms, storage=storage, load_if_exists=True, **settings).stopped
    file.write_text(text.replace('"judge.py"', '"./judge.py"'))
    assert "the command of arm 'small' is " in here("run", "judges.toml", cwd=folder).stderr
    file.write_text(text.replace("size = 1", "size = 2024-01-01"))
    assert "metadata must be valid as JSON" in here("run", "judges.toml", cwd=folder).stderr


def test_commands_see_their_pull_and_their_time_is_their_cost(tmp_path):
    (tmp_path / "test.py").write_text(
        "import os, time\n"
        "reward = {'a': 0, 'b': 1}[os.environ['CABAI_ARM']]\n"
        "assert os.environ['CABAI_STUDY'] == 'timed' and os.environ['CABAI_PULL'].count('-') == 1\n"
        "assert os.environ['CABAI_METADATA'] == ('{\"depth\": 3}' if reward else 'null')\n"
        "time.sleep(0.2 * reward)\n"
        "print(reward)\n"
    )
    recipe = 'name = "timed"\nfamily = "bernoulli"\nstorage = "sqlite:///own.db"\ncost = "COST"\nmax_pulls = 4\n'
    recipe += f'command = "{sys.executable} test.py"\n[arms.a]\n[arms.b]\ndepth = 3\n'
    for cost in ("seconds", "cpu"):
        (tmp_path / "study.toml").write_text(recipe.replace("COST", cost))
        (tmp_path / "own.db").unlink(missing_ok=True)
        shown = json.loads(here("run", "study.toml", "--json", cwd=tmp_path).stdout)
        assert (shown["reason"], shown["leader"], shown["decision"], shown["failures"]) == ("max_pulls", "b", None, 0)
        a, b = shown["arms"]
        assert 0 < a["cost"] < 5
        if cost == "seconds":
            assert b["cost"] >= 0.2
        else:  # sleeping takes no CPU
            assert 0 < b["cost"] < 5


FUNCTIONS = """
import asyncio

def test(arm):
    return {'a': 3, 'b': 0}[arm], 0.5

async def later(arm):
    await asyncio.sleep(0.001)
    return {'a': 3, 'b': 0}[arm]

def wrong(arm):
    return 1, 2, 3
"""


def test_functions_are_arms_too_and_async_ones_are_awaited(tmp_path):
    (tmp_path / "judges_of_poisson.py").write_text(FUNCTIONS)
    text = 'family = "poisson"\narms = ["a", "b"]\nworkers = 2\nfunction = "judges_of_poisson:'
    (tmp_path / "study.toml").write_text(f'{text}test"\n')
    done = json.loads(apart("run", "study.toml", "--json", cwd=tmp_path).stdout)
    assert (done["decision"], done["name"]) == ("a", "study")
    done = json.loads(run_file(tmp_path, f'{text}later"\ncost = "seconds"\nname = "async"\n', "--json").stdout)
    assert (done["decision"], done["spent"] >= 0.001 * done["pulls"]) == ("a", True)
    refused = run_file(tmp_path, f'{text}later"\ncost = "cpu"\nname = "no"\n')
    assert "measure seconds" in refused.stderr
    done = run_file(tmp_path, f'{text}wrong"\ncost = "cpu"\nname = "bad"\nmax_pulls = 1\n')
    assert "must return (reward, cost), got (1, 2, 3)" in done.stderr
    assert "It is recorded as a failed pull that cost " in done.stderr
    done = status(tmp_path, "bad")
    assert (done["pulls"], done["failures"]) == (0, 1)
    assert done["spent"] > 0  # its time was paid for


ARMS, TRUE = 'family = "bernoulli"\narms = ["a", "b"]\n', 'family = "bernoulli"\narms = ["a", "b"]\ncommand = "true"\n'
WRONG = {
    "family = ": "is not TOML",
    'family = "bernoulli"': "there is no 'arms'",
    'arms = ["a", "b"]\ncommand = "true"': "there is no 'family'",
    ARMS: "arm 'a' has neither a command nor a function: it needs one",
    f'{TRUE}function = "x:y"': "arm 'a' has a command and a function: it needs one",
    f'{ARMS}command = "true \'"': "cannot be read",
    f'{ARMS}function = "x"': "module:function",
    f'{ARMS}function = "no_such_module:y"': "cannot import function",
    f'{TRUE}costs = "seconds"': "costs must be 2 numbers",
    f"{TRUE}timout = 3": "did you mean timeout?",
    f"{TRUE}workers = 4001": "workers must be at most 4000, got 4001",
    'family = "bernoulli"\narms = {a = 1, b = 2}\ncommand = "true"': "one table [arms.NAME] each",
    'family = "bernoulli"\ncommand = "true"\n[arms.a]\n[arms.b]\ntimeout = 3': "'timeout' is for all arms",
    f"{TRUE}max_pulls = {'9' * 5000}": "study.toml cannot be read: it has a number that is too long",
    f"{TRUE}costs = [1, 0x{'9' * 5000}]": "costs[1] must be a number, got a value of type int that",
    f"{TRUE}costs = {'[' * 5000}{']' * 5000}": "study.toml cannot be read: it has a number",
}


@pytest.mark.parametrize("recipe", WRONG, ids=WRONG.values())
def test_a_wrong_recipe_is_refused_in_one_line_and_leaves_nothing_behind(recipe, tmp_path):
    (tmp_path / "study.toml").write_text(recipe)
    assert WRONG[recipe] in refused("run", "study.toml", cwd=tmp_path)
    assert not (tmp_path / "cabai.db").exists()


NO_RESULT = "the test of arm 'a' did not return a reward and a cost: "
FAILING = [
    ("""sh -c 'echo trouble >&2; exit 3'""", "arm 'a' failed 2 times in a row", "exit code 3: trouble", 2),
    ("sleep 30", "arm 'a' failed 2 times in a row", "it took longer than the timeout", 2),
    ("echo hello", NO_RESULT, "its last line of output is not JSON: 'hello'", 1),
    (f'{sys.executable} -c "print(9000 * chr(91))"', NO_RESULT, "is not JSON", 1),
    (f'{sys.executable} -c "print(5000 * chr(57))"', NO_RESULT, "is not JSON", 1),
    ("""echo '{"reward": 0.5, "cost": 1}'""", NO_RESULT, "reward must be 0 or 1 for the bernoulli family, got 0.5", 1),
    ("""echo '{"reward": 1}'""", NO_RESULT, "a result needs a cost", 1),
    ("no-such-program", "the command of arm 'a' cannot be started: 'no-such-program': No such file", "", 0),
]


@pytest.mark.parametrize(("command", "said", "why", "failures"), FAILING)
def test_a_command_that_fails_is_kept_as_failed_and_ends_the_run_in_time(command, said, why, failures, tmp_path):
    limit = 0.3 if "sleep" in command else 60
    done = run_file(tmp_path, f"{ARMS}command = '''{command}'''\ntimeout = {limit}\nmax_failures = 2\n")
    assert (done.returncode, said in done.stderr, why in done.stderr) == (1, True, True), done.stderr
    assert done.stderr.count("\n") == 1
    study = cabai.load_study("study", storage=f"sqlite:///{tmp_path}/cabai.db")
    assert [why in each["failed"] for each in study.observations()] == [True] * failures
    assert not study.stopped


@pytest.mark.parametrize("ending", [
    signal.SIGINT, signal.SIGTERM, pytest.param(signal.SIGHUP, marks=pytest.mark.slow),
])  # fmt: skip
def test_what_ends_a_run_leaves_a_study_that_the_same_command_resumes(ending, folder):
    slow = JUDGE.replace("print(json", "time.sleep(0.05)\nprint(json")
    (folder / "judge.py").write_text(slow)
    command = [sys.executable, "-m", "cabai", "run", "judges.toml"]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    storage = f"sqlite:///{folder}/cabai.db"
    for _ in range(6000):
        begun = (folder / "cabai.db").exists() and "judges" in cabai.list_studies(storage=storage)
        if begun and cabai.load_study("judges", storage=storage).status().pulls >= 3:
            break
        time.sleep(0.05)
    process.send_signal(ending)
    out, err = process.communicate(timeout=300)
    assert (process.returncode, out) == (130, "")
    assert re.fullmatch(r"cabai: .*spent.*\. Run the same command again to continue\.\n", err)
    before = cabai.load_study("judges", storage=storage).observations()
    assert len(before) >= 3
    assert not any(each["failed"] for each in before)  # the pull that was cut short is given back, not a failure
    done = apart("run", "judges.toml", cwd=folder)
    assert "Decided: large" in done.stdout
    after = cabai.load_study("judges", storage=storage).observations()
    assert after[: len(before)] == before
    assert not any(each["failed"] for each in after)


LINE = r"\r\d+ pulls, [\d.]+ spent, .* leads"


@pytest.mark.parametrize("is_gone", [False, True])
def test_on_a_terminal_there_is_a_live_line_and_a_storage_that_is_gone_is_one_line_too(folder, is_gone):
    seen = folder / "seen"
    wait = "while sys.argv[2].endswith('-5') and not pathlib.Path('seen').exists():\n    time.sleep(0.02)"
    first = "pathlib.Path('cabai.db').unlink()\ntime.sleep(1)" if is_gone else wait  # else it may end before the line
    (folder / "judge.py").write_text(f"import pathlib, sys, time\n{first}\n{JUDGE}")
    main, other = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "cabai", "run", "judges.toml"], cwd=folder, stdout=subprocess.PIPE, stderr=other,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "100"}, text=True,
    )  # fmt: skip
    os.close(other)
    shown = ""
    with suppress(OSError):  # when the other end is closed
        while part := os.read(main, 65536):
            shown += part.decode(errors="ignore")
            if re.search(LINE, shown):
                seen.touch()
    out, _ = process.communicate(timeout=300)
    os.close(main)
    if is_gone:
        assert (out, "was deleted or replaced while it was in use" in shown, "Traceback" in shown) == ("", True, False)
    else:
        assert ("Decided: large" in out, "\x1b" in out, seen.exists()) == (True, False, True)


# What may change in a study file between two runs: how arms are tried, until something is observed; and budgets


FAILS, WORKS = "sh -c 'exit 3'", 'echo \'{"reward": 1, "cost": 1}\''


def run_judges(folder, url, command, *options, more=()):
    lines = [f'storage = "{url}"', f"command = {json.dumps(command)}", 'arms = ["a", "b"]', "max_pulls = 8",
             "max_failures = 2", *(more or ['family = "bernoulli"'])]  # fmt: skip
    (folder / "judges.toml").write_text("\n".join(lines))
    return here("run", "judges.toml", *options, cwd=folder)


@BOTH
def test_a_file_whose_runs_only_failed_may_be_changed(url, folder):
    assert "exit code 3" in run_judges(folder, url, FAILS).stderr
    assert "cannot be started" in run_judges(folder, url, "no-such-program").stderr
    done = run_judges(folder, url, WORKS, "--json")
    assert (done.returncode, done.stderr) == (3, "")
    assert json.loads(done.stdout)["failures"] == 2  # on the bill, and nothing else
    refused = run_judges(folder, url, FAILS)  # now there are rewards
    assert (refused.returncode, "run with --changed" in refused.stderr) == (2, True)
    close(url)


def test_what_is_under_way_elsewhere_keeps_the_file_as_it_is(folder):
    url = f"sqlite:///{folder}/cabai.db"
    run_judges(folder, url, FAILS)
    study = cabai.load_study("judges", storage=url)
    pull = study.ask(worker="another machine")
    assert "run with --changed" in run_judges(folder, url, WORKS).stderr
    study.release(pull)
    assert run_judges(folder, url, WORKS).returncode == 3


def test_with_items_a_failure_that_counts_as_a_score_is_an_observation(folder):
    url = f"sqlite:///{folder}/cabai.db"
    assert "exit code 3" in run_judges(folder, url, FAILS, more=["items = 9"]).stderr  # none of these counts
    fails_on_two = "sh -c 'test {item} != 2 && echo 1'"
    more = ["items = 9", 'cost = "seconds"']
    assert run_judges(folder, url, fails_on_two, more=more).returncode in (0, 3)
    assert "run with --changed" in run_judges(folder, url, WORKS, more=more).stderr


TEXT = (
    'family = "bernoulli"\ndelta = 0.001\nfunction = "tests_of_budgets:one"\narms = ["a", "b"]\n'
    'storage = "sqlite:///s.db"\n'
)


@pytest.fixture
def limited(tmp_path):
    """Run a file with these limits; returns what was said, what was spent and how many pulls there were."""
    (tmp_path / "tests_of_budgets.py").write_text("def one(arm):\n    return 1, 1.0\n")

    def once(**limits):
        done = run_file(tmp_path, "".join(f"{name} = {value}\n" for name, value in limits.items()) + TEXT)
        assert done.returncode == 3, done.stderr
        status = cabai.load_study("study", storage=f"sqlite:///{tmp_path}/s.db").status()
        assert status.stopped
        return done.stderr, status.spent

    return once


def test_a_budget_goes_up_and_down_and_up_again(limited):
    spent = []
    for max_cost in (4, 8, 3, 8, 10):
        said, bill = limited(max_cost=max_cost)
        spent.append(bill)
        if max_cost == 3:
            assert "max_cost was 8.0 and is now 3.0" in said
            assert "8 is already spent: nothing more is pulled with this max_cost." in said
            assert said.count("\n") == 2
    assert spent == [4, 8, 8, 8, 10]
    assert "max_cost was 8.0 and is now 10.0" in said


def test_no_run_spends_more_than_its_file_says(limited):
    for max_cost, max_pulls, spent in ((3, None, 3), (30, 3, 3), (3, 3, 3), (3, 20, 3), (5, 20, 5)):
        limits = {"max_cost": max_cost} | ({} if max_pulls is None else {"max_pulls": max_pulls})
        assert limited(**limits)[1] == spent


def test_what_was_amended_by_other_means_holds_unless_the_file_changes_or_allows_less(limited, tmp_path):
    limited(max_pulls=4)
    study = cabai.load_study("study", storage=f"sqlite:///{tmp_path}/s.db")
    study.amend(max_pulls=7)
    said, bill = limited(max_pulls=4)  # as before
    assert (bill, "max_pulls is 4 here, but the study 'study' was amended: 7." in said) == (7, True)
    assert limited(max_pulls=7) == ("", 7)
    assert "max_pulls was 7 and is now 4" in limited(max_pulls=4)[0]  # since it said 7 the last time
    assert limited(max_pulls=9, max_cost=8)[1] == 8
    study.amend(max_cost=100)
    said, bill = limited(max_pulls=9, max_cost=8)
    assert (bill, "max_cost was 100.0 and is now 8.0" in said) == (8, True)
    study.amend(max_cost=8.5, max_pulls=100)
    study.amend(max_cost=5)
    said, bill = limited(max_pulls=9, max_cost=8)  # others allow less
    assert (bill, "max_cost is 8 here, but the study 'study' was amended: 5." in said) == (8, True)


def test_an_evaluation_spends_no_more_than_its_call_says(folder):
    about = {"name": "e", "storage": f"sqlite:///{folder}/cabai.db", "seed": 1, "progress": False}
    spent = [
        cabai.evaluate(["a", "b"], range(200), lambda arm, item: 1.0, max_cost=most, **about).spent
        for most in (6, 12, 6, 9, 14)
    ]
    assert spent == [6, 12, 12, 12, 14]
