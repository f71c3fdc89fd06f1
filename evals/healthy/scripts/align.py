"""TRL on a tiny model: supervised fine-tuning, DPO, GRPO, RLOO, rewards."""

import argparse
import random

from datasets import Dataset
from transformers import set_seed

from corpus import NOUNS, sentences, tiny_llama, tokenizer

parser = argparse.ArgumentParser()
parser.add_argument("method")
parser.add_argument("--steps", type=int, default=80)
parser.add_argument("--lr", type=float, default=2e-3)
parser.add_argument("--lora", action="store_true")
parser.add_argument("--packing", action="store_true")
parser.add_argument("--beta", type=float, default=None)
args = parser.parse_args()
set_seed(1)
words = tokenizer()
model = tiny_llama(len(words))
common = dict(
    output_dir="out", use_cpu=True, bf16=False, max_steps=args.steps, learning_rate=args.lr, logging_steps=2,
    report_to="none", save_strategy="no", seed=1, disable_tqdm=False, gradient_checkpointing=False,
)
texts = sentences(1200, 1)
peft = None
if args.lora:
    from peft import LoraConfig

    peft = LoraConfig(r=8, lora_alpha=16, target_modules="all-linear", modules_to_save=["lm_head", "embed_tokens"])


def pretrained():
    """A few hundred quick steps, so that there is a policy to align."""
    import torch

    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    rng = random.Random(0)
    for _ in range(150):
        batch = words([f"{rng.choice(texts)} [EOS]" for _ in range(32)], return_tensors="pt", padding=True, return_token_type_ids=False)
        loss = model(**batch, labels=batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.save_pretrained("base")
    words.save_pretrained("base")
    return "base"


if args.method == "sft":
    from trl import SFTConfig, SFTTrainer

    trainer = SFTTrainer(
        model, SFTConfig(**common, per_device_train_batch_size=16, max_length=48, packing=args.packing, eval_strategy="steps", eval_steps=20),
        train_dataset=Dataset.from_dict({"text": texts}), eval_dataset=Dataset.from_dict({"text": sentences(100, 2)}),
        processing_class=words, peft_config=peft,
    )
elif args.method == "dpo":
    from trl import DPOConfig, DPOTrainer

    rows = [{"prompt": " ".join(t.split()[:4]), "chosen": " " + " ".join(t.split()[4:]), "rejected": " " + " ".join(random.Random(i).sample(t.split()[4:], len(t.split()) - 4))} for i, t in enumerate(texts)]
    trainer = DPOTrainer(
        pretrained(), args=DPOConfig(**common, per_device_train_batch_size=8, beta=args.beta or 0.1, max_length=48),
        train_dataset=Dataset.from_list(rows), processing_class=words, peft_config=peft,
    )
elif args.method == "reward":
    from transformers import LlamaForSequenceClassification
    from trl import RewardConfig, RewardTrainer

    rows = [{"chosen": t, "rejected": " ".join(random.Random(i).sample(t.split(), len(t.split())))} for i, t in enumerate(texts)]
    config = model.config
    config.num_labels = 1
    trainer = RewardTrainer(
        LlamaForSequenceClassification(config), args=RewardConfig(**common, per_device_train_batch_size=8, max_length=48),
        train_dataset=Dataset.from_list(rows), processing_class=words,
    )
else:
    import trl

    def likes_animals(completions, **_):
        return [min(sum(w in NOUNS[:5] for w in c.split()), 2) - 0.3 * abs(len(c.split()) - 8) for c in completions]

    kind = "GRPO" if args.method == "grpo" else "RLOO"
    config = getattr(trl, f"{kind}Config")(
        **common, per_device_train_batch_size=16, num_generations=8, max_completion_length=20,
        **({"beta": args.beta} if args.beta is not None else {}),
    )
    trainer = getattr(trl, f"{kind}Trainer")(
        pretrained(), likes_animals, args=config,
        train_dataset=Dataset.from_list([{"prompt": " ".join(t.split()[:3])} for t in texts]), processing_class=words,
    )
trainer.train()
trainer.save_state()
