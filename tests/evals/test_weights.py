"""The ranking's weights: rules left out by source, the fit, and what is written down of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml
from traindoctor.agent.core.own_files import KNOWLEDGE
from traindoctor.agent.core.playbook import parse, playbooks
from traindoctor.agent.core.types import Evidence
from traindoctor.agent.tools.tool import all_tools
from traindoctor.agent.verdict.predicates import Facts
from traindoctor.agent.verdict.ranking import scope_of
from traindoctor.agent.verdict.steer import Sounds
from traindoctor.agent.verdict.traits import part_of, traits_of
from traindoctor.evals.case import load
from traindoctor.evals.weighing import fit
from traindoctor.evals.weighing.gathered import Gathered, Todo, gather
from traindoctor.evals.weighing.left_out import sources_of_rules, without

EVALS = Path(__file__).resolve().parents[2] / "evals"
BOOK = parse("""---
cause: memory.fragmentation
title: The allocator is fragmented
signatures:
  - {pattern: 'CUDA out of memory', matches: ['CUDA out of memory.']}
requires:
  - {key: memory.reserved_unallocated_bytes, op: gt, value: 10}
supports:
  - {key: memory.alloc_retries, op: gt, value: 0}
---
Body.
""", "memory/fragmentation", "a.md")  # fmt: skip
CASE = load(EVALS / "incidents" / "dist-second-finetune-fails")


def seen(source: str, *keys: str) -> Gathered:
    found = [
        Evidence(key=k, value=99, text="CUDA out of memory.", file="a.log", id=f"E{n}") for n, k in enumerate(keys)
    ]
    return Gathered(Todo(CASE, "threads", source), Facts.of(found), Sounds())


def test_rules_that_hold_for_too_few_other_sources_are_left_out_and_others_stay():
    gathered = [
        seen("a/a", BOOK.key, "memory.reserved_unallocated_bytes"), seen("b/b", BOOK.key), seen("c/c", BOOK.key),
    ]  # fmt: skip
    known = sources_of_rules(gathered, [BOOK])
    (one,) = without([BOOK], known, "a/a", 1)
    assert len(one.signatures) == 1 and not one.requires, "the line is in two other sources, the number in none"
    assert len(one.supports) == 1, "what holds nowhere takes nothing away"
    (three,) = without([BOOK], known, "a/a", 3)
    assert not three.signatures
    (other,) = without([BOOK], known, "d/d", 3)
    assert other == BOOK, "a source of which nothing is known keeps every rule"


def test_transplants_are_no_sources_of_their_own():
    planted = Gathered(Todo(CASE, "planted", "e/e", ("loss.lr_too_high",)), seen("e/e", BOOK.key).facts, Sounds())
    assert not sources_of_rules([planted], [BOOK])


def test_the_evidence_of_an_incident_is_gathered_as_a_diagnosis_judges_it():
    found = gather(Todo(CASE, "incidents", "x/y"))
    assert found is not None and found.facts.get("error.first") and found.sounds.whole
    assert max(found.sounds.whole.values()) > 2


def test_the_fit_finds_what_tells_right_from_wrong():
    rng = np.random.default_rng(0)
    rows, line = [], fit.COLUMNS.index(("cause", "line"))
    for n in range(200):
        traits = np.zeros((4, len(fit.COLUMNS)))
        right = np.zeros(4)
        at = int(rng.integers(3))
        traits[at, line], right[at] = 1.0, 1.0
        rows.append(fit.Row(Todo(CASE, "threads", f"s{n % 20}"), 1, ["a", "b", "c"], traits, right, 1.0))
    weights = fit.fitted(rows)
    assert weights[line] > 3 and np.allclose(np.delete(weights, line), 0, atol=1e-6)
    for train, test in fit.folds(rows):
        assert train and test and not {r.of.source for r in train} & {r.of.source for r in test}


def test_what_is_written_is_what_is_counted():
    written = yaml.safe_load((KNOWLEDGE / "weights.yaml").read_text(encoding="utf-8"))
    assert {of: tuple(found) for of, found in written.items()} == fit.NAMES
    book = next(b for b in playbooks() if b.slug == "memory/fragmentation")
    facts = Facts.of([Evidence(key=book.key, value=1, text="CUDA out of memory.", file="a.log", line=1, id="E1")])
    assert set(traits_of(book, facts, scope_of(facts)).counts) <= set(fit.NAMES["cause"])


def test_more_for_a_cause_never_speaks_against_it():
    cause = yaml.safe_load((KNOWLEDGE / "weights.yaml").read_text(encoding="utf-8"))["cause"]
    against = {"refuted", "against", "against_asked", "general", "away", "consequence"}
    assert {name for name, weight in cause.items() if weight < 0} == against


@pytest.mark.parametrize("part", yaml.safe_load((KNOWLEDGE / "parts.yaml").read_text(encoding="utf-8")))
def test_each_entry_of_the_parts_begins_a_key_that_there_is(part: str):
    emitted = [key.rstrip("*") for tool in all_tools().values() for key in tool.emits]
    for entry in yaml.safe_load((KNOWLEDGE / "parts.yaml").read_text(encoding="utf-8"))[part]:
        known = [k for k in emitted if k.startswith(entry) or (k.endswith(".") and entry.startswith(k))]
        assert known or entry in ("sig.", "question."), entry


def test_the_first_entry_that_fits_tells_the_part():
    assert part_of("settings.asked.learning_rate") == "circumstance" and part_of("code.params_frozen") == "hazard"
    assert part_of("error.message") == "mechanism" and part_of("error.phase") == "effect"
    assert part_of("gpu.xid") == "mechanism" and part_of("compare.only_difference") == "link"
