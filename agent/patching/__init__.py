"""Writing settings: a canonical setting is changed, put in or taken out of a text, in the words of its framework."""

from .change import change
from .model import REMOVE, Changed, Edit, Snippet

__all__ = ["REMOVE", "Changed", "Edit", "Snippet", "change"]
