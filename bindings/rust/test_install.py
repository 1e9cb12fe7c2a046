#!/usr/bin/python3
"""The crate as a new user meets it: the program of README.md in a project of its own, with the library that `meson
install` puts into a new root and pkg-config finds.

Environment: AFMOE_SOURCE_ROOT, AFMOE_BUILD_ROOT, AFMOE_CC, CARGO_TARGET_DIR.
"""
import os
import re
import subprocess
import sys
import unittest

ROOT = os.environ['AFMOE_SOURCE_ROOT']
RUST = os.path.join(ROOT, 'bindings', 'rust')
sys.path.insert(0, os.path.join(ROOT, 'tests', 'abi'))
import installed  # noqa: E402

MODEL = os.path.join(ROOT, 'models', 'pico-q8_0.gguf')
PROJECT = f"""[package]
name = "hello"
version = "1.0.0"
edition = "2021"

[dependencies]
afmoe = {{ path = "{RUST}/afmoe" }}
"""


class Install(installed.Installed):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.project = os.path.join(cls.root, 'hello')
        os.makedirs(os.path.join(cls.project, 'src'))
        with open(os.path.join(RUST, 'README.md'), encoding='utf-8') as file:
            cls.programs = re.findall(r'^```rust\n(.*?)^```$', file.read(), re.M | re.S)
        for name, text in (('Cargo.toml', PROJECT), ('src/main.rs', cls.programs[0])):
            with open(os.path.join(cls.project, name), 'w', encoding='utf-8') as file:
                file.write(text)

    def cargo(self, **env):
        return subprocess.run(['cargo', 'build', '--offline'], cwd=self.project, capture_output=True, text=True,
                              env={**self.env, 'CARGO_TERM_COLOR': 'never', **env})

    def run_hello(self, *arguments):
        program = os.path.join(os.environ['CARGO_TARGET_DIR'], 'debug', 'hello')
        return subprocess.run([program, *arguments], env=self.run_env, capture_output=True, text=True)

    def test_ten_lines(self):
        self.assertLessEqual(len(self.programs[0].splitlines()), 15)
        built = self.cargo()
        self.assertEqual(built.returncode, 0, built.stderr)
        self.assertNotIn('warning', built.stderr)
        answer = self.run_hello(MODEL)
        self.assertEqual((answer.returncode, answer.stdout), (0, 'The capital of France is Paris.'))
        answer = self.run_hello(__file__)
        self.assertEqual((answer.returncode, answer.stdout), (1, ''))
        self.assertRegex(answer.stderr, r'AFMOE_FORMAT: .*test_install.py')

    def test_no_library(self):
        answer = self.cargo(PKG_CONFIG_PATH='', PKG_CONFIG_LIBDIR=self.root)
        self.assertNotEqual(answer.returncode, 0)
        self.assertIn('libafmoe was not found', answer.stderr)
        self.assertIn('AFMOE_LIB_DIR', answer.stderr)

    def test_other_version(self):
        folder = os.path.join(self.root, 'other')
        os.mkdir(folder)
        with open(self.pc, encoding='utf-8') as file:
            text = re.sub(r'^Version: .*$', 'Version: 0.99.0', file.read(), flags=re.M)
        with open(os.path.join(folder, 'afmoe.pc'), 'w', encoding='utf-8') as file:
            file.write(text)
        answer = self.cargo(PKG_CONFIG_PATH=folder)
        self.assertNotEqual(answer.returncode, 0)
        self.assertRegex(answer.stderr, r'libafmoe 0\.99\.0 was found, this crate is for 0\.1\.0')


if __name__ == '__main__':
    unittest.main()
