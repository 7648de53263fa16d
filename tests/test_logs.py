"""Logs that an earlier version made (each study kept sums then; `tests/logs` has events, of studies of every kind) are
folded: at every ask the same arm is chosen, and the decision falls at the same event, to the bit."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from cabai.study.current import new_state
from cabai.study.log.events import Event
from cabai.study.settings import Settings

LOGS = Path(__file__).parent / "logs"
EXAMPLES = Path(__file__).parents[1] / "docs" / "examples"
# There several results came in one call, and the version before counted them after the last; now each counts at once,
# so that the decision falls earlier in the same call. What counted by then differs; arms, bills and decisions do not.
COUNTED_LATER = ("top-two-tell-many", "tell-many-any-order", "settling-decides")
NAMES = sorted(path.name.removesuffix(".json.gz") for path in LOGS.glob("*.json.gz"))


@pytest.mark.parametrize("name", NAMES)
def test_the_pulls_and_the_decision_of_a_log_are_made_again(name, monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.syspath_prepend(str(LOGS))
    log = json.loads(gzip.decompress((LOGS / f"{name}.json.gz").read_bytes()))
    state = new_state(Settings.from_json(json.dumps(log["recipe"])).imported())
    events = [Event(*each) for each in log["events"]]
    for event, following in zip(events, [*events[1:], None], strict=True):
        if event.kind == "ask":
            assert state.choose() == (event.arm, event.item), event
        state.take(event)
        decides = following is not None and (following.kind, following.words) == ("stop", "evidence")
        if name not in COUNTED_LATER and (
            decides or (event.kind in ("tell", "lose", "counts") and state.ended is None)
        ):
            found = state.verdict()
            assert (found is not None) == decides, event
            assert not decides or (found.arm, found.confidence) == (following.arm, following.reward)
    check_final(log["final"], state, counts=name not in COUNTED_LATER)
    sys.modules.pop("eliminating_ctas", None)


def check_final(final: dict[str, Any], state: Any, *, counts: bool) -> None:
    """The sums of everything told, to the bit."""
    names = state.settings.arms
    ended = state.ended
    assert (ended is not None) == final["stopped"]
    if ended is not None:
        assert (ended.words, names[ended.arm]) == (final["reason"], final["decision"] or final["leader"])
    assert (state.bill, state.told, state.asked, state.in_sums) == tuple(
        final[name] for name in ("spent", "told", "asked", "beyond")
    )
    assert [pull.number for pull in state.pulls.values()] == [each["pull"] for each in final["under_way"]]
    for a, arm in enumerate(final["arms"]):
        for name in ("spent", "failures", "offers", "lapses", "discarded"):
            assert getattr(state, name)[a] == arm[name], (name, arm["name"])
        assert bool(state.in_play[a]) == arm["in_play"]
        if state.settings.items is None:
            for name in ("pulls", "rewards", "first", "costs"):
                assert state.told_view.arms[a][name] == arm[name], (name, arm["name"])
                if counts:
                    assert state.ordered.arms[a][name] == arm[f"ordered_{name}"], (name, arm["name"])
    if state.settings.items is None:
        assert not counts or state.through == final["through"]
        assert int(state.told_view.run["stream"]) == final["stream"]
