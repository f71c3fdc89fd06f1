"""Writes encoder/, as the pretraining leaves it, and notes.csv: `pretrain.py ROWS`."""

import random
import sys

from transformers import BertConfig, BertForPreTraining

BertForPreTraining(
    BertConfig(vocab_size=200, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
               max_position_embeddings=32)
).save_pretrained("encoder")
rng = random.Random(3)
with open("notes.csv", "w") as f:
    f.write("id,tokens,topic\n")
    for i in range(int(sys.argv[1])):
        topic = rng.randrange(4)
        tokens = [rng.randrange(10 + 40 * topic, 60 + 40 * topic) for _ in range(16)]
        f.write(f"{i},{' '.join(map(str, tokens))},{topic}\n")
