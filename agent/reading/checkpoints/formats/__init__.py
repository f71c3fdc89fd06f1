"""Containers of saved tensors: zip, pickle, safetensors, numpy, distributed; read as trees of plain values."""
