import pytest
from postbox import compose


def test_groups_and_values():
    cfg, groups = compose.compose(["model=attn_tiny", "optim.lr=2e-3"])
    assert groups["model"] == "attn_tiny" and cfg.optim.lr == 2e-3 and cfg.model.heads == 2


def test_what_is_not_there_is_refused():
    with pytest.raises(SystemExit, match="is not in struct"):
        compose.compose(["optim.learning_rate=1"])


def test_plus_adds():
    cfg, _ = compose.compose(["+trainer.note=hello"])
    assert cfg.trainer.note == "hello"
