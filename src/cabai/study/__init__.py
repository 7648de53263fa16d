"""One live run: ask what to pull, tell what came back, and never lose what was paid for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cabai.settings import LEASE, STORAGE
from cabai.study.create import create_study, delete_study, import_study, list_studies, load_study
from cabai.study.given import Pull
from cabai.study.run.evaluate import Evaluation, evaluate
from cabai.study.run.loop import Failed
from cabai.study.study import Study
from cabai.support.on_demand import on_demand

if TYPE_CHECKING:
    from cabai.study.show.status import ArmStatus, Status

__all__ = [
    "LEASE",
    "STORAGE",
    "ArmStatus",
    "Evaluation",
    "Failed",
    "Pull",
    "Status",
    "Study",
    "create_study",
    "delete_study",
    "evaluate",
    "import_study",
    "list_studies",
    "load_study",
]

__getattr__ = on_demand("cabai.study", dict.fromkeys(("ArmStatus", "Status"), "cabai.study.show.status"))
