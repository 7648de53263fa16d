"""Studies in memory, for the tests, and whether one makes the pulls of a simulation."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import cabai
from conftest import drawer
from storages import tables as stored_tables

NAMES = itertools.count()


def new(**options) -> cabai.study.Study:
    """A study with a unique name, in memory."""
    usual = {"arms": ["a", "b", "c"], "family": "bernoulli", "policy": "co", "storage": "memory"} | options
    if usual["family"] == "gaussian":
        usual["family"] = "gaussian(variance=1)"
    return cabai.create_study(f"study {next(NAMES)}", **usual)


def reloaded(study: cabai.study.Study) -> cabai.study.Study:
    return cabai.load_study(study.name, storage="memory")


def tables(study: cabai.study.Study) -> dict[str, list[tuple]]:
    """Everything in the storage."""
    return stored_tables(study._storage)


def start(study: cabai.study.Study, rewards, cost: float = 1.0) -> None:
    """Tell these rewards, one by one, of whatever the study asks for."""
    for reward in rewards:
        study.tell(study.ask(), reward, cost)


def play(study: cabai.study.Study, means, most: int = 10**6, *, seed: int = 1, cost: float | None = 1.0):
    """Ask and tell, one by one, until the study stops or `most` are told: rewards are 1 as often as an arm's mean says,
    else 0. Returns the status."""
    chance = random.Random(seed)
    for _ in range(most):
        if study.stopped:
            break
        pull = study.ask()
        study.tell(pull, float(chance.random() < means[pull.arm]), cost)
    return study.status()


@contextmanager
def refused(study: cabai.study.Study, message: str | None = None, error=cabai.InvalidInput) -> Iterator[Any]:
    """What is done is refused with these words, and nothing in the storage has changed."""
    before = tables(study)
    with pytest.raises(error, match=message) as found:
        yield found
    assert tables(study) == before


def check_same_pulls(instance, policy, threshold, epsilon, most, seed, *, reload=False, known=False, goal=None) -> None:
    """A study makes the pulls of trajectory 0 of a simulation, and comes to the same end."""
    goal = {} if goal is None else goal
    K = len(instance)
    runs = cabai.simulate(
        instance, policy, threshold=threshold, delta=0.1, epsilon=epsilon, trajectories=1, seed=seed, max_pulls=most,
        grid=range(K, most + 1), **goal,
    )  # fmt: skip
    expected = np.diff(runs.path[0][: runs.steps[0] - K + 1], axis=0).argmax(axis=1).tolist()
    study = new(
        arms=list(instance.names), family=instance.family, policy=policy, threshold=threshold, delta=0.1, seed=seed,
        epsilon=epsilon, max_pulls=most, costs=instance.costs.tolist() if known else None,
        **goal,
    )  # fmt: skip
    draw, pulled = drawer(instance, seed, 0), []
    while not study.stopped:
        if reload:
            study = reloaded(study)
        pull = study.ask()
        a = instance.names.index(pull.arm)
        pulled.append(a)
        reward, cost = draw(a)
        if reload:
            study = reloaded(study)
        study.tell(pull, reward, None if known else cost)
    status = study.status()
    assert pulled == [*range(K), *expected]
    assert [arm.pulls for arm in status.arms] == runs.pulls[0].tolist()
    assert status.spent == pytest.approx(runs.costs[0], rel=1e-12)
    decided = -1 if status.decision is None else instance.names.index(status.decision)
    assert decided == runs.decisions[0]
    assert status.reason == ("max_pulls" if decided < 0 else "evidence")


class Clock:
    """Stands for the module `time`, and is moved by hand."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def time(self) -> float:
        return self.now
