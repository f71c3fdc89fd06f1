"""Readers of what a run leaves behind: each parse is done once and kept on the workspace."""
