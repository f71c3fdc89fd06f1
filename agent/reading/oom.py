"""What an out-of-memory line says: which memory, how much was asked for, what was free, and in which phase.

Facts about the wordings: PyTorch 1.x puts the numbers into one bracket, 2.x into sentences (with the typo
`capacty` in 2.1), CUDA and HIP alike; JAX prints RESOURCE_EXHAUSTED with bytes; cuBLAS, NCCL and the CUDA
runtime give no numbers; vLLM and SGLang refuse at start with sentences of their own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

UNITS = {"": 1, "b": 1, "bytes": 1, "byte": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
SIZE = r"(\d[\d,]*(?:\.\d+)?)\s?([KMGTkmgt]?i?[Bb](?:ytes?)?)\b"

# (kind, pattern): the first that matches names the memory that ran out
KINDS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (kind, re.compile(pattern, re.IGNORECASE))
    for kind, pattern in (
        (
            "host",
            r"OutOfMemoryError: (?:Task|Actor)\b.{0,60}(?:killed|low on memory)|killed due to memory pressure",
        ),
        ("host", r"killed due to the node running low on memory"),
        (
            "host",
            r"invoked oom-killer|\boom-kill:|out of memory: kill(?:ed)? process|memory cgroup out of memory",
        ),
        (
            "host",
            r"detected \d+ oom[_-]kill event|\bOOMKilled\b|task[s]? [\d,-]+: Out Of Memory|\bOUT_OF_MEMORY\b(?!_)",
        ),
        ("host", r"exceeded memory limit|\bkilled process \d+.{0,80}anon-rss"),
        (
            "shm",
            r"unexpected bus error encountered in worker|insufficient shared memory|killed by signal: bus error",
        ),
        ("shm", r"error while creating shared memory segment|unable to (?:write to|mmap).{0,60}</torch_"),
        (
            "shm",
            r"no space left on device.{0,40}/dev/shm|/dev/shm.{0,80}no space left|shared memory.{0,60}no space left",
        ),
        ("cpu", r"DefaultCPUAllocator.{0,40}(?:can't allocate|not enough) memory|std::bad_alloc"),
        ("cpu", r"_?ArrayMemoryError\b|unable to allocate \S+ \S?i?B for an array|(?:^|[\s.:])MemoryError\b"),
        ("cpu", r"Errno 12\] Cannot allocate memory|Cannot allocate memory \(12\)|os error 12\b"),
        (
            "hip",
            r"\bHIP out of memory|hipErrorOutOfMemory|HIP error: out of memory|HIPBLAS_STATUS_ALLOC_FAILED",
        ),
        (
            "cuda",
            r"(?:CUDA|XPU|MPS backend|NPU) out of memory|CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation",
        ),
        ("cuda", r"cuda (?:runtime )?error.{0,12}: out of memory|cuda failure\b.{0,10}out of memory"),
        ("cuda", r"(?:CUBLAS|CUDNN|CUSOLVER|CUSPARSE|CUFFT)_STATUS_ALLOC_FAILED|OutOfMemoryError\b.{0,4}: "),
        ("cuda", r"RESOURCE_EXHAUSTED|OOM when allocating tensor|NCCL.{0,60}out of memory"),
        ("cuda", r"no available memory for the cache blocks|larger than the available KV cache memory"),
        ("cuda", r"less than desired GPU memory utilization|(?:prefill|decode) out of memory\b(?! happened)"),
        ("cuda", r"not enough memory\. please try to increase --mem-fraction|Tried to allocate \S+ \S?i?B"),
    )
)
# words that make a line advice, a counter or a plan rather than a failure
ADVICE = re.compile(
    r"\b(?:may|might|could|can|would|avoid|avoids|prevent|prevents|risk|in case of|if you|to reduce|potential(?:ly)?|"
    r"num_ooms|OOMs:|handle|handling|unlikely|likely to)\b.{0,80}$",
    re.IGNORECASE,
)
FIELDS: dict[str, re.Pattern[str]] = {
    name: re.compile(pattern.replace("SIZE", SIZE), re.IGNORECASE)
    for name, pattern in {
        "asked": r"(?:tried to allocate|unable to allocate|trying to allocate|you tried to allocate) SIZE",
        "capacity": r"(?:GPU \d+; SIZE total capacity)",
        "capacity_of": r"total capac(?:i)?ty of SIZE",
        "free": r"(?:of which SIZE is free|; SIZE free)",
        "allocated": r"(?:SIZE already allocated|allocated memory SIZE is allocated by)",
        "reserved": r"SIZE (?:reserved in total|cached)",
        "reserved_unallocated": r"SIZE is reserved by PyTorch but unallocated",
        "in_use": r"this process has SIZE memory in use",
        "other_process": r"Process \d+ has SIZE memory in use",
        "private_pools": r"SIZE allocated in private pools",
    }.items()
}
OTHER_PID = re.compile(r"Process (\d+) has ")
DEVICE = re.compile(r"\bGPU (\d{1,3})\b")
FREE_ON_START = re.compile(r"Free memory on device \S*?\s?\(([\d.]+)/([\d.]+) GiB\)", re.IGNORECASE)


@dataclass(slots=True)
class OutOfMemory:
    """One message. Sizes are bytes; a number the message does not give is absent from `bytes`."""

    kind: str
    bytes: dict[str, int] = field(default_factory=dict)
    device: int | None = None
    other_pids: list[int] = field(default_factory=list)


def size_in_bytes(number: str, unit: str) -> int:
    """`12.94`, `GiB` -> bytes; decimal units are read as binary ones, as PyTorch prints them."""
    key = unit.lower().replace("ib", "").replace("bytes", "").replace("byte", "").replace("b", "")
    return int(float(number.replace(",", "")) * UNITS[key])


def parse(text: str) -> OutOfMemory | None:
    """Read one line; None when it is no out-of-memory failure (advice and counters are not)."""
    for kind, pattern in KINDS:
        if (m := pattern.search(text)) is None:
            continue
        if kind in {"cuda", "hip"} and "allocate" not in text[m.end() :] and ADVICE.search(text[: m.start()]):
            return None
        return _numbers(text, OutOfMemory(kind))
    return None


def _numbers(text: str, found: OutOfMemory) -> OutOfMemory:
    for name, pattern in FIELDS.items():
        if m := pattern.search(text):
            groups = [g for g in m.groups() if g is not None]
            found.bytes[name.removesuffix("_of")] = size_in_bytes(groups[0], groups[1])
    if found.kind in {"cpu", "cuda"} and "asked" not in found.bytes and (m := re.search(r"allocate (\d+)\b", text)):
        found.bytes["asked"] = int(m[1])
    if m := FREE_ON_START.search(text):
        found.bytes["free"], found.bytes["capacity"] = (int(float(g) * (1 << 30)) for g in m.groups())
    b = found.bytes
    if "reserved" in b and "allocated" in b:
        b.setdefault("reserved_unallocated", max(0, b["reserved"] - b["allocated"]))
    elif "reserved_unallocated" in b and "allocated" in b:
        b["reserved"] = b["allocated"] + b["reserved_unallocated"]
    if "other_process" in b:
        b["other_process"] = sum(size_in_bytes(*m.groups()) for m in FIELDS["other_process"].finditer(text))
    if m := DEVICE.search(text):
        found.device = int(m[1])
    found.other_pids = [int(m[1]) for m in OTHER_PID.finditer(text)]
    return found


# Frames tell the phase. Read from the innermost frame outwards, the first telling one wins.
PHASES: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (phase, re.compile(pattern))
    for phase, pattern in (
        ("wake_up", r"\bwake_up\b|resume_memory_occupation|onload_|create_and_map|cumem"),
        (
            "optimizer_step",
            r"exp_avg|_init_group|optimi[sz]er\w*\.step\(|optim\w*\.step\(|_multi_tensor_|initialize_optimizer_states"
            r"|_initialize_optimizer|torch/optim/(?!lr_)|fused_adam|cpu_adam|apex/optimizers|bitsandbytes/optim|master_weights",
        ),
        (
            "logits",
            r"cross_entropy|\blm_head\b|\blogits\b.{0,40}(?:float|=|\()|log_softmax|logsumexp|compute_log_?prob|selective_log_softmax"
            r"|gather_log_prob|logprobs_from_logits|entropy_from_logits|vocab_parallel",
        ),
        (
            "eval",
            r"nested_concat|preds_host|all_preds|nested_pad_and_concat|torch_pad_and_concatenate|gather_for_metrics"
            r"|logits_host|all_logits",
        ),
        (
            "checkpoint_save",
            r"save_checkpoint|save_pretrained|_save_model|torch\.save|get_state_dict|get_model_state_dict|"
            r"_gather_16bit|consolidate|full_tensor\(\)|state_dict_type|_full_post_state_dict|save_model\b|save_state",
        ),
        ("merge", r"merge_and_unload|merge_adapter|get_delta_weight"),
        (
            "checkpoint_load",
            r"load_checkpoint|load_state_dict|torch\.load|_load_from_state|load_state\b|resume_from_checkpoint",
        ),
        (
            "nccl_init",
            r"init_process_group|ncclCommInit|_verify_param|new_group\(|ProcessGroupNCCL.{0,40}init|sync_module_states",
        ),
        (
            "generate",
            r"\.generate\(|in generate\b|execute_model|engine_core|_prefill|sample_tokens|rollout\w*\(",
        ),
        (
            "kv_cache",
            r"profile_run|determine_num_available|initialize_kv_cache|init_memory_pool|capture_model|cuda_graph|_dummy_run",
        ),
        (
            "model_load",
            r"from_pretrained|load_model\b|load_weights|_load_pretrained|dispatch_model|set_module_tensor|\.to\(self\.?_?device\)"
            r"|model\s?=\s?\S{0,80}\.(?:to|cuda)\(|\.to\(device|\bbuild_model|model_provider|init_empty|_apply\(|get_model\b|prepare_model",
        ),
        (
            "backward",
            r"\.backward\(|_engine_run_backward|autograd\.backward|backward_step|autograd/function|autograd/graph",
        ),
        ("attention", r"scaled_dot_product|softmax\(|attn_weights|attention_scores|flash_attn|sdpa_"),
        ("loss", r"criterion\(|loss_fn\(|loss_func\(|nll_loss|mse_loss"),
        (
            "forward",
            r"in forward\b|self\.model\(|_call_impl|model\(\*|training_step|forward_step|\.forward\(",
        ),
        (
            "eval",
            r"evaluation_loop|evaluate\(|in evaluate\b|validation_step|prediction_step|eval_step|validate\(",
        ),
    )
)
ENCLOSING = {
    "eval",
    "checkpoint_save",
    "generate",
    "optimizer_step",
    "backward",
    "wake_up",
}  # also tell from outside
FRAME = re.compile(r'File "([^"]{1,400})", line (\d+)(?:, in (\S{1,200}))?')
NOTEBOOK_FRAME = re.compile(r"^(\S{0,300}?(?:\.py|>)) in (\w+)\(")
ARROW = re.compile(r"^\s*-{1,8}>\s*\d+\s")
LIBRARY = re.compile(r"site-packages|dist-packages|/lib/python\d|<frozen|<string>")
PREFIX = re.compile(r"^\s*(?:\[[^\]]{1,24}\]:?|\([^)]{1,60}\)|\d{1,5}:)(?=\s)")
START = re.compile(r"Traceback \(most recent call last\)|^-{20,}$")


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame as printed: `index` of the line that shows its code (else its File line) among the given lines."""

    index: int
    path: str
    function: str
    code: str

    @property
    def text(self) -> str:
        return f"{self.path} in {self.function}: {self.code}"

    @property
    def library(self) -> bool:
        return bool(LIBRARY.search(self.path))


