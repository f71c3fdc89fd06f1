ray job submit --address="http://127.0.0.1:8265" -- python3 train.py \
  --actor-num-nodes 1 --actor-num-gpus-per-node 4 --rollout-num-gpus 8 --rollout-num-gpus-per-engine 4 \
  --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 \
  --hf-checkpoint /models/GLM-4.7-Flash --ref-load /models/GLM-4.7-Flash_torch_dist \
  --prompt-data /data/dapo-math-17k.jsonl --input-key prompt --label-key label --apply-chat-template --rm-type dapo --reward-key score \
  --num-rollout 500 --rollout-batch-size 32 --n-samples-per-prompt 8 --global-batch-size 256 --rollout-max-response-len 8192 \
  --update-weight-buffer-size 536870912 --sglang-mem-fraction-static 0.7
