"""Programs on several nodes that are this machine: every answer is its node's own."""

from __future__ import annotations

from pathlib import Path

from traindoctor.agent.jobs.nodes.engine import Local, launch


def test_every_node_answers_in_order() -> None:
    answers = Local(3).run(["cat"], ["local-3", "local-1"], 20.0, b"hello")
    assert [(a.node, a.code, a.stdout, a.why) for a in answers] == [
        ("local-3", 0, b"hello", ""),
        ("local-1", 0, b"hello", ""),
    ]


def test_a_code_that_is_not_0_is_an_answer() -> None:
    (answer,) = Local().run(["sh", "-c", "echo bad >&2; exit 3"], ["local-1"], 20.0)
    assert (answer.code, answer.stderr, answer.why) == (3, "bad\n", "")


def test_a_program_that_hangs_is_ended_with_what_it_started(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    (answer,) = Local().run(["sh", "-c", f"sleep 300 & echo $! > {pid}; wait"], ["local-1"], 3.0)
    assert answer.code is None and answer.why == "did not answer within 3 s"
    stat = Path("/proc") / pid.read_text().strip() / "stat"
    assert not stat.exists() or stat.read_text().split()[2] == "Z"


def test_a_program_that_is_not_there_and_one_that_prints_without_end() -> None:
    assert Local().run(["no-such-program"], ["local-1"], 5.0)[0].why == "has no such program: no-such-program"
    (answer,) = Local().run(["sh", "-c", "yes | head -c 3000000"], ["local-1"], 20.0, limit=1000)
    assert (answer.code, len(answer.stdout)) == (0, 1000)


def test_a_program_that_does_not_read_its_input_is_not_waited_for() -> None:
    (answer,) = Local().run(["true"], ["local-1"], 20.0, b"x" * (1 << 22))
    assert answer.code == 0


def test_ranks_of_one_job_know_each_other() -> None:
    local = Local(2)
    answers = launch(
        local, ["sh", "-c", "echo $RANK $WORLD_SIZE $LOCAL_RANK $MASTER_ADDR $MASTER_PORT"], local.nodes(), 20.0
    )
    first, second = (a.stdout.decode().split() for a in answers)
    assert (first[:4], second[:4]) == (["0", "2", "0", "127.0.0.1"], ["1", "2", "0", "127.0.0.1"])
    assert first[4] == second[4]
