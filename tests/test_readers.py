"""Logs of Inspect and of lm-evaluation-harness, in the formats that these write, as tables of scores."""

from __future__ import annotations

import datetime
import io
import json
import math
import re
import struct
import zipfile
import zlib
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from cabai.datasets import read_inspect, read_lm_eval, read_table
from cabai.support.validation import InvalidInput
from shell import here, refused

ANSWERS = {"openai/large": "CCCP", "openai/small": "CIIN"}


def sample(name: object, scores: dict[str, object], epoch: int = 1, **more: object) -> dict[str, object]:
    """A sample in short, as in summaries.json."""
    return {
        "id": name, "epoch": epoch, "input": "?", "target": "yes", "metadata": {}, "model_usage": {},
        "scores": {scorer: {"value": value, "history": []} for scorer, value in scores.items()},
        "completed": True, **more,
    }  # fmt: skip


def about(model: str, **more: object) -> dict[str, object]:
    section = {"task": "riddles", "model": model, "task_args": {}, "config": {"epochs": 1}, **more}
    return {"version": 2, "status": "success", "eval": section, "plan": {}, "stats": {}}


def write_zip(path: Path, members: dict[str, object]) -> Path:
    """A zip file compressed with Zstandard (method 93), which Python's own module cannot write before 3.14."""
    body, directory = b"", b""
    for name, content in members.items():
        data = json.dumps(content).encode()
        packed = pyarrow.Codec("zstd").compress(data, asbytes=True)
        common = struct.pack("<HHHHIIIHH", 0, 93, 0, 33, zlib.crc32(data), len(packed), len(data), len(name), 0)
        directory += b"PK\1\2" + struct.pack("<HH", 63, 63) + common + struct.pack("<HHHII", 0, 0, 0, 0, len(body))
        directory += name.encode()
        body += b"PK\3\4" + struct.pack("<H", 63) + common + name.encode() + packed
    end = b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, len(members), len(members), len(directory), len(body), 0)
    path.write_bytes(body + directory + end)
    return path


