"""A race inside Inspect (inspect.aisi.org.uk): models, prompts or agents on a task, for a part of its samples."""

from typing import TYPE_CHECKING

from cabai.support.on_demand import on_demand

if TYPE_CHECKING:
    from cabai.inspect.racing import Evaluation, evaluate

__all__ = ["Evaluation", "evaluate"]

__getattr__ = on_demand("cabai.inspect", dict.fromkeys(__all__, "cabai.inspect.racing"))
