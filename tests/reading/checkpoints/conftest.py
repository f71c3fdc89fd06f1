"""Checkpoints to look at and to damage."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.reading.checkpoints.makers import copy


@pytest.fixture
def saved(tmp_path: Path) -> Callable[[str], Path]:
    """A run of its own with real checkpoints: `saved("zero2")`."""
    return lambda kind: copy(kind, tmp_path)
