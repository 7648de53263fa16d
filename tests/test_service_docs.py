"""The workers of docs/service.md, in shell and JavaScript, are run as the page shows them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import cabai

PAGE = (Path(__file__).parent.parent / "docs" / "service.md").read_text(encoding="utf-8")
PROGRAMS = {"sh": ["bash", "-eu"], "js": ["node", "--input-type=module"]}


def worker_of_the_page(language):
    needed = ["curl", "jq"] if language == "sh" else ["node"]
    if not all(shutil.which(program) for program in needed):
        pytest.skip(f"needs {' and '.join(needed)}")
    [worker] = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return worker


def results(language, worker, server, workers=1):
    """The exit code, output and errors of each of some workers at the same time."""
    about = {"CABAI": f"http://127.0.0.1:{server.port}", "CABAI_TOKEN": server.tokens["work"]}

    def run(_):
        done = subprocess.run(
            PROGRAMS[language], input=worker, env=os.environ | about, capture_output=True, text=True, timeout=300
        )
        return done.returncode, done.stdout, done.stderr

    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(run, range(workers)))


@pytest.mark.parametrize("language", PROGRAMS)
def test_a_worker_of_the_page_reaches_the_decision(folder, serve, language):
    worker = worker_of_the_page(language)
    storage = f"sqlite:///{folder}/cabai.db"
    study = cabai.create_study("judges", arms=["small", "large"], family="bernoulli", storage=storage)
    [(code, output, errors)] = results(language, worker, serve(storage))
    assert (code, errors) == (0, "")
    assert output.startswith("Decided: large has the largest mean")
    assert (study.decision, study.status().under_way) == ("large", 0)


@pytest.mark.parametrize("language", PROGRAMS)
def test_workers_of_the_page_stay_while_others_have_all_that_can_be_tried(folder, serve, language):
    """Another worker has three of the four pulls: workers are told to wait, and none goes before the end."""
    worker = worker_of_the_page(language).replace("0.02", "1")
    storage = f"sqlite:///{folder}/cabai.db"
    study = cabai.create_study("judges", arms=["small", "large"], family="bernoulli", storage=storage, max_pulls=4)
    held = study.ask(3, worker="another")

    def tell_late():
        time.sleep(1.5)
        for pull in held:
            study.tell(pull, reward=1, cost=1)

    late = threading.Thread(target=tell_late)
    late.start()
    found = results(language, worker, serve(storage), workers=3)
    late.join()
    assert [(code, errors) for code, _, errors in found] == [(0, "")] * 3
    assert all(output.startswith("Undecided: ") for _, output, _ in found), found
    assert (study.status().pulls, study.status().under_way) == (4, 0)
