CUDA_VISIBLE_DEVICES=0,1 tune --nnodes 1 --nproc_per_node 2 full_finetune --config a.yaml > tune_a.log 2>&1 &
CUDA_VISIBLE_DEVICES=2,3 tune --nnodes 1 --nproc_per_node 2 full_finetune --config b.yaml > tune_b.log 2>&1 &
