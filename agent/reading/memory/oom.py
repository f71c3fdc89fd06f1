"""What an out-of-memory line says: which memory, how much was asked for, what was free, and in which phase.

Facts about the wordings: PyTorch 1.x puts the numbers into one bracket, 2.x into sentences (with the typo
`capacty` in 2.1), CUDA and HIP alike; JAX prints RESOURCE_EXHAUSTED with bytes; cuBLAS, NCCL and the CUDA
runtime give no numbers; vLLM and SGLang refuse at start with sentences of their own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ..scan.anchors import patterns

UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40, "p": 1 << 50}
SIZE = r"(\d[\d,]*(?:\.\d+)?)\s?([KMGTkmgt]?i?[Bb](?:ytes?)?)\b"

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
        "asked_of": r"\(SIZE KV cache is needed|Requested\s{0,20}: SIZE",
        "capacity": r"(?:[GNX]PU \d+; SIZE total capacity)",
        "limit": r"SIZE allowed;|max allowed: SIZE",
        "free_of": r"available KV cache memory \(SIZE",
        "capacity_of": r"total capac(?:i)?ty of SIZE",
        "free": r"(?:of which SIZE is free|; SIZE free)",
        "allocated": r"(?:SIZE already allocated|allocated memory SIZE is allocated by|MPS allocated: SIZE)",
        "reserved": r"SIZE (?:reserved in total|cached)",
        "reserved_unallocated": r"SIZE is reserved by PyTorch but unallocated",
        "in_use": r"this process has SIZE memory in use",
        "other_process": r"Process \d+ has SIZE memory in use",
        "private_pools": r"SIZE allocated in private pools",
    }.items()
}
PLAIN_BYTES = re.compile(r"allocat(?:e|ing) (\d[\d,]{0,24})\b(?! ?[KMGT]i?B)|allocation of (\d+) bytes", re.IGNORECASE)
HBM = re.compile(r"Used (\d+(?:\.\d+)?)G of (\d+(?:\.\d+)?)G hbm")
OWN_EXTRA = 4 << 30  # what a process holds beside PyTorch's reserve: context, libraries, communicators
# what nobody accounts for is another process's from here on: (bytes, share of the card), by what is known of our own
UNOWNED = {"in_use": (2 << 30, 0.08), "reserved": (3 << 30, 0.2)}
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
    return int(float(number.replace(",", "")) * UNITS.get(unit[:1].lower(), 1))


def parse(text: str) -> OutOfMemory | None:
    """Read one line; None when it is no out-of-memory failure (advice and counters are not)."""
    for kind, pattern in patterns("oom_kinds"):
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
            found.bytes.setdefault(name.removesuffix("_of"), size_in_bytes(groups[0], groups[1]))
    if found.kind in {"cpu", "cuda"} and "asked" not in found.bytes and (m := PLAIN_BYTES.search(text)):
        found.bytes["asked"] = int((m[1] or m[2]).replace(",", ""))
    if m := HBM.search(text):
        found.bytes["in_use"], found.bytes["capacity"] = (int(float(g) * (1 << 30)) for g in m.groups())
    if m := FREE_ON_START.search(text):
        found.bytes["free"], found.bytes["capacity"] = (int(float(g) * (1 << 30)) for g in m.groups())
    b = found.bytes
    if "reserved" in b and "allocated" in b:
        b.setdefault("reserved_unallocated", max(0, b["reserved"] - b["allocated"]))
    elif "reserved_unallocated" in b and "allocated" in b:
        b["reserved"] = b["allocated"] + b["reserved_unallocated"]
    if "other_process" in b:
        _others(text, found)
    if found.kind in {"cuda", "hip"} and "other_process" not in b and (rest := _unowned(b)):
        b["other_process"] = rest
    if m := DEVICE.search(text):
        found.device = int(m[1])
    return found


def _others(text: str, found: OutOfMemory) -> None:
    """Processes beside this one. In a container the driver's pid is not ours, so that our own memory is listed as
    another process's: the one that holds what PyTorch reserved, and little more, is this process.
    """
    b = found.bytes
    sizes = [size_in_bytes(*m.groups()) for m in FIELDS["other_process"].finditer(text)]
    pids = [int(m[1]) for m in OTHER_PID.finditer(text)]
    if "in_use" not in b and (own := b.get("reserved", 0)):
        near = [n for n in sizes if own * 0.99 <= n <= own + max(OWN_EXTRA, own // 10)]
        if near:
            at = sizes.index(min(near))
            b["in_use"] = sizes.pop(at)
            pids = pids[:at] + pids[at + 1 :] if at < len(pids) else pids
    found.other_pids = pids
    if sizes:
        b["other_process"] = sum(sizes)
    else:
        del b["other_process"]


def _unowned(b: dict[str, int]) -> int:
    """Bytes in use that are not this process's: PyTorch before 2.0 names no process, but its sums leave a gap."""
    own = next((name for name in UNOWNED if name in b), "")
    if not own or "capacity" not in b or "free" not in b or "limit" in b:
        return 0
    rest = b["capacity"] - b["free"] - b[own]
    least, share = UNOWNED[own]
    return rest if rest > max(least, share * b["capacity"]) else 0


