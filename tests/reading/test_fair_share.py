"""Of many ranks that complain, the one that failed is found wherever it stands in the list."""

from traindoctor.agent.reading.logs import failures as reading
from traindoctor.agent.reading.run.workspace import Workspace

STEPS = "".join(f"step {i} loss {3 - i / 1000:.3f}\n" for i in range(300))
COMPLAINT = "[E ProcessGroupNCCL.cpp:607] [Rank {r}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9)\n"


def test_the_last_of_many_troubled_files_is_read_too(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "RUN_BUDGET", 64 << 10)
    for r in range(40):
        (tmp_path / f"rank{r:02d}.log").write_text(STEPS + COMPLAINT.format(r=r))
    failed = "Traceback (most recent call last):\n  File \"t.py\", line 3, in f\n    g()\nKeyError: 'label'\n"
    (tmp_path / "rank40.log").write_text(STEPS + failed)
    found = reading.failures(Workspace([tmp_path]))
    assert found.first is not None and found.first.rank == 40
