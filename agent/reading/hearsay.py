"""Lines that speak of a failure instead of printing one.

What quotes the words of a failure proves none: a note that says `if you see "CUDA out of memory" ...`, a conversation
that is training data or a rollout, an answer of a tool kept in a log. Reading such a line as the failure itself would
let whoever writes it choose the verdict. Nor does a list of what may have happened say what did: Ray prints the
out-of-memory killer, a forced stop and a crash below every worker that is gone.
"""

from __future__ import annotations

import re
from collections.abc import Callable

# A quotation that a sentence opens: two words, then the mark. `message="..."`, `Error: '...'`, `Cuda failure '...'` and
# `raise X("...")` are how programs print what they got.
_OPENED = re.compile("[A-Za-z]{2,} [A-Za-z]{2,}[,;:]? [\"'\u2018\u201c][^\"'\u2019\u201d]*$")
_PRINTED = re.compile(r"(?i)error|fail|warn|exception|unexpected|could not|cannot|raised|died")
# What opens a list of guesses; or one of Ray's on a line of its own.
_GUESSES = re.compile(
    r"(?i)\b(?:potential|possible|likely|common|probable) (?:root )?(?:causes?|reasons?)\b"
    r"|^\W{0,8}\(?\d\)\s+The process is killed by SIGKILL by OOM"
)
_RECORD = re.compile(r'\W{0,4}"(?:role|messages|conversations|prompt|cause|tool_call_id)"\s*:')


def is_hearsay(body: str, begins: Callable[[], int | None]) -> bool:
    """Whether what a pattern finds in a line is only spoken of there.

    Args:
        body: the line without what its logger put before it.
        begins: where in it the match starts; asked only where a quotation opens.
    """
    if _RECORD.match(body):
        return True
    if (guesses := _GUESSES.search(body)) and (at := begins()) is not None and at >= guesses.start():
        return True
    if ' "' not in body and " '" not in body and "\u201c" not in body and "\u2018" not in body:
        return False
    at = begins()
    return at is not None and _OPENED.search(body[:at]) is not None and not _PRINTED.search(body[:at])


def stated(body: str) -> str:
    """A line as far as it states something: without the list of possible causes that follows."""
    guesses = _GUESSES.search(body)
    return body[: guesses.start()] if guesses else body
