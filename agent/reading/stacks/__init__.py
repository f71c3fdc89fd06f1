"""Where processes stood: printed stacks, live ones, and PyTorch's flight recorder."""
