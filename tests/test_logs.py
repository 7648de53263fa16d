"""Logs that the version before this one made (each study kept sums then, not events) are folded here: at every ask the
same arm is chosen, and the decision falls at the same event, to the bit. `tests/logs` has studies of every kind."""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cabai.families import family_of
from cabai.study.create import described, settings_of
from cabai.study.current import new_state
from cabai.study.log.events import Event
from cabai.thresholds import cheapest

LOGS = Path(__file__).parent / "logs"
EXAMPLES = Path(__file__).parents[1] / "docs" / "examples"
SLOW = ("top-two-100-busy", "top-two-gaussian-100-busy", "co-100", "d-lucb-10-busy", "top-two-tell-many")


def usual(study: dict[str, Any]) -> dict[str, Any]:
    """What `create_study` was given, with its defaults for items."""
    items = {"items": None, "race": None, "failed": "worst", "speculate": 0.1, "epsilon": 0.0, "family": None}
    policy = study.get("policy")
    then = {"policy": "old_thompson:thompson"} if policy == "thompson:thompson" else {}
    if study.get("items") is None and study.get("threshold") is None:
        then["threshold"] = cheapest(family_of(study["family"]))
    return items | study | then


def events_of(log: dict[str, Any], state: Any) -> Iterator[Event]:
    """The events as this version writes them: a period is one event, and an amendment says what it changed."""
    told, place = [dict(event) for event in log["events"]], 0
    while told:
        event = told.pop(0)
        place += 1
        kind, words = event["kind"], event.get("words")
        if kind == "counts":
            rows = [event]
            while (
                told and told[0]["kind"] == "counts" and told[0]["words"] == words and told[0]["time"] == event["time"]
            ):
                rows.append(told.pop(0))
            counts = json.dumps([[row["arm"], row["item"], row["reward"], row["cost"]] for row in rows])
            yield Event(place, kind, event["time"], event["pull"], request=words, words=counts)
            continue
        if kind == "import" and event.get("item") is not None and state.settings.items is None:
            counts = json.dumps([[event["arm"], event["item"], event["reward"], event["cost"]]])
            yield Event(place, "counts", event["time"], event["pull"], worker=event["worker"], words=counts)
            continue
        if kind == "amend":
            event["words"] = json.dumps(changes(json.loads(words), state.settings))
        if kind == "ask":
            event.pop("words", None)  # what a user's own policy kept: it is imported here
        yield Event(place=place, **event)


def changes(said: dict[str, Any], before: Any) -> dict[str, Any]:
    found = {name: [getattr(before, name), value] for name, value in said.get("set", {}).items()}
    if "drop" in said:
        found["dropped"] = [before.dropped, [*before.dropped, said["drop"]]]
    if "join" in said:
        arm, cost, metadata = (said["join"][name] for name in ("arm", "cost", "metadata"))
        found["arms"], found["joined"] = [before.arms, [*before.arms, arm]], [before.joined, [*before.joined, arm]]
        found["costs"] = [before.costs, None if before.costs is None else [*before.costs, cost]]
        found["metadata"] = [before.metadata, before.metadata | ({} if metadata is None else {arm: metadata})]
    return found


@pytest.mark.parametrize(
    "name",
    [pytest.param(each, marks=[pytest.mark.slow] if each in SLOW else [])
     for each in sorted(path.name.removesuffix(".json.gz") for path in LOGS.glob("*.json.gz"))],
)  # fmt: skip
def test_the_pulls_and_the_decision_of_a_log_are_made_again(name, monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.syspath_prepend(str(LOGS))
    log = json.loads(gzip.decompress((LOGS / f"{name}.json.gz").read_bytes()))
    given = usual(log["study"])
    imported = sum(event["kind"] == "import" for event in log["events"])
    elsewhere = imported if given["items"] is None else 0
    settings = settings_of(*described(**given))
    state = new_state(settings if not elsewhere else settings.amended(elsewhere=elsewhere))
    events = list(events_with(log, state))
    for event, following in zip(events, [*events[1:], None], strict=True):
        if event.kind == "ask":
            assert state.choose() == (event.arm, event.item), event
        state.take(event)
        if event.kind in ("tell", "lose", "counts") and state.ended is None and name not in COUNTED_LATER:
            is_next = following is not None and (following.kind, following.words) == ("stop", "evidence")
            assert (state.verdict() is not None) == is_next, event
        if is_decision(following) and name not in COUNTED_LATER:
            found = state.verdict()
            assert (found.arm, found.confidence) == (following.arm, following.reward)
    check_final(log["final"], state, counts=name not in COUNTED_LATER)
    sys.modules.pop("eliminating_ctas", None)


# There several results came in one call, and the version before counted them after the last; now each counts at once,
# so that the decision falls earlier in the same call. What counted by then differs; arms, bills and decisions do not.
COUNTED_LATER = ("top-two-tell-many", "tell-many-any-order", "settling-decides")


def is_decision(event: Event | None) -> bool:
    return event is not None and (event.kind, event.words) == ("stop", "evidence")


def events_with(log: dict[str, Any], state: Any) -> list[Event]:
    """The events; amendments follow from the settings at their time, so a second state is taken along."""
    other, found = new_state(state.settings), []
    for event in events_of(log, other):
        if event.kind == "amend":
            other.take(event._replace(place=other.place + 1))
        else:
            other.place = event.place
        found.append(event)
    return found


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
