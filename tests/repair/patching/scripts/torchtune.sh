tune download meta-llama/Llama-3.2-3B-Instruct --output-dir /tmp/Llama-3.2-3B-Instruct --ignore-patterns "original/consolidated.00.pth"
tune run --nproc_per_node 4 lora_finetune_distributed --config llama3_2/3B_lora batch_size=4 optimizer.lr=3e-4 dtype=bf16
