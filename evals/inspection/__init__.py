"""The same evaluation on inspect-ai: a task, its solvers and its scorers, with transcripts for `inspect view`.

    inspect eval evals/inspection/task.py --model none -T paths=evals/incidents -T solver=offline
    inspect eval evals/inspection/task.py --model openai/NAME -T solver=paste

`doctor eval` is the short way in and has its own loop; with `--log DIR` it writes such logs too.
"""

from __future__ import annotations
