#!/usr/bin/python3
"""The shared library shows exactly the functions of afmoe.h, calls nothing that ends, prints in or reconfigures its
host, and needs no library but those allowed. The static archive, where nothing is hidden, has only names that begin
with afmoe_.

Usage: test_symbols.py --header afmoe.h --library libafmoe.so|libafmoe.a [--needs SONAME-PREFIX]...
"""
import argparse
import re
import subprocess
import unittest

VERSION_NODE = 'AFMOE_0'
FORBIDDEN = {
    # ends the host
    'abort', 'exit', '_exit', '_Exit', 'quick_exit', '__assert_fail', '__assert', 'raise', 'kill',
    # writes where the host did not ask
    'stdout', 'stderr', 'printf', 'vprintf', 'puts', 'putchar', 'fprintf', 'vfprintf', 'fputs', 'fputc', 'putc',
    'fwrite', 'dprintf', 'perror', 'syslog', '__printf_chk', '__vprintf_chk', '__fprintf_chk', '__vfprintf_chk',
    # changes what belongs to the host
    'signal', 'sigaction', 'sigprocmask', 'setlocale', 'setenv', 'putenv', 'unsetenv', 'atexit',
    'on_exit', 'pthread_atfork', '__register_atfork', 'srand', 'srandom', 'umask', 'chdir', 'fork', 'system', 'popen',
    # one object of the process for all threads
    'strtok', 'strerror', 'localtime', 'gmtime', 'rand', 'random', 'setbuf', 'getopt',
    # jansson's allocator is the host's
    'json_set_alloc_funcs', 'json_set_alloc_funcs2', 'json_object_seed',
}
# glibc 2.34 and later have pthread, dl and rt in libc.
NEEDED = ('libc.so.', 'libm.so.', 'libpthread.so.', 'libjansson.so.')


def output_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def declared_functions(header):
    with open(header, encoding='utf-8') as file:
        return set(re.findall(r'^AFMOE_API [\w *]*?(\w+)\(', file.read(), re.M))


def undefined_names(library):
    """Names without their version: "abort@GLIBC_2.2.5" is abort."""
    lines = output_of('nm', '-D', '--undefined-only', '--format=posix', library).splitlines()
    return {line.split()[0].split('@')[0] for line in lines}


class Archive(unittest.TestCase):
    def test_names(self):
        lines = output_of('nm', '--extern-only', '--defined-only', '--format=posix', arguments.library).splitlines()
        names = {line.split()[0] for line in lines if ' ' in line}
        self.assertLessEqual(declared_functions(arguments.header), names)
        self.assertEqual({name for name in names if not name.startswith('afmoe_')}, set())


class Shared(unittest.TestCase):
    def test_exports(self):
        shown = {}
        for line in output_of('nm', '-D', '--defined-only', '--format=posix', arguments.library).splitlines():
            name, kind = line.split()[:2]
            if kind != 'A':  # the version node itself
                shown[name.split('@')[0]] = (kind, name.rpartition('@')[2])
        declared = declared_functions(arguments.header)
        self.assertGreater(len(declared), 40)
        self.assertEqual(set(shown), declared)
        for name, (kind, node) in shown.items():
            self.assertEqual((kind, node), ('T', VERSION_NODE), name)

    def test_imports(self):
        names = undefined_names(arguments.library)
        self.assertIn('malloc', names)
        self.assertEqual(names & FORBIDDEN, set())

    def test_needed(self):
        needed = re.findall(r'\(NEEDED\).*\[(.*)\]', output_of('readelf', '-dW', arguments.library))
        self.assertIn('libc.so.6', needed)
        allowed = NEEDED + tuple(arguments.needs)
        self.assertEqual([name for name in needed if not name.startswith(allowed)], [])

    def test_soname(self):
        soname = re.findall(r'\(SONAME\).*\[(.*)\]', output_of('readelf', '-dW', arguments.library))
        self.assertEqual(soname, ['libafmoe.so.0'])


if __name__ == '__main__':
    parser = argparse.ArgumentParser()
    parser.add_argument('--header', required=True)
    parser.add_argument('--library', required=True)
    parser.add_argument('--needs', action='append', default=[])
    arguments = parser.parse_args()
    unittest.main(argv=['test_symbols', 'Archive' if arguments.library.endswith('.a') else 'Shared'])
