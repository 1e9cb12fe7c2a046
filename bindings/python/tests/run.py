#!/usr/bin/python3
"""Run the tests of the package with pytest. In a build with AddressSanitizer its runtime is loaded first, and what it
reports as leaked counts where libafmoe is on the stack: CPython itself leaves memory behind.

run.py [PYTEST_ARGUMENT...]     environment: AFMOE_LIBRARY, AFMOE_SOURCE_ROOT, AFMOE_VALUES_FROM_C, AFMOE_CC,
                                AFMOE_SANITIZE
"""
import glob
import importlib.util
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGES = {'pytest': 'python3-pytest', 'numpy': 'python3-numpy', 'matplotlib': 'python3-matplotlib'}


def sanitized(environment, folder):
    """The environment for a process that loads a library built with AddressSanitizer."""
    runtime = subprocess.run([environment['AFMOE_CC'], '-print-file-name=libasan.so'], check=True, capture_output=True,
                             text=True).stdout.strip()
    if not os.path.isabs(runtime):
        print('skipped: sanitizer (its runtime is no library of its own with this compiler)')
        sys.exit(77)
    environment['LD_PRELOAD'] = runtime
    log = os.path.join(folder, 'leaks')
    environment['ASAN_OPTIONS'] = environment.get('ASAN_OPTIONS', '') + ':detect_leaks=1'
    environment['LSAN_OPTIONS'] = f'exitcode=0:log_path={log}:fast_unwind_on_malloc=0:print_suppressions=0'


def ours(folder):
    """The leaks reported that were allocated below libafmoe."""
    found = []
    for path in glob.glob(os.path.join(folder, 'leaks*')):
        with open(path, encoding='utf-8', errors='replace') as file:
            found += [leak for leak in re.split(r'\n\s*\n', file.read()) if 'leak of' in leak and 'libafmoe' in leak]
    return found


def main():
    missing = [package for module, package in PACKAGES.items() if importlib.util.find_spec(module) is None]
    if missing:
        print(f'skipped: program {missing[0]} (not installed)')
        return 77
    environment = dict(os.environ)
    environment['PYTHONPATH'] = os.path.dirname(HERE)
    arguments = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix='afmoe-python-') as folder:
        if 'address' in environment.get('AFMOE_SANITIZE', ''):
            sanitized(environment, folder)
            # A process for each call that a thread may be in, seconds each: two of them stand for the rest here.
            arguments += ['-k', 'not daemon_threads_at_exit or append or generate']
        answer = subprocess.run([sys.executable, '-m', 'pytest', '-q', '-p', 'no:cacheprovider', HERE, *arguments],
                                env=environment)
        leaks = ours(folder)
    for leak in leaks:
        print(leak)
    return answer.returncode or (1 if leaks else 0)


if __name__ == '__main__':
    sys.exit(main())
