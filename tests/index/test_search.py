"""Finding and refusing, with the real model and the real Chroma; the weight of imports."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from traindoctor.index import encoder
from traindoctor.index.build import build
from traindoctor.index.model import WEIGHTS
from traindoctor.index.search import lexical, search
from traindoctor.index.status import status


def test_finds_by_meaning(built, sources) -> None:
    found = search("a rank crashed, all others hang in the collective", cache_dir=built, sources=sources)
    assert not found.degraded
    assert found[0].document == "dist/rank_died"
    assert (found[0].kind, found[0].cause) == ("playbook", "dist.rank_died")


def test_headings_lead_to_the_passage(built, sources) -> None:
    found = search("how is perplexity evaluated on the held-out shard", cache_dir=built, sources=sources)
    assert found[0].document == "guide.md"
    assert found[0].headings == ["Notes of our team", "Evaluation", "Perplexity"]
    assert "thousand steps" in found[0].text
    assert found[0].cause is None


@pytest.mark.parametrize("call", [search, lexical])
@pytest.mark.parametrize(
    "question",
    [
        "how do I bake sourdough bread",
        "capital of France",
        "SELECT with a LEFT JOIN",
        "",
        "???",
        "the of and",
    ],
)
def test_no_match_is_no_result(built, sources, call, question) -> None:
    assert call(question, cache_dir=built, sources=sources) == []


def test_signature_examples_find_their_playbook(built, sources) -> None:
    found = lexical("Watchdog caught collective operation timeout", cache_dir=built, sources=sources)
    assert found[0].document == "dist/rank_died"


def test_best_first_and_at_most_k(built, sources) -> None:
    found = search("loss scale overflow in float16", k=2, cache_dir=built, sources=sources)
    assert 1 <= len(found) <= 2
    assert [r.score for r in found] == sorted((r.score for r in found), reverse=True)
    assert found[0].as_dict()["document"] == "loss/fp16_overflow"


def test_query_and_document_vectors_agree(built) -> None:
    assert encoder.export(built, WEIGHTS, lambda *_: None) > 0.999


def test_without_an_index_words_answer_and_say_so(tmp_path, sources) -> None:
    found = search("loss scale reaches its floor", cache_dir=tmp_path, sources=sources)
    assert found[0].document == "loss/fp16_overflow"
    assert "words alone" in found.degraded


def test_a_changed_document_is_a_new_index(cache, same_sources) -> None:
    sources = same_sources
    assert not search("perplexity on the held-out shard", cache_dir=cache, sources=sources).degraded
    (sources.documents / "more.md").write_text("# Coffee\nThe coffee machine is on the third floor.")
    assert search("where is the coffee machine", cache_dir=cache, sources=sources).degraded
    assert build(sources, cache).vectors
    found = search("where is the coffee machine", cache_dir=cache, sources=sources)
    assert not found.degraded
    assert found[0].document == "more.md"


def test_status_tells_what_is_there(built, tmp_path, sources) -> None:
    ready, bare = status(sources, built), status(sources, tmp_path)
    assert (ready.playbooks, ready.documents, ready.vectors, ready.why) == (3, ["guide.md"], True, "")
    assert not bare.vectors
    assert bare.why


def test_altered_weights_are_refused(tmp_path, sources, monkeypatch) -> None:
    monkeypatch.setattr("traindoctor.index.model.WEIGHTS", "0" * 64)
    made = build(sources, tmp_path)
    assert not made.vectors
    assert "sha256" in made.why


def test_words_alone_load_nothing_heavy(built, sources) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from traindoctor.index.search import lexical; from traindoctor.index.places import Sources\n"
        "import traindoctor.index.build, traindoctor.index.status, traindoctor.index.documents\n"
        f"found = lexical('loss scale overflow', cache_dir=Path({str(built)!r}), "
        f"sources=Sources(Path({str(sources.playbooks)!r}), Path({str(sources.documents)!r})))\n"
        "assert found, 'nothing found'\n"
        "heavy = {'numpy', 'torch', 'chromadb', 'onnx', 'onnxruntime', 'tokenizers', 'bm25s', 'yaml', "
        "'sentence_transformers', 'transformers', 'filelock'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=dict(os.environ))
    assert done.stdout.strip() == "[]", done.stderr


def test_a_query_needs_no_torch(built, sources) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from traindoctor.index.search import search; from traindoctor.index.places import Sources\n"
        f"found = search('loss scale overflow', cache_dir=Path({str(built)!r}), "
        f"sources=Sources(Path({str(sources.playbooks)!r}), Path({str(sources.documents)!r})))\n"
        "assert found and not found.degraded, found.degraded\n"
        "print(sorted({'torch', 'transformers', 'sentence_transformers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr
