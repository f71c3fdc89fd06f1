"""Ray Train with two CPU workers."""

import tempfile
from pathlib import Path

import ray
import torch
from ray import train
from ray.train import Checkpoint, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer, prepare_data_loader, prepare_model
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def loop(config):
    torch.manual_seed(0)
    centres = torch.randn(5, 16)
    y = torch.randint(5, (1600,))
    data = prepare_data_loader(DataLoader(TensorDataset(centres[y] + torch.randn(1600, 16), y), 32, shuffle=True))
    model = prepare_model(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 5)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=config["lr"])
    for epoch in range(config["epochs"]):
        total = 0.0
        for x, target in data:
            loss = nn.functional.cross_entropy(model(x), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch} loss {total / len(data):.4f}")
        with tempfile.TemporaryDirectory() as folder:
            if train.get_context().get_world_rank() == 0:
                torch.save({"epoch": epoch}, Path(folder) / "state.pt")
            train.report({"epoch": epoch, "loss": total / len(data)}, checkpoint=Checkpoint.from_directory(folder))


ray.init(num_cpus=4, include_dashboard=False, _temp_dir="/tmp/ray")
trainer = TorchTrainer(
    loop, train_loop_config={"lr": 3e-3, "epochs": 8}, scaling_config=ScalingConfig(num_workers=2),
    run_config=RunConfig(storage_path=str(Path("results").resolve()), name="first"),
)
print(trainer.fit())
