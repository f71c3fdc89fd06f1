"""What can be asked: one example of each kind."""

from __future__ import annotations

from textual.content import Content

from .rows import Draw, columns

# Kind, question, whether it needs a run to look at.
EXAMPLES = (
    ("failure", "Why did it die?", True),
    ("hang", "Why does it hang, and at which rank?", True),
    ("slow", "Why is it slow?", True),
    ("loss", "Why did the loss become NaN?", True),
    ("resume", "Why will it not resume?", True),
    ("again", "Can I start it again, from where?", True),
    ("preflight", "What would stop this job?", True),
    ("memory", "Will a 7B model fit on 8 x 80 GB?", False),
    ("exit code", "What does exit code 137 mean?", False),
    ("message", "What does Xid 79 mean?", False),
    ("term", "What is gradient checkpointing?", False),
)


def rows() -> list[tuple[str, Draw]]:
    """The examples as rows; their key is the question."""
    return [(question, _row(kind, question, run)) for kind, question, run in EXAMPLES]


def _row(kind: str, question: str, run: bool) -> Draw:
    def draw(width: int) -> Content:
        where = "a run" if run else "no run"
        room = width - 2 - 10 - 6 - 2
        return columns([
            (Content.styled(kind, "$text-muted"), 10), (Content(question), room),
            (Content.styled(where, "$text-muted"), 6),
        ])  # fmt: skip

    return draw
