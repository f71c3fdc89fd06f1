from torch import nn


def small(width, classes):
    return nn.Sequential(
        nn.Conv2d(1, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(width, 2 * width, 3, padding=1), nn.BatchNorm2d(2 * width), nn.ReLU(),
        nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(18 * width, classes))


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.f = nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(),
                               nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width))

    def forward(self, x):
        return (x + self.f(x)).relu()


def resnet(width, classes, blocks=8):
    return nn.Sequential(nn.Conv2d(1, width, 3, padding=1), *(Block(width) for _ in range(blocks)),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes))


NETS = {"small": small, "resnet": resnet}
