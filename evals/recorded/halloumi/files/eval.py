"""Accuracy by topic of saved weights: python eval.py WEIGHTS FILE.jsonl"""

import sys
from collections import Counter

import torch
import yaml

from postbox import compose, data, models


def main(weights, path):
    saved = torch.load(weights, weights_only=True)
    folder = weights.rpartition("/")[0]
    cfg = compose._wrap(yaml.safe_load(open(f"{folder}/.hydra/config.yaml")))
    vocabulary = data.Vocabulary([], 1)
    vocabulary.index = saved["words"]
    model = models.build(cfg.model, len(vocabulary), len(saved["topics"]))
    model.load_state_dict(saved["model"])
    model.eval()
    right, seen = Counter(), Counter()
    names = list(saved["topics"])
    for row in data.read(path):
        ids = torch.tensor([vocabulary.encode(row[cfg.data.text], cfg.data.max_words)])
        said = names[model(ids).argmax().item()]
        seen[row["topic"]] += 1
        right[row["topic"]] += said == row["topic"]
    for topic in sorted(seen):
        print(f"{topic:14s} {right[topic] / seen[topic]:.2f} of {seen[topic]}")


if __name__ == "__main__":
    main(*sys.argv[1:3])
