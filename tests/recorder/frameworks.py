"""The recorder under HF Trainer, Lightning and Accelerate: `python frameworks.py FOLDER KIND...`, forks of one process."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "recorder"))
warnings.filterwarnings("ignore")

import torch  # noqa: E402 - the path and the warnings come first
import torch._dynamo  # noqa: E402 - torch.optim does so at the first step: once here, not in every child

if "traindoctor_recorder" in sys.modules:
    raise SystemExit("somebody imported the recorder before")
import traindoctor_recorder  # noqa: E402

assert not {"transformers", "lightning", "accelerate"} & sys.modules.keys(), (
    "the recorder imports no framework by itself"
)

BAD = 20  # the step whose batch holds NaN


class Samples(torch.utils.data.Dataset):
    def __init__(self, bad: bool) -> None:
        torch.manual_seed(0)
        self.x = torch.randn(240, 8)
        if bad:
            self.x[(BAD - 1) * 4 + 1, 2] = float("nan")

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int):
        return {"x": self.x[i], "labels": self.x[i].nan_to_num().sum()}


class Net(torch.nn.Module):
    """Returns its loss, as models of transformers do."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = torch.nn.Linear(8, 8), torch.nn.Linear(8, 1)

    def forward(self, x=None, labels=None, **_):
        out = self.last(torch.tanh(self.first(x))).squeeze(-1)
        return {"loss": ((out - labels) ** 2).mean(), "logits": out}


def hf(run: Path, kind: str) -> None:
    from transformers import Trainer, TrainingArguments

    args = TrainingArguments(
        output_dir=str(run / "out"), per_device_train_batch_size=2 if "accumulate" in kind else 4, logging_steps=10,
        gradient_accumulation_steps=2 if "accumulate" in kind else 1, num_train_epochs=1, report_to=[], use_cpu=True,
        save_strategy="no", disable_tqdm=True, max_grad_norm=0.01, remove_unused_columns=False,
        train_sampling_strategy="sequential",
    )  # fmt: skip
    trainer = Trainer(Net(), args, train_dataset=Samples("bad" in kind))
    given = () if "alone" in kind else (trainer,)
    trainer.add_callback(traindoctor_recorder.RecorderCallback(run, *given))
    trainer.train()


def lightning(run: Path, kind: str) -> None:
    if "old" in kind:
        import pytorch_lightning as pl
    else:
        import lightning.pytorch as pl

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = Net()

        def training_step(self, batch, _):
            return self.net(**batch)["loss"]

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

    trainer = pl.Trainer(
        max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False, accelerator="cpu",
        enable_model_summary=False, gradient_clip_val=0.01,
        callbacks=[traindoctor_recorder.LightningRecorder(run)],
    )  # fmt: skip
    trainer.fit(Module(), torch.utils.data.DataLoader(Samples("bad" in kind), batch_size=4))


def accelerate(run: Path, kind: str) -> None:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    net = Net()
    net, optimizer, loader = accelerator.prepare(
        net,
        torch.optim.SGD(net.parameters(), lr=0.01),
        torch.utils.data.DataLoader(Samples("bad" in kind), batch_size=2),
    )
    recorder = traindoctor_recorder.Recorder(run, net, optimizer).accelerate(accelerator)
    for batch in recorder.watch(loader):
        with accelerator.accumulate(net):
            accelerator.backward(net(**batch)["loss"])
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(net.parameters(), 0.01)
            optimizer.step()
            optimizer.zero_grad()


def scaler(run: Path, kind: str) -> None:
    """A GradScaler that searches its scale in the first steps, and is fine."""
    net, scale = Net(), torch.amp.GradScaler("cpu", init_scale=2.0**127)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    recorder = traindoctor_recorder.Recorder(run, net, optimizer, scale)
    for batch in recorder.watch(torch.utils.data.DataLoader(Samples(False), batch_size=4)):
        loss = net(**batch)["loss"]
        optimizer.zero_grad()
        scale.scale(loss).backward()
        recorder.step(loss)
        scale.step(optimizer)
        scale.update()


def compiled(run: Path, kind: str) -> None:
    """A compiled model is compiled once, with and without the recorder."""
    seen = []

    def backend(graph, _):
        seen.append(graph)
        return graph.forward

    net = Net()
    fast = torch.compile(net, backend=backend)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    recorder = traindoctor_recorder.Recorder(run, fast if "outer" in kind else net, optimizer)
    for batch in recorder.watch(torch.utils.data.DataLoader(Samples("bad" in kind), batch_size=4)):
        loss = fast(**batch)["loss"]
        optimizer.zero_grad()
        loss.backward()
        recorder.step(loss)
        optimizer.step()
    (run / "graphs.txt").write_text(str(len(seen)))


def late(run: Path, kind: str) -> None:
    """Numbers that arrive a step later, as from a device: the same way with the CPU in its place."""
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    recorder = traindoctor_recorder.Recorder(run, net, optimizer)
    recorder._behind = lambda value: hasattr(value, "device")
    for batch in recorder.watch(torch.utils.data.DataLoader(Samples("bad" in kind), batch_size=4)):
        loss = net(**batch)["loss"]
        optimizer.zero_grad()
        loss.backward()
        recorder.step(loss)
        optimizer.step()


def full(run: Path, kind: str) -> None:
    """A disk that takes nothing: the training ends as it would without."""
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    (run / "doctor-recorder").mkdir()
    for name in ("rank_0", "events_rank_0", "gradients_rank_0"):
        (run / "doctor-recorder" / f"{name}.jsonl").symlink_to("/dev/full")
    recorder = traindoctor_recorder.Recorder(run, net, optimizer)
    for batch in recorder.watch(torch.utils.data.DataLoader(Samples(True), batch_size=4)):
        loss = net(**batch)["loss"]
        optimizer.zero_grad()
        loss.backward()
        recorder.step(loss)
        optimizer.step()


def main(folder: Path, kinds: list[str]) -> None:
    import accelerate as _a  # noqa: F401 - once, not in every child
    import lightning.pytorch as _l  # noqa: F401
    import transformers  # noqa: F401

    children = []
    for kind in kinds:
        run = folder / kind
        run.mkdir(parents=True)
        child = os.fork()
        if child:
            children.append((kind, child))
            continue
        out = os.open(run / "train.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1)
        os.dup2(out, 2)
        torch.set_num_threads(1)
        globals()[kind.partition("-")[0]](run, kind)
        sys.stdout.write("training finished\n")
        return
    for _, child in children:
        os.waitpid(child, 0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
