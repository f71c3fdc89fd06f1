"""What a model proposes to change: exact text of a file of the run and what to put there, checked, as marked patches.

The model is not trusted, nor is the run that it read. A proposal is a typed edit, never a command; it reaches text
files of the run alone, what does not show in a diff is refused, and nothing here writes.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
import unicodedata
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath

import yaml

from ...core.errors import DiffRefused
from ...core.own_files import OddFile, small_file
from ...core.playbook import causes
from ...core.report import Patch, Report, ReportFix, Sentence
from ...core.types import Evidence
from ...core.unified import lines_of, unified
from ...reading.run.files import RunFile
from ...reading.run.workspace import STDIN, Workspace
from ...reading.settings.forms.settings_files import toml
from ...safety.fences import harmless, holds_unseen, one_line
from ...safety.redact import Redactor
from ...tools.tool import all_tools
from ...verdict.gate import through_gate
from ...verdict.planner import HEALTHY, INSUFFICIENT, ProposedEdit
from ...verdict.predicates import Facts
from ..applying.patch_targets import PLUMBING
from ..patching.document import HEAD, is_record

# ----------
# A typed edit against the text it is for: found exactly once, everything in it visible, and read back after.
#
# What a person cannot see in a diff, a person cannot agree to: such text is refused, whoever wrote it.


LARGEST = 1 << 20  # bytes of a file that is edited
LONGEST = 20_000  # characters of either text of an edit
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MARK = re.compile(r"<SECRET:")
_BREAK = re.compile(r"[^\w\s]\\")  # `fence.harmless` tells a control token with a backslash behind its first character
_STRETCH = re.compile(r"\s{80,}")  # pushes what follows out of sight
_DEEPEST, _EVENTS = 64, 400_000
_TOKEN = 80  # characters that tell one


class Refused(Exception):
    """An edit that cannot be offered; the reason goes on from its name."""


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """Characters of a text that give way to others."""

    start: int
    end: int
    old: str
    text: str


def plain_text(path: Path) -> tuple[str, str]:
    """The text of a file as it stands, and the sha256 of its bytes.

    Raises:
        Refused: it is no small regular UTF-8 text.
    """
    try:
        data, _ = small_file(path, LARGEST, follow=False)
        text = data.decode()
    except OddFile as e:
        raise Refused(f"it {e}") from None
    except UnicodeDecodeError:
        raise Refused("it is not UTF-8 text") from None
    except OSError as e:
        raise Refused(f"it cannot be read: {e.strerror}") from None
    if "\0" in text:
        raise Refused("it is not UTF-8 text")
    return text, hashlib.sha256(data).hexdigest()


def place(find: str, replace: str, text: str) -> Span:
    """Where an edit stands in a text. In one whose lines all end with CRLF, its own line ends are as there.

    Raises:
        Refused: it stands nowhere or in several places, changes nothing, or holds what must not be there.
    """
    if not find.strip():
        raise Refused("the text to find is empty")
    if max(len(find), len(replace)) > LONGEST:
        raise Refused(f"its texts are longer than {LONGEST} characters")
    if "\r\n" in text and "\n" not in text.replace("\r\n", ""):
        find, replace = (re.sub(r"\r?\n", "\r\n", t) for t in (find, replace))
    if find == replace:
        raise Refused("it changes nothing")
    if fault := _unfit(find, replace):
        raise Refused(fault)
    start = text.find(find)
    if start < 0:
        raise Refused("the text to find does not stand there")
    if text.find(find, start + 1) >= 0:
        raise Refused("the text to find stands there several times")
    return Span(start, start + len(find), find, replace)


def _unfit(find: str, replace: str) -> str:
    """What must not be in an edit; empty where nothing is."""
    if any(_MARK.search(t) or Redactor().redact(t) != t for t in (find, replace)):
        return "it holds a secret, or the mark of one that was taken out"
    if unseen(replace):
        return "the new text holds characters that do not show"
    if any(token not in find for token in _broken_tokens(replace)):
        return "the new text holds a control token as it was shown, not as files hold it"
    if _STRETCH.search(replace) and not _STRETCH.search(find):
        return "the new text holds a stretch of blanks that hides what follows"
    return ""


def _broken_tokens(text: str) -> Iterator[str]:
    """Control tokens that stand in a text as a model was shown them; `[\\w]` and `!\\n` are code."""
    for m in _BREAK.finditer(text):
        before, after = text[max(0, m.start() - 3) : m.start() + 1], text[m.end() : m.end() + _TOKEN]
        if harmless(f"{before}\\{after}") == harmless(before + after):
            yield text[m.start() : m.end() + 6]


def unseen(text: str) -> bool:
    """Whether a text holds what does not show: control, format and bidi characters, private ones, fillers."""
    if text.isascii():
        return re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\r(?!\n)", text) is not None
    odd = any(unicodedata.category(c)[0] == "C" for c in text if c not in "\t\n\r")
    return odd or holds_unseen(text) or re.search(r"\r(?!\n)", text) is not None


def breaks(name: str, old: str, new: str) -> str:
    """The format that a change spoils: the old text is read by its parser, the new one is not. Empty where none."""
    form = _FORMS.get(PurePath(name).suffix.lower(), "")
    return form if form and _parses(form, old) and not _parses(form, new) else ""


_FORMS = {".json": "JSON", ".ipynb": "JSON", ".yaml": "YAML", ".yml": "YAML", ".toml": "TOML", ".py": "Python"}


def _parses(form: str, text: str) -> bool:
    text = text.removeprefix("\ufeff")
    try:
        if form == "JSON":
            json.loads(text)
        elif form == "TOML":
            toml(text)
        elif form == "YAML":
            _read_yaml(text)
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                ast.parse(text)
    except (ValueError, SyntaxError, yaml.YAMLError, RecursionError, MemoryError):
        return False
    return True


def _read_yaml(text: str) -> None:
    """Read a text by its events, which build nothing; what is nested or long beyond all use costs minutes."""
    depth = 0
    for number, event in enumerate(yaml.parse(text, Loader=_LOADER)):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST or number > _EVENTS:
            raise ValueError("too deep or too long")


# ----------

TITLE = "proposed by the model"
RISK = "No recipe stands behind it: read it before you apply it."
LINES = 200  # changed ones that a person can be asked to read
WIDTH = 380  # characters of such a line: what is longer is not shown whole where one is asked
REASON = 1_200  # characters of what a model says for an edit
SHORT = 80  # characters of a text that is told word for word
_ROLES = ("config", "code", "environment")
_SETTINGS = (".yaml", ".yml", ".json", ".jsonc", ".json5", ".toml", ".ini", ".cfg", ".conf", ".properties")
_RUNS = "Runs code: the next launch executes what stands in this file."
_INSTALLS = "Decides which packages are installed."
_AFTER = "run a few steps, then ask about the new run"
_OWN = "edit"  # the edit itself, as evidence for its reason: no id of evidence reads so


@dataclass(slots=True)
class _Target:
    """A file of the run with the edits that it takes, in no order."""

    name: str
    role: str
    text: str
    sha256: str
    spans: list[Span] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)


def proposed(
    edits: Sequence[ProposedEdit], workspace: Workspace, start: int = 1,
    evidence: Mapping[str, Evidence] | None = None,
) -> tuple[list[Patch], list[str]]:  # fmt: skip
    """A patch for each file, and what of the proposals cannot stand, one line each.

    Args:
        start: number of the first patch.
        evidence: by id, as the reasons may cite it.
    """
    targets: dict[Path, _Target] = {}
    wrong: list[str] = []
    for number, edit in enumerate(dict.fromkeys(edits), 1):
        try:
            _take(edit, workspace, targets, evidence or {}, wrong)
        except Refused as e:
            wrong.append(f"edit {number} ({one_line(edit.file)[:80] or 'no file'}) is left out: {e}")
    patches: list[Patch] = []
    for target in targets.values():
        try:
            patches += [_patch(target, f"P{start + len(patches)}")] if target.spans else []
        except (Refused, DiffRefused) as e:
            wrong.append(f"the edits of {one_line(target.name)[:80]} are left out: {e}")
    return patches, wrong


def of_verdict(
    edits: Sequence[ProposedEdit], report: Report, workspace: Workspace, facts: Facts
) -> tuple[list[Patch], list[str]]:  # fmt: skip
    """The same for the edits beside a verdict. Where the verdict does not stand, they do not."""
    if not edits:
        return [], []
    if report.meta.planner != "llm":
        return [], ["its edits are left out, as its verdict does not stand"]
    if report.root_cause.id in (HEALTHY, INSUFFICIENT):
        return [], [f"its edits are left out, as {report.root_cause.id} calls for none"]
    known = {e.id: e for found in facts.by_key.values() for e in found if e.kind != "document"}
    return proposed(edits, workspace, evidence=known)


def offer(report: Report, patches: Sequence[Patch], wrong: Sequence[str]) -> None:
    """Put patches of a model behind those that the report has, as one repair of their own.

    Args:
        wrong: what of the proposals was left out; the rest may depend on it.
    """
    if not patches:
        return
    first = len(report.patches) + 1
    numbered = [p.model_copy(update={"id": f"P{n}"}) for n, p in enumerate(patches, first)]
    risk = RISK + (" Part of what it proposed was left out; this may not be enough without it." if wrong else "")
    report.patches += numbered
    report.fixes.append(
        ReportFix(title="What the model proposes", risk=risk, patches=[p.id for p in numbered], verify=_AFTER)
    )


def _take(
    edit: ProposedEdit, workspace: Workspace, targets: dict[Path, _Target], evidence: Mapping[str, Evidence],
    wrong: list[str],
) -> None:  # fmt: skip
    """Add an edit to the file it is for.

    Raises:
        Refused: it cannot be offered.
    """
    file, real = _file(edit.file, workspace)
    if real not in targets:
        text, sha256 = plain_text(real)
        if is_record(file.name, text[:HEAD]):
            raise Refused("the run wrote it to remember what it did: a change of it does nothing")
        targets[real] = _Target(file.name, file.role, text, sha256)
    target = targets[real]
    span = place(edit.find, edit.replace, target.text)
    if any(span.start < other.end and other.start < span.end for other in target.spans):
        raise Refused("it overlaps with another edit of this file")
    target.spans.append(span)
    reason, fault = _reason(edit, target, span, evidence)
    target.reasons += [reason] if reason else []
    if fault:
        wrong.append(f"the reason for the edit of {one_line(file.name)[:80]} is left out: {fault}")


def _file(name: str, workspace: Workspace) -> tuple[RunFile, Path]:
    """The file of the run with this very name, and where it lies.

    Raises:
        Refused: there is none, or it is none that may be edited.
    """
    file = next((f for f in workspace.files if f.name == name), None)
    if file is None:
        raise Refused("no file of the run has this name")
    if file.good:
        raise Refused("it belongs to the good run")
    if file.role not in _ROLES:
        raise Refused(f"a {file.role} file is not edited")
    roots = [*workspace.roots, *workspace.good]
    root = roots[int(file.run[1:]) - 1]
    if root == STDIN:
        raise Refused("standard input is no file")
    within = file.name.removeprefix(f"{file.run}/") if len(roots) > 1 else file.name
    if unseen(file.name) or file.path != (root if root.is_file() else root / within):
        raise Refused("its name cannot be written in a diff")
    return file, _inside(file.path, root)


def _inside(path: Path, root: Path) -> Path:
    """Where a file really lies, within the run and outside of version control's own folders."""
    try:
        base, real = root.resolve(strict=True), path.resolve(strict=True)
    except (OSError, RuntimeError):
        raise Refused("it cannot be found any more") from None
    if not real.is_relative_to(base):
        raise Refused("a link leads out of the run")
    if any(part.casefold() in PLUMBING for part in real.relative_to(base).parts):
        raise Refused("it belongs to version control itself")
    return real


