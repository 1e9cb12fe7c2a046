#!/usr/bin/env python3
"""afmoe beside another engine, row by row: peer.py AFMOE MODEL [TEST..] [OPTION..]

A TEST is
    ppN       N prompt tokens in one call
    tgN       N tokens one by one
    tgN@D     the same with D tokens before them
    tgNxS     one token for each of S sessions at a time, N times
    open      from opening the file, which is in the page cache, to the first token, with room for 4096: seconds
    memN      resident memory less mapped files, less keys and values, after N tokens: MB
and without any: pp512 pp2048 tg64 tg64@4096 tg64x4 tg64x8 open mem4096. Tokens are random, nothing is sampled.

The peer is llama.cpp through the package llama_cpp (llama-cpp-python) where MODEL is a GGUF file, transformers with
torch in bfloat16 where it is a folder of the hub's layout; --peer says which, or names another command that has the
options of afmoe bench, such as another build of it. The packages are needed in the Python that --python names.

Each round goes through the tests; a test is measured on both sides right after each other, each in a process of its
own with a run unmeasured, and the side that begins changes every round. llama.cpp is first tried once with flash
attention on and off, and prompts with 512 and 2048 tokens at a time; each test keeps what was fastest. Printed are
medians over rounds, their ratio (above 1: afmoe is better), the least and greatest ratio of a single round, and the
plain read rate measured beside. --save keeps every sample; --from prints such files again, several as one run.
llama.cpp keeps keys and values as f16: --cells f16 makes afmoe do so too."""
import argparse
import json
import os
import subprocess
import sys

import peer_report

HERE = os.path.dirname(os.path.abspath(__file__))
DEFAULT_TESTS = "pp512 pp2048 tg64 tg64@4096 tg64x4 tg64x8 open mem4096".split()


def say(text):
    print(f"peer.py: {text}", file=sys.stderr, flush=True)


def read_once(path):
    """Into the page cache, for both."""
    files = [os.path.join(path, name) for name in os.listdir(path)] if os.path.isdir(path) else [path]
    for name in filter(os.path.isfile, files):
        with open(name, "rb", buffering=0) as file:
            while file.read(1 << 24):
                pass


def run(command):
    """The only row of what the command prints."""
    result = subprocess.run(command, capture_output=True, check=False)
    if result.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {result.stderr.decode(errors='replace')[-2000:]}")
    row, = json.loads(result.stdout)
    return row


def what_to_run(test, a):
    """The test as options of afmoe bench, or of peer_run.py."""
    if test.kind == "open":
        return ["--open"]
    if test.kind == "mem":
        return ["--memory", str(test.n_depth)]
    return ["-p", str(test.n_prompt), "-n", str(test.n_gen), "-d", str(test.n_depth), "--sessions",
            str(test.n_sessions), "-r", str(a.block)]


def in_python(engine, test, a, *options):
    return run([a.python, os.path.join(HERE, "peer_run.py"), engine, "-m", a.model, "-t", str(a.threads),
                *what_to_run(test, a), *options])


def bench(command, test, a, *options):
    return run([command, "bench", "-q", "-o", "json", "-m", a.model, "-t", str(a.threads), *what_to_run(test, a),
                *options])


class Ours:
    def __init__(self, a):
        self.a, self.options = a, []
        for name in ("precision", "cells"):
            if getattr(a, name):
                self.options += ["--" + name, getattr(a, name)]

    def measure(self, test):
        if test.is_rate:
            return bench(self.a.afmoe, test, self.a, *self.options)
        return in_python("afmoe", test, self.a, "--library", library_of(self.a), *self.options)


class Peer:
    """`ways` are the options to choose from, `chosen` those of each test."""

    def __init__(self, a):
        self.a, self.chosen = a, {}

    def ways(self, test):
        if self.a.peer != "llama.cpp":
            return [[]]
        batches = self.a.ubatch if test.n_prompt > min(self.a.ubatch) else self.a.ubatch[:1]
        return [["--flash", flash, "--ubatch", str(batch), "--repack", self.a.repack]
                for flash in self.a.flash for batch in batches]

    def measure(self, test, way=None):
        options = self.chosen[test] if way is None else way
        if self.a.peer in peer_report.ENGINES:
            return in_python(self.a.peer, test, self.a, *options)
        return bench(self.a.peer, test, self.a, *options)

    def choose(self, test):
        """What is best, by one run of each; where there is one way it is taken as it is."""
        ways, merits = self.ways(test), []
        for way in ways if len(ways) > 1 else []:
            row = self.measure(test, way)
            merits.append(test.merit(row))
            say(f"{test.name}: {self.a.peer} {' '.join(way)}: {test.amount(row):.4g} {test.unit}")
        self.chosen[test] = ways[merits.index(max(merits))] if merits else ways[0]


