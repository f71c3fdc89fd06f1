class Trainer:
    def __init__(self, config):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        if config.seed == 0:
            seed = torch.randint(0, 10000000, (1,), device=self.device)
            dist.broadcast(seed, src=0)
            config.seed = seed.item()
        set_seed(config.seed + self.rank)

        dataset = TextVideoDataset(config.data_path)
        sampler = torch.utils.data.distributed.DistributedSampler(
            dataset, shuffle=True, drop_last=True, seed=int(time.time()) * self.rank)
        self.loader = torch.utils.data.DataLoader(dataset, batch_size=config.batch_size, sampler=sampler, num_workers=8)
