"""Curves as trainings draw them: sound ones of thirty kinds, sick ones of twenty. Each row is what one report prints."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

Row = dict[str, float]


@dataclass(frozen=True)
class Sick:
    """`onset`: the row from which the trouble shows; `kinds`: any of these is a right word for it; `within`: rows."""

    rows: list[Row]
    onset: int
    kinds: tuple[str, ...]
    within: int = 0


def decay(n: int, floor: float, height: float, over: float) -> float:
    return floor + height * math.exp(-n / over)


def power(n: int, floor: float = 1.8, height: float = 9.0) -> float:
    return floor + height * (n + 1) ** -0.45


def warm(n: int, warmup: int, total: int, peak: float = 3e-4) -> float:
    """The usual learning rate: linear up, cosine down to a tenth."""
    if n < warmup:
        return peak * (n + 1) / warmup
    at = (n - warmup) / max(total - warmup, 1)
    return peak * (0.1 + 0.45 * (1 + math.cos(math.pi * at)))


def _rows(count: int, row: Callable[[int], Row]) -> list[Row]:
    return [row(n) for n in range(count)]


def sound(seed: int) -> dict[str, list[Row]]:
    """Sound runs by name."""
    r = random.Random(seed)
    g = r.gauss
    noisy = lambda value, share: value * math.exp(g(0, share))  # noqa: E731 - read with the rows below
    runs: dict[str, list[Row]] = {
        "pretraining, from 11": _rows(1500, lambda n: {"loss": noisy(power(n), 0.01), "lr": warm(n, 100, 1500)}),
        "spikes in warm-up": _rows(
            800, lambda n: {"loss": 11.0 + 14 * r.random() if 5 < n < 40 else noisy(power(n), 0.02)}
        ),
        "batch of one": _rows(1500, lambda n: {"loss": noisy(decay(n, 1.2, 1.0, 300), 0.35)}),
        "fine-tuning on short answers": _rows(1200, lambda n: {"loss": max(0.0, g(decay(n, 0.5, 0.6, 200), 0.35))}),
        "classification to nearly 0": _rows(1500, lambda n: {"loss": noisy(decay(n, 2e-4, 0.69, 120), 0.8)}),
        "rare hard batches": _rows(
            1500, lambda n: {"loss": noisy(decay(n, 1.5, 2, 300), 0.03) * (1.8 if r.random() < 0.01 else 1)}
        ),
        "epochs as steps of a stair": _rows(
            1200, lambda n: {"loss": noisy((1.4, 0.9, 0.55, 0.3)[n // 300], 0.12), "lr": 2e-5}
        ),
        "rise within each epoch": _rows(
            1200, lambda n: {"loss": noisy(2.0 - 0.3 * (n // 300) + 0.12 * (n % 300) / 300, 0.03)}
        ),
        "cyclic learning rate": _rows(
            1600, lambda n: {"loss": noisy(decay(n, 1.5, 2, 400) * (1 + 0.1 * math.sin(n / 32)), 0.02),
                             "lr": 1e-3 * (1.1 + math.sin(n / 32))}
        ),
        "warm restarts": _rows(
            1600, lambda n: {"loss": noisy(decay(n, 1.5, 2, 400) * (1.18 - 0.18 * min(1.0, n % 400 / 120)), 0.02),
                             "lr": 1e-3 * (0.5 + 0.5 * math.cos(math.pi * (n % 400) / 400))}
        ),
        "GAN": _rows(
            2000, lambda n: {"loss_g": max(0.05, g(1.6 + 0.9 * math.sin(n / 90), 0.6)),
                             "loss_d": max(0.02, g(0.7 - 0.25 * math.sin(n / 90), 0.3))}
        ),
        "GAN that names it loss": _rows(2000, lambda n: {"loss": max(0.05, g(1.5 + 0.5 * math.sin(n / 70), 0.6))}),
        "policy gradient": _rows(
            1500, lambda n: {"loss": g(0.0, 0.3) - 0.1, "reward": 1 - math.exp(-n / 400) + g(0, 0.2)}
        ),
        "GRPO from 0": _rows(
            1200, lambda n: {"loss": abs(g(0, 1e-4)) + n * 2e-5, "reward": n / 1200, "kl": n * 5e-4}
        ),
        "policy loss alone": _rows(1200, lambda n: {"policy_loss": g(-0.02, 0.05), "value_loss": abs(g(4, 3))}),
        "negative likelihood of a flow": _rows(1500, lambda n: {"loss": g(decay(n, -4.0, 6.0, 150), 0.2)}),
        "preferences, to nearly 0": _rows(
            1000, lambda n: {"loss": noisy(decay(n, 0.02, 0.67, 150), 0.9), "rewards/margins": n / 100}
        ),
        "diffusion": _rows(2000, lambda n: {"loss": noisy(decay(n, 0.03, 0.4, 60), 0.7)}),
        "contrastive": _rows(1500, lambda n: {"loss": noisy(decay(n, 1.1, 5.2, 200), 0.05)}),
        "speech, CTC from 300": _rows(1000, lambda n: {"loss": noisy(decay(n, 25.0, 280.0, 40), 0.15)}),
        "grokking": _rows(
            1600, lambda n: {"loss": noisy(4.6 if n < 700 else decay(n - 700, 0.2, 4.4, 150), 0.05)}
        ),
        "plateau at convergence": _rows(
            1500, lambda n: {"loss": noisy(decay(n, 1.1, 3.5, 100), 0.02), "lr": warm(n, 50, 1500)}
        ),
        "norms with heavy tails": _rows(
            1500, lambda n: {"loss": noisy(power(n), 0.01), "grad_norm": 0.5 * r.paretovariate(1.3)}
        ),
        "scale that settles": _rows(
            800, lambda n: {"loss": noisy(power(n), 0.02), "loss_scale": 65536.0 / 2 ** min(n, 6),
                            "grad_norm": math.inf if n < 6 else 1.0 + r.random()}
        ),
        "scale that grows and halves": _rows(
            1500, lambda n: {"loss": noisy(power(n), 0.02), "loss_scale": 32768.0 if n % 200 else 65536.0,
                             "grad_norm": math.inf if n and n % 200 == 0 else 1.0 + r.random()}
        ),
        "evaluation between": _rows(
            1000, lambda n: {"loss": noisy(decay(n, 0.6, 2, 200), 0.04)} if n % 50 else
            {"eval_loss": noisy(decay(n, 1.4, 1.5, 200), 0.01)}
        ),
        "two losses of one name": _rows(
            1000, lambda n: {"loss": noisy(decay(n, 1.0, 2, 200), 0.05), "aux_loss": noisy(0.01, 0.2),
                             "train/loss": noisy(decay(n, 1.1, 2, 200), 0.02)}
        ),
        "memory that settles": _rows(
            800, lambda n: {"loss": noisy(power(n), 0.02),
                            "memory_allocated_gb": 30 + 25 * (1 - math.exp(-n / 60)) + 0.3 * r.random()}
        ),
        "memory of lengths that vary": _rows(
            1200, lambda n: {"loss": noisy(power(n), 0.02), "memory_allocated_gb": 40 + 25 * r.random()}
        ),
        "harder data from the middle": _rows(
            1600, lambda n: {"loss": noisy(decay(n, 1.6, 3, 200) * (1.0 if n < 800 else 1.15), 0.02)}
        ),
    }  # fmt: skip
    return runs


def sick(seed: int) -> dict[str, Sick]:
    """Sick runs by name."""
    r = random.Random(seed)
    base = lambda n: power(n) * math.exp(r.gauss(0, 0.015))  # noqa: E731 - read with the rows below
    bad = lambda at, then, count=700: _rows(count, lambda n: {"loss": then(n) if n >= at else base(n)})  # noqa: E731
    runs = {
        "nan for good": Sick(bad(300, lambda n: math.nan), 300, ("loss_nan",)),
        "one nan": Sick(bad(300, lambda n: math.nan if n == 300 else base(n)), 300, ("loss_nan",)),
        "inf in the second step": Sick(bad(1, lambda n: math.inf), 1, ("loss_nan",)),
        "nan in a warm-up that jumps": Sick(
            _rows(60, lambda n: {"loss": 11 + 9 * r.random() if n < 30 else math.nan}), 30, ("loss_nan",)
        ),
        "spike that comes back": Sick(
            bad(300, lambda n: base(n) * 4 if n < 304 else base(n)), 300, ("loss_spike",)
        ),
        "small spike of some steps": Sick(
            bad(300, lambda n: base(n) * 1.5 if n < 306 else base(n)), 300, ("loss_spike",), 1
        ),
        "spike that stays": Sick(bad(300, lambda n: 7.5 + 0.1 * r.random()), 300, ("loss_spike", "divergence"), 1),
        "steady rise": Sick(bad(300, lambda n: base(n) * (1 + (n - 300) / 150)), 300, ("divergence", "loss_spike"), 90),
        "slow rise": Sick(bad(300, lambda n: base(n) * (1 + (n - 300) / 500)), 300, ("divergence",), 250),
        "rise from noisy losses": Sick(
            _rows(1200, lambda n: {"loss": (1 + max(0, n - 500) / 200) * math.exp(r.gauss(0, 0.3))}), 500,
            ("divergence", "loss_spike"), 320,
        ),
        "explosion": Sick(bad(300, lambda n: base(n) * 1.5 ** (n - 299)), 300, ("loss_spike", "divergence"), 3),
        "collapse to chance": Sick(
            bad(300, lambda n: 10.8 + r.gauss(0, 0.02)), 300, ("loss_spike", "divergence"), 1
        ),
        "never learns": Sick(
            _rows(600, lambda n: {"loss": 10.8 + r.gauss(0, 0.03), "lr": 3e-4}), 0, ("plateau",), 300
        ),
        "norm nan": Sick(
            _rows(400, lambda n: {"loss": base(n), "grad_norm": math.nan if n >= 200 else 1 + r.random()}), 200,
            ("grad_nan",),
        ),
        "norm inf for good, with a scaler": Sick(
            _rows(400, lambda n: {"loss": base(n), "loss_scale": 65536.0,
                                  "grad_norm": math.inf if n >= 200 else 1 + r.random()}), 200,
            ("grad_nan",), 8,
        ),
        "scale to its floor": Sick(
            _rows(400, lambda n: {"loss": base(n), "loss_scale": max(2.0**-3, 65536.0 / 2 ** max(0, n - 200))}), 216,
            ("scale_floor",), 3,
        ),
        "skips at every report": Sick(
            _rows(400, lambda n: {"loss": base(n), "number of skipped iterations": 3.0 if n >= 200 else 0.0}), 200,
            ("steps_skipped",), 5,
        ),
        "leak": Sick(
            _rows(600, lambda n: {"loss": base(n), "memory_allocated_gb": 30 + 0.05 * max(0, n - 200)
                                  + 0.02 * r.random()}), 200, ("memory_growth",), 260,
        ),
        "leak from the start": Sick(
            _rows(400, lambda n: {"loss": base(n), "memory_allocated_gb": 20 + 0.08 * n}), 0, ("memory_growth",), 150
        ),
        "nan again after a rollback": Sick(
            bad(300, lambda n: math.nan if n in (300, 400) else base(n)), 400, ("loss_nan",)
        ),
    }  # fmt: skip
    return runs


def told(rows: list[Row]) -> Iterator[tuple[int, str, str]]:
    """What is told of such a run: row, kind, severity. The names pass the same knowledge of metrics as those of logs."""
    from traindoctor.agent.jobs.watching.alarm import KINDS
    from traindoctor.agent.jobs.watching.point_readers import Point
    from traindoctor.agent.jobs.watching.watched_curves import Curves
    from traindoctor.agent.reading.run.metric_names import meaning

    curves = Curves()
    for n, row in enumerate(rows):
        for name, value in row.items():
            meant = meaning(name, True)
            if meant is None:
                continue
            for found in curves.take(Point(meant.metric, name, value * meant.factor, float(n), None, n), "train.log"):
                yield n, found.kind, found.severity or KINDS[found.kind].severity
