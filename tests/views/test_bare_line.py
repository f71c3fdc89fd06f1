"""A log line where there is little room for it."""

from __future__ import annotations

import pytest
from traindoctor.agent.views.bare_line import without_head


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("2026-03-04 03:12:01,123 - ERROR - loss is nan", "loss is nan"),
        ("[rank3]: RuntimeError: CUDA error", "RuntimeError: CUDA error"),
        ("2026-03-04T03:12:01Z [rank3] [INFO] step 5", "step 5"),
        ("  step 5 loss 2.0", "step 5 loss 2.0"),
        ("2026-03-04 03:12:01", "2026-03-04 03:12:01"),
        ("", ""),
        ("(Worker pid=7) died [repeated 3x across cluster]", "died [repeated 3x across cluster]"),
    ],
)
def test_what_a_logger_put_first_gives_way(line: str, shown: str) -> None:
    assert without_head(line) == shown
