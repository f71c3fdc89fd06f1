#!/bin/bash
#SBATCH --partition=gpu --gres=gpu:1
module load cuda/11.0
python finetune.py --model bert-base-multilingual-cased --epochs 3
