from dataclasses import dataclass, field


@dataclass
class Finetune:
    name: str
    encoder: str = field(default="", metadata={"help": "folder of a pre-trained model"})
    train_file: str = "data/train.tsv"
    dev_file: str = "data/dev.tsv"
    words: str = "data/words.txt"
    epochs: int = 10
    head_epochs: int = field(default=0, metadata={"help": "epochs in which only the classifier is trained"})
    batch_size: int = 32
    accumulate: int = 1
    lr: float = 1e-3
    head_lr: float = field(default=0.0, metadata={"help": "of the classifier; 0: lr"})
    weight_decay: float = 0.01
    warmup: float = 0.1
    clip: float = 1.0
    max_words: int = 24
    mixed_precision: str = "no"
    seed: int = 3


@dataclass
class Pretrain:
    name: str
    text: str = "data/mail.txt"
    words: str = "data/words.txt"
    layers: int = 2
    hidden: int = 64
    heads: int = 4
    steps: int = 300
    batch_size: int = 32
    lr: float = 2e-3
    mask: float = 0.15
    max_words: int = 24
    mixed_precision: str = "no"
    seed: int = 3
