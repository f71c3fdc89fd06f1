"""Which project a failure belongs to: told by the frames of its trace, where these make it clear."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...reading.logs.failures import failures
from .pieces import headline, telling, trace
from .report_copy import UNKNOWN, Paper, written

if TYPE_CHECKING:
    from ...core.report import Report
    from ...reading.logs.tracebacks import Failure
    from ...reading.run.workspace import Workspace

_INSTALLED = re.compile(r"(?:^|/)(?:site|dist)-packages/([A-Za-z_]\w*)")
# Package as it is imported -> repository that has its tracker.
TRACKERS = {
    "torch": "pytorch/pytorch", "torchtitan": "pytorch/torchtitan", "torchtune": "meta-pytorch/torchtune",
    "transformers": "huggingface/transformers", "accelerate": "huggingface/accelerate", "trl": "huggingface/trl",
    "peft": "huggingface/peft", "datasets": "huggingface/datasets", "diffusers": "huggingface/diffusers",
    "tokenizers": "huggingface/tokenizers", "safetensors": "huggingface/safetensors",
    "deepspeed": "deepspeedai/DeepSpeed", "megatron": "NVIDIA/Megatron-LM", "nemo": "NVIDIA/NeMo",
    "transformer_engine": "NVIDIA/TransformerEngine", "apex": "NVIDIA/apex",
    "lightning": "Lightning-AI/pytorch-lightning", "pytorch_lightning": "Lightning-AI/pytorch-lightning",
    "lightning_fabric": "Lightning-AI/pytorch-lightning", "verl": "volcengine/verl", "openrlhf": "OpenRLHF/OpenRLHF",
    "vllm": "vllm-project/vllm", "sglang": "sgl-project/sglang", "flash_attn": "Dao-AILab/flash-attention",
    "xformers": "facebookresearch/xformers", "bitsandbytes": "bitsandbytes-foundation/bitsandbytes",
    "axolotl": "axolotl-ai-cloud/axolotl", "llamafactory": "hiyouga/LLaMA-Factory", "ray": "ray-project/ray",
    "triton": "triton-lang/triton", "liger_kernel": "linkedin/Liger-Kernel", "unsloth": "unslothai/unsloth",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Addressee:
    """A project and the frame that points at it. `below` is the package that raised, where that is another."""

    package: str
    repository: str
    frame: str
    below: str = ""


def addressee(failure: Failure | None) -> Addressee | None:
    """The library nearest to where it broke; None where the user's own code raised, or nothing tells.

    An error that torch raises on behalf of another library is that library's to judge first: torch is named beside it.
    """
    frames = list(_placed(failure)) if failure else []
    if not frames or frames[-1][0] is None:
        return None
    innermost = str(frames[-1][0])
    for package, where in reversed(frames):
        if package is None:
            break  # the user's own code: what lies further out only called it
        if package in TRACKERS and package not in ("torch", "triton"):
            return Addressee(package, TRACKERS[package], where, "" if package == innermost else innermost)
    if innermost in TRACKERS:
        return Addressee(innermost, TRACKERS[innermost], frames[-1][1])
    return None


def _placed(failure: Failure) -> Iterator[tuple[str | None, str]]:
    """Package (None: not an installed one) and place of each frame, the outermost first; Python's own are passed."""
    for frame in failure.frames:
        where = f"{frame.path}:{frame.number} in {frame.function}"
        if m := _INSTALLED.search(frame.path):
            yield m[1], where[m.start(1) :] if m.start(1) else where
        elif not re.search(r"/lib(?:64)?/python3[\d.]*/|^<frozen|^<native>|\.so", frame.path):
            yield None, where


# ----------
# A bug report in markdown for the tracker of a library: what is known, with its place; what is not, marked so.

ALWAYS = ("python", "torch", "cuda", "driver", "nccl", "cudnn", "gpu", "gpu_count", "os")
BESIDE = (*TRACKERS, "numpy", "hydra_core", "megatron_core", "nemo_toolkit")
SETTINGS, COMMANDS, RIVALS, ROWS = 40, 3, 5, 40
TRACE_HEAD, TRACE_TAIL = 20, 100  # lines
_LAUNCH = re.compile(
    r"\b(?:torchrun|accelerate launch|deepspeed|srun|mpirun|ray job submit|vllm serve|llamafactory-cli|axolotl"
    r"|python3?(?= ))"
)
_NOT_A_BUG = ("hw.", "dist.node_failure", "dist.ib_link", "env.config_invalid", "env.ulimit", "env.disk_full", "data.")


def bug_report(ws: Workspace, report: Report, attached: str = "") -> str:
    """The report as markdown.

    Args:
        attached: file name of a bundle that was written with it.
    """
    return written(ws, report, lambda paper, clean: _write(paper, ws, clean, attached))


