"""The part that a file plays, once it is known which programs ran and what they reach and loaded."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Literal, Protocol

from ..files import RunFile
from ..roles import EVENTS

Part = Literal["program", "config", "output", "data", "bystander", "unknown"]

_NEVER = re.compile(r"(?:^|/)\.(?:git\w+|dockerignore|editorconfig|flake8|coveragerc|pylintrc|[\w\-]+\.ya?ml)$")
# What belongs to a project and to none of its runs: pages, licences, tests, set-up, other people's code.
SET_UP = re.compile(
    r"(?:^|/)(?:readme|[\w\-]*licen[sc]e|copying|notice|legal|model_card|changelog|changes|contributing|code_of_conduct"
    r"|authors|citation|security|contributors|history|todo|faq)(?:[._-][^/]*)?$"
    r"|(?:^|/)(?:setup\.py|setup\.cfg|manifest\.in|tox\.ini|pytest\.ini|noxfile\.py|mkdocs\.yml|conftest\.py|mypy\.ini"
    r"|ruff\.toml|pyproject\.toml|makefile|justfile|codecov\.yml|test_[^/]*\.py|[^/]*_test\.py|[\w.\-]*dockerfile)$"
    r"|(?:^|/)(?:\.circleci|\.vscode|\.idea|[\w\-]*docs?|tests?|testing)/|(?:^|/)\.(?:git\w*|flake8|pylintrc|env\.example)$",
    re.IGNORECASE,
)
VENDORED = re.compile(
    r"(?:^|/)(?:third[-_]party|3rdparty|vendor(?:ed)?|site-packages|dist-packages|node_modules|\.github|\.gitlab"
    r"|[^/]+\.egg-info)/|(?:^|/)(?:setup|conftest|noxfile)\.py$",
    re.IGNORECASE,
)
_FOR_TESTS = re.compile(
    r"(?:^|[/_.-])(?:dev|docs?|tests?|lint|build|readthedocs)(?:[/_.-]|$)", re.IGNORECASE
)  # requirements
_OF_A_MODEL = re.compile(
    r"(?:^|/)(?:tokenizer[\w.\-]*|special_tokens_map|added_tokens|vocab|generation_config|preprocessor_config|chat_template)"
    r"\.(?:json|jinja)$"
)
_OUTPUTS = ("metrics", "checkpoint", "trace", "record", "capture", "environment")
_PRINTED = (".log", ".out", ".err", ".stdout", ".stderr", ".txt")  # endings of what programs print
_MEASURES = re.compile(r"(?:^|/)(?:bench(?:mark)?(?:ing)?|throughput|profile|speed_?test)(?:_\w+)?\.py$")
_DATA_FOLDER = re.compile(r"(?:^|/)(?:data|datasets?|corpus|corpora|texts?|raw_data)/", re.IGNORECASE)
_NO_DATA = (".log", ".out", ".err", ".yaml", ".yml", ".toml", ".ini", ".cfg", ".sh", ".py", ".ipynb")


class Ran(Protocol):
    """What is asked of a program that ran."""

    file: RunFile
    how: str
    reached: list[str]
    configs: dict[str, str]
    logs: list[str]
    accounted: set[str]


_PAGES = frozenset({".md", ".mdx", ".rst", ".adoc"})  # beside a program; at the top they may be a user's notes
_FOREIGN = frozenset({".jinja", ".j2", ".html", ".css", ".js", ".ts", ".rs", ".go", ".java", ".svg"})
_WEIGHTS = (".pt", ".pth", ".bin", ".safetensors", ".ckpt", ".npz", ".npy", ".pkl", ".tar")
_ORDINARY = re.compile(
    r"(?i)^(?:.*(?:checkpoints?|ckpts?|epoch|step|best|last|latest|final|model|weights|state).*|logs?|runs?|out\w*|results?"
    r"|train\w*|eval\w*|tests?|metrics|history|\d+|version_\d+)$"
)  # names that many a run gives to what it writes


class Parts:
    """The parts of one folder's files.

    Args:
        mentioned: sources that each log names with a line.
        whole: all programs parse, so that what they import is known.
        written: folders that hold what a run wrote.
        foreign: logs that scripts write which started none of the programs.
        said: what the programs' sources, commands, configs and logs say, as one text.
        root: what stands before all names of this folder.
        untold: something was printed here, by which of many programs is not known.
    """

    def __init__(
        self,
        programs: Sequence[Ran],
        mentioned: Mapping[str, set[str]],
        whole: bool,
        written: set[str],
        foreign: set[str],
        said: str = "",
        root: str = "",
        untold: bool = False,
    ) -> None:
        self.whole, self.written, self.root, self._untold = whole, written, root, untold
        self._said = said
        self.logs = {log for p in programs for log in p.logs}
        self.foreign = foreign - self.logs if self.logs else set[str]()
        own = {log for p in programs if not _MEASURES.search(p.file.name) for log in p.logs}
        # what only measures speed is no run, where another program left a log too
        self.aside = self.logs - own if own else set[str]()
        self.mentioned = {n for log, names in mentioned.items() if log not in self.aside for n in names}
        meant = [p for p in programs if not p.logs or not self.aside.issuperset(p.logs)]
        self.reached: Mapping[str, Ran] = {n: p for p in reversed(meant) for n in p.reached}
        self.configs = {n: (p, how) for p in meant for n, how in p.configs.items()}
        # logs that no command and no config accounts for had configs of their own, unless they tell the same again
        told = sum(len(p.accounted) for p in meant)
        self.accounted = 2 * told >= sum(len(p.logs) for p in meant)

    def of(self, f: RunFile, read: Callable[[RunFile, int], bytes]) -> tuple[Part, str]:
        """The part of a file, and how it is known."""
        name, inner = f.name, f.name.removeprefix(self.root)
        if name in self.configs and not is_data(f, self.root):
            return "config", f"{self.configs[name][0].file.name}: {self.configs[name][1]}"
        if name in self.reached:
            program = self.reached[name]
            return "program", program.how if name == program.file.name else f"{program.file.name} imports it"
        if name in self.mentioned:
            return "program", "a log names it with a line of it"
        if name in self.aside:
            return "bystander", "what a measurement of speed printed, beside a run"
        if name in self.foreign:
            return "bystander", "a script writes it that started none of the programs that ran"
        if f.role != "data" and is_data(f, self.root):
            return "data", "below a folder of data"
        printed = f.role == "log" and PurePosixPath(name).suffix.lower() in _PRINTED
        if _NEVER.search(inner) or (
            (SET_UP.search(inner) or VENDORED.search(inner)) and f.role not in _OUTPUTS and not printed
        ):
            return "bystander", "no part of a run by its name"
        if f.role == "environment" and self.reached and (_FOR_TESTS.search(inner) or not self._around(inner)):
            return "bystander", "requirements of another part of the project"
        if self._came_with_it(f, inner):
            return "bystander", f"a file of {f.role} that came with the project: nothing that ran speaks of it"
        if f.role in _OUTPUTS:
            return "output", f"a file of {f.role}"
        if f.role == "data":
            return "data", "data by its form"
        if f.role == "log":
            return self._log(f, printed, read)
        if f.role == "config" and PurePosixPath(name).parent.as_posix() in self.written:
            return "output", "it lies beside what the run wrote"
        if _OF_A_MODEL.search(inner):
            return "output", "it goes with a model"
        if f.role in ("code", "config") and self.whole:
            return self._left(f)
        if f.role in ("code", "config") and self._untold:
            return "bystander", "which of several programs ran is not known"
        path = PurePosixPath(inner)
        if self.whole and path.suffix in _FOREIGN:
            return "bystander", "source of another kind than what ran"
        if self.whole and path.suffix in _PAGES and path.parent.name and path.parent.as_posix() not in self.written:
            return "bystander", "a page of the project"
        return "unknown", "nothing tells"

    def _came_with_it(self, f: RunFile, inner: str) -> bool:
        """Whether a table or weights are of a folder in which nothing of this run lies and of which nothing speaks."""
        path = PurePosixPath(inner)
        kinds = {"metrics": (".csv", ".tsv"), "checkpoint": _WEIGHTS}.get(f.role, ())
        if not (self.whole and self.logs and self._said and path.suffix in kinds and len(path.parts) > 1):
            return False
        folders = [self.root + folder.as_posix() for folder in path.parents][:-1]
        if any(PurePosixPath(log).parent.as_posix() in folders for log in self.logs):
            return False
        names = [n for n in (path.parent.name, path.stem) if not _ORDINARY.match(n)]
        words = {w for n in names for w in re.findall(r"[A-Za-z]{3,}", n)}
        return bool(words) and not all(w in self._said for w in words)

    def _around(self, inner: str) -> bool:
        """Whether a file lies in a folder that a program which ran lies in or below, or beside what it wrote."""
        folder = PurePosixPath(inner).parent.as_posix()
        entries = {p.file.name.removeprefix(self.root) for p in self.reached.values()}
        own = folder == "." or any(n.startswith(f"{folder}/") for n in entries)
        return own or (self.root + folder) in self.written

    def _log(self, f: RunFile, printed: bool, read: Callable[[RunFile, int], bytes]) -> tuple[Part, str]:
        """Text that may have been printed; beside logs of known programs, what looks like none is none."""
        if f.name in self.logs or not self.logs or printed or EVENTS.search(read(f, 8192)):
            return "output", "a log"
        return "bystander", "text that nothing printed"

    def _left(self, f: RunFile) -> tuple[Part, str]:
        """A source or a config that nothing of what ran leads to."""
        if f.name.endswith((".py", ".ipynb")):
            return "bystander", "no program that ran reaches it"
        if f.role == "code":
            return "unknown", "nothing tells"
        if is_script(f):
            return "bystander", "it starts none of the programs that ran"
        suffix = PurePosixPath(f.name).suffix
        same = [n for n in self.configs if PurePosixPath(n).suffix == suffix or n.endswith(".py")]
        if same and self.accounted:
            return "bystander", f"the program loaded {same[0]}"
        return "bystander", "nothing tells that the program loaded it"


def is_data(f: RunFile, root: str = "") -> bool:
    """Whether a file without a role of its own lies below a folder of data."""
    name = f.name.removeprefix(root)
    if not _DATA_FOLDER.search(name) or PurePosixPath(name).suffix.lower() in _NO_DATA or name.startswith("conf"):
        return False
    page = _NEVER.search(name) or (f.role == "note" and SET_UP.search(name))
    return f.role in ("log", "other", "note", "metrics", "config") and not page


def is_script(f: RunFile) -> bool:
    """Whether a config is a script that starts programs."""
    path = PurePosixPath(f.name)
    named = re.search(r"launch|command|cmd|cli\b|script", path.name, re.IGNORECASE)
    endings = (".sh", ".bash", ".zsh", ".sbatch", ".slurm", "")
    return f.role == "config" and (path.suffix in endings or (path.suffix == ".txt" and named is not None))
