#!/usr/bin/env bash
SIZE=${1:-small}
case "$SIZE" in
  small) BS=16; LR=3e-4 ;;
  large)
    BS=4
    LR=1e-4
    EXTRA="--gradient_checkpointing True"
    ;;
  *) echo "unknown size" >&2; exit 1 ;;
esac
python train.py --per_device_train_batch_size $BS --learning_rate $LR --max_grad_norm 1.0 $EXTRA
