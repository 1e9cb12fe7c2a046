#!/usr/bin/python3
"""As a new user: `pip install .` in a fresh environment gives a wheel for any Python of this platform, with the library
in it, and the program of docs/python.md and README.md runs. Needs the network, for meson-python.

Environment: AFMOE_SOURCE_ROOT.
"""
import glob
import os
import re
import subprocess
import sys
import tempfile
import unittest
import venv

ROOT = os.environ['AFMOE_SOURCE_ROOT']
# What the tests of the build tree set must not help here.
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(('AFMOE_', 'PYTHON', 'MESON'))}
# Compiled in a third of the time; that it is fast is not what is tested here.
CLEAN['CFLAGS'] = '-O1'
QUICK = ['--config-settings=setup-args=-Davx512=false']
OFFLINE = ('Could not find a version', 'Temporary failure in name resolution', 'Connection', 'No matching distribution')


def run(*command, **keywords):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=CLEAN, **keywords)


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix='afmoe-wheel-')
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        venv.create(os.path.join(cls.folder, 'venv'), with_pip=True)
        cls.python = os.path.join(cls.folder, 'venv', 'bin', 'python')
        answer = run(cls.python, '-m', 'pip', 'wheel', '--no-deps', *QUICK, '-w', cls.folder, ROOT)
        if answer.returncode != 0 and any(word in answer.stdout for word in OFFLINE):
            print('skipped: program pip (the package index is not reached)')
            raise unittest.SkipTest('no package index')
        assert answer.returncode == 0, answer.stdout
        cls.wheel, = glob.glob(os.path.join(cls.folder, '*.whl'))
        answer = run(cls.python, '-m', 'pip', 'install', '--no-deps', '--no-index', cls.wheel)
        assert answer.returncode == 0, answer.stdout

    def test_any_python(self):
        self.assertRegex(os.path.basename(self.wheel), r'^afmoe-[\d.]+-py3-none-linux_\w+\.whl$')

    def test_only_what_is_needed(self):
        from zipfile import ZipFile
        names = [os.path.basename(name) for name in ZipFile(self.wheel).namelist() if '.dist-info' not in name]
        package = os.path.join(ROOT, 'bindings', 'python', 'afmoe')
        self.assertEqual(sorted(names), sorted(['libafmoe.so.0'] + [
            name for name in os.listdir(package) if name.endswith(('.py', '.typed'))]))

    def test_its_own_library(self):
        answer = run(self.python, '-c', 'import afmoe; print(afmoe.library_path)', cwd=self.folder)
        self.assertRegex(answer.stdout, rf'^{re.escape(os.path.realpath(self.folder))}.*libafmoe\.so\.0\n$')

    def test_program_of_the_pages(self):
        programs = []
        for page in ('README.md', os.path.join('docs', 'python.md')):
            with open(os.path.join(ROOT, page), encoding='utf-8') as file:
                programs.append(re.findall(r'^```python\n(.*?)^```$', file.read(), re.M | re.S)[0])
        self.assertEqual(programs[0], programs[1])
        self.assertLessEqual(len(programs[0].splitlines()), 10)
        answer = run(self.python, '-c', programs[0], cwd=ROOT)
        self.assertEqual(answer.stdout, 'The capital of France is Paris.\n')

    def test_compat(self):
        program = ('from afmoe.compat import Llama; import sys; print(Llama(sys.argv[1])("Once", max_tokens=1)'
                   '["object"])')
        answer = run(self.python, '-c', program, os.path.join(ROOT, 'models', 'pico-q8_0.gguf'))
        self.assertEqual(answer.stdout, 'text_completion\n')


if __name__ == '__main__':
    unittest.main()
