#!/usr/bin/env python3
"""Compare our ids with Hugging Face tokenizers on random hard texts: compare_tokenizer.py LIBAFMOE.so TOKENIZER.json
[NUMBER of texts, default 100000] [SEED]. Needs the package tokenizers. The texts are those of
tests/data/tokenizer/make_pieces.py."""
import os
import random
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.join(ROOT, "benchmarks"), os.path.join(ROOT, "tests", "data", "tokenizer")]
import make_pieces
import tokenizer_peer


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    number = int(sys.argv[3]) if len(sys.argv) > 3 else 100000
    rng = random.Random(int(sys.argv[4]) if len(sys.argv) > 4 else None)
    ours = tokenizer_peer.Ours(sys.argv[1], sys.argv[2])
    reference = make_pieces.Tokenizer.from_file(sys.argv[2])
    n_wrong = 0
    for _ in range(number):
        text = make_pieces.random_text(rng)
        [(ids, n)] = ours.encode([text.encode()])
        wanted = reference.encode(text, add_special_tokens=False).ids
        if ids[:n] != wanted:
            n_wrong += 1
            print(f"{text!r}\n  ours      {ids[:n]}\n  reference {wanted}")
    print(f"{number} texts, {n_wrong} differ")
    sys.exit(n_wrong != 0)


main()
