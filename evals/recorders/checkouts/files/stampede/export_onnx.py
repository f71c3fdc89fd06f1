import sys

import torch

from stampede.data import SIDE
from stampede.module import StampNet

net = StampNet.load_from_checkpoint(sys.argv[1], map_location="cpu").eval()
torch.onnx.export(net.net, torch.zeros(1, 1, SIDE, SIDE), "stamps.onnx", dynamic_axes={"input": {0: "n"}}, input_names=["input"])
