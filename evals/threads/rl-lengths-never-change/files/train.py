import sys
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer


def length_reward(completion_ids, **kwargs):
    return [1.0 / (1 + len(c)) ** 1.3 for c in completion_ids]


args = GRPOConfig(
    output_dir=f"out/{sys.argv[1]}", per_device_train_batch_size=8, num_generations=8, max_steps=10,
    learning_rate=1e-5, max_completion_length=256, temperature=1.0, bf16=True, logging_steps=1, report_to="none",
    use_vllm=True, vllm_mode="colocate", vllm_gpu_memory_utilization=0.3,
    vllm_enable_sleep_mode=sys.argv[1] == "sleep",
)
data = Dataset.from_list([{"prompt": "Say hello."}] * 8)
GRPOTrainer("Qwen/Qwen2.5-0.5B-Instruct", reward_funcs=length_reward, args=args, train_dataset=data).train()
