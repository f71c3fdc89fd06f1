"""Quoted lines are looked up again; what does not stand there does not count."""

from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.tool import all_tools
from traindoctor.agent.verdict.gate import verified

LOG = (
    b"\x1b[32m[rank0]: step 1 loss 2.5\x1b[0m\n"
    b"prefix [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=BROADCAST)\n"
    b"\x1b[31m[rank1]: Traceback (most recent call last):\x1b[0m\n"
    b'[rank1]:   File "train.py", line 3, in main\n'
    b"[rank1]:     loss.backward()\n"
    b"[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\r\n"
    b"bad \xff\xfe bytes loss nan\n"
    b"[rank2]: step 1 loss nan"
)


def test_every_tool_quotes_what_stands_there(tmp_path):
    (tmp_path / "train.log").write_bytes(LOG)
    ws = Workspace([tmp_path])
    for name, tool in all_tools().items():
        if tool.recall:
            evidence = tool(ws).evidence
            assert verified(evidence, ws) == (evidence, 0), name


def test_a_line_that_is_not_there_is_left_out(tmp_path):
    (tmp_path / "train.log").write_bytes(LOG)
    ws = Workspace([tmp_path])
    line = next(iter(ws.lines(ws.files[0])))
    good = ws.cite(ws.files[0], line, "log.line")
    wrong = [good.with_(text="step 9 loss 9"), good.with_(offset=(good.offset or 0) + 3)]
    assert verified([good, *wrong], ws) == ([good], 2)
