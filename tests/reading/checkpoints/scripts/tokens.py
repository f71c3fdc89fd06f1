"""A small tokenizer made on the spot, and sentences to train on."""

from __future__ import annotations

from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

TEXT = [
    "the quick brown fox jumps over the lazy dog",
    "a stitch in time saves nine",
    "all that glitters is not gold",
    "the early bird catches the worm",
] * 4
TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
SPECIAL = ["<unk>", "<s>", "</s>", "<pad>"]


def tokenizer() -> PreTrainedTokenizerFast:
    """A BPE tokenizer with the usual special tokens at 0 to 3 and a chat template."""
    inner = Tokenizer(models.BPE(unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    inner.train_from_iterator(TEXT, trainers.BpeTrainer(vocab_size=120, special_tokens=SPECIAL))
    made = PreTrainedTokenizerFast(
        tokenizer_object=inner, unk_token="<unk>", bos_token="<s>", eos_token="</s>", pad_token="<pad>"
    )
    made.chat_template = TEMPLATE
    return made
