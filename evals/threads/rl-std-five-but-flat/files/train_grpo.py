from trl import GRPOConfig, GRPOTrainer
from rewards import if_rewrite_reward, json_format_reward, think_response_format_reward, language_ratio_reward, length_penalty_reward
from data import load_train

args = GRPOConfig(
    output_dir="out/if-rewrite",
    learning_rate=2e-6,
    per_device_train_batch_size=4,
    gradient_accumulation_steps=4,
    num_generations=4,
    temperature=0.3,
    max_completion_length=2048,
    beta=0.0,
    logging_steps=1,
    bf16=True,
    use_vllm=True,
    vllm_mode="server",
)
GRPOTrainer("Qwen/Qwen3-4B", reward_funcs=[if_rewrite_reward, json_format_reward, think_response_format_reward,
            language_ratio_reward, length_penalty_reward], args=args, train_dataset=load_train()).train()
