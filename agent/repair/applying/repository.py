"""Version control of the files that are changed: asked without running anything that a repository's settings name.

Only git's plumbing is used: no hook, filter, signing program, file monitor or remote of a repository is started, and
neither the index nor the working tree is written.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ...core.errors import UsageError
from .patch_plan import Change

Standing = Literal["none", "untracked", "clean", "changed", "unknown"]
_TIMEOUT = 60.0
_LONGEST = 4_096  # characters of a path
_OFF = ("core.fsmonitor=false", "core.hooksPath=/dev/null", "core.untrackedCache=false", "protocol.allow=never",
        "commit.gpgSign=false", "core.pager=cat", "gc.auto=0", "maintenance.auto=false")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Versioned:
    """A file under version control. `blob` is what was committed; `to_lf` where line ends are made "\\n" in it."""

    top: Path
    name: str
    standing: Standing
    mode: str = ""
    to_lf: bool = False
    why: str = ""


def standing(path: Path, data: bytes) -> Versioned:
    """How a file stands in its repository.

    Args:
        data: its content.
    """
    top = next((p for p in path.parents if os.path.lexists(p / ".git")), None)
    if top is None:
        return Versioned(path.parent, path.name, "none")
    name = path.relative_to(top).as_posix()
    try:
        if Path(_git(top, "rev-parse", "--show-toplevel").decode().rstrip("\n")).resolve() != top.resolve():
            raise UsageError("the repository has its files elsewhere")
        _own_store(top)
        index = _entry(_git(top, "ls-files", "-s", "-z", "--", name), 3)
        committed = _entry(_git(top, "ls-tree", "-z", "--full-tree", "HEAD", "--", name), 3) if _head(top) else None
        if index is None and committed is None:
            return Versioned(top, name, "untracked")
        here = [_blob(top, d) for d in (data, data.replace(b"\r\n", b"\n"))]
    except UsageError as e:
        return Versioned(top, name, "unknown", why=e.message)
    if index is None or committed is None or index != committed or committed[1] not in here:
        return Versioned(top, name, "changed")
    return Versioned(top, name, "clean", committed[0], to_lf=committed[1] != here[0])


def _own_store(top: Path) -> Path:
    """The folder that a repository keeps its branches and objects in.

    A `.git` that came with a run may be a file, a link, or have parts that name another repository of the user's. That
    one counts only if it knows of this place: as one of its worktrees, or as the place of a submodule.

    Raises:
        UsageError: it is another repository's, which does not.
    """
    own, store = (
        Path(os.path.realpath(top / _git(top, "rev-parse", f"--{kind}").decode().rstrip("\n")))
        for kind in ("absolute-git-dir", "git-common-dir")
    )
    dot = top.resolve() / ".git"
    if own != dot and dot not in (_named_in(own / "gitdir", own), _worktree(own)):
        raise UsageError(f"its .git leads to another repository: {own}")
    if store != own and (own.parent != store / "worktrees" or _named_in(own / "gitdir", own) != dot):
        raise UsageError(f"its branches are those of another repository: {store}")
    for part in ("objects", "refs/heads", "logs/refs/heads"):
        if os.path.realpath(store / part) != str(store / part):
            raise UsageError(f"its {part} are those of another repository: {os.path.realpath(store / part)}")
    return store


def _named_in(file: Path, base: Path) -> Path | None:
    """The path that a small file of git's own names."""
    try:
        with file.open(encoding="utf-8") as f:
            return (base / f.read(_LONGEST).rstrip("\n")).resolve()
    except (OSError, ValueError, RuntimeError):
        return None


def _worktree(store: Path) -> Path | None:
    """The `.git` of the one place that a repository says its files are at."""
    done = _run(store, ("config", "--file", str(store / "config"), "--no-includes", "core.worktree"))
    said = done.stdout.decode(errors="replace").rstrip("\n")
    return (store / said).resolve() / ".git" if done.returncode == 0 and said else None


