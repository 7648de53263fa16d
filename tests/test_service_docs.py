"""The workers of docs/service.md, in shell and JavaScript, are run as the page shows them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import cabai
from served import InThread

PAGE = (Path(__file__).parent.parent / "docs" / "service.md").read_text(encoding="utf-8")
PROGRAMS = {"sh": ["bash", "-eu"], "js": ["node", "--input-type=module"]}


@pytest.mark.parametrize("language", PROGRAMS)
def test_a_worker_of_the_page_reaches_the_decision(folder, language):
    needed = ["curl", "jq"] if language == "sh" else ["node"]
    if not all(shutil.which(program) for program in needed):
        pytest.skip(f"needs {' and '.join(needed)}")
    storage = f"sqlite:///{folder}/cabai.db"
    study = cabai.create_study("judges", arms=["small", "large"], family="bernoulli", storage=storage)
    server = InThread(storage)
    [worker] = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    about = {"CABAI": f"http://127.0.0.1:{server.port}", "CABAI_TOKEN": server.tokens["work"]}
    done = subprocess.run(
        PROGRAMS[language], input=worker, env=os.environ | about, capture_output=True, text=True, timeout=60
    )
    server.close()
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Decided: large has the largest mean")
    assert (study.decision, study.status().under_way) == ("large", 0)
