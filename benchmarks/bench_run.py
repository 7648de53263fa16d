"""What a run itself costs: CPU time per call, for tests that only wait. On an older tree it prints what that took."""

from __future__ import annotations

import time

import cabai

SKILLS = {"a": 0.9, "b": 0.6, "c": 0.3}
SECONDS = 0.2  # of each test


def wait_and_score(arm: str, item: int) -> float:
    time.sleep(SECONDS)
    return float(item * 0.618 % 1 < SKILLS[arm])


def main() -> None:
    cabai.evaluate(["a", "b"], range(50), lambda arm, item: arm == "a")  # whatever is loaded once
    for workers in (1, 6, 30, 64):
        began, cpu = time.perf_counter(), time.process_time()
        found = cabai.evaluate(list(SKILLS), range(300), wait_and_score, workers=workers, seed=1)
        calls, spent = sum(map(len, found.scores.values())), time.process_time() - cpu
        wall = time.perf_counter() - began
        print(f"{workers:3} workers: {calls} calls, {1000 * spent / calls:.2f} ms of CPU each, {wall:.1f} s")


if __name__ == "__main__":
    main()
