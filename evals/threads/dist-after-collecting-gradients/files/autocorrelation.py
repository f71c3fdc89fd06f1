    def teardown(self):
        process_autocorrelation_matrices(self.processor, self.rank)
        if self.rank == 0:
            self.processor.save(self.path)


def run_with_collector_hooks(self):
    for batch in tqdm(self.batches, desc="Collecting gradients", disable=self.rank != 0):
        self.step(batch)
    self.collector.teardown()
    dist.all_reduce(self.total_processed)
