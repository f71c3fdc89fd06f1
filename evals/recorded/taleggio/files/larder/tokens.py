"""The tokenizer: whole words of the handbook."""

from transformers import PreTrainedTokenizerFast


def load(path):
    return PreTrainedTokenizerFast(tokenizer_file=path, pad_token="<pad>", unk_token="<unk>", eos_token="<end>", bos_token="<end>")
