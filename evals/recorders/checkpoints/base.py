"""Pretrains the encoder that train.py starts from (masked words), and saves it in shards."""
import random
import sys

import torch
from transformers import BertConfig, BertForMaskedLM

words, shard = int(sys.argv[1]), sys.argv[2]
torch.manual_seed(0)
random.seed(0)
model = BertForMaskedLM(BertConfig(vocab_size=words, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                                   intermediate_size=64, max_position_embeddings=32))
opt = torch.optim.AdamW(model.parameters(), 1e-3)
for step in range(60):
    ids = torch.randint(1, min(words, 33), (16, 16))
    loss = model(input_ids=ids, labels=ids).loss
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 20 == 0:
        print(f"step {step} loss {loss.item():.3f}")
model.save_pretrained(sys.argv[3], max_shard_size=shard)
