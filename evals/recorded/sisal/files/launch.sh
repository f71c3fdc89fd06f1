#!/bin/bash
export OMP_NUM_THREADS=1 TORCH_FR_BUFFER_SIZE=400
torchrun --nproc-per-node 3 --master-port 29815 train.py --steps 300 --pause 0.03 > launcher.log 2>&1 &
until grep -q 'step 150 ' logs/rank0.log 2>/dev/null; do sleep 0.2; done
for r in 0 1 2; do kill -USR2 $(sed -n 's/.* pid \([0-9]*\) rank .*/\1/p' logs/rank$r.log); sleep 0.4; done
wait
