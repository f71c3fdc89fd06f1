"""Short runs of the user's own command with the overrides that the user declared, and what their loss did.

The declaration is a TOML file that only the user can name (`DOCTOR_EXPERIMENTS`, or `experiments` in the user's
config file). It is never looked for in the folder of a run and no argument of a tool names it: whoever sends a run,
or writes into its logs, must not choose what is executed.

    folder = "."                         # where the command starts, relative to this file
    command = ["python", "train.py"]
    seconds = 300                        # limit of one run

    [overfit_one_batch]
    arguments = ["--one-batch", "--steps", "200", "--out", "{output}"]
    environment = {WANDB_MODE = "disabled"}

    [zero_input]                         # the same command with its input zeroed, and without
    arguments = ["--zero-input", "--steps", "200"]
    [real_input]
    arguments = ["--steps", "200"]

`{output}` stands for a fresh folder, which `DOCTOR_OUTPUT` names too; metrics are read from what is printed and from
the files in it.
"""

from __future__ import annotations

import os
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..errors import ToolError
from ..playbook import KNOWLEDGE
from ..shell import Completed
from .curves import curves
from .series import Series

if TYPE_CHECKING:
    from ..workspace import Workspace

VARIABLE = "DOCTOR_EXPERIMENTS"
MOST_SECONDS = 3600
ENOUGH = 8  # points of a loss from which something can be said
NAMES = ("loss", "train_loss")


class Overrides(BaseModel):
    """What one experiment adds to the command, or another command altogether."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    arguments: list[str] = []
    environment: dict[str, str] = {}
    command: list[str] = []


class Declaration(BaseModel):
    """The user's file, checked."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    command: list[str] = Field(min_length=1)
    folder: str = "."
    seconds: float = Field(300, gt=0, le=MOST_SECONDS)
    overfit_one_batch: Overrides | None = None
    zero_input: Overrides | None = None
    real_input: Overrides | None = None


@dataclass(frozen=True, slots=True)
class Trial:
    """One short run: the command's answer, the loss it logged (None without one) and the line that shows its end."""

    done: Completed
    losses: list[float]
    last_line: str
    trouble: str = ""

    @property
    def stopped(self) -> bool:
        """The time was over before the command ended: what it had not reached says nothing."""
        return self.done.code is None

    @property
    def first(self) -> float:
        """Median of the first points."""
        return _median(self.losses[: max(1, len(self.losses) // 20)])

    @property
    def last(self) -> float:
        """Median of the last tenth."""
        return _median(self.losses[-max(1, len(self.losses) // 10) :])


def declared() -> tuple[Declaration, Path] | None:
    """What the user declared, with the folder of the file; None where no file was named.

    Raises:
        ToolError: the named file cannot be read or holds something else.
    """
    named = os.environ.get(VARIABLE)
    if not named:
        return None
    path = Path(named).expanduser()
    try:
        return Declaration.model_validate(tomllib.loads(path.read_text(encoding="utf-8"))), path.resolve().parent
    except OSError as e:
        raise ToolError(f"{VARIABLE}={named}: {e.strerror}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as e:
        raise ToolError(f"{named}: {e}") from None
    except ValidationError as e:
        first = e.errors()[0]
        raise ToolError(f"{named}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None


def run(ws: Workspace, what: Declaration, overrides: Overrides, home: Path, seconds: float = 0) -> Trial:
    """Run the command once in a fresh output folder and read the loss it logs; the folder is gone afterwards."""
    from ..workspace import Workspace

    with tempfile.TemporaryDirectory(prefix="doctor-experiment-", ignore_cleanup_errors=True) as folder:
        argv = [*(overrides.command or what.command), *overrides.arguments]
        argv = [a.replace("{output}", folder) for a in argv]
        cwd = (home / what.folder).resolve()
        if not cwd.is_dir():
            raise ToolError(f"folder of the experiment is not there: {cwd}")
        env = {**overrides.environment, "DOCTOR_OUTPUT": folder, "PYTHONUNBUFFERED": "1"}
        done = ws.shell(argv, min(seconds or what.seconds, MOST_SECONDS), env, cwd)
        out = Path(folder) / "experiment.log"
        out.write_text(done.stdout + "\n" + done.stderr, encoding="utf-8")
        series = _loss(Workspace([Path(folder)], live=False))
    return _trial(done, series, out.name)


def _loss(short: Workspace) -> tuple[list[float], str]:
    """The training loss of the short run and the line of its last point."""
    found = [s for s in curves(short).series if s.metric in NAMES and s.rank in (None, 0)]
    if not found:
        return [], ""
    best: Series = max(found, key=len)
    number = int(best.lines[-1])
    line = next((x.text for x in short.lines(best.file) if x.number == number), "")
    return [float(v) for v in best.values], line.strip()[:400]


def _trial(done: Completed, series: tuple[list[float], str], log: str) -> Trial:
    losses, line = series
    trouble = ""
    if len(losses) < ENOUGH or done.code:
        said = next((x for x in reversed(done.stderr.splitlines()) if x.strip()), "")
        ended = "ran out of time" if done.code is None else f"ended with code {done.code}"
        trouble = (
            f"{len(losses)} points of a loss were logged; the command {ended}: {said.strip()[:200] or 'no message'}"
        )
    return Trial(done, losses, line, trouble)


def _median(values: list[float]) -> float:
    ordered = sorted(values)
    return ordered[len(ordered) // 2] if ordered else float("nan")


def by_hand(ws: Workspace, experiment: str) -> tuple[str, list[str]]:
    """The framework the run's files name, and the edits that make the experiment there."""
    import re

    text = "\n".join(ws.text(f, 64 << 10) for f in ws.by_role("code", "config", "log")[:40])
    rows = yaml.load(
        (KNOWLEDGE / "experiments.yaml").read_text(encoding="utf-8"),
        Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader),
    )
    row = next((r for r in rows if re.search(r["match"], text)), rows[-1])
    return row["framework"], row[experiment]
