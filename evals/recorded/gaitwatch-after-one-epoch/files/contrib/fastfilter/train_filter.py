# fastfilter (BSD), a learned low pass; not used by gaitwatch since 1.1
import torch

w = torch.zeros(9, requires_grad=True)
opt = torch.optim.LBFGS([w], lr=0.5)


def fit(x, y):
    def closure():
        opt.zero_grad()
        loss = (torch.nn.functional.conv1d(x, w.view(1, 1, -1), padding=4) - y).square().mean()
        loss.backward()
        return loss
    return opt.step(closure)
