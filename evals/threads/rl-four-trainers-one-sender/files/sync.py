# excerpt of the installed trainer, for reference
def _streaming_iter(self):
    for name, param in self.model.named_parameters():
        full = param.full_tensor() if isinstance(param, DTensor) else param.detach()
        yield self._vllm_name(name), full

def _sync_weight(self):
    if self.accelerator.is_main_process:
        self.rollout_worker.pause()
        self.weight_transfer.send_weights(self._streaming_iter())
        self.rollout_worker.resume()
    else:
        for _ in self._streaming_iter():
            pass
    self.model_version += 1
