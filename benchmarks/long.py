#!/usr/bin/env python3
"""Long timelines: what they take against what was said, and how fast they are read from beginning to end.

Usage: long.py AFMOE BENCH_SESSIONS [SHAPE:LAYERS:TOKENS ...] [-f FORMAT] [--vocab N] [--folder DIR] [-o FILE]

For each case a model of random weights is made by `afmoe synth`, and bench_sessions reads so many random tokens into
one session of it, in a process of its own. Printed are what the estimate and the context said, the growth of RssAnon,
and tokens a second in the eighths of the timeline. Layers slide but for every fourth, so a model of less than four is
to be as fast at its end as once its window is full. In the last layer only keys and values are computed here.

Without cases: Nano of 5 layers with 4096, 32768 and 131072 tokens, of 3 with 131072, and Large of 2 with 262144; 9 GB
on disk with q8_0. --folder keeps the models for the next time. The exit code is 1 when either of what was said is more
than 5 % and 128 KiB (what malloc keeps, see tests/api/test_estimate.c) away from the growth."""
import argparse
import json
import os
import subprocess
import sys
import tempfile

CASES = ["nano:5:4096", "nano:5:32768", "nano:5:131072", "nano:3:131072", "large:2:262144"]
SLACK_BYTES = 128 << 10


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("afmoe")
    parser.add_argument("bench_sessions")
    parser.add_argument("cases", nargs="*", metavar="SHAPE:LAYERS:TOKENS")
    parser.add_argument("-f", "--format", default="q8_0")
    parser.add_argument("--vocab", default="4096", help="rows of the vocabulary: they say nothing here (default 4096)")
    parser.add_argument("--folder", help="where models are looked for, made and kept")
    parser.add_argument("-o", "--output", help="write the figures to this file, as JSON")
    return parser.parse_args()


def model_of(arguments, folder, shape, layers):
    path = os.path.join(folder, f"{shape}-{layers}-{arguments.format}-{arguments.vocab}.gguf")
    if not os.path.exists(path):
        subprocess.run([arguments.afmoe, "synth", "-q", "--shape", shape, "--layers", layers, "-f", arguments.format,
                        "--vocab", arguments.vocab, path], check=True)
    return path


def measure(arguments, folder, case):
    shape, layers, tokens = case.split(":")
    command = [arguments.bench_sessions, model_of(arguments, folder, shape, layers), tokens]
    lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    rows = [json.loads(line) for line in lines]
    memory = next(row for row in rows if "rss_anon" in row)
    return {"case": case, **memory, "parts": [row for row in rows if "tokens_per_s" in row]}


def is_close(row):
    limit = 0.05 * row["rss_anon"] + SLACK_BYTES
    return all(abs(row[said] - row["rss_anon"]) <= limit for said in ("estimate", "memory"))


def line_of(row):
    rates = " ".join(f"{part['tokens_per_s']:.0f}" for part in row["parts"])
    off = [f"{100 * (row[said] / row['rss_anon'] - 1):+.1f}" for said in ("estimate", "memory")]
    megabytes = [f"{row[name] / 1e6:.2f}" for name in ("estimate", "memory", "rss_anon")]
    return f"| {row['case']} | {' | '.join(megabytes)} | {' '.join(off)} | {rates} |"


def main():
    arguments = parse()
    with tempfile.TemporaryDirectory(prefix="afmoe-long-") as temporary:
        print("| shape, layers, tokens | estimate, MB | memory, MB | RssAnon grew by, MB | off, % | tokens/s by eighths |")
        print("|---|---|---|---|---|---|", flush=True)
        rows = []
        for case in arguments.cases or CASES:
            rows.append(measure(arguments, arguments.folder or temporary, case))
            print(line_of(rows[-1]), flush=True)
    if arguments.output:
        with open(arguments.output, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)
    return 0 if all(map(is_close, rows)) else 1


if __name__ == "__main__":
    sys.exit(main())
