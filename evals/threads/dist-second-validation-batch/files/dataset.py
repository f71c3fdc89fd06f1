class ParquetStream(IterableDataset):
    """Yields rows of the shard files that belong to this rank."""

    def __init__(self, root, batch_size):
        files = sorted(Path(root).glob("part-*.parquet"))
        rank, world = dist.get_rank(), dist.get_world_size()
        self.files = files[rank::world]
        self.batch_size = batch_size

    def __iter__(self):
        for file in self.files:
            for batch in pq.ParquetFile(file).iter_batches(self.batch_size):
                yield to_tensors(batch)
