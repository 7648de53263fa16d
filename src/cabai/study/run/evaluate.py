"""Arms on a dataset, from the first evaluation to the decision, in one call."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cabai.core.goal import BEST
from cabai.datasets.dataset import Dataset, changed_items
from cabai.datasets.race import PAIRED
from cabai.errors import RunFailed, StorageError
from cabai.families import Family
from cabai.settings import RETRIES, STORAGE, WORST, settings_for
from cabai.study.create import described, load_study, open_study
from cabai.study.items import Items
from cabai.study.run.loop import Failed, one_each, paid_in, run
from cabai.study.run.trying import awaited, is_blamed
from cabai.study.run.watching import page_of, watched
from cabai.support.validation import InvalidInput, optional, shown

if TYPE_CHECKING:
    import pandas as pd

    from cabai.study.given import Pull
    from cabai.study.show.status import Status
    from cabai.study.study import Study

LEASE = 60.0  # seconds; a run renews the lease of what takes longer
_numbers = itertools.count(1)  # of evaluations without a name


@dataclass(frozen=True)
class Evaluation:
    """The result of `cabai.evaluate`; print it to see a table of the arms and a sentence.

    >>> import cabai
    >>> found = cabai.evaluate(["small", "large"], range(200), lambda arm, item: arm == "large", seed=1)
    >>> found.decision, found.spent < 200, found.full_cost, found.to_frame().shape
    ('large', True, 400.0, (200, 2))
    >>> found.statement
    'large has the highest mean of these two on these 200 items, wrong with probability at most 0.05'
    """

    study: Study
    status: Status
    scores: dict[str, dict[str | int, float]]  # by arm and by the item's id

    @property
    def decision(self) -> str | None:
        """The arm that won; None if the budget ended first."""
        return self.status.decision

    @property
    def statement(self) -> str | None:
        """What was decided, in words; None if nothing was."""
        return self.status.statement

    @property
    def spent(self) -> float:
        """What all evaluations cost together."""
        return self.status.spent

    @property
    def full_cost(self) -> float | None:
        """What evaluating everything would have cost, by the mean cost of each arm; None if one is not known."""
        return self.status.full_cost

    def to_frame(self) -> pd.DataFrame:
        """The scores as a DataFrame: one row per item, one column per arm (extra `frames`)."""
        items = self.study.settings.items
        assert items is not None
        ids, pandas = list(items.numbers), optional("pandas")
        return pandas.DataFrame(self.scores, index=ids, columns=list(self.scores))

    def __str__(self) -> str:
        return str(self.status)


def evaluate(
    arms: Sequence[str] | Mapping[str, Any],
    items: Sequence[Any] | str | Path,
    test: Callable[..., Any],
    *,
    name: str | None = None,
    delta: float = 0.05,
    epsilon: float = 0.0,
    goal: str = BEST,
    slack: float | None = None,
    running_costs: Sequence[float] | Mapping[str, float] | None = None,
    direction: str = "maximize",
    costs: Sequence[float] | Mapping[str, float] | None = None,
    workers: int = 1,
    speculate: float = 0.1,
    finish: float | None = None,
    seed: int | None = None,
    failed: str | float = WORST,
    max_cost: float | None = None,
    storage: str | None = None,
    reuse: Any = None,
    join: Any = None,
    race: str | None = None,
    family: str | Family | None = None,
    retries: int = RETRIES,
    max_failures: int = 5,
    catch: Any = None,
    progress: bool | None = None,
    page: bool = False,
    batch: int | None = None,
) -> Evaluation:
    """Find the best of several models, prompts or configurations on a dataset, for less than a full evaluation.

    Retries aside, it never costs more than evaluating every arm on every item. `test(arm, item)` returns a score in
    [0, 1], or (score, cost); without costs, each evaluation costs 1. It may be `async`: then `workers` is how many are
    awaited at once. `items` is any sequence, or the path of a JSONL or CSV file with one item per row. An item that is
    a dictionary with an "id" is known by it, any other by its position.

    With `batch=32`, `test(arm, items)` gets up to 32 items of one arm at a time, and returns a list with a result for
    each, or a dictionary by their ids. At most one batch of each arm is under way, so the last batches are all that may
    be paid for nothing.

    With `goal="cheapest"` the answer is not the best arm but, of the arms within `epsilon` of it, the cheapest to run:
    `running_costs` is what arms cost to run (default: what evaluations cost).

    With a `name` (and a `storage`, by default sqlite:///cabai.db), every result is stored at once: kill it, call it
    again, and it continues, also past a `max_cost` that you raised. `reuse` takes the scores of an earlier evaluation
    of the same items, given itself or by its name: you do not pay for them again. The order of the items is new, so the
    earlier arms may have to be evaluated on more of them.

    `join` names an evaluation that is decided: new arms challenge its winner in the same order of items, so that the
    winner is evaluated again only beyond what it has. The new arms must not depend on results of that evaluation. The
    probabilities of error add up: `delta` here, and that of the earlier one.

    A test that raises is tried again, `retries` times. Then the item counts as the worst score (or as `failed`; "stop"
    ends the run instead), unless the arm fails on `max_failures` items in a row: then the run ends with `RunFailed` and
    none of them counts. A wrong test (for example a NameError, a TypeError, or a result that is not a score) ends the
    run at once and counts nowhere; `catch` names the exceptions that are failures instead, and `Study.run` says what
    the default is. What was gathered is in the error's `evaluation`. See `create_study` for the rest.

    In a terminal, a line shows how far it is; elsewhere, one per minute (`progress=False`: none). With `page=True` you
    can watch it in a browser, at an address that is printed (extra `server`).

    >>> answers = {"small": [1, 0, 1, 0] * 50, "large": [1, 1, 1, 0] * 50}
    >>> found = evaluate(["small", "large"], range(200), lambda arm, item: answers[arm][item], seed=1)
    >>> print(found.statement)
    large has the highest mean of these two on these 200 items, wrong with probability at most 0.05
    >>> found.spent, found.full_cost
    (46.0, 400.0)
    """
    given = dict(locals())
    if not callable(test):
        raise InvalidInput(f"test must be a function of an arm's name and an item, got {shown(test)}.")
    settings = {each: given[each] for each in settings_for("study") if each in given}
    dataset = settings["items"] = Dataset.of(items)
    study = open_evaluation(reuse=reuse, join=join, lease=LEASE, **settings)

    def try_once(pulls: Any) -> Any:
        several = [pulls] if batch is None else pulls
        rows = [dataset.items[dataset.number(pull.item)] for pull in several]
        found = awaited(test(several[0].arm, rows[0] if batch is None else rows))
        return read(pulls, found) if batch is None else list(map(read, pulls, one_each(found, pulls)))

    def read(pull: Pull, result: Any) -> Any:
        if isinstance(result, Mapping) and "score" in result:
            result = {"reward" if key == "score" else key: value for key, value in result.items()}
        if costs is not None and (paid := paid_in(result)) is not None:
            raise RunFailed(
                f"the test of arm {pull.arm!r} returned a cost of {paid:g}, but costs= already says what each arm "
                f"costs: leave out one of the two. This evaluation does not count. The study {study.name!r} is kept."
            )
        return (result, 1.0) if costs is None and not isinstance(result, (tuple, Mapping, Failed)) else result

    again = None if name is None else "Call it again to continue."
    with keeping(study, name), page_of(study, page), watched(study, progress, again=again):
        status = run(
            study, try_once, workers=workers, max_failures=max_failures, retries=retries, catch=catch, batch=batch
        )
    return Evaluation(study, status, study.scores())


def open_evaluation(name: str | None, storage: str | None, reuse: Any, join: Any, **settings: Any) -> Study:
    """The study of an evaluation: a new one, or the one that the same call has begun."""
    if name is None and storage is not None:
        raise InvalidInput("a stored evaluation needs a name, so that the same call finds it again.")
    where = "memory" if name is None else storage or STORAGE
    if join is not None:
        given, known = joined(join, reuse, storage or STORAGE, settings)
    else:
        given = described(**settings)
        seeds, known = list[int](), list[tuple[str, str | int, float]]()
        for each in earlier_studies(reuse, where):
            if not isinstance(each, Mapping):  # the user may have seen its order when choosing the arms
                seeds += [each.settings.seed, *each.settings.items.seeds]
                if settings["seed"] in seeds:
                    raise InvalidInput(
                        f"seed {settings['seed']} gives an order that study {each.name!r} has used: to reuse scores, "
                        "choose another seed or none."
                    )
            known += known_scores(each, given["items"], given["family"])
        given["items"] = dataclasses.replace(given["items"], seeds=tuple(dict.fromkeys(seeds)))
    return open_study(name or f"evaluation {next(_numbers)}", given, where, known, amend=("max_cost",))


def joined(join: Any, reuse: Any, storage: str, settings: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
    """The settings of a race in which new arms challenge the winner of an earlier one, and what is known of it."""
    found = earlier_studies(join, storage)
    if len(found) != 1 or isinstance(found[0], Mapping):
        raise InvalidInput(f"join must be one earlier evaluation, or its name, got {shown(join)}.")
    if reuse is not None:
        raise InvalidInput("join already uses the scores of the earlier evaluation: leave out reuse.")
    study, before, winner = found[0], found[0].settings, found[0].decision
    if winner is None:
        raise InvalidInput(f"study {study.name!r} has no decision that new arms could challenge: finish it first.")
    arms = settings["arms"] if isinstance(settings["arms"], Mapping) else dict.fromkeys(settings["arms"])
    known_arms = (*before.arms, *before.items.earlier)
    new = {arm: about for arm, about in arms.items() if arm not in known_arms}
    if not new:
        raise InvalidInput(f"there is no new arm: study {study.name!r} already has {', '.join(arms)}.")
    if settings["seed"] not in (None, before.seed):
        raise InvalidInput("to join a race is to use its order of items: leave out seed.")
    for each in ("costs", "running_costs"):
        if settings[each] is not None and not isinstance(settings[each], Mapping):
            raise InvalidInput(f"to join a race, give {each} as a dictionary by arm, with {winner!r}.")
    own = settings | {"arms": {winner: arms.get(winner) or before.metadata.get(winner), **new}, "seed": before.seed}
    is_usual = settings["race"] is None and settings["goal"] == BEST
    given = described(**own | {"race": PAIRED if is_usual else settings["race"]})
    items = given["items"]
    other = {
        "items": not before.items.is_same(items) or before.items.ids != items.ids,
        "family": before.family.mean_range != given["family"].mean_range,
        "goal": before.goal != BEST or settings["goal"] != BEST,
        **{each: getattr(before, each) != settings[each] for each in ("epsilon", "direction")},
        "race": items.race != PAIRED,
    }
    for each, is_other in other.items():
        if is_other:
            raise InvalidInput(
                f"to join study {study.name!r}, use the same items, family, epsilon and direction, goal {BEST!r} and "
                f"race {PAIRED!r}; {each} is another."
            )
    error = 0.0 if study.status().confidence == 1 else before.error
    given["items"] = dataclasses.replace(items, earlier=known_arms, earlier_error=error)
    return given, [(winner, item, score) for item, score in study.scores()[winner].items()]


@contextmanager
def keeping(study: Study, name: str | None) -> Iterator[None]:
    """Add what was gathered to an error that ends an evaluation."""
    try:
        yield
    except Exception as error:
        with suppress(StorageError, AttributeError):  # the storage is gone, or the exception does not allow attributes
            error.evaluation = Evaluation(study, study.status(), study.scores())  # type: ignore[attr-defined]
            if name is None:  # the same call would start over
                kept = "What was gathered is in the error's `evaluation`, which `reuse` takes."
                if isinstance(error, RunFailed):
                    error.args = (f"{str(error).partition(' The study ')[0]} {kept}",)
                elif is_blamed(error):
                    error.add_note(kept)
        raise


def earlier_studies(reuse: Any, storage: str) -> list[Any]:
    """What to reuse, one by one: studies with items, or scores by arm and item."""
    from cabai.study.study import Study

    if reuse is None:
        return []
    if isinstance(reuse, (list, tuple)):
        return [each for one in reuse for each in earlier_studies(one, storage)]
    found = load_study(reuse, storage=storage) if isinstance(reuse, str) else getattr(reuse, "study", reuse)
    if isinstance(found, Study):
        if found.settings.items is None:
            raise InvalidInput(f"study {found.name!r} has no items, so no scores on them to reuse.")
    elif not isinstance(found, Mapping) or not all(isinstance(of_arm, Mapping) for of_arm in found.values()):
        raise InvalidInput(
            f"reuse must be an earlier evaluation, the name of one, or scores by arm and item, got {shown(reuse)}."
        )
    return [found]


def known_scores(earlier: Any, items: Items, family: Family) -> list[tuple[str, str | int, float]]:
    """Arms, items and scores of an earlier evaluation of the same items."""
    if isinstance(earlier, Mapping):
        return [(arm, item, score) for arm, of_arm in earlier.items() for item, score in of_arm.items()]
    before, name = earlier.settings.items, earlier.name
    if earlier.settings.family.mean_range != family.mean_range:
        raise InvalidInput(f"study {name!r} has scores with another range: {earlier.settings.family}, not {family}.")
    by_position = before.ids is None and items.ids is None
    if (before.ids is None) != (items.ids is None) or (by_position and not before.is_same(items)):
        raise InvalidInput(
            f"study {name!r} had other items, or other names for them: its scores cannot be matched to these items. "
            'Give every item an "id", in both.'
        )
    changed = changed_items(before, items)
    if changed:
        more = f" and {len(changed) - 5} more" if len(changed) > 5 else ""
        raise InvalidInput(
            f"study {name!r} had other items with the ids {', '.join(map(str, changed[:5]))}{more}: its scores are not "
            "scores of these items. Give items that have changed new ids."
        )
    told = [row for row in earlier.observations() if row["reward"] is not None]  # failed ones are evaluated again
    return [(row["arm"], row["item"], row["reward"]) for row in told]
