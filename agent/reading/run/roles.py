"""What part a file plays in a run: told by its name where the name is clear, by its first bytes where not."""

from __future__ import annotations

import re
from pathlib import PurePath

from .files import utf16

# ----------
# Telling a flight-recorder dump from other files by its first bytes, whatever it is called.


_PICKLE = re.compile(rb"\A\x80[\x02-\x05]")
_JSON = re.compile(rb"\A\s*\{")


def is_dump(head: bytes) -> bool:
    """Whether the first KiB of a file are those of a dump, pickled or JSON."""
    if _PICKLE.match(head):
        return b"pg_config" in head and (b"version" in head or b"entries" in head)
    if b'"traceEvents"' in head or b'"distributedInfo"' in head:
        return False  # torch.profiler names the process groups at the head of its traces
    if _JSON.match(head):
        return b'"collective_seq_id"' in head or (b'"pg_config"' in head and b'"ranks"' in head)
    return False


# ----------

ROLES = (
    "log", "config", "metrics", "checkpoint", "data", "code", "environment", "capture", "trace", "note", "record",
    "other",
)  # fmt: skip
OWN = re.compile(
    r"^doctor-report\.(json|md|html)$|^doctor\.toml$|^doctor-bundle-.*\.tar\.gz$|^\.doctor-(.*\.tmp$|bundle-)"
)
PAGE = b"<!DOCTYPE html>\n<!-- traindoctor report -->\n"  # how a page of doctor begins, whatever its file is called

