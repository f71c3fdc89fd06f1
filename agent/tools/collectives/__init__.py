"""NCCL, timeouts of collectives, and the flight recorder."""
