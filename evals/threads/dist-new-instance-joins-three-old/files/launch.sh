torchrun --nproc_per_node 1 --nnodes 4 --rdzv_id 17 --rdzv_backend c10d --rdzv_endpoint 10.128.0.30:29500 --master_port 29500 main.py
