"""Create, load, list and delete studies."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cabai import policies
from cabai.core.goal import BEST
from cabai.datasets.race import PAIRED
from cabai.families import Bounded, Family, Gaussian, UnknownVariance, family_of
from cabai.policies import Policy
from cabai.settings import LEASE, OFFER, STORAGE, WORST, defaults_for
from cabai.study import catalogue
from cabai.study.given import amender
from cabai.study.items import Items
from cabai.study.log import tables
from cabai.study.log.events import IMPORT, Event
from cabai.study.log.storage import open_storage
from cabai.study.rules import importing
from cabai.study.rules.amending import ENDED
from cabai.study.settings import AMENDABLE, RUN, Settings, checked_name
from cabai.study.stored import StoredStudy
from cabai.study.study import Study
from cabai.support.validation import InvalidInput, check_kind
from cabai.thresholds import Threshold

OVER_HTTP = "over HTTP: use the database's URL, where the server runs."


def create_study(
    name: str,
    *,
    arms: Sequence[str] | Mapping[str, Any],
    family: str | Family | None = None,
    delta: float = 0.05,
    policy: str | Policy = policies.DEFAULT,
    threshold: str | Threshold | None = None,
    epsilon: float = 0.0,
    goal: str = BEST,
    slack: float | None = None,
    running_costs: Sequence[float] | Mapping[str, float] | None = None,
    direction: str = "maximize",
    costs: Sequence[float] | Mapping[str, float] | None = None,
    max_cost: float | None = None,
    max_pulls: int | None = None,
    lease: float = LEASE,
    on_lapse: str = OFFER,
    seed: int | None = None,
    items: int | Sequence[Any] | str | Path | None = None,
    race: str | None = None,
    failed: str | float = WORST,
    speculate: float = 0.1,
    finish: float | None = None,
    full_cost: float | None = None,
    reserve: float | None = None,
    import_from: Any = None,
    unseen: bool = False,
    storage: str = STORAGE,
    load_if_exists: bool = False,
) -> Study:
    """Start a study: which of these arms has the best mean reward?

    >>> study = create_study("which judge", arms=["small", "large"], family="bernoulli", storage="memory")
    >>> pull = study.ask()
    >>> pull.arm
    'small'
    >>> study.tell(pull, reward=1, cost=0.02)
    >>> study.status().spent
    0.02

    What is tested, and how surely (docs/study.md):

    - `arms`: names, or a dictionary from names to metadata that JSON can hold.
    - `family`: what rewards are, such as "bernoulli" for 0 and 1. Needed unless you give `items`.
    - `delta`: with a proven threshold, as by default, a decision is wrong with probability at most delta.
    - `epsilon`: any arm within epsilon of the best is good enough. With it, tied arms end a study.
    - `direction`: "maximize", or "minimize" to look for the smallest mean.
    - `policy`, `threshold`: which arm is next, and when the evidence is enough (docs/choosing.md).
    - `seed`: for policies that choose at random and, with `items`, for their order.
    - `costs`: the arms' mean costs, if you know them; otherwise the study learns them.
    - `max_cost`, `max_pulls`: end the study without a guarantee.
    - `full_cost`: what evaluating a whole dataset would cost. A study without `items` warns when its bill passes that.

    Storage and workers (docs/workers.md):

    - `storage`: `memory`, `sqlite:///FILE`, `postgresql://USER@HOST/DATABASE`, or `http://HOST:PORT` of `cabai serve`.
    - `load_if_exists`: load the study of that name instead, if its settings are these, or were these before it was
      amended, and if it began with the same import.
    - `lease`: seconds after which a pull without a result is offered again; with `on_lapse="fail"`, it has failed.

    With a dataset (docs/datasets.md), leave `policy`, `threshold` and `full_cost` out:

    - `items`: their number, a list of their ids, or the items themselves as `evaluate` takes them; only ids and a
      fingerprint are stored. The arms race on them in a random order: `pull.item` says which item to evaluate.
    - `race`: "paired" or, only if epsilon is 0 and then the default, "champion".
    - `failed`: the score of an evaluation that failed: "worst" (the worst score), a number, or "stop" to refuse it.
    - `speculate`: at most max(2 for each arm in play, `speculate` times those told) evaluations are under way.
    - `finish`: if all that is left costs at most this share of what was spent, it is evaluated: the answer is exact.

    With `goal="cheapest"`, the cheapest arm within epsilon of the best (docs/cheapest.md); to change arms later, or to
    begin with earlier results (docs/amending.md):

    - `slack`: every cheaper arm is shown to be worse than the best by more than epsilon - slack (half of epsilon).
    - `running_costs`: what arms cost to run. By default, what they cost to try.
    - `reserve`: a share of delta, such as 0.1, with which arms may join (`add_arm`) and be dropped (`drop`).
    - `import_from`: a CSV or Parquet file, a DataFrame or another study: rows with an arm, a reward and, unless known,
      a cost. `unseen=True` declares that the arms were not chosen by these data, and that nothing was left out.
    """
    given = dict(locals())
    for each in ("name", "storage", "load_if_exists", "import_from", "unseen"):
        del given[each]
    source = None if import_from is None else (import_from, unseen)
    return open_study(name, described(**given), storage, load_if_exists=load_if_exists, source=source)


def described(*, family: Any = None, items: Any = None, **given: Any) -> dict[str, Any]:
    """What `create_study` was given, as `open_study` takes it: the settings, and the items if there are any."""
    if family is None and items is None:
        raise InvalidInput("a study needs a family, such as bernoulli, or bounded for any rewards in [0, 1].")
    if family is Gaussian or (isinstance(family, str) and family.strip().lower() in ("gaussian", "gaussian()")):
        family = UnknownVariance()  # unless it is given, the variance is unknown in a study
    kind, usual = family_of(Bounded() if family is None else family), defaults_for("study")
    of_items = {name: given.pop(name, usual[name]) for name in ("race", "failed", "speculate", "finish")}
    if items is not None:
        if given.get("reserve") is not None and of_items["race"] is None and given.get("goal", BEST) == BEST:
            of_items["race"] = PAIRED  # the only one that arms may join
        shared = {name: given.get(name, usual[name]) for name in ("epsilon", "goal")}
        items = Items.checked(items, family=kind, **shared, **of_items)
    return {"family": kind, "items": items, **given}


def open_study(
    name: str,
    given: Mapping[str, Any],
    storage: str,
    known: Sequence[tuple[str, str | int, float]] = (),
    *,
    load_if_exists: bool = True,
    request: str | None = None,
    amend: Sequence[str] = (),
    source: tuple[Any, bool] | None = None,
) -> Study:
    """A new study, which begins with `known` scores or with a `source`, declared to be unseen or not; or the one that
    there is, amended where it differs in the settings that `amend` names. The same `request` finds what it has made."""
    chosen = {name: value for name, value in given.items() if name != "seed" or value is not None}
    settings = Settings.checked(**chosen)
    if is_served(storage):
        from cabai.study.remote import create_remote

        if source is not None or known:
            what = "scores of earlier evaluations cannot be reused" if known else "observations cannot be imported"
            raise InvalidInput(f"{what} {OVER_HTTP}")
        return create_remote(storage, checked_name(name), chosen, settings, load_if_exists=load_if_exists)
    opened = open_storage(storage)
    first = reused(known, settings)
    if source is not None:
        first = importing.observations(source[0], settings, unseen=source[1])
        settings = Settings.checked(**chosen, elsewhere=len(first))
    made = catalogue.create(opened, checked_name(name), settings, first, request=request)
    row = catalogue.find(opened, name)
    study = StoredStudy(opened, row)
    if made and source is not None:
        study._do("look")
    if not made:
        if not load_if_exists and (request is None or request != row.request):
            raise InvalidInput(f"study {name!r} already exists: choose another name, delete it, or use load_if_exists.")
        if source is not None:
            importing.check_begun(study, first)
        now, usual = study._read("settings")[0], [each for each in ("threshold", "seed") if chosen.get(each) is None]
        settings = dataclasses.replace(settings, **{each: getattr(now, each) for each in usual})  # as it was created
        take_up(study, settings, amend)
    return study


def take_up(study: StoredStudy, settings: Settings, repeated: Sequence[str]) -> None:
    """Refuse a call that gives other settings than a study has, or amend those that every run has `repeated`.

    A call may give what the study had before an amendment, so that the one that created a study still finds it. Of
    repeated settings, only the value that the last run gave is taken to be an old one; and no run spends more than it
    gives as max_cost itself. A new value is logged even if others have amended the study to that very value: a later
    run may give something else.
    """
    made, ended, same, new = study.amendments(), study._current.ended(), dict[str, Any](), dict[str, Any]()
    for name in (*AMENDABLE, "arms", "costs", "joined", "dropped"):
        now, given = getattr(study.settings, name), getattr(settings, name)
        changes = [(*each["changes"][name], each["by"] or "") for each in made if name in each["changes"]]
        before, as_json = [old for old, _, _ in changes], list(given) if isinstance(given, tuple) else given
        is_repeated = name in repeated and bool(changes) and (ended is None or ended.words not in ENDED)
        if is_repeated:
            before = [before[0], *(value for _, value, by in changes if by.endswith(RUN))][-1:]
        is_less = is_repeated and name == "max_cost" and given is not None and (now is None or given < now)
        is_logged = is_repeated and name != "metadata" and as_json not in before
        if given != now and as_json in before and not is_less:
            same[name] = now
        elif name in repeated and given is not None and (given != now or is_logged):
            same[name], new[name] = now, given
    wrong = study.settings.differences(dataclasses.replace(settings, **same))
    if wrong:
        how = "Settings never change: choose another name, or delete the study."
        if set(wrong) <= set(AMENDABLE):
            how = f"Amend it: study.amend({next(iter(wrong))}=...), or `cabai study amend`."
        elif study.settings.items is not None:
            how = f"Settings never change: choose another name, for an evaluation that may reuse={study.name!r}."
        words = "; its ".join(wrong.values())
        raise InvalidInput(f"study {study.name!r} already exists with other settings: its {words}. {how}")
    changed = {name: value for name, value in new.items() if value != same[name]}
    if "metadata" in changed:
        changed["metadata"] = {arm: settings.metadata.get(arm) for arm in settings.arms}
    if new:
        study.amend(**(changed or new), by=amender(None)[: 200 - len(RUN)] + RUN)
    if changed:
        study._latest = study.amendments()[-1]


def reused(known: Sequence[tuple[str, str | int, float]], settings: Settings) -> list[Event]:
    """The first events of a study that has scores from another: those that it can use, once each."""
    if not known:
        return []
    assert settings.items is not None
    arms = {arm: number for number, arm in enumerate(settings.arms)}
    found: dict[tuple[int, int], float] = {}
    for arm, item, score in known:
        if arm in arms and item in settings.items.numbers:
            found.setdefault((arms[arm], settings.items.numbers[item]), settings.family.check_reward(score))
    if not found:
        raise InvalidInput("there is nothing to reuse: no score of these arms on these items is known.")
    scores = enumerate(found.items(), 1)
    return [Event(n, IMPORT, 0.0, n, arm, item, score, 0.0, "reused") for n, ((arm, item), score) in scores]


def load_study(name: str, *, storage: str = STORAGE) -> Study:
    """Load a study that was created before, here or by another process or machine.

    >>> made = create_study("made before", arms=["small", "large"], family="bernoulli", storage="memory")
    >>> load_study("made before", storage="memory").arms
    ('small', 'large')
    """
    if is_served(storage):
        from cabai.study.http import Server
        from cabai.study.remote import RemoteStudy

        return RemoteStudy(Server(storage), checked_name(name))
    opened = open_storage(storage, make=False)
    return StoredStudy(opened, catalogue.find(opened, checked_name(name)))


def list_studies(*, storage: str = STORAGE) -> list[str]:
    """The names of all studies in a storage, the oldest first.

    >>> made = create_study("one of many", arms=["small", "large"], family="bernoulli", storage="memory")
    >>> list_studies(storage="memory")[-1]
    'one of many'
    """
    if is_served(storage):
        from cabai.study.http import Server

        return [str(each["name"]) for each in Server(storage).call("studies")["studies"]]
    return [name for (name,) in open_storage(storage, make=False).fetch(tables.NAMES)]


def delete_study(name: str, *, storage: str = STORAGE) -> None:
    """Delete a study and everything observed in it.

    >>> made = create_study("soon gone", arms=["small", "large"], family="bernoulli", storage="memory")
    >>> delete_study("soon gone", storage="memory")
    >>> "soon gone" in list_studies(storage="memory")
    False
    """
    if is_served(storage):
        raise InvalidInput(f"studies cannot be deleted {OVER_HTTP}")
    opened = open_storage(storage, make=False)
    row = catalogue.find(opened, checked_name(name))  # deleted twice, perhaps, if the connection breaks in the commit
    opened.write(lambda connection: connection.write(tables.DELETE_STUDY, (row.id,)))


def import_study(file: str | os.PathLike[str], *, name: str | None = None, storage: str = STORAGE) -> Study:
    """Import a study from its whole log, as `cabai study export NAME --out FILE.jsonl` writes it, perhaps renamed.

    >>> import pathlib, tempfile
    >>> from cabai.study.show.exporting import exported
    >>> study = create_study("moved", arms=["a", "b"], family="bernoulli", storage="memory")
    >>> study.tell(study.ask(), reward=1, cost=0.02)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder) / "moved.jsonl"
    ...     size = file.write_bytes(exported(study, "jsonl"))
    ...     copy = import_study(file, name="moved here", storage="memory")
    >>> copy.status().spent
    0.02
    """
    check_kind(file, (str, os.PathLike), "file must be a path")
    if is_served(storage):
        raise InvalidInput(f"studies cannot be imported {OVER_HTTP}")
    try:
        with open(file, encoding="utf-8") as lines:
            found = catalogue.restore(open_storage(storage), lines, name)
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise InvalidInput(f"cannot read {os.fspath(file)}: {why}.") from None
    return load_study(found, storage=storage)


def is_served(storage: Any) -> bool:
    """Whether studies are reached over HTTP, through `cabai serve`."""
    return isinstance(storage, str) and storage.lower().startswith(("http://", "https://"))
