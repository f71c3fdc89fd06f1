"""Hazards of shifts, dropped results and replicas, with a sound twin of each."""

from pathlib import Path

import pytest
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.settings.code_tools import find_hazards

CASES = {
    "result_dropped": (
        "def forward(x, aux):\n    AuxScaler.apply(x, aux)\n    return x\n",
        "def forward(x, aux):\n    x = AuxScaler.apply(x, aux)\n    return x\n",
    ),
    "regex_one_line": (
        "import re\ndef tag_reward(texts):\n    return [bool(re.match(r'<a>.*?</a>', t)) for t in texts]\n",
        "import re\ndef tag_reward(texts):\n    return [bool(re.match(r'<a>.*?</a>', t, re.DOTALL)) for t in texts]\n",
    ),
    "mask_shifted_apart": (
        "def loss(batch):\n    loss_mask = batch['m'][:, :-1]\n    labels = batch['ids'][:, 1:]\n    return labels, loss_mask\n",
        "def loss(batch):\n    loss_mask = batch['m'][:, 1:]\n    labels = batch['ids'][:, 1:]\n    return labels, loss_mask\n",
    ),
    "special_tokens_twice": (
        "def row(x):\n    text = tokenizer.apply_chat_template(x, tokenize=False)\n    return tokenizer(text)\n",
        "def row(x):\n    text = tokenizer.apply_chat_template(x, tokenize=False)\n"
        "    return tokenizer(text, add_special_tokens=False)\n",
    ),
    "unseeded_replicas": (
        "model = FSDP(Net(), sharding_strategy=ShardingStrategy.NO_SHARD)\n",
        "model = FSDP(Net(), sharding_strategy=ShardingStrategy.NO_SHARD, sync_module_states=True)\n",
    ),
    "weights_reloaded": (
        "def go(engine):\n    engine.sync_weights()\n    engine.collective_rpc('reload_weights')\n",
        "def go(engine):\n    engine.sync_weights()\n    engine.wake_up()\n",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_hazard_and_its_sound_twin(tmp_path: Path, name: str) -> None:
    for folder, source, there in zip(("bad", "good"), CASES[name], (True, False), strict=True):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "train.py").write_text(source)
        keys = {e.key for e in find_hazards(Workspace([tmp_path / folder])).evidence}
        assert (f"code.{name}" in keys) is there, folder
