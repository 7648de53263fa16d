"""What `cabai study ask` and `tell` print."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cabai.study import Pull, Status


def asked(pulls: Sequence[Pull], as_json: bool) -> str:
    if as_json:
        return json.dumps({"pulls": [vars(pull) for pull in pulls]})
    return "\n".join(f"{pull.id}\t{pull.arm}" + ("" if pull.item is None else f"\t{pull.item}") for pull in pulls)


def told(status: Status, as_json: bool) -> str:
    if as_json:
        return json.dumps({"stopped": status.stopped, "decision": status.decision, "spent": status.spent})
    return status.sentence
