"""The shell, as its users meet it: what is printed, where, and with which exit code."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import sys
import time

import pytest

from shell import apart, here

PAPER = ["--family", "gaussian", "--means", "1.5,1,0.5", "--costs", "1,0.1,0.01"]
PAIR = ["--means", "1,0", "--costs", "1,1"]


def test_bound_and_simulate_as_json_have_the_promised_fields(tmp_path):
    fields = json.loads(here("bound", *PAPER, "--delta", "1e-6", "--json").stdout)
    assert list(fields) == ["hardness", "cost_shares", "pull_shares", "lower_bound", "delta", "epsilon", "hardness_of"]
    assert fields["hardness_of"]["ctas"] == fields["hardness"] < fields["hardness_of"]["co"]
    assert fields["pull_shares"] == pytest.approx([0.2275, 0.7192, 0.0533], abs=5e-5)
    out = tmp_path / "runs.parquet"
    done = apart("simulate", *PAPER, "--policy", "co", "--trajectories", "20", "--json", "--out", str(out))
    fields = json.loads(done.stdout)
    promised = "policy threshold delta trajectories mean_cost std_cost cost_quantiles mean_pulls pull_shares errors"
    assert {*promised.split(), "unfinished", "lower_bound", "ratio", "seconds", "steps"} <= set(fields)
    assert list(fields["cost_quantiles"]) == ["0.05", "0.5", "0.95", "0.99"]
    assert (fields["policy"], fields["trajectories"]) == ("co", 20)
    assert out.exists()
    assert done.stderr == ""  # no progress bar where there is no terminal


def test_compare_prints_a_row_a_policy_and_draws(tmp_path):
    policies, picture = "co,ctas(exploration=0.5, tracking=ratio)", tmp_path / "comparison.svg"
    done = here("compare", *PAPER, "--policies", policies, "--trajectories", "20", "--plot", str(picture))
    assert "lower bound" in picture.read_text()
    rows = done.stdout.splitlines()
    assert rows[2].startswith("co ")
    assert rows[3].startswith("ctas(exploration=0.5, tracking=ratio) ")


def test_compare_takes_a_file_of_instances_and_draws_a_panel_each(tmp_path):
    file, picture = tmp_path / "instances.toml", tmp_path / "costs.svg"
    hard = 'family = "bernoulli"\nmeans = [0.6, 0.5]\ncosts = [1, 1]\nnames = ["small", "large"]\n'
    file.write_text(f'[easy]\nfamily = "gaussian"\nmeans = [2, 0]\ncosts = [1, 0.1]\n[hard]\n{hard}')
    options = ["--policies", "co,uniform", "--trajectories", "20", "--delta", "0.3"]
    done = here("compare", str(file), *options, "--plot", str(picture))
    named = re.findall(r"^(easy|hard|co|uniform)\b", done.stdout, re.MULTILINE)
    assert named == ["easy", "co", "uniform", "hard", "co", "uniform"]
    for name in ("easy", "hard"):
        assert f"{name}: total cost per trajectory, delta 0.3" in picture.read_text()
    rows = json.loads(here("compare", str(file), *options, "--json").stdout)["policies"]
    assert [(row["instance"], row["policy"]) for row in rows][1:3] == [("easy", "uniform"), ("hard", "co")]
    spent = here("compare", str(file), "--policies", "uniform", "--budget", "20", "--trajectories", "20",
                 "--plot", str(picture))  # fmt: skip
    assert "hard: % of trajectories that are wrong, budget 20" in picture.read_text()
    assert "budget 20, no threshold" in spent.stdout


def test_a_wrong_file_of_instances_is_refused(tmp_path):
    file = tmp_path / "instances.toml"
    for content, message in (
        ("", "FILE has no instances: write a table of each, with family, means and costs."),
        ("[a]\nmeans = [1]", "[a] in FILE must be a table with family, means and costs, and may have names, cost_mod"),
        ("[a]\nfamily = 'gaussian'\nmeans = [1]\ncosts = [1]", "[a] in FILE: an instance needs at least 2 arms"),
        ("a =", "cannot read the instances in FILE"),
    ):
        file.write_text(content)
        done = here("compare", str(file))
        assert done.returncode == 2
        assert message.replace("FILE", str(file)) in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bound", "--family", "gausian", *PAIR], "unknown family 'gausian'; did you mean gaussian?"),
        (["bound", "--family", "gaussian", "--means", "1,x", "--costs", "1,1"], "--means must be numbers"),
        (["bound", "--family", "gaussian", "--means", "1,1", "--costs", "1,2"], "the best arm is not unique: 1, 2"),
        (["bound", *PAPER, "--delta", "0.6"], "the lower bound holds for delta below 0.5 only, got 0.6"),
        (["bound", *PAPER, "--delta", "small"], "Invalid value for '--delta'"),
        (["bound", *PAIR], "Missing option '--family'"),
        (["bound", *PAPER, "--nonsense"], "No such option: --nonsense"),
        (["plan", "--max-cost", "5"], "No such option: --max-cost; did you mean --budget?"),
        (["plan", "nowhere.toml"], "cannot read nowhere.toml"),
        (["plan", "a.csv", "--study", "x"], "give a file or --study, not both."),
        (["plan", "--family", "bernoulli", "--means", "0.2,0.5", "--plot", "x.pdf"], "--plot must end in .png or .svg"),
        (["study", "amend", "x", "--budget", "5"], "No such option: --budget; did you mean --max-cost?"),
        (["bound", *PAPER, "--espilon", "0"], "No such option: --espilon; did you mean --epsilon?"),
        (["bond"], "No such command 'bond'; did you mean bound?"),
        (["compare"], "give --family, --means and --costs of an instance, or a TOML file"),
        (["compare", "x.toml", "--means", "1,2"], "options of an instance are for one"),
        (["simulate", *PAPER, "--out", "/dev/null/x"], "cannot write /dev/null/x: /dev/null is"),
        (["simulate", *PAPER, "--out", "/dev/null"], "cannot write /dev/null: it is a device"),
        (["simulate", *PAPER, "--out", ""], "a file's name must not be empty"),
        (["calibrate", "--family", "gaussian", "--costs", "1,2", "--out", ""], "--out must end in .json, got ''"),
        (["simulate", *PAPER, "--max-pulls", str(2**63)], f"max_pulls must be below 2**63, got {2**63}"),
        (["reproduce", "table1", "--out", ""], "--out must name a folder, got ''"),
    ],
)
def test_every_error_is_one_line_and_exit_code_2(arguments, message):
    done = here(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("cabai: ")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    as_json = here(*arguments, "--json")
    assert as_json.returncode == 2
    assert message.partition(";")[0] in json.loads(as_json.stderr)["error"] or arguments == ["bond"]


def test_help_teaches():
    for command in ([], ["bound"], ["simulate"], ["compare"]):
        done = here(*command, "--help")
        assert done.returncode == 0
        assert "Usage: " in done.stdout
    assert "Example: cabai simulate" in " ".join(here("simulate", "--help").stdout.split())
    for command in ([], ["study"]):  # alone, it shows its commands
        assert here(*command).stdout.strip() == here(*command, "--help").stdout.strip()


@pytest.mark.parametrize("workers", ["2", pytest.param("1", marks=pytest.mark.slow)])
def test_ctrl_c_stops_within_a_second(workers):
    """Measured in CPU time, of which each worker uses one second per second, so that a busy machine does not matter."""
    endless = ["simulate", "--family", "bernoulli", "--means", "0.5,0.4999999", "--costs", "1,1", "--policy", "ctas"]
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    others = used.ru_utime + used.ru_stime
    process = subprocess.Popen(
        [sys.executable, "-m", "cabai", *endless, "--workers", workers, "--delta", "1e-6"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        # Its threads tell that it has begun to simulate.
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and threads_of(process.pid) < int(workers) + 1:
            time.sleep(0.05)
        time.sleep(1.0)
        assert process.poll() is None
        before = cpu_seconds(process.pid)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=300)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert used.ru_utime + used.ru_stime - others - before < 1.0 * int(workers)
        assert (process.returncode, out, err) == (130, "", "cabai: stopped.\n")
    finally:
        process.kill()
        process.communicate()


def test_ctrl_c_while_the_program_is_loaded_is_one_line():
    """Whenever it comes: here in the middle of an import, which turns it into an error of another kind."""
    for start in ("runpy.run_module('cabai', run_name='__main__', alter_sys=True)", "exec(SCRIPT)"):
        code = f"""
