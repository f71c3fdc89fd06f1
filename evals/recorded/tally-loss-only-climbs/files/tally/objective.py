"""The objective of GRPO (Shao et al. 2024), one mean over an answer and one over answers."""
import torch


def advantages(rewards, group):
    """Rewards of a prompt's answers, centred and scaled within the group."""
    r = rewards.view(-1, group)
    return ((r - r.mean(1, keepdim=True)) / (r.std(1, keepdim=True) + 1e-4)).flatten()


def objective(new, old, reference, adv, clip, kl_coef):
    ratio = (new - old).exp()
    gain = torch.minimum(ratio * adv[:, None], ratio.clamp(1 - clip, 1 + clip) * adv[:, None])
    apart = reference - new
    kl = apart.exp() - apart - 1
    return -gain.mean() + kl_coef * kl.mean(), -gain.mean(), kl.mean()
