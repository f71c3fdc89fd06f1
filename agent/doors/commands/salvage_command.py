"""`doctor salvage`: write something usable beside what is damaged, which is never touched."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...core.errors import UsageError
from . import diagnosis_options

if TYPE_CHECKING:
    from ...core.report import Report

New = Annotated[Path, typer.Option("--output", "-o", help="New folder or file; must not exist.", metavar="NEW")]

salvage_app = typer.Typer(
    help="Make new files out of damaged or unwanted ones, which are never touched.", no_args_is_help=True
)


@salvage_app.callback()
def salvage() -> None:
    """Commands below stand alone."""


@salvage_app.command("reset-optimizer")
def reset(
    checkpoint: Annotated[Path, typer.Argument(help="Folder or file of the checkpoint.", metavar="CHECKPOINT")],
    output: New,
    keep_scheduler: Annotated[bool, typer.Option("--keep-scheduler", help="Keep the learning-rate schedule.")] = False,
    json: diagnosis_options.Json = False,
    quiet: diagnosis_options.Quiet = False,
) -> None:
    """Write a copy without optimizer state, weights bit for bit.

    For moments that are corrupt, stale or of other parameters. Takes Hugging Face folders, DeepSpeed (ZeRO 1 and 2),
    Lightning and plain torch.save files; for Megatron, ZeRO 3 and distributed checkpoints it names the framework's
    own way.
    """
    from ...repair.salvage.reset_optimizer import reset_optimizer
    from .output import print_json, print_line

    with _Bar(quiet) as bar:
        done = reset_optimizer(checkpoint, output, keep_scheduler, bar.add)
    if json:
        print_json(
            {"output": str(done.output), "left_out": done.left_out, "written": done.written,
             "meaning": done.meaning, "resume": done.resume}
        )  # fmt: skip
        return
    print_line(f"wrote {done.output}: {done.written / 2**20:.1f} MiB, without {', '.join(done.left_out)}")
    for line in done.meaning:
        print_line(line)
    print_line("go on with:")
    for line in done.resume:
        print_line(f"  {line}")


@salvage_app.command("rollback")
def rollback(
    folder: Annotated[Path, typer.Argument(help="Folder that holds the checkpoints of a run.", metavar="CHECKPOINTS")],
    output: New,
    step: Annotated[int | None, typer.Option(help="The checkpoint of this step.", metavar="STEP", min=0)] = None,
    before: Annotated[
        int | None,
        typer.Option(
            help="The newest sound one saved before this step.", metavar="STEP", min=0, show_default="trouble"
        ),
    ] = None,
    copy: Annotated[bool, typer.Option("--copy", help="Copy the files instead of linking to them.")] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Look at structure and sizes only, not at every byte.")
    ] = False,
    json: diagnosis_options.Json = False,
    quiet: diagnosis_options.Quiet = False,
) -> None:
    """Make a folder that training resumes from at an older, sound checkpoint.

    Takes the newest checkpoint that is whole and finite, before STEP where one is given, else before the first trouble
    that the curves in the folder show. Writes links to it (or copies) and the tracker file of the framework, and
    prints how to resume. Nothing that exists is changed.
    """
    from ...repair.salvage.rollback import Wanted, roll_back

    if step is not None and before is not None:
        raise UsageError("--step and --before exclude each other")
    with _Bar(quiet) as bar:
        wanted = Wanted(step, before, "structure" if quick else "full")
        done = roll_back(folder, output, wanted, copy, bar.add)
    _tell(
        json,
        {**asdict(done), "output": str(done.output)},
        [
            f"wrote {done.output}: {done.checkpoint} ({done.framework}), {done.why}",
            *(f"not taken: {line}" for line in done.passed_over),
            *(f"{name} says {text}" for name, text in done.trackers.items()),
            *done.notes,
        ],
        done.resume,
    )


@salvage_app.command("exclude-samples")
def exclude_samples(
    data: Annotated[Path, typer.Argument(help="File of records.", metavar="DATA")],
    output: New,
    rows: Annotated[str | None, typer.Option(help="Records by number, from 0.", metavar="12,17-20")] = None,
    lines: Annotated[
        str | None, typer.Option(help="Records by the line they start on, from 1.", metavar="N,N-N")
    ] = None,
    from_report: Annotated[
        str | None, typer.Option(help="Those a report calls bad, and others of that kind.", metavar="SESSION|last|FILE")
    ] = None,
    json: diagnosis_options.Json = False,
    quiet: diagnosis_options.Quiet = False,
) -> None:
    """Write a new list of records without the bad ones; the data stays as it is.

    Lines of JSON, CSV and text, packed or not, are copied byte for byte; for Parquet, Arrow and tar shards the numbers
    of the bad records are written, with the code that leaves them out. Without rows, lines or a report, the file is
    looked through for records that are bad by themselves: torn, empty, not finite, far too long.
    """
    from ...repair.salvage.chosen_records import Chosen, cited, numbered
    from ...repair.salvage.exclude import exclude

    chosen, roots = Chosen(), dict[str, Path]()
    if from_report is not None:
        report = _report(from_report)
        roots = {run.id: Path(run.root) for run in report.runs if run.root != "-"}
        chosen = cited(data, roots, report.evidence)
    if from_report is not None and not (chosen.lines or chosen.places or chosen.names):
        raise UsageError(f"the report names no bad record of {data}", "name them with --rows or --lines")
    chosen.numbers.update(numbered(rows, "--rows") if rows else {})
    chosen.lines.update(numbered(lines, "--lines") if lines else {})
    scan = chosen.scanned or not (rows or lines)
    with _Bar(quiet) as bar:
        done = exclude(data, output, chosen, scan, list(roots.values()), bar.add)
    more = [f"... and {len(done.excluded) - 20} more"] if len(done.excluded) > 20 else []
    left_out = f"{len(done.excluded)} of {done.records} records left out, {done.kept} kept"
    _tell(
        json,
        {**asdict(done), "output": str(done.output)},
        [f"wrote {done.output}: {left_out}", *(f"left out: {e}" for e in done.excluded[:20]), *more, *done.notes],
        done.use,
    )


@salvage_app.command("refetch")
def refetch_files(
    paths: Annotated[list[Path], typer.Argument(help="Files, or folders to look through.", metavar="PATH...")],
    run: Annotated[
        list[Path] | None,
        typer.Option("--run", help="Run whose configs and scripts say where data come from; again for more."),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Compare no digests, which reads every byte.")] = False,
    json: diagnosis_options.Json = False,
    quiet: diagnosis_options.Quiet = False,
) -> None:
    """Name damaged downloads, and for each the command that gets it again. Writes nothing.

    Knows the Hugging Face cache and folders it downloaded into, git-lfs, caches of the datasets library, and addresses
    in the configs and scripts of a run.
    """
    from ...repair.salvage.refetch import refetch

    with _Bar(quiet) as bar:
        found = refetch(paths, run or [], quick, bar.add)
    lines = [] if found else ["nothing damaged was found"]
    for one in found:
        lines.append(f"{one.path}: {one.wrong or 'nothing wrong is seen'}")
        lines += [f"  from {told}" for told in one.origins] or ["  where it came from is not known here; try --run"]
        lines += [f"  expected: {one.expected}"] if one.expected else []
        lines += [f"    {command}" for command in one.commands]
    _tell(json, {"files": [{**asdict(one), "path": str(one.path)} for one in found]}, lines, [])


@salvage_app.command("hostfile")
def hostfile(
    file: Annotated[
        Path, typer.Argument(help="Host file of DeepSpeed or MPI, or a list of nodes.", metavar="HOSTFILE")
    ],
    output: New,
    without: Annotated[str, typer.Option("--without", help="Nodes to leave out.", metavar="n3,n7")],
    json: diagnosis_options.Json = False,
) -> None:
    """Write a host file without some nodes; every other line is the same bytes."""
    from ...repair.salvage import rollback
    from ...repair.salvage.copying import word

    nodes = [n for n in dict.fromkeys(without.replace(",", " ").split()) if n]
    if not nodes:
        raise UsageError("--without names no node", "as in --without n3,n7")
    done = rollback.without(file, nodes, output)
    slots = f", {done.slots} slots" if done.slots else ""
    _tell(
        json,
        {**asdict(done), "output": str(done.output)},
        [f"wrote {output}: without {', '.join(done.left_out)}; {len(done.left)} nodes left{slots}"],
        [f"deepspeed --hostfile {word(output)} ...", f"mpirun --hostfile {word(output)} ...",
         f"sbatch --exclude={word(','.join(done.left_out))} ..."],
    )  # fmt: skip


def _report(name: str) -> Report:
    """A report by its file or its session.

    Raises:
        UsageError: there is none.
    """
    from ...core.report import Report
    from ...session.store import load_report, reports, usable_state

    path = Path(name)
    if not path.is_file():
        state = usable_state()[0]
        newest = next(iter(reports(state)), None) if name == "last" else None
        return load_report(state, newest.id if newest else name)
    try:
        return Report.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise UsageError(f"{path} is no report", "give a session, or what --json printed") from None


def _tell(as_json: bool, data: dict[str, Any], lines: Sequence[str], commands: Sequence[str]) -> None:
    """What was done and how to go on, as JSON or in lines that no name of a file can break."""
    from ...safety.fences import one_line
    from .output import print_json, print_line

    if as_json:
        print_json(data)
        return
    for line in lines:
        print_line(one_line(line))
    if commands:
        print_line("go on with:")
    for command in commands:
        print_line(f"  {one_line(command)}")


class _Bar:
    """Bytes read or copied so far, on a terminal only."""

    def __init__(self, quiet: bool) -> None:
        self._shown = not quiet and sys.stderr.isatty()
        self._done = self._last = 0

    def __enter__(self) -> _Bar:
        return self

    def add(self, count: int) -> None:
        self._done += count
        if self._shown and self._done - self._last > 8 << 20:
            self._last = self._done
            sys.stderr.write(f"\r{self._done / 2**20:.0f} MiB")
            sys.stderr.flush()

    def __exit__(self, *exc: object) -> None:
        if self._shown and self._last:
            sys.stderr.write("\r\033[K")
