"""A study: ask, tell, and what is known so far."""

from __future__ import annotations

import os
import re
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

from cabai.errors import NoPull, StudyStopped
from cabai.settings import settings_for
from cabai.study.given import MOST_PULLS, TOLD, Pull, amender, checked_label, checked_result
from cabai.study.rules import counts as counting
from cabai.study.rules.asking import Asked
from cabai.study.run.loop import run
from cabai.study.run.watching import page_of, watched
from cabai.study.settings import Settings, checked_metadata
from cabai.study.state.accounts import Point
from cabai.support.files import file_to_write, write_whole
from cabai.support.validation import InvalidInput, amount, check_kind, check_names, optional, shown, whole
from cabai.support.version import __version__

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from cabai.study.show.status import Status


class Study(ABC):
    """One live run, stored: ask what to pull, tell what came back.

    `cabai.create_study` and `cabai.load_study` return one. Threads may share it. Print it to see how it stands.

    >>> from cabai import create_study
    >>> study = create_study("which model", arms=["small", "large"], family="bernoulli", storage="memory")
    >>> study.name, study.arms, study.storage, study.settings.delta
    ('which model', ('small', 'large'), 'memory', 0.05)
    >>> while not study.stopped:
    ...     pull = study.ask()
    ...     study.tell(pull, reward=pull.arm == "large", cost=0.02)
    >>> study.decision
    'large'

    What happened, in several forms:

    >>> study.events()[0]["kind"], study.observations()[0]["arm"], study.amendments(), study.history()[-1].leader
    ('ask', 'small', [], 'large')
    >>> list(study.to_frame()) == study.columns, "large has the largest mean" in study.report()
    (True, True)
    >>> study.plot()
    <Figure size ...>
    """

    _name: str
    _url: str
    _ids = re.compile("[0-9a-f]+-([1-9][0-9]{0,17})")  # of its pulls
    _latest: dict[str, Any] | None = None  # the amendment that was made as the study was opened, if one was
    _pause = 0.05  # seconds that `run` waits while there is nothing to pull before what is under way is told

    def __setattr__(self, name: str, value: Any) -> None:
        """An attribute that somebody assigns would change nothing that is stored."""
        if not name.startswith("_"):
            raise AttributeError(
                f"assigning study.{name} has no effect: study.amend(...) changes budget, epsilon, lease and metadata."
            )
        super().__setattr__(name, value)

    @property
    def name(self) -> str:
        """The study's name."""
        return self._name

    @property
    @abstractmethod
    def settings(self) -> Settings:
        """The settings that `create_study` was given, checked, and as amended since."""

    @property
    def arms(self) -> tuple[str, ...]:
        """The arms' names."""
        return self.settings.arms

    @property
    def storage(self) -> str:
        """Where the study is stored, without a password."""
        return self._url

    @property
    def stopped(self) -> bool:
        """Whether the study has ended; only an `amend` of the limit at which it stopped makes it continue."""
        return self._decided()[0]

    @property
    def decision(self) -> str | None:
        """The arm that is best, wrong with probability at most delta if the threshold is proven for the family.

        None until there is enough evidence, or if a limit came first: `status().leader` is the best guess.
        """
        return self._decided()[1]

    @overload
    def ask(self, n: None = None, *, worker: str | None = None, request: str | None = None) -> Pull: ...
    @overload
    def ask(self, n: int, *, worker: str | None = None, request: str | None = None) -> list[Pull]: ...
    def ask(self, n: int | None = None, *, worker: str | None = None, request: str | None = None) -> Pull | list[Pull]:
        """What to pull next; with n, a list of n pulls, or fewer if the budget ends.

        Each pull is leased to you: it counts as pulled when others ask, and is offered again if it is not told in time.
        Raises `StudyStopped` once the study has stopped, and `NoPull` while pulls under way use up the budget, or are
        all that a decision waits for (docs/workers.md). A worker that did not receive the answer asks again with the
        same `request`, a text of its choice, and gets the same pulls.

        >>> from cabai import create_study
        >>> study = create_study("ask", arms=["a", "b", "c"], family="bernoulli", storage="memory")
        >>> study.ask().arm, [pull.arm for pull in study.ask(2, worker="me")]
        ('a', ['b', 'c'])
        >>> study.ask(request="the fourth").id == study.ask(request="the fourth").id
        True
        """
        pulls = self._ask(1 if n is None else whole(n, "n", 1, MOST_PULLS), worker, request)
        return pulls[0] if n is None else pulls

    def tell(
        self, pull: Pull | str, reward: float | None = None, cost: float | None = None, *, failed: str | None = None
    ) -> None:
        """Record what a pull returned and what it cost; it is stored durably when this returns.

        Telling the same again changes nothing; telling something else raises `AlreadyTold`. You may leave out `cost` if
        the study knows it. With `failed="why"`, the cost counts (0 unless given or known) and there is no reward. A
        result that is told early waits for those of earlier pulls.

        >>> from cabai import create_study
        >>> study = create_study("tell", arms=["a", "b"], family="bernoulli", storage="memory")
        >>> first, second = study.ask(2)
        >>> study.tell(first, reward=1, cost=0.02)
        >>> study.tell(second, failed="no answer within a minute", cost=0.01)
        >>> study.tell(first, reward=0, cost=0.02)
        Traceback (most recent call last):
        cabai.errors.AlreadyTold: pull ... was told before with reward=1.0, cost=0.02, which is kept.
        """
        self.tell_many([{"pull": pull, "reward": reward, "cost": cost, "failed": failed}])

    def tell_many(self, results: Iterable[Mapping[str, Any]]) -> None:
        """Tell several pulls, as dictionaries of what `tell` takes: all of them, or none if one is refused.

        >>> from cabai import create_study
        >>> study = create_study("tell_many", arms=["a", "b"], family="bernoulli", storage="memory")
        >>> study.tell_many([{"pull": pull, "reward": 1, "cost": 0.02} for pull in study.ask(2)])
        >>> study.status().spent
        0.04
        """
        check_kind(results, Iterable, "results must be a list of dictionaries")
        self._prepare()
        told = []
        for each in results:
            if not isinstance(each, Mapping) or "pull" not in each:
                wrong = f"each result must be a dictionary with a pull, and reward, cost or failed, got {shown(each)}."
                raise InvalidInput(wrong)
            check_names(each, TOLD, "field of a result")
            given = dict(each)
            pull = given.pop("pull")
            number, id_ = self._number(pull), pull.id if isinstance(pull, Pull) else pull
            told.append(checked_result(self.settings, **given, number=number, pull=id_))
        if told:
            self._do("tell", results=told)

    def tell_counts(
        self, counts: Mapping[str, Sequence[Any]], *, period: str | None = None, following: int | None = None
    ) -> dict[str, float]:
        """Record what many pulls of each arm returned in total, as {"a": (pulls, reward, cost), ...}.

        You may leave out `cost`, the total of these pulls, if the study knows it. A named `period`, such as "2026-11-16
        07h", counts once: other counts raise `AlreadyTold`. Tell complete periods only (docs/amending.md). Nothing
        asked for may be under way.

        Returns how the policy would divide the next period, of as many pulls or of `following`: shares by arm, or
        nothing once the study has stopped.

        >>> from cabai import create_study
        >>> study = create_study("ads", arms=["red", "blue"], family="bernoulli", costs=[0.1, 0.1], storage="memory")
        >>> shares = study.tell_counts({"red": (1000, 31), "blue": (1000, 52)}, period="Monday")
        >>> sorted(shares), round(sum(shares.values()), 9), study.status().pulls
        (['blue', 'red'], 1.0, 2000)
        """
        self._prepare()
        when = checked_label(period, "period") or secrets.token_hex(16)  # without a name, it counts once all the same
        if isinstance(counts, Mapping) and not set(counts) <= set(self.arms):  # an arm may have joined
            self._read("settings")
        sums = counting.read(self.settings, counts)
        most = None if following is None else whole(following, "following", 1, counting.MOST_SUMMED)
        return self._do("tell_counts", sums=sums, period=when, following=most)  # type: ignore[no-any-return]

    def split(self, pulls: int) -> dict[str, int]:
        """How the policy would divide that many pulls, or all that the budget allows, if rewards stay as they were.

        >>> from cabai import create_study
        >>> study = create_study("split", arms=["a", "b"], family="bernoulli", policy="co", storage="memory")
        >>> study.split(1000)
        {'a': 500, 'b': 500}
        """
        if self.settings.items is not None:
            raise InvalidInput(f"study {self.name!r} has items: its race asks for them one by one: nothing is split.")
        self._prepare()
        return self._read("split", pulls=whole(pulls, "pulls", 1, counting.MOST_SUMMED))  # type: ignore[no-any-return]

    def release(self, pull: Pull | str, *, worker: str | None = None) -> None:
        """Give a pull back untried: it is the next to be offered.

        Does nothing if the pull has been told. Raises `LostPull` if it was offered again since `pull` was handed out,
        or to another worker than `worker`.

        >>> from cabai import create_study
        >>> study = create_study("release", arms=["a", "b"], family="bernoulli", storage="memory")
        >>> pull = study.ask()
        >>> study.release(pull)
        >>> study.ask().offers
        2
        """
        self._lease("release", pull, worker)

    def renew(self, pull: Pull | str, *, worker: str | None = None) -> None:
        """Renew the lease of a pull that is still being tried; `run` does so.

        Refused and ignored as in `release`.

        >>> from cabai import create_study
        >>> study = create_study("renew", arms=["a", "b"], family="bernoulli", lease=60, storage="memory")
        >>> pull = study.ask()
        >>> study.renew(pull)  # a minute more, from now on
        """
        self._lease("renew", pull, worker)

    def stop(self) -> None:
        """End the study by hand, for good and without a decision.

        Does nothing if it has stopped already. Pulls under way may still be told: they are on the
        bill, and marked late.

        >>> from cabai import create_study
        >>> study = create_study("stop", arms=["a", "b"], family="bernoulli", costs=[1, 1], storage="memory")
        >>> study.tell(study.ask(), reward=1)
        >>> study.stop()
        >>> study.stopped, study.decision
        (True, None)
        """
        self._do("stop")

    def accept(self, *, epsilon: float | None = None, by: str | None = None) -> None:
        """Take what is proven about the leader as the decision: it is at most `status().within` worse than the best.

        It is wrong with probability at most delta; in a champion race, or with a `reserve`, at most 2 delta. `epsilon`
        is the most that you accept; more is an error. Does nothing if the study has decided.

        >>> from cabai import create_study
        >>> study = create_study("accept", arms=["a", "b"], family="bernoulli", costs=[1, 1], storage="memory", seed=1)
        >>> study.tell_many([{"pull": pull, "reward": i % 8 > 1} for i, pull in enumerate(study.ask(1600))])
        >>> study.accept(epsilon=0.1)
        >>> study.status().reason, study.decision is not None, study.status().epsilon < 0.1
        ('accepted', True, True)
        """
        self._do("accept", epsilon=None if epsilon is None else amount(epsilon, "epsilon"), by=amender(by))

    def amend(
        self,
        *,
        max_cost: float | None = None,
        max_pulls: int | None = None,
        epsilon: float | None = None,
        lease: float | None = None,
        metadata: Mapping[str, Any] | None = None,
        by: str | None = None,
    ) -> None:
        """Change the budget, epsilon, the lease or the arms' metadata, for everybody who works on the study.

        The guarantee is unchanged (docs/amending.md). A study that stopped at its budget continues if the new one
        allows it; one that has ended otherwise accepts only new metadata. `epsilon` can be raised, which may decide at
        once. `metadata` changes the arms that it names; None removes an arm's. `by` is kept in the log, see
        `amendments`; the default is the user and the machine.

        >>> from cabai import create_study
        >>> study = create_study("amend", arms=["a", "b"], family="bernoulli", max_pulls=1, storage="memory")
        >>> study.tell(study.ask(), reward=1, cost=0.02)
        >>> study.amend(max_pulls=100)
        >>> study.stopped, study.amendments()[0]["reopened"]
        (False, 'max_pulls')
        """
        given = {"max_cost": max_cost, "max_pulls": max_pulls, "epsilon": epsilon, "lease": lease, "metadata": metadata}
        rows = settings_for("amend")
        values = {name: rows[name].checked(value) for name, value in given.items() if value is not None}
        if not values:
            raise InvalidInput("amend needs something to change: max_cost, max_pulls, epsilon, lease or metadata.")
        if metadata is not None:
            check_kind(metadata, Mapping, "metadata must be a dictionary with names of arms as keys")
            values["metadata"] = checked_metadata(metadata)
        self._do("amend", **values, by=amender(by))

    def drop(self, arm: str, *, by: str | None = None) -> None:
        """Drop an arm by hand: it is not pulled any more and cannot be the decision.

        The decision is then about "the arms still in": with a `reserve`, it is wrong with probability at most delta, as
        before; without one, at most 2 delta (docs/amending.md). Pulls of the arm that are under way are paid if they
        are told, and count nowhere. Not with policies that drop arms themselves (co, racing), nor with items.

        >>> from cabai import create_study
        >>> study = create_study("drop", arms=["a", "b", "c"], family="bernoulli", reserve=0.1, storage="memory")
        >>> study.drop("a")
        >>> {study.ask().arm for _ in range(10)} == {"b", "c"}
        True
        """
        self._do("drop", arm=arm, by=amender(by))

    def add_arm(self, arm: str, *, cost: float | None = None, metadata: Any = None, by: str | None = None) -> None:
        """Add an arm to a study that was created with a `reserve`; `cost` is its mean cost, if those are known.

        >>> from cabai import create_study
        >>> study = create_study("add_arm", arms=["a", "b"], family="bernoulli", reserve=0.1, storage="memory")
        >>> study.add_arm("new", metadata={"model": "m3"})
        >>> study.arms
        ('a', 'b', 'new')
        """
        check_kind(arm, str, "an arm's name must be a string")
        paid, kept = None if cost is None else amount(cost, "cost"), checked_metadata({arm: metadata})[arm]
        self._do("add_arm", arm=arm, cost=paid, metadata=kept, by=amender(by))

    def amendments(self) -> list[dict[str, Any]]:
        """Every amendment, the oldest first: when it was made, by whom, and its changes (from, to).

        `reopened` says why the study had stopped, if the amendment made it continue.
        """
        return self._read("amendments")  # type: ignore[no-any-return]

    def run(
        self,
        test: Callable[..., Any],
        *,
        workers: int = 1,
        max_failures: int = 5,
        catch: Any = None,
        progress: Callable[[], None] | None = None,
        page: bool = False,
    ) -> Status:
        """Call `test` on the arms that the study chooses, until the study stops.

        `test(arm)` tries an arm and returns (reward, cost), or only the reward if costs are known. In a study with
        items it is `test(arm, item)`, with the item's id. `workers` of them run at a time, in threads; async ones are
        awaited together.

        A trial that fails (a time-out, a broken connection) is a failed pull; after `max_failures` in a row for one arm
        the run ends with `RunFailed`, as after an illegal result. A wrong test ends the run at once: its pull is given
        back and its exception is raised as it is. `catch` names the exceptions of trials that fail: by default, all but
        those of a wrong program, such as NameError and TypeError.

        On Ctrl-C, the run waits for the tests under way; on a second one it gives their pulls back. You can run the
        study again. A line on stderr says how it stands; if `progress` is given, it is called after each pull instead.
        With `page=True` you can watch the study in a browser, at an address that is printed (extra `server`).

        >>> from cabai import create_study
        >>> study = create_study("run", arms=["small", "large"], family="bernoulli", storage="memory")
        >>> def test(arm):
        ...     return (1, 0.5) if arm == "large" else (0, 0.1)
        >>> study.run(test, workers=2).decision
        'large'
        """
        if not callable(test):
            raise InvalidInput(f"test must be a function that takes an arm's name, got {test!r}.")
        check_kind(progress, (Callable, type(None)), "progress must be a function")

        def try_once(pull: Pull) -> Any:
            return test(pull.arm) if self.settings.items is None else test(pull.arm, pull.item)

        again = None if self.storage == "memory" else "Run it again to continue."
        with page_of(self, page), watched(self, None if progress is None else False, again=again):
            return run(self, try_once, workers=workers, max_failures=max_failures, catch=catch, progress=progress)

    def status(self) -> Status:
        """What is known now: every arm, the progress, the bill, what is still to come, and the decision.

        >>> from cabai import create_study
        >>> study = create_study("status", arms=["a", "b"], family="bernoulli", storage="memory")
        >>> study.tell(study.ask(), reward=1, cost=0.02)
        >>> print(study.status())
        status: bernoulli, maximize, delta 0.05, policy top-two, threshold contrast
        arm  pulls  mean  0.95 interval  mean cost  spent
        a        1  1.00   0.01 to 1.00       0.02   0.02  leads
        b        0                                      0
        a leads so far; it is too early to tell more. 0.02 spent.
        """
        return self._read("status")  # type: ignore[no-any-return]

    def history(self) -> list[Point]:
        """How the study went, in a few hundred points at most.

        Each has told (results so far), time, spent, arms (still in play), leader, rival, lead (of the one over the
        other), evidence, required and progress.
        """
        return self._read("history")  # type: ignore[no-any-return]

    def events(self) -> list[dict[str, Any]]:
        """Everything that ever happened to the study, the oldest first: its log.

        One dictionary each, with its place, kind, time and whatever else the event has: pull, arm, item, reward, cost,
        worker. Kinds are ask, offer (a lapsed pull is handed out again), renew, release, lapse, withdraw (its arm is
        out), tell, lose (it lapsed, and that counts as a failure), counts, import, amend and stop.
        """
        return self._read("events")  # type: ignore[no-any-return]

    def observations(self) -> list[dict[str, Any]]:
        """Everything that was told, in the order of telling.

        One dictionary each: pull, arm, reward, cost, failed, asked, told, worker, offers (how often it was handed out),
        counted (whether its reward has entered the test), late, which marks what came after the study had stopped,
        pulls (more than 1: reward and cost are sums, of `tell_counts`), period and, if it was imported, its origin.
        """
        return self._read("observations")  # type: ignore[no-any-return]

    @property
    def columns(self) -> list[str]:
        """The names of the fields of each observation."""
        from cabai.study.show.exporting import OBSERVATION, OF_AN_ITEM

        return OBSERVATION if self.settings.items is None else OF_AN_ITEM

    def scores(self) -> dict[str, dict[str | int, float]]:
        """In a study with items, every known score, by arm and by the item's id, as failed evaluations count.

        >>> from cabai import create_study
        >>> study = create_study("scores", arms=["a", "b"], items=["x", "y"], costs=[1, 1], seed=1, storage="memory")
        >>> study.tell(study.ask(), reward=0.5)
        >>> study.scores()
        {'a': {'y': 0.5}, 'b': {}}
        """
        return self._read("scores")  # type: ignore[no-any-return]

    def to_frame(self) -> pd.DataFrame:
        """The observations as a DataFrame, one row each, with times in UTC (extra `frames`)."""
        pd = optional("pandas")
        frame = pd.DataFrame(self.observations(), columns=self.columns)
        for name in ("asked", "told"):
            frame[name] = pd.to_datetime(frame[name], unit="s", utc=True)
        return frame

    def report(self, file: str | os.PathLike[str] | None = None) -> str:
        """The study as one HTML page that needs no other files, which is written to `file` if you name one."""
        from cabai.views.rendering import report

        check_kind(file, (str, os.PathLike, type(None)), "file must be a path")
        path = None if file is None else file_to_write(os.fspath(file))
        costs, failed = self.settings.costs, self.settings.failed_score
        more = {
            "known costs": costs and ", ".join(f"{cost:g}" for cost in costs), "seed": self.settings.seed,
            "score of a failed evaluation": None if failed is None else f"{failed:g}",
        }  # fmt: skip
        page = report(self._read("seen"), more, __version__)
        if path is not None:
            write_whole(path, page.encode())
        return page

    def plot(self) -> Figure:
        """A figure of the arms, the progress, the leader's lead and the bill (extra `plots`)."""
        optional("matplotlib")
        from cabai.plots import study_figure

        return study_figure(self._read("seen"))

    def _repr_html_(self) -> str | None:
        from cabai.views.rendering import notebook

        return notebook(self._read("seen"))

    def __repr__(self) -> str:
        return f"Study({self.name!r}, arms={list(self.arms)}, storage={self.storage!r})"

    def __str__(self) -> str:
        return str(self.status())

    # What each kind of study has in its own way.

    @abstractmethod
    def _decided(self) -> tuple[bool, str | None]:
        """Whether it has stopped, and the decision."""

    @abstractmethod
    def _read(self, what: str, **given: Any) -> Any:
        """What is known of the study now, at one moment: one of `stored.READS`."""

    @abstractmethod
    def _do(self, rule: str, **given: Any) -> Any:
        """Change the study by a rule: one of `stored.CHANGES`."""

    @abstractmethod
    def _prepare(self) -> None:
        """Import the user's own code of this study, if it is used here."""

    def _ask(
        self, count: int, worker: str | None, request: str | None = None, *, extra: int = 0, batch: bool = False
    ) -> list[Pull]:
        asked = Asked(count, checked_label(worker, "worker", 0), checked_label(request, "request"), extra, batch)
        pulls, why = self._do("ask", asked=asked)
        if not pulls and why is not None:
            raise NoPull(why)
        if not pulls:
            raise StudyStopped(f"study {self.name!r} has stopped: there is nothing left to pull.")
        return pulls  # type: ignore[no-any-return]

    def _lease(self, rule: str, pull: Pull | str, worker: str | None) -> None:
        self._number(pull)
        given = {"pull": pull.id, "offers": pull.offers} if isinstance(pull, Pull) else {"pull": pull}
        self._do(rule, **given, worker=checked_label(worker, "worker", 0))

    def _number(self, pull: Any) -> int:
        """The number of a pull of this study, from the pull or its id."""
        given = pull.id if isinstance(pull, Pull) else pull
        found = self._ids.fullmatch(given) if isinstance(given, str) else None
        if found is None:
            raise InvalidInput(f"{given!r} is not the id of a pull of study {self.name!r}.")
        return int(found[1])
