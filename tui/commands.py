"""The lines with a slash: one table, from which help, completion, palette and screen are made.

The screen carries a command out by a method of its name, `do_run(arguments)`, that takes the words after it.
"""

from __future__ import annotations

import difflib
import shlex
from dataclasses import dataclass
from typing import Literal

from ..agent.core.errors import UsageError

# What a word of a command may be: decides what is offered while it is typed.
Kind = Literal[
    "", "tool", "evidence", "patch", "folder", "path", "model", "risk", "export", "theme", "session", "apply", "command"
]
RISKS = {
    "read": "looks at files and at this machine",
    "probe": "also starts short checks on this machine",
    "costly": "also what takes minutes or many cards",
}


@dataclass(frozen=True, slots=True)
class SlashCommand:
    """A command as it is typed, explained and completed.

    Attributes:
        about: one line of what it does for the user.
        arguments: in words; `[..]` may be left out.
        takes: what its words are.
        many: whether each further word is of that kind too.
    """

    name: str
    about: str
    arguments: str = ""
    example: str = ""
    aliases: tuple[str, ...] = ()
    takes: Kind = ""
    many: bool = False

    @property
    def usage(self) -> str:
        """`/evidence [ID|WORDS]`"""
        return f"/{self.name} {self.arguments}".rstrip()

    @property
    def needs(self) -> bool:
        """Whether it cannot do anything without a word after it."""
        return bool(self.arguments) and not self.arguments.startswith("[")


COMMANDS = (
    SlashCommand("run", "look at a run: a folder or a file", "PATH", "/run /data/exp42", takes="path", many=True),
    SlashCommand("good", "name a healthy run to compare with", "PATH", "/good /data/exp41", takes="path"),
    SlashCommand("watch", "follow the run while it goes on, or stop following", "[off]", "/watch"),
    SlashCommand("tool", "make one check", "NAME [ARG=VALUE ...]", "/tool scan-logs", ("check",), "tool"),
    SlashCommand("allow", "up to which risk checks run unasked", "[read|probe|costly]", "/allow probe", takes="risk"),
    SlashCommand("evidence", "the evidence, or the lines that match", "[ID|WORDS]", "/evidence E3", ("e",), "evidence"),
    SlashCommand("hypotheses", "the causes that were weighed", aliases=("causes",), example="/hypotheses"),
    SlashCommand("curves", "loss, gradient norm, memory, speed around the event", example="/curves"),
    SlashCommand("ranks", "the timeline of the ranks", example="/ranks"),
    SlashCommand("repairs", "the patches, as diffs", aliases=("patches",), example="/repairs"),
    SlashCommand("apply", "show what patches would change, and ask", "[P1 ...]", "/apply P1", takes="patch", many=True),
    SlashCommand("undo", "take an apply back: shown and asked first", "[ID]", "/undo", takes="apply"),
    SlashCommand("report", "the last diagnosis again", example="/report"),
    SlashCommand("copy", "copy the last answer as text", example="/copy"),
    SlashCommand("export", "write the conversation: .md, .html, .json; secrets taken out", "FILE",
                 "/export night.md", takes="export"),
    SlashCommand("model", "which model plans; off: none, nothing is sent", "[NAME|off]", "/model off", takes="model"),
    SlashCommand("session", "this session's id, and how to go on with it later", example="/session"),
    SlashCommand("sessions", "earlier sessions and diagnoses", example="/sessions"),
    SlashCommand("resume", "go on with a session; the newest where none is named", "[ID]", "/resume", takes="session"),
    SlashCommand("theme", "how the chat looks", "[NAME]", "/theme light", takes="theme"),
    SlashCommand("stop", "stop the answer; what was found is kept", example="/stop"),
    SlashCommand("help", "keys, commands, and what can be asked", "[WORDS]", "/help", ("?",), takes="command"),
    SlashCommand("quit", "end; the session is kept", aliases=("exit", "q"), example="/quit"),
)  # fmt: skip

# What can be asked in plain words, for help, start screen and placeholder: the question, and what answers it.
QUESTIONS = (
    ("why did it die?", "a diagnosis: cause, evidence, repair"),
    ("why?", "how the verdict comes about"),
    ("are you sure?", "what speaks for it, and what against"),
    ("why not a straggler?", "why another cause was left behind"),
    ("check rank 3", "the same for one rank, node or file"),
    ("what if precision=bf16", "the verdict if a setting were another"),
    ("show train.log:40", "lines of a file"),
    ("what should I do?", "the repair, and what it risks"),
    ("how do I verify that?", "how to tell that the repair works"),
    ("how much memory does it need?", "an estimate from the settings"),
    ("what does NCCL_TIMEOUT do?", "looked up in what doctor knows; needs no run"),
)

_BY_WORD = {word: c for c in COMMANDS for word in (c.name, *c.aliases)}


def is_command(line: str) -> bool:
    """Whether a line is meant as one. A question that begins with a path is asked with a space before it."""
    return line.startswith("/")


def command(word: str) -> SlashCommand | None:
    """The command of a name or an alias, without its slash."""
    return _BY_WORD.get(word.lower())


def parsed(line: str) -> tuple[SlashCommand, list[str]]:
    """The command of a line and its words, split as a shell does: quotes and backslashes keep spaces together.

    Raises:
        UsageError: no such command, a quote that is not closed, or what it cannot do without is missing.
    """
    word, *rest = line.strip().removeprefix("/").split(None, 1)[:2] or [""]
    found = command(word)
    if found is None:
        raise UsageError(f"no command /{word}", _meant(word))
    try:
        arguments = shlex.split(rest[0]) if rest else []
    except ValueError:
        raise UsageError("a quote is not closed", f"as in {found.example}") from None
    if found.needs and not arguments:
        raise UsageError(f"/{found.name} needs more: {found.usage}", f"as in {found.example}")
    return found, arguments


def _meant(word: str) -> str:
    if "/" in word:
        return "to ask about a path, write a space before it; to look at a run: /run PATH"
    near = difflib.get_close_matches(word.lower(), _BY_WORD, n=1, cutoff=0.6)
    begun = [w for w in _BY_WORD if word and w.startswith(word.lower())]
    return f"did you mean /{_BY_WORD[(begun or near)[0]].name}?" if begun or near else "/help lists them"
