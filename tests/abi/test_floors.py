#!/usr/bin/python3
"""The house stands as docs/architecture.md says: a file includes headers of its own floor and lower ones only, programs
include no private header, and a file's name is found once in the tree.

Environment: AFMOE_SOURCE_ROOT.
"""
import os
import re
import unittest

ROOT = os.environ['AFMOE_SOURCE_ROOT']
HEIGHTS = {'include': 0, 'kernels': 1, 'lib/base': 2, 'lib/weights': 3, 'lib/core': 4, 'lib/session': 5, 'lib/text': 5,
           'lib/sampler': 5, 'lib/generate': 6, 'lib/api': 7}
# Names that belong in many folders.
COMMON_NAMES = {'meson.build', 'README.md'}


def folders(*tops):
    for top in tops:
        for folder, inside, files in os.walk(os.path.join(ROOT, top)):
            inside[:] = [name for name in inside if name != '__pycache__']
            yield os.path.relpath(folder, ROOT), files


def floor_of(path):
    for floor in HEIGHTS:
        if path.startswith(floor + '/'):
            return floor
    return None


def includes_of(path):
    with open(os.path.join(ROOT, path), encoding='utf-8') as file:
        return re.findall(r'^[ \t]*#[ \t]*include[ \t]*["<]([^">]+)[">]', file.read(), re.M)


class Floors(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.sources = {os.path.join(folder, name)
                       for folder, names in folders('include', 'kernels', 'lib', 'examples', 'benchmarks')
                       for name in names if name.endswith(('.c', '.h'))}
        cls.headers = {os.path.basename(path): path for path in cls.sources if path.endswith('.h')}

    def test_includes(self):
        self.assertGreater(len(self.sources), 20)
        for path in sorted(self.sources):
            floor = floor_of(path)
            for include in includes_of(path):
                header = self.headers.get(os.path.basename(include))
                if header is None:
                    continue  # of the system
                below = floor_of(header)
                with self.subTest(file=path, includes=header):
                    if floor:
                        self.assertTrue(below == floor or HEIGHTS[below] < HEIGHTS[floor])
                    else:
                        self.assertTrue(header == 'include/afmoe.h' or
                                        os.path.dirname(header) == os.path.dirname(path))

    def test_file_names(self):
        seen = {}
        for folder, names in folders('include', 'kernels', 'lib', 'examples', 'benchmarks', 'tests', 'scripts', 'docs'):
            if folder.startswith(('tests/data', 'tests/fuzz/corpus')):
                continue
            for name in names:
                if name not in COMMON_NAMES:
                    with self.subTest(name=name):
                        self.assertNotIn(name, seen, folder)
                    seen[name] = folder

    def test_every_folder_has_a_height(self):
        for folder, names in folders('lib'):
            if any(name.endswith('.c') for name in names):
                with self.subTest(folder=folder):
                    self.assertIsNotNone(floor_of(folder + '/'))


if __name__ == '__main__':
    unittest.main()
