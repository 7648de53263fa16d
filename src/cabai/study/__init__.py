"""One live run: ask what to pull, tell what came back, and never lose what was paid for.

The database code is loaded when a study is first opened, so that importing cabai stays quick.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cabai.checks import InvalidInput
from cabai.families import Family
from cabai.policies import Policy
from cabai.study.errors import (
    AlreadyTold,
    FailedPulls,
    LostPull,
    NoPull,
    RunFailed,
    StorageError,
    StudyNotFound,
    StudyStopped,
)
from cabai.study.settings import Settings, checked_name
from cabai.thresholds import Threshold

if TYPE_CHECKING:
    from cabai.study.status import ArmStatus, Status
    from cabai.study.study import Pull, Study

__all__ = [
    "AlreadyTold",
    "ArmStatus",
    "FailedPulls",
    "LostPull",
    "NoPull",
    "Pull",
    "RunFailed",
    "Status",
    "StorageError",
    "Study",
    "StudyNotFound",
    "StudyStopped",
    "create_study",
    "delete_study",
    "list_studies",
    "load_study",
]

STORAGE = "sqlite:///cabai.db"
LEASE = 3600.0


def create_study(
    name: str,
    *,
    arms: Sequence[str] | Mapping[str, Any],
    family: str | Family,
    delta: float = 0.05,
    policy: str | Policy = "top-two",
    threshold: str | Threshold = "evalue",
    epsilon: float = 0.0,
    direction: str = "maximize",
    costs: Sequence[float] | Mapping[str, float] | None = None,
    max_cost: float | None = None,
    max_pulls: int | None = None,
    lease: float = LEASE,
    seed: int = 0,
    storage: str = STORAGE,
    load_if_exists: bool = False,
) -> Study:
    """Start a study: which of these arms has the best mean reward?

    `arms` are names, or a dictionary from names to metadata of any kind that JSON can hold. `costs` declares the arms'
    mean costs where they are known; else they are learned. `direction="minimize"` looks for the smallest mean. With
    `epsilon`, any arm within epsilon of the best is good enough, and tied arms end a study. `max_cost` and `max_pulls`
    end it without a guarantee. A pull that is not told within `lease` seconds is offered again. `seed` feeds policies
    that toss coins. `storage` is `memory`, `sqlite:///FILE` or `postgresql://USER@HOST/DATABASE`.

    With `load_if_exists`, a study of that name is loaded instead, if its settings are these.

    >>> study = create_study("which judge", arms=["small", "large"], family="bernoulli", storage="memory")
    >>> pull = study.ask()
    >>> pull.arm
    'small'
    >>> study.tell(pull, reward=1, cost=0.02)
    >>> study.status().spent
    0.02
    """
    from cabai.study.storage import open_storage
    from cabai.study.study import Study

    settings = Settings.checked(
        arms=arms, family=family, delta=delta, policy=policy, threshold=threshold, epsilon=epsilon,
        direction=direction, costs=costs, max_cost=max_cost, max_pulls=max_pulls, lease=lease, seed=seed,
    )  # fmt: skip
    opened = open_storage(storage)
    study, made = Study.create(opened, checked_name(name), settings)
    if not made:
        if not load_if_exists:
            raise InvalidInput(f"there is a study {name!r} already; choose another name, delete it, or load_if_exists.")
        different = study.settings.differences(settings)
        if different:
            raise InvalidInput(
                f"there is a study {name!r} with other settings: its {'; its '.join(different)}. Settings never "
                "change: choose another name, or delete the study."
            )
    return study


def load_study(name: str, *, storage: str = STORAGE) -> Study:
    """A study that was created before, here or by another process or machine."""
    from cabai.study.storage import open_storage
    from cabai.study.study import Study

    return Study.load(open_storage(storage, make=False), checked_name(name))


def list_studies(*, storage: str = STORAGE) -> list[str]:
    """The names of all studies in a storage, the oldest first."""
    from cabai.study.storage import open_storage
    from cabai.study.study import names

    return names(open_storage(storage, make=False))


def delete_study(name: str, *, storage: str = STORAGE) -> None:
    """Delete a study and everything observed in it."""
    from cabai.study.storage import open_storage
    from cabai.study.study import delete

    delete(open_storage(storage, make=False), checked_name(name))


def __getattr__(name: str) -> Any:
    """Study, Pull, Status and ArmStatus, loaded when first asked for."""
    if name in ("Study", "Pull"):
        from cabai.study import study as module
    elif name in ("Status", "ArmStatus"):
        from cabai.study import status as module  # type: ignore[no-redef]
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(module, name)
