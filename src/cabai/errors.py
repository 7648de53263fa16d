"""Every exception and warning of cabai."""

from __future__ import annotations

from typing import Any

__all__ = [
    "AlreadyTold",
    "CostlyStudy",
    "EngineFailed",
    "FailedPulls",
    "InvalidInput",
    "LostPull",
    "MissingScores",
    "NoPull",
    "RunFailed",
    "SourceChanged",
    "StorageError",
    "StudyNotFound",
    "StudyStopped",
    "WideRewards",
]


class InvalidInput(ValueError):
    """Something you passed to cabai is not allowed; the message says what you gave and what is allowed.

    It is a `ValueError`.

    >>> import cabai
    >>> cabai.Instance("bernoulli", means=[0.5, 1.5], costs=[1, 1])
    Traceback (most recent call last):
    cabai.errors.InvalidInput: means[1] must be in [0, 1] for the bernoulli family, got 1.5.
    """


class StudyNotFound(InvalidInput):
    """There is no study of that name in the storage.

    >>> import cabai
    >>> cabai.load_study("nobody made this", storage="memory")
    Traceback (most recent call last):
    cabai.errors.StudyNotFound: ...
    """


class AlreadyTold(InvalidInput):
    """The pull was told before, with other values; what was told first stands.

    Raised by `Study.tell`, `Study.tell_many` and, for a period, `Study.tell_counts`.
    """


class LostPull(InvalidInput):
    """The pull was offered again, to another worker: only that worker may renew it or give it back.

    Raised by `Study.renew` and `Study.release`.
    """


class NoPull(Exception):
    """There is nothing to pull now: pulls under way use up the budget, or the results in hand decide without them.

    Raised by `Study.ask`. Wait, and ask again.
    """


class StudyStopped(NoPull):
    """The study has stopped: there is nothing left to pull.

    Raised by `Study.ask` and `Study.split`.

    >>> import cabai
    >>> study = cabai.create_study("has stopped", arms=["a", "b"], family="bernoulli", storage="memory")
    >>> study.stop()
    >>> study.ask()
    Traceback (most recent call last):
    cabai.errors.StudyStopped: ...
    """


class RunFailed(Exception):
    """An arm failed again and again, or a test returned something that is not an allowed reward.

    Raised by `Study.run` and `cabai.evaluate`. The study is kept, and continues when you run it again. With `evaluate`,
    the error's `evaluation` has what was gathered before.
    """

    evaluation: Any = None  # of `evaluate`: what was gathered before


class StorageError(Exception):
    """The storage cannot be read or written; the message says why, and what was kept.

    Raised by everything that opens, reads or writes a study.
    """


class SourceChanged(UserWarning):
    """The file of your own family, threshold or policy has changed since the study was created.

    A warning of `Study.ask`, `Study.tell` and other methods. The guarantee holds if the file still computes the same.
    """


class WideRewards(UserWarning):
    """Rewards vary more than the variance declared for them allows, so the guarantee may not hold.

    A warning of `Study.tell`, for gaussian rewards.
    """


class CostlyStudy(UserWarning):
    """The bill has passed what evaluating the whole dataset would cost.

    A warning of `Study.tell` and `Study.tell_counts`, in a study that was created with `full_cost`.
    """


class FailedPulls(UserWarning):
    """Many pulls of an arm failed or were lost, so the guarantee is about the mean of those that returned a reward.

    A warning of `Study.ask` and `Study.tell`.
    """


class EngineFailed(RuntimeError):
    """The cluster cannot be reached, or its workers cannot do this work; the simulation itself is not at fault.

    Raised by `cabai.simulate`, `cabai.compare` and `cabai.calibrate` with an `engine`.
    """


class MissingScores(UserWarning):
    """Items were left out, because not every arm has a score on them.

    A warning of `cabai.replay`.
    """
