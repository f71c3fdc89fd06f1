import torch
from torch import nn
from transformers import BertConfig, BertModel


class DeskClassifier(nn.Module):
    """An encoder, the mean of its words, a classifier of two layers."""

    def __init__(self, encoder, desks):
        super().__init__()
        self.encoder = encoder
        width = encoder.config.hidden_size
        self.classifier = nn.Sequential(nn.Dropout(0.1), nn.Linear(width, width // 4), nn.Tanh(), nn.Linear(width // 4, desks))

    def forward(self, input_ids, attention_mask, labels=None):
        h = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        m = attention_mask.unsqueeze(-1).to(h.dtype)
        logits = self.classifier((h * m).sum(1) / m.sum(1))
        return logits, None if labels is None else nn.functional.cross_entropy(logits, labels)

    def freeze_encoder(self, frozen):
        for p in self.encoder.parameters():
            p.requires_grad_(not frozen)

    def trainable(self):
        return [p for p in self.parameters() if p.requires_grad]


def build(folder, words, desks):
    if folder:
        encoder = BertModel.from_pretrained(folder, add_pooling_layer=False)
    else:
        encoder = BertModel(small(len(words)), add_pooling_layer=False)
    return DeskClassifier(encoder, desks)


def small(vocabulary, layers=2, hidden=64, heads=4):
    return BertConfig(vocab_size=vocabulary, hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads,
                      intermediate_size=2 * hidden, max_position_embeddings=64, hidden_dropout_prob=0.1, pad_token_id=0)


def size(parameters):
    return sum(p.numel() for p in parameters)


@torch.no_grad()
def accuracy(model, loader, accelerator):
    model.eval()
    right = total = loss = 0
    for batch in loader:
        logits, part = model(**batch)
        said, asked = accelerator.gather_for_metrics((logits.argmax(-1), batch["labels"]))
        right += (said == asked).sum().item()
        total += len(asked)
        loss += part.item() * len(asked)
    model.train()
    return right / total, loss / total
