import math

import torch
from lantern.config import ModelConfig
from lantern.model import LetterModel


def test_a_new_model_knows_nothing():
    model = LetterModel(ModelConfig(dim=32, layers=2, heads=2, context=16, dropout=0.0), 70)
    x = torch.randint(70, (8, 16))
    assert abs(model(x, x)[1].item() - math.log(70)) < 0.3


def test_no_look_ahead():
    model = LetterModel(ModelConfig(dim=32, layers=2, heads=2, context=16, dropout=0.0), 70).eval()
    x = torch.randint(70, (1, 16))
    y = x.clone()
    y[0, 10:] = 3
    assert torch.allclose(model(x)[0][0, :10], model(y)[0][0, :10], atol=1e-5)


def test_loss_is_not_nan_for_padding():
    model = LetterModel(ModelConfig(dim=32, layers=1, heads=2, context=16), 70)
    loss = model(torch.zeros(2, 16, dtype=torch.long), torch.zeros(2, 16, dtype=torch.long))[1]
    assert not torch.isnan(loss), "loss went to nan at step 0"
