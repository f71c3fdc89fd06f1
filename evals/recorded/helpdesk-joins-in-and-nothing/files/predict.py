"""python predict.py results/NAME "question" ..."""
import json
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file

from deskcls import model as models
from deskcls.data import DESKS, pad
from deskcls.words import Words

home = Path(sys.argv[1])
cfg = json.loads((home / "settings.json").read_text())
words = Words(cfg["words"])
net = models.build("", words, len(DESKS))
net.load_state_dict(load_file(home / "model.safetensors"))
net.eval()
ids, mask = pad([words(q, cfg["max_words"]) for q in sys.argv[2:]])
with torch.no_grad():
    p = net(ids, mask)[0].softmax(-1)
for q, row in zip(sys.argv[2:], p):
    print(f"{DESKS[row.argmax()]:9s} {row.max():.2f}  {q}")
