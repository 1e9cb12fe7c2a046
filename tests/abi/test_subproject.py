#!/usr/bin/python3
"""libafmoe as a subproject of another meson project, offline: tests/abi/subproject configures, builds and runs, the
lessons of examples/ among it.

Environment: AFMOE_SOURCE_ROOT.
"""
import glob
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = os.environ['AFMOE_SOURCE_ROOT']
MESON = [sys.executable, '/usr/bin/meson'] if os.path.exists('/usr/bin/meson') else ['meson']


class Subproject(unittest.TestCase):
    def test_build_and_run(self):
        with tempfile.TemporaryDirectory(prefix='afmoe-subproject-') as folder:
            host = os.path.join(folder, 'host')
            shutil.copytree(os.path.join(ROOT, 'tests', 'abi', 'subproject'), host)
            shutil.copy(os.path.join(ROOT, 'tests', 'abi', 'install_use.c'), folder)
            for lesson in glob.glob(os.path.join(ROOT, 'examples', '[0-9]*.c*')):
                shutil.copy(lesson, host)
            os.mkdir(os.path.join(host, 'subprojects'))
            os.symlink(ROOT, os.path.join(host, 'subprojects', 'afmoe'))
            build = os.path.join(folder, 'build')
            # This is about meson's files: as little optimised as compiles quickly (the kernels do not at -O0), and
            # without the levels above AVX2.
            for command in ([*MESON, 'setup', '--wrap-mode=nodownload', '-Doptimization=g', '-Dafmoe:avx512=false',
                             build, host],
                            [*MESON, 'compile', '-C', build], [*MESON, 'test', '-C', build, '--no-suite', 'afmoe']):
                answer = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                self.assertEqual(answer.returncode, 0, answer.stdout)


if __name__ == '__main__':
    unittest.main()
