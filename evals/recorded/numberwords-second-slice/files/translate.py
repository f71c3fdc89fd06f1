import sys

import torch

from numwords import letters, pairs
from numwords.model import Seq2Seq

said = torch.load(sys.argv[1])
net = Seq2Seq(said["cfg"]["width"]).eval()
net.load_state_dict(said["model"])
for text in sys.argv[2:]:
    print(text, "=", net.greedy(pairs.tensor([letters.source(text)]))[0])
