"""Small trainings for the recorder: `python loops.py FOLDER KIND...`, a process each, as a fork of one that has torch."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "recorder"))

import torch
import torch._dynamo  # torch.optim does so at the first step: once here, not in every child
from traindoctor_recorder import Recorder

BAD_STEP, BAD_ID = 40, 40 * 8 - 5


class Logarithm(torch.nn.Module):
    """Breaks where nothing in a row is positive."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 0.001 * torch.log(torch.relu(x).mean(-1, keepdim=True))


class Block(torch.nn.Module):
    def __init__(self, norm: torch.nn.Module) -> None:
        super().__init__()
        self.inner, self.norm = torch.nn.Linear(16, 16), norm

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x + torch.tanh(self.inner(x)))


class RootAtZero(torch.autograd.Function):
    """Finite forward, a gradient that is not."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad * (float("nan") if STEP[0] == BAD_STEP else 1.0)


STEP = [0]


class Backward(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return RootAtZero.apply(x)


def model() -> torch.nn.Module:
    norms = [torch.nn.LayerNorm(16) for _ in range(3)]
    if KIND == "log":
        norms[0] = Logarithm()
    if KIND == "gradient":
        norms[1] = Backward()
    return torch.nn.Sequential(*(Block(n) for n in norms), torch.nn.Linear(16, 1))


class Samples(torch.utils.data.Dataset):
    def __init__(self) -> None:
        self.x = torch.randn(800, 16)
        self.y = self.x.sum(1, keepdim=True) * (10.0 if KIND == "rate" else 1.0)
        if KIND in ("batch", "exit", "kill", "workers"):
            self.x[BAD_ID, 3] = float("nan")
        if KIND == "log":
            self.x[BAD_ID] = -100.0

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int):
        if KIND == "workers":
            REC.step(1.0)  # a worker's copy has to stay silent
        return i, self.x[i], self.y[i]


def begin(kind: str, run: Path) -> None:
    """What every training here shares; the process is this one's alone."""
    global KIND, NET, OPT, REC
    KIND = kind
    torch.manual_seed(0)
    torch.set_num_threads(1)
    NET = model()
    if kind in ("rate", "fp16"):
        NET = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    if kind == "fp16":
        with torch.no_grad():
            NET[0].weight.mul_(20.0)
    OPT = torch.optim.SGD(NET.parameters(), lr={"rate": 0.05, "fp16": 1e-4}.get(kind, 0.01))
    REC = Recorder(run, NET, OPT)


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def fp16(steps: int = 60) -> None:
    """Activations that leave the range of fp16 late."""
    for step in range(1, steps + 1):
        x = torch.randn(8, 16) * (1.0 if step < BAD_STEP else 3e4)
        with torch.autocast("cpu", dtype=torch.float16):
            loss = NET(x).float().pow(2).mean()
        OPT.zero_grad()
        loss.backward()
        REC.step(loss)
        if not torch.isfinite(loss):
            raise RuntimeError(f"loss is {loss.item()} at step {step}")
        OPT.step()
        say(f"step {step} loss {loss.item():.4f}")


def plain() -> None:
    loader = torch.utils.data.DataLoader(Samples(), batch_size=8, num_workers=2 if KIND == "workers" else 0)
    for step, (ids, x, y) in enumerate(REC.watch(loader), 1):
        STEP[0] = step
        loss = ((NET(x) - y) ** 2).mean()
        OPT.zero_grad()
        loss.backward()
        REC.step(loss, ids=ids)
        if KIND == "exit" and step == BAD_STEP:
            os._exit(7)
        if KIND == "kill" and step == BAD_STEP:
            os.kill(os.getpid(), signal.SIGKILL)
        OPT.step()
        say(f"step {step} loss {loss.item():.4f}")
        if not torch.isfinite(loss):
            raise RuntimeError(f"loss is {loss.item()} at step {step}")
    say("training finished")


def main(folder: Path, kinds: list[str]) -> None:
    children = []
    for kind in kinds:
        run = folder / kind
        run.mkdir(parents=True, exist_ok=True)
        child = os.fork()
        if child:
            children.append(child)
            continue
        out = os.open(run / "train.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1)
        os.dup2(out, 2)
        begin(kind, run)
        (fp16 if kind == "fp16" else plain)()
        return
    for child in children:
        os.waitpid(child, 0)


main(Path(sys.argv[1]), sys.argv[2:])
