"""The HTTP service: requests, the study methods that they call, and responses."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import Annotated, Any, Literal

import anyio.to_thread
from fastapi import FastAPI, Header, Query, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import Match, Route

from cabai import views
from cabai.errors import StudyStopped
from cabai.server import answers, problems, requests
from cabai.server.access import Access
from cabai.server.events import EventStream, Streams
from cabai.server.guards import Guards, is_page
from cabai.server.problems import Json, problem
from cabai.server.studies import OpenStudies
from cabai.study import Pull, Status
from cabai.study.http import ERRORS
from cabai.study.show.exporting import spooled
from cabai.study.show.status import LISTED
from cabai.study.stored import StoredStudy
from cabai.support.validation import InvalidInput
from cabai.support.version import __version__

LOCAL = ("127.0.0.1", "localhost", "::1")
THREADS = 64  # requests answered at a time
CHUNK = 2**16
TYPES = {"csv": "text/csv; charset=utf-8", "json": "application/json"}
ASSETS = {
    "style.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
Key = Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=200)]


def make_app(studies: str | OpenStudies, access: Access, hosts: Iterable[str] = ()) -> FastAPI:
    """The service for a storage; requests need a token. It answers to the names of this machine and to `hosts`."""
    studies = OpenStudies(studies) if isinstance(studies, str) else studies
    streams = Streams(studies)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        anyio.to_thread.current_default_thread_limiter().total_tokens = THREADS
        yield

    app = FastAPI(
        title="cabai", version=__version__, docs_url=None, redoc_url=None, lifespan=lifespan,
        redirect_slashes=False, responses=answers.PROBLEM,
        description="Studies: ask what to pull, tell what came back.",
    )  # fmt: skip
    app.state.streams = streams
    app.add_middleware(Guards, access=access, hosts=[*LOCAL, *hosts])
    add_problems(app, studies)
    add_paths(app, studies, streams)
    protect(app)
    return app


# What a request does with a study: its path below the study's, what is answered or asked, the work, and a sentence.
Rows = list[tuple[str, Any, Callable[..., Any], str]]
READS: Rows = [
    ("", Status, lambda study: study.status().to_dict(),
     "Every arm, the progress, the bill, what is still to come, and the decision."),
    ("/decision", answers.InShort, lambda study: study._read("short"),
     "Whether the study has stopped, and with which decision: a short status, without delay."),
    ("/settings", answers.About, lambda study: settings_of(study),
     "The study's settings, as created and amended since."),
    ("/pulls", answers.AllUnderWay, lambda study: {"pulls": study._read("pulls")},
     "The pulls that are under way, and who has them."),
    ("/history", answers.History, lambda study: {"history": [each._asdict() for each in study.history()]},
     "How evidence and the bill grew: a few hundred points at most."),
    ("/failures", answers.Failures, lambda study: study._read("failures"),
     "Why pulls have failed, the most frequent reasons first."),
    ("/amendments", answers.Amendments, lambda study: {"amendments": study.amendments()},
     "The amendments: what, when and by whom."),
    ("/log", answers.Log, lambda study: {"log": study.events()}, "Everything that ever happened to the study."),
    ("/scores", answers.Scores, lambda study: {"scores": scores_of(study)}, "All known scores of a study with items."),
]  # fmt: skip
CHANGES: Rows = [  # answered with the short status
    ("/tell", requests.Tell, lambda study, asked: study.tell(**asked.model_dump()),
     "What a pull returned and cost: stored on disk before the response. Repeating it changes nothing."),
    ("/tell-many", requests.TellMany, lambda study, asked: study.tell_many(each.model_dump() for each in asked.results),
     "Tell several pulls: all of them, or none if one is refused."),
    ("/renew", requests.Lease, lambda study, asked: study.renew(held(asked), worker=asked.worker),
     "Renew the lease of a pull that is still being tried."),
    ("/release", requests.Lease, lambda study, asked: study.release(held(asked), worker=asked.worker),
     "Release a pull that was not tried: it is offered next."),
    ("/lapse", requests.Lapse, lambda study, asked: study._do("lapse", was_lost=set(asked.workers).__contains__),
     "Offer the pulls of lost workers again now."),
    ("/stop", requests.Nothing, lambda study, _: study.stop(),
     "End the study by hand: for good, and without a decision."),
    ("/accept", requests.Accept, lambda study, asked: study.accept(**asked.model_dump()),
     "Take as the decision what is proven: by how much the leader can be worse than the best."),
    ("/amend", requests.Amend, lambda study, asked: study.amend(**asked.model_dump()),
     "Change the budget, epsilon, the lease or arms' metadata, for everybody. A study that stopped at its budget "
     "continues if the new one allows it."),
    ("/drop", requests.Drop, lambda study, asked: study.drop(**asked.model_dump()),
     "Drop an arm by hand: it is not pulled any more, and cannot be the decision."),
    ("/add-arm", requests.AddArm, lambda study, asked: add_arm(study, asked),
     "Add an arm to a study that was created with a reserve."),
]  # fmt: skip
OF_STUDY = "/api/studies/{name}"


def add_paths(app: FastAPI, studies: OpenStudies, streams: Streams) -> None:
    """All paths. Names in paths are still encoded: `studies.do` decodes them."""

    def reading(work: Callable[[StoredStudy], Any]) -> Callable[..., Response]:
        return lambda name: Json(studies.do(name, work))

    def changing(work: Callable[[StoredStudy, Any], object]) -> Callable[..., Response]:
        def both(study: StoredStudy, asked: Any) -> dict[str, Any]:
            work(study, asked)
            return study._read("short")  # type: ignore[no-any-return]

        return lambda name, asked: Json(studies.do(name, lambda study: both(study, asked)))

    def add(method: str, path: str, sentence: str, endpoint: Callable[..., Response], answer: Any, asked: Any) -> None:
        endpoint.__annotations__ = {"name": str, **asked}
        how = {"response_model": answer, "description": sentence, "name": path[1:].replace("-", "_") or "status"}
        app.add_api_route(OF_STUDY + path, endpoint, methods=[method], **how)

    for path, answer, work, sentence in READS:
        add("GET", path, sentence, reading(work), answer, {})
    for path, kind, work, sentence in CHANGES:
        add("POST", path, sentence, changing(work), answers.InShort, {"asked": kind})

    @app.get("/", include_in_schema=False)
    def index(request: Request) -> Response:
        found, damaged = studies.every("listed", address_of(request))
        return HTMLResponse(views.render("studies.html", found=found, damaged=damaged))

    @app.get("/studies/{name}", include_in_schema=False)
    def page_of(name: str) -> Response:
        return HTMLResponse(studies.do(name, lambda study: views.page(study._read("seen"))))

    @app.get("/studies/{name}/events", include_in_schema=False)
    async def page_events(name: str) -> Response:
        return await stream(name, streams.of_page)

    @app.get("/assets/{name}", include_in_schema=False)
    def asset(name: str) -> Response:
        if name not in ASSETS:
            return problem("no-such-path", "Not Found.")
        return Response(views.asset(name), media_type=ASSETS[name])

    @app.get("/api/studies", response_model=answers.Overview)
    def list_studies(request: Request) -> Response:
        """All studies and their status."""
        found, damaged = studies.every("status", address_of(request))
        rows = [{name: getattr(each, name) for name in LISTED} | {"sentence": each.sentence} for each in found]
        return Json({"studies": rows, "damaged": damaged})

    @app.post("/api/studies", status_code=201, response_model=answers.Created)
    def create_study(asked: requests.Create, key: Key = None) -> Response:
        """Create a study. Repeated with the same Idempotency-Key, the request has the same answer."""
        study = asked.study(studies.url, key)
        return Json({"name": study.name, "arms": list(study.arms)}, 201)

    def unless_stopped(name: str, work: Callable[[StoredStudy], Any]) -> Response:
        def answer(study: StoredStudy) -> Response:
            try:
                return Json(work(study))
            except StudyStopped as error:
                return problems.stopped(study, str(error))

        return studies.do(name, answer)

    @app.post(f"{OF_STUDY}/ask", response_model=answers.Pulls)
    def ask(name: str, asked: requests.Ask, key: Key = None) -> Response:
        """What to pull next. Repeated with the same Idempotency-Key by the same worker, the request has the same answer
        as long as its pulls are under way. 410 once the study is decided; 409 while there is nothing to pull, or if it
        has stopped without a decision."""

        def work(study: StoredStudy) -> dict[str, Any]:
            pulls = study._ask(asked.n, asked.worker, key, extra=asked.extra, batch=asked.batch)
            return {"pulls": list(map(asdict, pulls)), "amended": study._read("short")["amended"]}

        return unless_stopped(name, work)

    @app.post(f"{OF_STUDY}/tell-counts", response_model=answers.Told)
    def tell_counts(name: str, told: requests.TellCounts, key: Key = None) -> Response:
        """The sums of many pulls per arm. A period with a name counts once; so does one without, by its
        Idempotency-Key."""

        def work(study: StoredStudy) -> dict[str, Any]:
            given = told.model_dump()
            if given["period"] is None and key is not None:
                given["period"] = f"request {hashlib.sha256(key.encode()).hexdigest()}"
            shares = study.tell_counts(**given)
            return {**study._read("short"), "shares": shares}

        return Json(studies.do(name, work))

    @app.get(f"{OF_STUDY}/split", response_model=answers.Split)
    def split(name: str, pulls: Annotated[int, Query(ge=1, lt=2**53)]) -> Response:
        """How the policy would divide this many pulls among the arms."""
        return unless_stopped(name, lambda study: {"pulls": study.split(pulls)})

    @app.get(f"{OF_STUDY}/export", responses=answers.text("text/csv", "One row for each pull that was told."))
    def export(name: str, format: Literal["csv", "json"] = "csv") -> Response:
        """Everything that was told, in the order of telling."""
        file = studies.do(name, lambda study: spooled(study, format))

        def chunks() -> Iterator[bytes]:
            with file:
                while chunk := file.read(CHUNK):
                    yield chunk

        return StreamingResponse(chunks(), media_type=TYPES[format])

    @app.get(
        f"{OF_STUDY}/events",
        responses=answers.text("text/event-stream", "A `status` event, with the status as JSON, after every change."),
    )
    async def events(name: str) -> Response:
        """The status, whenever it has changed."""
        return await stream(name, streams.of)

    async def stream(name: str, of: Callable[[str], AsyncIterator[str]]) -> Response:
        await anyio.to_thread.run_sync(studies.do, name, lambda study: study._read("short"))  # does it exist?
        return EventStream(streams, of(name))


def settings_of(study: StoredStudy) -> dict[str, Any]:
    known, amended = study._read("settings")
    return {"name": study.name, "settings": json.loads(known.to_json()), "amended": amended}


def scores_of(study: StoredStudy) -> list[dict[str, Any]]:
    found = study.scores().items()
    return [{"arm": arm, "item": item, "score": score} for arm, of in found for item, score in of.items()]


def add_arm(study: StoredStudy, asked: requests.AddArm) -> None:
    if len(study.arms) >= requests.MOST_ARMS:
        raise InvalidInput(f"over HTTP, a study can have at most {requests.MOST_ARMS} arms.")
    study.add_arm(**asked.model_dump())


def held(asked: requests.Lease) -> Pull | str:
    """A pull, as its worker knows it."""
    return asked.pull if asked.offers is None else Pull(asked.pull, "", 0, 0.0, asked.offers)


def add_problems(app: FastAPI, studies: OpenStudies) -> None:
    """Every exception is answered with a problem."""

    def of_a_study(request: Request, error: Exception) -> Response:
        text = studies.without_place(str(error), address_of(request))
        answer = problems.problem_of(error, text)
        if is_page(request.scope) and "text/html" in request.headers.get("accept", ""):
            return problems.message("cabai", text, answer.status_code)
        return answer

    def of_a_request(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return problem("invalid-input", " ".join(in_words(each) for each in error.errors()[:5]))

    def of_http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if error.status_code == 405:
            allowed = methods(app, request)
            detail = f"{request.method[:50]} is not allowed on this path: use {allowed}."
            return problem("no-such-method", detail, {"Allow": allowed})
        kind = "no-such-path" if error.status_code == 404 else "bad-request"
        return problem(kind, f"{error.detail}.", error.headers, status=error.status_code)

    for kind in ERRORS.values():
        app.add_exception_handler(kind, of_a_study)
    app.add_exception_handler(RequestValidationError, of_a_request)
    app.add_exception_handler(HTTPException, of_http)


def address_of(request: Request) -> str:
    """The address of the server, as the client called it."""
    return f"{request.url.scheme}://{request.headers['host']}"


def methods(app: FastAPI, request: Request) -> str:
    """The methods that a path allows."""
    routes = [each for each in app.routes if isinstance(each, Route) and each.matches(request.scope)[0] != Match.NONE]
    return ", ".join(sorted({method for route in routes for method in route.methods or ()} - {"HEAD"}))


def in_words(error: Any) -> str:
    """What is wrong with a part of a request, and where."""
    where = ".".join(str(part) for part in error["loc"] if part not in ("body", "query", "header"))
    words = error["msg"].removeprefix("Value error, ")
    return f"{where or 'the request'}: {words}" + ("" if words.endswith((".", "?")) else ".")


def protect(app: FastAPI) -> None:
    """Say in the OpenAPI description that every path needs a token."""
    made = app.openapi

    def openapi() -> dict[str, Any]:
        described = made()
        described.setdefault("components", {})["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        described["security"] = [{"token": []}]
        return described

    app.openapi = openapi  # type: ignore[method-assign]