import os, runpy, signal, sys
class Interrupting:
    def find_spec(self, name, *_):
        if name == "numpy":
            os.kill(os.getpid(), signal.SIGINT)
            raise ImportError("cut short")
sys.meta_path.insert(0, Interrupting())
sys.argv = ["-m" if "runpy" in {start!r} else "/usr/bin/cabai", "bound"]
sys.orig_argv = ["python", "-m", "cabai", "bound"]
SCRIPT = "from cabai.cli import main; main()"
{start}
"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
        assert (done.returncode, done.stdout, done.stderr) == (130, "", "cabai: stopped.\n")


@pytest.mark.parametrize("buffered", ["", "1"])
def test_a_standard_output_that_is_full_is_one_line(buffered):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "cabai", "bound", *PAPER], stdout=full, stderr=subprocess.PIPE, text=True,
            env=os.environ | {"PYTHONUNBUFFERED": buffered}, timeout=300,
        )  # fmt: skip
    said = "cabai: cannot write to standard output: No space left on device. What was stored before is kept.\n"
    assert (done.returncode, done.stderr) == (1, said)


def test_streams_that_are_closed_and_files_that_cannot_be_opened_are_one_line(tmp_path):
    done = here("serve", "--token-file", ".", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "cabai: cannot open .: Is a directory.\n")
    command = f"{sys.executable} -m cabai bound {' '.join(PAPER)}"
    closed = subprocess.run(f"{command} >&-", shell=True, stderr=subprocess.PIPE, text=True, timeout=300)
    assert closed.returncode == 1
    assert closed.stderr.startswith("cabai: standard output is closed")
    assert closed.stderr.count("\n") == 1
    quiet = subprocess.run(f"{command} 2>&- <&-", shell=True, stdout=subprocess.PIPE, text=True, timeout=300)
    assert (quiet.returncode, quiet.stdout) == (0, here("bound", *PAPER).stdout)


def test_an_error_in_cabai_itself_is_one_line_too():
    code = "import cabai.cli, cabai.cli.simulating as command; command.lower_bound = lambda *_: 1 / 0; cabai.cli.main()"
    command = [sys.executable, "-c", code, "bound", *PAPER]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "ZeroDivisionError: division by zero. It is a bug in cabai. Please report it" in done.stderr
    environment = os.environ | {"CABAI_TRACEBACK": "1"}
    assert "Traceback" in subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment).stderr


def cpu_seconds(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def threads_of(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/task"))


def test_import_and_help_load_nothing_heavy():
    heavy = "('numba', 'scipy', 'pandas', 'matplotlib', 'joblib', 'cloudpickle', 'distributed', 'ray')"
    for code in (  # which also keeps a program's own answer to Ctrl-C
        "import signal, cabai; assert signal.getsignal(signal.SIGINT) is signal.default_int_handler",
        "import sys; sys.argv = ['cabai', '--help']; import cabai.cli; cabai.cli.app(standalone_mode=False)",
    ):
        check = f"{code}; import sys; print(*(module for module in {heavy} if module in sys.modules))"
        done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
        assert done.stdout.splitlines()[-1] == ""
