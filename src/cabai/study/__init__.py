"""One live run: ask what to pull, tell what came back, and never lose what was paid for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
from cabai.study.evaluating import Evaluation, evaluate
from cabai.study.open import LEASE, STORAGE, create_study, delete_study, list_studies, load_study

if TYPE_CHECKING:
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


def __getattr__(name: str) -> Any:
    """Study, Pull, Status and ArmStatus, loaded when first asked for."""
    if name == "Study":
        from cabai.study import study as module
    elif name == "Pull":
        from cabai.study import pull as module  # type: ignore[no-redef]
    elif name in ("Status", "ArmStatus"):
        from cabai.study import status as module  # type: ignore[no-redef]
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(module, name)
