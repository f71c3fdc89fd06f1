"""Dumps of PyTorch's flight recorder: the last collectives of every rank, and where the ranks part."""