def _write(paper: Paper, ws: Workspace, report: Report, attached: str) -> None:
    found = failures(ws)
    group = telling(found)
    to = addressee(found.first)
    paper.head(_title(report, group.lead.text if group and group.lead.name != "exit" else ""), 1)
    _addressed(paper, report, to)
    paper.head("What happened")
    _happened(paper, report)
    paper.head("Environment")
    paper.table(("what", "value", "said in"), list(_environment(ws)))
    paper.head("Command and settings")
    _started(paper, ws, report)
    paper.head("Error trace")
    if group is None:
        paper.say("None: no error trace is in the logs.")
    else:
        paper.say(headline(found, group) + ":", "")
        paper.block(_shortened(trace(group.lead, paper.context)))
        if len(found.groups) > 1:
            paper.say("", f"Further kinds of errors in the logs: {len(found.groups) - 1}.")
    paper.head("Steps to reproduce")
    paper.say(f"The command above, with the settings above. A smaller case: {UNKNOWN}.")
    paper.head("Expected and actual")
    paper.item(f"Expected: {UNKNOWN}; to be filled in")
    paper.item(f"Actual: the run {_ended(report)}{_where(report)}")
    paper.head("What was ruled out")
    _ruled_out(paper, report)
    paper.head("What was tried")
    _tried(paper, report, {u.attempt for u in found.units if u.attempt is not None})
    if attached:
        paper.head("Attached")
        paper.item("logs around the failure, settings, traces and curves, with secrets taken out", attached)


def _title(report: Report, error: str) -> str:
    first = error.split("\n")[0].strip()
    return first[:120] if first else report.root_cause.title or "A training run fails"


def _addressed(paper: Paper, report: Report, to: Addressee | None) -> None:
    if to is None:
        paper.say(f"Project: {UNKNOWN} (the trace does not point at one library)")
    else:
        below = f"; the error itself is raised in {to.below}" if to.below else ""
        paper.say(f"Project: {to.repository} (by the frame {to.frame}{below})")
    if (report.root_cause.id or "").startswith(_NOT_A_BUG):
        paper.say("", "Before you post it: the diagnosis does not point at a bug of a library.")


def _happened(paper: Paper, report: Report) -> None:
    root = report.root_cause
    sure = f", {root.confidence:.0%}" if report.status in ("confirmed", "likely", "hypothesis") else ""
    by = f"traindoctor {report.meta.version or UNKNOWN}, with{'' if report.meta.planner == 'llm' else 'out'} a model"
    paper.say(f"Diagnosis: {root.title or root.id or 'none'} ({report.status.replace('_', ' ')}{sure}, by {by}).")
    if report.question:
        paper.say("", f"Asked: {report.question}")
    paper.lines.append("")
    for sentence in report.summary[:12]:
        paper.item(sentence.text)


def _environment(ws: Workspace) -> Iterator[tuple[str, str, str]]:
    """Rows of what the run's files say; several values where they say several."""
    from .bundle_parts import environment

    told: dict[str, list[dict]] = {}
    for row in environment(ws)["told"]:
        told.setdefault(row["name"], []).append(row)
    if "cuda" not in told and (built := [r for r in told.get("torch", []) if "+cu" in str(r["value"])]):
        digits = re.sub(r"\D.*", "", str(built[0]["value"]).split("+cu")[1])
        value = f"{digits[:-1]}.{digits[-1:]} (torch was built with it)"
        told["cuda"] = [{**built[0], "value": value}]
    now = _this_machine(ws)
    for name in (*ALWAYS, *(n for n in BESIDE if n in told and n not in ALWAYS)):
        rows = [r for r in told.get(name, []) if not _shorter(r, told[name])][:4]
        value = ", ".join(dict.fromkeys(str(r["value"]) for r in rows)) or now.get(name, "")
        place = ", ".join(f"{r['file']}:{r['line']}" for r in rows)
        yield name.replace("_", " "), value, place or ("this machine, asked now" if value else "nowhere")


def _shorter(row: dict, rows: list[dict]) -> bool:
    """Whether another place tells the same version in full: `3.11` beside `3.11.9`."""
    return any(str(other["value"]).startswith(f"{row['value']}.") for other in rows)


def _this_machine(ws: Workspace) -> dict[str, str]:
    """Driver and GPUs of this machine, where the run is its own."""
    if not ws.live:
        return {}
    from ...reading.machine.gpu_state import ask_nvml

    readings = ask_nvml(ws).readings
    names = [r.text for r in readings if r.field == "name"]
    found = {"driver": next((r.text for r in readings if r.field == "driver_version"), "")}
    found |= {"gpu": ", ".join(dict.fromkeys(names)), "gpu_count": str(len(names) or "")}
    return {k: v for k, v in found.items() if v}


