"""Two made-up models for models.toml: does one of them answer a question right, and what does that cost?"""

from __future__ import annotations

import random

MODELS = {"small": (0.6, 0.01), "large": (0.9, 0.1)}  # how often it is right, and what a call costs


def score(model: str, question: dict[str, str]) -> tuple[bool, float]:
    """Really: call the model, and compare what it says with question["answer"]."""
    skill, cost = MODELS[model]
    return random.Random(model + question["id"]).random() < skill, cost
