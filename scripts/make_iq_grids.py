#!/usr/bin/env python3
"""Writes kernels/ref/iq_grids.c from the tables of gguf-py (module gguf.quants: grid_hex of each IQ class).

usage: make_iq_grids.py [--check] [FILE]

FILE is kernels/ref/iq_grids.c of this checkout unless given. With --check nothing is written; the exit status says
whether FILE is what would be written. Needs the package gguf (written with 0.19; the tables are part of the format
and do not change).
"""
import pathlib
import sys

import numpy
from gguf import quants

GRIDS = [("iq1", quants.IQ1_S), ("iq2_xxs", quants.IQ2_XXS), ("iq2_xs", quants.IQ2_XS), ("iq2_s", quants.IQ2_S),
         ("iq3_xxs", quants.IQ3_XXS), ("iq3_s", quants.IQ3_S)]

HEAD = """\
/* Grids of the IQ formats, see iq_grids.h. Written by scripts/make_iq_grids.py from gguf-py's tables; not to be
 * edited. */
#include "iq_grids.h"
"""


def rows_of(name, grid):
    """The rows as numbers of as many bytes as there are values."""
    grid.init_grid()
    values = grid.grid.reshape(grid.grid_shape).astype(numpy.int64)
    if name == "iq1":
        values = 8 * values + 15
    assert values.min() >= 0 and values.max() < 64
    return values.astype(numpy.uint8).view(f"<u{values.shape[1]}").ravel()


def text():
    parts = [HEAD]
    for name, grid in GRIDS:
        rows = rows_of(name, grid)
        digits, per_line = 2 * rows.itemsize, 116 // (2 * rows.itemsize + 4)
        lines = [", ".join(f"0x{row:0{digits}x}" for row in rows[i:i + per_line])
                 for i in range(0, rows.size, per_line)]
        parts.append(f"\nconst uint{8 * rows.itemsize}_t afmoe__{name}_grid[{rows.size}] = {{\n    " +
                     ",\n    ".join(lines) + "};\n")
    return "".join(parts)


def main():
    arguments = sys.argv[1:]
    check = "--check" in arguments
    files = [a for a in arguments if a != "--check"]
    default = pathlib.Path(__file__).resolve().parent.parent / "kernels" / "ref" / "iq_grids.c"
    path = pathlib.Path(files[0]) if files else default
    if check:
        sys.exit(path.read_text() != text())
    path.write_text(text())


if __name__ == "__main__":
    main()