_PACKED = re.compile(r"\.(gz|zst|bz2|xz)$")
_BY_SUFFIX: dict[str, str] = {
    **dict.fromkeys((".log", ".out", ".err", ".stdout", ".stderr"), "log"),
    **dict.fromkeys(
        (".yaml", ".yml", ".toml", ".ini", ".cfg", ".conf", ".sh", ".bash", ".zsh", ".sbatch", ".slurm"), "config"
    ),
    **dict.fromkeys(
        (".env", ".gin", ".hocon", ".properties", ".json5", ".jsonc", ".hydra", ".args", ".flags"), "config"
    ),
    **dict.fromkeys(
        (".py", ".ipynb", ".cu", ".cuh", ".cpp", ".cc", ".c", ".h", ".hpp", ".patch", ".diff", ".pyx"), "code"
    ),
    **dict.fromkeys((".pt", ".pth", ".bin", ".safetensors", ".ckpt", ".distcp", ".pkl", ".npz", ".npy"), "checkpoint"),
    **dict.fromkeys((".jinja", ".j2", ".html", ".css", ".js", ".ts", ".rs", ".go", ".java", ".svg"), "other"),
    **dict.fromkeys((".parquet", ".arrow", ".tar", ".idx", ".lmdb", ".tfrecord"), "data"),
}
_BY_NAME: list[tuple[re.Pattern[str], str]] = [
    (re.compile(p, re.IGNORECASE), role)
    for p, role in (
        (r"^events\.out\.tfevents|^run-\w+\.wandb$|^mlflow\.(db|sqlite)$", "metrics"),
        (r"^(trainer_state|wandb-summary|all_results|train_results|eval_results|progress|result)\.json$", "metrics"),
        (r"^(latest|latest_checkpointed_iteration\.txt|latest_universal|\.metadata)$", "checkpoint"),
        (r"\.(safetensors|bin|pt)\.index\.json$", "checkpoint"),
        (r"\.(pt|pth|ckpt)\.tar$", "checkpoint"),  # what torch.save wrote; the ending is a custom
        (r"^(error|stdout|stderr)\.json$", "log"),
        (r"\.pt\.trace\.json$", "trace"),
        (r"^(nccl_trace_rank_|comm_trace)|^(flight_?recorder|nccl_trace).*", "capture"),
        (
            r"(^|[-_.])(dmesg|journal(ctl)?|syslog|kern|messages|py-?spy|gdb|lldb|backtrace|nvidia-?smi|dcgmi?|ibstat"
            r"|sacct|scontrol|topo|xid|stacks?|flamegraph|faulthandler)([-_.]|$)",
            "capture",
        ),
        (r"^(requirements|constraints).*\.txt$|(^|[-_.])(pip|conda)[-_]?(list|freeze)", "environment"),
        (
            r"^(collect_env|environment|env|versions?|packages|system|sysinfo|platform)([-_.].*)?\.(txt|ya?ml|json|log)$",
            "environment",
        ),
        (r"^(uv|poetry|pixi|conda)?[-_.]?lock(file|_excerpt)?([-_.].*)?(\.txt)?$", "environment"),
        (r"^(dockerfile|makefile|containerfile)$", "config"),
        (r"^(merges|vocab)\.txt$", "data"),  # of a tokenizer
        (r"^(readme|changelog|contributing|license|security)\b|\.(mdx?|rst)$", "note"),
    )
]
# What `doctor run` keeps of an attempt. A record has its own reader, what the kernel had said before the start is not
# of this job, and of a list of processes nothing is the job's own words.
_SUPERVISED = re.compile(r"(?:^|/)doctor-run/try_\d{1,6}/(?P<inner>.+)$")
_SUPERVISED_ROLES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), role)
    for pattern, role in (
        (r"^start/dmesg\b|^(start|end|trouble)/(ps|processes)\b|^\.|\.(tmp|lock)$", "record"),
        (r"^(console|rank_\d+)\.log$|^(ranks/.*/)?error\.json$|^ranks/.*\.log$", "log"),
        (r"^(start|end|trouble)/(environment|packages|versions)\b", "environment"),
        (r"^(start|end|trouble|stacks)/", "capture"),
    )
)
_KEPT_BATCH = re.compile(r"(?:^|/)doctor-recorder/batch_[^/]*\.pt$")  # the recorder keeps: no model
_RECORD = re.compile(rb'"schema"\s*:\s*"traindoctor\.(?:run|nodes)/')
# What W&B's client notes about itself: its tracebacks are not the run's.
_WANDB_OWN = re.compile(r"(^|/)(offline-)?run-\d{8}_\d{6}-\w+/logs/debug[\w-]*\.log$")
_CSV_CAPTURE = re.compile(rb"utilization\.gpu|clocks[._]|ecc\.errors|pci\.bus_id|temperature\.gpu|memory\.used|JobID\|")
_CSV_DATA = re.compile(rb'^"?(text|prompt|instruction|question|content|messages|input|id,text|caption|url)"?,', re.I)
_SPLIT = re.compile(
    r"(?i)^(?:train(?:ing)?|test|val(?:id(?:ation)?)?|dev|hold_?out)(?:[_.\-]?(?:set|data|split|\d+))?\.[ct]sv$"
)
_MEASURES = re.compile(rb"(?i)loss|acc(?:uracy)?\b|_acc|epoch|\bsteps?\b|\biter|perplexity|\blr\b|time|memory|score")
_STEPS = re.compile(rb'"(global_?step|step|_step|iteration|iter|epoch|loss|train[_/]loss|reward)"\s*:\s*["\d-]')
_RECORDS = re.compile(rb'"(messages|conversations|prompt|text|instruction|content|completion|chosen|question)"\s*:')
_MLFLOW = re.compile(rb"\d{10,16} \S{1,32} -?\d+\r?\n")
_PACKAGE = re.compile(
    rb"(?m)^[ \t]*[A-Za-z][\w.\-]*(?:\[[\w,]+\])?(?:==\d|(?:[ \t]*:)?[ \t]*v?\d+\.\d)[\w.+\-]*[ \t]*\r?$"
)
_MACHINE = re.compile(
    rb"(?mi)^[ \t]*(torch|cuda|python|driver|nccl|gpus?|gpu \d+|os|kernel|ubuntu|transformers|accelerate|deepspeed|vllm"
    rb"|cudnn|platform|[\w.]+\.version|\w+ version)\b[^\n]{0,120}$"
)
_COMMAND = re.compile(
    rb"(?m)^(?:#!|(?:[A-Z_]+=\S+\s+)*(?:export |torchrun|accelerate launch|deepspeed|srun|sbatch|mpirun|swift "
    rb"|python3? |vllm serve|CUDA_VISIBLE_DEVICES=|tune |llamafactory-cli|axolotl|bash |nohup ))"
)
# What a program printed below the command that started it, as pasted from a terminal.
_OUTPUT = re.compile(
    rb"(?m)Traceback \(most|^(?!\s*#).{0,60}\b\w*(?:Error|Exception|Interrupt)\b:? |\d%\||\bit/s\b|\bs/it\b"
    rb"|^\{?['\"]loss['\"]|^\S{0,30}\d\d:\d\d:\d\d\S{0,8} .{0,40}\b(?:INFO|WARN(?:ING)?|ERROR)\b"
    rb"|\bout of memory\b|\bNCCL (?:INFO|WARN)\b"
)
_SCREEN = re.compile(
    rb"\A\s*(?:\$ ?(?:sudo )?(?:dmesg|journalctl|nvidia-smi|py-spy|gdb|lldb|df|free|ulimit|ibstat|ibv_|sacct|uname"
    rb"|cat /proc|lspci|systemctl|uptime|numactl|dcgmi|top|ps|ss|netstat|ip |ethtool|mount|kubectl describe)"
    rb"|\(lldb\)|\(gdb\)|Process \d+: |Thread (?:0x|\d+ \()|Current thread 0x|\+-{10,}|# utilization\.gpu)"
)
_KERNEL = re.compile(
    rb"(?m)^(?:\[ *\d+\.\d{6}\] |\w{3} [ \d]\d \d\d:\d\d:\d\d \S+ (?:kernel|systemd|nv-)|\[\w{3} \w{3} [ \d]\d )"
)
_STACK = re.compile(rb"(?m)^\s*[\w<>.]+ \([\w./<>\-]+:\d+\)\s*$")
EVENTS = re.compile(
    rb"Traceback \(most|\b(?:ERROR|WARNING|INFO)\b|\d\d:\d\d:\d\d|\b(?:loss|step|iteration|epoch)\b|it/s\]"
    rb"|\[rank\d|Error: "
)


