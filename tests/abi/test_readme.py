#!/usr/bin/python3
"""The README keeps its word: its C program is examples/01-hello.c letter for letter, builds without a warning against this
build's library and answers with the shipped model; the files and commands it names are there.

Environment: AFMOE_SOURCE_ROOT, AFMOE_BUILD_ROOT, AFMOE_CC, AFMOE_LIBRARY_KIND.
"""
import os
import re
import shlex
import subprocess
import tempfile
import unittest

ROOT = os.environ['AFMOE_SOURCE_ROOT']
LIBRARY_DIR = os.path.join(os.environ['AFMOE_BUILD_ROOT'], 'lib')
MODEL = os.path.join(ROOT, 'models', 'pico-q8_0.gguf')


def text_of(*path):
    with open(os.path.join(ROOT, *path), encoding='utf-8') as file:
        return file.read()


class Readme(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.text = text_of('README.md')

    def blocks(self, language):
        return re.findall(rf'^```{language}\n(.*?)^```$', self.text, re.M | re.S)

    def test_program_is_the_example(self):
        self.assertEqual(self.blocks('c'), [text_of('examples', '01-hello.c')])

    def test_program_runs(self):
        with tempfile.TemporaryDirectory(prefix='afmoe-readme-') as folder:
            source, program = os.path.join(folder, 'hello.c'), os.path.join(folder, 'hello')
            with open(source, 'w', encoding='utf-8') as file:
                file.write(self.blocks('c')[0])
            private = ['-ljansson', '-lm', '-pthread'] if os.environ['AFMOE_LIBRARY_KIND'] == 'static' else []
            subprocess.run([os.environ['AFMOE_CC'], '-std=c11', '-Wall', '-Wextra', '-Werror', source, '-o', program,
                            '-I', os.path.join(ROOT, 'include'), '-L', LIBRARY_DIR, '-lafmoe', *private], check=True)
            env = {**os.environ, 'LD_LIBRARY_PATH': LIBRARY_DIR}

            answer = subprocess.run([program, MODEL], env=env, capture_output=True, text=True)
            self.assertEqual((answer.returncode, answer.stderr), (0, ''))
            self.assertEqual(answer.stdout, 'The capital of France is Paris.\n')

            answer = subprocess.run([program, source], env=env, capture_output=True, text=True)
            self.assertEqual((answer.returncode, answer.stdout), (1, ''))
            self.assertIn('hello.c', answer.stderr)

    def test_links_lead_somewhere(self):
        links = re.findall(r'\]\((?!https?:)([^)#]+)', self.text)
        self.assertGreater(len(links), 3)
        for link in links:
            with self.subTest(link=link):
                self.assertTrue(os.path.exists(os.path.join(ROOT, link)))

    def test_scripts_can_be_run(self):
        scripts = {word for block in self.blocks('sh') for line in block.splitlines()
                   for word in shlex.split(line, comments=True)[:1] if word.startswith('scripts/')}
        self.assertEqual(scripts, {'scripts/quickstart', 'scripts/check'})
        for script in scripts:
            with self.subTest(script=script):
                self.assertTrue(os.access(os.path.join(ROOT, script), os.X_OK))


if __name__ == '__main__':
    unittest.main()
