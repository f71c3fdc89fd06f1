"""One cause held against the evidence: what speaks for it, what against, what is missing, what would settle it.

weighed = weigh("why not a straggler?", facts, playbooks, sounds)
weighed.cause, weighed.sentences, weighed.text, weighed.checks
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ..core.playbook import Playbook, Predicate
from ..core.report import Sentence
from ..core.types import Hypothesis
from ..tools.tool import all_tools
from .meaning import Meaning, meaning
from .predicates import Facts, State, judge
from .ranking import rank, weights
from .salience import listing, quote
from .steer import Sounds
from .traits import ASKED, STRENGTH, describe

Part = Literal["requires", "any_of", "supports", "contradicts"]
SHORT = 60  # characters of a value that is told itself
SHOWN = 6  # predicates, lines and checks of one kind
UNSEEN = "No line that was read carries a signature of it, and no finding bears it out."
UNSUPPORTED = "no predicate of its playbook holds in its favour"  # what was not looked for may still be so
TELLING = 0.05  # probability from which a meaning of the words is preferred to a nearer one


@dataclass(frozen=True, slots=True)
class Test:
    """A predicate of a playbook as it came out, the evidence that decided it, and what it weighs."""

    part: Part
    predicate: Predicate
    state: State
    ids: tuple[str, ...]
    weight: float

    @property
    def words(self) -> str:
        p = self.predicate
        if p.op == "matches" and str(p.value) in (".", ".+", ".*"):  # any text at all
            return f"{p.key} seen"
        return describe(p)

    def shown(self, facts: Facts) -> str:
        """What decided it in the evidence's own words, without the bound it was held against: it passes the gate."""
        p = self.predicate
        found = [e for e in facts.get(p.key) if e.id in self.ids and e.kind != "absent"]
        if not found:
            return f"{p.key} looked for, not there" if self.ids else self.words
        if p.op in ("exists", "absent") or p.key.startswith(("lint.", "sig.")):
            return f"{p.key} seen"
        e = found[0]
        if isinstance(e.value, bool | int | float) or (isinstance(e.value, str) and " " not in e.value[:SHORT]):
            return f"{p.key} is {e.value}" if len(str(e.value)) <= SHORT else f"{p.key} seen"
        return f"{p.key}: {quote(e.text)}" if e.text.strip() else f"{p.key} seen"


@dataclass(slots=True)
class Weighed:
    """A cause under the evidence.

    Attributes:
        cause: the cause that was weighed; None where the words name none.
        others: further causes that the words may mean.
        own: how the ranking has it, None where nothing at all speaks for it.
        leader: what the ranking puts first.
        seen: ids of lines that its signatures hit.
        checks: tools that could still tell, in the order the playbook names them.
        sentences: the same in sentences with their citations.
        text: the whole as plain text, one fact a line.
    """

    asked: str
    cause: str | None = None
    title: str = ""
    playbook: str = ""
    others: list[str] = field(default_factory=list)
    own: Hypothesis | None = None
    leader: Hypothesis | None = None
    seen: list[str] = field(default_factory=list)
    tests: list[Test] = field(default_factory=list)
    checks: list[str] = field(default_factory=list)
    sentences: list[Sentence] = field(default_factory=list)
    text: str = ""

    @property
    def is_leader(self) -> bool:
        return self.leader is not None and self.leader.cause == self.cause

    def of(self, part: Part, *states: State) -> list[Test]:
        """Tests of a part that came out so."""
        return [t for t in self.tests if t.part == part and t.state in states]


def weigh(words: str, facts: Facts, playbooks: Sequence[Playbook], sounds: Sounds | None = None) -> Weighed:
    """Weigh the cause that words name against everything known.

    Args:
        words: an id of a cause, a playbook, a title, or a question that names one ("could it be fragmentation?").
        sounds: as for `ranking.rank`.
    """
    found = meaning(words, playbooks)
    out = Weighed(found.words or words)
    if not found.causes:
        return _nothing(out, found)
    ranked = rank(playbooks, facts, sounds)
    by_cause = {h.cause: h for h in ranked}
    chosen = _chosen(found, by_cause)
    out.cause, out.others = chosen, [c for c in found.causes if c != chosen]
    out.own, out.leader = by_cause.get(chosen), ranked[0] if ranked else None
    book = _book(chosen, found, out.own, playbooks, facts, sounds)
    out.playbook, out.title = book.slug, book.title
    out.seen = [e.id for e in facts.get(book.key) if e.id]
    out.tests = _tests(book, facts)
    out.checks = _checks(book, facts)
    out.sentences = _sentences(out, book, facts, by_cause)
    out.text = _text(out)
    return out


