#!/usr/bin/python3
"""The package passes mypy --strict for the oldest Python it names, and a program that uses it sees its types.

Environment: AFMOE_SOURCE_ROOT.
"""
import importlib.util
import os
import subprocess
import sys

PACKAGE_ROOT = os.path.join(os.environ['AFMOE_SOURCE_ROOT'], 'bindings', 'python')


def main():
    if importlib.util.find_spec('mypy') is None:
        print('skipped: program mypy (not installed)')
        return 77
    command = [sys.executable, '-m', 'mypy', '--strict', '--python-version', '3.9', '--cache-dir', os.devnull]
    whole = subprocess.run([*command, '-p', 'afmoe', '-m', 'typed_use'],
                           env={**os.environ, 'MYPYPATH': os.path.join(PACKAGE_ROOT, 'tests')}, cwd=PACKAGE_ROOT)
    return whole.returncode


if __name__ == '__main__':
    sys.exit(main())
