#!/usr/bin/python3
"""include/afmoe.h compiles alone as C99, C11, C17, C++11 and C++17 with gcc and clang, without a warning.

Environment: AFMOE_SOURCE_ROOT.
"""
import os
import shutil
import subprocess
import unittest

ROOT = os.environ['AFMOE_SOURCE_ROOT']
FLAGS = ['-fsyntax-only', '-pedantic', '-Wall', '-Wextra', '-Wshadow', '-Werror', '-I', os.path.join(ROOT, 'include')]
STANDARDS = {'c': ['c99', 'c11', 'c17'], 'c++': ['c++11', 'c++17']}


def first_program(*names):
    """The first that is installed. Debian's clang is known by its version only."""
    for name in names:
        if shutil.which(name):
            return name
    print(f'skipped: program {names[0]} (not installed)')
    raise unittest.SkipTest(names[0])


class Header(unittest.TestCase):
    def compiles(self, language, *programs):
        program = first_program(*programs)
        for standard in STANDARDS[language]:
            with self.subTest(program=program, standard=standard):
                answer = subprocess.run(
                    [program, '-x', language, f'-std={standard}', *FLAGS,
                     os.path.join(ROOT, 'tests', 'abi', 'header_use.c')],
                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                self.assertEqual(answer.returncode, 0, answer.stdout)

    def test_gcc(self):
        self.compiles('c', 'gcc')

    def test_gxx(self):
        self.compiles('c++', 'g++')

    def test_clang(self):
        self.compiles('c', 'clang-14', 'clang')

    def test_clangxx(self):
        self.compiles('c++', 'clang++-14', 'clang++')


if __name__ == '__main__':
    unittest.main()
