"""Tracebacks as units, in all the shapes that logs show them in."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from traindoctor.agent.reading.logs.tracebacks import Failure, Parser, reads
from traindoctor.agent.reading.run.files import Line, RunFile

FILE = RunFile("train.log", Path("train.log"), "log", 1)


def parse(text: str) -> list[Failure]:
    parser = Parser(FILE)
    lines = (Line(n, 0, part.encode()) for n, part in enumerate(text.split("\n"), 1))
    for read in reads(lines):
        parser.feed(read)
    return parser.finish()


PLAIN = """starting
Traceback (most recent call last):
  File "train.py", line 10, in <module>
    main()
  File "/venv/lib/python3.11/site-packages/torch/nn.py", line 3, in forward
    return x @ y
           ^^^^^
RuntimeError: mat1 and mat2 shapes cannot be multiplied
step 3 loss 2.0
"""


def test_a_plain_traceback() -> None:
    (f,) = parse(PLAIN)
    assert (f.type, f.message, f.line.number) == ("RuntimeError", "mat1 and mat2 shapes cannot be multiplied", 8)
    assert [(x.function, x.code, x.line.number) for x in f.frames] == [
        ("<module>", "main()", 4),
        ("forward", "return x @ y", 6),
    ]


def test_interleaved_ranks_come_apart() -> None:
    lines = PLAIN.split("\n")[1:8]
    mixed = "\n".join(f"[rank{r}]: {line}" for line in lines for r in (0, 1))
    found = parse(mixed)
    assert sorted(f.rank or 0 for f in found) == [0, 1]
    assert all(len(f.frames) == 2 and f.type == "RuntimeError" for f in found)


def test_chained_exceptions_know_their_origin() -> None:
    text = (
        'Traceback (most recent call last):\n  File "a.py", line 1, in f\n    d["x"]\nKeyError: \'x\'\n\n'
        "During handling of the above exception, another exception occurred:\n\n"
        'Traceback (most recent call last):\n  File "a.py", line 3, in g\n    raise ValueError("no x")\nValueError: no x\n'
    )
    first, second = parse(text)
    assert second.origin is first and first.type == "KeyError" and second.type == "ValueError"


def test_ray_prints_the_inner_frames_without_a_header() -> None:
    text = (
        'Traceback (most recent call last):\n  File "t.py", line 1, in <module>\n    ray.get(x)\n'
        "ray.exceptions.RayTaskError(TypeError): ray::W.f() (pid=1, ip=1.2.3.4)\n"
        '  File "w.py", line 9, in f\n    return a + b\n           ~~^~~\nTypeError: can only concatenate list\n'
    )
    outer, inner = parse(text)
    assert outer.type == "ray.exceptions.RayTaskError(TypeError)" and outer.origin is inner
    assert inner.frames[-1].code == "return a + b"


def test_a_worker_exception_carries_its_original() -> None:
    text = (
        'Traceback (most recent call last):\n  File "t.py", line 1, in <module>\n    for b in loader:\n'
        "ValueError: Caught ValueError in DataLoader worker process 0.\n"
        'Original Traceback (most recent call last):\n  File "d.py", line 5, in __getitem__\n    int(x)\nValueError: bad id\n'
    )
    outer, inner = parse(text)
    assert outer.origin is inner and inner.message == "bad id"


def test_notebook_style() -> None:
    text = (
        "---------------------------------------------------------------------------\n"
        "OutOfMemoryError                          Traceback (most recent call last)\n"
        "<ipython-input-14> in <cell line: 1>()\n----> 1 trainer.evaluate()\n\n"
        "/usr/lib/python3.10/dist-packages/transformers/trainer.py in loop(self, x)\n"
        "   3268 \n-> 3269     preds = nested_concat(preds, logits)\n   3270     pass\n\n"
        "OutOfMemoryError: CUDA out of memory. Tried to allocate 12.94 GiB\n"
    )
    (f,) = parse(text)
    assert f.type == "OutOfMemoryError" and f.line.number == 11
    assert [x.code for x in f.frames] == ["trainer.evaluate()", "preds = nested_concat(preds, logits)"]
    assert f.frames[1].function == "loop"


def test_the_lines_behind_a_message_belong_to_it() -> None:
    text = "\n".join(
        "[rank1]: " + x
        for x in (
            "Traceback (most recent call last):",
            '  File "a.py", line 1, in f',
            "    init()",
            "torch.distributed.DistBackendError: NCCL error in: x.cpp:1, invalid usage",
            "ncclInvalidUsage: This usually reflects invalid usage of NCCL library.",
            "Last error:",
            "Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 2000",
        )
    )
    (f,) = parse(text)
    assert any("Duplicate GPU" in t for _, t in f.details)
    assert f.details[-1][0].number == 7


def test_one_line_exceptions_and_logged_ones() -> None:
    assert parse("[rank0]: RuntimeError: CUDA error")[0].rank == 0
    logged = parse("2024-04-18 15:55:06 CRITICAL [a.b:158, rank=6] Uncaught HfHubHTTPError: 429 Client Error")[0]
    assert (logged.type, logged.rank) == ("HfHubHTTPError", 6)
    assert parse("mean_absolute_error: 0.5") == []
    assert parse("no errors: all fine") == []


def test_native_crashes() -> None:
    (f,) = parse("terminate called after throwing an instance of 'c10::Error'\n  what():  CUDA error: bad\n")
    assert f.kind == "native" and f.message == "CUDA error: bad"
    (f,) = parse(
        '!!!!!!! Segfault encountered !!!!!!!\n  File "<unknown>", line 0, in cuMemcpy\n  File "<unknown>", line 0, in copy_\n'
    )
    assert [x.function for x in f.frames] == ["copy_", "cuMemcpy"]
    (f,) = parse(
        'Fatal Python error: Segmentation fault\n\nCurrent thread 0x1 (most recent call first):\n  File "a.py", line 3 in g\n  File "a.py", line 9 in f\n'
    )
    assert f.frames[-1].function == "g"
    assert parse("zsh: segmentation fault  python a.py")[0].kind == "native"


def test_an_exception_group_comes_from_its_inner_exception() -> None:
    text = (
        '  + Exception Group Traceback (most recent call last):\n  |   File "a.py", line 1, in <module>\n  |     main()\n'
        "  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)\n  +-+---------------- 1 ----------------\n"
        '    | Traceback (most recent call last):\n    |   File "b.py", line 2, in g\n    |     raise x\n    | ValueError: inner\n'
    )
    outer, inner = parse(text)
    assert outer.origin is inner and inner.message == "inner"


def test_a_failed_check_of_native_code_is_a_crash() -> None:
    (f,) = parse(
        "F1129 16:13:39.05 8120 syncedmem.cpp:56] Check failed: error == cudaSuccess (2 vs. 0)  out of memory\n"
    )
    assert f.kind == "native" and "out of memory" in f.message


def test_logged_tracebacks_of_an_engine() -> None:
    head = "(EngineCore_DP0 pid=1) ERROR 09-20 14:02:30 [core.py:708] "
    text = "\n".join(
        head + x
        for x in [
            "Traceback (most recent call last):",
            '  File "c.py", line 6, in run',
            "    raise x",
            "ValueError: No memory",
        ]
    )
    (f,) = parse(text)
    assert (f.type, f.frames[0].code, f.source) == ("ValueError", "raise x", "EngineCore_DP0:1")


def test_consequences_are_marked() -> None:
    assert parse("torch.distributed.elastic.multiprocessing.errors.ChildFailedError: x")[0].cascade == "launcher"
    assert parse("KeyboardInterrupt: stop")[0].cascade == "terminated"
    assert parse("RuntimeError: CUDA out of memory.")[0].cascade is None


PIECES = st.sampled_from(
    [
        *PLAIN.split("\n"),
        "",
        "\r 1%|# | 1/9 [00:01<00:09, 1it/s]",
        "During handling of the above exception",
        "----> 1 f()",
        '[rank0]:   File "a", line 1',
        "Fatal Python error: x",
        "  | foo",
        "frame #0: a",
    ]
)


@given(st.lists(st.one_of(PIECES, st.text(max_size=60)), max_size=40))
def test_parsing_never_fails_and_cites_lines_that_exist(pieces: list[str]) -> None:
    text = "\n".join(pieces)
    count = text.count("\n") + 1
    for f in parse(text):
        assert 1 <= f.line.number <= count
        assert all(1 <= x.line.number <= count for x in f.frames)
        assert f.origin is not None
