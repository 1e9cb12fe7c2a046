#!/usr/bin/python3
"""scripts/check tells how it is used, and does so before it installs or builds anything.

Environment: AFMOE_SOURCE_ROOT.
"""
import os
import re
import subprocess
import unittest

CHECK = os.path.join(os.environ['AFMOE_SOURCE_ROOT'], 'scripts', 'check')


def check(*arguments):
    answer = subprocess.run([CHECK, *arguments], capture_output=True, text=True, timeout=60)
    return answer.returncode, answer.stdout, answer.stderr


class Check(unittest.TestCase):
    def test_help(self):
        with open(CHECK, encoding='utf-8') as file:
            configurations = re.findall(r'^check_(\w+)\(\)$', file.read(), re.M)
        self.assertGreater(len(configurations), 5)
        for word in ('-h', '--help'):
            code, out, err = check(word)
            self.assertEqual((code, err), (0, ''))
            self.assertIn('usage: scripts/check [CONFIGURATION..]', out)
            self.assertEqual(re.findall(r'^  (\w+) +\S', out, re.M), configurations)
            self.assertEqual([line for line in out.splitlines() if line != line.rstrip()], [])

    def test_unknown_configuration(self):
        code, out, err = check('gcc', 'msvc')
        self.assertEqual((code, out), (1, ''))
        self.assertRegex(err, r'^check: no configuration msvc.*\n$')


if __name__ == '__main__':
    unittest.main()
