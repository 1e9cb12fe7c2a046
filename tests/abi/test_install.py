#!/usr/bin/python3
"""`meson install` puts all in place: with the flags pkg-config gives, C11 and C++17 programs build and run, against the
shared library and, with --static, the archive; and the version is one in header, meson, afmoe.pc and library.

Environment: AFMOE_BUILD_ROOT, AFMOE_LIBRARY_KIND (shared, static or both), AFMOE_VERSION (meson's), AFMOE_CC.
"""
import glob
import os
import re
import unittest

from installed import Installed, run

KIND = os.environ['AFMOE_LIBRARY_KIND']
VERSION = os.environ['AFMOE_VERSION']
SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'install_use.c')
NUMBER = sum(int(part) * scale for part, scale in zip(VERSION.split('.'), (1000000, 1000, 1)))


class Install(Installed):
    def build_and_run(self, compiler, language, standard, *pkg_config_words):
        program = self.build(SOURCE, compiler, standard, language=language, pkg_config=pkg_config_words)
        answer = run(program, os.path.join(self.root, 'no-such-file'), env=self.run_env)
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