def _reason(
    edit: ProposedEdit, target: _Target, span: Span, evidence: Mapping[str, Evidence]
) -> tuple[str, str]:  # fmt: skip
    """What the model says for an edit, if it stands on what it cites or on the edit itself; and what is wrong with it.

    What the edit shows may be named: it stands in the diff beside these words.
    """
    said = " ".join(edit.why.split())
    if not said:
        return "", ""
    if len(said) > REASON:
        return "", f"it is longer than {REASON} characters"
    line = target.text.count("\n", 0, span.start) + 1
    own = Evidence(
        key=_OWN, value=True, kind="line", file=target.name, line=line, text=f"{edit.find}\n{edit.replace}", id=_OWN
    )
    asked = Sentence(text=said, cites=[*dict.fromkeys(edit.cites), _OWN])
    kept, dropped = through_gate([asked], {**evidence, _OWN: own}, [*causes(), *all_tools()])
    return (f"The model says: {said}", "") if kept else ("", dropped[0])


def _patch(target: _Target, name: str) -> Patch:
    """The edits of a file as one patch.

    Raises:
        Refused: the result is none that can be shown or that can be read back.
        DiffRefused: its name cannot be written in a diff.
    """
    spans = sorted(target.spans)
    new, at = "", 0
    for span in spans:
        new += target.text[at : span.start] + span.text
        at = span.end
    new += target.text[at:]
    if form := breaks(target.name, target.text, new):
        raise Refused(f"it would be no {form} any more")
    diff = unified(target.text, new, target.name)
    rows = [row for row in diff.split("\n")[2:] if row[:1] in ("+", "-")]
    if len(rows) > LINES:
        raise Refused(f"{len(rows)} changed lines are more than {LINES}")
    if (width := max(map(len, rows), default=1) - 1) > WIDTH:
        raise Refused(f"it changes a line of {width} characters, more than {WIDTH} are not shown whole")
    return Patch(
        id=name, file=target.name, sha256=target.sha256, diff=diff, title=TITLE, by="model",
        why=" ".join(target.reasons), risk=f"{_executes(target)}{RISK}", verify=_AFTER,
        edits=[_told(target, span) for span in spans],
    )  # fmt: skip


def _executes(target: _Target) -> str:
    """What becomes of the file's content, where it is more than settings."""
    if target.role == "environment":
        return f"{_INSTALLS} "
    settings = target.role == "config" and Path(target.name).suffix.lower() in _SETTINGS
    return "" if settings else f"{_RUNS} "


def _told(target: _Target, span: Span) -> str:
    at = f"{target.name}:{target.text.count(chr(10), 0, span.start) + 1}"
    old, new = span.old.strip(), span.text.strip()
    if "\n" not in old + new and max(len(old), len(new)) <= SHORT:
        return one_line(f"{at}: {old} becomes {new}" if new else f"{at}: {old} is taken out")
    before, after = (len(lines_of(text)) for text in (span.old, span.text))
    return one_line(f"{at}: {before} {'line becomes' if before == 1 else 'lines become'} {after}")
