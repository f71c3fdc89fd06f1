import time

import torch


@torch.compile
def accumulate(x, start, end):
    total = x[start].clone()
    for i in range(start + 1, end):
        total = total + x[i]
    return total


x = torch.randn(4096, 512, device="cuda")
for end in range(2, 9):
    t = time.time()
    accumulate(x, 0, end)
    torch.cuda.synchronize()
    print(f"accumulate(0, {end}) took {time.time() - t:.2f} s")
