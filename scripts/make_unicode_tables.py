#!/usr/bin/env python3
"""Write lib/text/unicode_table.c: make_unicode_tables.py [--check] [OUTPUT]

Source: general categories of Unicode 16.0.0, which is what the regular expressions of the reference (Hugging Face
tokenizers 0.23, oniguruma) know, plus thirteen numbers of Unicode 17.0.0: the reference's step `Digits` asks Rust's
char::is_numeric, which is one version ahead. White space is the Unicode property White_Space, as \\s there.

Needs a Python whose unicodedata is 16.0.0 (3.14), else the package unicodedata2==16.0.0. --check compares with the
file instead of writing it; where the package tokenizers is installed every code point is compared with it as well."""
import os
import sys

UNICODE = "16.0.0"
NUMBERS_OF_17 = list(range(0x11DE0, 0x11DEA)) + list(range(0x16FF4, 0x16FF7))
WHITE_SPACE = [*range(9, 14), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000]
CLASSES = ["OTHER", "LETTER", "MARK", "PUNCTUATION", "SYMBOL", "SPACE", "NUMBER", "DIGIT"]
SCRIPTS = [  # the six alternatives of Trinity's script step, in its order
    [(0x4E00, 0x9FFF), (0x3040, 0x30FF), (0x3400, 0x4DBF), (0xF900, 0xFAFF), (0xFF65, 0xFF9F), (0x2F00, 0x2FDF)],
    [(0x0E00, 0x0E7F)], [(0x0E80, 0x0EFF)], [(0x1780, 0x17FF)],
    [(0x1000, 0x109F), (0xAA60, 0xAA7F), (0xA9E0, 0xA9FF)], [(0xAC00, 0xD7AF), (0x1100, 0x11FF)]]
N_CODE_POINTS, BLOCK = 0x110000, 128


def unicode_data():
    import unicodedata
    if unicodedata.unidata_version != UNICODE:
        try:
            import unicodedata2 as unicodedata
        except ImportError:
            pass
    if unicodedata.unidata_version != UNICODE:
        sys.exit(f"needs Unicode {UNICODE}, found {unicodedata.unidata_version}: pip install unicodedata2=={UNICODE}")
    return unicodedata


def properties():
    data = unicode_data()
    by_category = {"L": 1, "M": 2, "P": 3, "S": 4, "N": 6}
    out = bytearray(N_CODE_POINTS)
    for code in range(N_CODE_POINTS):
        category = data.category(chr(code))
        out[code] = 7 if category == "Nd" else by_category.get(category[0], 0)
    for code in WHITE_SPACE:
        out[code] = 5
    for code in NUMBERS_OF_17:
        out[code] = 6
    for script, ranges in enumerate(SCRIPTS, 1):
        for first, last in ranges:
            for code in range(first, last + 1):
                out[code] |= script << 4
    return bytes(out)


def render(table):
    blocks, index = {}, []
    for at in range(0, N_CODE_POINTS, BLOCK):
        index.append(blocks.setdefault(table[at:at + BLOCK], len(blocks)))
    assert len(blocks) <= 256
    def rows(values):
        return "".join("    " + ", ".join(map(str, values[i:i + 32])) + ",\n" for i in range(0, len(values), 32))
    out = [f"/* Made by scripts/make_unicode_tables.py from Unicode {UNICODE} and thirteen numbers of 17.0.0; "
           "not edited by hand. */\n", '#include "unicode_table.h"\n\n',
           f"const uint8_t afmoe__unicode_block[{len(index)}] = {{\n", rows(index), "};\n\n",
           f"const uint8_t afmoe__unicode_class[{len(blocks) * BLOCK}] = {{\n"]
    out += [rows(block) for block in blocks]
    return "".join(out) + "};\n"


def probe(table):
    """Compare with the reference itself, code point by code point."""
    try:
        from tokenizers import Regex, pre_tokenizers
    except ImportError:
        print("tokenizers is not installed: not compared with it")
        return
    codes = [c for c in range(N_CODE_POINTS) if not 0xD800 <= c < 0xE000]
    wanted = {r"\p{L}": (1,), r"\p{M}": (2,), r"\p{P}": (3,), r"\p{S}": (4,), r"\s": (5,), r"\p{Nd}": (7,)}
    for pattern, classes in wanted.items():
        split = pre_tokenizers.Split(Regex(pattern), "removed")
        left = {c for piece, _ in split.pre_tokenize_str("".join(map(chr, codes))) for c in piece}
        wrong = [hex(c) for c in codes if (chr(c) not in left) != ((table[c] & 15) in classes)]
        assert not wrong, (pattern, wrong[:20])
    pieces = {s for s, _ in pre_tokenizers.Digits(True).pre_tokenize_str("".join("a" + chr(c) for c in codes))}
    wrong = [hex(c) for c in codes if (chr(c) in pieces and chr(c) != "a") != ((table[c] & 15) in (6, 7))]
    assert not wrong, ("is_numeric", wrong[:20])
    print("agrees with tokenizers on every code point")


def main():
    arguments = sys.argv[1:]
    check = "--check" in arguments
    paths = [a for a in arguments if a != "--check"]
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    path = paths[0] if paths else os.path.join(root, "lib", "text", "unicode_table.c")
    table = properties()
    text = render(table)
    if check:
        if open(path, encoding="ascii").read() != text:
            sys.exit(f"{path} differs from what this script makes")
        print("the file is what this script makes")
    else:
        open(path, "w", encoding="ascii", newline="\n").write(text)
    probe(table)


main()
