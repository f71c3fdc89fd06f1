"""GPUs, kernel, host, links, storage, scheduler and supervisor."""
