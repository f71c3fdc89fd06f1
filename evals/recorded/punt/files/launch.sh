#!/bin/bash
export OMP_NUM_THREADS=1
export TOKENIZERS_PARALLELISM=false
torchrun --nproc-per-node 2 --master-port 29764 --log-dir logs --redirects 3 train.py args.json corpus.txt > launcher.log 2>&1
