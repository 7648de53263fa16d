"""A study on a server: the same study, over HTTP. A worker needs neither a database nor its driver."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import fields
from operator import itemgetter
from typing import Any

from cabai.families import Gaussian
from cabai.settings import settings_for
from cabai.study.given import Pull, checked_label, checked_worker
from cabai.study.http import Server
from cabai.study.settings import Settings
from cabai.study.show.status import ArmStatus, Forecast, Status
from cabai.study.stand_ins import KINDS
from cabai.study.state.accounts import Point
from cabai.study.study import Study
from cabai.support.validation import InvalidInput
from cabai.views.study_view import StudyView


def part(name: str, *, of: str | None = None, **query: str) -> tuple[Any, ...]:
    """What has a path of its own, and a field of the answer."""
    return (name,), query, itemgetter(of or name)


def status_from(values: Mapping[str, Any]) -> Status:
    forecast = values.get("forecast")
    more = {"forecast": forecast and made(Forecast, forecast), "arms": [made(ArmStatus, arm) for arm in values["arms"]]}
    return made(Status, {**values, **more})  # type: ignore[no-any-return]


def made(kind: Any, values: Mapping[str, Any]) -> Any:
    """A dataclass from its fields; what a newer server adds to them is left out."""
    return kind(**{field.name: values[field.name] for field in fields(kind) if field.name in values})


TOLD = ("pull", "reward", "cost", "failed")  # of a result
# What is known of a study: the rest of the path, the query, and what to make of the answer.
READS: dict[str, tuple[Any, ...]] = {
    "status": ((), {}, status_from),
    "amendments": part("amendments"),
    "events": part("log"),
    "observations": part("export", of="observations", format="json"),
    "scores": part("scores"),
    "history": part("history"),
    "pulls": part("pulls"),
    "split": part("split", of="pulls"),
}


class RemoteStudy(Study):
    """A study behind `cabai serve`. The server shows warnings as they come up; here they are in `status().warnings`."""

    _pause = 0.5

    def __init__(self, server: Server, name: str) -> None:
        self._server, self._name, self._url = server, name, server.url
        self._known: tuple[int, Settings] = settings_of(server, name)  # the number of its amendments, and the settings

    @property
    def settings(self) -> Settings:
        return self._known[1]

    def _decided(self) -> tuple[bool, str | None]:
        found = self._get("decision")
        return found["stopped"], found["decision"]

    def _ask(
        self, count: int, worker: str | None, request: str | None = None, *, extra: int = 0, batch: bool = False
    ) -> list[Pull]:
        name = checked_label(request, "request")
        key = secrets.token_hex(16) if name is None else hashlib.sha256(name.encode()).hexdigest()  # valid in a header
        body = {"n": count, "worker": checked_worker(worker), "beyond": extra, "batch": batch}
        return [made(Pull, each) for each in self._post("ask", body, key)["pulls"]]

    def _prepare(self) -> None:
        """Only the server runs the user's own code."""

    def _do(self, rule: str, **given: Any) -> Any:
        """The rule has a path of its own, and what it is given is the body."""
        if rule == "keep_tests":
            raise InvalidInput("commands cannot be stored over HTTP: a server accepts none from a request.")
        if rule == "lapse":
            return self._lapse(**given)
        if rule == "tell":  # numbers of any type have become those of JSON
            told = [{name: getattr(each, name) for name in TOLD} for each in given["results"]]
            return self._post("tell", told[0]) if len(told) == 1 else self._post("tell-many", {"results": told})
        if rule == "tell_counts":
            sums = given.pop("sums")
            given["counts"] = {self.arms[a]: [pulls, int(reward), cost] for a, pulls, reward, cost in sums}
        found = self._post(rule.replace("_", "-"), given)
        return found["shares"] if rule == "tell_counts" else found

    def _read(self, what: str, **given: Any) -> Any:
        if what == "seen":
            found = self._get("failures")
            return StudyView(self.status(), self.history(), self._read("pulls"), found["failures"], found["now"])
        path, query, answer = READS[what]
        found = answer(self._get(*path, **query, **{name: str(value) for name, value in given.items()}))
        if what == "history":
            return [Point(**{name: each[name] for name in Point._fields}) for each in found]
        if what == "scores":
            return {arm: {each["item"]: each["score"] for each in found if each["arm"] == arm} for arm in self.arms}
        return found

    def _get(self, *path: str, **query: str) -> Any:
        return self._noticed(self._server.get("studies", self.name, *path, **query))

    def _post(self, path: str, body: Any, key: str | None = None) -> Any:
        return self._noticed(self._server.post("studies", self.name, path, body=body, key=key))

    def _noticed(self, answer: Any) -> Any:
        """An answer; where it says that the study has been amended since, the settings are read again."""
        if answer.get("amended", self._known[0]) != self._known[0]:
            self._renewed()
        return answer

    def _renewed(self) -> Settings:
        self._known = settings_of(self._server, self.name)
        return self.settings

    def _lapse(self, was_lost: Callable[[str | None], bool]) -> None:
        workers = {pull["worker"] for pull in self._read("pulls")}
        lost = sorted(worker for worker in workers if worker is not None and was_lost(worker))
        for begin in range(0, len(lost), 1000):
            self._post("lapse", {"workers": lost[begin : begin + 1000]})


def settings_of(server: Server, name: str) -> tuple[int, Settings]:
    """How often a study was amended, and its settings."""
    found = server.get("studies", name, "settings")
    return found.get("amended", 0), Settings.from_json(json.dumps(found["settings"]))


def list_remote(address: str) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = Server(address).get("studies")
    return found


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
    server.post("studies", body=body, key=secrets.token_hex(16))
    return RemoteStudy(server, name)
