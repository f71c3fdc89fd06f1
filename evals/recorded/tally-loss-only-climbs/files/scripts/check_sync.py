"""Checksums of trainer and engine: python scripts/check_sync.py POLICY URL"""
import hashlib
import sys
import urllib.request

import torch

own = hashlib.sha256(b"".join(v.numpy().tobytes() for v in torch.load(sys.argv[1])["policy"].values())).hexdigest()
other = urllib.request.urlopen(f"{sys.argv[2]}/checksum", timeout=10).read().decode()
print("same" if own == other else f"differ: {own[:12]} {other[:12]}")
