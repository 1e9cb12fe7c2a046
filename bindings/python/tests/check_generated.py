#!/usr/bin/python3
"""_ffi.py is what bindings/generate/make_ffi.py writes from include/afmoe.h.

Environment: AFMOE_SOURCE_ROOT.
"""
import os
import subprocess
import sys

try:
    import clang.cindex
except ImportError:
    print('skipped: program python3-clang-14 (not installed)')
    sys.exit(77)

if __name__ == '__main__':
    sys.exit(subprocess.run([sys.executable, os.path.join(os.environ['AFMOE_SOURCE_ROOT'], 'bindings', 'generate',
                                                          'make_ffi.py'), '--check']).returncode)
