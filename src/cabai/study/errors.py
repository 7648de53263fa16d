"""What can go wrong with a study, besides bad input."""

from __future__ import annotations

from typing import Any

from cabai.support.validation import InvalidInput


class StudyNotFound(InvalidInput):
    """There is no study of that name in the storage."""


class AlreadyTold(InvalidInput):
    """The pull was told before, with other values; what was told first stands."""


class LostPull(InvalidInput):
    """The pull was offered again, to another worker: only the one that has it now may renew it or give it back."""


class NoPull(Exception):
    """There is nothing to pull now: pulls under way use up the budget, or the results in hand decide without them."""


class StudyStopped(NoPull):
    """The study has stopped: there is nothing left to pull."""


class RunFailed(Exception):
    """An arm failed again and again, or a test returned what is no score; the study is kept, and goes on when it is run
    again."""

    evaluation: Any = None  # of `evaluate`: what was gathered before


class StorageError(Exception):
    """The storage cannot be read or written; the message says why and what was kept."""


class SourceChanged(UserWarning):
    """The file of a family, threshold or policy of one's own is not what it was when the study was created."""


class WideRewards(UserWarning):
    """Rewards are more spread than the variance that was declared for them allows."""


class CostlyStudy(UserWarning):
    """The bill has passed what evaluating a whole dataset would cost."""


class FailedPulls(UserWarning):
    """Many pulls of an arm have failed or were lost, which changes what the guarantee speaks of."""