def _text(out: Weighed) -> str:
    """For a model: the probabilities, the sentences, then every test with what it was held against."""
    rows = [f"{out.cause}: {share(out.own)}"]
    if out.leader and not out.is_leader:
        rows.append(f"the evidence puts first: {out.leader.cause}, {share(out.leader)}")
    rows += [f"{s.text}{f' [{chr(44).join(s.cites)}]' if s.cites else ''}" for s in out.sentences]
    for t in out.tests:
        if t.part != "any_of" or t.state == "true":
            rows.append(f"{t.part} ({t.weight:+g}): {t.words}: {t.state}{_cited(t.ids)}")
    for state in ("false", "missing"):
        if alike := out.of("any_of", state):
            more = f"; ... and {len(alike) - 3} more" if alike[3:] else ""
            ids = tuple(dict.fromkeys(i for t in alike for i in t.ids))
            words = "; ".join(t.words for t in alike[:3])
            rows.append(f"any_of, {len(alike)} {state}: {words}{more}{_cited(ids)}")
    return "\n".join(rows)


def _cited(ids: Sequence[str]) -> str:
    return f" [{','.join(ids[:SHOWN])}]" if ids else ""


def _chosen(found: Meaning, by_cause: Mapping[str, Hypothesis]) -> str:
    """The meaning nearest to the words, unless only another of them has evidence to speak of."""
    telling = [c for c in found.causes if (h := by_cause.get(c)) and h.probability >= TELLING]
    return telling[0] if telling else found.causes[0]


def _nothing(out: Weighed, found: Meaning) -> Weighed:
    near = f" Near are: {', '.join(found.near[:4])}." if found.near else ""
    out.others = found.near[:4]
    out.sentences = [Sentence(text=f"The words name no cause that is known.{near}")]
    out.text = out.sentences[0].text
    return out


def _book(
    cause: str, found: Meaning, own: Hypothesis | None, playbooks: Sequence[Playbook], facts: Facts,
    sounds: Sounds | None,
) -> Playbook:  # fmt: skip
    """Of the playbooks of a cause: the one named, else the one that the evidence carries furthest."""
    books = [p for p in playbooks if p.cause == cause]
    named = next((p for p in books if p.slug == found.playbook), None)
    ranked = named or next((p for p in books if own and p.slug == own.playbook), None)
    if ranked:
        return ranked
    scored = {p.slug: h[0].score for p in books if (h := rank([p], facts, sounds))}
    return max(books, key=lambda p: (scored.get(p.slug, -100.0), not p.general))


def _tests(book: Playbook, facts: Facts) -> list[Test]:
    parts: list[tuple[Part, list[Predicate]]] = [
        ("requires", book.requires), ("any_of", book.any_of), ("supports", book.supports),
        ("contradicts", book.contradicts),
    ]  # fmt: skip
    out = []
    for part, predicates in parts:
        for p in predicates:
            found = judge(p, facts)
            out.append(Test(part, p, found.state, found.ids, _weight(part, p)))
    return out


def _weight(part: Part, p: Predicate) -> float:
    """Log odds of a predicate where it holds; what is required and the signs prove together, and count once."""
    known, asked = weights()["cause"], p.key.startswith(ASKED)
    if part in ("requires", "any_of"):
        return known["proven"]
    name = {"supports": "support", "contradicts": "against"}[part]
    if asked:
        name = {"support": "asked", "against": "against_asked"}[name]
    return round(known[name] * STRENGTH[p.weight], 2)


def _checks(book: Playbook, facts: Facts) -> list[str]:
    """What could still tell: checks of the playbook not made, then tools that would give a missing key."""
    tools = all_tools()
    open_keys = [
        p.key for p in (*book.requires, *book.any_of, *book.supports) if judge(p, facts).state == "missing"
    ]  # fmt: skip
    named = [name for name in book.checks if name in tools]
    giving = [n for key in open_keys for n, t in tools.items() if t.allows(key) and not key.startswith("question.")]
    return [n for n in dict.fromkeys([*named, *giving]) if n not in facts.looked][:SHOWN]


