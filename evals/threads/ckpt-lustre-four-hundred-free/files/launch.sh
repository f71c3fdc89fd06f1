export CHECKPOINT_DIR=/fsx/ckpt/grpo
export NUM_ROLLOUT=1 SAVE_INTERVAL=1
bash run_miles_grpo.sh --save-interval 1 --ckpt-format torch_dist