ENCLOSING = {
    "eval",
    "checkpoint_save",
    "generate",
    "optimizer_step",
    "backward",
    "wake_up",
}  # also tell from outside
OF_THE_OUTPUT = {"logits", "loss"}  # what is made of a model's output
FRAME = re.compile(r'File "([^"]{1,400})", line (\d+)(?:, in (\S{1,200}))?')
NOTEBOOK_FRAME = re.compile(r"^(\S{0,300}?(?:\.py|>)) in (\w+)\(")
ARROW = re.compile(r"^\s*-{1,8}>\s*\d+\s")
LIBRARY = re.compile(r"site-packages|dist-packages|/lib/python\d|<frozen|<string>")
PREFIX = re.compile(r"^\s*(?:\[[^\]]{1,24}\]:?|\([^)]{1,60}\)|\d{1,5}:)(?=\s)")
ENDED = re.compile(r"[\w.]{1,120}(?:Error|Exception|Exit|Interrupt)\b(?::|$)")
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
    last, foreign = at, 0
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
            foreign = 0
        elif ARROW.match(text):
            frames.append(Frame(i, _notebook_path(texts, i), "", re.sub(ARROW, "", text).strip()))
            foreign = 0
        elif (bare := PREFIX.sub("", text))[:1].strip() and not NOTEBOOK_FRAME.match(text):
            foreign += 1  # not a line of a traceback: a few may stand between, a finished exception may not
            if foreign > 6 or ENDED.match(bare):
                break
        last = i
    return frames[::-1]


def _notebook_path(texts: list[str], i: int) -> str:
    for j in range(i - 1, max(-1, i - 12), -1):
        if m := NOTEBOOK_FRAME.match(texts[j]):
            return f"{m[1]} in {m[2]}("
    return ""


def telling(frames: list[Frame]) -> list[tuple[Frame, str]]:
    """`(frame, phase)` of the frames that tell a phase, innermost first, up to three of a phase.

    A frame told by its code comes before one told only by its path or function. `loss(model(x))` is no loss where the
    model's own `forward` failed inside.
    """
    by_phase: dict[str, list[tuple[bool, Frame]]] = {}
    in_model = False
    for frame in reversed(frames):
        in_model = in_model or (frame.function == "forward" and not frame.library)
        around_model = in_model and frame.function != "forward"
        for phase, pattern in patterns("phases", ignore_case=False):
            if pattern.search(frame.text):
                if around_model and phase in OF_THE_OUTPUT:
                    continue
                by_phase.setdefault(phase, []).append((not pattern.search(frame.code), frame))
                break
    return [
        (frame, phase)
        for phase, found in by_phase.items()
        for _, frame in sorted(found, key=lambda x: (x[0], x[1].library and not x[0]))[:3]
    ]


STEP_PHASES = {"forward", "backward", "attention", "logits", "loss"}
OWN_TENSOR = 16 << 20  # bytes; where less is refused, something else has filled the memory


def kind_of(found: OutOfMemory, frames: list[Frame]) -> str:
    """Which memory ran out; `cpu_step` where a tensor of a step that computes on the processor was refused.

    That is the case of a full device with the host as the device: a batch, a length or a layer asks for too much.
    """
    refused = found.kind == "cpu" and found.bytes.get("asked", 0) >= OWN_TENSOR
    return "cpu_step" if refused and STEP_PHASES & set(phases(frames)) else found.kind


def phases(frames: list[Frame]) -> list[str]:
    """The phase of the innermost telling frame, and phases of enclosing frames that tell as well."""
    told = [phase for _, phase in telling(frames)]
    specific = [p for p in told if p not in {"attention", "forward", "loss"}]
    first = told[:1] if not specific else specific[:1]
    return list(dict.fromkeys([*first, *(p for p in told if p in ENCLOSING)]))


# A step the run had reached, as the usual loggers print it.
STEPS = (
    re.compile(r"(?:\bglobal_?step|\bstep|\biteration|\biter)\b['\"]?\s?[:=/#]?\s{0,12}(\d{1,9})\b", re.IGNORECASE),
    # `steps 60` alone is what was asked for
    re.compile(r"\bsteps\b['\"]?\s?[:=]?\s{0,12}(\d{1,9})\s?/\s?\d", re.IGNORECASE),
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
