"""What the detectors of hazards look at: the program of a run, and what its launch files say."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any, TypeVar

from ..run.files import Line, RunFile
from ..run.program.syntax import Syntax, notebook
from ..run.workspace import Workspace
from ..settings.settings import Setting, Settings, read_settings
from .circumstances import NEEDS, Circumstances
from .conditions import PERHAPS, UNTOLD

T = TypeVar("T")

FILES, BYTES, TOTAL = 200, 400_000, 1_500_000  # code files, bytes of one, bytes of all
EXCERPTS = 60  # text files looked at for code
_FOREIGN = re.compile(
    r"(^|/)(site-packages|dist-packages|node_modules|\.git|\.venv|venv|build|third_party|__pycache__)(/|$)"
    r"|(^|/)zero_to_(fp32|torch)\.py$"  # what DeepSpeed puts beside its checkpoints
)
_PYTHON = re.compile(r"(?m)^\s*(?:def \w+\(|class \w+\b.*:|import \w+|from [\w.]+ import |@[\w.]+$|for \w+.* in .+:$)")

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
    """The code files of one run, with the text of its launch and config files, and what the run was."""

    codes: list[Code]
    run: Circumstances
    launch: str = ""
    memo: dict[str, Any] = field(default_factory=dict, repr=False)

    def once(self, name: str, make: Callable[[], T]) -> T:
        """Something all files share, worked out once."""
        if name not in self.memo:
            self.memo[name] = make()
        return self.memo[name]

    def mentions(self, *words: str) -> bool:
        """Whether any of these words stands in any code or launch file."""
        return any(word in self.launch for word in words) or any(c.mentions(*words) for c in self.codes)


Detector = Callable[[Code, Project], Iterator[Hazard]]


def detects(*found: str, needs: tuple[str, ...] = ()) -> Callable[[Detector], Detector]:
    """Mark a detector with the names of the hazards it finds, and with what must be so for them to be facts.

    That the line was reached is needed always. Several marks may stand on one detector.

    Args:
        needs: names of `circumstances.NEEDS`.
    """
    if unknown := set(needs) - set(NEEDS):
        raise ValueError(f"no such need: {sorted(unknown)}")

    def mark(detector: Detector) -> Detector:
        declared = {**getattr(detector, "detects", {}), **dict.fromkeys(found, needs)}
        detector.detects = declared  # pyright: ignore[reportFunctionMemberAccess]
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
    """Every hazard of a project that is a fact about its run, by file and line, each line once a name."""
    found: list[tuple[Code, Hazard]] = []
    for code in project.codes:
        seen: dict[tuple[str, int], Hazard] = {}
        for detector in detectors():
            needs: dict[str, tuple[str, ...]] = detector.detects  # pyright: ignore[reportFunctionMemberAccess]
            for hazard in detector(code, project):
                new = 1 <= hazard.line <= len(code.lines) and (hazard.name, hazard.line) not in seen
                if new and project.run.allow(code.file.name, hazard.line, needs[hazard.name]):
                    seen[hazard.name, hazard.line] = hazard
        found += [(code, h) for h in sorted(seen.values(), key=lambda h: (h.line, h.name))]
    return found


def reached_settings(ws: Workspace) -> Settings:
    """The settings of the run without those of code that did not run."""
    return ws.memo("reached settings", lambda: _reached_settings(ws))


def _reached_settings(ws: Workspace) -> Settings:
    reading, run = read_settings(ws), code_project(ws)[0].run
    entries = {p.file.name for p in ws.ran.programs} | {n for p in ws.ran.programs for n in p.configs}

    def ran(s: Setting) -> bool:
        if s.place.format != "python":
            return True
        # A default deep in a library's class holds where the class is surely used, not wherever it might be.
        told = s.file.name in entries or s.place.style == "keyword" or run.at_top(s.file.name, s.line.number)
        told = told or not run.is_followed(s.file.name)
        return run.reached(s.file.name, s.line.number) > (UNTOLD if told else PERHAPS)

    return replace(reading, all=[s for s in reading.all if ran(s)], open=[s for s in reading.open if ran(s)])


# ----------
# Which files are read as code.


def code_project(ws: Workspace) -> tuple[Project, int]:
    """The code files that are read, with how many were left out for number or size."""
    return ws.memo("code project", lambda: _project(ws))


def _project(ws: Workspace) -> tuple[Project, int]:
    own = [f for f in ws.files if not _FOREIGN.search(f.name)]
    found = [f for f in own if f.name.endswith((".py", ".ipynb"))]
    found += [f for f in [f for f in own if _maybe_excerpt(f)][:EXCERPTS] if _is_excerpt(ws, f)]
    codes: list[Code] = []
    total = left = 0
    for file in sorted(found, key=lambda f: (f.name.count("/"), f.name)):
        if len(codes) >= FILES or file.size > BYTES or total + file.size > TOTAL:
            left += 1
            continue
        codes.append(_code(ws, file))
        total += file.size
    launch = "\n".join(ws.text(f, 64 << 10) for f in ws.by_role("config")[:40])
    run = Circumstances(ws, {code.file.name: code.syntax for code in codes}, launch)
    return Project(codes, run, launch), left


def _maybe_excerpt(file: RunFile) -> bool:
    return file.role != "checkpoint" and file.size < 64 << 10 and file.name.endswith((".txt", ".md"))


def _is_excerpt(ws: Workspace, file: RunFile) -> bool:
    """Whether a text file holds Python code rather than the output of some."""
    text = ws.text(file, 64 << 10)
    lines = sum(1 for line in text.splitlines() if line.strip())
    return "Traceback (most recent" not in text and len(_PYTHON.findall(text)) * 8 >= max(lines, 8)


def _code(ws: Workspace, file: RunFile) -> Code:
    lines: list[Line] = list(ws.lines(file))
    source = "\n".join(line.text.rstrip("\r").replace("\0", " ") for line in lines)
    return Code(file, lines, notebook(source) if file.name.endswith(".ipynb") else source)
