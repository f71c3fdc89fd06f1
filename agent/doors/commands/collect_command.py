"""`doctor collect`: a bundle, a bug report or a ticket from what a run left behind, for whoever shall help."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...core.errors import UsageError
from . import diagnosis_options
from .diagnosis_options import Allow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...core.report import Report
    from ...core.shell import Recording
    from ...jobs.nodes.engine import Engine, Node
    from ...jobs.sweep.sweep import Sweep
    from ...reading.run.workspace import Workspace

_SIZE = re.compile(r"(\d{1,6})\s*([KMG]?)i?B?", re.IGNORECASE)
LARGEST = 1 << 30  # it is put together in memory


Out = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="Bundle to write.", metavar="FILE", show_default="doctor-bundle-TIME.tar.gz"),
]
Issue = Annotated[
    str | None, typer.Option(help="Write a bug report in markdown; '-': standard output.", metavar="FILE")
]
Ticket = Annotated[
    str | None,
    typer.Option(help="Write a ticket for whoever runs the machines; '-': standard output.", metavar="FILE"),
]
OfSession = Annotated[
    str | None, typer.Option(help="Take the report of this session, in place of a new one.", metavar="ID")
]
WithReport = Annotated[bool, typer.Option("--report/--no-report", help="Diagnose the run, and put the report in.")]
Machine = Annotated[
    bool | None,
    typer.Option(
        "--machine/--no-machine",
        help="Ask this machine too (GPUs, kernel, host, scheduler), as the run's own; or never.",
        show_default="beside the run, and as its own where it ran here",
    ),
]
MaxSize = Annotated[str, typer.Option(help="Bytes of everything together, before packing.", metavar="SIZE")]
Slurm = Annotated[str | None, typer.Option("--slurm", help="Ask every node of this Slurm job first.", metavar="JOBID")]
Ray = Annotated[str | None, typer.Option("--ray", help="Ask every node of this Ray cluster first.", metavar="ADDRESS")]
OnNodes = Annotated[
    list[str] | None,
    typer.Option("--path", help="File, folder or pattern on the nodes' own disks; again for more.", metavar="PATH"),
]
Into = Annotated[
    Path | None,
    typer.Option(help="New folder for what the nodes hand over.", metavar="DIR", show_default="doctor-nodes-JOB-TIME"),
]
PerNode = Annotated[str, typer.Option(help="Bytes of each node.", metavar="SIZE")]
Force = Annotated[bool, typer.Option("--force", help="Write a ticket also where nothing points at the machines.")]


def collect(
    paths: Annotated[
        list[str] | None, typer.Argument(help="Folders or files of the run.", show_default="this folder")
    ] = None,
    out: Out = None,
    issue: Issue = None,
    ticket: Ticket = None,
    question: Annotated[str, typer.Option(help="What is to be found out.")] = "",
    session: OfSession = None,
    report: WithReport = True,
    machine: Machine = None,
    max_size: MaxSize = "64M",
    force: Force = False,
    also: diagnosis_options.Also = None,
    pid: diagnosis_options.Pid = None,
    slurm: Slurm = None,
    ray: Ray = None,
    on_nodes: OnNodes = None,
    into: Into = None,
    per_node: PerNode = "32M",
    quiet: diagnosis_options.Quiet = False,
) -> None:
    """Put the diagnosis, configs, logs around the failure, versions and what the machine says into one file.

    Secrets are taken out, and nothing leaves the machine: read the bundle before you pass it on. Of long files it
    keeps the start, what matters and the end; of checkpoints and data the names. It refuses to overwrite, and replays
    with `doctor eval`. With --issue or --ticket alone no bundle is written. With --slurm or --ray every node is
    asked first for its logs, its kernel's lines and, while the job lives, its stacks; they come into one folder, and
    into a bundle where -o names one.
    """
    _check(out, issue, ticket, session, report)
    limit = _bytes(max_size)
    if slurm or ray:
        from ...jobs.nodes.gather import gathered

        folder = gathered(slurm or "", ray or "", on_nodes or [], into, _bytes(per_node), quiet)
        if out is None and issue is None and ticket is None:
            return
        paths, machine = [*(paths or []), str(folder)], False
    elif on_nodes or into:
        raise UsageError("--path and --into go with --slurm or --ray", "name the job, or leave them out")
    ws, shell = _workspace(paths, also, question, pid, machine, session)
    known = _known(session) if session else None
    target = out
    if out is None and issue is None and ticket is None:
        target = Path(f"doctor-bundle-{datetime.now().astimezone():%Y%m%d-%H%M%S}.tar.gz")
    papers: list[tuple[str, str]] = []
    if issue is not None or ticket is not None:  # before the bundle: a ticket may be refused
        from ...telling.collect.report_copy import diagnosed

        known = known or diagnosed(ws, question)
        papers = list(_papers(ws, known, issue, ticket, target.name if target else "", force))
    if target is not None:
        say = sys.stderr.write if "-" in (issue, ticket) else _print
        _bundle(_Order(ws, shell, target, question, known, report, machine, limit, quiet), say)
    _hand_over(papers, quiet)


def _check(out: Path | None, issue: str | None, ticket: str | None, session: str | None, report: bool) -> None:
    """Refuse what cannot be before any work is done."""
    from ...telling.collect.bundle import refuse_existing

    if issue == "-" and ticket == "-":
        raise UsageError("--issue and --ticket cannot both go to standard output", "name a file for one of them")
    named = [str(p) for p in (out, issue, ticket) if p not in (None, "-")]
    if len(set(named)) < len(named):
        raise UsageError("the same file is named twice", "name another")
    if not report and (issue or ticket or session):
        raise UsageError("--no-report leaves nothing to write a paper or a session's report from", "leave it out")
    for path, option in ((out, "-o"), (issue, "--issue"), (ticket, "--ticket")):
        if path not in (None, "-"):
            refuse_existing(Path(str(path)), option)


def _bytes(text: str) -> int:
    m = _SIZE.fullmatch(text.strip())
    size = int(m[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[m[2].upper()] if m else 0
    if not 1 << 18 <= size <= LARGEST:
        raise UsageError(f"--max-size {text!r} is not between 256K and 1G", "write it as in 64M")
    return size


def _workspace(
    paths: list[str] | None,
    also: list[str] | None,
    question: str,
    pid: list[int] | None,
    machine: bool | None,
    session: str | None,
) -> tuple[Workspace, Recording]:
    from ...core.shell import Live, Recording
    from ...session.store import checked_session, session_roots, usable_state
    from .diagnosis_options import workspace

    good: list[str] = []
    if session and not paths:
        state = usable_state()[0]
        roots, healthy = session_roots(state, checked_session(state, session), "a path")
        paths, good = [str(r) for r in roots] or None, [str(g) for g in healthy]
    shell = Recording(Live())
    ws = workspace(paths, good, also, question, pid, machine, shell)
    return ws, shell


def _known(session: str) -> Report:
    from ...session.store import load_report, usable_state

    return load_report(usable_state()[0], session)


@dataclass(frozen=True, slots=True)
class _Order:
    """What a bundle is made of."""

    ws: Workspace
    shell: Recording
    target: Path
    question: str
    known: Report | None
    report: bool
    machine: bool | None
    limit: int
    quiet: bool


def _bundle(order: _Order, say: Callable[[str], object]) -> None:
    from ...reading.run.workspace import Workspace
    from ...safety.fences import one_line
    from ...telling.collect.bundle import collect as put_together

    def tell(what: str) -> None:
        if not order.quiet:
            sys.stderr.write(f"collecting {what}\n")

    beside = None
    if order.machine is None and not order.ws.live:
        beside = Workspace([], live=True, may_be_empty=True)
    bundle = put_together(
        order.ws, order.shell, order.target, order.question, tell,
        report=order.known, diagnose=order.report, machine=beside, limit=order.limit,
    )  # fmt: skip
    size = order.target.stat().st_size
    files = f"{bundle.kept} of {len(bundle.files) + bundle.more} files"
    say(f"{one_line(str(order.target))}: {files}, {len(bundle.tools)} checks, {size >> 10} KiB\n")
    say(f"{bundle.redacted} secrets taken out; read it before you pass it on (README.md says what is in it)\n")


def _print(text: str) -> None:
    from .output import print_line

    print_line(text.rstrip("\n"))


def _papers(
    ws: Workspace, known: Report, issue: str | None, ticket: str | None, attached: str, force: bool
) -> Iterator[tuple[str, str]]:
    """Where each paper goes, and its text."""
    from ...telling.collect.issue_paper import bug_report
    from ...telling.collect.ticket import infrastructure_ticket

    if ticket is not None:
        yield ticket, infrastructure_ticket(ws, known, attached, force=force)
    if issue is not None:
        yield issue, bug_report(ws, known, attached)


def _hand_over(papers: list[tuple[str, str]], quiet: bool) -> None:
    from ...safety.fences import inert, one_line
    from ...telling.collect.bundle import write_text
    from .output import print_line

    for place, text in papers:
        if place == "-":
            print_line(inert(text).rstrip("\n"))
        else:
            write_text(Path(place), inert(text))
            if not quiet:
                sys.stderr.write(f"wrote {one_line(place)}; read it before you pass it on\n")


# ----------
# `doctor sweep`: find the bad node or link of an allocation. Puts load on its machines, so it asks first.


class Level(StrEnum):
    """How much is tested."""

    QUICK = "quick"
    FULL = "full"


class FailOnBad(StrEnum):
    """What makes the exit code 1."""

    BAD = "bad"


def sweep(
    slurm: Annotated[
        str | None,
        typer.Option("--slurm", help="Nodes of this Slurm job, in its allocation while it runs.", metavar="JOBID"),
    ] = None,
    nodes: Annotated[
        str | None, typer.Option("--nodes", help="Nodes of Slurm by name, in short allocations.", metavar="N1,N2")
    ] = None,
    ray: Annotated[
        str | None, typer.Option("--ray", help="Nodes of the Ray cluster at this address.", metavar="ADDRESS")
    ] = None,
    local: Annotated[
        int | None, typer.Option("--local", help="So many processes of this machine as nodes.", min=1, max=64)
    ] = None,
    level: Annotated[Level, typer.Option(help="Messages of up to 4 MiB, or of up to 256 MiB.")] = Level.QUICK,
    python: Annotated[
        str, typer.Option("--python", help="Python on the nodes, with torch.", show_default="this one", metavar="PATH")
    ] = "",
    json: diagnosis_options.Json = False,
    out: Annotated[str | None, typer.Option("-o", "--out", help="Also write the JSON here.", metavar="FILE")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    allow: diagnosis_options.AllowRisk = None,
    quiet: diagnosis_options.Quiet = False,
    fail_on: Annotated[
        FailOnBad | None, typer.Option(help="Exit with 1 if a node or link is bad, or no pair works.")
    ] = None,
) -> int:
    """Find the bad node or link: the health of every node, then an all-reduce between them two by two."""
    from ...core.errors import UsageError
    from ...jobs.nodes.ray_nodes import LostConnection
    from ...jobs.sweep.sweep import sweep as swept

    with _engine(slurm, nodes, ray, local) as engine:
        try:
            there = list(engine.nodes())
        except LostConnection as e:
            raise UsageError(f"the Ray cluster {e}") from None
        if not there:
            raise UsageError("there is no node to look at", "name them: --slurm, --nodes, --ray, --local")
        _agree(engine, there, level, yes or allow is Allow.COSTLY)
        result = swept(engine, there, level.value, _python(engine, there, python), _teller(quiet))
    _show(result, json, out)
    return 1 if fail_on and (result.blind or not result.clean) else 0


class _Held:
    """An engine that is given back at the end, where it has something to give back."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def __enter__(self) -> Engine:
        return self._engine

    def __exit__(self, *exc: object) -> None:
        close = getattr(self._engine, "close", None)
        if close:
            close()


