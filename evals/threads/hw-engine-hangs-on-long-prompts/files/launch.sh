vllm serve /models/m --tensor-parallel-size 4 --max-model-len 131072 --speculative-config '{"method": "dspark", "num_speculative_tokens": 4}'
