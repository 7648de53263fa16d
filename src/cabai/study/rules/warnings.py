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
MILESTONES = frozenset(step * 10**power for step in (3, 10) for power in range(8))  # of an arm: pulls to warn at
BIASED = (
    "The guarantee covers the mean reward of pulls that {}. If {} go with high or low rewards, that is not the mean of "
    "all pulls."
)


@contextmanager
def noticed(transaction: Any, a: int, failed: str | None = None, *, lapsed: bool = False) -> Iterator[None]:
    """Warn of what an event of arm a, added in here, brings about: why a pull `failed`, or that a lease has lapsed."""
    state, found = transaction.state, dict[type[UserWarning], str | None]()
    was_wide, was_over = too_wide(state, a), passing(state)
    yield
    if failed is not None and state.failures[a] in MILESTONES and (text := failing(state, a)):
        found[FailedPulls] = f"{text} The last: {failed}"
    if lapsed and lapses_of(state, a) in MILESTONES:
        found[FailedPulls] = lapsing(state, a)
    found |= {WideRewards: None if was_wide else too_wide(state, a), CostlyStudy: None if was_over else passing(state)}
    transaction.warned += [category(text) for category, text in found.items() if text]


def failing(state: Any, a: int) -> str | None:
    """A warning where many pulls of an arm have failed."""
    items, failures, arm = state.settings.items, int(state.failures[a]), f"arm {state.settings.arms[a]!r}"
    if items is None:
        what = f"pulls of {arm} failed. {BIASED.format('succeed', 'failures')}"
        return if_many(failures, failures + int(state.rewards_told[a]), what)
    what = f"evaluations of {arm} failed, and count as a score of {state.settings.failed_score or 0.0:g}."
    return if_many(failures, failures + int(state.scored[a]), what)


def lapses_of(state: Accounts, a: int) -> int:
    """How many leases of an arm have ended without a result, those of pulls under way included."""
    return int(state.lapses[a]) + sum(pull.lapses for pull in state.pulls.values() if pull.arm == a)


def lapsing(state: Any, a: int) -> str | None:
    """A warning where many leases of an arm have ended without a result."""
    if state.settings.items is not None:
        return None
    lapses, pulls = lapses_of(state, a), int(state.rewards_told[a] + state.failures[a])
    what = (
        f"leases of arm {state.settings.arms[a]!r} ended without a result. {BIASED.format('return one', 'lost pulls')}"
    )
    return if_many(lapses, lapses + pulls, what)


def if_many(count: int, total: int, what: str) -> str | None:
    return f"{count} of {total} {what}" if count >= 3 and count * 10 > total else None


def all_of(state: Any) -> list[str]:
    """What there is to warn of now."""
    threshold, family, arms = state.settings.threshold, state.settings.family, range(len(state.settings.arms))
    found = [each(state, a) for a in arms for each in (failing, lapsing, too_wide)] + [passing(state)]
    if state.settings.items is None and not threshold.is_proven_for(family):
        found.append(f"threshold {threshold}: {threshold.standing(family)}.")
    return [text for text in found if text]


def too_wide(state: Any, a: int) -> str | None:
    """A warning where gaussian rewards are more spread than their declared variance allows, beyond chance."""
    family = state.settings.family
    if not isinstance(family, Gaussian) or isinstance(family, StandIn):
        return None
    pulls = int(state.ordered.arms["pulls"][a])
    # If squares about the first reward are not too large, those about the mean are not either.
    found = state.variance(a) if state.squares[a] > (pulls - 1) * family.variance else None
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
