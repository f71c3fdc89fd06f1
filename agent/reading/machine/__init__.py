"""The machine a run was on: GPUs, kernel, host, links, processes, and what scheduler and supervisor wrote down."""
