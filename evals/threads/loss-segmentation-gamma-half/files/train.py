import torch
from kornia.losses import binary_focal_loss_with_logits

def criterion(logits, target):
    return binary_focal_loss_with_logits(logits, target, alpha=0.25, gamma=0.5, reduction="mean")

optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
for step, (image, target) in enumerate(loader):
    logits = model(image)
    loss = criterion(logits, target)
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
