"""Prefixes, labels, levels and progress bars of log lines."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from traindoctor.agent.reading.run.lines import is_bar, labelled, segments, strip, without_escapes


@pytest.mark.parametrize(
    ("line", "body", "rank", "level"),
    [
        ("[rank3]: Traceback (most recent call last):", "Traceback (most recent call last):", 3, None),
        ('[rank3]:   File "a.py", line 1, in f', '  File "a.py", line 1, in f', 3, None),
        ("[default0]:hello", "hello", 0, None),
        ("[1,7]<stderr>:boom", "boom", 7, None),
        (
            "[rank1]:[E526 11:42:19.204448 ProcessGroupNCCL.cpp:632] [Rank 1] Watchdog caught",
            "Watchdog caught",
            1,
            "error",
        ),
        (
            "E0915 11:20:44.190000 2210 torch/distributed/api.py:869] failed (exitcode: 1)",
            "failed (exitcode: 1)",
            None,
            "error",
        ),
        ("I1129 16:13:38.05 8120 net.cpp:608]     [Forward] Layer", "    [Forward] Layer", None, "info"),
        (
            "[2023-04-20 19:03:26,106] [ERROR] [launch.py:324:sigkill_handler] ['/bin/python'] exits",
            "['/bin/python'] exits",
            None,
            "error",
        ),
        ("[2023-04-20 19:03:26,106] [INFO] [logging.py:96:log_dist] [Rank 0] step=10", "step=10", 0, "info"),
        (
            '(EngineCore pid=7120) ERROR 09-20 14:02:30 [core.py:210]   File "x", line 1',
            '  File "x", line 1',
            None,
            "error",
        ),
        ("[2024-04-18 15:55:06] CRITICAL [olmo.util:158, rank=6] Uncaught X: 429", "Uncaught X: 429", 6, "fatal"),
        ("2026-06-16 04:40:11 | INFO | root | World size: 8", "World size: 8", None, "info"),
        ("[titan] 2025-01-01 10:00:00,123 - root - INFO - step:  1", "step:  1", None, "info"),
        ("[INFO|trainer.py:2409] >> ***** Running training *****", "***** Running training *****", None, "info"),
        ("WARNING: tokenization mismatch", "tokenization mismatch", None, "warning"),
        ("[ 1842.901233] nvidia 0000:b3:00.0: enabling device", "nvidia 0000:b3:00.0: enabling device", None, None),
        ("{'loss': 0.8123}", "{'loss': 0.8123}", None, None),
        ("(step 4) something", "(step 4) something", None, None),
        ("[12, 34] shape", "[12, 34] shape", None, None),
    ],
)
def test_prefixes_come_off(line: str, body: str, rank: int | None, level: str | None) -> None:
    found = strip(line)
    assert (found.body, found.rank, found.level) == (body, rank, level)


def test_ray_names_its_actor_host_and_repeats() -> None:
    found = strip("(Worker pid=44, ip=10.0.0.3) lost a peer \x1b[32m[repeated 3x across cluster]\x1b[0m")
    assert (found.body, found.source, found.host, found.repeated) == ("lost a peer", "Worker:44", "10.0.0.3", 3)


def test_slurm_names_host_and_task() -> None:
    found = strip("srun: error: node7: task 3: Exited with exit code 1")
    assert (found.rank, found.host) == (3, "node7")


def test_labels_count_only_where_a_file_uses_them() -> None:
    assert strip("3: out of memory").rank is None
    assert strip("3: out of memory", labels=True).rank == 3
    assert strip("3: out of memory", labels=True).body == "out of memory"
    assert labelled(b"0: a\n1: b\n0: c\n1: d\n")
    assert not labelled(b"epoch 0: a\nfoo\nbar\n0: c\n")


def test_escapes_inside_words_go_and_newlines_stay() -> None:
    assert without_escapes(b"CUDA \x1b[31mout\x1b[0m of\nmem\x1b]8;;x\x07ory") == b"CUDA out of\nmemory"
    assert without_escapes(b"\x1b]0;never ended\nnext").count(b"\n") == 1


def test_of_progress_bars_the_last_stays_and_every_word_that_is_no_bar() -> None:
    data = b"\r 10%|#  | 1/10 [00:01<00:09, 1it/s]\rloss is nan\r 20%|## | 2/10 [00:02<00:08, 1it/s]"
    kept = [part for _, part in segments(data)]
    assert kept == [b"loss is nan", b" 20%|## | 2/10 [00:02<00:08, 1it/s]"]
    assert segments(b"plain\r") == [(0, b"plain")]
    assert is_bar(b"  5%|5   | 1/20 [00:01<00:19,  1.00s/it]")
    assert not is_bar(b"{'loss': 0.5}")


@given(st.binary(max_size=600))
def test_segments_lie_where_they_say(data: bytes) -> None:
    for offset, part in segments(data):
        assert data[offset : offset + len(part)] == part


@given(st.text(max_size=400), st.booleans())
def test_stripping_never_fails_and_only_takes_away(line: str, labels: bool) -> None:
    found = strip(line, labels)
    if "\x1b" not in line and "\r" not in line and "\n" not in line and found.repeated == 1:
        assert line.endswith(found.body)


@given(
    st.sampled_from(["[rank{}]: ", "[default{}]:", "[Rank {}] ", "(W pid=1) [rank{}]: "]),
    st.integers(0, 4095),
    st.text(alphabet="abcdefgh", min_size=1, max_size=30),
)
def test_a_rank_label_is_read_whatever_stands_behind_it(label: str, rank: int, text: str) -> None:
    found = strip(label.format(rank) + text)
    assert (found.rank, found.body) == (rank, text)
