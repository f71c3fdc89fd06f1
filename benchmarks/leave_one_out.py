"""Is anything tuned to one file's wording? Each incident is diagnosed without the signatures that it alone shows.

    python -m benchmarks.leave_one_out evals/incidents evals/threads ...

A signature that matches lines of one incident and of no other may have been written for it. It is taken away, and
the incident is diagnosed again. Many such signatures are right (a rare failure is met once), so the figures are a
lower bound of what the knowledge does on wording it never saw. Proofs (`matches`) that stand in an incident word for
word are counted too: they should come from elsewhere.
"""

from __future__ import annotations

import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from unittest.mock import patch

from traindoctor.agent.core.playbook import Playbook, playbooks
from traindoctor.agent.core.report import Report
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.reading.scan import logpass as passes
from traindoctor.evals.asked import Task
from traindoctor.evals.case import Case, find
from traindoctor.evals.run import diagnose
from traindoctor.evals.score import Score, score

Name = tuple[str, int]  # a playbook's key and the number of its signature


def hit(case: Case) -> set[Name]:
    """The signatures that match lines of an incident."""
    found = passes.logpass(Workspace([case.files], live=False))
    keys = {p.key for p in playbooks()}
    return {(h.name, h.number) for name, hits in found.hits.items() if name in keys for h in hits}


def without(case: Case, removed: frozenset[Name]) -> Score:
    """The incident's score where some signatures do not exist."""
    whole = passes.run_pass

    def run_pass(*args, **kwargs) -> passes.LogPass:
        found = whole(*args, **kwargs)
        for name in {name for name, _ in removed} & set(found.hits):
            found.hits[name] = [h for h in found.hits[name] if (h.name, h.number) not in removed]
        return found

    books = tuple(_less(p, removed) for p in playbooks())
    with patch.object(passes, "run_pass", run_pass), patch("traindoctor.agent.session.graph.playbooks", lambda: books):
        answer = diagnose(Task(case.files, case.question, case.shell))
    return score(case, Report.model_validate_json(answer.report), answer.seconds)


def _less(p: Playbook, removed: frozenset[Name]) -> Playbook:
    kept = [s for n, s in enumerate(p.signatures) if (p.key, n) not in removed]
    return p if len(kept) == len(p.signatures) else p.model_copy(update={"signatures": kept})


def quoted(cases: list[Case]) -> list[str]:
    """Proofs that are a line of some incident, word for word."""
    paths = [p for case in cases for p in case.files.rglob("*") if p.is_file() and p.stat().st_size < 4 << 20]
    texts = (p.read_text(encoding="utf-8", errors="replace") for p in paths)
    lines = {" ".join(line.split()) for text in texts for line in text.splitlines()}
    proofs = [(p.slug, m) for p in playbooks() for s in p.signatures for m in s.matches]
    return [f"{slug}: {m}" for slug, m in proofs if " ".join(m.split()) in lines]


def main(paths: list[str]) -> None:
    """Print both figures, with and without, and what they differ in."""
    cases = [c for c in find(map(Path, paths)) if c.files.is_dir()]
    unique: dict[str, Case] = {str(c.files): c for c in cases}
    with ProcessPoolExecutor(2) as pool:
        hits = dict(zip(unique, pool.map(hit, unique.values(), chunksize=8), strict=True))
        seen = Counter(name for found in hits.values() for name in found)
        alone = {files: frozenset(n for n in found if seen[n] == 1) for files, found in hits.items()}
        todo = [c for c in unique.values() if alone[str(c.files)]]
        before = list(pool.map(partial(without, removed=frozenset()), unique.values()))
        again = pool.map(without, todo, [alone[str(c.files)] for c in todo])
        after = {s.id: s for s in again}
    kept = [after.get(s.id, s) for s in before]
    say = sys.stdout.write
    only = f"{sum(map(len, alone.values()))} signatures that no other shows"
    say(f"{len(before)} incidents, {len(todo)} with {only}\n")
    for name, scores in (("as it is", before), ("without those", kept)):
        exact, top3 = (sum(getattr(s, what) for s in scores) / len(scores) for what in ("exact", "top3"))
        say(f"{name:<14} exact {exact:.3f}  top-3 {top3:.3f}\n")
    for one, other in zip(before, kept, strict=True):
        if one.exact and not other.exact:
            say(f"  {one.id}: {one.said} -> {other.said}\n")
    same = quoted(list(unique.values()))
    proofs = sum(len(s.matches) for p in playbooks() for s in p.signatures)
    say(f"{len(same)} of {proofs} proofs stand in an incident\n")
    for line in same:
        say(f"  {line[:150]}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
