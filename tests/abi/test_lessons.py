#!/usr/bin/python3
"""The lessons in examples/ are built as their readers will build them, with what pkg-config says about an installed
library and every warning an error, and say what they should with the shipped model; a file that is no model makes each
fail with a message.

Environment: AFMOE_SOURCE_ROOT, AFMOE_BUILD_ROOT, AFMOE_LIBRARY_KIND, AFMOE_CC.
"""
import glob
import os
import re
import subprocess
import tempfile
import unittest

from installed import Installed

ROOT = os.environ['AFMOE_SOURCE_ROOT']
MODEL = os.path.join(ROOT, 'models', 'pico-q8_0.gguf')
PARIS = 'The capital of France is Paris.'
STATIC = ('--static',) if os.environ['AFMOE_LIBRARY_KIND'] == 'static' else ()


def path_of(name):
    return os.path.join(ROOT, 'examples', name)


class Lessons(Installed):
    def program(self, name):
        if name.endswith('.cpp'):
            return self.build(path_of(name), 'g++', 'c++17', '-Wshadow', pkg_config=STATIC)
        return self.build(path_of(name), os.environ['AFMOE_CC'], 'c11', '-Wshadow', '-D_POSIX_C_SOURCE=200809L',
                          '-pthread', pkg_config=STATIC)

    def lesson(self, name, *arguments):
        """What it prints; its failing is tried too."""
        program = self.program(name)
        answer = subprocess.run([program, path_of(name)], env=self.run_env, capture_output=True, text=True)
        self.assertEqual((answer.returncode, answer.stdout), (1, ''))
        self.assertRegex(answer.stderr, rf'^AFMOE_FORMAT: .*{re.escape(name)}.*\n$')
        answer = subprocess.run([program, MODEL, *arguments], env=self.run_env, capture_output=True, text=True)
        self.assertEqual((answer.returncode, answer.stderr), (0, ''))
        return answer.stdout

    def test_hello(self):
        self.assertEqual(self.lesson('01-hello.c'), PARIS + '\n')
        with open(path_of('01-hello.c'), encoding='utf-8') as file:
            self.assertLess(len(file.readlines()), 40)

    def test_chat_turn(self):
        out = self.lesson('02-chat-turn.c')
        self.assertRegex(out, r'(?s)^.{40,}\n\[ended after \d+ tokens\]\n$')
        self.assertEqual(self.lesson('02-chat-turn.c'), out)  # the seed decides

    def test_logprobs(self):
        lines = self.lesson('03-logprobs.c').splitlines()
        rows = [re.fullmatch(r' *\d+ +(-|-?\d+\.\d+)  (.+)', line).groups() for line in lines[:-1]]
        self.assertEqual(''.join(text for _, text in rows), 'Once upon a time, Jack walked to the forest.')
        self.assertEqual([logprob for logprob, _ in rows].index('-'), 0)
        values = [float(logprob) for logprob, _ in rows[1:]]
        mean = float(lines[-1].removeprefix('mean log-probability '))
        self.assertAlmostEqual(mean, sum(values) / len(values), delta=1e-3)
        self.assertTrue(-3 < mean < 0, mean)  # the model was trained on such sentences

    def test_sessions(self):
        out = self.lesson('04-sessions.c')
        counts = [tuple(map(int, found)) for found in
                  re.findall(r'(\d+) tokens: (\d+) were there, (\d+) computed', out)]
        (n, *first), (_, *again), (n_other, kept, computed) = counts
        self.assertEqual((first, again), ([0, n], [n, 0]))
        self.assertTrue(0 < kept < n_other and kept + computed == n_other)
        tries = re.findall(r'^ +(-\d+\.\d+)  ', out, re.M)
        self.assertEqual(len(tries), 3)
        self.assertEqual(sorted(map(float, tries), reverse=True), list(map(float, tries)))
        self.assertIn(PARIS, out)

    def test_cancel(self):
        out = self.lesson('05-cancel.c', '200')
        (first, n), (second, n_more) = re.findall(r'^\[(AFMOE_\w+), (\d+) tokens\]$', out, re.M)
        self.assertEqual((first, second, n_more), ('AFMOE_CANCELLED', 'AFMOE_OK', '5'))
        self.assertLess(int(n), 4000)

    def test_threads(self):
        lines = self.lesson('06-threads.c').splitlines()
        self.assertEqual(lines[:4], ['What is 7 plus 12?', '  7 + 12 = 19.', 'What is the capital of France?',
                                     '  ' + PARIS])

    def test_raii(self):
        self.assertEqual(self.lesson('07-raii.cpp'), PARIS + '\n')

    def test_embeddings(self):
        itself, near, far = (float(line.split()[0]) for line in self.lesson('08-embeddings.c').splitlines())
        self.assertEqual(itself, 1)
        self.assertTrue(1 > near > far > -1, (near, far))

    def test_batch(self):
        lines = self.lesson('09-batch.c').splitlines()
        self.assertEqual(lines[:2], ['What is the capital of France? ' + PARIS, 'What is 7 plus 12? 7 + 12 = 19.'])
        self.assertIn('Rome', lines[2])

    def test_state(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, 'session')
            first = self.lesson('10-state.c', path).splitlines()
            again = self.lesson('10-state.c', path).splitlines()
        self.assertEqual((first[0], again[0]), ('nothing is saved yet', 'loaded what was saved'))
        (n, kept, computed), (*_, kept_again, computed_again) = [
            tuple(map(int, re.findall(r'\d+', lines[1]))) for lines in (first, again)]
        self.assertEqual((kept, computed, kept_again, computed_again), (0, n, n, 0))
        self.assertEqual(first[2:], again[2:])
        self.assertRegex(first[2], r'^What is 7 plus 12\? \(\d+ computed\)$')
        self.assertIn(PARIS, first[-1])

    def test_all_are_tried(self):
        tried = re.findall(r"self\.lesson\('(.+?)'", open(__file__, encoding='utf-8').read())
        self.assertEqual(sorted(set(tried)), sorted(map(os.path.basename, glob.glob(path_of('[0-9]*')))))


if __name__ == '__main__':
    unittest.main()
