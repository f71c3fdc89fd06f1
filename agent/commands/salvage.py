"""`doctor salvage`: write something usable out of a checkpoint that is not. The only writes outside `doctor apply`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from . import options

app = typer.Typer(help="Make a new checkpoint out of a damaged one, which is never touched.", no_args_is_help=True)


@app.callback()
def salvage() -> None:
    """Commands below stand alone."""


@app.command("reset-optimizer")
def reset(
    checkpoint: Annotated[Path, typer.Argument(help="Folder or file of the checkpoint.", metavar="CHECKPOINT")],
    output: Annotated[Path, typer.Option("--output", "-o", help="New folder or file; must not exist.", metavar="NEW")],
    keep_scheduler: Annotated[bool, typer.Option("--keep-scheduler", help="Keep the learning-rate schedule.")] = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Write a copy without optimizer state, weights bit for bit.

    For moments that are corrupt, stale or of other parameters. Takes Hugging Face folders, DeepSpeed (ZeRO 1 and 2),
    Lightning and plain torch.save files; for Megatron, ZeRO 3 and distributed checkpoints it names the framework's
    own way.
    """
    from ..salvage.reset_optimizer import reset_optimizer
    from .streams import print_json, print_line

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


class _Bar:
    """Bytes copied so far, on a terminal only."""

    def __init__(self, quiet: bool) -> None:
        self._shown = not quiet and sys.stderr.isatty()
        self._done = self._last = 0

    def __enter__(self) -> _Bar:
        return self

    def add(self, count: int) -> None:
        self._done += count
        if self._shown and self._done - self._last > 256 << 20:
            self._last = self._done
            sys.stderr.write(f"\r{self._done / 2**30:.1f} GiB copied")
            sys.stderr.flush()

    def __exit__(self, *exc: object) -> None:
        if self._shown and self._last:
            sys.stderr.write("\r\033[K")
