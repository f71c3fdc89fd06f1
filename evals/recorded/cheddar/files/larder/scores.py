"""Scores."""

import re

import numpy as np


def token_accuracy(prediction):
    """Share of answer tokens that the model would have said itself."""
    logits, labels = prediction
    said = np.argmax(logits[:, :-1], axis=-1)
    meant = labels[:, 1:]
    there = meant != -100
    return {"token_accuracy": float((said == meant)[there].mean())}


def same(said, meant):
    """Whether two answers are the same words."""
    return re.findall(r"\w+", said.lower()) == re.findall(r"\w+", meant.lower())