def _started(paper: Paper, ws: Workspace, report: Report) -> None:
    commands = list(_commands(ws))[:COMMANDS]
    if commands:
        for place, text in commands:
            paper.say(f"{place}:", "")
            paper.block(text)
            paper.lines.append("")
    else:
        paper.say(f"Command: {UNKNOWN}", "")
    rows = list(_settings(paper, ws, report))
    if rows:
        paper.table(("setting", "value", "said in"), rows[:SETTINGS])
        if len(rows) > SETTINGS:
            paper.say("", f"{len(rows) - SETTINGS} further settings were read.")
    else:
        paper.say(f"Settings: {UNKNOWN}")


def _commands(ws: Workspace) -> Iterator[tuple[str, str]]:
    """Lines of scripts that start something, with the lines they go on over."""
    for file in ws.by_role("config"):
        if file.good or file.size > 1 << 20 or file.path.suffix.lower() in (".yaml", ".yml", ".json", ".toml", ".ini"):
            continue
        text = ws.text(file, 1 << 20)
        for m in re.finditer(r"(?m)^(?!\s*#)(?:[^\n]*\\\r?\n)*[^\n]*$", text):
            if _LAUNCH.search(m[0]):
                yield f"{file.name}:{text.count(chr(10), 0, m.start()) + 1}", m[0][:2000]


def _settings(paper: Paper, ws: Workspace, report: Report) -> Iterator[tuple[str, str, str]]:
    """Known settings, those that the diagnosis cites first; what was used beside what was asked for."""
    from ...reading.settings.settings import read_settings

    cited = {e.key.rpartition(".")[2] for e in report.evidence if e.key.startswith(("settings.", "lint."))}
    named: dict[str, list] = {}
    for s in read_settings(ws).all:
        if s.known and not s.file.good:
            named.setdefault(s.name, []).append(s)
    for name in sorted(named, key=lambda n: (n not in cited, n)):
        values: dict[str, object] = {}
        for s in named[name]:
            value = paper.context.value(s.value, s.file.name, s.line.offset, len(s.line.data))
            values.setdefault(f"{value}{' (used)' if s.used else ''}", s)
        places = [f"{s.file.name}:{s.line.number}" for s in values.values()]  # pyright: ignore[reportAttributeAccessIssue]
        yield name, ", ".join(list(values)[:4]), ", ".join(places[:4])


def _shortened(text: str) -> str:
    lines = text.split("\n")
    if len(lines) <= TRACE_HEAD + TRACE_TAIL:
        return text
    left = len(lines) - TRACE_HEAD - TRACE_TAIL
    return "\n".join([*lines[:TRACE_HEAD], f"[{left} lines left out]", *lines[-TRACE_TAIL:]])


def _ended(report: Report) -> str:
    states = {r.state for r in report.runs if not r.good}
    state = next(iter(states)) if len(states) == 1 else "unknown"
    words = {"died": "died", "hung": "hung", "running": "was still running", "finished": "went on to its end"}
    return words.get(state, f"ended in a way that is {UNKNOWN}")


def _where(report: Report) -> str:
    first = report.root_cause.first_failure
    places = {"step": first.step, "rank": first.rank, "host": first.host, "time": first.time}
    told = [f"{word} {value}" for word, value in places.items() if value is not None]
    return f"; it broke first at {', '.join(told)}" if told else ""


def _ruled_out(paper: Paper, report: Report) -> None:
    by_id = {e.id: e for e in report.evidence}
    shown = False
    for rival in report.differential[1:]:
        against = [by_id[i] for i in rival.contradicted_by if i in by_id]
        if against:
            e, shown = against[0], True
            place = f"{e.file}:{e.line}" if e.file else " ".join(e.argv or e.searched or [])
            paper.item(rival.title or rival.id, e.text or f"{e.key} = {e.value}", place)
    clean = [c for c in report.checked if c.outcome == "clean"]
    for check in clean[:RIVALS]:
        paper.item(f"{check.tool.replace('_', '-')}: {check.why}")
    if not shown and not clean:
        paper.say("Nothing with evidence against it.")


def _tried(paper: Paper, report: Report, attempts: set[int]) -> None:
    if len(attempts) > 1:
        paper.item(f"{len(attempts)} attempts with an error are in the logs")
    for before in report.restart.before if report.restart else ():
        paper.item(f"seen before: {before.cause} ({before.status}), {before.time}")
    paper.item(f"Other versions, other settings: {UNKNOWN}; to be filled in")
