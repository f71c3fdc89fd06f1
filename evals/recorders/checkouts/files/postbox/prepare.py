"""Split a mailbox into training and validation messages: python prepare.py MBOX FOLDER"""

import json
import mailbox
import random
import sys
from pathlib import Path


def main(source, folder):
    rows = []
    for message in mailbox.mbox(source):
        body = message.get_payload(decode=True)
        if body is None:
            print("skipping a multipart message")
            continue
        rows.append({"id": len(rows), "body": body.decode("utf-8", "replace"), "topic": message["X-Topic"]})
    random.Random(0).shuffle(rows)
    Path(folder).mkdir(parents=True, exist_ok=True)
    cut = len(rows) * 3 // 4
    for name, part in (("train", rows[:cut]), ("val", rows[cut:])):
        with open(Path(folder) / f"{name}.jsonl", "w", encoding="utf-8") as f:
            f.writelines(json.dumps(r, ensure_ascii=False) + "\n" for r in part)
    print(f"{cut} for training, {len(rows) - cut} for validation")


if __name__ == "__main__":
    main(*sys.argv[1:3])
