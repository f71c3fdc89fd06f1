#!/bin/bash
#SBATCH --nodes=1 --ntasks-per-node=4 --gpus-per-node=4 --time=24:00:00
srun python -m autocast.scripts.train trainer.devices=4 trainer.strategy=ddp trainer.max_epochs=40
