"""NVIDIA's kernel messages: Xid codes with what they mean, and cards that left the bus without a code."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ..reading import kernel_log as kl
from ..reading.anchor_lines import Hit, anchored
from ..reading.anchor_windows import around
from ..reading.files import Line
from ..reading.hearsay import is_hearsay
from ..reading.kernel_now import KernelLog, kernel_log
from ..tool import clean, failed, finding, not_applicable, tool
from ..types import Evidence, ToolResult
from ..workspace import Workspace

EACH = 4  # lines shown of one code
ABOVE = 3  # lines above a verdict in which its card may stand
ABOUT_GPUS = re.compile(r"NVRM|nvidia|xid", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Sighting:
    """A kernel line about a GPU, in a file or in what the kernel says now.

    `cite` makes evidence of a line of the same source; `above` gives the lines before it, the nearest first.
    """

    line: Line
    text: str
    cite: Callable[[Line, str, Any], Evidence]
    above: Callable[[], list[Line]]


@tool(
    emits=("gpu.xid", "gpu.xid_action", "gpu.xid_culprit", "gpu.xid_blame", "gpu.xid_investigate", "gpu.fell_off_bus",
           "gpu.xid_nonfatal", "gpu.sxid", "gpu.sxid_fatal", "gpu.none_found", "gpu.probe_failed", "gpu.gsp"),
    recall=True,
    live=True,
)  # fmt: skip
def xid_errors(ws: Workspace) -> ToolResult:
    """List NVIDIA Xid errors from the kernel log, with meaning, immediate action and what to look into afterwards.

    Use when a rank vanished, a GPU is missing, CUDA calls fail with unspecified errors, or a node is suspected.
    Reads kernel logs among the run's files, and this machine's own (journal, dmesg) where the run is its own: there
    only what is near the run's time. Finds cards that fell off the bus also where no Xid was printed, names the code
    that came first, and says when a kernel log was read and holds none.
    """
    hits = [h for h in anchored(ws).of("xid") if not is_hearsay(h.text, lambda h=h: kl.begin(h.text))]
    now = kernel_log(ws) if ws.live else KernelLog()
    seen = [*(_recorded(ws, hit) for hit in hits), *_living(ws, now)]
    codes = [(s, x) for s in seen if (x := kl.xid_of(s.text)) and not kl.SEARCHED.search(s.text)]
    evidence = [*_codes(codes), *_off_the_bus(seen), *_other(seen)]
    read = _kernel_logs(hits) + ([" ".join(now.done.argv)] if now.done else [])
    if not codes and read:
        evidence += _none(seen, read)
    if any(e.key not in {"gpu.xid", "gpu.none_found"} or (e.kind != "absent" and e.key == "gpu.xid") for e in evidence):
        return finding(_summary(evidence), evidence, "\n".join(_told(e) for e in evidence))
    if evidence:
        older = f" ({now.older} older lines passed over)" if now.older else ""
        return clean(f"kernel log read, no Xid{older}", evidence)
    if now.why:
        return failed(f"the kernel log could not be read: {now.why}")
    return not_applicable("no kernel log among the run's files")


def _told(e: Evidence) -> str:
    return f"{f'{e.file}:{e.line}' if e.file else 'this machine'} {e.key} = {e.value}"


def _recorded(ws: Workspace, hit: Hit) -> Sighting:
    def cite(line: Line, key: str, value: Any) -> Evidence:
        host = {"host": found} if (found := _host(hit)) else {}
        return ws.cite(hit.file, line, key, value, rank=hit.rank, **host)

    return Sighting(hit.line, hit.text, cite, lambda: around(ws, hit, before=600, after=0)[::-1][1 : ABOVE + 1])


def _living(ws: Workspace, log: KernelLog) -> Iterator[Sighting]:
    done = log.done
    if done is None:
        return
    for i, line in enumerate(log.lines):
        if ABOUT_GPUS.search(line.text):
            yield Sighting(
                line,
                line.text,
                lambda at, key, value: ws.answered(done, key, value, at.text),
                lambda i=i: log.lines[max(0, i - ABOVE) : i][::-1],
            )


def _codes(codes: list[tuple[Sighting, kl.Xid]]) -> Iterator[Evidence]:
    shown: Counter[int] = Counter()
    for s, x in codes:
        shown[x.code] += 1
        if shown[x.code] > EACH:
            continue
        yield s.cite(s.line, "gpu.xid", x.code)
        if x.nonfatal:
            yield s.cite(s.line, "gpu.xid_nonfatal", x.code)
        elif shown[x.code] == 1 and x.known:
            yield s.cite(s.line, "gpu.xid_action", f"{x.code} {x.known['name']}: {x.known['action']}")
        if m := kl.RECOVERY.search(s.text):
            yield s.cite(s.line, "gpu.xid_action", m[1].strip())
    first = kl.culprit([x for _, x in codes])
    if first:
        s = next(s for s, x in codes if x is first)
        yield s.cite(s.line, "gpu.xid_culprit", first.code)
        if first.known:
            yield s.cite(s.line, "gpu.xid_blame", first.known["blame"])
            yield s.cite(s.line, "gpu.xid_investigate", first.known["investigate"])


def _host(hit: Hit) -> str | None:
    """Journal lines carry the host between time and source: `Oct 18 08:02:11 node23 kernel: ...`."""
    words = hit.text.split(maxsplit=6)
    at = next((n for n, word in enumerate(words[:6]) if word.startswith("kernel")), 0)
    return words[at - 1] if at and re.search(r"\d:\d\d", words[at - 2 if at > 1 else 0]) else None


def _off_the_bus(seen: list[Sighting]) -> Iterator[Evidence]:
    """The one-line form, and the older one whose card stands in a line above the verdict."""
    for s in [s for s in seen if kl.OFF_THE_BUS.search(s.text)][:EACH]:
        card = kl.CARD.search(s.text) or kl.XID.search(s.text)
        line = s.line
        for above in s.above() if card is None else ():
            if card := kl.CARD.search(above.text):
                line = above
                break
        pci = next((g for g in card.groups()[:2] if g), "").strip(":.") if card else ""
        yield s.cite(s.line, "gpu.fell_off_bus", pci or True)
        if line is not s.line:
            yield s.cite(line, "gpu.fell_off_bus", pci or True)


def _other(seen: list[Sighting]) -> Iterator[Evidence]:
    shown: Counter[str] = Counter()
    for s in seen:
        for key, value in _states(s.text):
            shown[key] += 1
            if shown[key] <= EACH:
                yield s.cite(s.line, key, value)


def _states(text: str) -> Iterator[tuple[str, Any]]:
    if m := kl.SXID.search(text):
        yield "gpu.sxid", int(m["code"])
        if re.match(r",?\s*fatal\b", text[m.end() :], re.IGNORECASE):
            yield "gpu.sxid_fatal", int(m["code"])
    if "probe routine failed" in text or ("probe of" in text and "failed" in text):
        yield "gpu.probe_failed", True
    if "NVRM" in text and (("GSP" in text and "imeout" in text) or "RmInitAdapter failed" in text):
        yield "gpu.gsp", True


def _kernel_logs(hits: list[Hit]) -> list[str]:
    return list(dict.fromkeys(h.file.name for h in hits if kl.KERNEL.search(h.text) or kl.SEARCHED.search(h.text)))


def _none(seen: list[Sighting], read: list[str]) -> Iterator[Evidence]:
    yield Evidence(key="gpu.xid", value=None, kind="absent", searched=read, text="no Xid in the kernel log")
    for s in seen:
        if kl.SEARCHED.search(s.text):
            yield s.cite(s.line, "gpu.none_found", True)
            return


def _summary(evidence: list[Evidence]) -> str:
    by_key = {e.key: e for e in reversed(evidence)}
    if e := by_key.get("gpu.fell_off_bus"):
        return f"GPU {e.value if e.value is not True else ''} fell off the bus"
    if e := by_key.get("gpu.xid_action"):
        return f"Xid {e.value}"
    return f"{len(evidence)} kernel line(s) about the GPUs"
