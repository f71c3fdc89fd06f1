"""What the detectors of hazards look at: the program of a run, and what its launch files say."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, TypeVar

from ..run.files import Line, RunFile
from ..run.program.syntax import Syntax

T = TypeVar("T")

_MANY = re.compile(
    r"init_process_group|LOCAL_RANK|local[_-]rank|DistributedDataParallel|setup_distributed|fully_shard|init_deepspeed"
    r"|\btorchrun\b|--nproc[_-]per[_-]node|accelerate launch|torch\.distributed|deepspeed\.initialize|\bmpirun\b"
    r"|dist\.get_rank|num_processes|--num_gpus"
)

# classes of optimizers, by their names
OPTIMIZERS = re.compile(r"^(?:\w*Adam\w*|\w*SGD|Adafactor|\w*Lion\w*|RMSprop|Adagrad|Muon|Lamb|LARS|Shampoo|SOAP)$")


@dataclass(frozen=True, slots=True)
class Hazard:
    """A hazard at a line (from 1) of a code file."""

    name: str
    line: int
    value: Any = True


@dataclass
class Code:
    """One code file: its lines as they are cited, and its trees."""

    file: RunFile
    lines: list[Line]
    source: str = field(repr=False)

    @cached_property
    def syntax(self) -> Syntax:
        return Syntax(self.source)

    def mentions(self, *words: str) -> bool:
        """Whether any of these words stands anywhere in the file."""
        return any(word in self.source for word in words)


@dataclass
class Project:
    """The code files of one run, with the text of its launch and config files."""

    codes: list[Code]
    launch: str = ""
    memo: dict[str, Any] = field(default_factory=dict, repr=False)

    @cached_property
    def several_processes(self) -> bool:
        """Whether the code runs in several processes, by what it calls or how it is launched."""
        return bool(_MANY.search(self.launch) or any(_MANY.search(c.source) for c in self.codes))

    def once(self, name: str, make: Callable[[], T]) -> T:
        """Something all files share, worked out once."""
        if name not in self.memo:
            self.memo[name] = make()
        return self.memo[name]

    def mentions(self, *words: str) -> bool:
        """Whether any of these words stands in any code or launch file."""
        return any(word in self.launch for word in words) or any(c.mentions(*words) for c in self.codes)


Detector = Callable[[Code, Project], Iterator[Hazard]]


def detects(*found: str) -> Callable[[Detector], Detector]:
    """Mark a detector with the names of the hazards it finds."""

    def mark(detector: Detector) -> Detector:
        detector.detects = found  # pyright: ignore[reportFunctionMemberAccess]
        return detector

    return mark


@cache
def detectors() -> tuple[Detector, ...]:
    """Every detector in the folder `hazards`."""
    package = importlib.import_module(f"{__package__}.hazards")
    found = []
    for module in sorted(m.name for m in pkgutil.iter_modules(package.__path__)):
        members = vars(importlib.import_module(f"{package.__name__}.{module}")).values()
        found += [f for f in members if callable(f) and hasattr(f, "detects")]
    return tuple(found)


def hazards(project: Project) -> list[tuple[Code, Hazard]]:
    """Every hazard of a project, by file and line, each line once a name."""
    found: list[tuple[Code, Hazard]] = []
    for code in project.codes:
        seen: dict[tuple[str, int], Hazard] = {}
        for detector in detectors():
            for hazard in detector(code, project):
                if 1 <= hazard.line <= len(code.lines):
                    seen.setdefault((hazard.name, hazard.line), hazard)
        found += [(code, h) for h in sorted(seen.values(), key=lambda h: (h.line, h.name))]
    return found
