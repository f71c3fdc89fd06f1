#!/bin/bash
#SBATCH --job-name=gpt-175b
#SBATCH --nodes=16
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:h100:8     # a whole node
#SBATCH --time=24:00:00

export CUDA_DEVICE_MAX_CONNECTIONS=1
export NCCL_DEBUG=INFO

GPUS_PER_NODE=8
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
MASTER_PORT=6000
LR=${LR:-6.0e-5}
MBS=1
CHECKPOINT_PATH=$1

DISTRIBUTED_ARGS=(
    --nproc_per_node $GPUS_PER_NODE
    --nnodes $SLURM_NNODES
    --master_addr $MASTER_ADDR
    --master_port $MASTER_PORT
)

GPT_MODEL_ARGS=(
    --num-layers 96
    --hidden-size 12288
    --num-attention-heads 96
    --seq-length 2048
    --max-position-embeddings 2048
    --attention-backend auto # Can use (flash/fused/unfused/local)
)

TRAINING_ARGS="
    --micro-batch-size $MBS \
    --global-batch-size 1536 \
    --train-iters 500000 \
    --weight-decay 0.1 \
    --adam-beta2 0.95 \
    --init-method-std 0.006 \
    --clip-grad 1.0 \
    --fp16 \
    --lr $LR \
    --lr-decay-style cosine \
    --min-lr 6.0e-6 \
    --lr-warmup-fraction .001
"

MODEL_PARALLEL_ARGS=(
	--tensor-model-parallel-size 8
	--pipeline-model-parallel-size 16
)

srun torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py \
    ${GPT_MODEL_ARGS[@]} \
    $TRAINING_ARGS \
    ${MODEL_PARALLEL_ARGS[@]} \
    --data-path /data/pile_text_document \
    --vocab-file /data/vocab.json \
    --log-interval 100 \
    --save-interval 10000 \
    --load $CHECKPOINT_PATH \
    --distributed-timeout-minutes 10 2>&1 | tee "logs/${SLURM_JOB_ID}.log"
