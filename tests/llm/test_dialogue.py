"""A request stays within its bytes however long the dialogue grows, and remains one that a server takes."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from traindoctor.agent.core.types import Call, Evidence
from traindoctor.agent.llm import framing
from traindoctor.agent.llm.brief import asked_evidence, fresh_results, result_text
from traindoctor.agent.llm.dialogue import messages
from traindoctor.agent.llm.framing import room
from traindoctor.agent.safety.fences import OPEN, SHUT, fenced
from traindoctor.agent.verdict.planner import View
from traindoctor.agent.verdict.predicates import Facts

FLOOR = 5_000  # bytes: the opening, an end of the question and one exchange of a few calls


def view_of(texts: list[str], cut: int = 0) -> View:
    calls = [Call("grep_logs", {"pattern": f"p{n}"}) for n in range(len(texts))]
    results = [
        {"call": {"tool": c.tool, "args": c.args}, "outcome": "finding", "summary": f"found {n}", "text": t, "cut": cut}
        for n, (c, t) in enumerate(zip(calls, texts, strict=True))
    ]
    return View("why?", Facts(), (), results=results, evidence_of=[() for _ in texts])


def identity(number: int) -> str:
    return Call("grep_logs", {"pattern": f"p{number}"}).identity


def size(found: list[dict[str, Any]]) -> int:
    return len(json.dumps(found, ensure_ascii=False, separators=(",", ":")).encode())


def wrong(found: list[dict[str, Any]]) -> list[str]:
    """What a server would refuse."""
    waiting: list[str] = []
    told: list[str] = []
    for m in found:
        if m["role"] == "tool":
            if m["tool_call_id"] in waiting:
                waiting.remove(m["tool_call_id"])
            else:
                told.append(f"{m['tool_call_id']} answers nothing")
            continue
        told += [f"{c} has no answer" for c in waiting]
        waiting = [c["id"] for c in m.get("tool_calls", ())]
        for c in m.get("tool_calls", ()):
            assert isinstance(json.loads(c["function"]["arguments"]), dict)
        told += [] if m["content"] or waiting else ["an empty message"]
    return told + [f"{c} has no answer" for c in waiting]


def unclosed(found: list[dict[str, Any]]) -> list[str]:
    texts = [str(m["content"]) for m in found[1:]]
    return [t for t in texts if t.count(f"{OPEN}data ") != t.count(f"{OPEN}/data{SHUT}")]


TEXTS = st.builds(
    lambda line, times, n: fenced("\n".join([f"{line} {n}"] * times), "a file") if n % 2 else f"{line} " * times,
    st.text('abc "\\\u00e4\u4e2d\U0001f525\n', min_size=1, max_size=60),
    st.integers(1, 400),
    st.integers(0, 9),
)


@st.composite
def dialogues(draw: st.DrawFn) -> tuple[list[dict[str, Any]], int]:
    """Entries as planner and session leave them, with what an interruption may do to them."""
    entries: list[dict[str, Any]] = [{"is": "setup", "tools": [], "window": 0}]
    made = 0
    for _ in range(draw(st.integers(1, 4))):
        entries.append({"is": "user", "text": draw(TEXTS), "opens": True, "turn": 1})
        for _ in range(draw(st.integers(0, 6))):
            kind = draw(st.sampled_from(["calls", "calls", "calls", "prose", "plain", "concluded"]))
            if kind in ("plain", "concluded"):
                entries.append({"is": kind})
            elif kind == "prose":
                entries.append({"is": "model", "text": draw(st.just("") | TEXTS), "calls": []})
                entries.append({"is": "user", "text": "Call a tool.", "opens": False})
            else:
                count = draw(st.integers(1, 6))
                ids = [f"c{made + n}" for n in range(count)]
                arguments = json.dumps({"pattern": draw(TEXTS)[:3000]})
                calls = [{"id": i, "name": "grep_logs", "arguments": arguments} for i in ids]
                entries.append({"is": "model", "text": draw(st.just("") | TEXTS), "calls": calls})
                for n, i in enumerate(ids):
                    if draw(st.booleans()):
                        entries.append({"is": "tool", "id": i, "text": draw(TEXTS)})
                    elif draw(st.integers(0, 9)):
                        entries.append({"is": "result", "id": i, "identity": identity((made + n) % 12)})
                made += count
    if draw(st.booleans()):
        entries.append({"is": "tool", "id": "c9999", "text": "answers nothing"})
    return entries, made


@settings(max_examples=60, deadline=None)
@given(
    dialogues(), st.lists(TEXTS, min_size=0, max_size=12), st.sampled_from([4_096, 8_192, 16_384, 131_072]), st.data()
)
def test_any_dialogue_is_taken_and_fits(
    said: tuple[list[dict[str, Any]], int], texts: list[str], window: int, data: st.DataObject
) -> None:
    entries, _ = said
    before = json.dumps(entries)
    layout = room(window)
    beside = data.draw(st.integers(0, 2_500 if layout.scant else 9_000))
    most = data.draw(st.just(1 << 40) | st.integers(FLOOR + 2_800 + beside, 60_000))
    found = messages(view_of(texts), entries, layout, most, beside)
    assert not wrong(found) and not unclosed(found)
    assert size(found) + beside <= max(min(most, layout.dialogue), FLOOR + 2_800 + beside)
    assert found[0]["role"] == "system" and [m["role"] for m in found].count("system") == 1
    assert json.dumps(entries) == before
    asked = [e["text"] for e in entries if e["is"] == "user" and e["opens"]][-1]
    assert any(m["role"] == "user" and asked[:60] in m["content"] for m in found)
    spoken = [e for e in entries if e["is"] == "model"]
    if spoken and spoken[-1]["calls"]:
        last = [c["id"] for c in next(m for m in reversed(found) if m["role"] == "assistant")["tool_calls"]]
        assert last == [c["id"] for c in spoken[-1]["calls"]][: len(last)]


def exchange(number: int, text: str = "I look.") -> list[dict[str, Any]]:
    call = {"id": f"c{number}", "name": "grep_logs", "arguments": json.dumps({"pattern": f"p{number}"})}
    return [
        {"is": "model", "text": text, "calls": [call]},
        {"is": "result", "id": f"c{number}", "identity": identity(number)},
    ]


def opening(text: str) -> dict[str, Any]:
    return {"is": "user", "text": text, "opens": True}


def test_what_is_left_out_is_counted_with_the_way_back() -> None:
    view = view_of(["a line\n" * 300] * 200)
    entries = [opening("Question: first?"), *(e for n in range(150) for e in exchange(n, "thinking " * 60))]
    entries += [opening("Next question: second?"), *(e for n in range(150, 200) for e in exchange(n, "thinking " * 60))]
    found = messages(view, entries, room(16_384), 1 << 40, 9_000)
    told = next(m["content"] for m in found if "are left out" in str(m["content"]))
    calls = sum(len(m.get("tool_calls", ())) for m in found)
    assert told.startswith(f"{200 - calls} earlier calls are left out, with 1 earlier questions;")
    assert f"result/1 to result/{200 - calls} (read_lines)" in told and "grep_logs(pattern=" in told
    assert [m["content"] for m in found if m["role"] == "user"] == ["Next question: second?", told]
    assert found[-1]["content"].count("a line") > 100


def test_a_short_dialogue_is_sent_as_it_is() -> None:
    entries = [opening("Question: why?"), *exchange(0)]
    found = messages(view_of(["x" * 2_000]), entries, room(131_072), 1 << 40, 9_000)
    assert "x" * 2_000 in found[-1]["content"] and "hortened" not in json.dumps(found)


def test_many_calls_at_once_and_a_long_opening_give_way_in_their_turn() -> None:
    calls = [{"id": f"c{n}", "name": "none", "arguments": "{}"} for n in range(64)]
    entries = [opening("Question: why?\n" + "overview\n" * 3_000), {"is": "model", "text": "", "calls": calls}]
    entries += [{"is": "tool", "id": c["id"], "text": "not run " * 200} for c in calls]
    for most in (9_000, 14_000, 60_000):
        found = messages(view_of([]), entries, room(131_072), most, 2_500)
        assert size(found) + 2_500 <= most and not wrong(found)
        assert "characters are shown; show_evidence has the rest]" in found[1]["content"]
        assert len(found[1]["content"]) <= most // 3 + 120


def test_how_to_answer_without_tools_stays() -> None:
    rule = "Answer with one JSON object " + "of this schema " * 60
    entries = [opening("Question: why?"), {"is": "plain"}, {"is": "user", "text": rule}]
    for n in range(60):
        entries += [{"is": "model", "text": "prose " * 300, "calls": []}, {"is": "user", "text": f"again {n}"}]
    found = messages(view_of([]), entries, room(8_192), 1 << 40)
    assert rule in [m["content"] for m in found] and found[-1]["content"] == "again 59"


@given(st.lists(st.integers(0, 9_000), min_size=1, max_size=12), st.sampled_from([8_192, 131_072]))
@settings(max_examples=25, deadline=None)
def test_a_result_is_read_to_its_last_character(lengths: list[int], window: int) -> None:
    lines = [f"{n}{chr(0x61 + n) * size}" for n, size in enumerate(lengths)]
    view, layout, read, start, offset = view_of(["\n".join(lines)], cut=77), room(window), "", 1, 0
    for _ in range(200):
        text = result_text(view, 1, layout, start, offset)
        body = text.split(SHUT + "\n", 1)[1].rsplit(f"\n{OPEN}/data", 1)[0].removeprefix("found 0\n")
        body, _, told = body.rpartition("\n[") if "\n[" in body else ("", "", body.removeprefix("["))
        read += body
        assert "77 characters behind the last line were not kept" in told
        if "reads on" not in told:
            break
        after = told.split("start=")[1].split(")")[0]
        start, offset = int(after.split(",")[0]), int(after.partition("offset=")[2] or 0)
        read += "" if offset else "\n"
    assert read == "\n".join(lines)
    assert "there are" in result_text(view, 1, layout, len(lines) + 1)


def test_new_results_are_shown_while_they_fit_and_the_others_counted() -> None:
    view, layout = view_of(["line\n" * 2_000] * 9), room(16_384)
    text = fresh_results(view, [2, 3, 5, 8, 9], layout)
    assert "grep_logs(pattern='p1')" in text and "result/2" in text
    assert len(text) <= 2 * layout.result + 1_500
    assert text.splitlines()[-1].endswith("more: result/3 to result/9; read_lines shows them")
    assert fresh_results(view, [], layout) == ""
    assert "more:" not in fresh_results(view_of(["x"] * 5), [1, 2, 3, 4, 5], layout)


def test_evidence_that_is_not_shown_is_named() -> None:
    found = [
        Evidence(key="log.match", value="x", file="f.log", line=n, text=f"line {n} {'y' * 200}", id=f"E{n}")
        for n in range(1, 200)
    ]
    view = View("why?", Facts.of(found), ())
    text = asked_evidence(view, [], "log.*", room(8_192))
    last = text.splitlines()[-1]
    shown = text.count("| line")
    assert last == f"{199 - shown} more are not shown, E{shown + 1} to E199: ask for them by their ids"


def test_a_model_that_reads_little_is_offered_little() -> None:
    names = ["grep_logs", "read_lines", "read_metrics", "look_up"]
    few, all_of_it = framing.schemas(names, room(8_192)), framing.schemas(names, room(131_072))
    assert [f["function"]["name"] for f in few] == [f["function"]["name"] for f in all_of_it]
    assert len(json.dumps(few)) < 3_000 and "enum" not in json.dumps(few)
    assert "enum" in json.dumps(all_of_it) and all_of_it == framing.schemas(names)
    assert room(8_192).checks == 0 and room(16_384).checks > 0
