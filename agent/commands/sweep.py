"""`doctor sweep`: find the bad node or link of an allocation. Puts load on its machines, so it asks first."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from . import options
from .options import Allow

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..nodes.engine import Engine, Node
    from ..nodes.sweep import Sweep


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
    json: options.Json = False,
    out: Annotated[str | None, typer.Option("-o", "--out", help="Also write the JSON here.", metavar="FILE")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    allow: options.AllowRisk = None,
    quiet: options.Quiet = False,
    fail_on: Annotated[
        FailOnBad | None, typer.Option(help="Exit with 1 if a node or link is bad, or no pair works.")
    ] = None,
) -> int:
    """Find the bad node or link: the health of every node, then an all-reduce between them two by two."""
    from ..errors import UsageError
    from ..nodes.ray_nodes import LostConnection
    from ..nodes.sweep import sweep as swept

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
    from ..errors import UsageError

    if sum(value is not None for value in (slurm or nodes, ray, local)) != 1:
        raise UsageError("sweep which nodes?", "one of --slurm JOBID, --nodes N1,N2, --ray ADDRESS, --local N")
    if local is not None:
        from ..nodes.local import Local

        return _Held(Local(local))
    if ray is not None:
        from ..nodes.ray_nodes import RayCluster

        return _Held(RayCluster(ray))
    from ..nodes.slurm import SlurmEngine, hostnames

    return _Held(SlurmEngine(slurm or "", hostnames(nodes) if nodes else ()))


def _agree(engine: Engine, nodes: Sequence[Node], level: Level, agreed_before: bool) -> None:
    """Say what it will do, and ask.

    Raises:
        UsageError: nobody said yes.
    """
    import sys

    from ..errors import UsageError
    from ..nodes.sweep import estimate
    from ..nodes.sweep_pairs import LEVELS
    from . import consent

    rounds, pairs, seconds = estimate(engine, nodes, LEVELS[level.value])
    away = sum(not node.reachable for node in nodes)
    what = f"{len(nodes)} nodes" + (f", {away} of them away" if away else "")
    sys.stderr.write(
        f"doctor: sweep of {what}: health of each, then {pairs} all-reduces in {rounds} rounds; about {seconds:.0f} s"
        " if all is well. Jobs that run there are slowed down meanwhile.\n"
    )
    if agreed_before:
        return
    if not consent.can_ask():
        raise UsageError("nobody is here to agree to it", "--yes")
    if not consent.agreed("Go on?"):
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

    from ..sanitize import one_line

    def tell(line: str) -> None:
        if not quiet:
            sys.stderr.write(f"doctor: {one_line(line)}\n")
            sys.stderr.flush()

    return tell


def _show(result: Sweep, json: bool, out: str | None) -> None:
    from json import dumps
    from pathlib import Path

    from ..errors import UsageError
    from ..nodes.sweep_words import as_data, in_words
    from .streams import print_line

    data = dumps(as_data(result), indent=1, ensure_ascii=True)
    if out:
        try:
            Path(out).expanduser().write_text(data + "\n", encoding="utf-8")
        except OSError as e:
            print_line(data if json else in_words(result))
            raise UsageError(f"cannot write {out}: {e.strerror}", "the result was printed") from None
    print_line(data if json else in_words(result))
