"""Reports for people: everything is there, calm at 80 columns, and nothing of a run can steer a terminal."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console
from traindoctor.agent.core.report import CitedEvidence, Report, RootCause, Sentence
from traindoctor.agent.telling.render import as_markdown, as_page, as_plain, code, escaped

from tests.sample import sample

ESCAPE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]")


def page(report: Report, width: int = 80, colour: bool = False) -> str:
    """What the terminal gets."""
    system = "truecolor" if colour else None
    console = Console(
        file=io.StringIO(), width=width, highlight=False, markup=False, emoji=False, force_terminal=colour,
        color_system=system, no_color=not colour,
    )  # fmt: skip
    return as_page(report, console) + "\n"


EXPECTED_TOP = """\
loss.fp16_overflow  (confirmed, 87%)
Values overflow in half precision
First failure: rank 3, host n7, step 4012, at 2026-03-04T02:43:49, in attempt 2

What happened
  The loss scale fell to its floor and the loss became NaN. [E1, E2]

Evidence
  E1  logs/rank3.log:812 (rank 3)
      Current loss scale already at minimum - cannot decrease
"""

EXPECTED_END = """\
Also found
  60%  speed.data_starvation [E4]

Also considered
  8%  loss.lr_too_high
      against it E3; missing: a gradient norm that grows before the first NaN
  1%  data.empty_samples
      nothing supports it

What to do
  1.  Train in bfloat16: it has the range of float32.
      P1: ds_config.json
      -  "fp16": {"enabled": true}
      +  "fp16": {"enabled": false}
      $ doctor apply 20260304-031500-a1b2c3 P1
      $ bf16 = true
      risk: Other numbers than before; by hand: --bf16 True in launch.sh (it is
      filled in elsewhere); then check: doctor tool read-metrics

Next steps
  -  Keep the batch of step 4012.

Checked
  found            scan_logs
  clean            watchdog
  nothing to read  nccl_log
  not checked      workspace: core.1: not a regular file

doctor 0.1.0, made without a model, 9 checks in 0.8 s
limited: searched by words alone
kept as 20260304-031500-a1b2c3: doctor sessions show 20260304-031500-a1b2c3
"""


def test_the_page_reads_from_verdict_to_what_was_checked() -> None:
    shown = page(sample())
    assert shown.startswith(EXPECTED_TOP) and shown.endswith(EXPECTED_END)


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    assert max(len(line) for line in page(sample(), width).splitlines()) <= min(width, 100)


def test_an_absence_says_where_was_looked() -> None:
    shown = page(sample())
    assert "E3  settings.asked.gradient_clip_norm: looked for, not there" in shown
    assert "searched ds_config.json, launch.sh; the default then is 0.0" in shown


@pytest.mark.parametrize("form", [page, as_plain, as_markdown])
def test_what_a_run_wrote_comes_out_inert(form: object) -> None:
    shown = form(sample())  # pyright: ignore
    assert not ESCAPE.search(shown) and "\\x1b" in shown
    assert "[bold]markup[/bold]" in shown.replace("\\[", "[").replace("\\]", "]")


def test_colour_is_only_ever_added() -> None:
    coloured = page(sample(), colour=True)
    assert "\x1b[" in coloured and re.sub(r"\x1b\[[0-9;]*m", "", coloured) == page(sample())


def test_plain_puts_one_fact_on_a_line() -> None:
    lines = as_plain(sample()).splitlines()
    assert lines[:3] == ["cause: loss.fp16_overflow", "status: confirmed, 87%",
                         "title: Values overflow in half precision"]  # fmt: skip
    assert "what to do, command: bf16 = true" in lines and all(re.match(r"[a-z ,]+: ", line) for line in lines)


def test_a_healthy_run_and_an_answer_need_no_percentage() -> None:
    healthy = sample(status="healthy", root_cause=RootCause(id="none.healthy", title="Healthy", confidence=0.9))
    assert page(healthy).startswith("none.healthy  (healthy)\n")
    answer = sample(status="answer", root_cause=RootCause(id=None))
    assert page(answer).startswith("answer  (an answer)\n")
    titled = sample(status="answer", root_cause=RootCause(id=None, title="Rank 3"))
    assert as_plain(titled).startswith("answer: Rank 3\nstatus: an answer\nanswer: E1, E2 | ")
    assert as_plain(answer).startswith("answer: answer\nstatus: an answer\n")


def test_an_empty_report_is_still_a_page() -> None:
    empty = Report(status="insufficient_evidence", root_cause=RootCause(id="none.insufficient_evidence"))
    assert page(empty).startswith("none.insufficient_evidence  (insufficient evidence)") and as_plain(empty)
    assert as_markdown(empty)


def test_markdown_shows_text_as_it_stands() -> None:
    assert escaped("<img src=x> [a](b) *c* @all") == r"\<img src=x\> \[a\](b) \*c\* \@all"
    assert code("a `b` c") == "``a `b` c``" and code("`b`") == "`` `b` ``"
    shown = as_markdown(sample())
    assert shown.startswith("# Values overflow in half precision\n\n**loss.fp16\\_overflow**, confirmed, 87%")
    assert "<script>" not in re.sub(r"(`+).*?\1", "", shown)


def test_lines_that_read_alike_are_shown_once() -> None:
    ranks = [
        CitedEvidence(id=f"E{r}", key="watchdog.timeout", kind="line", file=f"rank{r}.log", line=9, rank=r,
                      text=f"[rank{r}]: Watchdog caught collective operation timeout: SeqNum=52948 after 60{r}012 ms")
        for r in range(7)
    ]  # fmt: skip
    shown = page(
        sample(evidence=ranks, summary=[Sentence(text="It timed out.", cites=[e.id for e in ranks])], chain=[])
    )
    assert shown.count("Watchdog caught") == 1
    assert "alike: rank1.log:9, rank2.log:9, rank3.log:9, rank4.log:9 and 2 more" in shown
    assert "more in the JSON report" not in shown


@pytest.mark.parametrize(("share", "said"), [(1.0, ">99%"), (0.996, ">99%"), (0.5, "50%"), (0.001, "<1%")])
def test_no_certainty_is_claimed_that_there_is_not(share: float, said: str) -> None:
    shown = page(sample(root_cause=RootCause(id="loss.fp16_overflow", confidence=share)))
    assert shown.startswith(f"loss.fp16_overflow  (confirmed, {said})")
