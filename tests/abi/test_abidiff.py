#!/usr/bin/python3
"""libabigail's view of the interface beside that of the first release: the header of the oldest tag v* and this one are
each made into a library of empty functions with debugging information, which abidiff compares. Functions and constants
may come, structs may grow at their end. Without a tag (or git) this header takes the place of the first one. What the
comparison sees is tried on headers made wrong here.

Environment: AFMOE_SOURCE_ROOT, AFMOE_CC.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = os.environ['AFMOE_SOURCE_ROOT']
# Growth at the end is what the `size` of each struct is for.
GROWTH = '[suppress_type]\n  type_kind = struct\n  has_data_member_inserted_at = end\n'


def run(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)


def header_of_first_tag():
    tags = run('git', '-C', ROOT, 'tag', '--list', 'v*', '--sort=version:refname') if shutil.which('git') else None
    if tags is None or tags.returncode != 0 or not tags.stdout.split():
        return None
    shown = run('git', '-C', ROOT, 'show', tags.stdout.split()[0] + ':include/afmoe.h')
    return shown.stdout if shown.returncode == 0 else None


def functions_of(header):
    """The declarations, as text."""
    return re.findall(r'^AFMOE_API ([^;]*);', re.sub(r'/\*.*?\*/', '', header, flags=re.S), re.M)


class Abidiff(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not shutil.which('abidiff'):
            print('skipped: program abidiff (not installed)')
            raise unittest.SkipTest('no abidiff')
        folder = tempfile.TemporaryDirectory(prefix='afmoe-abidiff-')
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        with open(os.path.join(ROOT, 'include', 'afmoe.h'), encoding='utf-8') as file:
            cls.header = file.read()
        cls.growth = os.path.join(cls.folder, 'growth')
        with open(cls.growth, 'w', encoding='utf-8') as file:
            file.write(GROWTH)
        cls.now = cls.library(cls.header, 'now')

    @classmethod
    def library(cls, header, name):
        source, library = (os.path.join(cls.folder, name + end) for end in ('.c', '.so'))
        with open(source, 'w', encoding='utf-8') as file:
            file.write(header)
            for function in functions_of(header):
                file.write(f'{function} {{ __builtin_unreachable(); }}\n')
        made = run(os.environ['AFMOE_CC'], '-g', '-O0', '-fPIC', '-shared', '-w', '-o', library, source)
        assert made.returncode == 0, made.stdout
        return library

    def compare(self, old, new):
        """Whether a program made for the old library runs with the new one; and what abidiff says."""
        answer = run('abidiff', '--no-added-syms', '--suppressions', self.growth, old, new)
        self.assertLess(answer.returncode & 3, 1, answer.stdout)  # an error of its own
        return answer.returncode == 0, answer.stdout

    def changed(self, name, old, new):
        self.assertIn(old, self.header)
        return self.library(self.header.replace(old, new, 1), name)

    def test_first_release(self):
        fits, said = self.compare(self.library(header_of_first_tag() or self.header, 'first'), self.now)
        self.assertTrue(fits, said)

    def test_all_functions(self):
        self.assertEqual(len(functions_of(self.header)), len(re.findall('^AFMOE_API ', self.header, re.M)))

    def test_growth_is_no_break(self):
        member = 'char message[504]; /* NUL-terminated, one line */\n'
        grown = self.changed('grown', member, member + 'uint64_t more;\n')
        self.assertTrue(self.compare(self.now, grown)[0])

    def test_breaks_are_seen(self):
        for name, old, new in (
                ('moved', 'int32_t code;      /* the status returned */', 'int32_t before; int32_t code;'),
                ('gone', 'AFMOE_API uint32_t afmoe_version(void);', ''),
                ('argument', 'afmoe_error_init(afmoe_error *error, uint32_t size)',
                 'afmoe_error_init(afmoe_error *error, uint64_t size)')):
            with self.subTest(name):
                self.assertFalse(self.compare(self.now, self.changed(name, old, new))[0])


if __name__ == '__main__':
    sys.exit(not unittest.main(exit=False).result.wasSuccessful())
