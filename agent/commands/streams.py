"""Standard output as every command uses it. A reader that leaves early (`| head`) is no error."""

from __future__ import annotations

import os
import sys
from typing import Any

import typer


def print_line(text: str) -> None:
    """One text and a newline on standard output, as it is."""
    try:
        sys.stdout.write(f"{text}\n")
    except BrokenPipeError:
        nobody_listens()
        raise typer.Exit(0) from None


def print_bytes(data: bytes) -> None:
    """Bytes on standard output as they are, whatever encoding the terminal has."""
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        nobody_listens()
        raise typer.Exit(0) from None


def print_json(data: Any) -> None:
    """Plain data as JSON on standard output."""
    import json

    print_line(json.dumps(data, indent=2, ensure_ascii=False, default=str))


def nobody_listens() -> None:
    """Let what is still to be written go nowhere, also what Python flushes when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
