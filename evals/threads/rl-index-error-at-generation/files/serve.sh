CUDA_VISIBLE_DEVICES=0,1,2,3 trl vllm-serve --model /models/Qwen2.5-14B-Instruct --tensor_parallel_size 4 --max_model_len 6000
