"""A bundle for whoever shall help: bounded pieces of a run's text, what the machine said, nothing secret.

    <name>/manifest.json     what is in it, what was left out and why, how many secrets were taken out
    <name>/incident.yaml     question and labels to be filled in: the bundle replays with `doctor eval`
    <name>/files/...         the run's own text, long files as their start and end
    <name>/shell.json        the commands that were run and their answers
    <name>/tools/*.json      what the diagnostics said of the machine
    <name>/machine/*.txt     versions and telling variables of the shell that collected

Written beside its place and linked there at the end, so that it is whole or not there and overwrites nothing.
"""

from __future__ import annotations

import io
import json
import os
import re
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from .calls import guarded
from .errors import UsageError
from .reading.files import RunFile
from .redact import Redactor
from .shell import Recording
from .tool import all_tools
from .workspace import Workspace

PART = 1 << 20  # bytes kept from the start and from the end of a long file
TOTAL = 64 << 20  # bytes of all files together
FILES = 1000
ROLES = ("config", "environment", "capture", "log", "metrics", "code")  # in this order until the bundle is full
TOOLS = ("gpu_status", "xid_errors", "host_health", "slurm_job", "ib_status", "package_conflicts")
SECONDS = 60.0  # for each of them
VARIABLES = re.compile(
    r"^(?:CUDA|NVIDIA|NCCL|TORCH|PYTORCH|GLOO|UCX|OMP|MKL|SLURM|HIP|ROCR|RCCL|NVTE|TRITON|TOKENIZERS|VLLM|HF_HOME|"
    r"(?:LOCAL_|GROUP_|ROLE_)?RANK$|(?:LOCAL_)?WORLD_SIZE$|MASTER_|LD_LIBRARY_PATH$|PYTHONPATH$|VIRTUAL_ENV$|"
    r"CONDA_PREFIX$)"
)
OWN_REPORTS = ("doctor-report.json", "doctor-report.md")
INCIDENT = """# Fill in what turned out to be wrong, then `doctor eval` this folder.
id: {id}
family: unlabelled
difficulty: unlabelled
question: {question}
expected: [none.insufficient_evidence]
"""


@dataclass(slots=True)
class Bundle:
    """What was put together. `files` and `tools` are rows of the manifest."""

    path: Path
    files: list[dict[str, Any]] = field(default_factory=list)
    tools: list[dict[str, Any]] = field(default_factory=list)
    more: int = 0  # files beyond those of the manifest
    redacted: int = 0

    @property
    def kept(self) -> int:
        """How many files of the run are in it, whole or in part."""
        return sum(row["kept"] != "no" for row in self.files)


def collect(
    ws: Workspace, shell: Recording, out: Path, question: str = "", tell: Callable[[str], None] = lambda _: None
) -> Bundle:
    """Write a bundle.

    Args:
        ws: the run; its machine is asked only where `ws.live` holds. Its shell is `shell`.
        tell: hears what is being done.

    Raises:
        UsageError: `out` exists, or cannot be written.
    """
    if out.exists():
        raise UsageError(f"{out} exists", "name another file with -o")
    try:
        handle, part = tempfile.mkstemp(prefix=".doctor-bundle-", dir=out.parent)
    except OSError as e:
        raise UsageError(f"cannot write to {out.parent}: {e.strerror}", "name another place with -o") from None
    bundle = Bundle(out)
    try:
        with os.fdopen(handle, "wb") as f, tarfile.open(fileobj=f, mode="w:gz") as tar:
            _Writer(tar, out.name.removesuffix(".tar.gz").removesuffix(".tgz")).write(ws, shell, bundle, question, tell)
        _publish(Path(part), out)
    except OSError as e:
        raise UsageError(f"cannot write {out}: {e.strerror}", "is the disk full?") from None
    finally:
        Path(part).unlink(missing_ok=True)
    return bundle


def _publish(part: Path, out: Path) -> None:
    """Under its name at once, never over another file."""
    try:
        os.link(part, out)
    except FileExistsError:
        raise UsageError(f"{out} exists", "name another file with -o") from None
    except OSError:  # a file system without hard links
        with out.open("xb") as into:
            into.write(part.read_bytes())


