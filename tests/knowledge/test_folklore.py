"""Settings that do nothing: every entry says where it was looked up, is told by the lint, and no playbook advises it."""

from __future__ import annotations

import re

import pytest
import yaml
from traindoctor.agent.core.playbook import KNOWLEDGE, read_folder
from traindoctor.agent.tools.settings.settings_tools import lint_settings

from tests.tools.captured import look

ENTRIES = yaml.safe_load((KNOWLEDGE / "folklore.yaml").read_text(encoding="utf-8"))
WORD = re.compile(r"[\w.-]{4,80}")
NOT_ADVICE = re.compile(
    r"(?i)\b(?:no|not|nobody|nothing|never|deprecated|old|without|unset|neither)\b|only makes|n't\b"
)
USES_OF_VALUES = {e["spelled"] for e in ENTRIES if "value" in e}


def test_every_entry_is_whole() -> None:
    assert len(ENTRIES) >= 20
    for entry in ENTRIES:
        assert set(entry) <= {"spelled", "in", "value", "says", "works", "sources"}, entry["spelled"]
        assert entry["says"] and entry["works"] and entry["sources"], entry["spelled"]
        assert all(re.search(r"\d|user guide|documentation|/", s) for s in entry["sources"]), entry["spelled"]


@pytest.mark.parametrize(
    "name",
    ["NCCL_OP_TIMEOUT", "NCCL_MAX_CHANNELS", "NCCL_IB_CUDA_SUPPORT", "NCCL_CHECK_DISABLE", "CUDNN_BENCHMARK",
     "PYTORCH_CUDA_MEMORY_FRACTION", "DEEPSPEED_COMM", "VLLM_GPU_MEMORY_UTILIZATION"],
)  # fmt: skip
def test_what_is_read_by_nothing_is_told(tmp_path, name: str) -> None:
    seen = look(lint_settings, tmp_path, run_sh=f"export {name}=1\npython train.py\n")
    assert any(name in str(e.value) or name in e.text for e in seen.of("lint.folklore_setting"))


def test_no_fix_of_any_playbook_sets_one() -> None:
    patterns = [re.compile(e["spelled"]) for e in ENTRIES if e["spelled"] not in USES_OF_VALUES]
    for book in read_folder(KNOWLEDGE):
        for fix in book.fixes:
            texts = [*map(str, fix.env), *map(str, fix.commands), *map(str, fix.settings)]
            for text in texts:
                bad = [w for w in WORD.findall(text) if any(p.search(w.lstrip("-")) for p in patterns)]
                assert not bad or NOT_ADVICE.search(text), (book.slug, text)
