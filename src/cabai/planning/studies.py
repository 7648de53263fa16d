"""Studies without items, simulated on truths drawn from what is known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from cabai.datasets.sheets import Numbers
from cabai.instance import arm_names, check_is_bounded
from cabai.planning.answers import DELTAS, Subject, study_settings
from cabai.planning.priors import all_drawn, priors_of
from cabai.planning.results import Bills
from cabai.planning.truths import Pilot, Truths, posterior
from cabai.simulation.engines import Engine
from cabai.simulation.parallel import gathered
from cabai.simulation.work import Work
from cabai.study.settings import Settings
from cabai.support.validation import InvalidInput, not_negative, positive
from cabai.thresholds import threshold_of

EFFORT = 250_000_000  # pulls that may be simulated for the bill, and a quarter of that for each other number
SEARCHED = 150  # of the truths, which are used for searches
FIRST = 10_000  # pulls after which a study is first cut
GROWTH = 8  # the factor by which those that were cut are extended


class SimulatedStudies(Subject):
    """Studies on truths drawn from what is known of each arm: from the means given, or else from the pilot. `engine`
    says where they are simulated."""

    engine: Engine

    def __init__(
        self, given: dict[str, Any], pilot: Pilot | None, *, means: Any, costs: Any, arms: Any, cost_model: str,
        law: str | None, sd: Any, pays_reward: bool, draws: int, seed: int,
    ) -> None:  # fmt: skip
        if means is None and pilot is None:
            raise InvalidInput(
                "a plan needs what is known of each arm's mean: means=[...] (--means 0.02..0.03,0.01..0.02), a pilot's "
                "table, or a stored study."
            )
        names = arms if arms is not None else given.get("arms", None if pilot is None else tuple(pilot.rewards))
        priors = {"means": None if means is None else priors_of(means, "means", names)}
        settings = study_settings(given, arm_names(None, len(priors["means"] or ())) if names is None else names)
        names, family = settings.arms, settings.family
        costs = settings.costs if costs is None else costs
        priors["costs"] = None if costs is None else priors_of(costs, "costs", names)
        priors["sd"] = None if sd is None else priors_of(sd, "sd", names, one_for_all=True)
        is_unknown, is_pilot = family.key == "symmetric", means is None
        if is_unknown and sd is None and not is_pilot:
            raise InvalidInput("a plan needs to know how much rewards vary: give their standard deviation, sd (--sd).")
        if law is not None or (sd is not None and not is_unknown):
            check_is_bounded(family, "law and sd")
        if sd is not None and law is None and not is_unknown:
            raise InvalidInput("sd needs a law: give one of uniform, two-point or beta too.")
        if is_pilot and (law is not None or sd is not None):
            raise InvalidInput("a pilot's rewards already show their spread: leave out law and sd.")
        notes = []
        if family.key == "bounded" and not is_pilot and law is None:
            notes.append(
                "The spread of rewards was not given (--law, --sd): two-point rewards, the widest and most expensive, "
                "are assumed."
            )

        def check_mean(mean: float, name: str) -> float:
            return family.check_size(family.check_mean(mean, name), name)

        drawn, words, checks = dict[str, Numbers](), dict[str, list[str]](), (check_mean, positive, not_negative)
        if is_pilot:
            assert pilot is not None
            pilot = pilot if costs is None else pilot._replace(costs=None)
            drawn, words, law = posterior(pilot, names, family, draws=draws, seed=seed)
        for stream, (check, (name, known)) in enumerate(zip(checks, priors.items(), strict=True)):
            if known is not None:
                drawn[name] = all_drawn(known, name, check, draws, [seed, stream])
                words[name] = [each.text for each in known]
        if "costs" not in drawn and pays_reward:
            drawn["costs"], words["costs"] = drawn["means"], ["its time"] * len(names)
        elif "costs" not in drawn:
            drawn["costs"], words["costs"] = np.ones_like(drawn["means"]), ["1"] * len(names)
            notes.insert(0, "No costs were given, so each pull costs 1: the bill is the number of pulls.")
        minimize = settings.direction == "minimize"
        self.truths = Truths(family, minimize, drawn["means"], drawn["costs"], cost_model, law, drawn.get("sd"))
        self.settings, self.seed, self.notes, self.facts = settings, seed, notes, {"truths": self.truths}
        self.words = list(zip(words["means"], words["costs"], strict=True))
        self.about = str(family), "", f"policy {settings.policy}, threshold {settings.threshold}"
        self.best = self.truths.goodness.argmax(axis=1)
        self.usual = given.get("threshold") is None  # then it depends on epsilon
        # fewer if the test computes something for every reward
        self.effort = EFFORT // 10 if "keep" in dict(settings.setup().binding) else EFFORT

    def bills(self, limit: float, *, searching: bool = True, **changed: Any) -> Bills:
        settings, left_out = self.settings, changed.get("without", [])
        truths = self.truths.part(SEARCHED if searching else None, left_out)
        if "epsilon" in changed:
            settings = replace(settings, epsilon=settings.family.check_epsilon(changed["epsilon"]))
            if self.usual and settings.epsilon:
                settings = replace(settings, threshold=threshold_of(None, settings.family))
        if "delta" in changed:
            settings = replace(settings, delta=changed["delta"])
        if "without" in changed:
            arms = tuple(np.delete(settings.arms, left_out).tolist())
            settings = replace(settings, arms=arms, costs=None, metadata={})
        if "gap" in changed:
            truths = truths.with_gap(changed["gap"])
        return self.simulated(settings, truths, [settings.delta], limit, self.effort // (4 if searching else 1))[0]

    def by_delta(self, limit: float) -> list[Bills] | None:
        if self.settings.policy.depends_on_delta:
            return None
        return self.simulated(self.settings, self.truths.part(SEARCHED), DELTAS, limit, self.effort // 4)

    def simulated(
        self, settings: Settings, truths: Truths, deltas: Sequence[float], max_cost: float, effort: int
    ) -> list[Bills]:
        """What studies with these settings pay on each of the truths, for each delta, the largest first.

        Each is cut once it has paid `max_cost`, or after a number of pulls that grows for those that are left as long
        as no more than `effort` pulls are simulated in all. So a truth that is nearly tied does not delay the others,
        and the result depends only on the seed. Trajectory i is that of `cabai.simulate` on truth i, up to
        `truth.EXACT` pulls: from there on, the policy is asked less often, and what it pays differs by less than 1 %.
        """
        setups = [settings.setup(delta) for delta in deltas]
        limits = [each for each in (settings.max_pulls, settings.certified_pulls) if each is not None]
        last = max(min(limits), len(settings.arms)) if limits else 2**62
        instances, best = truths.instances(), truths.goodness.max(axis=1)
        good = truths.goodness >= best[:, None] - settings.epsilon - 1e-12 * np.maximum(1, abs(best))[:, None]
        shape = (len(instances), len(setups))
        costs, decisions, is_cut = np.empty(shape), np.empty(shape, np.int64), np.zeros(shape, bool)
        left, most, used = np.arange(len(instances)), min(max(FIRST, len(settings.arms)), last), 0
        while True:
            work = Work(
                [instances[i] for i in left], setups, self.seed, most, max_cost, numbers=left, negated=truths.negated,
                in_steps=True,
            )  # fmt: skip
            self.engine.prepare(work)
            found, _, _ = gathered(work, len(left), self.engine)
            costs[left], decisions[left] = found["cost"], found["decision"]
            unfinished = found["decision"] < 0
            is_cut[left] = unfinished & (most < last)
            used += int(found["steps"][:, -1].sum())
            paid_all = found["cost"][:, -1] >= max_cost
            is_cut[left[paid_all]] = unfinished[paid_all]
            left = left[unfinished[:, -1] & ~paid_all]
            more = min(GROWTH * most, (effort - used) // max(1, len(left)), last)
            if not len(left) or most >= last or more < 2 * most:
                break
            most = more
        decided = decisions >= 0
        wrong = decided & ~np.take_along_axis(good, np.maximum(decisions, 0), axis=1)
        return [Bills(costs[:, j], decided[:, j], wrong[:, j], is_cut[:, j]) for j in range(len(setups))]

    def usual_and_largest(self, of: str) -> tuple[float, float]:
        """Usual is how far apart means are, roughly."""
        truths, (low, high) = self.truths.part(SEARCHED), self.settings.family.mean_range
        middle = float(np.median(truths.goodness.max(axis=1) - truths.next_best))
        wide = float(np.median(np.ptp(truths.means, axis=1)))
        near = abs(float(np.median(truths.means)))
        usual = middle or wide or 0.1 * near or 0.1
        most, far = (truths.largest_gap, 1e6 * usual) if of == "gap" else (0.999 * (high - low), math.inf)
        return usual, most if most < far else 1e3 * usual

    def limit(self, bills: Bills) -> float:
        """What nine of ten studies do not exceed, as far as that is known."""
        known = bills.costs[bills.cut]
        return min(bills.quantile(0.9).value, float(known.min()) if len(known) else math.inf)
