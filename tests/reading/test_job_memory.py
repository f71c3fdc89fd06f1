"""The memory a scheduler gives a job: totals, per core, per GPU, of a container."""

from __future__ import annotations

from pathlib import Path

import pytest
from traindoctor.agent.reading.machine.slurm_accounts import job_memory
from traindoctor.agent.reading.run.workspace import Workspace

GIB = 1 << 30


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("#SBATCH --mem=64G\n", 64 * GIB),
        ("#SBATCH --mem=64000\n", 64000 << 20),
        ("#SBATCH --cpus-per-task=6\n#SBATCH --mem-per-cpu=3G\n", 18 * GIB),
        ("#SBATCH --mem-per-cpu=3G\n", None),
        ("#SBATCH --cpus-per-task=6\n#SBATCH --mem-per-cpu=3G\n#SBATCH --ntasks-per-node=4\n", 72 * GIB),
        ("#SBATCH --cpus-per-task=6\n#SBATCH --mem-per-cpu=3G\n#SBATCH -n 8\n#SBATCH -N 2\n", 72 * GIB),
        ("#SBATCH --cpus-per-task=6\n#SBATCH --mem-per-cpu=3G\n#SBATCH --ntasks=8\n", None),
        ("#SBATCH --mem-per-gpu=32G\n#SBATCH --gpus-per-node=4\n", 128 * GIB),
        ("#SBATCH --mem-per-gpu=32G\n#SBATCH --gres=gpu:a100:4\n", 128 * GIB),
        ("#SBATCH --mem-per-gpu=32G\n", None),
        (f"#SBATCH --mem={'9' * 400}\n", None),
        ("#SBATCH --mem=0\n", None),
        ("#SBATCH --cpus-per-task=6\n", None),
        ("#SBATCH --mem=plenty\n", None),
    ],
)
def test_slurm_flags(flags: str, expected: int | None, tmp_path: Path) -> None:
    (tmp_path / "job.sbatch").write_text("#!/bin/bash\n#SBATCH --partition=gpu\n" + flags + "srun python train.py\n")
    found = job_memory(Workspace([tmp_path]))
    assert (found.bytes if found else None) == expected