def _sentences(out: Weighed, book: Playbook, facts: Facts, by_cause: Mapping[str, Hypothesis]) -> list[Sentence]:
    said = [_verdict(out)]
    if out.others:
        also = "; ".join(f"{c} ({'some' if c in by_cause else 'no'} evidence)" for c in out.others[:4])
        said.append(Sentence(text=f"The words may also mean: {also}."))
    said += _for_it(out, facts) or [Sentence(text=UNSEEN)]
    said += _against(out, facts)
    said += _open(out)
    if out.leader and not out.is_leader:
        said.append(
            Sentence(
                text=f"What leads instead is {out.leader.cause} ({out.leader.title}).",
                cites=out.leader.supported_by[:SHOWN],
            )
        )
    if out.checks:
        tools = ", ".join(f"doctor tool {name.replace('_', '-')}" for name in out.checks[:3])
        said.append(Sentence(text=f"What could tell, given something to read: {tools}."))
    if book.next_steps and not out.is_leader:
        said.append(Sentence(text=f"What would tell: {book.next_steps[0]}"))
    return said


def _verdict(out: Weighed) -> Sentence:
    """The answer in one sentence."""
    name = f"{out.cause} ({out.title})"
    own = out.own
    if own is None:
        return Sentence(text=f"{name}: {UNSUPPORTED}.")
    if out.is_leader and own.score > 0:
        return Sentence(text=f"{name} is what the evidence puts first.", cites=own.supported_by[:SHOWN])
    if own.explained_by:
        text = f"{name} is there as a consequence of {own.explained_by} rather than the cause."
        return Sentence(text=text, cites=own.supported_by[:SHOWN])
    behind = f" stands behind {out.leader.cause}" if out.leader and not out.is_leader else " is not established"
    why = "evidence speaks against it" if own.contradicted_by else "what would prove it is not there"
    return Sentence(text=f"{name}{behind}: {why}.", cites=own.contradicted_by[:SHOWN])


def share(h: Hypothesis | None) -> str:
    """The probability of a hypothesis in words."""
    if h is None:
        return UNSUPPORTED
    return "under 1 %" if h.probability < 0.01 else f"{h.probability:.0%}".replace("%", " %")


def _for_it(out: Weighed, facts: Facts) -> list[Sentence]:
    """Signature lines, then predicates that hold, each with its evidence."""
    lines = [e for e in facts.get("sig." + out.playbook.replace("/", ".")) if e.kind != "absent"]
    said = listing(lines, SHOWN)
    for t in [*out.of("requires", "true"), *out.of("any_of", "true"), *out.of("supports", "true")][: 2 * SHOWN]:
        if t.ids:
            said.append(Sentence(text=f"For it: {t.shown(facts)}{_why(t)}.", cites=list(t.ids[:SHOWN])))
    return list({s.text: s for s in said}.values())


def _against(out: Weighed, facts: Facts) -> list[Sentence]:
    """Contradictions that hold, and requirements that were looked for and are not met."""
    said = [
        Sentence(text=f"Against it: {t.shown(facts)}{_why(t)}.", cites=list(t.ids[:SHOWN]))
        for t in out.of("contradicts", "true")[:SHOWN]
    ]
    for t in out.of("requires", "false")[:SHOWN]:
        text = f"Required and looked for, but not so: {t.words}{_found(t, facts)}{_why(t)}."
        said.append(Sentence(text=text, cites=list(t.ids[:SHOWN])))
    any_of = out.of("any_of", "true", "false", "missing")
    if any_of and not out.of("any_of", "true") and (false := out.of("any_of", "false")):
        words = "; ".join(t.words for t in false[:3]) + (f" and {len(false) - 3} more" if false[3:] else "")
        ids = list(dict.fromkeys(i for t in false for i in t.ids))[:SHOWN]
        text = f"One of its {len(any_of)} signs would have to be there; {len(false)} looked for do not hold: {words}."
        said.append(Sentence(text=text, cites=ids))
    return said


def _open(out: Weighed) -> list[Sentence]:
    """What is not known: neither seen nor looked for with success."""
    required = out.of("requires", "missing")
    any_of = out.of("any_of", "missing") if not out.of("any_of", "true") else []
    missing = [*required, *any_of]
    if not missing:
        return []
    words = "; ".join(dict.fromkeys(t.words.removesuffix(" seen") for t in missing[:4]))
    kind = "required" if required else "any of which would speak for it"
    return [Sentence(text=f"Not known, {kind}: {words}.")]


def _found(t: Test, facts: Facts) -> str:
    shown = t.shown(facts)
    return f", as {shown}" if shown != t.words else ""


def _why(t: Test) -> str:
    return f" ({t.predicate.why.rstrip('.')})" if t.predicate.why else ""
