"""python evaluate.py POLICY FILE"""
import sys

import torch

from tally import task
from tally.policy import load

policy, prompt = load(sys.argv[1]), task.read(sys.argv[2])
torch.manual_seed(0)
print(f"greedy exact {policy.exact(prompt):.3f}, sampled reward {task.reward(prompt, policy.sample(prompt, prompt.shape[1])).mean():.3f} of {len(prompt)}")
