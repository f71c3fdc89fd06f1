"""The command line: `doctor`. Commands live in `commands/`, one file a group; heavy imports wait inside them.

Exit codes: 0 a report was made (or the command did its work); 1 `--fail-on` was met; 2 usage, no such path;
3 nothing readable; 4 a required model failed; 130 interrupted.
"""

from __future__ import annotations

import sys
from io import TextIOWrapper
from typing import Annotated

import typer

from ..core.errors import DoctorError
from .commands import (
    apply_command,
    chat_command,
    collect_command,
    diagnosis,
    evaluation,
    jobs_commands,
    kept_commands,
    knowledge_commands,
    salvage_command,
    setup_commands,
)
from .commands.output import nobody_listens

app = typer.Typer(
    name="doctor",
    help="Find out why a training run failed, hangs, crawls or learns nothing.",
    epilog='Example: doctor ask "why did the loss become NaN?" --run runs/exp42',
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _say_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"doctor {version('traindoctor')}")
        raise typer.Exit


@app.callback()
def doctor(
    version: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Options before the command."""


doctor.__doc__ = None  # the group's help is the app's, said once above

app.command(name="ask")(diagnosis.ask)
app.command(name="triage")(diagnosis.triage)
app.command(name="preflight")(diagnosis.preflight)
app.command(name="chat")(chat_command.chat)
app.command(name="run", context_settings={"allow_interspersed_args": False})(jobs_commands.run)
app.command(name="watch")(jobs_commands.watch)
app.command(name="hook")(jobs_commands.hook)
app.command(name="sweep")(collect_command.sweep)
app.command(name="serve")(jobs_commands.serve)
app.add_typer(knowledge_commands.tool_app, name="tool")
app.add_typer(knowledge_commands.playbook_app, name="playbook")
app.add_typer(knowledge_commands.index_app, name="index")
app.command(name="apply")(apply_command.apply)
app.command(name="undo")(apply_command.undo)
app.add_typer(salvage_command.salvage_app, name="salvage")
app.command(name="eval")(evaluation.evaluate)
app.command(name="collect")(collect_command.collect)
app.command(name="history")(kept_commands.history)
app.command(name="feedback")(kept_commands.feedback)
app.add_typer(kept_commands.sessions_app, name="sessions")
app.add_typer(setup_commands.config_app, name="config")
app.command(name="mcp")(setup_commands.mcp)


def main(arguments: list[str] | None = None) -> int:
    """Run a command line and give its exit code. What a user can cause is one line on stderr."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without UTF-8 must not cost the answer
    try:
        code = app(args=arguments, prog_name="doctor", standalone_mode=False)
        if sys.stdout is not None:  # closed by whoever started us
            sys.stdout.flush()
        code = code if isinstance(code, int) else 0
        return _complain("interrupted", 130) if code == 130 else code
    except DoctorError as e:
        return _complain(str(e), e.exit_code)
    except typer.TyperException as e:
        return _complain(f"{_ended(e.format_message())} {_to_type(e)}", e.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        return _complain("interrupted", 130)
    except BrokenPipeError:
        nobody_listens()
        return 0


def _ended(sentence: str) -> str:
    return sentence if sentence.endswith((".", "?", "!")) else f"{sentence}."


_BRACES = str.maketrans("", "", "{}")  # that usage lines put around what must be given


def _to_type(e: typer.TyperException) -> str:
    """What to type instead: how the command is called, or what lists the commands of its group."""
    context = getattr(e, "ctx", None)
    if context is None or context.command_path == "doctor":
        return "`doctor --help` lists the commands."
    if context.command_path.count(" ") == 1 and hasattr(context.command, "commands"):
        return f"`{context.command_path} --help` lists them."
    words = [
        w.translate(_BRACES).replace("......", "...")
        for w in context.command.collect_usage_pieces(context)
        if w != "[OPTIONS]"
    ]
    return f"Type: {' '.join([context.command_path, *words])}; --help tells the options."


def _complain(message: str, code: int) -> int:
    from ..safety.fences import inert

    line = " ".join(inert(message).split())
    sys.stderr.write(f"doctor: {line}\n" if line else "")
    return code


if __name__ == "__main__":
    sys.exit(main())
