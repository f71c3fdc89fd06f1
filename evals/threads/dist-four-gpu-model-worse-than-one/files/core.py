    def _wrap_distributed(self):
        if not self.distributed_launch:
            return
        for name, module in self.modules.items():
            if any(p.requires_grad for p in module.parameters()):
                module = SyncBatchNorm.convert_sync_batchnorm(module)
                module = DDP(module, device_ids=[self.device], find_unused_parameters=self.find_unused_parameters)
            self.modules[name] = module


def ddp_init_group(run_opts):
    rank = int(os.environ["RANK"])
    torch.distributed.init_process_group(backend=run_opts["distributed_backend"])
    seed = run_opts["seed"]
    torch.manual_seed(seed + rank)
