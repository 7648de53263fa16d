"""The service: who is let in, what is refused, and what is answered, as any program would meet it."""

from __future__ import annotations

import inspect
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import pytest

import cabai
import shell
from cabai.server import Access, tokens_in
from cabai.server.access import ATTEMPTS, Rates
from cabai.server.studies import OpenStudies, scores_of
from cabai.study.http import LARGEST
from served import InThread, Process
from shell import here
from storages import close

pytestmark = pytest.mark.filterwarnings("ignore::cabai.FailedPulls")
ARMS = {"arms": ["small", "large"], "family": "bernoulli"}


@pytest.fixture(scope="module")
def storage(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    yield f"sqlite:///{folder}/cabai.db"
    close(str(folder))


@pytest.fixture(scope="module")
def one_server(storage):
    found = InThread(storage)
    yield found
    found.close()


@pytest.fixture
def server(one_server):
    one_server.access.wrong = Rates(ATTEMPTS / 60, ATTEMPTS)  # without those of other tests
    return one_server


@pytest.fixture
def study(server, storage, request):
    """A new study with a unique name, and its path."""
    study = cabai.create_study(request.node.name[-100:], **ARMS, storage=storage)
    vars(study)["path"] = f"/api/studies/{quote(study.name, safe='')}"
    return study


def refused(answer, code: int, kind: str) -> str:
    """An answer is a problem of that kind; returns its sentence."""
    status, headers, found = answer
    assert (status, found["status"], found["type"]) == (code, code, f"urn:cabai:{kind}"), found
    assert headers["content-type"] == "application/problem+json"
    assert found["title"]
    return found["detail"]


# Who is let in


def test_without_a_token_nothing_is_answered(server):
    for path in ("/", "/api/studies", "/api/studies/x", "/openapi.json", "/nothing", "/api/studies/x/events"):
        answer = server.send("GET", path, authorization=None)
        assert "Bearer" in refused(answer, 401, "no-access")
        assert answer[1]["www-authenticate"] == "Bearer"
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE", "BREW"):
        assert server.send(method, "/api/studies", authorization=None)[0] in (401, 429)


def test_wrong_tokens_are_limited_and_a_right_one_is_let_in_all_the_same(serve, storage):
    server = serve(storage)  # that has seen no wrong token
    wrong = ["Bearer wrong", "Bearer ", "Basic d29yazp4", "x", "Bearer é".encode().decode("latin-1")]
    wrong += [f"Bearer {i}" for i in range(ATTEMPTS + 3 - len(wrong))]
    codes = [server.send("GET", "/api/studies", authorization=each)[0] for each in wrong]
    assert codes == [401] * ATTEMPTS + [429] * 3
    answer = server.send("GET", "/?token=wrong", authorization=None)
    refused(answer, 429, "too-many-attempts")
    assert 0 < int(answer[1]["retry-after"]) <= 60
    assert server.send("GET", "/api/studies")[0] == 200


def test_a_token_for_reading_reads_and_changes_nothing(server, study):
    reading = {"authorization": f"Bearer {server.tokens['read']}"}
    for path in ("", "/decision", "/settings", "/pulls", "/export"):
        assert server.send("GET", study.path + path, **reading)[0] == 200
    for path in ("ask", "tell", "tell-many", "renew", "release", "lapse", "stop", "nothing"):
        refused(server.send("POST", f"{study.path}/{path}", {}, **reading), 403, "read-only")
    refused(server.send("POST", "/api/studies", {"name": "x", **ARMS}, **reading), 403, "read-only")
    assert study.status().under_way == 0


def test_a_token_in_an_address_becomes_a_cookie_that_scripts_cannot_read(server, study):
    token = server.tokens["work"]
    status, headers, _ = server.send("GET", f"/?token={token}", authorization=None)
    assert (status, headers["location"]) == (303, "/")
    assert re.fullmatch(r"cabai_\w{12}=[\w-]+; HttpOnly; Path=/; SameSite=strict", headers["set-cookie"])
    with_cookie = {"authorization": None, "cookie": headers["set-cookie"].partition(";")[0]}
    status, headers, page = server.send("GET", "/", **with_cookie)
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert study.name in page
    assert server.send("GET", study.path, **with_cookie)[0] == 200
    # Browsers send cookies to every port of a host: this one is no token, and it changes nothing.
    assert not any(token in with_cookie["cookie"] for token in server.tokens.values())
    refused(server.send("POST", f"{study.path}/ask", {}, **with_cookie), 403, "read-only")
    for path in ("/?token=" + "x" * 43, f"/api/studies?token={token}"):
        refused(server.send("GET", path, authorization=None), 401, "no-access")


def test_tokens_come_from_a_file_which_only_its_owner_can_read(tmp_path):
    file = tmp_path / "tokens"
    made = tokens_in(str(file))
    assert file.stat().st_mode & 0o777 == 0o600
    assert tokens_in(str(file)).tokens == made.tokens
    for wrong in ("", "work abc\nread def\n", f"work {'x' * 40}\n", f"work {'x' * 40}\nread {'x' * 40}\n", "a b c\n"):
        file.write_text(wrong)
        with pytest.raises(cabai.InvalidInput):
            tokens_in(str(file))
    assert Access.new().tokens != Access.new().tokens


# Hosts, origins, methods, types and sizes


def test_wrong_hosts_and_origins_are_refused_but_a_link_may_be_followed(server, study):
    for host in ("evil.example", "127.0.0.1.evil.example", "", "127.0.0.2", "a@127.0.0.1", "[::1", "x:y"):
        refused(server.send("GET", "/api/studies", host=host), 421, "wrong-host")
    for host in ("localhost", "LOCALHOST:1", "[::1]:8000", "127.0.0.1", "localhost."):
        assert server.send("GET", "/api/studies", host=host)[0] == 200
    for origin in ("http://evil.example", "null", "http://127.0.0.1:1", "https://localhost", "http://[", ""):
        refused(server.send("GET", "/api/studies", origin=origin), 403, "foreign-origin")
        refused(server.send("POST", f"{study.path}/ask", {}, origin=origin), 403, "foreign-origin")
    own = f"http://127.0.0.1:{server.port}"
    assert server.send("POST", f"{study.path}/ask", {}, origin=own, sec_fetch_site="same-origin")[0] == 200
    for site in ("cross-site", "same-site", "CROSS-SITE", "else"):
        for more in ({}, {"sec_fetch_mode": "navigate"}):
            refused(server.send("GET", "/api/studies", sec_fetch_site=site, **more), 403, "foreign-origin")
        assert server.send("GET", "/", sec_fetch_site=site, sec_fetch_mode="navigate")[0] == 200


def test_every_answer_has_its_headers(server):
    answers = [
        server.send("GET", path, authorization=token and f"Bearer {server.tokens[token]}")
        for path in ("/", "/api/studies", "/api/studies/x", "/nothing", "/?token=x")
        for token in ("work", None)
    ]
    foreign = {"origin": "http://evil.example", "access_control_request_method": "POST"}
    for _, headers, _ in [*answers, server.send("OPTIONS", "/api/studies", **foreign)]:
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert (headers["x-content-type-options"], headers["referrer-policy"]) == ("nosniff", "no-referrer")
        assert headers["cache-control"] == "no-store"
        assert "server" not in headers
        assert not [name for name in headers if name.lower().startswith("access-control")]


def test_what_is_not_a_request_in_json_of_the_right_method_is_refused(server, study):
    for path in ("", "/ask", "/export"):
        for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE", "BREW"):
            status, headers, _ = server.send(method, study.path + path)
            assert (status, headers["allow"]) == (405, "POST" if path == "/ask" else "GET")
    for kind in (None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "json"):
        refused(server.send("POST", f"{study.path}/ask", b"{}", content_type=kind), 415, "not-json")
    numbers, deep = b'{"n": ' + b"1" * 5000 + b"}", b"[" * 90000
    for body in (b"", b"{", b"\xff", b"[]", b"1", numbers, deep, b"NaN"):
        assert server.send("POST", f"{study.path}/ask", body)[0] in (400, 422), body[:20]
    assert study.status().under_way == 0


def test_too_much_is_refused_and_who_does_not_finish_a_request_is_not_waited_for(server, study, monkeypatch):
    large = b'{"worker": "' + b"x" * LARGEST + b'"}'
    assert "1000000 bytes" in refused(server.send("POST", f"{study.path}/ask", large), 413, "too-large")
    refused(server.send("POST", f"{study.path}/ask", b"{}", content_length=str(10**12)), 413, "too-large")
    parts = [large[i : i + 60000] for i in range(0, len(large), 60000)]
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
    monkeypatch.setattr("cabai.server.guards.SLOWEST", 0.2)
    for header, body, code in (("Transfer-Encoding: chunked", chunks, b"413"), ("Content-Length: 10", b"{", b"408")):
        head = f"POST {study.path}/ask HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {server.tokens['work']}\r\n"
        [line] = connected(server, f"{head}Content-Type: application/json\r\n{header}\r\n\r\n".encode() + body)
        assert line.recv(100).startswith(b"HTTP/1.1 %s " % code)
        line.close()


@pytest.mark.parametrize(
    "name",
    ["../../etc/passwd", "a/b", "x/ask", "x/export", "%2F", "a%20b",
      "?q=1", "#x", "é 😀", "a+b", "..", "'\"; --", "&amp;", "api/studies"]
)  # fmt: skip
def test_names_of_any_characters_name_studies_and_nothing_else(server, storage, name):
    path = f"/api/studies/{quote(name, safe='')}"
    refused(server.send("GET", path), 404, "study-not-found")
    assert server.send("POST", "/api/studies", {"name": name, **ARMS})[0] == 201
    assert server.send("GET", path)[2]["name"] == name
    status, _, found = server.send("POST", f"{path}/ask", {})
    assert status == 200
    pull = found["pulls"][0]["id"]
    assert server.send("POST", f"{path}/tell", {"pull": pull, "reward": 1, "cost": 0.5})[0] == 200
    assert pull in server.send("GET", f"{path}/export")[2]
    cabai.delete_study(name, storage=storage)
    refused(server.send("GET", path), 404, "study-not-found")


def connected(server, sent, count=1):
    """Lines to a server, with this sent on each."""
    found = [socket.create_connection(("127.0.0.1", server.port), timeout=30) for _ in range(count)]
    for each in found:
        each.sendall(sent)
    return found


def test_paths_lead_nowhere_else(server):
    for path in ("%ff", "%00", "%", "x" * 500):
        assert server.send("GET", f"/api/studies/{path}")[0] in (404, 422)
    assert server.send("POST", "/api/studies/%zz/ask", {})[0] in (404, 422)
    others = "/../../etc/passwd //etc/passwd /static/../x /api/../api/studies /%2e%2e/ /api/studies/"
    for path in others.split():
        assert server.send("GET", path)[0] == 404


# What is answered


def test_the_description_names_every_path_and_that_a_token_is_needed(server):
    found = server.send("GET", "/openapi.json")[2]
    below = [
        "accept", "add-arm", "amend", "amendments", "ask", "decision", "drop", "events", "export", "failures",
        "history", "lapse", "log", "pulls", "release", "renew", "scores", "settings", "split", "stop", "tell",
        "tell-counts", "tell-many",
    ]  # fmt: skip
    study = "/api/studies/{name}"
    assert sorted(found["paths"]) == sorted(["/api/studies", study, *(f"{study}/{path}" for path in below)])
    assert found["security"] == [{"token": []}]
    for operation in (each for path in found["paths"].values() for each in path.values()):
        assert "application/problem+json" in operation["responses"]["default"]["content"]
    properties = found["components"]["schemas"]["Create"]["properties"]
    taken = set(inspect.signature(cabai.create_study).parameters)
    assert set(properties) == taken - {"storage", "import_from", "unseen"} | {"digest"}


@pytest.mark.slow
def test_what_is_described_is_what_is_done(storage, tmp_path):
    """Requests made from the description, legal ones and others: no error of our own, and no answer that it does not
    describe."""
    pytest.importorskip("schemathesis")
    server = InThread(storage)
    cabai.create_study("judges", **ARMS, storage=storage, load_if_exists=True)
    checks = "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance"
    done = subprocess.run(
        [sys.executable, "-m", "schemathesis.cli", "run", f"http://127.0.0.1:{server.port}/openapi.json",
         "-H", f"Authorization: Bearer {server.tokens['work']}", "--exclude-path-regex", "events$", "--seed", "1",
         "--checks", f"{checks},response_schema_conformance,allow_header_conformance", "--max-examples", "100"],
        capture_output=True, text=True, cwd=tmp_path, timeout=600,
    )  # fmt: skip
    server.close()
    assert done.returncode == 0, "\n".join(line[:300] for line in done.stdout.splitlines())
    assert re.search(r"(\d{4,}) generated", done.stdout)


def test_a_study_from_its_creation_to_its_decision(server):
    assert server.send("POST", "/api/studies", {"name": "whole", **ARMS, "costs": {"small": 1, "large": 2}})[0] == 201
    path, told = "/api/studies/whole", 0
    while True:
        status, _, found = server.send("POST", f"{path}/ask", {"worker": "me"})
        if status == 410:
            break
        [pull] = found["pulls"]
        assert set(pull) == {"id", "arm", "item", "number", "expires", "offers", "metadata"}
        body = {"pull": pull["id"], "reward": pull["arm"] == "large"}
        first, again = (server.send("POST", f"{path}/tell", body) for _ in range(2))
        assert (first[0], first[2]) == (again[0], again[2]) == (200, first[2])
        told += 1
    assert (found["decision"], found["reason"]) == ("large", "evidence")
    assert found["detail"] == "study 'whole' has stopped: there is nothing left to pull."
    assert "Decided: large has the largest mean" in found["sentence"]
    status = server.send("GET", path)[2]
    assert (status["decision"], status["pulls"]) == ("large", told)
    decided = {"stopped": True, "reason": "evidence", "decision": "large", "spent": status["spent"], "amended": 0}
    assert server.send("GET", f"{path}/decision")[2] == decided


def test_the_words_and_fields_are_those_of_the_shell(server, study, storage):
    for reward in (1, 0, 1, 1):
        study.tell(study.ask(), reward, 1.0)
    shown = here("study", "status", study.name, "--storage", storage, "--json").stdout
    assert server.send("GET", study.path)[2] == json.loads(shown)
    listed = json.loads(here("study", "list", "--storage", storage, "--json").stdout)["studies"]
    found = server.send("GET", "/api/studies")[2]["studies"]
    assert [{name: each[name] for name in each if name != "sentence"} for each in found] == listed


def test_a_study_that_stopped_at_its_limit_says_what_would_let_it_go_on(server):
    server.send("POST", "/api/studies", {"name": "short", **ARMS, "max_pulls": 1})
    pull = server.send("POST", "/api/studies/short/ask", {})[2]["pulls"][0]
    answer = server.send("POST", "/api/studies/short/ask", {})
    refused(answer, 409, "no-pull")
    assert answer[1]["retry-after"] == "1"
    server.send("POST", "/api/studies/short/tell", {"pull": pull["id"], "reward": 1, "cost": 1})
    answer = server.send("POST", "/api/studies/short/ask", {})
    refused(answer, 409, "study-stopped")
    assert (answer[2]["reason"], answer[2]["decision"]) == ("max_pulls", None)
    assert answer[2]["next"] == "Amend it with a larger max_pulls to continue."


def test_creating_again_is_refused_unless_it_is_the_same_request(server, storage):
    body, load = {"name": "made once", **ARMS}, {"load_if_exists": True}

    def create(more=None, key=None):
        return server.send("POST", "/api/studies", body | (more or {}), idempotency_key=key)

    assert [create(key=key)[0] for key in "aab"] == [201, 201, 422]
    assert create(load)[0] == 201
    assert "its delta is 0.05, not 0.1" in refused(create(load | {"delta": 0.1}), 422, "invalid-input")
    cabai.delete_study("made once", storage=storage)
    assert create({"delta": 0.1}, key="a")[0] == 201
    assert cabai.load_study("made once", storage=storage).settings.delta == 0.1  # with settings of its own
    assert create({"name": "another with the same key"}, key="a")[0] == 201
    first, other = (cabai.load_study(name, storage=storage) for name in ("made once", "another with the same key"))
    assert first.ask().id != other.ask().id


def test_sums_that_are_told_again_with_the_same_key_count_once(server, study):
    body, path = {"counts": {"small": [10, 5, 1.0], "large": [10, 6, 1.0]}}, f"{study.path}/tell-counts"
    for key, pulls in (("once", 20), ("once", 20), ("another", 40)):
        assert server.send("POST", path, body, idempotency_key=key)[0] == 200
        assert study.status().pulls == pulls
    assert [server.send("POST", path, body)[0] for _ in range(2)] == [200] * 2  # without a key, every request counts
    assert server.send("POST", path, {"counts": {"small": [11, 5, 1.0]}}, idempotency_key="once")[0] == 409
    assert study.status().pulls == 80


def test_a_pull_is_renewed_and_released_by_who_has_it_and_told_once(server, study):
    pull = server.send("POST", f"{study.path}/ask", {"worker": "a"})[2]["pulls"][0]
    mine = {"pull": pull["id"], "offers": 1, "worker": "a"}
    assert server.send("POST", f"{study.path}/renew", mine)[0] == 200
    refused(server.send("POST", f"{study.path}/renew", mine | {"worker": "b"}), 409, "lost-pull")
    assert server.send("POST", f"{study.path}/release", mine)[0] == 200
    again = server.send("POST", f"{study.path}/ask", {"worker": "b"})[2]["pulls"][0]
    assert (again["id"], again["offers"]) == (pull["id"], 2)
    refused(server.send("POST", f"{study.path}/release", mine), 409, "lost-pull")
    body = {"pull": pull["id"], "failed": "no answer", "cost": 0.5}
    assert server.send("POST", f"{study.path}/tell", body)[0] == 200
    detail = refused(server.send("POST", f"{study.path}/tell", body | {"cost": 0.6}), 409, "already-told")
    with pytest.raises(cabai.AlreadyTold) as error:
        study.tell(pull["id"], failed="no answer", cost=0.6)
    assert detail == str(error.value)


def test_pulls_under_way_are_shown_and_those_of_lost_workers_lapse(server, study):
    server.send("POST", f"{study.path}/ask", {"n": 2, "worker": "lost"})
    server.send("POST", f"{study.path}/ask", {"worker": "alive"})
    found = server.send("GET", f"{study.path}/pulls")[2]["pulls"]
    assert [pull["worker"] for pull in found] == ["lost", "lost", "alive"]
    assert server.send("POST", f"{study.path}/lapse", {"workers": ["lost", "another"]})[0] == 200
    assert study.status().lapsed == 2
    assert [pull["offers"] for pull in server.send("POST", f"{study.path}/ask", {"n": 3})[2]["pulls"]] == [2, 2, 1]


def test_what_python_refuses_is_refused_in_the_same_words(server, study):
    pull = study.ask()
    for told in (
        {"reward": 2, "cost": 1}, {"reward": "1", "cost": 1}, {"reward": 1}, {"reward": 1, "cost": -1}, {},
        {"reward": 1, "cost": True}, {"failed": " "}, {"reward": 1, "failed": "x"}, {"reward": [1], "cost": 1},
        {"reward": 1, "cost": float("nan")},
    ):  # fmt: skip
        detail = refused(server.send("POST", f"{study.path}/tell", {"pull": pull.id, **told}), 422, "invalid-input")
        with pytest.raises(cabai.InvalidInput) as error:
            study.tell(pull.id, **told)
        assert detail == str(error.value)


@pytest.mark.parametrize("more", [
    {"family": "os:system"}, {"policy": "evil:Policy"}, {"threshold": "mod.sub:T(a=1)"}, {"threshold": "/etc/passwd"},
    {"threshold": "calibrated(c=2, policy=a:b)"}, {"storage": "sqlite:///x.db"}, {"command": "rm"}, {"arms": ["one"]},
    {"arms": ["a"] * 2}, {"delta": "0.1"}, {"delta": 7}, {"items": 10**8}, {"items": [[1], [2]], "family": None},
    {"seed": 2**70}, {"max_pulls": 0}, {"name": ""}, {"name": "x" * 201}, {"name": "a\nb"}, {"goal": "cheap"},
    {"arms": {"a": None, "b": {"deep": None}}, "costs": {"a": 1}}, {"family": "mirrored:x"}, {"tests": {}},
    {"family": None, "items": 10, "digest": "x" * 200}, {"arms": [f"a{i}" for i in range(501)]},
    {"family": None, "items": 500_001},  # with two arms, more than a million scores
])  # fmt: skip
def test_what_must_not_be_created_is_refused(server, more, storage):
    before = cabai.list_studies(storage=storage)
    said = refused(server.send("POST", "/api/studies", {"name": "refused", **ARMS} | more), 422, "invalid-input")
    assert cabai.list_studies(storage=storage) == before
    assert more.get("items") != 500_001 or said.startswith("over HTTP, arms times items may be at most 1000000")


def test_an_export_is_that_of_the_shell_formulas_and_all(server, study, storage):
    for reason in ("=1+1", 'a, "b"\r\n', "@x"):
        study.tell(study.ask(worker="-w"), failed=reason, cost=0.0)
    study.tell(study.ask(), 1, 0.25)
    for kind, option in (("csv", []), ("json", ["--json"])):
        shown = here("study", "export", study.name, "--storage", storage, *option).stdout
        found = server.send("GET", f"{study.path}/export?format={kind}")[2]
        assert found == (json.loads(shown) if kind == "json" else shown)
    assert "'=1+1" in server.send("GET", f"{study.path}/export")[2]
    refused(server.send("GET", f"{study.path}/export?format=exe"), 422, "invalid-input")


def test_events_tell_how_a_study_stands_after_every_change(server, study):
    connection, answer = server.listen(f"{study.path}/events")
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"

    def next_status() -> dict:
        while (line := answer.readline().decode()) != "event: status\n":
            assert line
        return json.loads(answer.readline().decode().removeprefix("data: "))

    assert next_status() == study.status().to_dict()
    study.tell(study.ask(), 1, 0.5)
    found = next_status()
    while found["spent"] == 0:  # the ask alone
        found = next_status()
    assert found == study.status().to_dict()
    connection.close()


def test_a_stream_is_never_silent_for_long_and_ends_with_its_study(server, storage, monkeypatch):
    monkeypatch.setattr("cabai.server.events.QUIET", 0.2)
    cabai.create_study("quiet", **ARMS, storage=storage)
    connection, answer = server.listen("/api/studies/quiet/events")
    while answer.readline() != b": nothing new\n":
        pass
    cabai.delete_study("quiet", storage=storage)
    assert b"event" not in answer.read()
    connection.close()


def test_no_stream_more_gets_in_when_many_come_at_once(server, study, monkeypatch):
    """Of 30 that ask at the same moment, 5 get in; when one goes, another may come."""
    monkeypatch.setattr("cabai.server.events.MOST_STREAMS", 5)
    everybody = threading.Barrier(30)

    def ask(_):
        everybody.wait(20)
        return server.listen(f"{study.path}/events")

    with ThreadPoolExecutor(30) as pool:
        found = list(pool.map(ask, range(30)))
    assert sorted(answer.status for _, answer in found) == [200] * 5 + [503] * 25
    for connection, answer in found:
        answer.close()
        connection.close()
    for _ in range(100):
        connection, answer = server.listen(f"{study.path}/events")
        answer.close()
        connection.close()
        if answer.status == 200:
            return
        time.sleep(0.1)
    raise AssertionError("the streams that have ended still count")


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nX: ", b"GET /nothing HTTP/1.1\r\nHost: x\r\n\r\nGET / HT"])
def test_headers_that_do_not_end_end_the_connection(server, study, monkeypatch, sent):
    """Also of a second request; and also if a byte comes now and then. Who waits for an answer is left alone."""
    monkeypatch.setattr("cabai.server.connections.SLOWEST", 0.5)
    stream, events = server.listen(f"{study.path}/events")
    [slow] = connected(server, sent[:40])
    if sent[40:]:
        assert slow.recv(12) == b"HTTP/1.1 421"
        slow.sendall(sent[40:])
    deadline = time.monotonic() + 20
    slow.settimeout(0.1)
    with suppress(ConnectionError):
        while True:
            assert time.monotonic() < deadline, "it is still open"
            try:
                if not slow.recv(4096):
                    break
            except TimeoutError:
                slow.sendall(sent and b"x")
    slow.close()
    study.ask()
    while b"event: status" not in events.readline():
        pass
    stream.close()


def test_half_sent_requests_keep_nobody_out(server, study, monkeypatch):
    """More than may wait: those that have waited longest are closed, and everybody else is answered."""
    monkeypatch.setattr("cabai.server.connections.MOST_WAITING", 20)
    slow, closed = connected(server, b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ", 100), 0
    assert server.send("GET", study.path)[0] == 200
    for each in slow:
        each.settimeout(0.01)
        try:
            closed += each.recv(1) == b""
        except OSError as error:
            closed += not isinstance(error, TimeoutError)
        each.close()
    assert closed >= 80


def test_few_large_studies_are_kept_open_and_a_server_ends_though_somebody_still_listens(storage, monkeypatch):
    monkeypatch.setattr("cabai.server.studies.MOST_SCORES", 500)
    studies = OpenStudies(storage)
    for number in range(4):
        cabai.create_study(f"large {number}", arms=["a", "b"], items=100, storage=storage, load_if_exists=True)
        studies.do(f"large {number}", lambda study: study.status())
        assert sum(map(scores_of, studies._open.values())) <= 500
    assert list(studies._open) == ["large 2", "large 3"]
    server = InThread(storage)
    cabai.create_study("watched", **ARMS, storage=storage, load_if_exists=True)
    connection, answer = server.listen("/api/studies/watched/events")
    answer.readline()
    server.close()
    connection.close()


def test_a_study_made_anew_under_the_same_name_is_the_new_one(server, storage):
    cabai.create_study("twice", **ARMS, storage=storage)
    assert server.send("POST", "/api/studies/twice/ask", {})[0] == 200
    cabai.delete_study("twice", storage=storage)
    refused(server.send("POST", "/api/studies/twice/ask", {}), 404, "study-not-found")
    cabai.create_study("twice", arms=["x", "y", "z"], family="bounded", storage=storage)
    assert server.send("POST", "/api/studies/twice/ask", {})[2]["pulls"][0]["arm"] == "x"


def test_an_error_of_our_own_is_not_told_to_others(server, monkeypatch, study, caplog):
    monkeypatch.setattr("cabai.study.stored.StoredStudy.status", lambda self, **_: 1 / 0)
    detail = refused(server.send("GET", study.path), 500, "server-error")
    assert "division" not in detail
    assert "ZeroDivisionError" in caplog.text


def test_sentences_do_not_say_where_the_storage_is(server, study, monkeypatch, folder):
    here = f"http://127.0.0.1:{server.port}"
    detail = refused(server.send("GET", "/api/studies/none"), 404, "study-not-found")
    assert detail == f"there is no study 'none' in {here}."

    def fail(self, *_):
        raise cabai.StorageError(f"storage {self.url} failed: no.")

    monkeypatch.setattr("cabai.study.log.sqlite.SqliteStorage.fetch", fail)
    answer = server.send("GET", study.path)
    assert refused(answer, 503, "storage-failed") == f"storage {here} failed: no."
    assert answer[1]["retry-after"] == "1"
    monkeypatch.undo()
    studies = OpenStudies(f"sqlite:///{folder}/cabai.db")
    kept = "Everything acknowledged before is stored; this call was not acknowledged."
    said = f'storage sqlite:///{folder}/cabai.db failed: connection to server at "10.1.2.3", port 5432 failed. {kept}'
    assert studies.without_place(said, "http://here") == f"storage http://here failed. {kept}"


# The command


@pytest.mark.parametrize("options", [
    ["--host", "0.0.0.0"], ["--host", "192.0.2.1"], ["--host", "::"], ["--host", "example.org"],
    ["--certfile", "x"], ["--keyfile", "x"], ["--host", "0.0.0.0", "--behind-proxy"], ["--port", "70000"],
    ["--certfile", "none", "--keyfile", "none"], ["--storage", "http://localhost:1"], ["--storage", "nonsense"],
])  # fmt: skip
def test_what_is_not_safe_or_makes_no_sense_is_refused_in_one_line(server, options, tmp_path):
    said = shell.refused("serve", "--port", "0", *options, cwd=tmp_path)
    assert said.startswith("cabai: ")
    assert "0.0.0.0" not in options or "--behind-proxy" in said or "--allow-host" in said
    in_use = ["--port", str(server.port)]
    assert "cannot listen on 127.0.0.1" in shell.refused("serve", *in_use, cwd=tmp_path)


def test_the_command_prints_one_line_and_ctrl_c_ends_it(tmp_path: Path):
    process = Process(f"sqlite:///{tmp_path}/cabai.db", tmp_path)
    study = cabai.create_study("first", **ARMS, storage=process.line.strip())  # the line itself is the address
    assert study.ask().arm == "small"
    assert study.storage == f"http://127.0.0.1:{process.port}"
    assert process.end(signal.SIGINT) == (0, "")
    assert process.token in (tmp_path / "tokens").read_text()


def test_https_is_spoken_with_a_certificate(serve, tmp_path: Path, monkeypatch):
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    made = subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost", "-addext",
         "subjectAltName=DNS:localhost", "-keyout", key, "-out", certificate], capture_output=True,
    )  # fmt: skip
    if made.returncode:
        pytest.skip("openssl could not make a certificate")
    server = serve("memory", certfile=str(certificate), keyfile=str(key))
    address = f"https://{server.tokens['work']}@localhost:{server.port}"
    with pytest.raises(cabai.StorageError, match="CERTIFICATE_VERIFY_FAILED"):
        cabai.list_studies(storage=address)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    assert cabai.create_study("over https", **ARMS, storage=address).storage.startswith("https://localhost:")


