"""What to do where no file of the run has to be changed: commands with the names and paths of this run filled in."""

from .filling import filled
from .following import operations
from .scene import Scene

__all__ = ["Scene", "filled", "operations"]
