"""Arguments of the programs, beside those of the Trainer."""

from dataclasses import dataclass, field
from typing import Optional


@dataclass
class ModelArguments:
    model_name_or_path: Optional[str] = field(default=None, metadata={"help": "weights to begin with"})
    config_name: str = field(default="configs/models/tiny.json", metadata={"help": "a config for training from scratch"})
    tokens: str = field(default="assets/words.json")
    vocab_size: Optional[int] = field(default=None, metadata={"help": "rows of the embedding; the tokenizer's where not said"})
    use_lora: bool = False
    lora_rank: int = 16


@dataclass
class DataArguments:
    train_file: str = "data/handbook.jsonl"
    eval_file: str = "data/handbook_eval.jsonl"
    template: str = field(default="chat", metadata={"help": "qa, chat or bare"})
    max_length: int = 48
    metric_tokens: bool = field(default=True, metadata={"help": "token accuracy at each evaluation"})
