"""A question at the terminal before a file of the user's is changed. The answer is no unless someone says yes."""

from __future__ import annotations

import sys


def can_ask() -> bool:
    """Whether somebody is at a terminal."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


def agreed(question: str) -> bool:
    """Ask; what was typed before the question was shown does not count."""
    return answer(f"{question} [y/N] ").lower() in ("y", "yes")


def answer(prompt: str) -> str:
    """What somebody types on one line; empty at the end of input."""
    import termios

    sys.stdout.flush()
    sys.stderr.write(prompt)
    sys.stderr.flush()
    try:
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
    except (termios.error, OSError, ValueError):  # no terminal after all
        return ""
    return sys.stdin.readline().strip()