class _Writer:
    """Members of one archive; every text goes through one redactor."""

    def __init__(self, tar: tarfile.TarFile, name: str) -> None:
        self.tar, self.name, self.redactor, self.bytes = tar, name, Redactor(), 0

    def write(
        self, ws: Workspace, shell: Recording, bundle: Bundle, question: str, tell: Callable[[str], None]
    ) -> None:
        tell("the run's files")
        wanted = [f for role in ROLES for f in ws.by_role(role)]
        left = [f for f in ws.files if f.role not in ROLES]
        bundle.files += [self._file(ws, file) for file in wanted[:FILES]]
        bundle.files += [_row(f, "no", f"{f.role} is not collected") for f in left[:FILES]]
        bundle.more = max(0, len(wanted) - FILES) + max(0, len(left) - FILES)
        self._reports(ws)
        for name, result in _asked(ws, tell) if ws.live else ():
            self._add(f"tools/{name}.json", json.dumps(result, indent=1, ensure_ascii=False))
            bundle.tools.append({k: result[k] for k in ("tool", "outcome", "summary")})
        if ws.live:
            self._add("machine/variables.txt", _variables())
            self._add("machine/packages.txt", _packages(ws))
        self._add("shell.json", json.dumps(shell.answers, indent=1, ensure_ascii=False))
        label = json.dumps(question or "What is wrong with this run?", ensure_ascii=False)
        self._add("incident.yaml", INCIDENT.format(id=json.dumps(self.name), question=label))
        bundle.redacted = self.redactor.count
        self._add("manifest.json", json.dumps(_manifest(ws, bundle, self.redactor, question), indent=1))

    def _file(self, ws: Workspace, file: RunFile) -> dict[str, Any]:
        if self.bytes >= TOTAL:
            return _row(file, "no", "the bundle is full")
        text, whole = _ends(ws.blocks(file))
        if b"\0" in text[:8192]:
            return _row(file, "no", "not text: secrets could not be taken out")
        self.bytes += len(text)
        self._add(f"files/{_safe(file.name)}", text.decode(errors="replace"))
        return _row(file, "whole" if whole else "start and end", "")

    def _reports(self, ws: Workspace) -> None:
        for root in ws.roots:
            for name in OWN_REPORTS:
                path = (root if root.is_dir() else root.parent) / name
                if path.is_file() and not path.is_symlink() and path.stat().st_size <= 4 * PART:
                    self._add(f"report/{name}", path.read_text(errors="replace"))

    def _add(self, name: str, text: str) -> None:
        data = self.redactor.redact(text).encode()
        member = tarfile.TarInfo(f"{self.name}/{self.redactor.redact(name)}")
        member.size, member.mode, member.mtime = len(data), 0o644, int(datetime.now(UTC).timestamp())
        self.tar.addfile(member, io.BytesIO(data))


def _ends(blocks: Iterator[bytes]) -> tuple[bytes, bool]:
    """A file whole, or its start and its end cut at lines with a word about what is between them."""
    start, end, length = b"", b"", 0
    for block in blocks:
        length += len(block)
        room = PART - len(start)
        start += block[: max(0, room)]
        end = (end + block[max(0, room) :])[-PART:]
    if length <= 2 * PART:
        return start + end, True
    start, end = start[: start.rfind(b"\n") + 1] or start, end[end.find(b"\n") + 1 :]
    between = f"[{length - len(start) - len(end)} bytes were left out here]\n".encode()
    return start + between + end, False


def _safe(name: str) -> str:
    """A name for an archive: relative, without parts that lead elsewhere, without control characters."""
    parts = [p for p in name.split("/") if p not in ("", ".", "..")]
    return re.sub(r"[\x00-\x1f\x7f]", "_", "/".join(parts)) or "unnamed"


def _row(file: RunFile, kept: str, why: str) -> dict[str, Any]:
    return {"name": file.name, "role": file.role, "bytes": file.size, "kept": kept, **({"why": why} if why else {})}


def _asked(ws: Workspace, tell: Callable[[str], None]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name in TOOLS:
        tell(name.replace("_", " "))
        result, _ = guarded(all_tools()[name], ws, {}, SECONDS)
        told = [e.as_dict() for e in result.evidence]
        yield name, {"tool": name, "outcome": result.outcome, "summary": result.summary, "text": result.text,
                     "evidence": told}  # fmt: skip


def _variables() -> str:
    return "".join(f"{k}={v}\n" for k, v in sorted(os.environ.items()) if VARIABLES.search(k))


def _packages(ws: Workspace) -> str:
    """Versions in the environment of the named processes, else of our own interpreter; the first line says which."""
    from .reading.packages_installed import listing

    told = [str(p) for p in ws.pids] or [sys.prefix]
    found = listing(ws.shell([sys.executable, "-I", "-m", "traindoctor.agent.probes.packages", *told], 20.0).stdout)
    whose = "the named processes" if ws.pids else "the environment that doctor runs in, which may not be the job's"
    return f"# {whose}\n" + "".join(f"{p.name}=={p.version}\n" for p in found.packages)


def _manifest(ws: Workspace, bundle: Bundle, redactor: Redactor, question: str) -> dict[str, Any]:
    return {
        "schema": "traindoctor.bundle/1", "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "doctor": version("traindoctor"), "question": question, "machine_asked": ws.live,
        "redacted": redactor.count, "secrets": redactor.found, "tools": bundle.tools, "files": bundle.files,
        "more_files": bundle.more,
        "not_read": [{"name": name, "why": why} for name, why in ws.skipped[:FILES]],
    }  # fmt: skip
