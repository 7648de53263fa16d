"""Arms on the items of a dataset: tables of scores, races, and what a race would have cost on known scores."""

from typing import TYPE_CHECKING

from cabai.support.on_demand import on_demand

if TYPE_CHECKING:
    from cabai.datasets.dataset import ScoreTable
    from cabai.datasets.inspect_logs import read_inspect
    from cabai.datasets.lm_eval_logs import read_lm_eval
    from cabai.datasets.reading import read_table
    from cabai.datasets.replaying import Replay, replay

__all__ = ["Replay", "ScoreTable", "read_inspect", "read_lm_eval", "read_table", "replay"]

__getattr__ = on_demand(
    "cabai.datasets",
    {
        "read_inspect": "cabai.datasets.inspect_logs",
        "read_lm_eval": "cabai.datasets.lm_eval_logs",
        "read_table": "cabai.datasets.reading",
        "ScoreTable": "cabai.datasets.dataset",
        **dict.fromkeys(("Replay", "replay"), "cabai.datasets.replaying"),
    },
)
