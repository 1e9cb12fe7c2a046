#!/usr/bin/python3
"""Every object of the library has instructions of its own CPU level only: what runs everywhere has no AVX at all, files
*_avx2.c no AVX-512 and no VNNI, files *_avxvnni.c no AVX-512, files *_avx512.c nothing beyond F, BW, VL and DQ, files
*_avx512icl.c nothing beyond these and VNNI, files *_avx512bf16.c nothing beyond F, BW, VL, DQ and BF16.

Usage: test_instructions.py ARCHIVE
"""
import re
import shutil
import subprocess
import sys
import unittest

AVX = re.compile(r'%ymm|%zmm|%k[0-7]\b|\tv[a-z0-9]+ .*%xmm|\tvzero')
AVX512 = re.compile(r'%zmm|%k[0-7]\b|%[xy]mm(1[6-9]|2[0-9]|3[01])\b')
VNNI = re.compile(r'\bvpdp(busd|wssd)\b')
BF16 = re.compile(r'\bvdpbf16ps\b')
BEYOND_AVX512 = re.compile(r'\t(vpdp\w+|vdpbf16ps|vcvtne\w+|vpermb|vperm[it]2b|vpmultishiftqb|vpopcnt\w+|gf2p8\w+|'
                           r'v?aes\w+|vpclmul\w+|vpcompress[bw]|vpexpand[bw]|vpsh[lr]d\w*|vpmadd52\w+|vpconflict\w+|'
                           r'vplzcnt\w+)\b')


def levels_of(archive):
    """Level -> list of (object, instruction)."""
    text = subprocess.run(['objdump', '-d', '--no-show-raw-insn', archive], check=True, capture_output=True,
                          text=True).stdout
    found = {'c': [], 'avx2': [], 'avxvnni': [], 'avx512': [], 'avx512icl': [], 'avx512bf16': []}
    name, level = '', 'c'
    for line in text.splitlines():
        start = re.match(r'(\S+):\s+file format', line)
        if start:
            name = start.group(1).rpartition('/')[2]
            level = next((at for at in found if f'_{at}.c.' in name), 'c')
        elif '\t' in line:
            found[level].append((name, line))
    return found


class Instructions(unittest.TestCase):
    def check(self, level, *forbidden):
        self.assertEqual([at for at in self.found[level] if any(f.search(at[1]) for f in forbidden)][:5], [])

    @classmethod
    def setUpClass(cls):
        cls.found = levels_of(archive)

    def test_everywhere(self):
        self.assertTrue(self.found['c'])
        self.check('c', AVX)

    def test_avx2(self):
        self.assertTrue(any('%ymm' in line for _, line in self.found['avx2']))
        self.check('avx2', AVX512, VNNI)

    def test_avxvnni(self):
        self.assertTrue(any(VNNI.search(line) for _, line in self.found['avxvnni']))
        self.check('avxvnni', AVX512)

    def test_avx512(self):
        self.assertTrue(any('%zmm' in line for _, line in self.found['avx512']))
        self.check('avx512', BEYOND_AVX512)

    def check_beyond_avx512(self, level, allowed):
        self.assertTrue(any(allowed.search(line) for _, line in self.found[level]))
        beyond = [(name, line) for name, line in self.found[level]
                  if BEYOND_AVX512.search(line) and not allowed.search(line)]
        self.assertEqual(beyond[:5], [])

    def test_avx512icl(self):
        self.check_beyond_avx512('avx512icl', VNNI)

    def test_avx512bf16(self):
        self.check_beyond_avx512('avx512bf16', BF16)


if __name__ == '__main__':
    archive = sys.argv.pop(1)
    if not shutil.which('objdump'):
        print('skipped: instructions (no objdump)')
        sys.exit(0)
    unittest.main()
