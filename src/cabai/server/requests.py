"""What a request may say. Values are checked by the study itself, in the same words as in Python."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    Strict,
    StrictBool,
    StrictInt,
    StrictStr,
    WithJsonSchema,
    create_model,
    model_validator,
)

from cabai.datasets.dataset import EACH, WHOLE, Dataset
from cabai.settings import Setting, settings_for
from cabai.study import Study
from cabai.study.create import described, open_study
from cabai.study.http import LARGEST
from cabai.study.settings import LONGEST_NAME
from cabai.support.validation import InvalidInput, check_names, shown

Number = Annotated[float, Strict()]
Reward = Annotated[Any, WithJsonSchema({"type": ["number", "boolean", "null"]})]
Cost = Annotated[Any, WithJsonSchema({"type": ["number", "null"]})]
Name = Annotated[StrictStr, Field(max_length=LONGEST_NAME)]
Worker = Annotated[StrictStr, Field(max_length=200)] | None
PullId = Annotated[StrictStr, Field(max_length=100)]
MOST_ARMS, MOST_PULLS, MOST_RESULTS = 500, 1000, 10_000
MOST_SCORES = 1_000_000  # arms times items: each takes about 50 bytes while the study is open


class Body(BaseModel):
    """A request; unknown fields are refused."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def check_fields(cls, given: Any) -> Any:
        if isinstance(given, dict):
            check_names(given, cls.model_fields, "field")
        return given


def field_of(row: Setting, place: str) -> tuple[Any, Any]:
    """How a field is described by OpenAPI, and its default. The study itself checks its value."""
    kind: Any = KINDS[row.kind]
    if row.choices:
        kind = Annotated[StrictStr, WithJsonSchema({"type": "string", "enum": list(row.choices)})]
    default, more = row.default_in(place), LIMITS.get(row.name, {})
    about = Field(default, description=row.sentence, examples=list(row.examples) or None, **more)
    return kind | None if default is None or row.name == "speculate" else kind, about


LIMITS: dict[str, Any] = {
    "name": {"max_length": LONGEST_NAME}, "arms": {"min_length": 2, "max_length": MOST_ARMS},
    "family": {"max_length": 200}, "policy": {"max_length": 200}, "threshold": {"max_length": 500},
    "digest": {"max_length": LARGEST}, "race": {"max_length": 50},
    "by": {"max_length": 200}, "arm": {"max_length": LONGEST_NAME},
}  # fmt: skip
KINDS: dict[str, Any] = {
    "text": StrictStr,
    "number": Number,
    "whole": StrictInt,
    "flag": StrictBool,
    "numbers": list[Number] | dict[str, Number],
    "names": list[Name] | dict[str, Any],
    "items": StrictInt | list[StrictStr | StrictInt],
    "score": StrictStr | Number,
    "json": dict[str, Any],
    "any json": Any,
}


def fields_of(place: str, about: str | None = None) -> Any:
    """A request with the settings that a place takes."""
    fields: dict[str, Any] = {name: field_of(row, place) for name, row in settings_for(place).items()}
    return create_model(place.title().replace("_", ""), __base__=Body, __doc__=about, **fields)


class Create(fields_of("http")):  # type: ignore[misc]
    """What `cabai.create_study` takes. Your own families, policies and thresholds are refused: a server runs no code
    that a request names. `speculate` null is without a limit."""

    def study(self, storage: str, request: str | None) -> Study:
        """Create the study, or load it; the same `request` finds what it has created. Nothing that a request names is
        imported, run or opened here."""
        given = self.model_dump(exclude={"digest", "name", "load_if_exists"})
        for kind in ("family", "policy", "threshold"):
            if given[kind] is not None and not is_plain(given[kind]):
                raise InvalidInput(
                    f"{kind} must be one of cabai's own, got {shown(given[kind])}: a server runs no code that a "
                    "request names, and opens no file. Create the study on the server's side; then it can be asked, "
                    "told and watched from here."
                )
        ids = tuple(self.items) if isinstance(self.items, list) else None
        count = self.items or 0 if ids is None else len(ids)
        if count * len(self.arms) > MOST_SCORES:
            raise InvalidInput(
                f"over HTTP, arms times items may be at most {MOST_SCORES}, got {len(self.arms)} times {count}: create "
                "the study on the server's side."
            )
        if self.digest is not None and count:
            if len(self.digest) > WHOLE + EACH * len(ids or ()):
                raise InvalidInput(f"digest must be the fingerprint of these {count} items, got {shown(self.digest)}.")
            given["items"] = Dataset(range(count), ids, self.digest)
        return open_study(self.name, described(**given), storage, load_if_exists=self.load_if_exists, request=request)


def is_plain(text: str) -> bool:
    """Whether a name refers to nothing that would be imported or opened: no `module:name`, no path."""
    return not any(mark in text for mark in ":/\\\0") and not text.strip().endswith(".json")


class Ask(Body):
    """With items, `extra` is how many more pulls than usual may be under way: those with a known result that is not
    told yet. As a `batch`, all pulls are of one arm, of which nothing else is under way."""

    n: Annotated[StrictInt, Field(ge=1, le=MOST_PULLS)] = 1
    worker: Worker = None
    extra: Annotated[StrictInt, Field(ge=0, le=MOST_PULLS)] = 0
    batch: StrictBool = False


class Tell(Body):
    """A reward, or `failed`: why there is none."""

    pull: PullId
    reward: Reward = None
    cost: Cost = None
    failed: Annotated[StrictStr, Field(max_length=10_000)] | None = None


class TellMany(Body):
    results: Annotated[list[Tell], Field(max_length=MOST_RESULTS)]


class TellCounts(Body):
    """For each arm in a period: the number of pulls, and the sums of their rewards and costs."""

    counts: dict[str, Annotated[list[Any], Field(min_length=2, max_length=3)]]
    period: Annotated[StrictStr, Field(min_length=1, max_length=200)] | None = None
    following: Annotated[StrictInt, Field(ge=1, lt=2**53)] | None = None


class Lease(Body):
    """Which pull, and who has it: `offers` as it was handed out, or the worker's name, or both."""

    pull: PullId
    offers: Annotated[StrictInt, Field(ge=1)] | None = None
    worker: Worker = None


class Lapse(Body):
    """Workers that are known to be lost: their leases end now."""

    workers: Annotated[list[Annotated[StrictStr, Field(max_length=200)]], Field(max_length=1000)]


Amend, Accept, Drop, AddArm = (
    fields_of(name, f"What `study.{name}` takes.") for name in ("amend", "accept", "drop", "add_arm")
)


class Nothing(Body):
    """An empty object."""
