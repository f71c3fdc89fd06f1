# From a course, CC0; for comparison of the clip only. Not used.
import torch


def ppo_loss(new, old, adv, value, target, clip=0.2, vf=0.5):
    r = (new - old).exp()
    return -torch.minimum(r * adv, r.clamp(1 - clip, 1 + clip) * adv).mean() + vf * (value - target).square().mean()


def gae(rewards, values, gamma=0.99, lam=0.95):
    out, last = torch.zeros_like(rewards), 0.0
    for t in reversed(range(len(rewards))):
        delta = rewards[t] + gamma * (values[t + 1] if t + 1 < len(values) else 0.0) - values[t]
        out[t] = last = delta + gamma * lam * last
    return out
