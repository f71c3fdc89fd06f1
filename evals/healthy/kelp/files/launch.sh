#!/bin/bash
torchrun --standalone --nproc-per-node 2 --log-dir logs --redirects 3 train.py --unused > launcher.log 2>&1
