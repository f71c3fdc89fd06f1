"""Sentence embeddings with in-batch negatives, by sentence-transformers."""

from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.losses import MultipleNegativesRankingLoss
from sentence_transformers.models import Pooling, Transformer
from transformers import BertConfig, BertModel, set_seed

from corpus import sentences, tokenizer

set_seed(0)
words = tokenizer()
BertModel(BertConfig(vocab_size=len(words), hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, max_position_embeddings=64)).save_pretrained("base")
words.save_pretrained("base")
encoder = Transformer("base", max_seq_length=32)
model = SentenceTransformer(modules=[encoder, Pooling(32)], device="cpu")
texts = sentences(1600, 1)
pairs = Dataset.from_dict({"anchor": [" ".join(t.split()[:6]) for t in texts], "positive": [" ".join(t.split()[4:]) for t in texts]})
trainer = SentenceTransformerTrainer(
    model=model, train_dataset=pairs, loss=MultipleNegativesRankingLoss(model),
    args=SentenceTransformerTrainingArguments("out", use_cpu=True, num_train_epochs=3, per_device_train_batch_size=32, learning_rate=1e-3, warmup_ratio=0.1, logging_steps=5, save_strategy="no", report_to="none"),
)
trainer.train()
trainer.save_state()
