"""What a request may say. Values are checked by the study itself, in the same words as in Python."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, Strict, StrictBool, StrictInt, StrictStr, WithJsonSchema

from cabai import policies
from cabai.core.goal import BEST, GOALS
from cabai.families import FAMILIES
from cabai.policies import POLICIES
from cabai.study import LEASE
from cabai.study.items import WORST
from cabai.study.settings import DIRECTIONS, LONGEST_NAME, ON_LAPSE
from cabai.study.wire import LARGEST
from cabai.thresholds import THRESHOLDS

Number = Annotated[float, Strict()]
Reward = Annotated[Any, WithJsonSchema({"type": ["number", "boolean", "null"]})]
Cost = Annotated[Any, WithJsonSchema({"type": ["number", "null"]})]
Name = Annotated[StrictStr, Field(max_length=LONGEST_NAME)]
Worker = Annotated[StrictStr, Field(max_length=200)] | None
PullId = Annotated[StrictStr, Field(max_length=100)]
MOST_ARMS, MOST_PULLS, MOST_RESULTS = 500, 1000, 10_000
MOST_SCORES = 1_000_000  # arms times items: each takes about 50 bytes while the study is open


class Asked(BaseModel):
    """A request; unknown fields are refused."""

    model_config = ConfigDict(extra="forbid")


class Create(Asked):
    """What `cabai.create_study` takes. Your own families, policies and thresholds are refused: a server runs no code
    that a request names."""

    name: Name
    arms: Annotated[list[Name] | dict[str, Any], Field(min_length=2, max_length=MOST_ARMS)]
    family: Annotated[StrictStr, Field(max_length=200, examples=FAMILIES.names)] | None = None
    delta: Number = 0.05
    policy: Annotated[StrictStr, Field(max_length=200, examples=POLICIES.names)] = policies.DEFAULT
    threshold: Annotated[StrictStr, Field(max_length=500, examples=THRESHOLDS.names)] | None = None
    epsilon: Number = 0.0
    goal: Annotated[StrictStr, WithJsonSchema({"type": "string", "enum": list(GOALS)})] = BEST
    slack: Number | None = None
    running_costs: list[Number] | dict[str, Number] | None = None
    direction: Annotated[StrictStr, WithJsonSchema({"type": "string", "enum": list(DIRECTIONS)})] = DIRECTIONS[0]
    costs: list[Number] | dict[str, Number] | None = None
    max_cost: Number | None = None
    max_pulls: StrictInt | None = None
    lease: Number = LEASE
    on_lapse: Annotated[StrictStr, WithJsonSchema({"type": "string", "enum": list(ON_LAPSE)})] = ON_LAPSE[0]
    seed: StrictInt | None = None
    items: StrictInt | list[StrictStr | StrictInt] | None = None
    digest: Annotated[StrictStr, Field(max_length=LARGEST)] | None = None
    race: Annotated[StrictStr, Field(max_length=50)] | None = None
    failed: StrictStr | Number = WORST
    speculate: Annotated[Number | None, Field(description="null: without a limit")] = 0.1
    full_cost: Number | None = None
    reserve: Number | None = None
    load_if_exists: StrictBool = False


class Ask(Asked):
    """With items, `beyond` is how many more pulls than usual may be under way: those with a known result that is not
    told yet."""

    n: Annotated[StrictInt, Field(ge=1, le=MOST_PULLS)] = 1
    worker: Worker = None
    beyond: Annotated[StrictInt, Field(ge=0, le=MOST_PULLS)] = 0


class Tell(Asked):
    """A reward, or `failed`: why there is none."""

    pull: PullId
    reward: Reward = None
    cost: Cost = None
    failed: Annotated[StrictStr, Field(max_length=10_000)] | None = None


class TellMany(Asked):
    results: Annotated[list[Tell], Field(max_length=MOST_RESULTS)]


class TellCounts(Asked):
    """For each arm in a period: the number of pulls, and the sums of their rewards and costs."""

    counts: dict[str, Annotated[list[Any], Field(min_length=2, max_length=3)]]
    period: Annotated[StrictStr, Field(min_length=1, max_length=200)] | None = None
    following: Annotated[StrictInt, Field(ge=1, lt=2**53)] | None = None


class Lease(Asked):
    """Which pull, and who has it: `offers` as it was handed out, or the worker's name, or both."""

    pull: PullId
    offers: Annotated[StrictInt, Field(ge=1)] | None = None
    worker: Worker = None


class Lapse(Asked):
    """Workers that are known to be lost: their leases end now."""

    workers: Annotated[list[Annotated[StrictStr, Field(max_length=200)]], Field(max_length=1000)]


class Amend(Asked):
    """What `study.amend` takes."""

    max_cost: Number | None = None
    max_pulls: StrictInt | None = None
    lease: Number | None = None
    metadata: dict[str, Any] | None = None
    by: Worker = None


class Drop(Asked):
    """Which arm is dropped by hand."""

    arm: Name
    by: Worker = None


class AddArm(Asked):
    """Which arm joins a study with a reserve; with its cost, if the study was created with known costs."""

    arm: Name
    cost: Number | None = None
    metadata: Any = None
    by: Worker = None


class Nothing(Asked):
    """An empty object."""
