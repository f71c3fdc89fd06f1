import logging

import numpy as np
import torch
from torch import nn, optim


class LabelModel(nn.Module):
    """Parent class for all generative label models."""

    def forward(self, *args):
        raise NotImplementedError

    def _do_estimate_label_model(self, batches, config):
        optimizer = optim.Adam(self.parameters(), lr=config.learning_rate, weight_decay=0)
        scheduler = optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
        device = next(self.parameters()).device

        for epoch in range(config.epochs):
            logging.info("Epoch %d/%d", epoch + 1, config.epochs)
            self.train()
            running_loss = 0.0
            epoch_batches = np.random.permutation(batches)

            for i_batch, inputs in enumerate(epoch_batches):
                optimizer.zero_grad()
                log_likelihood = self(*[torch.as_tensor(x, device=device) for x in inputs])
                loss = -1 * torch.mean(log_likelihood)
                loss += self._get_regularization_loss()
                loss.backward(retain_graph=True)
                optimizer.step()
                scheduler.step()
                running_loss += loss

            epoch_loss = running_loss / len(epoch_batches)
            logging.info("Train Loss: %.6f", epoch_loss)
