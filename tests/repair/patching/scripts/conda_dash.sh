#!/bin/bash
source ~/miniconda3/etc/profile.d/conda.sh
conda activate llm
module load cuda/12.4
ulimit -n 65536
cd /home/user/project || exit 1
nohup conda run --no-capture-output -n llm python -u train.py --lr 1e-4 --batch_size 32 -- extra positional > out.log 2>&1 &
echo $! > pid
