#!/usr/bin/python3
"""The manual pages name every function of the header and every option of the command, and nothing that is not there;
groff reads them without a warning; the completion offers what --help lists.

Environment: AFMOE_SOURCE_ROOT, AFMOE_COMMAND.
"""
import os
import re
import shutil
import subprocess
import unittest

ROOT = os.environ['AFMOE_SOURCE_ROOT']
COMMAND = os.environ['AFMOE_COMMAND']
COMPLETION = os.path.join(ROOT, 'share', 'bash-completion', 'completions', 'afmoe')


def text_of(*path):
    with open(os.path.join(ROOT, *path), encoding='utf-8') as file:
        return file.read()


def help_of(*command):
    return subprocess.run([COMMAND, *command, '--help'], check=True, capture_output=True, text=True).stdout


def commands():
    return re.findall(r'^  (\w+) ', help_of(), re.M)


def options_of(command):
    """Long and short ones, with their dashes."""
    found = set()
    for letter, name in re.findall(r'^  (-\w,|   ) --([\w-]+)', help_of(command), re.M):
        found.add('--' + name)
        if letter.strip():
            found.add(letter[:2])
    return found


class Pages(unittest.TestCase):
    def test_functions(self):
        declared = set(re.findall(r'^AFMOE_API [\w *]*?(\w+)\(', text_of('include', 'afmoe.h'), re.M))
        self.assertGreater(len(declared), 40)
        self.assertEqual(set(re.findall(r'\bFn (\w+)', text_of('man', 'afmoe.3'))), declared)

    def test_groff(self):
        if not shutil.which('groff'):
            self.fail('groff is not installed')
        for name in ('afmoe.1', 'afmoe.3'):
            answer = subprocess.run(['groff', '-mdoc', '-Tutf8', '-ww', '-z', os.path.join(ROOT, 'man', name)],
                                    capture_output=True, text=True)
            self.assertEqual((answer.returncode, answer.stderr), (0, ''), name)


class Command(unittest.TestCase):
    def test_options(self):
        page = text_of('man', 'afmoe.1')
        listed = {'--version'}
        for command in commands():
            listed |= options_of(command)
        self.assertGreater(len(listed), 30)
        named = set()
        for line in re.findall(r'^\.It (Fl .*)$', page, re.M):
            named |= {'-' + name for name in re.findall(r'(?<=Fl )[\w-]+|(?<=, )-[\w-]+', line)}
        self.assertEqual(named, listed)

    def test_commands(self):
        page = text_of('man', 'afmoe.1')
        self.assertEqual(sorted(re.findall(r'^\.Nm\n\.Cm (\w+)$', page, re.M)), sorted(commands()))
        self.assertEqual(sorted(re.findall(r'^\.It Cm (\w+)$', page, re.M)), sorted(commands()))

    def test_chat_commands(self):
        page = text_of('man', 'afmoe.1')
        shown = subprocess.run([COMMAND, 'chat', '-q', '-m', os.path.join(ROOT, 'models', 'pico-q8_0.gguf')],
                               input='/help\n', capture_output=True, text=True).stderr
        self.assertGreater(len(re.findall(r'/\w+', shown)), 7)
        for name in re.findall(r'/\w+', shown):
            self.assertRegex(page, rf'(?m)^\.(It )?Cm {name}\b')

    def complete(self, *words):
        """What bash offers for the last of these words."""
        script = f'. "{COMPLETION}"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); ' \
                 '_afmoe; printf "%s\\n" "${COMPREPLY[@]}"'
        answer = subprocess.run(['bash', '-c', script, 'bash', COMMAND, *words], capture_output=True, text=True,
                                cwd=os.path.join(ROOT, 'models'))
        self.assertEqual((answer.returncode, answer.stderr), (0, ''))
        return set(answer.stdout.split())

    def test_completion(self):
        self.assertEqual(self.complete(''), {*commands(), '--help', '--version'})
        self.assertEqual(self.complete('i'), {'inspect'})
        for command in commands():
            self.assertEqual(self.complete(command, '-'), options_of(command), command)
        self.assertEqual(self.complete('run', '--top'), {'--top-k', '--top-p'})
        self.assertEqual(self.complete('run', '--cells', ''), {'f32', 'f16', 'bf16', 'q8_0'})
        self.assertEqual(self.complete('run', '-m', 'pico'), {'pico-q8_0.gguf'})
        self.assertEqual(self.complete('inspect', 'pico'), {'pico-q8_0.gguf'})
        self.assertEqual(self.complete('run', '--temp', ''), set())


if __name__ == '__main__':
    unittest.main()
