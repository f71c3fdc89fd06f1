"""What a model proposes to change: exact text of a file of the run and what to put there, checked, as marked patches.

The model is not trusted, nor is the run that it read. A proposal is a typed edit, never a command; it reaches text
files of the run alone, what does not show in a diff is refused, and nothing here writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..applying.targets import PLUMBING
from ..claims import through_gate
from ..errors import DiffRefused
from ..patching.records import HEAD, is_record
from ..planner import HEALTHY, INSUFFICIENT, ProposedEdit
from ..playbook import causes
from ..predicates import Facts
from ..reading.files import RunFile
from ..report import Patch, Report, ReportFix, Sentence
from ..sanitize import one_line
from ..tool import all_tools
from ..types import Evidence
from ..unified import lines_of, unified
from ..workspace import STDIN, Workspace
from .typed_edit import Refused, Span, breaks, place, plain_text, unseen

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
