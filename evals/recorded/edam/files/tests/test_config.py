import pytest
from lantern import config, optim


def test_overrides_win(tmp_path, monkeypatch):
    (tmp_path / "a.yaml").write_text("optim: {lr: 1.0}\n")
    monkeypatch.setattr(config, "CONFIGS", tmp_path)
    assert config.load("a", ["optim.lr=0.5"]).optim.lr == 0.5


@pytest.mark.parametrize(("step", "share"), [(0, 0.01), (99, 1.0), (1000, 0.1)])
def test_rate(step, share):
    c = config.OptimConfig(lr=1.0)
    assert optim.rate(c, step, 1000) == pytest.approx(share, abs=1e-3)
