"""Data sets, batches, tokenizers and results of evaluations."""
