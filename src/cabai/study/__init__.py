"""One live run: ask what to pull, tell what came back, and never lose what was paid for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cabai.study.errors import (
    AlreadyTold,
    CostlyStudy,
    FailedPulls,
    LostPull,
    NoPull,
    RunFailed,
    SourceChanged,
    StorageError,
    StudyNotFound,
    StudyStopped,
    WideRewards,
)
from cabai.study.open import LEASE, STORAGE, create_study, delete_study, list_studies, load_study
from cabai.support.on_demand import on_demand

if TYPE_CHECKING:
    from cabai.study.evaluating import Evaluation, evaluate
    from cabai.study.pull import Pull
    from cabai.study.status import ArmStatus, Status
    from cabai.study.study import Study

__all__ = [
    "LEASE",
    "STORAGE",
    "AlreadyTold",
    "ArmStatus",
    "CostlyStudy",
    "Evaluation",
    "FailedPulls",
    "LostPull",
    "NoPull",
    "Pull",
    "RunFailed",
    "SourceChanged",
    "Status",
    "StorageError",
    "Study",
    "StudyNotFound",
    "StudyStopped",
    "WideRewards",
    "create_study",
    "delete_study",
    "evaluate",
    "list_studies",
    "load_study",
]

__getattr__ = on_demand(
    "cabai.study",
    {
        "Study": "cabai.study.study",
        "Pull": "cabai.study.pull",
        **dict.fromkeys(("Status", "ArmStatus"), "cabai.study.status"),
        **dict.fromkeys(("Evaluation", "evaluate"), "cabai.study.evaluating"),
    },
)
