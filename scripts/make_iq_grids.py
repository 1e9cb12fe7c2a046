#!/usr/bin/env python3
"""Writes kernels/ref/iq_grids.h from the tables of gguf-py (module gguf.quants: grid_hex of each IQ class).

usage: make_iq_grids.py [--check] [FILE]

FILE is kernels/ref/iq_grids.h of this checkout unless given. With --check nothing is written; the exit status says
whether FILE is what would be written. Needs the package gguf (written with 0.19; the tables are part of the format
and do not change).
"""
import pathlib
import sys

import numpy
from gguf import quants

GRIDS = [("iq1", quants.IQ1_S, 8), ("iq2_xxs", quants.IQ2_XXS, 8), ("iq2_xs", quants.IQ2_XS, 8),
         ("iq2_s", quants.IQ2_S, 8), ("iq3_xxs", quants.IQ3_XXS, 4), ("iq3_s", quants.IQ3_S, 4)]

HEAD = """\
/* Grids of the IQ formats. Written by scripts/make_iq_grids.py from gguf-py's tables; not to be edited.
 *
 * A row is 8 codes of 2 bits (iq1, iq2) or 4 codes of 3 bits, 4 bits apart (iq3), the first in the lowest bits. What a
 * code stands for is said in iq_blocks_ref.c. */
#ifndef AFMOE_KERNELS_IQ_GRIDS_H
#define AFMOE_KERNELS_IQ_GRIDS_H

#include <stdint.h>
"""


def packed_rows(grid, n_codes):
    """The rows as 16-bit numbers, and that they say what gguf-py makes of them."""
    rows = numpy.frombuffer(bytes.fromhex(grid.grid_hex.decode()), dtype="<u2")
    bits = 16 // n_codes
    codes = rows[:, None] >> (numpy.arange(n_codes, dtype=numpy.uint16) * bits) & ((1 << bits) - 1)
    grid.init_grid()
    assert rows.size == grid.grid_shape[0]
    assert (numpy.array(grid.grid_map)[codes] == grid.grid.reshape(codes.shape)).all()
    return rows


def text():
    parts = [HEAD]
    for name, grid, n_codes in GRIDS:
        rows = packed_rows(grid, n_codes)
        lines = [", ".join(f"0x{row:04x}" for row in rows[i:i + 14]) for i in range(0, rows.size, 14)]
        parts.append(f"\nstatic const uint16_t {name}_grid[{rows.size}] = {{\n    " + ",\n    ".join(lines) + "};\n")
    parts.append("\n#endif\n")
    return "".join(parts)


def main():
    arguments = sys.argv[1:]
    check = "--check" in arguments
    files = [a for a in arguments if a != "--check"]
    default = pathlib.Path(__file__).resolve().parent.parent / "kernels" / "ref" / "iq_grids.h"
    path = pathlib.Path(files[0]) if files else default
    if check:
        sys.exit(path.read_text() != text())
    path.write_text(text())


if __name__ == "__main__":
    main()
