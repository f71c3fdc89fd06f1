#! /bin/bash
# classic style of strings with continued lines
RANK=0
WORLD_SIZE=8
MBS=4
GBS=$((MBS * WORLD_SIZE * 4))
LR=0.00015
DISTRIBUTED_ARGS="--nproc_per_node 8 --nnodes 1 --master_addr localhost --master_port 6000"
OPTIONS=" \
        --num-layers 24 \
        --hidden-size 1024 \
        --seq-length 1024 \
        --micro-batch-size $MBS \
        --global-batch-size $GBS \
        --lr $LR \
        --clip-grad 1.0 \
        --fp16 \
        "
NAME=gpt-mbs$MBS-lr$LR
python -m torch.distributed.launch $DISTRIBUTED_ARGS \
       pretrain_gpt.py $OPTIONS \
       --save checkpoints/$NAME \
       --distributed-backend nccl
