"""Programs on every node of an allocation: by Slurm, by Ray, or on this machine."""
