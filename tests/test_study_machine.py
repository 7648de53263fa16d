"""Any sequence of operations on a study, against a model in plain Python that is written from what they promise."""

from __future__ import annotations

import math
import warnings

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as run_machine_as_test

import cabai
from cabai.study.log import database as module
from studies import NAMES, Clock

ARMS = ("a", "b", "c")
DELTA, LEASE = 0.3, 100.0
COSTS = (0.25, 1.0, 4.0)  # sums of these are exact


def kl(p: float, q: float) -> float:
    return sum(x * math.log(x / y) for x, y in ((p, q), (1 - p, 1 - q)) if x > 0)


class Model:
    """What a study with the policy `uniform` and the threshold `paper` on bernoulli rewards is to do."""

    def __init__(self, max_pulls, max_cost, known, on_lapse):
        self.max_pulls, self.max_cost, self.known, self.on_lapse = max_pulls, max_cost, known, on_lapse
        self.asked = 0
        self.under_way: dict[int, dict] = {}  # by number: arm, expires, offers
        self.log: list[tuple] = []  # number, arm, reward, cost, failed, late
        self.counted: list[int] = []  # the numbers of those that count, in the order of asking
        self.reason = self.decision = None

    @property
    def stopped(self):
        return self.reason is not None

    def of(self, arm, *, counted=False):
        """Rewards, what was paid, failures; of what counts, or of everything told."""
        told = [entry for entry in self.log if entry[1] == arm and (not counted or entry[0] in self.counted)]
        rewards = [entry[2] for entry in told if entry[4] is None]
        return rewards, sum(entry[3] for entry in told), len(told) - len(rewards)

    @property
    def spent(self):
        return sum(entry[3] for entry in self.log)

    def reserve(self, arm):
        """What a pull of this arm reserves of the budget."""
        if self.known is not None:
            return self.known[ARMS.index(arm)]
        largest = {arm: max((entry[3] for entry in self.log if entry[1] == arm), default=0.0) for arm in ARMS}
        return largest[arm] or max(largest.values())

    def pays_for(self, arm):
        if self.max_cost is None:
            return True
        if not self.knows(arm):
            return self.left() > 0 and all(pull["arm"] != arm for pull in self.under_way.values())
        return self.reserve(arm) <= self.left()

    def knows(self, arm):
        return self.known is not None or bool(self.of(arm)[0])

    def left(self):
        return self.max_cost - self.spent - sum(self.reserve(pull["arm"]) for pull in self.under_way.values())

    def next_arm(self):
        rewards = {arm: len(self.of(arm)[0]) for arm in ARMS}
        out = {arm: sum(pull["arm"] == arm for pull in self.under_way.values()) for arm in ARMS}
        if all(rewards.values()):  # uniform: in turn, counting what is under way
            return ARMS[(sum(rewards.values()) + sum(out.values())) % len(ARMS)]
        untried = [arm for arm in ARMS if not rewards[arm] and not out[arm]]
        if untried:
            return untried[0]
        some = [arm for arm in ARMS if rewards[arm]]  # for a policy blind to costs, CO takes the fewest pulls
        if not some or self.max_cost is None or self.known is not None:
            some = ARMS
        return min(some, key=lambda arm: rewards[arm] + out[arm])

    def ask(self, n, now):
        """The pulls to be handed out: (number, arm, offers)."""
        overdue = sorted(number for number, pull in self.under_way.items() if pull["expires"] <= now)
        if self.on_lapse == "fail":
            for number in [number for number in overdue if self.under_way[number]["expires"] > 0]:
                arm = self.under_way.pop(number)["arm"]
                cost = 0.0 if self.known is None else self.known[ARMS.index(arm)]
                self.log.append((number, arm, None, cost, "the lease ended without a result", False))
                overdue.remove(number)
            self.count()
            if self.stopped:
                return []
        handed, unpaid = [], 0
        for number in overdue:
            if len(handed) == n:
                break
            pull = self.under_way.pop(number)
            if self.pays_for(pull["arm"]):
                pull["expires"], pull["offers"] = now + LEASE, pull["offers"] + 1
                handed.append((number, pull["arm"], pull["offers"]))
            else:
                unpaid += 1
            self.under_way[number] = pull
        if not (len(self.rewarded()) > len(self.counted) and self.leader_beats_all(counted=False)):
            while len(handed) < n and (self.max_pulls is None or len(self.log) + len(self.under_way) < self.max_pulls):
                arm = self.next_arm()
                if not self.pays_for(arm):
                    break
                self.asked += 1
                self.under_way[self.asked] = {"arm": arm, "expires": now + LEASE, "offers": 1}
                handed.append((self.asked, arm, 1))
        if not handed and unpaid == len(self.under_way):  # what is lost, and not paid for again, is not counted past
            full = self.max_pulls is not None and len(self.log) + len(self.under_way) >= self.max_pulls
            self.reason = "max_pulls" if full else "max_cost"
        return handed

    def tell(self, number, reward, cost, failed):
        arm = self.under_way.pop(number)["arm"]
        self.log.append((number, arm, reward, cost, failed, self.stopped))
        if self.stopped:
            return
        self.count()
        if self.stopped or self.under_way:
            return
        broke = self.max_cost is not None and (self.spent >= self.max_cost or not self.pays_for(self.next_arm()))
        if broke or (self.max_pulls is not None and len(self.log) >= self.max_pulls):
            self.reason = "max_cost" if broke else "max_pulls"

    def rewarded(self):
        return [entry[0] for entry in self.log if entry[4] is None]

    def count(self):
        """In the order of asking, up to the first that is missing or that decides."""
        missing = min(self.under_way, default=math.inf)
        for number in sorted(self.rewarded()):
            if number < missing and number not in self.counted:
                self.counted.append(number)
                if self.leader_beats_all():
                    self.reason, self.decision = "evidence", self.leader()
                    return

    def means(self, *, counted=True):
        rewards = {arm: self.of(arm, counted=counted)[0] for arm in ARMS}
        return {arm: sum(mine) / len(mine) for arm, mine in rewards.items() if mine}

    def leader(self, *, counted=True):
        means = self.means(counted=counted)
        return max(means, key=lambda arm: (means[arm], -ARMS.index(arm)))

    def leader_beats_all(self, *, counted=True):
        means, n = self.means(counted=counted), {arm: len(self.of(arm, counted=counted)[0]) for arm in ARMS}
        if len(means) < len(ARMS):
            return False
        b, level = self.leader(counted=counted), math.log(2 * len(ARMS) * sum(n.values()) / DELTA)
        for a in ARMS:
            m = (n[a] * means[a] + n[b] * means[b]) / (n[a] + n[b])
            if a != b and not (means[b] > means[a] and n[a] * kl(means[a], m) + n[b] * kl(means[b], m) > level):
                return False
        return True


