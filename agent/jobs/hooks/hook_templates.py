"""The files of `doctor hook`: commented templates beside this module, with a few values put in."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

from ...core.errors import UsageError

_PLACE = re.compile(r"@([A-Z]+)@")


@dataclass(frozen=True, slots=True)
class Template:
    """One file that can be printed. `script`: bash, so that values are quoted for it; else YAML."""

    scheduler: str
    part: str
    file: str
    what: str

    @property
    def script(self) -> bool:
        return self.file.endswith(".sh")


TEMPLATES = (
    Template("slurm", "epilog", "slurm_epilog.sh", "an epilog for administrators: every failed job, as its user"),
    Template("slurm", "sbatch", "slurm_sbatch.sh", "a batch script whose job explains itself"),
    Template("kubernetes", "sidecar", "kubernetes_sidecar.yaml", "a Job with doctor in a container of its own"),
    Template("kubernetes", "run", "kubernetes_run.yaml", "a Job under `doctor run`, with doctor in the image"),
    Template("ray", "job", "ray_job.sh", "submits a Ray job, and diagnoses it when it fails"),
    Template("torchrun", "launch", "torchrun_launch.sh", "a launch line under `doctor run`"),
)


def template(scheduler: str, part: str = "") -> Template:
    """The template of that name; of a scheduler with several, the first where none is named.

    Raises:
        UsageError: there is none.
    """
    of = [t for t in TEMPLATES if t.scheduler == scheduler]
    found = next((t for t in of if part in ("", t.part)), None)
    if not of:
        known = ", ".join(dict.fromkeys(t.scheduler for t in TEMPLATES))
        raise UsageError(f"there is no hook for {scheduler!r}", f"there are: {known}")
    if found is None:
        raise UsageError(f"{scheduler} has no part {part!r}", f"it has: {', '.join(t.part for t in of)}")
    return found


def filled(one: Template, values: Mapping[str, str]) -> str:
    """The file's text. Values of scripts are quoted for bash, apart from COMMAND, which is several words.

    Raises:
        UsageError: a value cannot stand in such a file.
    """
    text = (files(__package__ or "") / one.file).read_text(encoding="utf-8")

    def put(match: re.Match[str]) -> str:
        value = values[match[1]]
        if any(ord(c) < 32 or ord(c) == 127 for c in value):
            raise UsageError(f"{value!r} cannot stand in a script", "name a path without control characters")
        if match[1] == "COMMAND":
            return value
        if one.script:
            return shlex.quote(value)
        if not re.fullmatch(r"[\w./+-]*", value):
            raise UsageError(
                f"{value!r} cannot stand in a manifest unquoted", "name a path of letters, digits and ./_-"
            )
        return value

    return _PLACE.sub(put, text)
