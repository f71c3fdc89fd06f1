#!/bin/bash
HOSTS=node1:8,node2:8
mpirun --allow-run-as-root -np 16 -H $HOSTS \
    -bind-to none -map-by slot \
    -x NCCL_DEBUG=INFO -x LD_LIBRARY_PATH -x PATH \
    -mca pml ob1 -mca btl ^openib \
    python train.py --learning_rate 1e-4 --per_device_train_batch_size 8