class StudyMachine(RuleBasedStateMachine):
    limits = None, None  # of pulls, of cost

    def __init__(self):
        super().__init__()
        self.clock, self.time = Clock(), module.time
        module.time = self.clock
        self.decided = None

    def teardown(self):
        module.time = self.time

    @initialize(
        known=st.booleans(),
        on_lapse=st.sampled_from(["offer", "fail"]),
        good=st.sampled_from(ARMS),
        kept=st.sampled_from([3, 0]),
        n=st.sampled_from([30, 9, 0]),
    )
    def create(self, known, on_lapse, good, kept, n):
        self.name, (max_pulls, max_cost) = f"machine {next(NAMES)}", self.limits
        self.options = {
            "arms": ARMS, "family": "bernoulli", "policy": "uniform", "threshold": "paper", "delta": DELTA,
            "lease": LEASE, "storage": "memory", "max_pulls": max_pulls, "max_cost": max_cost,
            "costs": list(COSTS) if known else None, "on_lapse": on_lapse,
        }  # fmt: skip
        self.study = cabai.create_study(self.name, **self.options)
        self.model = Model(max_pulls, max_cost, COSTS if known else None, on_lapse)
        self.pulls_and_tells(good, min(n, 4))
        if kept:  # under way while others pull, to come late
            self.ask(kept)
        self.pulls_and_tells(good, n)

    @property
    def token(self):
        return self.study._row.token

    @rule(n=st.one_of(st.none(), st.integers(1, 5)))
    def ask(self, n):
        expected = [] if self.model.stopped else self.model.ask(1 if n is None else n, self.clock.now)
        if self.model.stopped:  # perhaps only now: the first arm already is not paid for
            with pytest.raises(cabai.StudyStopped):
                self.study.ask(n)
            return
        if not expected:
            with pytest.raises(cabai.NoPull, match=r"used up by pulls under way|is not known yet|told so far decide"):
                self.study.ask(n)
            return
        pulls = [self.study.ask()] if n is None else self.study.ask(n)
        assert [(pull.number, pull.arm, pull.offers) for pull in pulls] == expected
        assert all(pull.id == f"{self.token}-{pull.number}" for pull in pulls)
        assert all(pull.expires == self.clock.now + LEASE for pull in pulls)

    def tell_study(self, number, **values):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", cabai.FailedPulls)
            self.study.tell(f"{self.token}-{number}", **values)

    @precondition(lambda self: self.model.under_way)
    @rule(data=st.data(), rewards=st.lists(st.booleans(), min_size=1, max_size=4), cost=st.sampled_from(COSTS))
    def tell(self, data, rewards, cost):
        """One by one or at once; also after the lease ran out, and after the study has stopped."""
        at_once, results = data.draw(st.booleans()), []
        for reward in rewards:
            if not self.model.under_way:
                break
            number = data.draw(st.sampled_from(sorted(self.model.under_way)))
            paid, given = cost, {"reward": reward, "cost": cost}
            if self.model.known is not None and data.draw(st.booleans()):
                paid = self.model.known[ARMS.index(self.model.under_way[number]["arm"])]
                del given["cost"]
            results.append({"pull": f"{self.token}-{number}"} | given)
            if not at_once:
                self.tell_study(number, **given)
            self.model.tell(number, float(reward), paid, None)
        if at_once:
            self.study.tell_many(results)

    @precondition(lambda self: not self.model.stopped)
    @rule(good=st.sampled_from(ARMS), n=st.sampled_from([1, 5, 25]))
    def pulls_and_tells(self, good, n):
        """A worker with time for several pulls, of which only one arm's succeed: so that some studies are decided."""
        for _ in range(n):
            if self.model.stopped:
                return
            expected = self.model.ask(1, self.clock.now)
            if not expected:
                with pytest.raises(cabai.NoPull):
                    self.study.ask()
                return
            pull = self.study.ask()
            assert (pull.number, pull.arm, pull.offers) == expected[0]
            self.study.tell(pull, pull.arm == good, 0.25)
            self.model.tell(pull.number, float(pull.arm == good), 0.25, None)

    @precondition(lambda self: self.model.under_way)
    @rule(data=st.data(), cost=st.sampled_from([None, 0.0, *COSTS]))
    def tell_failed(self, data, cost):
        number = data.draw(st.sampled_from(sorted(self.model.under_way)))
        arm = self.model.under_way[number]["arm"]
        self.tell_study(number, failed="why", cost=cost)
        if cost is None:
            cost = 0.0 if self.model.known is None else self.model.known[ARMS.index(arm)]
        self.model.tell(number, None, cost, "why")

    @precondition(lambda self: self.model.log)
    @rule(data=st.data())
    def tell_the_same_again(self, data):
        number, _, reward, cost, failed, _ = data.draw(st.sampled_from(self.model.log))
        self.tell_study(number, reward=reward, cost=cost, failed=failed)

    @precondition(lambda self: self.model.log)
    @rule(data=st.data())
    def tell_something_else(self, data):
        number, _, reward, cost, failed, _ = data.draw(st.sampled_from(self.model.log))
        other = {"failed": "why", "cost": cost} if failed is None else {"reward": 1, "cost": cost or 1.0}
        if failed is None and data.draw(st.booleans()):
            other = data.draw(st.sampled_from([{"reward": 1 - reward, "cost": cost}, {"reward": reward, "cost": 7.0}]))
        with pytest.raises(cabai.AlreadyTold):
            self.tell_study(number, **other)

    @rule(ahead=st.integers(1, 10**6))
    def tell_nonsense(self, ahead):
        number = max([*self.model.under_way, 1])
        for values in ({"reward": 0.5, "cost": 1}, {"reward": 1, "cost": 0}, {"reward": math.nan, "cost": 1}):
            with pytest.raises(cabai.InvalidInput):
                self.tell_study(number, **values)
        with pytest.raises(cabai.InvalidInput, match="has handed out no pull"):
            self.tell_study(self.model.asked + ahead, reward=1, cost=1.0)

    @precondition(lambda self: self.model.asked)
    @rule(data=st.data())
    def release(self, data):
        number = data.draw(st.integers(1, self.model.asked))
        offers = self.model.under_way[number]["offers"] if number in self.model.under_way else 1
        if offers > 1:
            with pytest.raises(cabai.LostPull):  # the one it was offered to first
                self.study.release(cabai.results.Pull(f"{self.token}-{number}", "a", number, 0.0, offers=1))
            with pytest.raises(cabai.LostPull):  # nobody knows who
                self.study.release(f"{self.token}-{number}")
        self.study.release(cabai.results.Pull(f"{self.token}-{number}", "a", number, 0.0, offers=offers))
        if number in self.model.under_way:
            self.model.under_way[number]["expires"] = 0.0

    @rule(seconds=st.sampled_from([1.0, 60.0, 100.0, 1e6]))
    def wait(self, seconds):
        self.clock.now += seconds

    @rule(by_name=st.booleans())
    def reload(self, by_name):
        if by_name:
            self.study = cabai.load_study(self.name, storage="memory")
            return
        self.study = cabai.create_study(self.name, **self.options, load_if_exists=True)
        with pytest.raises(cabai.InvalidInput, match="already exists"):
            cabai.create_study(self.name, **self.options)

    @precondition(lambda self: self.model.stopped)
    @rule()
    def delete_and_recreate(self):
        old = self.study
        cabai.delete_study(self.name, storage="memory")
        with pytest.raises(cabai.StudyNotFound):
            old.ask()
        self.study = cabai.create_study(self.name, **self.options)
        self.model = Model(self.model.max_pulls, self.model.max_cost, self.model.known, self.model.on_lapse)
        self.decided = None
        with pytest.raises(cabai.StudyNotFound):
            old.status()

    @invariant()
    def the_study_is_as_the_model(self):
        if not hasattr(self, "study"):
            return
        model, status = self.model, self.study.status()
        assert (status.stopped, status.reason, status.decision) == (model.stopped, model.reason, model.decision)
        told = self.study.observations()
        fields = "arm", "reward", "cost", "failed", "late"
        assert [(int(each["pull"].partition("-")[2]), *map(each.get, fields)) for each in told] == model.log
        assert status.spent == model.spent
        assert status.under_way == len(self.model.under_way)
        for arm in status.arms:  # the sums are those of the log
            rewards, paid, failures = model.of(arm.name)
            assert (arm.pulls + arm.waiting, arm.spent, arm.failures) == (len(rewards), paid, failures)
            rewards = model.of(arm.name, counted=True)[0]
            assert arm.pulls == len(rewards)
            assert arm.mean == (sum(rewards) / len(rewards) if rewards else None)
            assert arm.under_way == sum(pull["arm"] == arm.name for pull in self.model.under_way.values())
        assert [each["counted"] for each in told] == [entry[0] in model.counted for entry in model.log]
        assert status.late == sum(entry[5] for entry in model.log)
        if self.decided is not None:  # what was decided stays decided
            assert (status.stopped, status.decision, status.reason, status.leader, status.confidence) == self.decided
        if status.stopped:
            self.decided = (status.stopped, status.decision, status.reason, status.leader, status.confidence)
        elif model.means():
            assert status.leader == model.leader()


LIMITS = [(None, None), (8, None), (25, None), (None, 10), (None, 30), (25, 30), (1, 1)]


@pytest.mark.filterwarnings("ignore::cabai.FailedPulls")
@pytest.mark.parametrize("limits", LIMITS, ids=str)
@pytest.mark.parametrize(("examples", "steps"), [(3, 30), pytest.param(45, 60, marks=pytest.mark.slow)])
def test_any_sequence_of_operations_leaves_the_study_as_the_model(limits, examples, steps):
    checks = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
    quiet = {"deadline": None, "derandomize": True, "database": None, "suppress_health_check": checks}
    about = settings(max_examples=examples, stateful_step_count=steps, **quiet)
    run_machine_as_test(type("Limited", (StudyMachine,), {"limits": limits}), settings=about)
