import pytest

from stampede import config


def test_base_is_under_it():
    cfg = config.load("configs/resnet_ddp.yaml")
    assert cfg["trainer"]["devices"] == 8 and cfg["trainer"]["precision"] == "bf16-mixed"


def test_unknown_key():
    with pytest.raises(KeyError):
        config.load("configs/first.yaml", ["optim.momentum=0.9"])
