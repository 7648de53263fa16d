"""The tests themselves: they pass wherever they are started."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

STARTED = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
os.execv(sys.executable, [sys.executable, "-m", "pytest", "-n", "0", *sys.argv[1:]])
"""


def test_a_background_job_of_a_script_can_run_the_tests_of_ctrl_c():
    """Such a job ignores Ctrl-C, and hanging up under nohup, and hands that on to what it starts."""
    tests = Path(__file__).parent
    chosen = "tests_under_way or signals_reach"
    done = subprocess.run(
        [sys.executable, "-c", STARTED, tests / "test_study_run.py", tests / "test_tests.py", "-k", chosen],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout


def test_signals_reach_a_process_that_a_test_starts():
    for number in (signal.SIGINT, signal.SIGHUP):
        code = f"import signal, sys; sys.exit(signal.getsignal({number:d}) == signal.SIG_IGN)"
        assert subprocess.run([sys.executable, "-c", code]).returncode == 0
