"""Next-hour temperature of weather stations: a GRU over one .npy file for each station."""

import glob
import sys
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm


class Stations(Dataset):
    """Windows of 24 hours; the series stay on disk."""

    def __init__(self, folder):
        self.paths = sorted(glob.glob(f"{folder}/*.npy"))
        self.hours = 240
        self.open = {}

    def __len__(self):
        return len(self.paths) * (self.hours - 25)

    def __getitem__(self, i):
        station, start = divmod(i, self.hours - 25)
        if station not in self.open:
            handle = open(self.paths[station], "rb")
            version = np.lib.format.read_magic(handle)
            shape, _, dtype = np.lib.format.read_array_header_1_0(handle)
            self.open[station] = (handle, handle.tell(), dtype)
        handle, offset, dtype = self.open[station]
        handle.seek(offset + start * dtype.itemsize)
        series = torch.from_numpy(np.frombuffer(handle.read(25 * dtype.itemsize), dtype=dtype).astype(np.float32))
        return series[:-1, None], series[-1]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(1, 24, batch_first=True)
        self.out = nn.Linear(24, 1)

    def forward(self, x):
        return self.out(self.gru(x)[0][:, -1])[:, 0]


def main():
    torch.manual_seed(6)
    workers = int(sys.argv[2])
    stations = Stations(sys.argv[1])
    print(f"{len(stations.paths)} stations, {len(stations)} windows, {workers} workers")
    loader = DataLoader(stations, batch_size=64, shuffle=True, num_workers=workers)
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    began = time.time()
    for epoch in range(2):
        total, bar = 0.0, tqdm(loader, desc=f"epoch {epoch}", mininterval=1.0)
        for step, (x, y) in enumerate(bar):
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
            if step % 20 == 0:
                bar.set_postfix(loss=f"{loss.item():.4f}")
        print(f"epoch {epoch}: loss {total / len(loader):.4f}, {time.time() - began:.1f} s")


if __name__ == "__main__":
    main()
