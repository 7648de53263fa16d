"""What users are warned of: failures, lost pulls, rewards that are too spread, a bill that is too large."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from cabai.errors import CostlyStudy, FailedPulls, WideRewards
from cabai.families import Gaussian
from cabai.study.stand_ins import StandIn
from cabai.study.state.accounts import Accounts

CHANCE = 1e-6  # that there is ever a warning about rewards of the declared variance, for each arm
MILESTONES = frozenset(step * 10**power for step in (3, 10) for power in range(8))  # failures of an arm to warn at


@contextmanager
def noticed(transaction: Any, a: int, failed: str | None = None) -> Iterator[None]:
    """Warn of what a result of arm a, told in here, brings about."""
    state, add = transaction.state, transaction.warned.append
    was_wide, was_over = too_wide(state, a) is not None, passing(state) is not None
    yield
    if failed is not None and state.failures[a] in MILESTONES and (text := failing(state, a)):
        add(FailedPulls(f"{text} The last: {failed}"))
    if not was_wide and (text := too_wide(state, a)):
        add(WideRewards(text))
    if not was_over and (text := passing(state)):
        add(CostlyStudy(text))


@contextmanager
def noticed_lapse(transaction: Any, a: int) -> Iterator[None]:
    """The same of a pull of arm a that is offered again."""
    state, before = transaction.state, lapses_of(transaction.state, a)
    yield
    lapses = lapses_of(state, a)
    if lapses > before and lapses in MILESTONES and state.settings.items is None and (text := lapsing(state, a)):
        transaction.warned.append(FailedPulls(text))


def failing(state: Any, a: int) -> str | None:
    """A warning where at least 3 pulls of an arm have failed, and more than a tenth of all."""
    items, failures = state.settings.items, int(state.failures[a])
    total = failures + int(state.rewards_told[a] if items is None else state.scored[a])
    if failures < 3 or failures * 10 <= total:
        return None
    arm = f"arm {state.settings.arms[a]!r}"
    if items is not None:
        score = state.settings.failed_score
        return f"{failures} of {total} evaluations of {arm} failed, and count as a score of {score:g}."
    return (
        f"{failures} of {total} pulls of {arm} failed. The guarantee covers the mean reward of pulls that succeed. If "
        "failures go with high or low rewards, that is not the mean of all pulls."
    )


def all_of(state: Any) -> list[str]:
    """What there is to warn of now."""
    threshold, family, found = state.settings.threshold, state.settings.family, list[str | None]()
    for a in range(len(state.settings.arms)):
        found.append(failing(state, a))
        if state.settings.items is None:
            found += [lapsing(state, a), too_wide(state, a)]
    found.append(passing(state))
    if state.settings.items is None and not threshold.is_proven_for(family):
        found.append(f"threshold {threshold}: {threshold.standing(family)}.")
    return [text for text in found if text]


def lapses_of(state: Accounts, a: int) -> int:
    """How many leases of an arm have ended without a result, those of pulls under way included."""
    return int(state.lapses[a]) + sum(pull.lapses for pull in state.pulls.values() if pull.arm == a)


def lapsing(state: Any, a: int) -> str | None:
    """A warning where at least 3 leases of an arm have ended without a result, and more than a tenth of all."""
    pulls, lapses = int(state.rewards_told[a] + state.failures[a]), lapses_of(state, a)
    if lapses < 3 or lapses * 10 <= lapses + pulls:
        return None
    return (
        f"{lapses} of {lapses + pulls} leases of arm {state.settings.arms[a]!r} ended without a result. The guarantee "
        "covers the mean reward of pulls that return one. If lost pulls go with high or low rewards, that is not the "
        "mean of all pulls."
    )


def too_wide(state: Any, a: int) -> str | None:
    """A warning where gaussian rewards are more spread than their declared variance allows, beyond chance."""
    family = state.settings.family
    if not isinstance(family, Gaussian) or isinstance(family, StandIn):
        return None
    pulls = int(state.ordered.arms["pulls"][a])
    if not state.squares[a] > (pulls - 1) * family.variance:  # then those about the mean are not larger either
        return None
    found = state.variance(a)
    if found is None or not is_too_wide(family.variance, pulls, found * (pulls - 1)):
        return None
    return (
        f"the {pulls} rewards of arm {state.settings.arms[a]!r} have a sample variance of {found:.4g}, but "
        f"{family.variance:g} was declared. By chance, fewer than one arm in a million would show this. If the "
        "declared variance is too small, there is no guarantee. Start a new study with a larger one or, if rewards "
        "have a known range, with family bounded."
    )


def passing(state: Any) -> str | None:
    """A warning where the bill has passed what evaluating everything would cost."""
    full = state.settings.full_cost
    if full is None or state.bill <= full:
        return None
    return (
        f"{state.bill:.6g} spent, but evaluating everything would have cost {full:g}. If arms are tried on the items "
        "of one dataset, use a study with items: it never pays more than that."
    )


def is_too_wide(variance: float, n: int, squares: float) -> bool:
    """Whether the squares of n rewards about their mean have a sum too large for gaussian rewards of that variance.

    It is variance times a chi-squared number with n - 1 degrees of freedom, which is n - 1 times x or more with
    probability at most (x e^(1 - x))^((n - 1)/2) (Chernoff). That must be below CHANCE / (n (n - 1)), whose sum over
    all n is CHANCE: so it may be checked after every reward.

    >>> is_too_wide(1.0, 11, 12.0), is_too_wide(1.0, 11, 70.0)
    (False, True)
    """
    if n < 2 or not squares > (n - 1) * variance:
        return False
    x = squares / ((n - 1) * variance)
    return 0.5 * (n - 1) * (x - 1.0 - math.log(x)) > math.log(n * (n - 1) / CHANCE)


def show(found: Iterable[UserWarning]) -> None:
    """Show warnings at the line outside of cabai that called; in a thread of cabai there is none."""
    for warning in found:
        frame, level = sys._getframe(), 1
        while frame.f_globals.get("__name__", "").startswith("cabai."):
            if frame.f_back is None or frame.f_back.f_globals.get("__name__") == "threading":
                break
            frame, level = frame.f_back, level + 1
        warnings.warn(warning, stacklevel=level)
