#!/usr/bin/env python3
"""Write pieces.jsonl, rows {text, ends, ids}: make_pieces.py (needs the package tokenizers; made with 0.23.3)

ends: where the reference's pre-tokenizer cuts, in bytes. ids: its encode with pico-tokenizer.json. The texts are
random over an alphabet of what is hard: digits of many scripts, other numbers, the scripts of step 5, marks, white
space of all kinds, line ends, private and unassigned code points, added tokens and their fragments."""
import json
import os
import random

from tokenizers import Tokenizer

HERE = os.path.dirname(os.path.abspath(__file__))
ALPHABET = (
    list("0123456789") * 2 + list("½²Ⅷ①¼〇٠١٢३०൧\U00011de0\U00016ff4\U0001d7ce\U0001f100")
    + list("一二漢㐀豈⼀かなカナｶﾅ゙・ー") + list("กขค๑๒๓฿ัๆ๏\u0e3f") + list("ກຂ໑໒ັ") + list("កខ១២់៛៖ៜ៰\u17b4")
    + list("ကခ၁၂်႐႑ꩠꩡꧠ꧰") + list("한글각힣ᄀᇿ") + list("abcXYZéßñÀªºǅʰאשلمДжΩ")
    + list("\u0301\u0308\u200b\u200d\ufeff\u0378\ue000\ufffd\U000f0000\U0010ffff\x00\x01\x1f\x7f😀👩")
    + list(" \t\v\f\r\n\x85\xa0\u1680\u180e\u2028\u2029\u3000") + [" ", " ", "  ", "\r\n", "\n\n"]
    + list("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~«»—“€£´") + ["'ll", "don't", "the", "http://x.y/z", "12345", "1234567"])
ADDED = ["<|im_end|>", "<think>", "<|im_start|>", "<|", "<think", "</tool_call>"]
FIXED = ["", "12½3", "①②③④", "1234", "½1234", "1๒3", "๑๒๓๔", "12345678901234567890", "a1b22c333d4444", "  1", "\n 1",
         "0" * 511, "0" * 1531, "1" * 510 + "½" + "2" * 4, "x  \n\n  y", "e\u0301", "\u0301e", "\u200d\u200da", "!!a!a",
         " \u00a0a", " !a", "\r\n\r\n", "a \r\nb", "漢字かなthaiไทย한글", "។ក", " ไทย", "日本 語", "x\u0301\u0301!\u0301"]


def random_text(rng):
    alphabet = rng.sample(ALPHABET, rng.randint(1, 8)) if rng.random() < 0.4 else ALPHABET
    out = []
    for _ in range(rng.randint(1, 24)):
        piece = rng.choice(alphabet)
        roll = rng.random()
        if roll < 0.08:
            piece *= rng.randint(2, 9)
        elif roll < 0.12:
            piece = rng.choice(ADDED)
        elif roll < 0.15:
            first, last = rng.choice([(0x20, 0x3000), (0x3000, 0xd800), (0xe000, 0x20000)])
            piece = chr(rng.randrange(first, last))
        out.append(piece)
    return "".join(out)


def main():
    tokenizer = Tokenizer.from_file(os.path.join(HERE, "pico-tokenizer.json"))
    rng = random.Random(20)
    with open(os.path.join(HERE, "pieces.jsonl"), "w", encoding="utf-8", newline="\n") as out:
        long_words = ["".join(rng.choice("etaoinshrd") for _ in range(n)) for n in (47, 48, 49, 50, 100, 999)]
        for text in FIXED + long_words + [random_text(rng) for _ in range(1500)]:
            bytes_before = [0]
            for c in text:
                bytes_before.append(bytes_before[-1] + len(c.encode()))
            ends = [bytes_before[end] for _, (_, end) in tokenizer.pre_tokenizer.pre_tokenize_str(text)]
            ids = tokenizer.encode(text, add_special_tokens=False).ids
            out.write(json.dumps({"text": text, "ends": ends, "ids": ids}, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
