"""Preference tuning. Needs trl and a GPU."""

from dataclasses import dataclass


@dataclass
class DPOArguments:
    model: str = "out/llama-8b"
    beta: float = 0.1
    learning_rate: float = 5e-7
    max_prompt_length: int = 2048


def main():
    from trl import DPOConfig, DPOTrainer

    args = DPOArguments()
    config = DPOConfig(output_dir="out/dpo", beta=args.beta, learning_rate=args.learning_rate, bf16=True, logging_steps=1)
    trainer = DPOTrainer(model=args.model, args=config, train_dataset=None)
    trainer.train()
    print("dpo loss nan after 12 steps with beta 0.5, use 0.1")


if __name__ == "__main__":
    main()