def test_a_proxy_says_how_it_was_called_and_nobody_else_does(serve, storage):
    forwarded = {"host": "studies.example", "x_forwarded_proto": "https", "authorization": None}
    for behind_proxy in (True, False):
        server = serve(storage, hosts=["studies.example"], behind_proxy=behind_proxy)
        _, headers, _ = server.send("GET", f"/?token={server.tokens['work']}", **forwarded)
        assert ("; Secure" in headers["set-cookie"]) == behind_proxy
        own = {"host": "studies.example", "origin": "https://studies.example"}
        assert server.send("GET", "/api/studies", **own)[0] == 200


def test_a_loop_that_has_lost_its_way_is_slowed_down(serve, storage, monkeypatch):
    """The others are not; and the client waits and asks again by itself."""
    monkeypatch.setattr("cabai.server.guards.Rates", lambda: Rates(rate=5, burst=5))
    server = serve(storage)
    study = cabai.create_study("rates", arms=["a", "b"], family="bernoulli", storage=storage)
    found = [server.send("GET", "/assets/icon.svg") for _ in range(40)]  # which takes no time
    assert [status for status, _, _ in found][:5] == [200] * 5
    status, headers, problem = next(each for each in found if each[0] != 200)
    assert (status, headers["retry-after"], problem["type"]) == (429, "1", "urn:cabai:too-many-requests")
    remote = cabai.load_study("rates", storage=server.address)
    for _ in range(3):
        remote.tell(remote.ask(), 1, 1.0)
    assert study.status().pulls == 3