def _engine(slurm: str | None, nodes: str | None, ray: str | None, local: int | None) -> _Held:
    from ...core.errors import UsageError

    if sum(value is not None for value in (slurm or nodes, ray, local)) != 1:
        raise UsageError("sweep which nodes?", "one of --slurm JOBID, --nodes N1,N2, --ray ADDRESS, --local N")
    if local is not None:
        from ...jobs.nodes.engine import Local

        return _Held(Local(local))
    if ray is not None:
        from ...jobs.nodes.ray_nodes import RayCluster

        return _Held(RayCluster(ray))
    from ...jobs.nodes.slurm_nodes import SlurmEngine, hostnames

    return _Held(SlurmEngine(slurm or "", hostnames(nodes) if nodes else ()))


def _agree(engine: Engine, nodes: Sequence[Node], level: Level, agreed_before: bool) -> None:
    """Say what it will do, and ask.

    Raises:
        UsageError: nobody said yes.
    """
    import sys

    from ...core.errors import UsageError
    from ...jobs.sweep.sweep import estimate
    from ...jobs.sweep.sweep_pairs import LEVELS
    from . import output

    rounds, pairs, seconds = estimate(engine, nodes, LEVELS[level.value])
    away = sum(not node.reachable for node in nodes)
    what = f"{len(nodes)} nodes" + (f", {away} of them away" if away else "")
    sys.stderr.write(
        f"doctor: sweep of {what}: health of each, then {pairs} all-reduces in {rounds} rounds; about {seconds:.0f} s"
        " if all is well. Jobs that run there are slowed down meanwhile.\n"
    )
    if agreed_before:
        return
    if not output.can_ask():
        raise UsageError("nobody is here to agree to it", "--yes")
    if not output.agreed("Go on?"):
        raise UsageError("nothing was done", "it takes a yes")


