"""Short trainings of several kinds, each with the prints that its kind usually has."""

import argparse
import math
import random
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

parser = argparse.ArgumentParser()
parser.add_argument("kind")
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--out", default="")
args = parser.parse_args()
random.seed(args.seed)
torch.manual_seed(args.seed)


def mlp(*sizes, act=nn.ReLU):
    layers = []
    for a, b in zip(sizes, sizes[1:], strict=False):
        layers += [nn.Linear(a, b), act()]
    return nn.Sequential(*layers[:-1])


def step(optimizer, loss):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def gan():
    """Two losses against each other; neither falls."""
    g, d = mlp(4, 32, 2), mlp(2, 32, 1)
    opt_g, opt_d = (torch.optim.Adam(m.parameters(), 2e-3, betas=(0.5, 0.999)) for m in (g, d))
    one, zero = torch.ones(64, 1), torch.zeros(64, 1)
    bce = F.binary_cross_entropy_with_logits
    for epoch in range(5):
        for i in range(100):
            angle = torch.rand(64) * 6.28
            real = torch.stack([angle.cos(), angle.sin()], 1) + 0.05 * torch.randn(64, 2)
            fake = g(torch.randn(64, 4))
            r, f = d(real), d(fake.detach())
            loss_d = bce(r, one) + bce(f, zero)
            step(opt_d, loss_d)
            f2 = d(fake)
            loss_g = bce(f2, one)
            step(opt_g, loss_g)
            if i % 10 == 0:
                print(f"[{epoch}/5][{i}/100]\tLoss_D: {loss_d.item():.4f}\tLoss_G: {loss_g.item():.4f}\tD(x): {r.sigmoid().mean().item():.4f}\tD(G(z)): {f.sigmoid().mean().item():.4f} / {f2.sigmoid().mean().item():.4f}", flush=True)


def regress():
    """A loss that goes to nearly nothing, as it may."""
    net = mlp(3, 64, 64, 1, act=nn.Tanh)
    opt = torch.optim.Adam(net.parameters(), 3e-3)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 600)
    for epoch in range(1, 601):
        x = torch.rand(256, 3)
        loss = F.mse_loss(net(x)[:, 0], (x * torch.tensor([1.0, -0.5, 0.2])).sum(1))
        step(opt, loss)
        sched.step()
        if epoch % 20 == 0:
            print(f"Epoch {epoch}/600, Train Loss: {loss.item():.8f}, LR: {sched.get_last_lr()[0]:.6f}", flush=True)


def flow():
    """A negative log-likelihood of densities: it passes zero."""
    shift, scale = nn.Parameter(torch.zeros(8)), nn.Parameter(torch.zeros(8))
    opt = torch.optim.Adam([shift, scale], 2e-2)
    for i in range(1, 401):
        x = 0.02 * torch.randn(128, 8) + 1.0
        z = (x - shift) * scale.exp()
        loss = (0.5 * z**2 + 0.919 - scale).sum(1).mean()
        step(opt, loss)
        if i % 10 == 0:
            print(f"iter {i:05d} | nll {loss.item():.4f} | bits/dim {loss.item() / 8 / math.log(2):.4f} | loss {loss.item():.4f}", flush=True)


def dqn():
    """Q-learning in a corridor: the loss grows with the values while the return rises."""
    q, target = mlp(10, 32, 2), mlp(10, 32, 2)
    target.load_state_dict(q.state_dict())
    opt, memory, place, clock, total = torch.optim.Adam(q.parameters(), 1e-3), [], 0, 0, 0.0
    losses, episode = [], 0
    for t in range(1, 6001):
        eps = max(0.05, 1 - t / 3000)
        state = F.one_hot(torch.tensor(place), 10).float()
        action = random.randrange(2) if random.random() < eps else int(q(state).argmax())
        place = max(0, place + (1 if action else -1))
        clock += 1
        done = place == 9 or clock >= 30
        reward = 10.0 if place == 9 else -0.1
        total += reward
        memory.append((state, action, reward, F.one_hot(torch.tensor(place), 10).float(), float(place == 9)))
        if done:
            episode += 1
            if episode % 10 == 0:
                print(f"episode: {episode} step: {t} reward: {total:.2f} epsilon: {eps:.3f} loss: {sum(losses[-50:]) / max(len(losses[-50:]), 1):.4f}", flush=True)
            place, clock, total = 0, 0, 0.0
        if len(memory) > 200 and t % 2 == 0:
            s, a, r, n, d = zip(*random.sample(memory[-2000:], 32), strict=True)
            with torch.no_grad():
                y = torch.tensor(r) + 0.95 * target(torch.stack(n)).max(1)[0] * (1 - torch.tensor(d))
            loss = F.smooth_l1_loss(q(torch.stack(s)).gather(1, torch.tensor(a)[:, None])[:, 0], y)
            step(opt, loss)
            losses.append(loss.item())
        if t % 200 == 0:
            target.load_state_dict(q.state_dict())


