"""A provider and a task for Inspect without any network: `fake/NAME-SKILL[-MILLISECONDS[-PERCENT THAT RAISE]]`.

A model named `held` answers when the file $FAKE_GO exists."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections import Counter

from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import GenerateConfig, ModelAPI, ModelOutput, ModelUsage, get_model, modelapi
from inspect_ai.scorer import Score, accuracy, includes, match, mean, scorer
from inspect_ai.solver import generate

CALLS: Counter = Counter()  # by model and question


def unit(text):
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big") / 2**48


class Fake(ModelAPI):
    def __init__(self, model_name, base_url=None, api_key=None, config=GenerateConfig(), **_):  # noqa: B008
        super().__init__(model_name, base_url, api_key, [], config)
        _, skill, delay, bad = [*model_name.split("-"), "0", "0"][:4]
        self.skill, self.delay, self.bad = float(skill) / 100, float(delay) / 1000, float(bad) / 100

    async def generate(self, input, tools, tool_choice, config):
        question = input[-1].text
        CALLS[self.model_name, question] += 1
        if os.environ.get("FAKE_CALLS"):  # where another process counts them
            with open(os.environ["FAKE_CALLS"], "a") as file:
                file.write(f"{self.model_name} {question}\n")
        await asyncio.sleep(self.delay)
        while self.model_name.startswith("held-") and not os.path.exists(os.environ["FAKE_GO"]):
            await asyncio.sleep(0.02)
        if unit(f"bad {self.model_name} {question}") < self.bad:
            raise RuntimeError("provider says no")
        is_right = 0.6 * unit(question) + 0.4 * unit(self.model_name + question) < self.skill
        output = ModelOutput.from_content(self.model_name, question.split()[-1] if is_right else "wrong")
        output.usage = ModelUsage(input_tokens=100, output_tokens=10, total_tokens=110, input_tokens_cache_read=1000)
        return output


@modelapi("fake")
def fake():
    return Fake


def dataset(count, prefix="q"):
    return MemoryDataset([Sample(id=f"{prefix}{i}", input=f"what is {i}? {i}", target=str(i)) for i in range(count)])


@scorer(metrics={"right": [mean()], "nan": [mean()]})
def keyed():
    async def score(state, target):
        return Score(value={"right": float(target.text in state.output.completion), "nan": float("nan")})

    return score


@scorer(metrics=[accuracy()])
def judged(judge="fake/judge-100"):
    """By another model, which is paid too."""

    async def score(state, target):
        await get_model(judge).generate(f"is it right? {target.text}")
        return Score(value="C" if target.text in state.output.completion else "I")

    return score


SCORERS = {"match": [match()], "two": [match(), includes()], "keyed": [keyed()], "judged": [judged()]}


@task
def sums(count=300, by="match", epochs=1):
    return Task(dataset=dataset(count), solver=generate(), scorer=SCORERS[by], epochs=epochs)
