"""A text as the readers of settings see it: its leaves, what each is canonically, and where each value stands."""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ..reading.bounded_toml import toml
from ..reading.settings import canonical_value, resolved
from ..reading.settings_files import read_text
from ..reading.settings_json import without_comments
from ..reading.settings_leaf import Leaf, Lines, Sheet, plain
from ..reading.settings_map import Spelling, settings_map
from .model import Unplaced
from .roles import lines_of_others

_COMPUTED = re.compile(r".*\(\.\.\.\)\Z|<.*>\Z", re.DOTALL)
_SELF_CONTAINED = ("deepspeed", "accelerate", "model", "peft", "tokenizer")  # their files are read by themselves
_OF_DEEPSPEED = {"zero_optimization", "train_micro_batch_size_per_gpu"}
FORMS = ("yaml", "json", "toml", "ini", "env", "shell", "python")


def _is_enabled(leaf: Leaf) -> bool:
    return leaf.key.rpartition(".")[2] in ("enabled", "enable")


@dataclass(frozen=True, slots=True)
class Found:
    """A leaf that the settings map knows. `value` is canonical; `computed` where only the running code knows it."""

    leaf: Leaf
    name: str
    value: Any
    spelling: Spelling
    own: bool
    scope: str
    computed: bool = False


@dataclass(frozen=True)
class Document:
    """A text without its byte order mark, read. Positions count its characters."""

    text: str
    name: str
    form: str
    framework: str
    sheet: Sheet
    within: str = ""  # `shell` for a here-document
    versions: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, text: str, name: str, framework: str = "", versions: Mapping[str, str] | None = None) -> Document:
        """Read a text.

        Args:
            framework: whose words the run's files speak; a file that is known by its keys speaks its own.
            versions: package -> release, as far as the run tells.

        Raises:
            Unplaced: the file's name tells no format that can be written, or the text is damaged.
        """
        clean = plain(text)
        answer = read_text(name, clean)
        if answer is None or answer[0] not in FORMS:
            raise Unplaced("not a file of a kind that settings are written to")
        form, sheet = answer
        if sheet.problems:
            raise Unplaced(f"the file cannot be read in full: {sheet.problems[0]}")
        known = settings_map()
        if not framework:
            framework = known.detect((leaf.key for leaf in sheet.leaves), text[:400_000])
        elif form in ("json", "yaml"):
            told = known.detect((leaf.key for leaf in sheet.leaves), "")
            framework = told if told in _SELF_CONTAINED and not known.owns(framework, [told]) else framework
        return cls(text, name, form, framework, sheet, versions=versions or {})

    def again(self, text: str) -> Document:
        """The same file with another text."""
        return Document.read(text, self.name, self.framework, self.versions)

    @cached_property
    def clean(self) -> str:
        return plain(self.text)

    @cached_property
    def lines(self) -> Lines:
        return Lines(self.text)

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax tree of Python code."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(self.clean)

    @cached_property
    def others(self) -> list[tuple[int, int]]:
        """Lines of Python code that make something for another model or for evaluation."""
        try:
            return lines_of_others(self.tree)
        except (SyntaxError, ValueError, RecursionError, MemoryError):  # an excerpt of a function is read without
            return []

    @cached_property
    def enabled(self) -> set[str]:
        """Dotted paths of mappings that say `enabled: true`."""
        return {leaf.key.rpartition(".")[0] for leaf in self.sheet.leaves if leaf.value is True and _is_enabled(leaf)}

    @cached_property
    def disabled(self) -> set[str]:
        """Dotted paths of mappings that say `enabled: false`."""
        return {leaf.key.rpartition(".")[0] for leaf in self.sheet.leaves if leaf.value is False and _is_enabled(leaf)}

    @cached_property
    def found(self) -> list[Found]:
        """Every leaf that the map knows, in file order."""
        return [f for leaf in self.sheet.leaves if (f := self._find(leaf)) is not None]

    @cached_property
    def _configures_deepspeed(self) -> bool:
        """Whether a script or code holds the object that DeepSpeed is configured by."""
        keys = {leaf.key for leaf in self.sheet.leaves if leaf.style in ("json", "dict")}
        heads = {part for key in keys for part in key.split(".")[:2]}
        known = heads & _OF_DEEPSPEED or keys & {"fp16.enabled", "bf16.enabled"}
        return self.form in ("shell", "python") and bool(known)

    def _scope(self, leaf: Leaf) -> str:
        if leaf.scope in ("", "hf", "trl", "sft") and leaf.style in ("json", "dict") and self._configures_deepspeed:
            found = settings_map().resolve("deepspeed", leaf.key)
            return "deepspeed" if found and found[1] else leaf.scope or self.framework
        return leaf.scope or self.framework

    def _find(self, leaf: Leaf) -> Found | None:
        scope = self._scope(leaf)
        answer = resolved(leaf, scope)
        if answer is None or leaf.used:
            return None
        if isinstance(leaf.value, str) and _COMPUTED.match(leaf.value):
            return Found(leaf, answer[0].name, None, *answer, scope, True)
        made = canonical_value(answer, leaf.value)
        if made is None:
            return None
        value = made[1]
        if leaf.value is None:  # `none` is a word here, as in `offload_device: none`
            value = settings_map().canonical[made[0]].values.get("none")
        return Found(leaf, made[0], value, *answer, scope)

    def span(self, leaf: Leaf) -> tuple[int, int]:
        """Start and end of a value.

        Raises:
            Unplaced: it has no place of its own on its line.
        """
        if not leaf.width:
            raise Unplaced("its value does not stand on one line by itself")
        start = self.lines.start(leaf.line) + leaf.column
        return start, start + leaf.width

    def source(self, leaf: Leaf) -> str:
        """A value as it is written; empty when it has no place."""
        start = self.lines.start(leaf.line) + leaf.column
        return self.text[start : start + leaf.width]

    def row(self, line: int) -> str:
        """A line with its end."""
        start = self.lines.start(line)
        end = self.text.find("\n", start)
        return self.text[start : end + 1 if end >= 0 else len(self.text)]

    @cached_property
    def newline(self) -> str:
        """How lines end, by the first that ends."""
        at = self.text.find("\n")
        return "\r\n" if at > 0 and self.text[at - 1] == "\r" else "\n"

    def parses(self) -> int:
        """Whether the format's own parser takes it: 2 as it is, 1 without comments and trailing commas, 0 not at all.

        A shell script is not parsed: its words are compared elsewhere.
        """
        try:
            if self.form == "json":
                return self._parses_json()
            if self.form == "toml":
                toml(self.text)
            elif self.form == "python":
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    ast.parse(self.text)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            return 0
        return 2

    def _parses_json(self) -> int:
        try:
            json.loads(self.text)
        except ValueError:
            json.loads(without_comments(self.clean))
            return 1
        return 2