def write_eval(path: Path, header: dict[str, object], samples: list[dict[str, object]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    start = {"_journal/start.json": header, "_journal/summaries/1.json": samples}
    return write_zip(path, {**start, "summaries.json": samples, "header.json": header})


@pytest.fixture
def logs(tmp_path):
    """A folder with a log of each model."""
    for model, answers in ANSWERS.items():
        samples = [sample(f"q{i}", {"match": grade}) for i, grade in enumerate(answers)]
        write_eval(tmp_path / "logs" / f"{model[7:]}.eval", about(model), samples)
    return tmp_path / "logs"


def test_grades_become_numbers(logs):
    table = read_inspect(logs)
    assert table.arms == ("openai/large", "openai/small")
    assert table.items == ("q0", "q1", "q2", "q3")
    assert table.scores.tolist() == [[1, 1, 1, 0.5], [1, 0, 0, 0]]
    assert table.costs is None


def test_every_way_in_which_inspect_writes_a_log_says_the_same(tmp_path):
    header, samples = about("m"), [sample(i, {"match": grade}) for i, grade in enumerate("CIPN")]
    in_full = [{**each, "messages": [], "output": {}, "events": []} for each in samples]
    other = write_eval(tmp_path / "other.eval", about("other"), samples)
    (tmp_path / "whole.json").write_text(json.dumps({**header, "samples": in_full}))
    write_zip(tmp_path / "killed.eval", {
        "_journal/start.json": header, "_journal/summaries/2.json": samples[2:],
        "_journal/summaries/1.json": [sample(0, {}, error="boom"), *samples[:2]],  # the second try counts
    })  # fmt: skip
    write_zip(tmp_path / "full.eval", {
        "header.json": header, **{f"samples/{each['id']}_epoch_1.json": each for each in in_full}
    })  # fmt: skip
    with zipfile.ZipFile(tmp_path / "old.eval", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("start.json", json.dumps(header))
        file.writestr("summary.json", json.dumps(samples))
    for name in ("whole.json", "killed.eval", "full.eval", "old.eval"):
        table = read_inspect(tmp_path / name, other)
        assert dict(zip(table.items, table.scores[0], strict=True)) == {"0": 1, "1": 0, "2": 0.5, "3": 0}, name


def test_other_values_of_a_score(tmp_path):
    values = {True: 1, 0.25: 0.25, "0.5": 0.5, "Yes": 1, "false": 0, math.nan: np.nan, None: np.nan}
    for model in "ab":
        samples = [sample(f"q{i}", {"s": value}) for i, value in enumerate(values)]
        write_eval(tmp_path / f"{model}.eval", about(model), [*samples, sample("r", {"s": 1})])
    np.testing.assert_equal(read_inspect(tmp_path).scores[0, :-1], [*values.values()])


def test_one_of_several_scorers_must_be_chosen(tmp_path):
    for model in "ab":
        scores = {"match": "C", "judge": {"tone": 0.2, "fact": 1}}
        write_eval(tmp_path / f"{model}.eval", about(model), [sample("q", scores)])
    with pytest.raises(InvalidInput, match=r"several scores: match; judge.tone; judge.fact. Choose one: scorer='match"):
        read_inspect(tmp_path)
    assert read_inspect(tmp_path, scorer="judge.tone").scores.tolist() == [[0.2], [0.2]]
    with pytest.raises(InvalidInput, match=r"has no score 'taste'; it has match; judge.tone; judge.fact"):
        read_inspect(tmp_path, scorer="taste")


def test_epochs_are_averaged_or_items_of_their_own(tmp_path):
    for model, grades in (("a", "CICC"), ("b", "IICC")):
        samples = [sample(f"q{i // 2}", {"match": grade}, epoch=1 + i % 2) for i, grade in enumerate(grades)]
        if model == "b":
            samples[-1] = sample("q1", {}, epoch=2, error="boom")
        write_eval(tmp_path / f"{model}.eval", about(model, config={"epochs": 2}), samples)
    np.testing.assert_equal(read_inspect(tmp_path).scores, [[0.5, 1], [0, np.nan]])
    table = read_inspect(tmp_path, epochs="items")
    assert table.items == ("q0#1", "q0#2", "q1#1", "q1#2")
    np.testing.assert_equal(table.scores, [[1, 0, 1, 1], [0, 0, 1, np.nan]])
    with pytest.raises(InvalidInput, match="epochs must be one of mean, items, got 'best'"):
        read_inspect(tmp_path, epochs="best")


def test_a_second_try_brings_its_copies_along_and_other_doubles_are_refused(tmp_path, logs):
    """`inspect eval-retry` writes a new log, with the samples that had been finished under their old uuid."""
    failed = [sample("q0", {"match": "C"}, uuid="u0"), sample("q1", {}, uuid="u1", error="boom")]
    again = [failed[0], sample("q1", {"match": "I"}, uuid="u2")]
    first = write_eval(tmp_path / "1.eval", about("m"), failed)
    second = write_eval(tmp_path / "2.eval", about("m"), again)
    table = read_inspect(first, second, logs)
    assert table.scores[table.arms.index("m")].tolist()[:2] == [1, 0]
    write_eval(second, about("m"), [sample("q0", {"match": "I"}, uuid="u3")])
    with pytest.raises(InvalidInput, match=r"arm 'm' has a score on item 'q0' in .*1.eval and .*2.eval: which one"):
        read_inspect(first, second, logs)


def test_arms_may_be_named_by_another_field_and_items_by_their_task(tmp_path):
    for prompt in ("short", "long"):
        for task in ("sums", "riddles"):
            header = about("m", task=task, task_args={"prompt": prompt})
            write_eval(tmp_path / f"{prompt}-{task}.eval", header, [sample(1, {"match": "C"})])
    table = read_inspect(tmp_path, arm="task_args.prompt")
    assert (sorted(table.arms), sorted(table.items)) == (["long", "short"], ["riddles/1", "sums/1"])
    with pytest.raises(InvalidInput, match="has no field 'solver' in its section 'eval'"):
        read_inspect(tmp_path, arm="solver")


def test_costs_that_logs_tell_are_kept(tmp_path):
    usage = {"m": {"input_tokens": 10, "total_cost": 0.5}, "judge": {"total_cost": 0.25}}
    for model in "ab":
        write_eval(tmp_path / f"{model}.eval", about(model), [sample("q", {"match": "C"}, model_usage=usage)])
    assert read_inspect(tmp_path).costs.tolist() == [[0.75], [0.75]]


def test_what_is_not_a_log_of_inspect_a_damaged_zip_and_odd_values_are_refused(tmp_path, logs):
    for content in ("{}", "[1]", "not JSON", '{"eval": {"model": "m"}, "samples": [{}]}'):
        (tmp_path / "x.json").write_text(content)
        with pytest.raises(InvalidInput, match=r"x.json is not a log of Inspect, or is damaged"):
            read_inspect(tmp_path / "x.json")
    path = logs / "large.eval"
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(InvalidInput, match=r"large.eval is not a log of Inspect, or is damaged"):
        read_inspect(logs)
    for more, message in (
        ({"scores": {"match": {"value": "good"}}}, "score 'match' must be a number or one of C, P, I, N"),
        ({"epoch": "two"}, "epoch must be a whole number, 1 or more, got 'two'"),
        ({"scores": [1]}, r"scores must have a name and a value each, got \[1\]"),
        ({"scores": {"match": {"explanation": ""}}}, "scores must have a name and a value each"),
        ({"model_usage": {"m": {"total_cost": "free"}}}, "each model's usage must have a number"),
    ):
        (tmp_path / "x.json").write_text(json.dumps({**about("m"), "samples": [sample("q", {"match": 1}) | more]}))
        with pytest.raises(InvalidInput, match=f"x.json, sample 'q': {message}"):
            read_inspect(tmp_path / "x.json")


def lm_eval_sample(doc: int, filtered: str = "none", **metrics: object) -> dict[str, object]:
    return {
        "doc_id": doc, "doc": {"question": "?"}, "target": "4", "arguments": {"gen_args_0": {"arg_0": "?"}},
        "resps": [["4"]], "filtered_resps": ["4"], "filter": filtered, "metrics": list(metrics), "doc_hash": "a",
        "prompt_hash": "b", "target_hash": "c", **metrics,
    }  # fmt: skip


def write_samples(folder: Path, task: str, samples: list[dict[str, object]], model_name: str | None = None) -> Path:
    """As `lm_eval --log_samples --output_path` does, with the file of results beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    date = "2025-03-01T10-20-30.123456"
    path = folder / f"samples_{task}_{date}.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in samples))
    if model_name is not None:
        (folder / f"results_{date}.json").write_text(json.dumps({"results": {}, "model_name": model_name}))
    return path


def test_samples_of_lm_evaluation_harness(tmp_path):
    write_samples(tmp_path / "org__large", "arc_easy", [lm_eval_sample(i, acc=1.0) for i in (0, 1)], "org/large")
    write_samples(tmp_path / "org__small", "arc_easy", [lm_eval_sample(i, acc=i) for i in (1, 0)])
    table = read_lm_eval(tmp_path)
    assert (table.arms, table.items) == (("org/large", "org__small"), ("0", "1"))
    assert table.scores.tolist() == [[1, 1], [0, 1]]
    write_samples(tmp_path / "org__small", "boolq", [lm_eval_sample(0, acc=True)])
    assert read_lm_eval(tmp_path).items == ("arc_easy/0", "arc_easy/1", "boolq/0")


def test_one_of_several_metrics_and_filters_must_be_chosen(tmp_path):
    """gsm8k logs each document once for each filter; an older harness does not list its metrics."""
    both = [lm_eval_sample(0, "strict-match", exact_match=0.0), lm_eval_sample(0, "flexible-extract", exact_match=1.0)]
    old = {"doc_id": 7, "doc": {}, "target": "x", "arguments": [], "resps": [], "filtered_resps": [], "acc": 1.0}
    for model in "ab":
        several = [lm_eval_sample(0, acc=0.0, acc_norm=1.0, perplexity=[-3.5, 7])]
        for task, samples in (("hellaswag", several), ("gsm8k", both), ("piqa", [old])):
            write_samples(tmp_path / task / model, task, samples)
    with pytest.raises(InvalidInput, match=r"has several metrics: acc; acc_norm. Choose one: metric='acc'"):
        read_lm_eval(tmp_path / "hellaswag")
    assert read_lm_eval(tmp_path / "hellaswag", metric="acc_norm,none").scores.tolist() == [[1], [1]]
    with pytest.raises(InvalidInput, match="has no metric 'f1'; it has acc; acc_norm"):
        read_lm_eval(tmp_path / "hellaswag", metric="f1")
    with pytest.raises(InvalidInput, match=r"metrics: exact_match,strict-match; exact_match,flexible-extract. Choose"):
        read_lm_eval(tmp_path / "gsm8k")
    assert read_lm_eval(tmp_path / "gsm8k", metric="exact_match,flexible-extract").scores.tolist() == [[1], [1]]
    assert read_lm_eval(tmp_path / "piqa").scores.tolist() == [[1], [1]]


def test_logs_are_known_by_their_ending_and_options_for_others_are_refused(tmp_path, logs):
    assert read_table(logs).arms == read_table(sorted(logs.iterdir())).arms == ("openai/large", "openai/small")
    renamed = (logs / "large.eval").rename(logs / "large.log")
    assert read_table([renamed, logs / "small.eval"]).scores.shape == (2, 4)
    (tmp_path / "table.csv").write_text("a,b\n1,0\n")
    with pytest.raises(InvalidInput, match="scorer is only for logs of Inspect, which this is not"):
        read_table(tmp_path / "table.csv", scorer="match")
    with pytest.raises(InvalidInput, match="several paths must all be logs"):
        read_table([tmp_path / "table.csv", tmp_path / "table.csv"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidInput, match="has no logs: neither of Inspect"):
        read_table(tmp_path / "empty")


def test_the_shell_replays_logs(logs, tmp_path):
    paths = sorted(map(str, logs.iterdir()))
    for arguments in ([str(logs)], paths, [*paths, "--scorer", "match"]):
        fields = json.loads(here("replay", *arguments, "--repeats", "2", "--json").stdout)
        assert (fields["arms"], fields["items"]) == (["openai/large", "openai/small"], 4)
    said = refused("replay", str(logs), "--metric", "acc")
    assert said == "cabai: metric is only for logs of lm-evaluation-harness, which this is not.\n"
    for model, acc in (("m1", 1.0), ("m2", 0.0)):
        write_samples(tmp_path / "out" / model, "piqa", [lm_eval_sample(i, acc=acc) for i in range(3)])
    assert json.loads(here("replay", str(tmp_path / "out"), "--repeats", "2", "--json").stdout)["same_winner"] == 1


ODD = [
    None, True, -1, 0, 1.5, 2**70, "", "x", "\ud800", [], [1], [[]], {}, {"value": []}, {"value": {}}, {"x": 1},
    math.nan, math.inf, "9" * 5000,
]  # fmt: skip


def with_odd_values(value, rng):
    """A copy of a JSON value in which one of its parts is replaced by something else, taken away, or nested deep."""
    parts = []

    def walk(inside):
        for key in inside if isinstance(inside, dict) else range(len(inside)):
            parts.append((inside, key))
            if isinstance(inside[key], (dict, list)):
                walk(inside[key])

    copy = json.loads(json.dumps(value))
    walk(copy)
    inside, key = parts[rng.integers(len(parts))]
    if rng.random() < 0.1:
        del inside[key]
    else:
        inside[key] = ODD[rng.integers(len(ODD))]
    return copy


def with_other_bytes(content, rng):
    """Bytes of which some are changed, or the end or a piece is missing."""
    found, at = bytearray(content), int(rng.integers(len(content)))
    kind = rng.integers(4)
    if kind == 0:
        return bytes(found[:at])
    if kind == 1:
        del found[at : at + int(rng.integers(1, 30))]
        return bytes(found)
    for _ in range(1 if kind == 2 else 20):
        found[int(rng.integers(len(found)))] = int(rng.integers(256))
    return bytes(found)


def deflated(members):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in members.items():
            packed.writestr(name, json.dumps(content))
    return file.getvalue()


def broken_inspect(folder, rng):
    header = about("m", config={"epochs": 2})
    usage = {"m": {"total_cost": 0.1}}
    samples = [sample(i, {"match": "C", "judge": 0.5}, epoch, model_usage=usage) for i in (1, 2) for epoch in (1, 2)]
    kind, path = rng.integers(4), folder / "log.eval"
    if kind == 0:
        whole = with_odd_values({**header, "samples": samples}, rng)
        path = folder / "log.json"
        path.write_text(json.dumps(whole))
    elif kind == 1:
        path.write_bytes(deflated(with_odd_values({"header.json": header, "summaries.json": samples}, rng)))
    elif kind == 2:
        path.write_bytes(with_other_bytes(deflated({"header.json": header, "summaries.json": samples}), rng))
    else:
        path.write_bytes(with_other_bytes(write_eval(folder / "zstd.eval", header, samples).read_bytes(), rng))
    good = folder / "good.json"
    good.write_text(json.dumps({**about("good", config={"epochs": 2}), "samples": samples}))
    return read_table([path, good], scorer="match")


def broken_lm_eval(folder, rng):
    samples = [lm_eval_sample(i, "none", acc=1.0) for i in range(3)]
    for model in "ab":
        write_samples(folder / model, "piqa", with_odd_values(samples, rng) if rng.random() < 0.7 else samples)
    path = next((folder / "a").glob("*.jsonl"))
    if rng.random() < 0.4:
        path.write_bytes(with_other_bytes(path.read_bytes(), rng))
    return read_table(folder)


def broken_parquet(folder, rng):
    columns = {"arm": ["a", "a", "b", "b"], "item": [1, 2, 1, 2], "score": [0.0, 1.0, 0.5, 0.25]}
    if rng.random() < 0.3:
        odd = [
            [b"\xff", b"a", b"b", b"c"], [[1], [2], [1], [2]], [{"x": 1}] * 4, [True] * 4, [None] * 4,
            [datetime.datetime.max] * 4, [Decimal("0.5")] * 4, [datetime.timedelta(1)] * 4,
        ]  # fmt: skip
        columns[str(rng.choice([*columns]))] = odd[rng.integers(len(odd))]
    file = folder / "scores.parquet"
    pyarrow.parquet.write_table(pyarrow.table(columns), file, compression=str(rng.choice(["none", "zstd", "snappy"])))
    if rng.random() < 0.8:
        file.write_bytes(b"PAR1" + with_other_bytes(file.read_bytes(), rng)[4:])
    return read_table(file)


@pytest.mark.parametrize("times", [150, pytest.param(5000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("broken", [broken_inspect, broken_lm_eval, broken_parquet])
def test_a_broken_file_is_read_or_refused_in_one_line(broken, times, tmp_path):
    """Nothing else is raised: the shell would call it a bug in cabai."""
    refused = []
    for number in range(times):
        folder = tmp_path / str(number)
        folder.mkdir()
        try:
            broken(folder, np.random.default_rng(number))
        except InvalidInput as error:
            refused.append(str(error))
    assert times > len(refused) > times / 4
    assert max(map(len, refused)) < 1500
    assert not any("\n" in message for message in refused)


def with_method(content, method, encrypted=False):
    """A zip file whose members claim to be compressed in another way, or encrypted."""
    found = bytearray(content)
    for mark, at in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        for place in (each.start() for each in re.finditer(re.escape(mark), content)):
            struct.pack_into("<HH", found, place + at, int(encrypted), method)
    return bytes(found)


PACKED = deflated({"header.json": about("m"), "summaries.json": [sample("q", {"match": "C"})]})
WRONG = {
    "corrupt.eval": PACKED[:60] + bytes(40) + PACKED[100:], "unknown compression.eval": with_method(PACKED, 77),
    "zstandard.eval": with_method(PACKED, 93), "encrypted.eval": with_method(PACKED, 8, encrypted=True),
    "deep.json": b"[" * 100_000 + b"]" * 100_000, "deep.jsonl": b"[" * 100_000 + b"]" * 100_000,
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_unpacked_is_one_line_in_the_shell(name, tmp_path):
    (tmp_path / name).write_bytes(WRONG[name])
    said = refused("replay", str(tmp_path / name))
    assert re.search("is not a log of Inspect, or is damaged|line 1: it is not a sample|cannot read .*: ", said)


def test_a_model_that_was_run_twice_and_odd_lines_are_refused(tmp_path):
    good = lm_eval_sample(0, acc=1.0)
    path = write_samples(tmp_path / "a", "piqa", [good])
    (tmp_path / "a" / "samples_piqa_2025-04-01T10-20-30.5.jsonl").write_bytes(path.read_bytes())
    with pytest.raises(InvalidInput, match=r"arm 'a' has a score on item '0' in .* Give the files that you mean"):
        read_lm_eval(tmp_path)
    odd = {"filter": ["none"]}, {"metrics": 5}, {"metrics": [["acc"]]}
    for line in ({"question": "?"}, *(lm_eval_sample(1, acc=1.0) | each for each in odd)):
        path = write_samples(tmp_path, "piqa", [good, line])
        with pytest.raises(
            InvalidInput, match=r"\.jsonl, line 2: (it is not a sample|\w+ must be (a name|names), got)"
        ):
            read_lm_eval(path)
