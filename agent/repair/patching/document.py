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

from packaging.requirements import Requirement
from packaging.version import InvalidVersion, Version

from ...reading.run.lines import Positions
from ...reading.settings.forms.settings_data import without_comments
from ...reading.settings.forms.settings_files import read_text, toml
from ...reading.settings.forms.settings_python import dotted
from ...reading.settings.settings import canonical_value, resolved
from ...reading.settings.settings_map import Leaf, Sheet, Spelling, normal, plain, settings_map
from .spelling import Unplaced, lineage, listed, table

# ----------
# Whose setting it is: places that belong to another model, to evaluation, to an engine, or to a part that is off.


# Parts of a key or of a name in code that say: not the model that is trained.
OTHERS = frozenset(
    (
        "critic", "reward", "rm", "ref", "reference", "teacher", "discriminator", "draft", "eval", "evaluate",
        "evaluation", "val", "valid", "validate", "validation", "test", "predict", "inference",
    )
)  # fmt: skip
_NOT_FOR = {"learning_rate": {"scheduler", "sched", "ema", "swa"}}
_ENGINES = ("vllm", "sglang")
_TREES = ("yaml", "json", "toml", "override", "dict", "flag", "ini")


def elsewhere(doc: Document, found: Found) -> bool:
    """Whether a place that bears a setting's name sets it for something else than the training itself."""
    leaf = found.leaf
    if leaf.scope in _ENGINES and leaf.scope not in lineage(doc.framework) and doc.framework:
        return True
    if OTHERS & _parts(found.name):
        return False
    above = leaf.key.split(".")[: -len(found.spelling.segments)] if leaf.style in _TREES else []
    if above[:1] == ["defaults"] and leaf.style == "yaml":
        return True  # Hydra's list of files, not of values
    others = OTHERS | _NOT_FOR.get(found.name, set()) if not found.own else OTHERS
    if any(others & _parts(segment) for segment in above):
        return True
    return doc.form == "python" and (other_call(doc, leaf.line) or _not_passed(doc, found))


def _not_passed(doc: Document, found: Found) -> bool:
    """Whether a dictionary of the code does not reach the framework: its call is there, and takes no such name."""
    if found.leaf.style != "dict" or found.scope == "deepspeed":
        return False
    calls, line = listed("calls", doc.framework) or (), found.leaf.line
    made = [n for n in ast.walk(doc.tree) if isinstance(n, ast.Call) and dotted(n.func).rpartition(".")[2] in calls]
    if not made or any(n.lineno <= line <= (n.end_lineno or 0) for n in made):
        return False
    if any(k.arg is None for n in made for k in n.keywords):
        return False
    named = {n.id for call in made for n in ast.walk(call) if isinstance(n, ast.Name)}
    homes = [n for n in doc.tree.body if isinstance(n, ast.Assign) and n.lineno <= line <= (n.end_lineno or 0)]
    return not any(_name(target) in named for n in homes for target in n.targets)


def _parts(name: str) -> set[str]:
    """The words of a name. `actor_rollout_ref` is the actor's, though it names the reference."""
    if name.lower().startswith("actor"):
        return set()
    return set(re.split(r"[_\-]|(?<=[a-z])(?=[A-Z])", name)) | set(re.split(r"[_\-]", name.lower()))


def other_call(doc: Document, line: int) -> bool:
    """Whether code on a line makes something for another model or for evaluation, by the names around it."""
    return any(first <= line <= last for first, last in doc.others)


