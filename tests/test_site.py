"""The site builds without a warning, needs no network, and shows what the notebooks and the reference promise."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from browser import Page, browser, program
from cabai.settings import settings_for

DOCS = Path(__file__).parent.parent / "docs"
sys.path.insert(0, str(DOCS))
from site_parts import MATHML, as_mathml  # noqa: E402


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


def test_the_first_page_lists_every_page(site):
    """On a forge too, where nothing else leads to them; the sidebar is made from this list."""
    all_pages = (DOCS / "index.md").read_text(encoding="utf-8").partition("## All pages")[2]
    pages = {path.relative_to(DOCS).with_suffix("").as_posix() for path in DOCS.rglob("*.md")} - {"index"}
    assert sorted(re.findall(r"\(([\w/-]+)\.md\)", all_pages)) == sorted(pages)
    parts = re.findall(r'"caption"[^>]*><span class="caption-text">(\w+)', (site / "index.html").read_text("utf-8"))
    assert parts == ["Guide", "Notebooks", "Reference", "Theory"]


def test_nothing_is_loaded_from_elsewhere_and_every_notebook_shows_a_picture(site):
    texts = {path: path.read_text(encoding="utf-8") for path in site.rglob("*") if path.suffix in (".html", ".css")}
    assert len(texts) > 20
    elements = r"<(?:script|link|img|iframe|source|embed|object)\b[^>]*?(?:src|href|data)="
    loads = rf"""(?:{elements}|url\(|@import)\s*["']?(?:https?:)?//"""
    assert {path.name: found for path, text in texts.items() if (found := re.findall(loads, text))} == {}
    notebooks = sorted((site / "notebooks").glob("*.html"))
    assert len(notebooks) == 3
    for notebook in notebooks:
        assert '<img alt="../_images/' in notebook.read_text(encoding="utf-8")
    for page in (site / "theory").glob("*.html"):
        assert not re.search(r'(?<!<span class="whole">)[(\[]+<math xmlns="[^"]*">', page.read_text(encoding="utf-8"))


def test_every_setting_and_every_command_is_there(site):
    page = (site / "study.html").read_text(encoding="utf-8")
    shown = re.findall(r'<tr class="row-\w+"><td><p><code[^>]*><span class="pre">(\w+)</span></code>', page)
    assert set(settings_for("study")) | set(settings_for("file")) <= set(shown)
    page = (site / "commands.html").read_text(encoding="utf-8")
    for command in ("bound", "simulate", "compare", "plan", "replay", "run", "serve", "study ask", "study tell"):
        assert f"Usage: cabai {command} " in page


@pytest.mark.slow
def test_a_window_shows_whole_pages(site):
    """At 1280 pixels formulas, tables and code of 110 columns are not cut off; no page is wider than a phone."""
    if program() is None:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)("no Chromium is installed: `make browser`")
    with browser() as opened:
        screen, phone = (Page(opened, viewport={"width": width, "height": 900}) for width in (1280, 390))
        for path in sorted(site.rglob("*.html")):
            screen.tab.goto(path.as_uri())
            assert screen.tab.evaluate(CUT_OFF) == [], path
            phone.tab.goto(path.as_uri())
            assert phone.tab.evaluate("document.documentElement.scrollWidth") <= 390, path


CUT_OFF = """() => [...document.querySelectorAll("article *")].filter((each) => {
  const columns = Math.max(...each.textContent.split("\\n").map((line) => line.length));
  const scrolls = ["auto", "scroll", "hidden"].includes(getComputedStyle(each).overflowX) && each.clientWidth > 1;
  return scrolls && each.scrollWidth > each.clientWidth + 1 && !(each.tagName == "PRE" && columns > 110);
}).map((each) => each.textContent.slice(0, 100))"""


@pytest.mark.parametrize(("tex", "fractions"), [
    (r"\frac12\log N", ["12"]), (r"\frac34+\frac1{23}", ["34", "123"]), (r"\frac\delta{\frac12x}", ["δ12x", "12"]),
])  # fmt: skip
def test_fractions_and_powers_are_as_tex_reads_them(tex, fractions):
    """`\\frac12x` is a half of x, whoever sets it."""

    def texts(tex, kind):
        found = ElementTree.fromstring(as_mathml(tex)).iter(f"{{{MATHML}}}{kind}")
        return ["".join("".join(each.itertext()).split()) for each in found]

    assert texts(tex, "mfrac") == fractions
    assert texts("x^10", "msup") == ["x1"]
