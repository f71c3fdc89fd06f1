"""int8 weights for the watch."""
import sys

import torch

from gaitwatch.net import GaitNet

state = torch.load(f"{sys.argv[1]}/net.pt")
net = GaitNet(state["cfg"]["net"], 1)
net.load_state_dict(state["net"])
small = torch.ao.quantization.quantize_dynamic(net, {torch.nn.GRU, torch.nn.Linear}, torch.qint8)
torch.save(small.state_dict(), f"{sys.argv[1]}/net_int8.pt")
