#!/bin/bash
set -e
source scripts/models/glm4-9B.sh
PARALLEL_ARGS=(--tensor-model-parallel-size 2 --pipeline-model-parallel-size 1)
PYTHONPATH=/root/Megatron-LM python tools/convert_hf_to_torch_dist.py \
    ${MODEL_ARGS[@]} ${PARALLEL_ARGS[@]} \
    --hf-checkpoint /root/GLM-Z1-9B-0414 \
    --save /root/GLM-Z1-9B-0414_torch_dist
OPT=(--lr 1e-6 --clip-grad 1.0)
python3 train.py --colocate ${MODEL_ARGS[@]} ${PARALLEL_ARGS[@]} ${OPT[@]} --global-batch-size 128
