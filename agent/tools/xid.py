"""NVIDIA's kernel messages: Xid codes with what they mean, and cards that left the bus without a code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ..reading import kernel_log as kl
from ..reading.anchor_lines import Hit, anchored
from ..reading.anchor_windows import around
from ..tool import clean, finding, not_applicable, tool
from ..types import Evidence, ToolResult
from ..workspace import Workspace

EACH = 4  # lines shown of one code


@tool(
    emits=("gpu.xid", "gpu.xid_action", "gpu.xid_culprit", "gpu.xid_blame", "gpu.fell_off_bus", "gpu.sxid",
           "gpu.none_found", "gpu.probe_failed", "gpu.gsp"),
    recall=True,
)  # fmt: skip
def xid_errors(ws: Workspace) -> ToolResult:
    """List NVIDIA Xid errors from kernel logs among the run's files, with meaning and immediate action.

    Use when a rank vanished, a GPU is missing, CUDA calls fail with unspecified errors, or a node is suspected.
    Finds cards that fell off the bus also where no Xid was printed, names the code that came first, and says
    when a kernel log was read and holds none.
    """
    found = anchored(ws)
    hits = found.of("xid")
    codes = [(hit, x) for hit in hits if (x := kl.xid_of(hit.text)) and not kl.SEARCHED.search(hit.text)]
    evidence = [*_codes(ws, codes), *_off_the_bus(ws, hits), *_other(ws, hits)]
    read = _kernel_logs(ws, hits)
    if not codes and read:
        evidence += _none(ws, hits, read)
    if any(e.key not in {"gpu.xid", "gpu.none_found"} or (e.kind != "absent" and e.key == "gpu.xid") for e in evidence):
        return finding(
            _summary(evidence), evidence, "\n".join(f"{e.file}:{e.line} {e.key} = {e.value}" for e in evidence)
        )
    if evidence:
        return clean("kernel log read, no Xid", evidence)
    return not_applicable("no kernel log among the run's files")


def _codes(ws: Workspace, codes: list[tuple[Hit, kl.Xid]]) -> Iterator[Evidence]:
    shown: Counter[int] = Counter()
    for hit, x in codes:
        shown[x.code] += 1
        if shown[x.code] > EACH:
            continue
        where = {"rank": hit.rank, "host": _host(hit)}
        yield ws.cite(hit.file, hit.line, "gpu.xid", x.code, **where)
        if shown[x.code] == 1 and x.known:
            yield ws.cite(
                hit.file, hit.line, "gpu.xid_action", f"{x.code} {x.known['name']}: {x.known['action']}", **where
            )
        if m := kl.RECOVERY.search(hit.text):
            yield ws.cite(hit.file, hit.line, "gpu.xid_action", m[1].strip(), **where)
    first = kl.culprit([x for _, x in codes])
    if first:
        hit = next(h for h, x in codes if x is first)
        yield ws.cite(hit.file, hit.line, "gpu.xid_culprit", first.code)
        if first.known:
            yield ws.cite(hit.file, hit.line, "gpu.xid_blame", first.known["blame"])


def _host(hit: Hit) -> str | None:
    """journal lines carry the host after the time: `Oct 18 08:02:11 node23 kernel: ...`."""
    words = hit.text.split()
    return words[3] if len(words) > 4 and words[4].startswith("kernel") else None


def _off_the_bus(ws: Workspace, hits: list[Hit]) -> Iterator[Evidence]:
    """The one-line form, and the older one whose card stands in a line above the verdict."""
    for hit in [h for h in hits if kl.OFF_THE_BUS.search(h.text)][:EACH]:
        card = kl.CARD.search(hit.text) or kl.XID.search(hit.text)
        line = hit.line
        if card is None:
            for above in around(ws, hit, before=600, after=0)[::-1][1:4]:
                if card := kl.CARD.search(above.text):
                    line = above
                    break
        pci = next((g for g in card.groups()[:2] if g), "").strip(":.") if card else ""
        yield ws.cite(hit.file, hit.line, "gpu.fell_off_bus", pci or True, rank=hit.rank)
        if line is not hit.line:
            yield ws.cite(hit.file, line, "gpu.fell_off_bus", pci or True, rank=hit.rank)


def _other(ws: Workspace, hits: list[Hit]) -> Iterator[Evidence]:
    shown: Counter[str] = Counter()
    for hit in hits:
        text = hit.text
        for key, value in (
            ("gpu.sxid", int(m["code"]) if (m := kl.SXID.search(text)) else None),
            (
                "gpu.probe_failed",
                True if "probe routine failed" in text or ("probe of" in text and "failed" in text) else None,
            ),
            (
                "gpu.gsp",
                True
                if "NVRM" in text and (("GSP" in text and "imeout" in text) or "RmInitAdapter failed" in text)
                else None,
            ),
        ):
            if value is not None and (shown.update([key]) or shown[key] <= EACH):
                yield ws.cite(hit.file, hit.line, key, value, rank=hit.rank)


def _kernel_logs(ws: Workspace, hits: list[Hit]) -> list[str]:
    return list(dict.fromkeys(h.file.name for h in hits if kl.KERNEL.search(h.text) or kl.SEARCHED.search(h.text)))


def _none(ws: Workspace, hits: list[Hit], read: list[str]) -> Iterator[Evidence]:
    yield Evidence(key="gpu.xid", value=None, kind="absent", searched=read, text="no Xid in the kernel log")
    for hit in hits:
        if kl.SEARCHED.search(hit.text):
            yield ws.cite(hit.file, hit.line, "gpu.none_found", True)
            return


def _summary(evidence: list[Evidence]) -> str:
    by_key = {e.key: e for e in reversed(evidence)}
    if e := by_key.get("gpu.fell_off_bus"):
        return f"GPU {e.value if e.value is not True else ''} fell off the bus"
    if e := by_key.get("gpu.xid_action"):
        return f"Xid {e.value}"
    return f"{len(evidence)} kernel line(s) about the GPUs"
