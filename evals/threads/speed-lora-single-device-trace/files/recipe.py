def train(self) -> None:
    """The core training loop."""
    self._model.train()
    for curr_epoch in range(self.epochs_run, self.total_epochs):
        self._sampler.set_epoch(curr_epoch)
        for idx, batch in enumerate(pbar := tqdm(self._dataloader)):
            if self.max_steps_per_epoch is not None and idx == self.max_steps_per_epoch:
                break
            self.total_training_steps += 1
            self._optimizer.zero_grad()

            input_ids, labels = batch
            input_ids = input_ids.to(self._device)
            labels = labels.to(self._device)

            with self._autocast:
                logits = self._model(input_ids)
                logits = logits[..., :-1, :].contiguous()
                labels = labels[..., 1:].contiguous()
                logits = logits.transpose(1, 2)
                loss = self._loss_fn(logits, labels)

            loss_to_log = loss.item()
            pbar.set_description(f"{curr_epoch+1}|{idx+1}|Loss: {loss_to_log}")
            if self.total_training_steps % self._log_every_n_steps == 0:
                self._metric_logger.log_dict(
                    {"loss": loss_to_log, "lr": self._optimizer.param_groups[0]["lr"]},
                    step=self.total_training_steps,
                )

            loss.backward()
            self._optimizer.step()
            self._lr_scheduler.step()
