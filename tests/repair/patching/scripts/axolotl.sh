#!/bin/sh
. /workspace/axolotl-venv/bin/activate
export NCCL_P2P_DISABLE=1
axolotl preprocess examples/llama-3/lora-1b.yml --debug
accelerate launch -m axolotl.cli.train examples/llama-3/lora-1b.yml --learning_rate 0.0002 --deepspeed deepspeed_configs/zero1.json
