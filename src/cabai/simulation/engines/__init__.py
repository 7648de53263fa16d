"""Where trajectories run: threads or processes of this machine, its GPUs, a Dask or a Ray cluster."""

from cabai.simulation.engines.base import Engine
from cabai.simulation.engines.opening import EngineLike, opened

__all__ = ["Engine", "EngineLike", "opened"]
