"""Where trajectories run: threads or processes of this machine, its GPUs, a Dask or a Ray cluster."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

from cabai.simulation.engines.base import Engine
from cabai.simulation.engines.threads import Threads
from cabai.support.validation import InvalidInput, shown, whole

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["Engine", "EngineLike", "opened"]

EngineLike: TypeAlias = "str | Engine | Client | None"
NAMES = {"processes": "Processes", "dask": "Dask", "ray": "Ray", "cuda": "Cuda"}  # each in a file of its own
ADDRESSED = ("dask", "ray")


def opened(
    engine: EngineLike = None, *, workers: int | None = None, address: str | None = None
) -> AbstractContextManager[Engine]:
    """A context with the engine: None is for threads of this process. An engine that is already open stays open."""
    if workers is not None:
        whole(workers, "workers", 1)
    if isinstance(engine, Engine):
        return nullcontext(engine)
    if address is not None and engine not in ADDRESSED:
        raise InvalidInput(f"an address is for a cluster: it needs engine 'dask' or 'ray', got {shown(engine)}.")
    if engine is None:
        return Threads(workers)
    given: dict[str, Any] = {"address": address} if engine in ADDRESSED else {}
    name, dask = engine, sys.modules.get("distributed")  # which is not loaded to look
    if dask is not None and isinstance(engine, dask.Client):
        name, given = "dask", {"client": engine}
    if not isinstance(name, str) or name not in NAMES:
        raise InvalidInput(
            "engine must be None, for threads of this process, one of 'processes', 'dask', 'ray' and 'cuda', or a "
            f"dask.distributed.Client, got {shown(engine)}."
        )
    found: Engine = getattr(import_module(f"cabai.simulation.engines.{name}"), NAMES[name])(workers=workers, **given)
    return found