# The workers of docs/service.md, in shell and JavaScript, are run as the page shows them


PAGE = (Path(__file__).parent.parent / "docs" / "service.md").read_text(encoding="utf-8")
PROGRAMS = {"sh": ["bash", "-eu"], "js": ["node", "--input-type=module"]}


def worker_of_the_page(language):
    needed = ["curl", "jq"] if language == "sh" else ["node"]
    if not all(shutil.which(program) for program in needed):
        pytest.skip(f"needs {' and '.join(needed)}")
    [worker] = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return worker


def results(language, worker, server, workers=1):
    """The exit code, output and errors of each of some workers at the same time."""
    about = {"CABAI": f"http://127.0.0.1:{server.port}", "CABAI_TOKEN": server.tokens["work"]}

    def run(_):
        done = subprocess.run(
            PROGRAMS[language], input=worker, env=os.environ | about, capture_output=True, text=True, timeout=300
        )
        return done.returncode, done.stdout, done.stderr

    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(run, range(workers)))


@pytest.mark.parametrize("language", PROGRAMS)
def test_a_worker_of_the_page_reaches_the_decision(folder, serve, language):
    worker = worker_of_the_page(language)
    storage = f"sqlite:///{folder}/cabai.db"
    study = cabai.create_study("judges", arms=["small", "large"], family="bernoulli", storage=storage)
    [(code, output, errors)] = results(language, worker, serve(storage))
    assert (code, errors) == (0, "")
    assert output.startswith("Decided: large has the largest mean")
    assert (study.decision, study.status().under_way) == ("large", 0)


@pytest.mark.parametrize("language", PROGRAMS)
def test_workers_of_the_page_stay_while_others_have_all_that_can_be_tried(folder, serve, language):
    """Another worker has three of the four pulls: workers are told to wait, and none goes before the end."""
    worker = worker_of_the_page(language).replace("0.02", "1")
    storage = f"sqlite:///{folder}/cabai.db"
    study = cabai.create_study("judges", arms=["small", "large"], family="bernoulli", storage=storage, max_pulls=4)
    held = study.ask(3, worker="another")

    def tell_late():
        time.sleep(1.5)
        for pull in held:
            study.tell(pull, reward=1, cost=1)

    late = threading.Thread(target=tell_late)
    late.start()
    found = results(language, worker, serve(storage), workers=3)
    late.join()
    assert [(code, errors) for code, _, errors in found] == [(0, "")] * 3
    assert all(output.startswith("Undecided: ") for _, output, _ in found), found
    assert (study.status().pulls, study.status().under_way) == (4, 0)
