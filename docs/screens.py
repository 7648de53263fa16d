"""Make the pictures of the page in docs/pictures/: python docs/screens.py

It needs Chromium (`make browser`) and Playwright (extra `test`). The studies have seeds; times are as they come.
"""

from __future__ import annotations

import random
import shutil
import time
import warnings
from pathlib import Path

from playwright.sync_api import sync_playwright

import cabai
from cabai.server.serving import live_page

FOLDER = Path(__file__).parent / "pictures"
SIZE = {"width": 1000, "height": 900}
PHONE = {"width": 390, "height": 860}


def judged(arms: int, *, until: int) -> cabai.Study:
    """A study of judges, some of which are better, that is still under way."""
    chance = random.Random(3)  # its progress falls by .28, about as much as usual
    names = ["small", "medium", "large"] if arms == 3 else [f"judge {i + 1:03}" for i in range(arms)]
    name, costs = ("which judge", [0.01, 0.03, 0.1]) if arms == 3 else (f"which of {arms} judges", [0.02] * arms)
    study = cabai.create_study(
        name, arms=names, family="bernoulli", costs=costs, seed=1, max_cost=60, storage="memory"
    )  # fmt: skip
    means = {name: 0.45 + 0.17 * (i % 3) - 0.002 * i for i, name in enumerate(names)}
    for turn in range(until):
        if study.stopped:
            break
        pull = study.ask(worker=f"worker {turn % 4 + 1}")
        if chance.random() < 0.01:
            study.tell(pull, failed="no answer within 30 s")
        else:
            study.tell(pull, float(chance.random() < means[pull.arm]))
        time.sleep(0.005 if arms == 3 else 0)
        if turn % 10 == 0 and turn > 60 and is_near(study.status()):
            break
    if not study.stopped:
        study.ask(2, worker="worker 1")
    return study


def is_near(status: cabai.study.Status) -> bool:
    """Whether two thirds of the expected bill are paid."""
    return 0.65 < (status.progress or 0.0) < 1


def main() -> None:
    warnings.simplefilter("ignore")
    program = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for arms, until, name, shots in (
            (3, 1500, "page", (("", "light", SIZE), ("-dark", "dark", SIZE), ("-phone", "light", PHONE))),
            (100, 2500, "page-100", (("", "light", SIZE), ("-dark", "dark", SIZE))),
        ):
            study = judged(arms, until=until)
            for kind, scheme, size in shots:
                with live_page(study) as address:
                    context = browser.new_context(color_scheme=scheme, viewport=size)
                    tab = context.new_page()
                    tab.goto(address)
                    tab.wait_for_timeout(1000)
                    height = size["height"] if size == PHONE else tab.locator("#pulls").bounding_box()["y"]
                    whole = {"x": 0, "y": 0, "width": size["width"], "height": height}
                    tab.screenshot(path=str(FOLDER / f"{name}{kind}.png"), clip=whole, full_page=True)
                    context.close()
        browser.close()


if __name__ == "__main__":
    main()
