from trl import GRPOConfig, GRPOTrainer
from my_data import dataset, reward_tests

training_args = GRPOConfig(output_dir="out", use_vllm=True, max_prompt_length=4000, max_completion_length=3500,
                           per_device_train_batch_size=2, num_generations=8, learning_rate=1e-6, bf16=True, logging_steps=1)
GRPOTrainer("/models/Qwen2.5-14B-Instruct", reward_funcs=reward_tests, args=training_args, train_dataset=dataset).train()
