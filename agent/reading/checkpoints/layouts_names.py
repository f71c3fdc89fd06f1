"""What names of files and folders say: the part a file plays in a checkpoint, the step, an unfinished save."""

from __future__ import annotations

import re
from pathlib import PurePath

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
