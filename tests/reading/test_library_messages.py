"""What libraries print is known from their sources: which message a line is, and what it is no sign of."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traindoctor.agent.core.playbook import Playbook, Signature
from traindoctor.agent.reading.curves.curves import curves
from traindoctor.agent.reading.run.lines import strip
from traindoctor.agent.reading.run.program.library_messages import TABLE, Said, catalogue, library_message, read
from traindoctor.agent.reading.run.program.statements import Printed, statements
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.reading.scan.library_notices import counting
from traindoctor.agent.reading.scan.logpass import run_pass, signature_patterns
from traindoctor.agent.tools.curves.metrics_tools import read_metrics
from traindoctor.agent.tools.logs.log_tools import scan_logs, telling_lines
from traindoctor.agent.tools.settings.programs_tools import what_ran
from traindoctor.evals.recorders.messages import rows_of

from tests.tools.captured import look

NOTICE = "max_steps is given, it will override any value given in num_train_epochs"


def said(line: str) -> Said | None:
    s = strip(line)
    return library_message(s.body, s.level)


@pytest.mark.parametrize(
    ("library", "kind", "line"),
    [
        ("transformers", "notice", f"[INFO|trainer.py:622] 2024-05-01 10:00:00,123 >> {NOTICE}"),
        ("transformers", "notice", "`use_cache=True` is incompatible with gradient checkpointing. Setting `use_cache=False`."),
        ("transformers", "event", "[INFO|trainer.py:2128] 2024-05-01 10:00:00,123 >>   Total optimization steps = 1,500"),
        ("transformers", "trouble", "Some weights of GPT2LMHeadModel were not initialized from the model checkpoint at out and are newly initialized: ['lm_head.weight']"),
        ("torch", "notice", "[rank1]: /opt/venv/lib/python3.11/site-packages/torch/optim/lr_scheduler.py:224: UserWarning: Detected call of `lr_scheduler.step()` before `optimizer.step()`. In PyTorch 1.1.0 and later, you should call them in the opposite order"),
        ("torch", "notice", "W0712 09:00:00.123000 4242 torch/distributed/run.py:774] Setting OMP_NUM_THREADS environment variable for each process to be 1 in default, to avoid your system being overloaded"),
        ("accelerate", "notice", "Detected kernel version 4.18.0, which is below the recommended minimum of 5.5.0; this can cause the process to hang."),
        ("datasets", "notice", "Too many dataloader workers: 8 (max is dataset.num_shards=2). Stopping 6 dataloader workers."),
        ("pytorch-lightning", "event", "`Trainer.fit` stopped: `max_epochs=3` reached."),
        ("pytorch-lightning", "notice", "/usr/lib/python3.11/site-packages/pytorch_lightning/trainer/connectors/data_connector.py:425: The 'train_dataloader' does not have many workers which may be a bottleneck. Consider increasing the value of the `num_workers` argument` to `num_workers=7` in the `DataLoader` to improve performance."),
        ("deepspeed", "event", "[2024-07-01 10:00:00,123] [INFO] [logging.py:96:log_dist] [Rank 0] DeepSpeed using client LR scheduler"),
        ("deepspeed", "trouble", "[2024-07-01 10:00:00,123] [INFO] [loss_scaler.py:190:update_scale] [deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768"),
        ("megatron-lm", "event", "setting training iterations to 100"),
        ("torchtitan", "event", "[titan] 2025-01-01 10:00:00,123 - root - INFO - Training starts at step 1"),
    ],
)  # fmt: skip
def test_real_lines_of_libraries(library: str, kind: str, line: str) -> None:
    found = said(line)
    assert found is not None and (found.message.library, found.message.kind) == (library, kind)


@pytest.mark.parametrize(
    "line",
    [
        f'{{"text": "{NOTICE}"}}',
        f'he wrote: "{NOTICE}"',
        f"if you read {NOTICE}, it is fine",
        f"User: {NOTICE}",
        f"'{NOTICE}'",
        f"Question 4 said {NOTICE}",
        f"ERROR: {NOTICE}",  # no library says it as an error
        "DeepSpeed using client LR scheduler and then it died",
        "the override is given",
        "",
        "\x00\x1b[31m",
    ],
)
def test_what_only_sounds_like_a_message_is_none(line: str) -> None:
    assert said(line) is None


def test_of_two_messages_the_one_that_fixes_more_is_meant() -> None:
    found = said("`Trainer.fit` stopped: `max_steps=10` reached.")
    assert found is not None and found.message.template == "`Trainer.fit` stopped: `max_steps={}` reached."
    assert found.values == ("10",)


def test_every_message_of_the_table_is_found_by_its_own_line() -> None:
    known = catalogue()
    assert known.trouble == "" and TABLE.stat().st_size < 420_000
    rows = [row.partition("\t")[2] for rows in known.rows.values() for _, row in rows]
    lines = [
        t.replace("{{", "\0").replace("}}", "\1").replace("{}", "x7").replace("\0", "{").replace("\1", "}")
        for t in rows
    ]
    assert len(rows) > 4000 and [t for t, line in zip(rows, lines, strict=True) if known.of(line) is None] == []


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=300))
def test_any_text_is_looked_up(text: str) -> None:
    library_message(text)
    library_message(f"{NOTICE[:30]}{text}")


@pytest.mark.parametrize(
    ("call", "row"),
    [
        ('logger.warning("The values are given twice, the first of them is ignored")', "wn"),
        ('logger.info(f"Loading the weights of {name} from the folder")', "ie"),
        ('logger.warning(f"The values of {name} could not be found in the folder")', "wt"),
        ('logger.warning("The values could not be found, using the values of the folder")', "wn"),
        ('logger.warning("The values of the folder may lead to errors later")', "wn"),
        ('logger.warning(f"Going on without the folder: {e}")', "wt"),  # what was raised may say anything
        ('logger.info("Sending process %d closing signal %s", pid, sig)', "it"),  # follows from a failure
        ('logger.error("The folder is left out of the values")', "et"),
        ('print(f"The model answered to the question: {response_text}")', "pd"),
        ('logger.debug("The values of the folder are read")', ""),
        ('logger.info(f"step {step}")', ""),  # too little to be known by
    ],
)
def test_kinds_of_messages(call: str, row: str) -> None:
    found = list(
        rows_of("lib", [("lib/a.py", call.encode()), ("lib/tests/b.py", call.encode()), ("lib/c.py", b"def (")])
    )
    assert [r.level + r.kind for r in found] == [row] * bool(row)


# ----------
# A table that is damaged is read without what is damaged, and that is said.


@pytest.mark.parametrize(
    ("content", "rows", "told"),
    [
        (b"= lib 1.0 2.0\nwn01 override\tthe values override {}\n", 1, ""),
        (b"= lib 1.0 2.0\nwn01 override\tthe values override {}\nwn0", 1, "1 rows are damaged"),
        (b"= lib 1.0\nzz99\n\x7f\nwn09 override\tthe values override {}\n", 1, "2 rows are damaged"),
        (b"wn00 override\tthe values override {}\n", 1, ""),
        (b"", 0, "no rows"),
        (b"\xff\xfe\x00", 0, "decode"),
        (None, 0, "No such file"),
    ],
)
def test_a_damaged_table(tmp_path: Path, content: bytes | None, rows: int, told: str) -> None:
    path = tmp_path / "messages.tsv"
    if content is not None:
        path.write_bytes(content)
    found = read(path)
    assert told in found.trouble and bool(found.trouble) is bool(told)
    assert sum(map(len, found.rows.values())) == rows
    assert (found.of("the values override 7") is not None) is bool(rows)


def test_a_run_is_read_without_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("traindoctor.agent.reading.run.program.library_messages.TABLE", tmp_path / "none.tsv")
    catalogue.cache_clear()
    try:
        seen = look(what_ran, tmp_path, train_log=f"{NOTICE}\nstep 1 loss 2.0\n", train_py="print('step', 1, 'loss')\n")
        assert "messages of libraries were not all read" in seen.result.text
    finally:
        catalogue.cache_clear()


# ----------
# What follows from it.


def test_a_notice_is_no_warning_of_a_failure_and_another_warning_is_one(tmp_path: Path) -> None:
    log = f"WARNING: {NOTICE}\nWARNING: the disk behind /data is slow today\nstep 1 loss 2.0\nstep 2 loss 1.9\n"
    seen = look(scan_logs, tmp_path, train_log=log)
    assert seen.values("log.warning") == ["the disk behind /data is slow today"]


def test_a_notice_that_a_signature_names_stays(tmp_path: Path) -> None:
    line = "UserWarning: None of the inputs have requires_grad=True. Gradients will be None"
    seen = look(scan_logs, tmp_path, train_log=f"{line}\nstep 1 loss 2.0\n")
    assert seen.values("sig.loss.frozen_params") and seen.values("log.warning")


@pytest.mark.parametrize(
    ("pattern", "example", "line", "counts"),
    [
        ("override", "the operator will override it", NOTICE, False),  # a word of the notice
        (r"num_train_\w+", "num_train_steps is wrong", NOTICE, False),  # what may stand in its place
        ("override any value given", "the flags override any value given", NOTICE, True),  # several words of it
        ("num_train_epochs", NOTICE, NOTICE, True),  # the example is the same message
        ("override", "the operator will override it", "an override of the operator", True),  # of no library
        ("epochs", "3 epochs", "`Trainer.fit` stopped: `max_epochs=3` reached.", True),  # an event is a fact
    ],
)
def test_a_signature_counts_on_a_notice_that_it_names(
    tmp_path: Path, pattern: str, example: str, line: str, counts: bool
) -> None:
    own = Playbook(
        slug="team/own", cause="loss.bad_data", title="Own", signatures=[Signature(pattern=pattern, matches=[example])]
    )
    (tmp_path / "train.log").write_text(f"{line}\nstep 1 loss 2.0\n")
    ws = Workspace([tmp_path])
    found = run_pass(ws, signature_patterns([own])).hits
    assert list(found) == [own.key] and bool(counting(ws, found, [own])) is counts


def test_what_happened_counts_also_where_a_library_says_it(tmp_path: Path) -> None:
    line = "[titan] 2025-06-16 23:47:20,540 - root - INFO - Finished saving the checkpoint (or staging if async is enabled)in 395.34 seconds.\n"
    seen = look(scan_logs, tmp_path, train_log=f"{line}step 1 loss 2.0\n")
    assert seen.values("sig.speed.checkpoint_slow.seconds") == [395.34]


def test_an_error_stays_an_error(tmp_path: Path) -> None:
    log = "[ERROR] RuntimeError: the values differ\n[INFO] DeepSpeed using client LR scheduler\n"
    seen = look(scan_logs, tmp_path, train_log=log)
    assert seen.values("error.first") or seen.values("error.line")


def test_a_notice_tells_nothing_and_another_line_does(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text(f"{NOTICE}\nmax_steps is 10 where num_train_epochs of 3 differs\n")
    found = telling_lines(Workspace([tmp_path], question="why does max_steps override num_train_epochs?"))
    assert [e.line for e in found.evidence if e.key == "log.telling"] == [2]


def test_lines_are_counted_by_what_printed_them(tmp_path: Path) -> None:
    code = "for step in range(9):\n    print(f'step {step}: training loss {1 / (step + 1):.3f}')\n"
    log = (
        f"{NOTICE}\n" + "".join(f"step {i}: training loss {1 / (i + 1):.3f}\n" for i in range(9)) + "who printed this\n"
    )
    seen = look(what_ran, tmp_path, train_py=code, train_log=log)
    told = "lines of train.log: 9 by statements of the program, 1 by messages of libraries (transformers 1), 1 by none"
    assert told in seen.result.text


@pytest.mark.parametrize(
    ("line", "metric", "told"),
    [
        ("{'loss': 0.8, 'grad_norm': 0.7, 'learning_rate': 8e-06, 'epoch': 0.3}", "loss", "since the line before"),
        (" iteration       10/  500 | consumed samples: 10240 | elapsed time per iteration (ms): 1234.5 | learning rate: 1.0E-04 | global batch size:  1024 | lm loss: 1.03E+01 | loss scale: 1.0 | grad norm: 1.2 | number of skipped iterations:   0 | number of nan iterations:   0 |", "loss", "over data-parallel ranks"),
        ("[titan] 2026-08-22 10:00:00,123 - root - INFO - step:  1  loss: 12.23456  grad_norm:  1.2345  memory: 40.12GiB(50.67%)  tps: 6,789", "loss", "of that step"),
        ("Training epoch 0, iteration 17/99 | lr: 2.699e-06 | global_batch_size: 128 | global_step: 17 | reduced_train_loss: 11.03 | train_step_timing in s: 12.64", "loss", "of that step"),
        ("Epoch 3:  42%|####2     | 420/1000 [41:20<1:31:40,  1.59s/it, v_num=0, train_loss=0.123]", "loss", "of one rank"),
    ],
)  # fmt: skip
def test_numbers_of_frameworks_have_their_meaning(tmp_path: Path, line: str, metric: str, told: str) -> None:
    (tmp_path / "train.log").write_text(f"{line}\n" * 3)
    found = [s for s in curves(Workspace([tmp_path])).series if s.metric == metric]
    assert [told in s.meaning for s in found] == [True]
    assert told in look(read_metrics, tmp_path).result.text


def test_calls_of_loggers_that_libraries_wrap() -> None:
    source = """
import warnings
warnings.warn("the first is deprecated", FutureWarning)
rank_zero_warn("the second is slow", category=UserWarning)
logger.warning_once(f"the third is {a}")
log_dist("the fourth is %d" % n, ranks=[0])
text = "the fifth failed."
if hint:
    text += f" The hint is {hint}."
logger.info(text)
math.log(x)
handle_error("nothing that is printed")
"""
    printed = Printed(statements(ast.parse(source), "x.py"))
    lines = ["the first is deprecated", "the second is slow", "the third is 3", "the fourth is 4", "the fifth failed."]
    assert all(printed.of(line) for line in [*lines, "the fifth failed. The hint is none."])
    assert printed.of("nothing that is printed") is None
