"""What lies in state.pt, for the next slice."""
import os

import torch


def save(path, step, model, optimizer, schedule, stream):
    torch.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict(),
                "schedule": schedule.state_dict(), "stream": stream.state_dict(), "rng": torch.get_rng_state()}, path + ".new")
    os.replace(path + ".new", path)


def load(path, model, optimizer, schedule, stream):
    said = torch.load(path, weights_only=False)
    model.load_state_dict(said["model"])
    optimizer.load_state_dict(said["optimizer"])
    schedule.load_state_dict(said["schedule"])
    stream.load_state_dict(said["stream"])
    torch.set_rng_state(said["rng"])
    return said["step"]
