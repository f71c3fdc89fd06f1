"""An all-reduce between nodes two by two, in rounds of a tournament: each round pairs all, no pair comes twice."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..nodes.engine import AT_ONCE, Answer, Engine, Node, abreast, launch

SCRIPT = Path(__file__).resolve().parent.parent / "probes" / "all_reduce.py"
ALL_ROUNDS = 16  # nodes up to which every pair is tested
AGAIN = 2  # times that a pair which stands out is tested once more: machines are busy, and one sound result clears it
GIVEN_UP = 3  # pairs of a node without a result, after which its further ones tell nothing new
_PROGRAM = """{interface}
choose()
exec(compile({collective!r}, "all_reduce", "exec"))
"""
_REMARK = re.compile(r"\[[IW]\d{4} |\s*warnings\.warn|.*Warning: ")  # what torch prints on the way
_MEMORY = re.compile(r"exceeded memory limit[^,\n]*|oom.kill event[^\n]*", re.IGNORECASE)
_IN_USE = re.compile(r"EADDRINUSE|address already in use", re.IGNORECASE)

Two = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Level:
    """How much is tested: the largest message, and the seconds that a pair may take."""

    bytes: int
    seconds: float
    usual: float  # seconds that a sound pair takes, for the estimate


LEVELS = {"quick": Level(4 << 20, 60.0, 12.0), "full": Level(256 << 20, 180.0, 40.0)}


@dataclass(frozen=True, slots=True)
class Pair:
    """What a pair came to: GB/s of the largest message, or why there is no figure. `wrong`: elements of wrong value."""

    a: str
    b: str
    rate: float | None
    wrong: int = 0
    why: str = ""
    backend: str = ""


def rounds(names: Sequence[str]) -> list[list[Two]]:
    """Every pair once, each node once a round; of an odd number one rests each round (the circle method)."""
    places: list[str | None] = [*names, *([None] if len(names) % 2 else [])]
    found = []
    for _ in range(len(places) - 1):
        half = len(places) // 2
        met = zip(places[:half], reversed(places[half:]), strict=True)
        found.append([(a, b) for a, b in met if a is not None and b is not None])
        places = [places[0], places[-1], *places[1:-1]]
    return found


def sampled(every: list[list[Two]], count: int) -> list[list[Two]]:
    """All rounds of a small allocation; of a large one as many as its logarithm, evenly spread."""
    if count <= ALL_ROUNDS:
        return every
    wanted = math.ceil(math.log2(count))
    return [every[i * len(every) // wanted] for i in range(wanted)]


def tested(
    engine: Engine,
    nodes: Sequence[Node],
    chosen: list[list[Two]],
    level: Level,
    python: str,
    told: Callable[[Pair], None] = lambda _: None,
) -> list[Pair]:
    """Test the pairs of each round at the same time; on one machine one after the other, as they share its cores."""
    alone = one_machine(engine, nodes)
    by_name = {node.name: node for node in nodes}
    lost: Counter[str] = Counter()
    found: list[Pair] = []

    def test(two: Two) -> Pair:
        pair = _one(engine, [by_name[name] for name in two], level, python)
        told(pair)
        return pair

    for pairs in chosen:
        wanted = [two for two in pairs if not any(lost[name] >= GIVEN_UP for name in two)]
        done = abreast(test, wanted, 1 if alone else AT_ONCE)
        found += done
        for pair in done:
            if pair.rate is None:
                lost.update((pair.a, pair.b))
            else:  # who works with somebody is not given up
                lost[pair.a] = lost[pair.b] = -len(chosen)
    return found


def again(
    engine: Engine,
    nodes: Sequence[Node],
    pairs: Sequence[Pair],
    which: Sequence[Pair],
    bad: Callable[[Pair], bool],
    level: Level,
    python: str,
    told: Callable[[Pair], None] = lambda _: None,
) -> list[Pair]:
    """The same pairs, some tested once more; the better result counts. A node none of whose pairs works is not asked
    again and again.
    """
    by_name = {node.name: node for node in nodes}
    best = {(pair.a, pair.b): pair for pair in pairs}
    works = {name for pair in pairs if not bad(pair) for name in (pair.a, pair.b)}
    lost: Counter[str] = Counter()

    def test(two: Two) -> None:
        pair = _one(engine, [by_name[name] for name in two], level, python)
        told(pair)
        if pair.wrong or (pair.rate or 0.0) > (best[two].rate or 0.0):
            best[two] = pair
        if bad(pair):
            lost.update(dict.fromkeys(two, 1 if pair.rate else GIVEN_UP))
        else:
            works.update(two)

    for chosen in _disjoint([(pair.a, pair.b) for pair in which]):
        wanted = [two for two in chosen if not any(lost[name] >= GIVEN_UP and name not in works for name in two)]
        abreast(test, wanted, 1 if one_machine(engine, nodes) else AT_ONCE)
    return [best[pair.a, pair.b] for pair in pairs]


def _disjoint(twos: Sequence[Two]) -> list[list[Two]]:
    """In rounds in which no node is twice."""
    found: list[list[Two]] = []
    for two in twos:
        free = next((one for one in found if not any(set(two) & set(other) for other in one)), None)
        if free is None:
            found.append([two])
        else:
            free.append(two)
    return found


def one_machine(engine: Engine, nodes: Sequence[Node]) -> bool:
    """Whether the nodes share the cores of one machine, as in a trial: then pairs are tested one after the other."""
    return engine.name == "local" or len({node.address or node.name for node in nodes if node.reachable}) < 2


def _one(engine: Engine, two: list[Node], level: Level, python: str) -> Pair:
    argv = ["OMP_NUM_THREADS=1", python, "-", str(level.bytes), f"{level.seconds:g}", "0"]
    source = program()
    answers = launch(engine, argv, two, level.seconds + 5.0, source)
    if any(_IN_USE.search(answer.stderr) for answer in answers):  # somebody else had the port: another one
        answers = launch(engine, argv, two, level.seconds + 5.0, source)
    return read(two[0].name, two[1].name, answers, level)


def program() -> bytes:
    """What a rank runs: the interface is chosen, then the collective, which needs nothing but torch."""
    chooses = Path(__file__).with_name("sweep_interface.py").read_text(encoding="utf-8")
    return _PROGRAM.format(interface=chooses, collective=SCRIPT.read_text(encoding="utf-8")).encode()


def read(a: str, b: str, answers: Sequence[Answer], level: Level) -> Pair:
    """The first rank's lines, as far as they came."""
    rate, wrong, backend, ended = None, 0, "", False
    for line in answers[0].stdout.decode(errors="replace").splitlines():
        try:
            said = json.loads(line)
        except ValueError:
            continue
        if not isinstance(said, dict):
            continue
        kind = said.get("kind")
        if kind == "ranks":
            backend = str(said.get("backend"))
        elif kind == "size":
            wrong += int(said["wrong"])
            if int(said["size"]) * 4 > level.bytes:
                rate = float(said["busbw"])
        ended = ended or kind == "end"
    if ended and rate is not None:
        return Pair(a, b, rate, wrong, f"{wrong} elements were wrong" if wrong else "", backend)
    return Pair(a, b, None, wrong, _why(answers, level), backend)


def _why(answers: Sequence[Answer], level: Level) -> str:
    for answer in answers:
        if killed := _MEMORY.search(answer.stderr):
            return f"{answer.node}: {killed[0]}: the allocation gives the test too little memory"
    late = [answer for answer in answers if answer.why or answer.code == 3]  # 3: the program's own clock
    for answer in answers:
        if answer.why and "within" not in answer.why:
            return f"{answer.node} {answer.why}"
    failed = [answer for answer in answers if answer.code not in (0, 3, None) and answer.stderr.strip()]
    if failed and not late:
        lines = failed[0].stderr.strip().splitlines()
        return f"{failed[0].node}: {next((x for x in reversed(lines) if not _REMARK.match(x)), lines[-1])[:200]}"
    return f"no result within {level.seconds:g} s"
