"""A running mean of the weights, which evaluates better than the weights themselves (Polyak)."""
import contextlib

import torch


class Average:
    def __init__(self, model, decay):
        self.decay = decay
        self.mean = {k: v.detach().clone() for k, v in model.state_dict().items()}

    @torch.no_grad()
    def update(self, model):
        for k, v in model.state_dict().items():
            self.mean[k].lerp_(v, 1 - self.decay)

    @contextlib.contextmanager
    def put_into(self, model):
        """The model with the mean as its weights, for as long as the block lasts."""
        own = {k: v.clone() for k, v in model.state_dict().items()}
        model.load_state_dict(self.mean)
        yield model
        model.load_state_dict(own)
