"""A certificate's file is accepted wherever a threshold is; with an epsilon, only for that epsilon."""

from __future__ import annotations

import json

import numpy as np
import pytest

import cabai
from cabai.calibration import calibrate
from cabai.calibration.instances import hard_instances, set_apart, some_within
from cabai.families import FAMILIES, family_of
from cabai.simulation.sums import right_arms
from shell import here
from storages import close

OPTIONS = {"delta": 0.2, "max_pulls": 100, "trajectories": 200}


@pytest.fixture(scope="module")
def certificate():
    return calibrate("gaussian", [1, 0.1], "co", **OPTIONS)


@pytest.fixture(scope="module")
def with_epsilon():
    return calibrate("gaussian(variance=4)", [1, 0.1], "co", epsilon=1, **OPTIONS)


@pytest.fixture
def files(certificate, with_epsilon, tmp_path):
    certificate.save(tmp_path / "trial.json")
    with_epsilon.save(tmp_path / "close.json")
    yield tmp_path
    close(str(tmp_path))


STUDY = {"arms": ["a", "b"], "family": "gaussian(variance=1)", "policy": "co", "delta": 0.2}


def test_python_takes_a_file(files, certificate):
    path, instance = str(files / "trial.json"), cabai.Instance("gaussian", [1, 0], [1, 0.1])
    runs = cabai.simulate(instance, "co", threshold=path, delta=0.2, max_pulls=100, trajectories=20)
    assert str(runs.threshold) == certificate.threshold
    found = cabai.compare(instance, ["co"], threshold=path, delta=0.2, max_pulls=100, trajectories=20)
    assert found.to_dicts()[0]["threshold"] == certificate.threshold
    study = cabai.create_study("a file", **STUDY, threshold=path, storage="memory")
    assert str(study.settings.threshold) == certificate.threshold
    (files / "trial.json").unlink()  # the study has what it says
    assert cabai.load_study("a file", storage="memory").status().threshold == certificate.threshold


def test_the_shell_takes_a_file_for_studies_too(files, certificate):
    options = ["--arms", "a,b", "--family", "gaussian(variance=1)", "--policy", "co", "--delta", "0.2"]
    done = here("study", "create", "x", *options, "--threshold", "trial.json", cwd=files)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(here("study", "status", "x", "--json", cwd=files).stdout)["threshold"] == certificate.threshold
    again = here("study", "create", "x", *options, "--threshold", "trial.json", "--load-if-exists", cwd=files)
    assert again.returncode == 0
    refused = here("study", "create", "y", *options[:-1], "0.1", "--threshold", "trial.json", cwd=files)
    assert refused.stderr.startswith("cabai: the threshold is certified for delta 0.2, got 0.1")
    options[3] = "gaussian"
    refused = here("study", "create", "y", *options, "--threshold", "trial.json", cwd=files)
    assert refused.stderr.startswith("cabai: the threshold is certified for family gaussian, got gaussian(")
    assert "name a variance" in refused.stderr


def test_a_study_file_finds_it_beside_itself(files, certificate):
    text = 'family = "gaussian(variance=1)"\npolicy = "co"\ndelta = 0.2\nthreshold = "trial.json"\narms = ["a", "b"]\n'
    (files / "study.toml").write_text(text + 'command = "echo \'{\\"reward\\": 0, \\"cost\\": 1}\'"\nmax_pulls = 2\n')
    shown = json.loads(here("run", str(files / "study.toml"), "--json", cwd="/").stdout)
    assert shown["threshold"] == certificate.threshold
    (files / "study.toml").write_text(text.replace("trial", "other") + 'command = "true"\n')
    refused = here("run", "study.toml", cwd=files).stderr
    assert refused.startswith("cabai: study.toml: cannot read ")
    assert refused.count("\n") == 1


def test_a_server_gets_the_threshold_and_opens_no_file(files, certificate, serve, monkeypatch):
    monkeypatch.chdir(files)
    server = serve(f"sqlite:///{files}/cabai.db")
    study = cabai.create_study("over HTTP", **STUDY, threshold="trial.json", storage=server.address)
    assert str(study.settings.threshold) == certificate.threshold
    body = {"name": "y", **STUDY, "threshold": "trial.json"}
    code, _, problem = server.send("POST", "/api/studies", body)
    assert (code, "and opens no file" in json.dumps(problem)) == (422, True)


def test_another_file_is_refused(tmp_path):
    path = tmp_path / "other.json"
    for content, message in (
        (None, "cannot read .*other.json: No such file"),
        ("{", "is not a certificate"),
        ("[]", "is not a certificate"),
        ('{"threshold": "calibrated(c=3)"}', "is not a certificate"),
        ('{"threshold": "paper"}', "its threshold is paper"),
        ('{"threshold": 5}', "threshold must be a name"),
    ):
        if content is not None:
            path.write_text(content)
        with pytest.raises(cabai.InvalidInput, match=message):
            cabai.create_study("refused", **STUDY, threshold=str(path), storage="memory")
        if message.startswith(("cannot", "is not")):
            with pytest.raises(cabai.InvalidInput, match=message):
                cabai.Certificate.load(path)


def test_a_certificate_with_an_epsilon_is_for_that_epsilon(files, with_epsilon):
    path = str(files / "close.json")
    assert "epsilon=0.5)" in with_epsilon.threshold  # standard deviations, of which there are 2 in 1
    assert cabai.Certificate.load(path) == with_epsilon
    assert "worse than the best by more than 0.5 standard deviations is returned" in repr(with_epsilon)
    assert all(each.upper_limit <= 0.2 for each in with_epsilon.searched)
    given = STUDY | {"threshold": path, "storage": "memory"}
    for number, (variance, epsilon) in enumerate([(4, 1.0), (1, 0.5)]):
        study = cabai.create_study(
            f"close {number}", **given | {"family": f"gaussian(variance={variance})"}, epsilon=epsilon
        )
        assert study.settings.is_certified
    for variance, epsilon in [(4, 0.5), (4, 2.0), (1, 1.0)]:
        with pytest.raises(cabai.InvalidInput, match=r"the threshold is certified for epsilon .* got"):
            cabai.create_study("no", **given | {"family": f"gaussian(variance={variance})"}, epsilon=epsilon)
    with pytest.raises(cabai.InvalidInput, match=r"certified for epsilon 0\.5 of gaussian rewards, got 0\.0"):
        cabai.create_study("no", **given)
    given |= {"threshold": str(files / "trial.json")}
    with pytest.raises(cabai.InvalidInput, match=r"certified without an epsilon, got epsilon=0\.1; cabai"):
        cabai.create_study("no", **given, epsilon=0.1)


@pytest.mark.parametrize("family", FAMILIES.names)
@pytest.mark.parametrize("epsilon", [0.02, 0.1, 0.4])
def test_on_what_is_searched_no_other_arm_is_good_enough(family, epsilon):
    """But just not: the nearest is worse by epsilon and next to nothing, in most."""
    found = set_apart(hard_instances(family_of(family), [1, 0.1, 0.01], 0.05, 1000, "fixed"), epsilon)
    assert len({each.what for each in found}) == len(found) >= 3
    for each in found:
        assert right_arms(each.instance, epsilon).tolist() == [2]
    nearest = [np.sort(each.instance.means)[-1] - np.sort(each.instance.means)[-2] for each in found]
    assert sum(abs(gap - epsilon) < 1e-6 * max(1.0, epsilon) for gap in nearest) >= len(found) / 2
    [half] = some_within(found[:1], epsilon)
    assert right_arms(half.instance, epsilon).tolist() == [0, 2]
