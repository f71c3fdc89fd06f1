"""A small language made from rules, and a tokenizer trained on it: enough for a model to learn something in seconds."""

from __future__ import annotations

import random

NOUNS = "cat dog bird fish horse child farmer teacher river garden house market boat road lamp door".split()
VERBS = "sees follows finds carries watches likes draws builds leaves keeps".split()
ADJECTIVES = "small old green quiet bright heavy new happy cold long".split()
PLACES = "near behind above under beside".split()


def sentences(count: int, seed: int = 0) -> list[str]:
    """Sentences of one grammar; each noun has verbs and adjectives it prefers."""
    rng = random.Random(seed)
    found = []
    for _ in range(count):
        noun = rng.randrange(len(NOUNS))
        verb = VERBS[(noun + rng.choice((0, 0, 0, 1, 3))) % len(VERBS)]
        other = (noun * 3 + rng.choice((1, 1, 2))) % len(NOUNS)
        adjective = ADJECTIVES[(noun + rng.choice((0, 0, 5))) % len(ADJECTIVES)]
        found.append(
            f"the {adjective} {NOUNS[noun]} {verb} the {NOUNS[other]} {PLACES[noun % 5]} the {NOUNS[(other + 2) % 16]} ."
        )
    return found


def tokenizer():
    """A word-level tokenizer over the language, as transformers wants it."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    raw = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    special = ["[PAD]", "[UNK]", "[BOS]", "[EOS]", "[MASK]"]
    raw.train_from_iterator(
        [*sentences(2000), "user assistant : question answer good bad yes no < > / # ! ?"],
        trainers.WordLevelTrainer(special_tokens=special),
    )
    raw.post_processor = processors.TemplateProcessing(
        single="[BOS] $A [EOS]", special_tokens=[("[BOS]", 2), ("[EOS]", 3)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=raw, pad_token="[PAD]", unk_token="[UNK]", bos_token="[BOS]", eos_token="[EOS]",
        mask_token="[MASK]", model_max_length=64,
    )  # fmt: skip


def tiny_llama(words: int, **more):
    """A Llama of two thin layers."""
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=words, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
            max_position_embeddings=64, pad_token_id=0, bos_token_id=2, eos_token_id=3, **more,
        )
    )  # fmt: skip
