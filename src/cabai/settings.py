"""Every setting, once: its name, its kind, its default, what it means, how it is checked, and where it is used.

The keys of a study file (TOML), the options of the shell, the fields of HTTP and its OpenAPI description, and the
tables of the docs are made from this table. Signatures in Python are written out; tests/test_settings.py compares them
with it. A new setting is one row here, and one place that uses it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any, NamedTuple

from cabai import policies
from cabai.core.goal import BEST, GOALS
from cabai.datasets.race import RACES
from cabai.families import FAMILIES
from cabai.families.laws import LAWS
from cabai.instance import COST_MODELS
from cabai.support.validation import InvalidInput, amount, positive, probability, shown, true_or_false, whole
from cabai.thresholds import THRESHOLDS

REQUIRED = ...
STORAGE = "sqlite:///cabai.db"
LEASE = 3600.0
RETRIES = 2  # of a test that fails on an item: an API that answers "too many requests" is not a wrong answer
DIRECTIONS = ("maximize", "minimize")
OFFER, FAIL = ON_LAPSE = ("offer", "fail")  # what happens to a pull whose lease ends without a result
WORST, STOP = "worst", "stop"  # what a failed evaluation counts as: the worst score, or nothing: it stays missing
TIMES, SUCCESS = ("seconds", "cpu"), "success"  # what can be measured as the cost or the reward of a pull
AS_FAILED, AS_TIMEOUT = "fail", "timeout"  # what a crash counts as, if seconds are the reward
LEAST_DELTA = 1e-300  # it can still be divided among the arms
LARGEST_RESERVE = 0.5  # a larger one would require less evidence after an arm was dropped than before
MOST_WORKERS = 4000  # threads of a run: macOS allows about as many per process
ENGINES = ("processes", "dask", "ray", "cuda")


class Setting(NamedTuple):
    """One row of the table."""

    name: str
    kind: str  # how it is written: text, number, whole, flag, numbers, names, json, any json, items, score or object
    default: Any  # REQUIRED if there is none
    sentence: str
    where: str  # the calls, files and requests that take it: see PLACES
    check: Callable[[Any, str], Any] | None = None  # None: it is checked together with others
    choices: tuple[str, ...] = ()  # every value that is allowed
    examples: tuple[str, ...] = ()
    other_defaults: Mapping[str, Any] = {}  # by place

    def default_in(self, place: str) -> Any:
        return self.other_defaults.get(place, self.default)

    def checked(self, value: Any) -> Any:
        """The value, or an error that says what is wrong with it. None is allowed where it is the default."""
        if value is None and self.default is None:
            return None
        if self.choices and (not isinstance(value, str) or value not in self.choices):
            allowed = ", ".join(self.choices) + (", or left out" if self.default is None else "")
            raise InvalidInput(f"{self.name} must be one of {allowed}, got {shown(value)}.")
        return value if self.check is None else self.check(value, self.name)


def checked_delta(value: Any, name: str) -> float:
    chance = probability(value, name)
    if chance < LEAST_DELTA:
        raise InvalidInput(f"{name} must be at least {LEAST_DELTA:g}, got {shown(value)}.")
    return chance


def share_or_infinity(value: Any, name: str) -> float:
    """A share; without a limit, it is infinity, or None where JSON has no infinity."""
    if value is None or (isinstance(value, (int, float)) and value == math.inf):
        return math.inf
    share = amount(value, name)
    if share < 0:
        raise InvalidInput(f"{name} must not be negative, got {shown(value)}.")
    return share


def checked_reserve(value: Any, name: str) -> float:
    share = amount(value, name)
    if not 0 < share <= LARGEST_RESERVE:
        raise InvalidInput(f"{name} must be above 0 and at most {LARGEST_RESERVE:g}, got {shown(value)}.")
    return share


def checked_workers(value: Any, name: str = "workers") -> int:
    count = whole(value, name, 1)
    if count > MOST_WORKERS:
        raise InvalidInput(f"{name} must be at most {MOST_WORKERS}, got {shown(value)}.")
    return count


from_0, from_1 = partial(whole, least=0), partial(whole, least=1)

# The calls of Python: study (create_study), evaluate, run, amend, accept, drop and add_arm (of Study), plan, simulate,
# compare, calibrate, replay, scores (datasets.read_table), instance (Instance), inspect (inspect.evaluate) and bound. A
# shell command takes what its call takes. file: a study file. http: a request that creates a study.
CREATED = "study file http"
SIMULATED = "simulate compare"
PLACES = (
    "study", "evaluate", "run", "amend", "accept", "drop", "add_arm", "plan", "simulate", "compare", "calibrate",
    "replay", "scores", "instance", "bound", "reproduce", "bench", "inspect", "file", "http",
)  # fmt: skip
REWARDS = (
    f"How rewards are distributed: {', '.join(FAMILIES.names)}. Parameters go in brackets: gaussian(variance=4), "
    "bounded(low=0, high=10). For your own: module:name."
)

SETTINGS = (
    # What is tested, and how surely
    Setting("name", "text", REQUIRED, "Name of the study.", f"{CREATED} evaluate inspect",
            other_defaults={"evaluate": None, "inspect": None, "file": None}),
    Setting("arms", "names", REQUIRED, "Names of the arms, such as small,large, or a table of names and metadata.",
            f"{CREATED} evaluate inspect"),
    Setting("arms", "names", None, "Names of the arms: small,medium,large.", "plan"),
    Setting("family", "text", None, f"{REWARDS} Default with items: bounded.", f"{CREATED} evaluate inspect plan",
            examples=tuple(FAMILIES.names)),
    Setting("family", "text", REQUIRED, REWARDS, "instance calibrate"),
    Setting("means", "numbers", REQUIRED, "Mean reward of each arm: 1.5,1,0.5.", "instance"),
    Setting("means", "text", None,
            "What you know about each arm's mean reward, separated by commas: a number, a range 0.02..0.03, "
            "beta(3,97), normal(mean,sd), lognormal(median,sigma) or gamma(shape,scale).", "plan"),
    Setting("delta", "number", 0.05, "Largest allowed probability of a wrong decision.",
            f"{CREATED} evaluate inspect {SIMULATED} calibrate replay bound", checked_delta),
    Setting("delta", "number", None,
            "Largest allowed probability of a wrong decision. If left out: 0.05, and the plan also finds the smallest "
            "delta the budget is enough for.", "plan", checked_delta),
    Setting("epsilon", "number", 0.0, "Accept any arm whose mean is within epsilon of the best.",
            f"{CREATED} evaluate inspect {SIMULATED} calibrate replay bound"),
    Setting("epsilon", "number", None,
            "Accept any arm whose mean is within epsilon of the best. If left out: 0, and the plan also finds the "
            "smallest epsilon the budget is enough for.", "plan"),
    Setting("epsilon", "number", None, "A larger epsilon: accept arms this close to the best.", "amend"),
    Setting("direction", "text", DIRECTIONS[0], f"Whether a high reward is good: {' or '.join(DIRECTIONS)}.",
            f"{CREATED} evaluate inspect replay", choices=DIRECTIONS),
    Setting("direction", "text", None,
            f"{' or '.join(DIRECTIONS)}. Default: that of the source, else {DIRECTIONS[0]}.", "plan",
            choices=DIRECTIONS),
    Setting("policy", "text", policies.DEFAULT,
            f"How to choose arms: {', '.join(policies.POLICIES.names)}. Parameters go in brackets: "
            "ctas(tracking=ratio). For your own: module:name.",
            f"{CREATED} simulate calibrate plan", examples=tuple(policies.POLICIES.names),
            other_defaults={"plan": None}),
    Setting("threshold", "text", None,
            f"The test that decides when one arm beats another: {', '.join(THRESHOLDS.names)}. Parameters go in "
            "brackets: paper(alpha=1.2). For your own: module:name. Or a file written by cabai calibrate. Default: the "
            "cheapest threshold proven for the family.",
            f"{CREATED} {SIMULATED} plan", examples=tuple(THRESHOLDS.names)),
    Setting("goal", "text", BEST,
            f"What to look for: {GOALS[0]} (the best arm) or {GOALS[1]} (the cheapest arm to run among those within "
            "epsilon of the best).", f"{CREATED} evaluate inspect {SIMULATED} replay", choices=GOALS),
    Setting("slack", "number", None,
            "With goal cheapest: show that every cheaper arm is worse than the best by more than epsilon - slack. "
            "Default: half of epsilon.", f"{CREATED} evaluate inspect {SIMULATED} replay"),
    Setting("running_costs", "numbers", None,
            "With goal cheapest: what each arm costs to run: 1,0.1. Default: what it costs to try.",
            f"{CREATED} evaluate inspect {SIMULATED} replay"),
    # Costs and limits
    Setting("costs", "numbers", None, "Mean cost per pull of each arm, if known: 1,0.1.",
            f"{CREATED} evaluate inspect"),
    Setting("costs", "numbers", REQUIRED, "Mean cost per pull of each arm: 1,0.1,0.01.", "instance calibrate"),
    Setting("costs", "text", None,
            "What you know about each arm's mean cost per pull, in the form of the means. For a table of scores: a "
            "file with columns arm and cost.", "plan"),
    Setting("costs", "text", None,
            "A file of costs: columns arm and cost, or a table of the same shape as the scores. Default: the costs in "
            "the scores file or, if it has none, 1 per evaluation.", "scores replay"),
    Setting("max_cost", "number", None, "Budget: stop, without a guarantee, when the bill reaches this.",
            f"{CREATED} evaluate inspect amend {SIMULATED}", positive),
    Setting("max_pulls", "whole", None, "Stop, without a guarantee, after this many pulls.",
            f"{CREATED} amend {SIMULATED}", from_1),
    Setting("max_pulls", "whole", 10_000, "Longest run: the certificate covers errors up to this many pulls.",
            "calibrate", from_1),
    Setting("full_cost", "number", None, "What evaluating everything would cost: warn when the bill passes it.",
            CREATED, positive),
    Setting("seed", "whole", None,
            "Random seed of the policy, or of the order of items. Default: 0; with items, random.",
            f"{CREATED} evaluate inspect", from_0),
    Setting("seed", "whole", 0, "Random seed: the same seed gives the same results.",
            f"{SIMULATED} plan calibrate replay reproduce bench", from_0),
    # Workers
    Setting("lease", "number", LEASE, "Seconds a worker has to tell a pull before it lapses.", f"{CREATED} amend",
            positive, other_defaults={"amend": None}),
    Setting("on_lapse", "text", OFFER,
            "What happens to a lapsed pull: offer (another ask gets it) or fail (it counts as failed).", CREATED,
            choices=ON_LAPSE),
    Setting("workers", "whole", 1, "Number of pulls to run in parallel.", "run evaluate file", checked_workers),
    Setting("workers", "whole", None, "Number of simulations to run in parallel. Default: one per core.",
            f"{SIMULATED} plan calibrate replay reproduce bench", from_1),
    Setting("retries", "whole", RETRIES, "With items: how often to try a failed evaluation again.", "evaluate file",
            from_0),
    Setting("max_failures", "whole", 5, "End the run when an arm fails this often in a row.",
            "run evaluate inspect file", from_1),
    Setting("catch", "object", None,
            "Exceptions of a function that count as failed trials. Default: all but those of a wrong program.",
            "run evaluate file"),
    # With a dataset
    Setting("items", "items", None,
            "Evaluate the arms on a dataset: the number of items, or a .jsonl or .csv file of items.",
            f"{CREATED} evaluate", other_defaults={"evaluate": REQUIRED}),
    Setting("items", "whole", None, "Plan an evaluation on a dataset of this many items, from scores on some of them.",
            "plan"),
    Setting("digest", "text", None, "Fingerprint of the items, as cabai computes it from their content.", "http"),
    Setting("race", "text", None,
            f"With items: {' or '.join(RACES)}. Default: champion if epsilon is 0, else paired.",
            f"{CREATED} evaluate inspect plan replay", examples=RACES),
    Setting("failed", "score", WORST,
            "With items: what a failed evaluation counts as: worst (the worst score), a number, or stop (raise an "
            "error).", f"{CREATED} evaluate inspect"),
    Setting("speculate", "number", 0.1,
            "With items: how many evaluations may be under way at once, as a share of those told so far.",
            f"{CREATED} evaluate inspect", share_or_infinity),
    Setting("finish", "number", None,
            "With items: if evaluating the rest of everything costs at most this share of what was spent, do so and "
            "answer exactly. Default: 0.1 with goal cheapest, else 0.", f"{CREATED} evaluate inspect replay"),
    Setting("batch", "whole", None,
            "With items: test up to this many items of one arm in each call. Default: one item in each.",
            "evaluate file", from_1),
    Setting("reuse", "object", None, "Scores of an earlier evaluation of the same items.", "evaluate inspect"),
    Setting("join", "object", None, "An earlier evaluation of the same items, whose winner new arms challenge.",
            "evaluate inspect"),
    # Changes, and earlier results
    Setting("reserve", "number", None, "Share of delta to keep for arms added or dropped later, such as 0.1.", CREATED,
            checked_reserve),
    Setting("import_from", "text", None,
            "Start with the observations in a .csv or .parquet file, or of another study.", "study"),
    Setting("unseen", "flag", False,
            "Declare that the imported data are complete and did not influence the choice of arms.", "study"),
    Setting("metadata", "json", None, 'Data to keep with the arms, as JSON: {"small": {"model": "m1"}}.', "amend"),
    Setting("epsilon", "number", None, "How much worse than the best it may be. Default: what is proven.", "accept"),
    Setting("arm", "text", REQUIRED, "Name of the arm.", "drop add_arm"),
    Setting("cost", "number", None, "Its mean cost per pull, if the study was created with costs.", "add_arm"),
    Setting("metadata", "any json", None, "Data to keep with it, as JSON.", "add_arm"),
    Setting("by", "text", None, "Who makes the change; kept in the log.", "amend accept drop add_arm"),
    # Where it is stored
    Setting("storage", "text", STORAGE,
            "Where studies are stored: sqlite:///FILE, postgresql://USER@HOST/DATABASE, or http://HOST:PORT of a cabai "
            "serve.", "study evaluate inspect file", other_defaults={"evaluate": None, "inspect": None}),
    Setting("load_if_exists", "flag", False, "If a study of this name and with these settings exists, continue it.",
            "study http"),
    # How arms are tried, in a study file
    Setting("command", "object", None, "The command that tries an arm; {arm} and {item} are replaced.", "file"),
    Setting("function", "object", None, "The Python function that tries an arm, as module:function.", "file"),
    Setting("shell", "flag", False, "Run the command in a shell.", "file", true_or_false),
    Setting("timeout", "number", None, "Seconds after which a command is killed, and its pull has failed.", "file",
            positive),
    Setting("cost", "text", None, "Measure the cost: seconds or cpu. Default: pulls report it.", "file", choices=TIMES),
    Setting("reward", "text", None, "Measure the reward: seconds, cpu or success. Default: pulls report it.", "file",
            choices=(*TIMES, SUCCESS)),
    Setting("on_crash", "text", AS_FAILED,
            "With reward seconds: what a failed command counts as: fail (a failed pull) or timeout.", "file",
            choices=(AS_FAILED, AS_TIMEOUT)),
    # Simulation
    Setting("names", "names", None, "Name of each arm: small,medium,large.", "instance"),
    Setting("cost_model", "text", "fixed",
            f"How the cost of a pull varies around its mean: {', '.join(COST_MODELS)}.", "instance plan calibrate",
            examples=tuple(COST_MODELS)),
    Setting("law", "text", None, f"How to draw bounded rewards: {', '.join(LAWS)}. Default: uniform.", "instance plan",
            examples=tuple(LAWS)),
    Setting("sd", "numbers", None,
            "With a law: standard deviation of rewards, one for all arms or one per arm.", "instance"),
    Setting("sd", "text", None,
            "With a law: standard deviation of rewards, one for all arms or one per arm: 0.1..0.2.", "plan"),
    Setting("policies", "names", ("top-two", "co", "ctas", "tas", "d-lucb", "racing", "uniform"),
            f"Policies to compare, separated by commas: {', '.join(policies.POLICIES.names)}. Parameters go in "
            "brackets: ctas(tracking=ratio). For your own: module:name.", "compare"),
    Setting("trajectories", "whole", 1000, "Number of simulated runs.", f"{SIMULATED} reproduce bench", from_1),
    Setting("trajectories", "whole", 4000, "Simulated runs per hard instance. More runs find a smaller c.", "calibrate",
            from_1),
    Setting("confidence", "number", 0.99, "Probability that the certificate is correct.", "calibrate"),
    Setting("engine", "text", None, f"Where to run: {', '.join(ENGINES)}. Default: in threads of this process.",
            f"{SIMULATED} plan calibrate reproduce bench", choices=ENGINES),
    Setting("address", "text", None,
            "With engine dask or ray: address of the cluster: tcp://host:8786, ray://host:10001 or auto.",
            f"{SIMULATED} plan calibrate reproduce bench"),
    Setting("keep", "text", "rows",
            "rows (every trajectory) or summary (any number of trajectories in little memory, with quantiles accurate "
            "to 0.05 %).", SIMULATED),
    Setting("budget", "number", None,
            "Fixed budget: spend this, then decide for the leader, without a guarantee; delta is not used.", SIMULATED,
            positive),
    Setting("shuffle", "flag", False,
            "Give the arms another order in each trajectory: ties, which go to the first arm, then favour none.",
            SIMULATED),
    # Plans
    Setting("budget", "number", None, "The most you can pay. Default: max_cost of the study file.", "plan", positive),
    Setting("chance", "number", 0.8, "Wanted probability of a decision within the budget.", "plan", probability),
    Setting("pilot", "text", None, "With a study file: a table of pilot data, instead of means.", "plan"),
    Setting("curve", "text", False, "Also find the bill at several values of this: gap or epsilon.", "plan"),
    Setting("worth", "flag", True, "Also find what each arm adds to the bill.", "plan"),
    Setting("draws", "whole", 500, "Number of studies to simulate, each with its own means and costs.", "plan"),
    # Replays of scores
    Setting("repeats", "whole", 200, "Number of races, each in a new random order.", "replay", from_1),
    Setting("low", "number", 0.0, "Lowest possible score.", "replay scores"),
    Setting("high", "number", 1.0, "Highest possible score.", "replay scores"),
    Setting("scorer", "text", None, "Inspect logs: which score to use, if there are several.", "scores plan"),
    Setting("scorer", "text", None, "Which score to race on, if there are several: name, or name.key.", "inspect"),
    Setting("epochs", "whole", None, "How often to run each sample. Default: as the task says.", "inspect"),
    Setting("limit", "whole", None, "Use only this many samples of the task, the first ones.", "inspect", from_1),
    Setting("prices", "text", None, "Your own prices: a TOML file with dollars per million tokens.", "inspect"),
    Setting("log_dir", "text", None, "Folder of the logs. Default: as in Inspect.", "inspect"),
    Setting("epochs", "text", None,
            "Inspect logs: mean (average the epochs of an item) or items (each is an item). Default: mean.", "scores"),
    Setting("arm", "text", None,
            "Inspect logs: the field that names the arm, such as task_args.prompt. Default: model.", "scores"),
    Setting("metric", "text", None, "lm-evaluation-harness logs: which metric to use, if there are several.", "scores"),
)  # fmt: skip


@lru_cache
def settings_for(place: str) -> dict[str, Setting]:
    return {row.name: row for row in SETTINGS if place in row.where.split()}


def defaults_for(place: str) -> dict[str, Any]:
    """The defaults in a place, of all settings that have one."""
    found = {name: row.default_in(place) for name, row in settings_for(place).items()}
    return {name: value for name, value in found.items() if value is not REQUIRED}
