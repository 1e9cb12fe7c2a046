"""The library as `meson install` puts it into a new root, for the tests that build against it.

Environment: AFMOE_BUILD_ROOT, AFMOE_CC.
"""
import glob
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

MESON = [sys.executable, '/usr/bin/meson'] if os.path.exists('/usr/bin/meson') else ['meson']


def run(*command, **keywords):
    answer = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **keywords)
    if answer.returncode != 0:
        raise AssertionError(f'{shlex.join(command)} ended with {answer.returncode}:\n{answer.stdout}')
    return answer.stdout


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.root = tempfile.mkdtemp(prefix='afmoe-install-')
        cls.addClassCleanup(shutil.rmtree, cls.root)
        run(*MESON, 'install', '-C', os.environ['AFMOE_BUILD_ROOT'], '--no-rebuild', '--destdir', cls.root)
        cls.pc = cls.find('afmoe.pc')
        cls.header = cls.find('afmoe.h')
        cls.env = {**os.environ, 'PKG_CONFIG_PATH': os.path.dirname(cls.pc), 'PKG_CONFIG_SYSROOT_DIR': cls.root}
        libraries = os.path.dirname(glob.glob(os.path.join(cls.root, '**', 'libafmoe.*'), recursive=True)[0])
        cls.run_env = {**os.environ, 'LD_LIBRARY_PATH': libraries}

    @classmethod
    def find(cls, name):
        found = glob.glob(os.path.join(cls.root, '**', name), recursive=True)
        assert len(found) == 1, (name, found)
        return found[0]

    def pkg_config(self, *words):
        return shlex.split(run('pkg-config', *words, 'afmoe', env=self.env))

    def build(self, source, compiler, standard, *words, language=None, pkg_config=()):
        """The path of the program."""
        program = os.path.join(self.root, os.path.basename(source) + '.program')
        as_language = ['-x', language] if language else []
        # Flags of the library go last: the linker reads left to right.
        run(compiler, f'-std={standard}', '-Wall', '-Wextra', '-Werror', *words, *as_language, source, '-x', 'none',
            '-o', program, *self.pkg_config('--cflags', '--libs', *pkg_config))
        return program
