"""Fine-tune a tiny language model with the Trainer of transformers."""

import argparse

import torch
from transformers import AutoTokenizer, GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


class Tokens(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        ids = torch.arange(index, index + 16) % 100
        return {"input_ids": ids, "labels": ids.clone()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokenizer", default="")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--vocab", type=int, default=100)
    parser.add_argument("--scheduler", default="linear")
    parser.add_argument("--load-best", action="store_true")
    parser.add_argument("--resume")
    args = parser.parse_args()
    if args.tokenizer:
        tokenizer = AutoTokenizer.from_pretrained(args.tokenizer)
        print(f"tokenizer with {len(tokenizer)} entries", flush=True)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=args.vocab, n_positions=32, n_embd=32, n_layer=2, n_head=2))
    arguments = TrainingArguments(
        output_dir="out", max_steps=args.steps, per_device_train_batch_size=4, logging_steps=2, learning_rate=1e-3,
        lr_scheduler_type=args.scheduler, save_steps=6, report_to=[], use_cpu=True, disable_tqdm=True,
        load_best_model_at_end=args.load_best,
    )  # fmt: skip
    Trainer(model=model, args=arguments, train_dataset=Tokens()).train(resume_from_checkpoint=args.resume)


if __name__ == "__main__":
    main()
