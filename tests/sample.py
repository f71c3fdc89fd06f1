"""A report made by hand, with everything in it that a report can hold."""

from __future__ import annotations

from traindoctor.agent.core.report import (  # fmt: skip
    AlsoFound,
    ByHand,
    ChainLink,
    Checked,
    CitedEvidence,
    Differential,
    FirstFailure,
    Meta,
    Patch,
    Report,
    ReportFix,
    RootCause,
    RunSummary,
    Sentence,
)

HOSTILE = "\x1b[31mred\x1b[0m [bold]markup[/bold] \u202egnp.exe <script>alert(1)</script> `tick`"
DIFF = """\
--- a/ds_config.json
+++ b/ds_config.json
@@ -1,3 +1,3 @@
 {
-  "fp16": {"enabled": true}
+  "fp16": {"enabled": false}
 }
"""


def sample(**changes: object) -> Report:
    """A confirmed diagnosis of an overflow with a rival, a patch and a hostile log line."""
    fields = {
        "session": "20260304-031500-a1b2c3",
        "question": "Why did the loss become NaN at step 4012?",
        "status": "confirmed",
        "runs": [RunSummary(id="r1", root="runs/exp42", state="died")],
        "root_cause": RootCause(
            id="loss.fp16_overflow",
            title="Values overflow in half precision",
            playbook="loss/fp16_overflow",
            confidence=0.87,
            first_failure=FirstFailure(rank=3, host="n7", step=4012, time="2026-03-04T02:43:49", attempt=2),
        ),
        "also": [AlsoFound(id="speed.data_starvation", confidence=0.6, cites=["E4"])],
        "summary": [
            Sentence(text="The loss scale fell to its floor and the loss became NaN.", cites=["E1", "E2"]),
            Sentence(text="logs/rank3.log:812: \u201cthe line\u201d", cites=["E1"]),
        ],
        "differential": [
            Differential(id="loss.fp16_overflow", title="Overflow", confidence=0.87, supported_by=["E1"]),
            Differential(
                id="loss.lr_too_high",
                confidence=0.08,
                contradicted_by=["E3"],
                missing=["a gradient norm that grows before the first NaN"],
            ),
            Differential(id="data.empty_samples", confidence=0.01),
        ],
        "evidence": [
            _line("E1", "logs/rank3.log", 812, "Current loss scale already at minimum - cannot decrease", rank=3),
            _line("E2", "logs/rank3.log", 813, HOSTILE, rank=3),
            CitedEvidence(id="E3", key="settings.asked.gradient_clip_norm", value=0.0, kind="absent",
                          searched=["ds_config.json", "launch.sh"], tool="read_settings"),
            _line("E4", "logs/a very long folder name that goes on/and on/and on/rank0.log", 7, "x" * 900),
        ],
        "chain": [
            ChainLink(evidence="E3", role="trigger", text="No gradient clipping is set."),
            ChainLink(evidence="E1", role="cause", text="The loss scale reaches its floor."),
        ],
        "checked": [
            Checked(tool="scan_logs", outcome="finding", why="died"),
            Checked(tool="watchdog", outcome="clean", why="no timeout"),
            Checked(tool="nccl_log", outcome="not_applicable", why="no NCCL lines"),
            Checked(tool="workspace", outcome="failed", why="core.1: not a regular file"),
        ],
        "fixes": [
            ReportFix(title="Train in bfloat16", why="it has the range of float32.", commands=["bf16 = true"],
                      patches=["P1"], verify="doctor tool read-metrics", risk="Other numbers than before.",
                      by_hand=[ByHand(text="--bf16 True", where="launch.sh", why="it is filled in elsewhere")]),
        ],
        "patches": [Patch(id="P1", file="ds_config.json", sha256="0" * 64, diff=DIFF)],
        "next_steps": ["Keep the batch of step 4012."],
        "meta": Meta(version="0.1.0", seconds=0.8, tool_calls=9, degraded=["searched by words alone"]),
    }  # fmt: skip
    return Report.model_validate(fields | changes)


def _line(ident: str, file: str, line: int, text: str, rank: int | None = None) -> CitedEvidence:
    return CitedEvidence(id=ident, key="log.line", kind="line", file=file, line=line, text=text, rank=rank)
