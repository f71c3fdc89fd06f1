"""`doctor collect`: a bundle, a bug report or a ticket from what a run left behind, for whoever shall help."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import UsageError
from . import options

if TYPE_CHECKING:
    from ..report import Report
    from ..shell import Recording
    from ..workspace import Workspace

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
    also: options.Also = None,
    pid: options.Pid = None,
    slurm: Slurm = None,
    ray: Ray = None,
    on_nodes: OnNodes = None,
    into: Into = None,
    per_node: PerNode = "32M",
    quiet: options.Quiet = False,
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
        from ..nodes.gathering import gathered

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
        from ..collect.report_copy import diagnosed

        known = known or diagnosed(ws, question)
        papers = list(_papers(ws, known, issue, ticket, target.name if target else "", force))
    if target is not None:
        say = sys.stderr.write if "-" in (issue, ticket) else _print
        _bundle(_Order(ws, shell, target, question, known, report, machine, limit, quiet), say)
    _hand_over(papers, quiet)


def _check(out: Path | None, issue: str | None, ticket: str | None, session: str | None, report: bool) -> None:
    """Refuse what cannot be before any work is done."""
    from ..collect.archive import refuse_existing

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
    from ..shell import Live, Recording
    from ..store import checked_session, session_roots, usable_state
    from .material import workspace

    good: list[str] = []
    if session and not paths:
        state = usable_state()[0]
        roots, healthy = session_roots(state, checked_session(state, session), "a path")
        paths, good = [str(r) for r in roots] or None, [str(g) for g in healthy]
    shell = Recording(Live())
    ws = workspace(paths, good, also, question, pid, machine, shell)
    return ws, shell


def _known(session: str) -> Report:
    from ..store import load_report, usable_state

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
    from ..collect import collect as put_together
    from ..sanitize import one_line
    from ..workspace import Workspace

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
    from .streams import print_line

    print_line(text.rstrip("\n"))


def _papers(
    ws: Workspace, known: Report, issue: str | None, ticket: str | None, attached: str, force: bool
) -> Iterator[tuple[str, str]]:
    """Where each paper goes, and its text."""
    from ..collect.issue import bug_report
    from ..collect.ticket import infrastructure_ticket

    if ticket is not None:
        yield ticket, infrastructure_ticket(ws, known, attached, force=force)
    if issue is not None:
        yield issue, bug_report(ws, known, attached)


def _hand_over(papers: list[tuple[str, str]], quiet: bool) -> None:
    from ..collect.archive import write_text
    from ..sanitize import inert, one_line
    from .streams import print_line

    for place, text in papers:
        if place == "-":
            print_line(inert(text).rstrip("\n"))
        else:
            write_text(Path(place), inert(text))
            if not quiet:
                sys.stderr.write(f"wrote {one_line(place)}; read it before you pass it on\n")
