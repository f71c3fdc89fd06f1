import json
import subprocess
import sys
from pathlib import Path


def losses(name):
    rows = [json.loads(line) for line in open(f"runs/{name}/metrics.jsonl")]
    return [r["train_loss"] for r in rows if "train_loss" in r]


def test_two_slices_are_one(tmp_path):
    said = {"updates": 80, "save_every": 40}
    for name in ("test_one", "test_two"):
        (tmp_path / f"{name}.json").write_text(json.dumps(said))
    subprocess.run([sys.executable, "train.py", tmp_path / "test_one.json"], check=True)
    for _ in range(2):
        subprocess.run([sys.executable, "train.py", tmp_path / "test_two.json", "--resume", "--slice", "40"])
    assert losses("test_one") == losses("test_two")
    assert Path("runs/test_two/export.pt").exists()
