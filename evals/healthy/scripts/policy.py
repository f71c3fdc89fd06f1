"""PPO on a small corridor world; lines as single-file RL scripts print them."""

import random
import time

import torch
from torch import nn

seed = 1
num_envs = 8
num_steps = 32
iterations = 60
random.seed(seed)
torch.manual_seed(seed)
length = 8
agent = nn.Sequential(nn.Linear(length, 32), nn.Tanh(), nn.Linear(32, 3))
optimizer = torch.optim.Adam(agent.parameters(), lr=2.5e-3, eps=1e-5)
places, clocks, returns = [0] * num_envs, [0] * num_envs, [0.0] * num_envs
global_step, start = 0, time.time()


def view():
    return nn.functional.one_hot(torch.tensor(places), length).float()


for iteration in range(1, iterations + 1):
    optimizer.param_groups[0]["lr"] = 2.5e-3 * (1 - (iteration - 1) / iterations)
    rows, ended = [], []
    for _ in range(num_steps):
        global_step += num_envs
        obs = view()
        with torch.no_grad():
            logits, value = agent(obs).split([2, 1], 1)
        dist = torch.distributions.Categorical(logits=logits)
        action = dist.sample()
        rewards, dones = [], []
        for i in range(num_envs):
            places[i] = max(0, places[i] + (1 if action[i] == 1 and random.random() < 0.9 else -1))
            clocks[i] += 1
            done = places[i] == length - 1 or clocks[i] >= 40
            reward = (1.0 if places[i] == length - 1 else 0.0) - 0.01
            returns[i] += reward
            rewards.append(reward)
            dones.append(float(done))
            if done:
                ended.append(returns[i])
                print(f"global_step={global_step}, episodic_return={returns[i]:.2f}")
                places[i], clocks[i], returns[i] = 0, 0, 0.0
        rows.append((obs, action, dist.log_prob(action), torch.tensor(rewards), torch.tensor(dones), value[:, 0]))
    advantage, last = [], torch.zeros(num_envs)
    with torch.no_grad():
        after = agent(view())[:, 2]
    for _obs, _, _, reward, done, value in reversed(rows):
        last = reward + 0.97 * after * (1 - done) - value + 0.97 * 0.95 * last * (1 - done)
        after = value
        advantage.insert(0, last)
    obs, action, old, values = (torch.cat([r[k] for r in rows]) for k in (0, 1, 2, 5))
    adv = torch.cat(advantage)
    target = adv + values
    adv = (adv - adv.mean()) / (adv.std() + 1e-8)
    for _ in range(4):
        logits, value = agent(obs).split([2, 1], 1)
        dist = torch.distributions.Categorical(logits=logits)
        ratio = (dist.log_prob(action) - old).exp()
        clipfrac = ((ratio - 1).abs() > 0.2).float().mean().item()
        kl = ((ratio - 1) - ratio.log()).mean().item()
        pg = torch.max(-adv * ratio, -adv * ratio.clamp(0.8, 1.2)).mean()
        v_loss = 0.5 * ((value[:, 0] - target) ** 2).mean()
        loss = pg - 0.01 * dist.entropy().mean() + 0.5 * v_loss
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
        optimizer.step()
    print(
        f"iteration={iteration} global_step={global_step} policy_loss={pg.item():.5f} value_loss={v_loss.item():.5f} "
        f"entropy={dist.entropy().mean().item():.4f} approx_kl={kl:.5f} clipfrac={clipfrac:.4f} "
        f"mean_return={sum(ended) / max(len(ended), 1):.3f}", flush=True,
    )
    print("SPS:", int(global_step / (time.time() - start)))
