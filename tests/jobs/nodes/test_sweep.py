"""The bad node or link of an allocation: rounds, judgement, and real sweeps with real faults."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from traindoctor.agent.jobs.nodes.engine import STDOUT_LIMIT, Answer, Local, Node, launch
from traindoctor.agent.jobs.sweep import sweep_pairs
from traindoctor.agent.jobs.sweep.sweep import Sweep, _judge, sweep, verdict
from traindoctor.agent.jobs.sweep.sweep_health import Health, asked, judged
from traindoctor.agent.jobs.sweep.sweep_pairs import Level, Pair, rounds, sampled

from tests.jobs.nodes.links import Linked

DOCTOR = Path(sys.executable).with_name("doctor")
Doctor = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.mark.parametrize("count", [2, 3, 4, 5, 8, 9, 16])
def test_every_pair_meets_once_and_each_node_once_a_round(count: int) -> None:
    names = [f"n{i}" for i in range(count)]
    every = rounds(names)
    assert Counter(frozenset(two) for r in every for two in r) == {
        frozenset((a, b)): 1 for i, a in enumerate(names) for b in names[:i]
    }
    for one in every:
        assert max(Counter(name for two in one for name in two).values()) == 1


def test_of_a_large_allocation_each_node_is_in_several_pairs() -> None:
    names = [f"n{i}" for i in range(100)]
    chosen = sampled(rounds(names), 100)
    assert len(chosen) == 7 and set(Counter(name for r in chosen for two in r for name in two).values()) == {7}


def judge(count: int, bad: dict[tuple[int, int], float | None], rate: float = 10.0) -> Sweep:
    """A sweep whose pairs have these rates; None: no result."""
    result = Sweep("local", "quick", [Node(f"n{i}") for i in range(count)])
    for a, b in (two for r in rounds([str(i) for i in range(count)]) for two in r):
        got = bad.get((min(int(a), int(b)), max(int(a), int(b))), rate + 0.05 * int(a) - 0.03 * int(b))
        result.pairs.append(Pair(f"n{a}", f"n{b}", got, 0, "" if got is not None else "no result within 60 s"))
    _judge(result)
    return result


@pytest.mark.parametrize(("count", "bad", "nodes", "links"), [
    (6, {}, set(), 0),
    (6, {(i, 3): None for i in range(3)} | {(3, i): None for i in (4, 5)}, {"n3"}, 0),
    (6, {(i, 3): 2.0 for i in range(3)} | {(3, i): 2.0 for i in (4, 5)}, {"n3"}, 0),
    (6, {(1, 4): 1.0}, set(), 1),
    (6, {(1, 4): None}, set(), 1),
    (3, {(0, 1): None, (0, 2): None}, {"n0"}, 0),
    (2, {(0, 1): None}, set(), 1),
    (6, {(a, b): None for a in range(6) for b in range(a + 1, 6) if {a, b} & {1, 4}}, {"n1", "n4"}, 0),
    (5, {(a, b): None for a in range(5) for b in range(a + 1, 5) if {a, b} & {0, 2, 4}}, {"n0", "n2", "n4"}, 0),
])  # fmt: skip
def test_the_node_common_to_bad_pairs_is_bad_and_a_single_pair_is_a_link(count, bad, nodes, links):
    result = judge(count, bad)
    assert (set(result.bad), len(result.links)) == (nodes, links)


def test_where_no_pair_works_no_node_is_blamed() -> None:
    result = judge(4, {(a, b): None for a in range(4) for b in range(a + 1, 4)})
    assert result.clean and result.blind and verdict(result)[0].startswith("no verdict")
    assert any("says nothing of any node" in text for text in result.untested)


def test_noise_is_no_finding() -> None:
    noisy = {(0, 1): 6.0, (0, 2): 9.0, (0, 3): 14.0, (1, 2): 11.0, (1, 3): 5.8, (2, 3): 16.0}
    assert judge(4, dict(noisy)).clean


@pytest.mark.parametrize("count", [3, 4, 5, 6])
def test_a_slow_node_among_few_is_found_though_it_spoils_half_of_the_pairs(count: int) -> None:
    own = {(min(1, i), max(1, i)): 0.3 for i in range(count) if i != 1}
    result = judge(count, dict(own))
    assert (set(result.bad), result.links) == ({"n1"}, [])


@pytest.fixture(scope="module")
def answered() -> list[Health]:
    """What four nodes that are this machine answer."""
    return asked(Local(4), Local(4).nodes(), sys.executable, 60.0)


@pytest.fixture
def sound(answered: list[Health]) -> list[Health]:
    return copy.deepcopy(answered)


class Busy(Local):
    """A sound machine that is busy the first time each pair is tested: one of the two ranks fails by itself."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.tried: Counter[str] = Counter()

    def run(
        self, argv: Sequence[str], nodes: Sequence[str], timeout: float, stdin: bytes = b"", limit: int = STDOUT_LIMIT
    ) -> list[Answer]:
        if argv[0] == "env":
            self.tried[nodes[0]] += 1
            if nodes[0] == "local-2" and self.tried[nodes[0]] == 1:
                argv = ["sh", "-c", "echo out of something for a moment >&2; exit 1"]
        return super().run(argv, nodes, timeout, stdin, limit)


def test_what_fails_once_is_tested_again_and_ends_its_partner_at_once() -> None:
    engine, said = Busy(2), []
    result = sweep(engine, engine.nodes(), "quick", sys.executable, said.append)
    assert result.clean, verdict(result)
    assert "local-1 - local-2: local-2: out of something for a moment" in said


