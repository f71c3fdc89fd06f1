#!/bin/bash
#SBATCH --nodes=1 --gres=gpu:4
export TORCHINDUCTOR_CACHE_DIR=/gpfs/scratch/cache/inductor
torchrun --nproc_per_node=4 train.py --compile
