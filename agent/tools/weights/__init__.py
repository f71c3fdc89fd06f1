"""Checkpoints, optimizers, gradients, experts, replicas."""
