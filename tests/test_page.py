"""The page, the report and the notebook: in a real browser, and as text."""

from __future__ import annotations

import json
import os
import random
import re
import threading
import time
from html import unescape
from html.parser import HTMLParser
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

import pytest

import cabai
from browser import Page, browser, program
from served import Process
from shell import here

HOSTILE = '<img src=x onerror="alert(1)"><script>alert(2)</script>'


@pytest.fixture(scope="module")
def chromium():
    if program() is None:
        reason = "no Chromium is installed: `make browser`, or apt-get install chromium"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(reason)
    with browser() as opened:
        yield opened


@pytest.fixture
def open_tab(chromium, serve):
    """open_tab(server, path, ...): a tab that is logged in; nothing goes wrong in it until the test has ended."""
    pages = []

    def opened(server, path="/", **options):
        pages.append(Page(chromium, **options))
        pages[-1].tab.goto(f"http://127.0.0.1:{server.port}{path}?token={server.tokens['read']}")
        return pages[-1]

    yield opened
    for page in pages:
        page.close()
        assert page.errors == []


@pytest.fixture
def storage(folder):
    return f"sqlite:///{folder}/cabai.db"


def judged(name: str, storage: str, arms=("small", "large"), **settings) -> cabai.Study:
    settings = {"family": "bernoulli", "costs": [0.01] * len(arms), "seed": 1} | settings
    return cabai.create_study(name, arms=list(arms), storage=storage, **settings)


def slowly(good: str, pause: float = 0.01, chance: random.Random | None = None):
    """A test of arms: the good one succeeds more often."""
    chance = chance or random.Random(1)

    def test(arm: str) -> float:
        time.sleep(pause)
        return float(chance.random() < (0.9 if arm == good else 0.3))

    return test


def test_watch_a_running_study_reach_its_decision(open_tab, serve, storage):
    """Log in, watch, and nothing but the server is asked for anything; a script in an arm's name stays text."""
    study = judged("which <b>judge</b>", storage, [HOSTILE, "large"], delta=1e-3)
    for pull in study.ask(2):
        study.tell(pull, 0)
    server = serve(storage)
    page = open_tab(server)
    assert page.tab.url == f"http://127.0.0.1:{server.port}/"  # the token has left the address
    page.tab.get_by_role("link", name="which <b>judge</b>").click()
    assert "leads" in page.tab.locator(".verdict").inner_text()
    assert page.tab.get_by_role("rowheader", name=HOSTILE).count() == 1
    assert page.tab.locator("img").count() == 0
    run = threading.Thread(target=study.run, args=(slowly("large"),))
    run.start()
    page.wait_for(".verdict", r"^Decided: large")
    run.join()
    page.wait_for("#news", "^Decided")
    assert page.tab.locator("tr.best").inner_text().startswith("large")
    assert page.tab.locator("figure svg path").count() >= 2
    assert page.hosts() == {"http://127.0.0.1"}


@pytest.mark.slow
def test_the_page_goes_on_when_the_server_is_back(chromium, storage, tmp_path):
    study = judged("restart", storage)
    server = Process(storage, tmp_path)
    page = Page(chromium)
    try:
        page.tab.goto(f"http://127.0.0.1:{server.port}/studies/restart?token={server.token}")
        server.end(9)
        page.wait_for("#connection", "does not answer")
        study.tell(study.ask(), 1)
        server.start()
        page.wait_for(".verdict", "leads")
        page.tab.locator("#connection").wait_for(state="hidden")
        os.remove(server.tokens)
        server.end(9)
        server.start()
        page.wait_for("#connection", "a new token")
    finally:
        page.close()
        server.end(9)