def restarts():
    """Warm restarts of the rate: the loss jumps a little at each."""
    net, truth = mlp(16, 64, 5), torch.randn(16, 5)
    opt = torch.optim.SGD(net.parameters(), 0.5, momentum=0.9)
    sched = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, 60)
    for i in range(1, 301):
        x = torch.randn(64, 16)
        loss = F.cross_entropy(net(x), (x @ truth + 0.8 * torch.randn(64, 5)).argmax(1))
        step(opt, loss)
        sched.step()
        if i % 3 == 0:
            print(f"[{time.strftime('%H:%M:%S')}] step {i:4d}/300  loss={loss.item():.4f}  lr={sched.get_last_lr()[0]:.5f}", flush=True)


def mixup():
    """Mixed samples and dropout: the training loss stays above that of validation."""
    centres = torch.randn(6, 20)
    net = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, 6))
    opt = torch.optim.AdamW(net.parameters(), 3e-3)
    y_val = torch.randint(6, (400,))
    x_val = centres[y_val] + torch.randn(400, 20)
    for epoch in range(1, 16):
        began, total = time.time(), 0.0
        for _ in range(40):
            y = torch.randint(6, (32,))
            x, lam, order = centres[y] + torch.randn(32, 20), random.betavariate(0.8, 0.8), torch.randperm(32)
            out = net(lam * x + (1 - lam) * x[order])
            loss = lam * F.cross_entropy(out, y) + (1 - lam) * F.cross_entropy(out, y[order])
            step(opt, loss)
            total += loss.item()
        net.eval()
        with torch.no_grad():
            out = net(x_val)
        net.train()
        print(f"Epoch {epoch}/15 - {time.time() - began:.1f}s - loss: {total / 40:.4f} - val_loss: {F.cross_entropy(out, y_val).item():.4f} - val_accuracy: {(out.argmax(1) == y_val).float().mean().item():.4f}", flush=True)


def experts():
    """Routed experts with a balancing loss and shares that are printed."""
    router, parts, head = nn.Linear(16, 4), nn.ModuleList(mlp(16, 32, 16) for _ in range(4)), nn.Linear(16, 5)
    truth = torch.randn(16, 5)
    opt = torch.optim.AdamW([*router.parameters(), *parts.parameters(), *head.parameters()], 3e-3)
    for i in range(1, 301):
        x = torch.randn(128, 16)
        gate = router(x).softmax(-1)
        top, which = gate.max(-1)
        out = torch.stack([p(x) for p in parts], 1)[torch.arange(128), which] * top[:, None]
        share = F.one_hot(which, 4).float().mean(0)
        aux = 4 * (share * gate.mean(0)).sum()
        loss = F.cross_entropy(head(out + x), (x @ truth).argmax(1))
        step(opt, loss + 0.02 * aux)
        if i % 6 == 0:
            print(f"step={i} loss={loss.item():.4f} aux_loss={aux.item():.4f} expert_load={[round(s, 3) for s in share.tolist()]}", flush=True)


def distil():
    """A student after a teacher: a divergence at a temperature beside the cross-entropy."""
    teacher, student = mlp(16, 64, 8), mlp(16, 16, 8)
    opt = torch.optim.AdamW(student.parameters(), 5e-3)
    for i in range(1, 251):
        x = torch.randn(64, 16)
        with torch.no_grad():
            wanted = teacher(x) * 5
        out = student(x)
        kd = F.kl_div(F.log_softmax(out / 4, -1), F.softmax(wanted / 4, -1), reduction="batchmean") * 16
        ce = F.cross_entropy(out, wanted.argmax(-1))
        loss = 0.7 * kd + 0.3 * ce
        step(opt, loss)
        if i % 5 == 0:
            print(f"INFO:distil:step {i} | loss {loss.item():.4f} | kd_loss {kd.item():.4f} | ce_loss {ce.item():.4f}", flush=True)


def seeds():
    """The same training under three seeds, each in a folder of its own."""
    for seed in (1, 2, 3):
        torch.manual_seed(seed)
        folder = Path(f"run_{seed}")
        folder.mkdir(exist_ok=True)
        net, truth = mlp(12, 48, 4), torch.randn(12, 4)
        opt = torch.optim.AdamW(net.parameters(), 2e-3)
        with (folder / "train.log").open("w") as log:
            for i in range(1, 201):
                x = torch.randn(64, 12)
                loss = F.cross_entropy(net(x), (x @ truth).argmax(1))
                step(opt, loss)
                if i % 5 == 0:
                    print(f"{time.strftime('%F %T')} seed {seed} step {i} loss {loss.item():.4f}", file=log, flush=True)
            print("training complete", file=log)


globals()[args.kind]()
