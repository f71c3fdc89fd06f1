"""Checkpoints read by their structure: zip directories, pickle opcodes and headers. Nothing of them is executed."""
