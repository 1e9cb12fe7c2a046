"""What the tests of the afmoe command share; they are called as TEST.py AFMOE MODEL."""
import json
import os
import pty
import select
import subprocess
import sys
import time
import unittest

AFMOE, MODEL = sys.argv[1:3]
FOX = "Tell me a story about a fox in the forest."
SANITIZED = os.environ.get("AFMOE_SANITIZE", "none") != "none"
SAMPLES = os.path.join(os.path.dirname(MODEL), "samples-q8_0.jsonl")


def clean_environment():
    return {k: v for k, v in os.environ.items() if k != "AFMOE_MODEL"}


def run(*arguments, stdin=b"", model=True, **options):
    command = [AFMOE, arguments[0]] + (["-m", MODEL] if model else []) + list(arguments[1:])
    options.setdefault("env", clean_environment())
    return subprocess.run(command, input=stdin, capture_output=True, timeout=1000, **options)


def samples():
    with open(SAMPLES, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


class Case(unittest.TestCase):
    def good(self, result):
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def fails(self, result, code, *words):
        """Exit code, nothing on standard output, one line of message with these words."""
        self.assertEqual(result.returncode, code, (result.stdout, result.stderr))
        self.assertEqual(result.stdout, b"")
        self.assertTrue(result.stderr.startswith(b"afmoe: "), result.stderr)
        self.assertEqual(result.stderr.count(b"\n"), 1, result.stderr)
        for word in words:
            self.assertIn(word.encode(), result.stderr)


class AtTerminal(Case):
    """With a terminal as the three standard streams."""

    def start(self, *arguments, **variables):
        pid, terminal = pty.fork()
        if pid == 0:
            os.execve(AFMOE, [AFMOE, arguments[0], "-m", MODEL, *arguments[1:]], {**clean_environment(), **variables})
        return pid, terminal

    def read(self, terminal, until=None, seconds=60):
        out, end = b"", time.monotonic() + seconds
        while until is None or until not in out:
            ready, _, _ = select.select([terminal], [], [], max(0, end - time.monotonic()))
            if not ready:
                self.fail("nothing more within %d s: %r" % (seconds, out))
            try:
                block = os.read(terminal, 65536)
            except OSError:  # Linux: the other side is closed
                break
            if not block:
                break
            out += block
        return out

    def finish(self, pid, terminal):
        out = self.read(terminal)
        _, status = os.waitpid(pid, 0)
        os.close(terminal)
        return os.waitstatus_to_exitcode(status), out
