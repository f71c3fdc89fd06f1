import torch
from liger_kernel.transformers.fused_linear_cross_entropy import LigerFusedLinearCrossEntropyLoss

torch.manual_seed(0)
BT, H, V = 256, 32, 4096
x = torch.randn(BT, H, device="cuda")
w = torch.randn(V, H, device="cuda")
target = torch.randint(0, V, (BT,), device="cuda")
ce = LigerFusedLinearCrossEntropyLoss(ignore_index=-100)
call = lambda x, t: ce(w, x, t)
for ignored in (0, BT // 4):
    t = target.clone()
    t[torch.randperm(BT)[:ignored]] = -100
    with torch.no_grad():
        print("  eager    ", call(x, t).item())
        print("  compiled ", torch.compile(call)(x, t).item())