def frames_above(texts: list[str], at: int, same_rank: list[bool]) -> list[Frame]:
    """Frames of the traceback that ends at line `at`, outermost first; lines of other ranks are passed over."""
    frames: list[Frame] = []
    last = at
    for i in range(at - 1, max(-1, at - 400), -1):
        if not same_rank[i]:
            continue
        text = texts[i]
        if START.search(text):
            break
        if m := FRAME.search(text):
            follows = last if last != at and not FRAME.search(texts[last]) else i
            code = PREFIX.sub("", texts[follows]).strip() if follows != i else ""
            frames.append(Frame(follows, m[1], m[3] or "", code))
        elif ARROW.match(text):
            frames.append(Frame(i, _notebook_path(texts, i), "", re.sub(ARROW, "", text).strip()))
        elif i == at - 1 and not text.strip():
            continue
        last = i
    return frames[::-1]


def _notebook_path(texts: list[str], i: int) -> str:
    for j in range(i - 1, max(-1, i - 12), -1):
        if m := NOTEBOOK_FRAME.match(texts[j]):
            return f"{m[1]} in {m[2]}("
    return ""


def telling(frames: list[Frame]) -> list[tuple[Frame, str]]:
    """`(frame, phase)` of the frames that tell a phase, innermost first, up to three of a phase.

    A frame told by its code comes before one told only by its path or function.
    """
    by_phase: dict[str, list[tuple[bool, Frame]]] = {}
    for frame in reversed(frames):
        for phase, pattern in PHASES:
            if pattern.search(frame.text):
                by_phase.setdefault(phase, []).append((not pattern.search(frame.code), frame))
                break
    return [
        (frame, phase)
        for phase, found in by_phase.items()
        for _, frame in sorted(found, key=lambda x: (x[0], x[1].library and not x[0]))[:3]
    ]


def phases(frames: list[Frame]) -> list[str]:
    """The phase of the innermost telling frame, and phases of enclosing frames that tell as well."""
    told = [phase for _, phase in telling(frames)]
    specific = [p for p in told if p not in {"attention", "forward", "loss"}]
    first = told[:1] if not specific else specific[:1]
    return list(dict.fromkeys([*first, *(p for p in told if p in ENCLOSING)]))


# A step the run had reached, as the usual loggers print it.
STEPS = (
    re.compile(r"(?:\bglobal_?step|\bsteps?|\biteration|\biter)\b['\"]?\s?[:=/#]?\s{0,12}(\d{1,9})\b", re.IGNORECASE),
    re.compile(r"\|\s*(\d{1,9})/\d{1,9} \["),
)


PLANNED = re.compile(
    r"\b(?:total|max|num|number|warm-?up|every|optimization|accumulation|save|eval|logging)[ _].{0,40}steps?\b", re.I
)


def step_of(text: str) -> int | None:
    """The last step a progress line names; lines about planned step counts name none."""
    if PLANNED.search(text):
        return None
    for pattern in STEPS:
        if found := pattern.findall(text):
            return int(found[-1])
    return None
