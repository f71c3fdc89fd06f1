#!/bin/bash
for kl in 0.0 0.01 0.04 0.2; do
  for lr in 3e-4 1e-3 4e-3; do
    python grpo.py configs/sort_kl.py kl_coef=$kl lr=$lr name=sweep_${kl}_${lr}
  done
done