def test_a_long_list_begins_with_the_newest_and_can_be_filtered_also_as_it_moves(open_tab, serve, storage):
    for number in range(6):
        judged(f"judges {number}", storage)
        judged(f"prompts {number}", storage)
    page = open_tab(serve(storage))
    shown = page.tab.locator("#studies tbody th:visible")
    assert shown.all_inner_texts() == [
        f"{what} {number}" for number in range(5, -1, -1) for what in ("prompts", "judges")
    ]
    page.tab.fill("#filter", "JUDGES")
    assert shown.all_inner_texts() == [f"judges {number}" for number in range(5, -1, -1)]
    judged("newest judges", storage)
    judged("newest prompts", storage)
    page.tab.get_by_role("link", name="newest judges").wait_for()
    assert shown.all_inner_texts() == ["newest judges", *(f"judges {number}" for number in range(5, -1, -1))]


class Tags(HTMLParser):
    """What a file of HTML consists of; every element is closed."""

    VOID = frozenset({"meta", "link", "br", "input"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def every_state(storage: str) -> list[cabai.Study]:
    """Studies of each kind, in each state in which a page may be looked at."""
    fresh = judged(f"fresh {HOSTILE}", storage, ["a", "b", HOSTILE])
    begun = judged("begun", storage)
    begun.tell(begun.ask(), 1)
    begun.ask(worker=HOSTILE)
    decided = judged("decided", storage)
    decided.run(slowly("large", 0))
    limited = judged("limited", storage, max_pulls=30, epsilon=0.1, direction="minimize")
    limited.run(slowly("large", 0))
    by_hand = judged("by hand", storage, family="gaussian(variance=1)", costs=None, max_cost=100)
    by_hand.tell(by_hand.ask(), 1e8, 1e-8)
    by_hand.tell(by_hand.ask(), failed=HOSTILE, cost=3)
    by_hand.stop()
    race = cabai.create_study("race", arms=["a", "b", "c"], items=60, costs=[1, 1, 2], storage=storage, seed=3)
    race.tell(race.ask(), 0.5)
    raced = cabai.create_study("raced", arms=["a", "b", "c"], items=60, costs=[1, 1, 2], storage=storage, seed=3)
    raced.run(lambda arm, item: float(arm == "b"))
    unproven = judged("unproven", storage, family="poisson", threshold="paper")
    unproven.tell_many([{"pull": pull, "reward": 3} for pull in unproven.ask(4)])
    cheap = judged("cheap", storage, ["a", "b", "c"], goal="cheapest", epsilon=0.3, running_costs=[1, 2, 3])
    cheap.tell_many([{"pull": pull, "reward": pull.arm != "a"} for pull in cheap.ask(30)])
    cheapest = judged("cheapest", storage, ["a", "b", "c"], goal="cheapest", epsilon=0.3, running_costs=[1, 2, 3])
    cheapest.run(lambda arm: float(arm != "a"))
    dropped = judged("dropped", storage, ["a", "b", "c"], reserve=0.2)
    dropped.tell_many([{"pull": pull, "reward": 1} for pull in dropped.ask(5)])
    dropped.drop("c")
    dropped.amend(max_cost=7)
    return [fresh, begun, decided, limited, by_hand, race, raced, unproven, cheap, cheapest, dropped]


def test_every_state_can_be_seen(storage, serve):
    """Names and words stay text, in the list too."""
    server = serve(storage)
    for study in every_state(storage):
        status, _, page = server.send("GET", f"/studies/{quote(study.name, safe='')}")
        assert status == 200
        report, cell, listed = study.report(), study._repr_html_(), server.send("GET", "/")[2]
        for text in (page, report, cell, listed):
            tags = Tags(text).found
            assert not [attributes for _, attributes in tags if any(name.startswith("on") for name in attributes)]
            assert "nan" not in re.findall(r"[a-z]+", text.lower())
            assert not [attributes for _, attributes in tags if "style" in attributes]  # the policy forbids it
            assert [tag for tag, _ in tags].count("script") == (text in (page, listed))  # our own
        assert study.status().sentence.partition(",")[0] in unescape(page)


def in_words(html: str) -> str:
    return " ".join(unescape(re.sub(r"<style>.*?</style>|<[^>]+>", " ", html, flags=re.DOTALL)).split())


@pytest.mark.slow
def test_on_a_phone_nothing_is_wider_than_the_screen_and_links_of_other_sites_lead_in(
    open_tab, chromium, serve, storage
):
    """A link with the token on a page of another site: the cookie is strict, and the page opens all the same."""
    study = judged("a study with quite a long name, as people give", storage, [f"model {i:03}" for i in range(100)])
    study.tell_many([{"pull": pull, "reward": 1} for pull in study.ask(150)])
    phone = {"viewport": {"width": 360, "height": 740}, "device_scale_factor": 2, "is_mobile": True}
    server, path = serve(storage), f"/studies/{quote(study.name)}"
    tab = open_tab(server, path, **phone).tab
    assert tab.evaluate("document.documentElement.scrollWidth") <= 360
    assert tab.locator("tbody tr").count() == 100
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.textContent") == "Skip to the arms"
    tab.keyboard.press("Enter")
    assert tab.evaluate("document.activeElement.id") == "arms"
    link = f'<a href="http://127.0.0.1:{server.port}{path}?token={server.tokens["read"]}">in</a>'
    page = Page(chromium)
    page.tab.route("http://elsewhere.test/", lambda route: route.fulfill(body=link, content_type="text/html"))
    page.tab.goto("http://elsewhere.test/")
    page.tab.get_by_role("link").click()
    page.tab.get_by_role("heading", name=study.name).wait_for()
    page.close()


@pytest.mark.parametrize(("options", "before", "after"), [
    ({"policy": "top-two"}, "May be the best 3 of 3", "May be the best 1 of 3"),  # which never drops an arm
    ({"policy": "co"}, "May be the best 3 of 3", "May be the best 1 of 3"),
    ({"family": "poisson", "threshold": "paper"}, "", "Arms left 1 of 3"),  # which does not say which may be the best
    ({"reserve": 0.2}, "Arms left 2 of 3", "Arms left 1 of 3"),
])  # fmt: skip
def test_the_page_counts_the_arms_that_may_be_the_best_or_that_are_left(storage, options, before, after):
    study = judged("counted", storage, ["a", "b", "c"], **options)
    if "reserve" in options:
        study.drop("c")
    for wanted in (before, after):
        seen = in_words(study._repr_html_())
        assert re.findall(r"(?:May be the best|Arms left) \d of \d", seen) == ([wanted] if wanted else [])
        study.run(slowly("b", 0))
    if "policy" in options:
        assert sorted(re.findall(r"\b([ac]) out ", seen)) == ["a", "c"]


def test_a_report_needs_nothing_else(storage, folder):
    study = judged("report", storage)
    study.run(slowly("large", 0))
    found = here("study", "report", "report", "--storage", storage, "--out", str(folder / "report.html"))
    assert (found.returncode, found.stdout) == (0, f"written: {folder / 'report.html'}\n")
    text = (folder / "report.html").read_text(encoding="utf-8")
    assert not [tag for tag, attributes in Tags(text).found if {"src", "href", "srcset"} & set(attributes)]
    assert "url(" not in text
    for part in ("Question", "Assumptions", "The bill", "large has the largest mean"):
        assert part in text
    for command, file, said in (("report", "r.pdf", ".html"), ("plot", "p.pdf", ".svg or .png")):
        found = here("study", command, "report", "--storage", storage, "--out", str(folder / file))
        assert (found.returncode, found.stdout, f"--out must end in {said}" in found.stderr) == (2, "", True)


@pytest.mark.parametrize("kind", ["svg", "png"])
def test_a_picture_of_a_study(storage, folder, kind):
    study = judged("picture", storage, ["a", "b", "c"], max_pulls=20)
    study.run(slowly("b", 0))
    judged("nothing told", storage)
    for name in ("picture", "nothing told"):
        file = folder / f"{name}.{kind}"
        found = here("study", "plot", name, "--storage", storage, "--out", str(file), "--json")
        assert (found.returncode, json.loads(found.stdout)) == (0, {"written": str(file)})
        start = {"svg": b"<?xml", "png": b"\x89PNG"}[kind]
        assert file.read_bytes().startswith(start)


def test_results_in_a_notebook():
    """Tables and pictures by the page's renderer: the same numbers as in the text."""
    instance = cabai.Instance("gaussian", [1.5, 1, 0.5], [1, 0.1, 0.01], names=[HOSTILE, "b", "c"])
    runs = cabai.simulate(instance, trajectories=50, seed=1)
    totals = cabai.simulate(instance, trajectories=50, seed=1, keep="summary")
    compared = cabai.compare(instance, ["co", "ctas"], trajectories=9)
    certificate = cabai.calibrate("gaussian", [1, 1], "uniform", delta=0.2, max_pulls=20, trajectories=800)
    for result in (cabai.bound(instance), runs, totals, runs.summary(), compared, certificate):
        cell = result._repr_html_()
        assert "<script" not in cell
        Tags(cell)
        seen = unescape(re.sub(r"<style>.*?</style>|<[^>]+>", " ", cell, flags=re.DOTALL))
        assert set(re.findall(r"\d+\.\d+", repr(result))) <= set(re.findall(r"\d+\.\d+", seen))
    assert runs.plot().axes
    assert compared.plot().axes


@pytest.mark.parametrize("what", ["study", "evaluation"])
def test_the_page_of_a_run(storage, capsys, what):
    """While a run with `page=True` is at work its page is there, for that study alone; afterwards it is gone."""
    judged("another", storage)
    answers, address = {}, ""

    def look(path: str, **headers: str) -> tuple[int, str]:
        try:
            with urlopen(Request(address + path, headers=headers), timeout=10) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as error:
            return error.code, ""

    def test(arm: str, item: int | None = None) -> float:
        nonlocal address
        if not address:
            line = capsys.readouterr().err
            found = re.fullmatch(r"page: (http://127\.0\.0\.1:\d+)/studies/watched\?token=(\S+)\n", line)
            address, bearer = found[1], {"Authorization": f"Bearer {found[2]}"}
            answers["page"], text = look("/studies/watched", **bearer)
            answers["list"], listed = look("/", **bearer)
            answers["other"], _ = look("/studies/another", **bearer)
            answers["no token"], _ = look("/studies/watched")
            assert ("watched" in text, "another" in listed) == (True, False)
        return float(arm == "large")

    if what == "study":
        judged("watched", storage).run(test, page=True)
    else:
        arms = ["small", "large"]
        cabai.evaluate(arms, range(100), test, name="watched", costs=[1, 2], storage=storage, page=True)
    assert answers == {"page": 200, "list": 200, "other": 404, "no token": 401}
    with pytest.raises(OSError, match="refused"):
        look("/")


def test_history_is_short_however_long_a_study_is(storage):
    study = judged("long", storage, ["a", "b", "c"], max_pulls=600, family="poisson", costs=[1, 2, 3])
    chance = random.Random(5)
    while not study.stopped:
        study.tell_many([{"pull": pull, "reward": chance.randrange(5)} for pull in study.ask(10)])
    points = study.history()
    assert 2 <= len(points) <= 200
    assert [point.told for point in points] == sorted({point.told for point in points})
    assert [point.spent for point in points] == sorted(point.spent for point in points)
    status = study.status()
    assert (points[-1].told, points[-1].spent) == (status.pulls, status.spent)
    assert all(point.required > 0 and point.evidence >= 0 for point in points if point.evidence is not None)


def test_a_failing_picture_takes_no_study_down(storage, monkeypatch):
    """Evidence that cannot be computed for the history is left out of it, and what is told is kept."""

    def broken(play):
        raise ZeroDivisionError

    study = judged("broken", storage)
    monkeypatch.setattr("cabai.study.state.evidence.Evidence.closest", broken)
    for _ in range(5):
        study.tell(study.ask(), 1)
    assert study._current.look(lambda state: state.told) == 5
    assert {point.evidence for point in study.history()} == {None}
    assert [point.told for point in study.history()] == [1, 2, 3, 4, 5]