def _python(engine: Engine, nodes: Sequence[Node], named: str) -> str:
    """The interpreter for the nodes: the one that is named, else ours where all have it, else theirs."""
    import os
    import sys

    chosen = named or os.environ.get("DOCTOR_PYTHON", "")
    if chosen or engine.name == "local":
        return chosen or sys.executable
    names = [node.name for node in nodes if node.reachable]
    answers = engine.run([sys.executable, "-c", "pass"], names, 30.0)
    missing = any("no such program" in a.why or a.code in (126, 127) for a in answers)
    return "python3" if missing else sys.executable


def _teller(quiet: bool) -> Callable[[str], None]:
    import sys

    from ...safety.fences import one_line

    def tell(line: str) -> None:
        if not quiet:
            sys.stderr.write(f"doctor: {one_line(line)}\n")
            sys.stderr.flush()

    return tell


def _show(result: Sweep, json: bool, out: str | None) -> None:
    from json import dumps
    from pathlib import Path

    from ...core.errors import UsageError
    from ...jobs.sweep.sweep import as_data, in_words
    from .output import print_line

    data = dumps(as_data(result), indent=1, ensure_ascii=True)
    if out:
        try:
            Path(out).expanduser().write_text(data + "\n", encoding="utf-8")
        except OSError as e:
            print_line(data if json else in_words(result))
            raise UsageError(f"cannot write {out}: {e.strerror}", "the result was printed") from None
    print_line(data if json else in_words(result))
