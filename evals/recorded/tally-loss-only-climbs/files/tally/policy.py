import torch
from torch import nn

from . import task


class Policy(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.embed = nn.Embedding(task.SIZE, width)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, task.SIZE)

    def forward(self, tokens):
        return self.head(self.rnn(self.embed(tokens))[0])

    def logprobs(self, prompt, said):
        """Log-probabilities of what was said, and the entropy at each place."""
        logits = self(torch.cat([prompt, said], 1)[:, :-1])[:, prompt.shape[1] - 1:].log_softmax(-1)
        return logits.gather(2, said[..., None]).squeeze(2), -(logits.exp() * logits).sum(-1)

    @torch.no_grad()
    def sample(self, prompt, length, temperature=1.0):
        h, state = self.rnn(self.embed(prompt))
        out, last = [], h[:, -1]
        for _ in range(length):
            logits = self.head(last)
            token = logits.argmax(-1) if temperature == 0 else torch.multinomial((logits / temperature).softmax(-1), 1).squeeze(1)
            out.append(token)
            h, state = self.rnn(self.embed(token[:, None]), state)
            last = h[:, -1]
        return torch.stack(out, 1)

    def exact(self, prompt):
        said = self.sample(prompt, prompt.shape[1], 0)
        return (said == task.answer(prompt)).all(1).float().mean().item()


def save(path, policy, width):
    torch.save({"width": width, "policy": policy.state_dict()}, path)


def load(path):
    said = torch.load(path)
    policy = Policy(said["width"])
    policy.load_state_dict(said["policy"])
    return policy
