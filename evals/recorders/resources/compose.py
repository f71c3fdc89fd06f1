"""Sample melodies from a trained decoder and score them."""

import argparse
import json
import time

import torch
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig

parser = argparse.ArgumentParser()
parser.add_argument("--model", default="model")
parser.add_argument("--melodies", type=int, default=4)
parser.add_argument("--notes", type=int, default=320)
asked = parser.parse_args()

torch.manual_seed(0)
config = AutoConfig.from_pretrained(asked.model)
model = AutoModelForCausalLM.from_config(config).eval()
generation = GenerationConfig.from_pretrained(asked.model)
print(f"{config.model_type}: {model.num_parameters() / 1e6:.1f} M parameters, {torch.get_num_threads()} threads")
print("generation:", json.dumps(generation.to_diff_dict()), flush=True)
for n in range(asked.melodies):
    for notes in (40, 80, 160, asked.notes):
        start = torch.randint(0, config.vocab_size, (1, 8))
        began = time.perf_counter()
        with torch.inference_mode():
            out = model.generate(start, attention_mask=torch.ones_like(start), generation_config=generation,
                                 max_new_tokens=notes, min_new_tokens=notes)
        seconds = time.perf_counter() - began
        print(f"melody {n} | {out.shape[1] - 8} notes | {seconds:.2f} s | {notes / seconds:.1f} notes/s", flush=True)
print("all melodies written")
