"""Starting the job again: whether that helps, without which nodes, from which checkpoint, and what is lost."""

from .advice import advise

__all__ = ["advise"]
