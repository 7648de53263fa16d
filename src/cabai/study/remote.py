"""A study on a server: the same study, over HTTP. A worker needs neither a database nor its driver."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Mapping
from typing import Any

from cabai.families import Gaussian
from cabai.settings import settings_for
from cabai.study.given import TOLD, Pull
from cabai.study.http import Server
from cabai.study.settings import Settings
from cabai.study.show.status import ArmStatus, Forecast, Status
from cabai.study.stand_ins import KINDS
from cabai.study.state.accounts import Point
from cabai.study.study import Study
from cabai.support.validation import InvalidInput
from cabai.views.study_view import StudyView

# What is known of a study: the path, and the field of the answer.
READS = {
    "status": ("", ""), "amendments": ("amendments", "amendments"), "events": ("log", "log"),
    "observations": ("export", "observations"), "scores": ("scores", "scores"), "history": ("history", "history"),
    "pulls": ("pulls", "pulls"), "split": ("split", "pulls"),
}  # fmt: skip


def made(kind: Any, values: Mapping[str, Any]) -> Any:
    """A dataclass or a named tuple from its fields; what a newer server adds to them is left out."""
    return kind(**{name: values[name] for name in kind.__match_args__ if name in values})


class RemoteStudy(Study):
    """A study behind `cabai serve`. The server shows warnings as they come up; here they are in `status().warnings`."""

    _pause = 0.5

    def __init__(self, server: Server, name: str) -> None:
        self._server, self._name, self._url = server, name, server.url
        self._known: tuple[Settings, int] = self._read("settings")  # and how often they were amended

    @property
    def settings(self) -> Settings:
        return self._known[0]

    def _call(self, *path: str, **how: Any) -> Any:
        """The answer to a request; where it says that the study has been amended since, the settings are read again."""
        answer = self._server.call("studies", self.name, *path, **how)
        if answer.get("amended", self._known[1]) != self._known[1]:
            self._read("settings")
        return answer

    def _decided(self) -> tuple[bool, str | None]:
        found = self._call("decision")
        return found["stopped"], found["decision"]

    def _prepare(self) -> None:
        """Only the server runs the user's own code."""

    def _do(self, rule: str, **given: Any) -> Any:
        """The rule has a path of its own, and what it is given is the body."""
        if rule == "keep_tests":
            raise InvalidInput("commands cannot be stored over HTTP: a server accepts none from a request.")
        if rule == "lapse":
            return self._lapse(**given)
        if rule == "ask":
            count, worker, name, extra, batch = given["asked"]
            key = secrets.token_hex(16) if name is None else hashlib.sha256(name.encode()).hexdigest()
            body = {"n": count, "worker": worker, "extra": extra, "batch": batch}
            return [made(Pull, each) for each in self._call("ask", body=body, key=key)["pulls"]], None
        if rule == "tell":  # numbers of any type have become those of JSON
            told = [{name: getattr(each, name) for name in TOLD} for each in given["results"]]
            rule, given = ("tell", told[0]) if len(told) == 1 else ("tell-many", {"results": told})
        if rule == "tell_counts":
            sums = given.pop("sums")
            given["counts"] = {self.arms[a]: [pulls, int(reward), cost] for a, pulls, reward, cost in sums}
        found = self._call(rule.replace("_", "-"), body=given)
        return found["shares"] if rule == "tell_counts" else found

    def _lapse(self, was_lost: Callable[[str | None], bool]) -> None:
        workers = {pull["worker"] for pull in self._read("pulls")} - {None}
        lost = sorted(filter(was_lost, workers))
        for begin in range(0, len(lost), 1000):
            self._call("lapse", body={"workers": lost[begin : begin + 1000]})

    def _read(self, what: str, **given: Any) -> Any:
        if what == "settings":
            found = self._server.call("studies", self.name, "settings")
            self._known = Settings.from_json(json.dumps(found["settings"])), found.get("amended", 0)
            return self._known
        if what == "seen":
            found = self._call("failures")
            return StudyView(self.status(), self.history(), self._read("pulls"), found["failures"], found["now"])
        path, name = READS[what]
        query = {"format": "json"} if what == "observations" else {key: str(value) for key, value in given.items()}
        found = self._call(*filter(None, [path]), **query)
        if what == "status":
            forecast, arms = found.get("forecast"), [made(ArmStatus, arm) for arm in found["arms"]]
            return made(Status, found | {"arms": arms, "forecast": forecast and made(Forecast, forecast)})
        if what == "history":
            return [made(Point, each) for each in found[name]]
        if what == "scores":
            of_arm = {arm: [each for each in found[name] if each["arm"] == arm] for arm in self.arms}
            return {arm: {each["item"]: each["score"] for each in some} for arm, some in of_arm.items()}
        return found[name]


def create_remote(
    address: str, name: str, chosen: Mapping[str, Any], settings: Settings, *, load_if_exists: bool
) -> RemoteStudy:
    """Create a study on a server, with the settings `chosen`; the server chooses the others."""
    given = [key for key, value in chosen.items() if value is not None and key != "items"]
    body: dict[str, Any] = {key: getattr(settings, key) for key in given}  # as plain numbers
    body |= {kind: body[kind].address for kind in KINDS if kind in body}
    if type(settings.family) is Gaussian:  # its variance must be named, even if it is 1
        body["family"] = f"gaussian(variance={settings.family.variance!r})"
    if settings.metadata:
        body["arms"] = {arm: settings.metadata.get(arm) for arm in settings.arms}
    items = settings.items
    if items is not None:
        of_items = {key: value for key, value in items.to_json().items() if key in settings_for("http")}
        body |= of_items | {"items": items.ids or items.count}
    body |= {"name": name, "load_if_exists": load_if_exists}
    server = Server(address)
    server.call("studies", body=body, key=secrets.token_hex(16))
    return RemoteStudy(server, name)
