"""Ask a model something: python sample.py out/tiny-qa "how long does barley soup take ?" """

import sys

import torch
from transformers import AutoModelForCausalLM

from larder import tokens
from larder.templates import prompt

model = AutoModelForCausalLM.from_pretrained(sys.argv[1])
tokenizer = tokens.load("assets/words.json")
ids = torch.tensor([tokenizer(prompt("qa", sys.argv[2]))["input_ids"]])
print(tokenizer.decode(model.generate(ids, do_sample=True, temperature=0.9, max_new_tokens=20)[0]))
