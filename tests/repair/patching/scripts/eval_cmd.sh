#!/bin/bash
script_path=$(realpath $0)
MP_SIZE=1
NUM_WORKERS=2
NUM_GPUS_PER_WORKER=8
OPTIONS_NCCL="NCCL_DEBUG=info NCCL_IB_DISABLE=0 NCCL_NET_GDR_LEVEL=2"
gpt_options=" \
       --model-parallel-size ${MP_SIZE} \
       --train-iters 150000 \
       --fp16 \
       --lr 0.0001 \
"
run_cmd="${OPTIONS_NCCL} deepspeed --num_nodes ${NUM_WORKERS} --num_gpus ${NUM_GPUS_PER_WORKER} pretrain_glm.py $@ ${gpt_options}"
echo ${run_cmd}
eval ${run_cmd}

set +x
