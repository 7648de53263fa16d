"""The laws that bounded rewards are drawn from, and the range that they lie in."""

from __future__ import annotations

import numpy as np
import pytest

import cabai
from cabai import Instance, Statistics
from cabai.core.compiling import compiled
from cabai.core.state import Record
from cabai.families import Bounded
from cabai.simulation.truth import open_streams, truth_of
from cabai.support.validation import InvalidInput
from studies import new

SAMPLES = [[0.1, 0.4, 0.7], [0.5, 0.2], [0.9] * 70]


def instances():
    for law, sd in [
        ("uniform", None), ("uniform", 0.05), ("two-point", None), ("two-point", 0.2), ("beta", 0.05), ("beta", 0.4),
        ("beta", [0.02, 0.3]),
    ]:  # fmt: skip
        yield Instance("bounded", [0.3, 0.55], [1, 1], law=law, sd=sd)
    yield Instance("bounded(low=-2, high=4)", [1, 3], [1, 1], law="beta", sd=0.5)
    yield Instance.of_samples("bounded", SAMPLES, [1, 1, 1])


@pytest.mark.parametrize("instance", list(instances()), ids=str)
def test_what_is_drawn_has_the_mean_and_the_spread_asked_for(instance):
    """As in plain Python; and 20 000 draws of each arm: a mean is off by 5 standard errors once in a million."""
    count = 20_000
    truth = truth_of(instance)
    compiled(open_streams)(truth, np.uint64(1), np.uint64(2))
    draw, plain = compiled(instance.drawing), truth.copy()
    for a in range(len(instance)):
        with np.errstate(over="ignore"):
            expected = [instance.drawing(Record(plain[a])) for _ in range(500)]
        assert [draw(truth[a]) for _ in range(500)] == pytest.approx(expected, rel=1e-12)
        drawn = np.array([instance.family.unscaled(draw(truth[a])) for _ in range(count)])
        low, high = instance.family.mean_range
        assert low <= drawn.min() <= drawn.max() <= high
        if instance.samples is not None:
            assert set(drawn) == set(instance.samples[a])
            sd = float(np.std(instance.samples[a]))
        else:
            sd = float(instance.sd[a])
        assert drawn.mean() == pytest.approx(instance.means[a], abs=5.1 * sd / count**0.5 + 1e-12)
        fourth = ((drawn - drawn.mean()) ** 4).mean()
        error = np.sqrt(max(fourth - drawn.var() ** 2, 0) / count)
        assert drawn.var() == pytest.approx(sd * sd, abs=6 * error + 1e-12 + 2 * sd * sd / count)


def test_a_study_shows_a_range_in_the_units_of_its_rewards():
    usual = {"arms": ["a", "b"], "family": "bounded(low=10, high=20)", "costs": [1, 1]}
    for direction, best in (("maximize", "a"), ("minimize", "b")):
        status = new(**usual, epsilon=0.5, direction=direction).run(lambda arm: 18 if arm == "a" else 13)
        assert status.decision == best
        assert [arm.mean for arm in status.arms] == pytest.approx([18, 13])
        assert all(10 <= arm.low <= arm.mean <= arm.high <= 20 for arm in status.arms)
        assert status.family == "bounded(low=10, high=20)"
    study = new(**usual)
    with pytest.raises(InvalidInput, match=r"reward must be in \[10, 20\] for the bounded family, got 21"):
        study.tell(study.ask(), reward=21)


def test_what_a_range_refuses():
    for low, high in ((1, 1), (2, 1), (float("nan"), 1), (1e9, 1e9 + 1e-6)):
        with pytest.raises(InvalidInput, match=r"low|high"):
            Bounded(low=low, high=high)
    family = Bounded(low=-1, high=3)
    with pytest.raises(InvalidInput, match=r"epsilon must be in \[0, 4\)"):
        family.check_epsilon(4)
    with pytest.raises(InvalidInput, match=r"means\[0\] must be in \[-1, 3\]"):
        Instance(family, [3.5, 1], [1, 1])
    assert str(family) == "bounded(low=-1, high=3)"
    assert str(Bounded()) == "bounded"
    assert family.interval(1, 0.1) == pytest.approx([4 * end - 1 for end in Bounded().interval(0.5, 0.1)])
    assert family.divergence(1, 2) == Bounded().divergence(0.5, 0.75)
    wide, plain = Statistics(family, [10, 10], [20, 0]), Statistics("bounded", [10, 10], [7.5, 2.5])
    assert cabai.evidence(wide).overall == pytest.approx(cabai.evidence(plain).overall)
    assert cabai.thresholds.EValue().required(wide, 0, 1, delta=0.1) == pytest.approx(
        cabai.thresholds.EValue().required(plain, 0, 1, delta=0.1)
    )


@pytest.mark.parametrize(("options", "match"), [
    ({"law": "gamma"}, "unknown law 'gamma'; known: uniform, two-point, beta"),
    ({"sd": 0.1}, "unknown law None"),
    ({"law": "uniform", "sd": 0.4}, r"sd\[0\] must be from 0 to 0.173"),
    ({"law": "beta", "sd": 0}, "needs a positive one"),
    ({"law": "beta", "sd": [0.1, 0.1, 0.1]}, "one for each of 2 arms, got 3"),
    ({"law": "beta", "family": "bernoulli"}, "law and sd are only for bounded rewards"),
])  # fmt: skip
def test_what_a_law_refuses(options, match):
    with pytest.raises(InvalidInput, match=match):
        Instance(**{"family": "bounded", "means": [0.3, 0.55], "costs": [1, 1]} | options)


def test_what_samples_refuse():
    for family, message in (
        ("bounded", r"samples\[1\]\[0\] must be in \[0, 1\]"), ("gaussian", "samples are only for bounded rewards"),
    ):  # fmt: skip
        with pytest.raises(InvalidInput, match=message):
            Instance.of_samples(family, [[0.5], [1.5]], [1, 1])
    one, other = (Instance.of_samples("bounded", [[0.5, x], [0.5]], [1, 1]) for x in (0.1, 0.2))
    assert one != other