def library_of(a):
    """--library, or the one that was built or installed with the command."""
    folder = os.path.dirname(os.path.realpath(a.afmoe))
    for place in ("../../lib/libafmoe.so", "../lib/libafmoe.so", "../lib/x86_64-linux-gnu/libafmoe.so"):
        if not a.library and os.path.exists(os.path.join(folder, place)):
            return os.path.normpath(os.path.join(folder, place))
    if not a.library:
        raise RuntimeError(f"no libafmoe.so near {a.afmoe}: name it with --library")
    return a.library


def measure_rounds(a, tests, samples):
    ours, peer = Ours(a), Peer(a)
    for test in tests:
        peer.choose(test)
    for round_ in range(a.rounds):
        read_once(a.model)
        for test in tests:
            rows = {side: side.measure(test) for side in ((ours, peer) if round_ % 2 == 0 else (peer, ours))}
            peer_report.add(samples, test, rows[ours], rows[peer], a, " ".join(peer.chosen[test]))
            say(f"round {round_ + 1} of {a.rounds}, {test.name}: {test.amount(rows[ours]):.4g} and "
                f"{test.amount(rows[peer]):.4g} {test.unit}")
            if a.save:
                peer_report.write_json(samples, a.save)


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)

    def whole(text):
        if int(text) < 1:
            raise argparse.ArgumentTypeError("must be 1 or more")
        return int(text)

    def on_off(text):
        if not set(text.split(",")) <= {"on", "off"}:
            raise argparse.ArgumentTypeError("takes on, off or on,off")
        return text.split(",")

    parser.add_argument("afmoe", nargs="?", help="the afmoe command")
    parser.add_argument("model", nargs="?", help="GGUF file or hub folder")
    parser.add_argument("tests", nargs="*", metavar="TEST")
    parser.add_argument("-t", "--threads", type=whole, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=whole, default=5)
    parser.add_argument("--block", type=whole, metavar="N",
                        help="measurements of one side in a row; default 1, with transformers 3")
    parser.add_argument("--peer", help="llama.cpp, transformers or a command")
    parser.add_argument("--python", default=sys.executable, help="for the peer; default: the one running this")
    parser.add_argument("--flash", type=on_off, default=["on", "off"], metavar="LIST",
                        help="of llama.cpp: on, off or on,off (default)")
    parser.add_argument("--ubatch", type=lambda text: [whole(n) for n in text.split(",")], default=[512, 2048],
                        metavar="LIST", help="of llama.cpp: tokens computed together; default 512,2048")
    parser.add_argument("--repack", choices=["on", "off"], default="on",
                        help="of llama.cpp: weights copied into another order for the CPU (on), or used in the file")
    parser.add_argument("--precision", help="exact or fast; default: the command's")
    parser.add_argument("--cells", choices=["f32", "f16", "bf16", "q8_0"], help="what afmoe keeps keys and values as")
    parser.add_argument("--library", help="libafmoe.so for open and mem; default: the one beside AFMOE")
    parser.add_argument("-o", "--output", choices=["md", "csv", "json"], default="md", help="what is printed")
    parser.add_argument("--save", metavar="FILE", help="all samples as JSON, rewritten after every test")
    parser.add_argument("--from", dest="recorded", nargs="+", metavar="FILE", help="print what --save wrote")
    a = parser.parse_args(arguments)
    if not a.recorded and not a.model:
        parser.error("AFMOE and MODEL are needed, or --from")
    if a.recorded and a.afmoe:
        parser.error("--from measures nothing: it takes files only")
    try:
        a.tests = [peer_report.Test(name) for name in a.tests or DEFAULT_TESTS]
    except ValueError as error:
        parser.error(str(error))
    a.peer = a.peer or ("transformers" if a.model and os.path.isdir(a.model) else "llama.cpp")
    a.block = a.block or (3 if a.peer == "transformers" else 1)
    if a.peer not in peer_report.ENGINES and not all(test.is_rate for test in a.tests) and not a.recorded:
        parser.error("open and memN need llama.cpp or transformers as the peer: name other tests")
    return a


def main():
    a = parse()
    samples = {}
    try:
        if a.recorded:
            samples = peer_report.read_json(a.recorded)
        else:
            measure_rounds(a, a.tests, samples)
    except (RuntimeError, OSError, ValueError) as error:
        sys.exit(f"peer.py: {error}")
    print(peer_report.FORMS[a.output](peer_report.summary(samples)), end="")


if __name__ == "__main__":
    main()
