"""The checkpoints of a run: which files make up one save, by their names and folders alone.

for checkpoint in checkpoints(ws):        # oldest first
    checkpoint.framework, checkpoint.step, checkpoint.files["model"]
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePath, PurePosixPath
from typing import TYPE_CHECKING

from ..run.files import RunFile

if TYPE_CHECKING:
    from ..run.workspace import Workspace


# ----------
# What names of files and folders say: the part a file plays in a checkpoint, the step, an unfinished save.


# First match wins. Parts: model, optimizer, scheduler, rng, scaler, data_state, common, extra, index, metadata,
# trainer_state, config, tokenizer.
_PARTS: list[tuple[re.Pattern[str], str]] = [
    (re.compile(pattern, re.IGNORECASE), part)
    for pattern, part in (
        (r"^\.metadata$", "metadata"),
        (r"\.distcp$", "model"),
        (r"\.(safetensors|bin|pt)\.index\.json$", "index"),
        (r"^(.*_)?optim_states\.pt$", "optimizer"),
        (r"^(.*_)?model_states\.pt$", "model"),
        (r"^model(_optim)?_rng\.pt$", "model"),
        (r"^distrib_optim\.pt$", "optimizer"),
        (r"^extra_state_world_size_\d+_rank_\d+\.pt$", "extra"),
        (r"^(fp32|exp_avg|exp_avg_sq|step)\.pt$", "optimizer"),  # DeepSpeed's universal layout, a folder a parameter
        (r"^common\.pt$", "common"),
        (r"^training_args\.bin$", "common"),
        (r"^(optimizer|optim|opt)(s|[-_.\d][-_.\w]*)?\.(pt|pth|bin|safetensors)$", "optimizer"),
        (r"^(lr_?)?sched(uler)?([-_.][-_.\w]*)?\.(pt|pth|bin)$", "scheduler"),
        (r"^(rng|random)_?states?([-_.][-_.\w]*)?\.(pt|pth|pkl|bin)$", "rng"),
        (r"^(grad_?)?scaler([-_.][-_.\w]*)?\.(pt|pth|bin)$", "scaler"),
        (
            r"^(train_?)?(data|data_?loader|data_?state|sampler|dataset_?state|dl_state)([-_.][-_.\w]*)?\.(pt|pth|pkl|bin)$",
            "data_state",
        ),
        (r"^adapter_model.*\.(safetensors|bin)$", "model"),
        (r"^(pytorch_|diffusion_pytorch_|tf_)?model([-_.][^/]*)?\.(safetensors|bin|pt|pth)$", "model"),
        (r"^(consolidated|weights|params)([-_.].*)?\.(safetensors|bin|pt|pth)$", "model"),
        (r"^trainer_state\.json$", "trainer_state"),
        (r"^(tokenizer(_config)?|special_tokens_map|added_tokens|vocab|chat_template)\.json$", "tokenizer"),
        (r"^(tokenizer|spiece|sentencepiece\.bpe)\.model$|^(merges|vocab)\.txt$|^chat_template\.jinja$", "tokenizer"),
        (r"^((adapter_|generation_|fsdp_|preprocessor_)?config|metadata|hparams|params)\.(json|ya?ml)$", "config"),
    )
]  # fmt: skip
TRACKERS = ("latest", "latest_universal", "latest_checkpointed_iteration.txt", "latest_checkpoint.txt")
_WEIGHTS = re.compile(r"\.(safetensors|bin|(pt|pth|ckpt)(\.tar)?)$", re.IGNORECASE)
_STEP_FOLDER = re.compile(
    r"^(?:tmp[-_])?(?P<word>checkpoint|ckpt|global_?step|iter|iteration|step|epoch|save)s?[-_=]?(?P<step>\d{1,12})"
    r"(?:[-_]universal)?(?P<tail>(?:[-_.](?:tmp|unfinished|incomplete|partial|saving|bak|old))*)$",
    re.IGNORECASE,
)
_INSIDE_NAME = re.compile(
    r"(?:^|[-_.=])(?P<word>global_?step|step|iter|iteration|checkpoint|ckpt|epoch|save|samples|it)s?[-_=]?(?P<step>\d{1,12})(?=$|[-_.])",
    re.IGNORECASE,
)
_NUMBER_AT_END = re.compile(
    r"^(?:model|net|state|weights|optimizer|scheduler|ema)[-_](?P<step>\d{2,12})$", re.IGNORECASE
)
_UNFINISHED = re.compile(
    r"^tmp[-_](checkpoint|ckpt|iter|step|global)|[-_.](tmp|unfinished|incomplete|partial|part|saving)$|\.tmp[-.]\w+$"
    r"|^\.tmp|\.aria2$|\.crdownload$",
    re.IGNORECASE,
)
# Folders that belong to the checkpoint around them.
_INNER = re.compile(
    r"^(mp_rank_\d+(_\d+)*|pytorch_model_fsdp_\d+|optimizer_\d+|actor|critic|huggingface|weights|context|dist_ckpt|zero"
    r"|checkpoint|model|optim(izer)?|tokenizer|lora_adapter|data|\.hf_peft)$",
    re.IGNORECASE,
)  # fmt: skip
_SHARD = re.compile(r"-\d{5}-of-\d{5}|_rank_?\d+|mp_rank|consolidated\.\d\d|tp_\d+_pp", re.IGNORECASE)


def part_of(name: str) -> str | None:
    """The part that a file plays by its own name, or None."""
    base = PurePath(name).name
    return next((part for pattern, part in _PARTS if pattern.search(base)), None)


def holds_weights(name: str) -> bool:
    """Whether a file of this name may hold tensors though its name tells no part (`best.pt`, `last.ckpt`)."""
    return bool(_WEIGHTS.search(PurePath(name).name))


def step_of_folder(name: str) -> tuple[str, int] | None:
    """`("checkpoint", 100)` for the folder of one save, also where NeMo and Lightning write `...step=100...`."""
    if m := _STEP_FOLDER.match(name):
        return m["word"].lower(), int(m["step"])
    if name.endswith(".ckpt") or "step=" in name:
        return step_of_file(name) or ("", -1)
    return None


def step_of_file(name: str) -> tuple[str, int] | None:
    """The same for a file that holds a save of its own: `epoch=0-step=4.ckpt`, `model_0100.pt`. Epochs last."""
    stem = PurePath(name).name
    while (suffix := PurePath(stem).suffix.lower()) in (".pt", ".pth", ".bin", ".ckpt", ".safetensors", ".tmp", ".tar"):
        stem = stem[: -len(suffix)]
    if _SHARD.search(stem):
        return None
    found = [(m["word"].lower(), int(m["step"])) for m in _INSIDE_NAME.finditer(stem)]
    if not found and (m := _NUMBER_AT_END.match(stem)):
        found = [("step", int(m["step"]))]
    return next((f for f in found if f[0] != "epoch"), found[0] if found else None)


def is_unfinished(name: str) -> bool:
    """Whether a folder or file bears a name that is taken away when a save is complete."""
    return bool(_UNFINISHED.search(name))


def is_inner(name: str) -> bool:
    """Whether a folder belongs to the checkpoint that its parent is."""
    return bool(_INNER.match(name))


# ----------

_SMALL = 16 << 20
SAVED = ("model", "optimizer", "scheduler", "rng", "scaler", "data_state", "common", "extra", "metadata", "other")
_COUNTS_STEPS = ("checkpoint", "ckpt", "globalstep", "global_step", "iter", "iteration", "step")
_ZIP, _PICKLE = b"PK\x03\x04", b"\x80"


@dataclass(slots=True)
class Checkpoint:
    """One save.

    Attributes:
        name: its folder or file, relative to the run; the run's own folder by its name.
        framework: hf, peft, accelerate, deepspeed, megatron, megatron_dist, dcp, lightning, verl, torch.
        step: the number in its name where that counts steps, else what trainer_state.json says.
        files: by part: model, optimizer, scheduler, rng, scaler, data_state, common (arguments and counters), extra,
            index, metadata (DCP's), trainer_state, config, tokenizer, other. A file that holds several parts stands
            under the first.
        written: seconds since the epoch of its newest file, 0 where unknown.
        folder: what it lies in; saves of one series share it. Empty where the run itself is the save.
        series: the name with numbers taken out: saves of one series are alike.
        marks: names that say the save never ended.
    """

    name: str
    framework: str
    step: int | None
    files: dict[str, list[RunFile]]
    written: float = 0.0
    folder: str = ""
    run: str = "r1"
    series: str = ""
    marks: list[str] = field(default_factory=list)
    good: bool = False

    @property
    def all(self) -> list[RunFile]:
        """Every file once."""
        return [f for files in self.files.values() for f in files]

    @property
    def tensor_files(self) -> list[RunFile]:
        """Files that hold saved states, in the order of the parts."""
        return [f for part in SAVED for f in self.files.get(part, [])]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(f.size for f in self.all)

    def within(self, file: RunFile) -> str:
        """The name of a file inside the checkpoint."""
        if not self.folder:  # the run's root is the save
            return file.name.removeprefix(f"{self.run}/")
        inner = file.name.removeprefix(f"{self.name}/")
        return inner if inner != file.name else PurePosixPath(file.name).name


@dataclass(frozen=True, slots=True)
class Tracker:
    """A small file that names the newest complete save; `target` is what stands in it."""

    file: RunFile
    folder: str
    target: str
    written: float


def checkpoints(ws: Workspace) -> list[Checkpoint]:
    """Every save of the run, oldest first (by step where known, then by time of writing)."""
    return ws.memo("checkpoints", lambda: _grouped(ws))


def trackers(ws: Workspace) -> list[Tracker]:
    """Files such as `latest` and `latest_checkpointed_iteration.txt`."""
    return ws.memo("checkpoint_trackers", lambda: [_tracker(ws, f) for f in ws.files if f.path.name in TRACKERS])


def _tracker(ws: Workspace, file: RunFile) -> Tracker:
    folder = str(PurePosixPath(file.name).parent)
    return Tracker(file, folder, ws.text(file, 4096).strip(), _written(file.path))


def _grouped(ws: Workspace) -> list[Checkpoint]:
    """Files by the key of their save; a folder without any tensors is none."""
    groups: dict[tuple[str, str], dict[str, list[RunFile]]] = defaultdict(lambda: defaultdict(list))
    marks: dict[tuple[str, str], set[str]] = defaultdict(set)
    for file in ws.files:
        if file.path.name in TRACKERS or file.role in ("data", "record"):  # a batch that the recorder kept is no save
            continue
        found = _place(ws, file)
        if found is None:
            continue
        key, part = found
        groups[file.run, key][part].append(file)
        marks[file.run, key] |= set(_marks(key, file))
    names = {(run, key): key for run, key in groups}
    made = [
        _checkpoint(ws, run, key, files, sorted(marks[run, key]))
        for (run, key), files in groups.items()
        if any(part in files for part in SAVED)
    ]
    _marker_files(ws, made, set(names.values()))
    return sorted(made, key=lambda c: (c.run, c.step is None, c.step or 0, c.written, c.name))


def _place(ws: Workspace, file: RunFile) -> tuple[str, str] | None:
    """The save that a file belongs to and its part in it; None where it belongs to none."""
    path = PurePosixPath(file.name)
    part = part_of(file.name)
    if path.suffix == ".distcp" and path.parent.name.startswith("optim"):
        part = "optimizer"  # accelerate keeps the two in folders of their own
    home = _home(ws, file, path)
    if home is not None:
        return home, part or ("other" if holds_weights(file.name) and _is_state(file) else "beside")
    if part is None and not (holds_weights(file.name) and (is_weights_name(file.name) and _is_state(file))):
        return None
    numbered = step_of_file(file.name)
    if path.suffix.lower() == ".ckpt" or part is None or (numbered and part in SAVED):
        single = str(path) if part is None or path.suffix.lower() == ".ckpt" else ""
        return single or f"{path.parent}/{_wildcard(path.name)}", part or "model"
    folder = path.parent
    while folder.name and is_inner(folder.name):
        folder = folder.parent
    return str(folder), part


def is_weights_name(name: str) -> bool:
    """Whether a file with the suffix of weights may be a save: `.bin` beside an `.idx` is tokenized text."""
    return not name.lower().endswith(("_document.bin", "train.bin", "val.bin", "test.bin"))


def _wildcard(name: str) -> str:
    """`model_0100.pt` and `optimizer_0100.pt` are one save: what they share is the number."""
    found = step_of_file(name)
    return f"*{found[1]}" if found and part_of(name) else name


def _home(ws: Workspace, file: RunFile, path: PurePosixPath) -> str | None:
    """The outermost folder that bears the number of the save, as `checkpoint-100` around `global_step100`."""
    parents = [p for p in reversed(path.parents) if p.name]
    numbered = [(p, found[1]) for p in parents if (found := step_of_folder(p.name))]
    if numbered:
        last = next((n for _, n in reversed(numbered) if n >= 0), numbered[-1][1])
        return str(next(p for p, n in numbered if n == last))
    return "." if step_of_folder(_root(ws, file).name) and path.name not in TRACKERS else None


def _root(ws: Workspace, file: RunFile) -> Path:
    """The folder that the run's names count from."""
    roots = [*ws.roots, *ws.good]
    number = int(file.run[1:]) - 1
    root = roots[number] if number < len(roots) else file.path.parent
    return root.absolute() if root.is_dir() else root.absolute().parent


def _is_state(file: RunFile) -> bool:
    """Whether the first bytes are those of a saved state; an empty file may have wanted to be one."""
    if file.size == 0:
        return True
    try:
        with file.path.open("rb") as f:
            head = f.read(9)
    except OSError:
        return True
    return head.startswith((_ZIP, _PICKLE)) or head[8:9] == b"{" or not any(head)


def _marks(key: str, file: RunFile) -> Iterator[str]:
    """Names on the way to a file that say the save never ended, from the save's own folder on."""
    path = PurePosixPath(file.name)
    for name in (
        [PurePosixPath(key).name, *path.relative_to(key).parts] if path.is_relative_to(key) else path.parts[-1:]
    ):
        if is_unfinished(name):
            yield name


def _marker_files(ws: Workspace, made: list[Checkpoint], keys: set[str]) -> None:
    """NeMo leaves `<name>-unfinished` beside a save until it is complete; others write `<file>.tmp` beside it."""
    for file in ws.files:
        base = file.path.name
        if not is_unfinished(base) or file.name in keys:
            continue
        stem = base.rsplit("-", 1)[0] if base.endswith("unfinished") else base.rsplit(".", 1)[0]
        folder = str(PurePosixPath(file.name).parent)
        for checkpoint in made:
            own = PurePosixPath(checkpoint.name)
            beside = str(own.parent) == folder and stem in (own.name, own.stem)
            if (beside or file.name.startswith(f"{checkpoint.name}/")) and base not in checkpoint.marks:
                checkpoint.marks.append(base)


def _checkpoint(ws: Workspace, run: str, key: str, files: dict[str, list[RunFile]], marks: list[str]) -> Checkpoint:
    first = next(f for found in files.values() for f in found)
    path = PurePosixPath(key)
    whole = _root(ws, first).name if key == "." or "*" in path.name else str(path)
    if "*" in path.name:
        whole = min((f.name for found in files.values() for f in found), key=lambda n: (part_of(n) != "model", n))
    held = {part: found for part, found in files.items() if part != "beside"}
    own = whole if key == "." else path.name.replace("*", "step")
    numbered = (step_of_folder(own) if "*" not in path.name else None) or step_of_file(own)
    step = numbered[1] if numbered and numbered[0] in _COUNTS_STEPS and numbered[1] >= 0 else None
    if step is None:
        step = _told_step(ws, held)
    return Checkpoint(
        whole,
        _framework(key, held),
        step,
        held,
        max((_written(f.path) for found in held.values() for f in found), default=0.0),
        str(path.parent) if key != "." else "",
        run,
        "".join("#" if c.isdigit() else c for c in path.name),
        marks,
        first.good,
    )


def _told_step(ws: Workspace, files: dict[str, list[RunFile]]) -> int | None:
    for file in files.get("trainer_state", []):
        try:
            step = json.loads(ws.read(file, _SMALL)).get("global_step")
        except (ValueError, RecursionError, AttributeError):
            continue
        if isinstance(step, int) and 0 <= step < 1 << 53:
            return step
    return None


def _framework(key: str, files: dict[str, list[RunFile]]) -> str:
    names = {f.path.name for found in files.values() for f in found}
    suffixes = {f.path.suffix.lower() for found in files.values() for f in found}
    if any(n.endswith(("model_states.pt", "optim_states.pt")) for n in names):
        return "deepspeed"
    if any(n.startswith("model_world_size_") for n in names):
        return "verl"
    if names & {"model_optim_rng.pt", "model_rng.pt"}:
        return "megatron"
    if ".distcp" in suffixes or ".metadata" in names:
        return (
            "megatron_dist" if names & {"common.pt", "metadata.json"} else "hf" if "trainer_state" in files else "dcp"
        )
    if any(n.startswith("adapter_model.") or n == "adapter_config.json" for n in names):
        return "peft"
    if key.endswith(".ckpt") or ".ckpt" in suffixes:
        return "lightning"
    if "trainer_state" in files or "training_args.bin" in names or ("config.json" in names and "model" in files):
        return "hf"
    if any(n.startswith("random_states_") for n in names) or names & {"optimizer.bin", "sampler.bin"}:
        return "accelerate"
    return "torch"


def _written(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
