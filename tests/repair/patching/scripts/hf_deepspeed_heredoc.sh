#!/bin/bash
cat > ds_config.json <<JSON
{
  "train_micro_batch_size_per_gpu": 4,
  "gradient_accumulation_steps": 8,
  "gradient_clipping": 1.0,
  "fp16": {"enabled": true},
  "zero_optimization": {
    "stage": 2
  }
}
JSON
deepspeed --num_gpus=8 train.py \
    --deepspeed ds_config.json \
    --per_device_train_batch_size 4 \
    --gradient_accumulation_steps 8 \
    --max_grad_norm 1.0 \
    --learning_rate 1e-5 \
    --fp16 True