def commit(changes: Sequence[tuple[Change, Versioned]], branch: str, message: str) -> str:
    """Make a branch from HEAD with one commit of these changes. Index, working tree and HEAD stay as they are.

    Args:
        branch: its name; it must not exist.

    Returns:
        The commit.

    Raises:
        UsageError: a file has local changes, the branch exists, or git refuses.
    """
    for change, file in changes:
        if file.standing != "clean":
            words = {"changed": "has local changes", "unknown": f"cannot be asked about: {file.why}"}
            raise UsageError(
                f"{change.name} {words.get(file.standing, 'is not under version control')}",
                "leave --commit out, or commit it first",
            )
    top = changes[0][1].top
    if any(file.top != top for _, file in changes):
        raise UsageError("the files are in different repositories", "leave --commit out")
    if branch.startswith("-") or _code(top, "check-ref-format", f"refs/heads/{branch}"):
        raise UsageError(f"{branch!r} is no name of a branch")
    if not _code(top, "show-ref", "--verify", "--quiet", f"refs/heads/{branch}"):
        raise UsageError(f"there is a branch {branch} already", "name another with --branch")
    _no_link_on_the_way(top, branch)
    with tempfile.TemporaryDirectory(prefix="doctor-") as folder:
        index = {"GIT_INDEX_FILE": str(Path(folder) / "index")}
        head = _head(top)
        _git(top, "read-tree", head, env=index)
        for change, file in changes:
            data = change.new.replace(b"\r\n", b"\n") if file.to_lf else change.new
            blob = _blob(top, data, "-w")
            _git(top, "update-index", "--cacheinfo", f"{file.mode},{blob},{file.name}", env=index)
        tree = _git(top, "write-tree", env=index).decode().strip()
    made = _git(top, "commit-tree", tree, "-p", head, "-F", "-", send=message.encode()).decode().strip()
    _git(top, "update-ref", "-m", "doctor apply", f"refs/heads/{branch}", made, "")
    return made


def _no_link_on_the_way(top: Path, branch: str) -> None:
    """Refuse a branch whose folder is a link to somewhere else.

    Raises:
        UsageError: it is.
    """
    store = _own_store(top)
    for part in ("refs/heads", "logs/refs/heads"):
        place = store / part / branch
        if os.path.realpath(place) != str(place):
            raise UsageError(f"the branch {branch} would stand elsewhere: {os.path.realpath(place)}")


def free_branch(top: Path, wanted: str) -> str:
    """A name of a branch that there is not yet."""
    number, name = 1, wanted
    while not _code(top, "show-ref", "--verify", "--quiet", f"refs/heads/{name}"):
        number += 1
        name = f"{wanted}-{number}"
    return name


def _head(top: Path) -> str:
    done = _run(top, ("rev-parse", "--verify", "--quiet", "HEAD^{commit}"))
    return done.stdout.decode().strip() if done.returncode == 0 else ""


def _entry(out: bytes, fields: int) -> tuple[str, str] | None:
    """Mode and object of the one entry that git listed; several are a conflict."""
    rows = [row.partition(b"\t")[0].decode().split() for row in out.split(b"\0") if row]
    if not rows:
        return None
    if len(rows) > 1 or len(rows[0]) != fields:
        return "", "conflict"
    return (rows[0][0], rows[0][1]) if rows[0][1] not in ("blob", "tree", "commit") else (rows[0][0], rows[0][2])


def _blob(top: Path, data: bytes, *options: str) -> str:
    return _git(top, "hash-object", *options, "--no-filters", "--stdin", send=data).decode().strip()


def _code(top: Path, *arguments: str) -> int:
    return _run(top, arguments).returncode


def _git(top: Path, *arguments: str, send: bytes = b"", env: dict[str, str] | None = None) -> bytes:
    done = _run(top, arguments, send, env)
    if done.returncode:
        said = done.stderr.decode(errors="replace")
        if "tell me who you are" in said or "empty ident" in said or "auto-detect email" in said:
            raise UsageError(
                "git does not know who commits", "git config --global user.name NAME, and user.email ADDRESS"
            )
        first = next((line for line in said.splitlines() if line.startswith(("fatal:", "error:"))), said.strip())
        raise UsageError(f"git {arguments[0]} failed: {first[:200]}")
    return done.stdout


def _run(
    top: Path, arguments: Sequence[str], send: bytes = b"", env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """A command of git, with an environment of our own."""
    own = {
        k: v
        for k, v in os.environ.items()
        if not k.startswith("GIT_") or k.startswith(("GIT_AUTHOR_", "GIT_COMMITTER_"))
    }
    own |= {
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_LITERAL_PATHSPECS": "1",
    }
    options = [part for setting in _OFF for part in ("-c", setting)]
    try:
        return subprocess.run(
            ["git", "--no-pager", *options, "-C", str(top), *arguments],
            input=send, capture_output=True, check=False, timeout=_TIMEOUT, env=own | {"LC_ALL": "C"} | (env or {}),
        )  # fmt: skip
    except FileNotFoundError:
        raise UsageError("git is not installed") from None
    except subprocess.TimeoutExpired:
        raise UsageError(f"git did not answer within {_TIMEOUT:g} s") from None
    except OSError as e:
        raise UsageError(f"git cannot be started: {e.strerror}") from None
