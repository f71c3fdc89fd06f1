deepspeed --hostfile hosts16 --num_nodes 16 --num_gpus 8 pretrain.py --deepspeed_config ds_config.json --load_dir /data/llm/ckpt