def role_of(name: str, head: bytes) -> str:
    """The role of a file; empty for a page of doctor's own, which is no material.

    Args:
        name: its path inside the run.
        head: its first few KiB, unpacked.
    """
    if head.startswith(PAGE):
        return ""
    if is_dump(head):
        return "trace"
    if _WANDB_OWN.search(name):
        return "other"
    if _RECORD.search(head) and name.endswith(".json"):
        return "record"
    if (own := _SUPERVISED.search(name)) and (role := _supervised(own["inner"])):
        return role
    if _KEPT_BATCH.search(name):
        return "data"
    base = _PACKED.sub("", PurePath(name).name)
    if "metrics" in PurePath(name).parts[:-1] and _MLFLOW.match(head):
        return "metrics"
    for pattern, role in _BY_NAME:
        if pattern.search(base):
            return role
    suffix = PurePath(base).suffix.lower()
    if suffix in (".csv", ".tsv"):
        if _CSV_CAPTURE.search(head):
            return "capture"
        return "data" if _CSV_DATA.search(head) or _is_samples(base, head) else "metrics"
    if suffix in (".jsonl", ".ndjson"):
        return _json_lines(head)
    if suffix == ".json":
        return _json(head)
    if role := _BY_SUFFIX.get(suffix):
        return role
    if utf16(head) is None and b"\0" in head[:4096]:
        return "other"
    return _text(base, head)


def _supervised(inner: str) -> str:
    return next((role for pattern, role in _SUPERVISED_ROLES if pattern.search(inner)), "")


def _is_samples(base: str, head: bytes) -> bool:
    """A table named after a split of the data whose columns count no steps and measure nothing."""
    columns = head.split(b"\n", 1)[0]
    return (
        bool(_SPLIT.search(base)) and not _MEASURES.search(columns) and columns.count(b",") + columns.count(b"\t") > 0
    )


def _json_lines(head: bytes) -> str:
    return "metrics" if _STEPS.search(head) and not _RECORDS.search(head) else "data"


def _json(head: bytes) -> str:
    start = head.lstrip()[:1]
    if b'"log_history"' in head or b'"py_callstack"' in head:
        return "metrics" if b'"log_history"' in head else "log"
    if b'"frames"' in head and b'"thread' in head:
        return "capture"
    if b'"traceEvents"' in head or b'"deviceProperties"' in head or (b'"ph":' in head and b'"ts":' in head):
        return "trace"  # of a profiler: too large and too full of names for the readers of logs and settings
    if start == b"[" and _RECORDS.search(head):
        return "data"
    return "metrics" if start == b"[" and _STEPS.search(head) else "config"


def _text(base: str, head: bytes) -> str:
    """Text whose name says nothing: a screen capture, a list of versions, commands, samples, or a log."""
    lines = [line for line in head.splitlines() if line.strip()] or [b""]
    if (
        _SCREEN.search(head)
        or len(_KERNEL.findall(head)) * 3 > len(lines)
        or len(_STACK.findall(head)) * 2 > len(lines)
    ):
        return "capture"
    if re.search(r"launch|command|cmd|cli\b|script", base, re.IGNORECASE) and not EVENTS.search(head):
        return "config"
    versions = len(_PACKAGE.findall(head)) + len(_MACHINE.findall(head))
    if versions * 2 >= len(lines) and not EVENTS.search(head):
        return "environment"
    if (
        len(_COMMAND.findall(head))
        and len(lines) < 60
        and not _OUTPUT.search(head)
        and not head.lstrip().startswith(b"$ ")
    ):
        return "config"
    if re.search(r"dataset|sample|stats|batch_dump|prompt|completion|rendered", base, re.IGNORECASE):
        return "data"
    return "log" if _looks_text(head) else "other"


def _looks_text(head: bytes) -> bool:
    if utf16(head):
        return True
    odd = sum(head.count(bytes((c,))) for c in (*range(1, 7), *range(14, 27)))
    return not head or odd * 50 < len(head)
