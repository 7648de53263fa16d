"""What can happen to a study. Events are appended to its log, and never changed; all else is computed from them."""

from __future__ import annotations

import json
import math
from typing import Any, NamedTuple

ASK = "ask"  # a new pull is handed out: pull, arm, item, worker, request; words: the choice of a user's own policy
OFFER = "offer"  # a pull whose lease ended is handed out again: pull, worker, request
RENEW, RELEASE, LAPSE = "renew", "release", "lapse"  # its lease begins again, is given back, ends now: pull
WITHDRAW = "withdraw"  # its arm is out, so no result waits for it: pull
TELL = "tell"  # its result: pull, arm, item, worker, reward, or words (why it failed), cost
LOSE = "lose"  # its lease ended, and the study counts that as a failure: the same
COUNTS = "counts"  # sums of many pulls: pull (the first number), request (the period), words: JSON, a list by arm
IMPORT = "import"  # a result from elsewhere, when a study is created: as TELL; worker: where it is from
AMEND = "amend"  # words: JSON of {setting: [before, after]}, worker (who)
STOP = "stop"  # words (why), arm (the decision, or who led), reward (the confidence); accepted: cost is its epsilon

KINDS = {ASK, OFFER, RENEW, RELEASE, LAPSE, WITHDRAW, TELL, LOSE, COUNTS, IMPORT, AMEND, STOP}
OF_A_PULL = (ASK, TELL, LOSE, IMPORT)
RESULTS = (TELL, LOSE, COUNTS, IMPORT)  # of a pull, once
MAY_DECIDE = (*RESULTS, WITHDRAW, AMEND)
# Why a study stopped.
EVIDENCE, MAX_COST, MAX_PULLS, CERTIFICATE, BY_HAND = "evidence", "max_cost", "max_pulls", "certificate", "by hand"
ACCEPTED = "accepted"  # somebody took what was proven as the decision: the leader is within some epsilon of the best
DECISIONS = (EVIDENCE, ACCEPTED)
REASONS = (*DECISIONS, MAX_COST, MAX_PULLS, CERTIFICATE, BY_HAND)
LIMITS = (MAX_COST, MAX_PULLS)  # which can be raised, so that the study continues
REOPENING = {*LIMITS, "epsilon"}  # amendments after which a study that stopped at a limit is looked at again


class Event(NamedTuple):
    place: int  # in the log, from 1, without gaps
    kind: str
    time: float  # seconds since 1970, by the database's clock
    pull: int | None = None  # its number, from 1, in the order of asking
    arm: int | None = None
    item: int | None = None
    reward: float | None = None  # as it was told
    cost: float | None = None
    worker: str | None = None
    request: str | None = None
    words: str | None = None


def check_event(event: Event, settings: Any) -> None:
    """Refuse an event that cabai cannot have written."""
    kind, arm, item, reward, items = event.kind, event.arm, event.item, event.reward, settings.items
    if kind not in KINDS:
        raise wrong(event, "kind")
    if type(event.time) is not float or not math.isfinite(event.time):
        raise wrong(event, "time")
    is_pull = kind in OF_A_PULL
    if (is_pull or arm is not None) and not (type(arm) is int and 0 <= arm < len(settings.arms)):
        raise wrong(event, "arm")
    if is_pull:
        if type(event.pull) is not int:
            raise wrong(event, "pull")
        if item is not None if items is None else not (type(item) is int and 0 <= item < items.count):
            raise wrong(event, "item")
        if kind == ASK:
            return
        if (reward is None) == (event.words is None) or not is_amount(event.cost):
            raise wrong(event, "reward", "cost", "words")
        is_reward = type(reward) in (int, float) and math.isfinite(reward)  # type: ignore[arg-type]
        is_reward = is_reward and ("family" in settings.own or settings.family.allows_reward(reward))
        if not (reward is None or is_reward):
            raise wrong(event, "reward")
    elif kind == COUNTS:
        low, high = settings.family.mean_range
        for a, pulls, sum_, cost in json.loads(event.words or ""):
            if not (0 <= a < len(settings.arms) and pulls > 0 and low <= sum_ / pulls <= high and is_amount(cost)):
                raise wrong(event, "words")
    elif kind == STOP:
        if event.words not in REASONS or (arm is None and event.words in DECISIONS):
            raise wrong(event, "words", "arm")
        if not is_amount(reward) or not reward <= 1:  # type: ignore[operator]
            raise wrong(event, "reward")
        if event.words == ACCEPTED and not is_amount(event.cost):
            raise wrong(event, "cost")


def wrong(event: Event, *fields: str) -> ValueError:
    """An error with the fields of an event that make no sense."""
    found = ", ".join(f"{name} = {getattr(event, name)!r}" for name in fields)
    return ValueError(f"its event {event.place} ({event.kind}) has {found}")


def is_amount(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value < math.inf
