"""The cluster of the tests, as they see it."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass


@dataclass
class Ray:
    """A running cluster."""

    address: str
    child: subprocess.Popen[str]

    def kill(self, node: str) -> None:
        """Let a node die; it does not come back."""
        assert self.child.stdin and self.child.stdout
        self.child.stdin.write(node + "\n")
        self.child.stdin.flush()
        assert self.child.stdout.readline() == "gone\n"