def lines_of_others(tree: ast.AST) -> list[tuple[int, int]]:
    """First and last lines of the statements and functions whose names say so."""
    found: list[tuple[int, int]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names = [node.name]
        elif isinstance(node, ast.Assign):
            names = [_name(target) for target in node.targets]
        elif isinstance(node, ast.AnnAssign):
            names = [_name(node.target)]
        else:
            continue
        if any(OTHERS & {part.lower() for part in _parts(name)} for name in names):
            found.append((node.lineno, node.end_lineno or node.lineno))
    return found


def _name(target: ast.expr) -> str:
    return target.attr if isinstance(target, ast.Attribute) else target.id if isinstance(target, ast.Name) else ""


def asleep(doc: Document, found: Found) -> bool:
    """Whether a mapping around a place says `enabled: false`, so that nobody reads it."""
    parts = found.leaf.key.split(".")
    return any(
        ".".join(parts[:i]) in doc.disabled and parts[i:] not in (["enabled"], ["enable"]) for i in range(1, len(parts))
    )


def switched_on(doc: Document, found: Found) -> bool:
    """Whether a mapping around a place says `enabled: true`."""
    parts = found.leaf.key.split(".")
    return any(".".join(parts[:i]) in doc.enabled for i in range(1, len(parts)))


# ----------

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
    def lines(self) -> Positions:
        return Positions(self.text)

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


# ----------
# Files whose settings nobody reads again: records that a run wrote, and files of other programs.

HEAD = 65_536  # characters that are looked at
_RECORD_FOLDER = re.compile(
    r"(?:^|/)(?:wandb|mlruns|mlflow|\.hydra|lightning_logs|ray_results|tb|tensorboard|tb_logs|\.neptune|\.comet\w*"
    r"|checkpoint-\d+|global_step_?\d+|iter_\d+|step[-_]?\d+|epoch[-_=]?\d+\S*"
    r"|(?:run|offline-run)-\d{8}_\d{6}-\w+)/"
)
_RECORD_NAME = re.compile(
    r"(?:^|/)(?:trainer_state|training_args|cmd[-_]args|\w*_results|wandb-\w+|\w*metrics\w*"
    r"|\w*resolved\w*|\w*snapshot\w*|adapter_config|torchtune_config|llamaboard_config"
    r"|\S*\.index)\.(?:json|ya?ml)\Z|(?:^|/)args\.json\Z|(?:^|/)(?:version_\d+|tb\w*|logs)/(?:\S*/)?hparams\.ya?ml\Z"
    r"|(?:^|/)\S+\.(?:lock|log|out|err)\Z"
    r"|(?:^|/)(?:package-lock\.json|conda-lock\.ya?ml|pnpm-lock\.yaml|npm-shrinkwrap\.json)\Z"
)
_RECORD_TEXT = re.compile(
    r"""(?mx) "log_history"\s*: | "best_model_checkpoint"\s*: | "_n_gpu"\s*: | "__cached__setup_devices"\s*:
    | ^_wandb\s*: | ^wandb_version\s*: | ^artifact_uri\s*: | "peft_type"\s*: | !!python/object(?::|/new:|/apply:)
    | ^_n_gpu\s*: | ^(?:\#\s*)?(?:this\ file\ (?:is|was)\ )?(?:auto(?:matically)?[- ]?)generated\b
    """
)
# Lightning writes its record without a comment; a file of this name that a person wrote has comments or tags.
_HPARAMS = re.compile(r"(?:^|/)hparams\.ya?ml\Z")
_WRITTEN_BY_HAND = re.compile(r"#|!(?:new|ref|name|apply|include|copy)\b")
_KINDS = tuple(
    (kind, re.compile(name), tuple(map(re.compile, texts)))
    for kind, name, *texts in (
        ("a Kubernetes manifest", r"\.(?:ya?ml|json)\Z", r"(?m)^\s*\"?apiVersion\"?\s*:", r"(?m)^\s*\"?kind\"?\s*:"),
        ("a Kubernetes manifest", r"\.ya?ml\Z", r"(?m)^spec\s*:", r"(?m)^\s+containers\s*:"),
        ("a Compose file", r"(?:^|/)(?:docker-)?compose[\w.\-]*\.ya?ml\Z"),
        ("a Compose file", r"\.ya?ml\Z", r"(?m)^services\s*:", r"(?m)^\s+(?:image|build)\s*:"),
        ("a workflow of a CI service", r"(?:^|/)\.(?:github|circleci)/"),
        ("a workflow of a CI service", r"(?:^|/)(?:\.gitlab-ci|azure-pipelines)\S*\.ya?ml\Z"),
        ("a workflow of a CI service", r"\.ya?ml\Z", r"(?m)^[\"']?on[\"']?\s*:", r"(?m)^jobs\s*:"),
        ("a task of a cloud launcher", r"\.ya?ml\Z", r"(?m)^(?:run|setup|command|entrypoint)\s*:\s*[|>]|^commands\s*:"),
        ("a manifest of packages", r"(?:^|/)(?:package|composer|tsconfig|jsconfig|deno)\.json\Z"),
        ("a manifest of packages", r"(?:^|/)(?:(?:pyproject|Cargo|uv|ruff)\.toml|Pipfile)\Z"),
        ("a manifest of packages", r"(?:^|/)(?:setup\.cfg|(?:tox|pytest|mypy)\.ini|\.flake8|\.coveragerc)\Z"),
        ("a manifest of packages", r"\.ya?ml\Z", r"(?m)^(?:channels|dependencies|repos)\s*:\s*(?:\n\s*-|\[)"),
        ("a configuration of an editor", r"(?:^|/)(?:\.vscode|\.idea|\.devcontainer)/"),
        (
            "a file of the tokenizer or the processor",
            r"(?:^|/)(?:tokenizer\w*|vocab|merges|special_tokens_map|added_tokens|chat_template|preprocessor_config"
            r"|processor_config|\w*_processor_config)\.json\Z",
        ),
        ("the generation defaults of a model", r"(?:^|/)generation_config\.json\Z"),
        ("a description of data", r"(?:^|/)(?:dataset_infos?|dataset_dict|state|data(?:set)?_card)\.(?:json|yaml)\Z"),
        ("a file that starts a program", r"\.json\Z", r"\"(?:cmd|command|argv|entrypoint|args)\"\s*:\s*[\[\"]"),
    )
)  # fmt: skip


def is_record(name: str, head: str) -> bool:
    """Whether a run wrote the file to remember what it did: a change of it has no effect on the next launch.

    Args:
        name: the file's path inside the run.
        head: the beginning of its text.
    """
    path = name.replace("\\", "/")
    if _RECORD_FOLDER.search(path) and not path.endswith((".py", ".sh")):
        return True
    if _HPARAMS.search(path) and not _WRITTEN_BY_HAND.search(head[:HEAD]):
        return True
    return bool(_RECORD_NAME.search(path) or (not path.endswith(".py") and _RECORD_TEXT.search(head[:HEAD])))


def why_not(name: str, head: str, given: bool = False) -> str:
    """Why no setting is to be written into a file, in words; empty where nothing speaks against it.

    Args:
        given: a launch hands it to the training, so that its name makes no record of it; its text still may.
    """
    if is_record("settings" if given else name, head):
        return "a record that the run wrote: the next launch does not read it"
    path = name.replace("\\", "/")
    for kind, by_name, texts in _KINDS:
        if by_name.search(path) and all(text.search(head[:HEAD]) for text in texts):
            return f"{kind}, not a file of training settings"
    return ""


# ----------
# Spellings that not every release takes: those that the run's releases allow, or all of them where none is known.


def untimely(doc: Document, scope: str, spelling: Spelling) -> str:
    """Why a spelling is not to be put in: the run's release does not take it, or not every release does.

    Returns:
        The reason; empty where it may be put in.
    """
    key = ".".join(spelling.segments)
    if why := _other_style(doc, scope, spelling):
        return why
    for framework in dict.fromkeys((*lineage(doc.framework), scope)):
        told = table()["dated"].get(framework, {}).get(key)
        if told:
            return _outside(doc, key, Requirement(told))
    return ""


def _outside(doc: Document, key: str, needed: Requirement) -> str:
    version = next((v for p, v in doc.versions.items() if normal(p) == normal(needed.name)), "")
    try:
        known = Version(version.split("+")[0]) if version else None
    except InvalidVersion:
        known = None
    if known is not None:
        holds = needed.specifier.contains(known.base_version, prereleases=True)
        return "" if holds else f"{needed.name} {version} does not take `{key}` ({needed})"
    ends = any(s.operator in ("<", "<=", "==") for s in needed.specifier)
    return f"only some releases take `{key}` ({needed}), and the run's is not known" if ends else ""


def _other_style(doc: Document, scope: str, spelling: Spelling) -> str:
    """Where a framework went from plain flags to dotted ones, the flags of the file tell which release reads it."""
    if scope not in table()["restyled"]:
        return ""
    own = [f for f in doc.found if f.own and f.scope == scope and f.leaf.style == "flag"]
    if not own:
        return ""
    dotted = any("." in f.leaf.key for f in own)
    return "" if dotted == bool(spelling.segments[1:]) else f"the file's flags are those of another release of {scope}"
