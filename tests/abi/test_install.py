#!/usr/bin/python3
"""`meson install` puts all in place: with the flags pkg-config gives, C11 and C++17 programs build and run, against the
shared library and, with --static, the archive; and the version is one in header, meson, afmoe.pc and library.

Environment: AFMOE_BUILD_ROOT, AFMOE_LIBRARY_KIND (shared, static or both), AFMOE_VERSION (meson's), AFMOE_CC.
"""
import glob
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

BUILD_ROOT = os.environ['AFMOE_BUILD_ROOT']
KIND = os.environ['AFMOE_LIBRARY_KIND']
VERSION = os.environ['AFMOE_VERSION']
SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'install_use.c')
MESON = [sys.executable, '/usr/bin/meson'] if os.path.exists('/usr/bin/meson') else ['meson']
NUMBER = sum(int(part) * scale for part, scale in zip(VERSION.split('.'), (1000000, 1000, 1)))


def run(*command, **keywords):
    answer = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **keywords)
    if answer.returncode != 0:
        raise AssertionError(f'{shlex.join(command)} ended with {answer.returncode}:\n{answer.stdout}')
    return answer.stdout


class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.root = tempfile.mkdtemp(prefix='afmoe-install-')
        cls.addClassCleanup(shutil.rmtree, cls.root)
        run(*MESON, 'install', '-C', BUILD_ROOT, '--no-rebuild', '--destdir', cls.root)
        cls.pc = cls.find('afmoe.pc')
        cls.header = cls.find('afmoe.h')
        cls.env = {**os.environ, 'PKG_CONFIG_PATH': os.path.dirname(cls.pc), 'PKG_CONFIG_SYSROOT_DIR': cls.root}

    @classmethod
    def find(cls, name):
        found = glob.glob(os.path.join(cls.root, '**', name), recursive=True)
        assert len(found) == 1, (name, found)
        return found[0]

    def pkg_config(self, *words):
        return shlex.split(run('pkg-config', *words, 'afmoe', env=self.env))

    def build_and_run(self, compiler, language, standard, *pkg_config_words):
        program = os.path.join(self.root, f'use-{language}')
        # Flags of the library go last: the linker reads left to right.
        run(compiler, f'-std={standard}', '-Wall', '-Wextra', '-Werror', '-x', language, SOURCE, '-x', 'none',
            '-o', program, *self.pkg_config('--cflags', '--libs', *pkg_config_words))
        folder = os.path.dirname(glob.glob(os.path.join(self.root, '**', 'libafmoe.*'), recursive=True)[0])
        answer = run(program, os.path.join(self.root, 'no-such-file'), env={**os.environ, 'LD_LIBRARY_PATH': folder})
        self.assertEqual(answer, f'{VERSION} {NUMBER}\n')
        return run('readelf', '-d', program)

    def build_in_both_languages(self, *pkg_config_words):
        for compiler, language, standard in ((os.environ['AFMOE_CC'], 'c', 'c11'), ('g++', 'c++', 'c++17')):
            with self.subTest(language=language):
                yield self.build_and_run(compiler, language, standard, *pkg_config_words)

    if KIND != 'static':
        def test_shared(self):
            for needed in self.build_in_both_languages():
                self.assertIn('libafmoe.so.0', needed)

        def test_no_dependency_leaks(self):
            """A host of the shared library links with -lafmoe and nothing else."""
            self.assertEqual([word for word in self.pkg_config('--libs') if word.startswith('-l')], ['-lafmoe'])

    if KIND != 'shared':
        def test_static(self):
            for needed in self.build_in_both_languages('--static'):
                if KIND == 'static':
                    self.assertNotIn('libafmoe', needed)

    def test_version(self):
        with open(self.header, encoding='utf-8') as file:
            parts = re.findall(r'\bAFMOE_VERSION_(?:MAJOR|MINOR|PATCH) = (\d+)', file.read())
        self.assertEqual('.'.join(parts), VERSION)
        self.assertEqual(self.pkg_config('--modversion'), [VERSION])
        if KIND != 'static':
            self.assertTrue(self.find(f'libafmoe.so.{VERSION}'))

    def test_only_one_header(self):
        headers = glob.glob(os.path.join(self.root, '**', '*.h'), recursive=True)
        self.assertEqual(headers, [self.header])

    def test_model(self):
        with open(self.find('pico-q8_0.gguf'), 'rb') as file:
            self.assertEqual(file.read(4), b'GGUF')


if __name__ == '__main__':
    unittest.main()
