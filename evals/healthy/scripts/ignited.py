"""Classification with pytorch-ignite."""

import torch
from ignite.contrib.handlers import ProgressBar
from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
from ignite.metrics import Accuracy, Loss, RunningAverage
from ignite.utils import setup_logger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
centres = torch.randn(5, 16)


def loader(count):
    y = torch.randint(5, (count,))
    return DataLoader(TensorDataset(centres[y] + torch.randn(count, 16), y), 32, shuffle=True)


train, held = loader(1600), loader(320)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 5))
optimizer, criterion = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.8), nn.CrossEntropyLoss()
trainer = create_supervised_trainer(model, optimizer, criterion)
trainer.logger = setup_logger("trainer")
evaluator = create_supervised_evaluator(model, metrics={"accuracy": Accuracy(), "nll": Loss(criterion)})
evaluator.logger = setup_logger("evaluator")
RunningAverage(output_transform=lambda x: x).attach(trainer, "loss")
ProgressBar(persist=True).attach(trainer, ["loss"])


@trainer.on(Events.ITERATION_COMPLETED(every=10))
def log_training_loss(engine):
    print(f"Epoch[{engine.state.epoch}] Iteration[{engine.state.iteration}/{len(train) * 4}] Loss: {engine.state.output:.2f}")


@trainer.on(Events.EPOCH_COMPLETED)
def log_validation_results(engine):
    evaluator.run(held)
    m = evaluator.state.metrics
    print(f"Validation Results - Epoch: {engine.state.epoch}  Avg accuracy: {m['accuracy']:.2f} Avg loss: {m['nll']:.2f}")


trainer.run(train, max_epochs=4)