def test_ranks_end_when_one_of_them_fails(tmp_path: Path) -> None:
    local = Local(2)
    words = ["sh", "-c", f"[ $RANK = 1 ] && exit 5; echo $$ > {tmp_path}/waits; exec sleep 250"]
    first, second = launch(local, words, local.nodes(), 250.0)
    assert (first.code, second.code) == (-15, 5)


def test_a_head_node_without_gpus_is_no_bad_node(sound: list[Health]) -> None:
    for health in sound[1:]:
        health.gpus = {0: {"name": "A"}, 1: {"name": "A"}}
    sound[0].facts["memory"][0]["MemTotal"] //= 8
    nodes = [Node(h.node, gpus=len(h.gpus)) for h in sound]
    assert not [f for f in judged(nodes, sound) if f.bad and ("GPU" in f.what or "memory" in f.what)]
    del sound[3].gpus[1]
    assert [f.what for f in judged(nodes, sound) if f.node == "local-4" and f.bad] == ["shows 1 GPUs of 2"]


def test_a_full_or_odd_node_stands_out_from_its_peers(sound: list[Health]) -> None:
    del sound[3]
    sound[1].facts["memory"][0]["MemTotal"] //= 2
    sound[2].facts["version"] = [{"fact": "version", "of": "kernel", "value": "4.18"}]
    found = judged(Local(3).nodes(), sound)
    assert any(f.node == "local-2" and f.bad and "GiB of memory" in f.what for f in found)
    assert any(f.node == "local-3" and not f.bad and f.what.startswith("kernel is 4.18") for f in found)
    assert not [f for f in found if f.node == "local-1" and ("memory" in f.what or "kernel" in f.what)]


class Faulty(Local):
    """Nodes of this machine of which one has a real fault: its programs start otherwise."""

    def __init__(self, count: int, bad: str, before: list[str], pairs_alone: bool = False, patience: float = 99.0) -> None:
        super().__init__(count)
        self._bad, self._before, self._pairs_alone, self._patience = bad, before, pairs_alone, patience

    def run(
        self, argv: Sequence[str], nodes: Sequence[str], timeout: float, stdin: bytes = b"", limit: int = STDOUT_LIMIT
    ) -> list[Answer]:
        if len(nodes) > 1:
            return [self.run(argv, [node], timeout, stdin, limit)[0] for node in nodes]
        if nodes[0] == self._bad and (argv[0] == "env" or not self._pairs_alone):
            argv, timeout = [*self._before, *argv], min(timeout, self._patience)
        return super().run(argv, nodes, timeout, stdin, limit)


STOPS = ["sh", "-c", 'kill -STOP $$; exec "$@"', "sh"]


def test_a_node_that_does_not_answer_is_bad_and_the_others_are_not() -> None:
    engine = Faulty(3, "local-2", STOPS, patience=1.0)
    nodes = engine.nodes()
    found = judged(nodes, asked(engine, nodes, sys.executable, 60.0))
    assert [(f.node, f.what) for f in found if f.bad and "answer" in f.what][:1] == [
        ("local-2", "did not answer within 1 s")
    ]
    assert {f.node for f in found if "answer" in f.what} == {"local-2"}


def test_the_command_asks_before_it_loads_machines(doctor: Doctor) -> None:
    done = doctor("sweep", "--local", "2")
    assert done.returncode == 2 and "nobody is here to agree to it" in done.stderr
    assert "1 all-reduces in 1 rounds" in done.stderr


@pytest.mark.parametrize("words", [[], ["--local", "2", "--ray", "h:1"], ["--ray", "127.0.0.1:1", "--yes"]])
def test_what_a_user_gets_wrong_is_one_line(words: list[str], doctor: Doctor) -> None:
    done = doctor("sweep", *words)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_two_sound_nodes_are_told_to_be_sound(tmp_path: Path) -> None:
    out = tmp_path / "sweep.json"
    words = [DOCTOR, "sweep", "--local", "2", "--yes", "--json", "-o", str(out), "--fail-on", "bad"]
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=280, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stderr + done.stdout
    told = json.loads(done.stdout)
    assert json.loads(out.read_text()) == told and told["bad"] == {}
    assert [pair["backend"] for pair in told["pairs"]] == ["gloo"] and told["pairs"][0]["gbps"] > 0
    assert told["not_tested"]


@pytest.mark.soak
@pytest.mark.parametrize("before", [STOPS, ["false"]], ids=["hangs", "dies"])
def test_a_node_whose_collectives_hang_or_die_is_found(monkeypatch: pytest.MonkeyPatch, before: list[str]) -> None:
    monkeypatch.setitem(sweep_pairs.LEVELS, "quick", Level(1 << 16, 40.0, 5.0))
    engine = Faulty(4, "local-3", before, pairs_alone=True)
    result = sweep(engine, engine.nodes(), "quick", sys.executable)
    assert set(result.bad) == {"local-3"}, verdict(result)
    assert result.links == [] and "leave out: --exclude=local-3" in verdict(result)


@pytest.mark.soak
@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces take root")
@pytest.mark.parametrize("fault", ["link", "node", "cut"])
def test_a_bad_link_and_a_bad_node_are_told_apart_on_a_real_network(fault: str) -> None:
    with Linked(4) as engine:
        if fault == "link":
            engine.slow(2, 4)
        elif fault == "cut":
            engine.cut(1, 3)
        else:
            for other in (1, 2, 4):
                engine.slow(3, other)
        result = sweep(engine, engine.nodes(), "quick", sys.executable)
    assert set(result.bad) == ({"local-3"} if fault == "node" else set()), verdict(result)
    expected = {"link": [{"local-2", "local-4"}], "cut": [{"local-1", "local-3"}], "node": []}
    assert [{pair.a, pair.b} for pair, _ in result.links] == expected[fault]
