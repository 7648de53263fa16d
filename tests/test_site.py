"""The site builds without a warning, needs no network, and shows what the notebooks and the reference promise."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import cabai

DOCS = Path(__file__).parent.parent / "docs"


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The site, as `make docs` builds it: a link to a page, heading or file that is not there is an error."""
    folder = tmp_path_factory.mktemp("site")
    warnings = folder / "warnings"
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-q", "-n", "-W", "--keep-going", "-w", warnings, DOCS, folder / "pages"],
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert (done.returncode, warnings.read_text()) == (0, ""), done.stdout + done.stderr
    return folder / "pages"


def test_nothing_is_loaded_from_elsewhere(site):
    texts = {path: path.read_text(encoding="utf-8") for path in site.rglob("*") if path.suffix in (".html", ".css")}
    assert len(texts) > 20
    elements = r"<(?:script|link|img|iframe|source|embed|object)\b[^>]*?(?:src|href|data)="
    loads = rf"""(?:{elements}|url\(|@import)\s*["']?(?:https?:)?//"""
    assert {path.name: found for path, text in texts.items() if (found := re.findall(loads, text))} == {}


def test_every_notebook_was_run_and_shows_a_picture(site):
    notebooks = sorted((site / "notebooks").glob("*.html"))
    assert len(notebooks) == 3
    for notebook in notebooks:
        assert '<img alt="../_images/' in notebook.read_text(encoding="utf-8")


def test_the_reference_has_every_public_name(site):
    there = set(re.findall(r'id="cabai\.([\w.]+)"', (site / "reference.html").read_text(encoding="utf-8")))
    modules = {"datasets", "families", "policies", "prices", "thresholds"}
    assert set(cabai.__all__) - modules - there == set()
    assert {"Study.ask", "datasets.read_table", "families.Gaussian", "policies.CTAS", "thresholds.Contrast"} <= there


def test_every_command_is_there_with_its_help(site):
    page = (site / "commands.html").read_text(encoding="utf-8")
    for command in ("bound", "simulate", "compare", "plan", "replay", "run", "serve", "study ask", "study tell"):
        assert f"Usage: cabai {command} " in page
