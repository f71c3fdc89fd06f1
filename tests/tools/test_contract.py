"""What holds for every diagnostic by its declaration alone: schema, command, honest answers to rubbish, no trace left."""

from __future__ import annotations

import hashlib
import json
import random
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from traindoctor.agent.core.errors import DoctorError
from traindoctor.agent.core.shell import Recorded
from traindoctor.agent.core.types import Risk, ToolResult
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.tool import Tool, all_tools
from traindoctor.agent.verdict.gate import verified

TOOLS = list(all_tools().values())
KEY = re.compile(r"[a-z_]+(?:\.[a-z_0-9]+)*(?:\.\*)?")
OUTCOMES = {"finding", "clean", "not_applicable", "not_allowed", "failed"}
NAMES = (
    "train.log", "rank0.log", "rank1.log", "slurm-12.out", "dmesg.txt", "nvidia-smi.xml", "nvidia-smi.txt", "py-spy.json",
    "config.json", "ds_config.json", "config.yaml", "launch.sh", "train.py", "requirements.txt", "metrics.csv",
    "train.jsonl", "train.parquet", "train.bin", "train.npy", "eval.arrow", "samples_task.jsonl", "data.tar",
    "model.safetensors", "pytorch_model.bin", "optimizer.pt", "checkpoint-5/trainer_state.json",
    "checkpoint-5/model.safetensors", "global_step5/mp_rank_00_model_states.pt", "latest", "dcp/.metadata",
    "dcp/__0_0.distcp", "iter_0000005/mp_rank_00/model_optim_rng.pt", "tokenizer.json", "tokenizer_config.json",
    "nccl_trace_rank_0", "nccl_trace_rank_1.json", "memory_snapshot.pickle", "trace.pt.trace.json", "report.sqlite",
    "events.out.tfevents.1.host", "run-ab12.wandb", "mlflow.db", "batch.pt", "gradients.jsonl", "all_reduce_perf.txt",
)  # fmt: skip


def noise(kind: str, name: str) -> bytes:
    """Rubbish of a kind, the same for a name at every run."""
    chance = random.Random(f"{kind}{name}")
    if kind == "bytes":
        return chance.randbytes(3000)
    if kind == "magic":
        heads = (b"PK\x03\x04", b"\x80\x02}", b"PAR1", b"ARROW1\0\0", b"\x93NUMPY\x01\0", struct.pack("<Q", 1 << 40),
                 struct.pack("<Q", 10) + b'{"a":[1,2', b"SQLite format 3\0", b":W&B\xe1\xbe\x00", b"\x1f\x8b\x08")  # fmt: skip
        return chance.choice(heads) + chance.randbytes(2000)
    if kind == "brackets":
        return chance.choice((b"[", b'{"a":', b"<a>")) * 20_000
    if kind == "text":
        words = ["loss", "step", "nan", "rank", "3", "Xid", "CUDA out of memory", "{", "}", "[0]", "lr=1e-4", "=", ":", "\t",
                 "input_ids", "labels", "-100", "True", "N/A", "\ufffd", "\x1b[31m", "1e999", "--tensor-parallel 0"]  # fmt: skip
        return "\n".join(" ".join(chance.choices(words, k=12)) for _ in range(80)).encode()
    return b""


@pytest.fixture(scope="module", params=["bytes", "magic", "brackets", "text", "nothing"])
def rubbish(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in which every file is rubbish under a name that promises something."""
    folder = tmp_path_factory.mktemp("rubbish")
    for name in NAMES:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(noise(request.param, name))
    (folder / "notes.log").write_text("step 1 loss 2.0\n")
    return folder


def fingerprint(folder: Path) -> str:
    """Names, bytes and write times of everything below a folder."""
    found = hashlib.sha256()
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        found.update(f"{path}{path.stat().st_mtime_ns}".encode() + path.read_bytes())
    return found.hexdigest()


def callable_bare(tool: Tool) -> bool:
    return not any(f.is_required() for f in tool.arguments.model_fields.values())


@pytest.mark.parametrize("tool", TOOLS, ids=lambda t: t.name)
def test_declaration(tool: Tool) -> None:
    assert 10 < len(tool.title) <= 120, tool.title
    assert len(tool.description) > len(tool.title) + 40, "say when to use it"
    assert tool.emits or tool.name in {"read_source", "list_files", "compare_runs", "what_ran"}
    assert all(KEY.fullmatch(key) for key in tool.emits), tool.emits
    schema = tool.schema()
    assert json.loads(json.dumps(schema)) == schema
    for name, field in schema["parameters"].get("properties", {}).items():
        assert field.get("description"), f"{tool.name}: say what {name} is"
    assert not (tool.recall and tool.risk is Risk.COSTLY), "what is costly never runs unasked"
    assert not tool.recall or callable_bare(tool)


@pytest.mark.parametrize("tool", TOOLS, ids=lambda t: t.name)
def test_help(tool: Tool, doctor: Callable[..., Any]) -> None:
    done = doctor("tool", tool.name.replace("_", "-"), "--help")
    assert done.returncode == 0 and not done.stderr
    for name in tool.arguments.model_fields:
        assert f"--{name.replace('_', '-')}" in done.stdout


@pytest.mark.parametrize("tool", [t for t in TOOLS if callable_bare(t)], ids=lambda t: t.name)
def test_rubbish_gets_an_answer_and_leaves_no_trace(tool: Tool, rubbish: Path, tmp_path: Path) -> None:
    before = fingerprint(rubbish)
    ws = Workspace([rubbish], shell=Recorded(tmp_path / "none.json"), live=True)
    try:
        result = tool(ws)
    except DoctorError as e:
        assert "\n" not in str(e)
        return
    finally:
        assert fingerprint(rubbish) == before
    honest(tool, result, ws)


def honest(tool: Tool, result: ToolResult, ws: Workspace) -> None:
    """An outcome of the five, one line of summary, evidence of declared keys whose quotes stand where they say."""
    assert result.outcome in OUTCOMES and result.summary and "\n" not in result.summary
    assert not [e.key for e in result.evidence if not tool.allows(e.key)]
    assert all(e.tool == tool.name for e in result.evidence)
    _, wrong = verified(result.evidence, ws)
    assert not wrong
    for e in result.evidence:
        json.dumps(e.as_dict(), default=float)
        assert e.kind != "line" or (e.file and e.line)
        assert e.kind != "command" or e.argv
        assert e.kind != "binary" or (e.file and e.member)
