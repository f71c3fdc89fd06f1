"""Leaf disease classification with a small ViT."""

import sys

import numpy as np
import torch
from transformers import HfArgumentParser, Trainer, TrainingArguments, ViTConfig, ViTForImageClassification


class Leaves(torch.utils.data.Dataset):
    def __init__(self, count):
        rng = np.random.default_rng(1)
        self.labels = rng.integers(0, 8, count)
        self.tone = rng.normal(size=(8, 3, 1, 1)).astype(np.float32)
        self.seeds = rng.integers(0, 2**31, count)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        noise = np.random.default_rng(self.seeds[i]).normal(size=(3, 64, 64)).astype(np.float32)
        return {"pixel_values": noise + self.tone[self.labels[i]], "labels": int(self.labels[i])}


def main():
    (args,) = HfArgumentParser(TrainingArguments).parse_json_file(sys.argv[1])
    torch.manual_seed(args.seed)
    config = ViTConfig(image_size=64, patch_size=8, hidden_size=192, num_hidden_layers=6, num_attention_heads=6,
                       intermediate_size=768, num_labels=8)
    model = ViTForImageClassification(config)
    print(f"ViT: {model.num_parameters() / 1e6:.1f} M parameters")
    trainer = Trainer(model=model, args=args, train_dataset=Leaves(1024))
    trainer.train()


if __name__ == "__main__":
    main()
