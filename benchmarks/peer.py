#!/usr/bin/env python3
"""afmoe bench beside another engine on the same model, threads and lengths: peer.py AFMOE MODEL [OPTION..]

MODEL is a GGUF file: the peer is llama.cpp through the package llama_cpp (llama-cpp-python); or a folder of the hub's
layout: the peer is transformers with torch, in bfloat16. Neither package is needed to build or use the library.

Rounds are interleaved, the side that begins changes every round, so that a slow minute of the machine strikes both:
with --block 1 (llama.cpp) every measurement alternates, with more (transformers, whose pauses between measurements
would let its caches cool down) blocks do. Before the first round all files are read once, and each side runs each
test once unmeasured. Printed are medians of tokens a second and their ratio, and the plain read rate afmoe bench saw.

A prompt test appends N tokens in one call, a decode test one a call, both at a depth; tokens are random, nothing is
sampled. llama.cpp keeps keys and values as f16: --cells f16 makes afmoe do so too."""
import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time


class Afmoe:
    name = "afmoe"

    def __init__(self, arguments):
        self.arguments = arguments
        self.read_rates = []

    def measure(self, test, n_repetitions):
        """Tokens a second of each repetition. The command runs each row once unmeasured."""
        kind, n, depth = test
        a = self.arguments
        command = [a.afmoe, "bench", "-q", "-m", a.model, "-o", "json", "-t", str(a.threads), "-d", str(depth), "-r",
                   str(n_repetitions), "-p", str(n if kind == "pp" else 0), "-n", str(n if kind == "tg" else 0)]
        if a.cells:
            command += ["--cells", a.cells]
        result = subprocess.run(command, capture_output=True, check=False)
        if result.returncode != 0:
            sys.exit(result.stderr.decode(errors="replace"))
        row = json.loads(result.stdout)[0]
        self.read_rates.append(row["read_gb_s"])
        return row["samples_ts"]


class Peer:
    """One in this process; subclasses say how to empty the timeline, append tokens, and how many rows there are."""

    def random_tokens(self, n):
        return [random.randrange(self.n_vocab) for _ in range(n)]

    def run(self, test):
        kind, n, depth = test
        self.empty()
        for begin in range(0, depth, 512):
            self.append(self.random_tokens(min(512, depth - begin)))
        tokens = self.random_tokens(n)
        begin = time.perf_counter()
        if kind == "pp":
            self.append(tokens)
        else:
            for token in tokens:
                self.append([token])
        return n / (time.perf_counter() - begin)

    def measure(self, test, n_repetitions):
        return [self.run(test) for _ in range(n_repetitions)]


class LlamaCpp(Peer):
    name = "llama.cpp"

    def __init__(self, arguments, longest):
        import llama_cpp
        self.llama = llama_cpp.Llama(model_path=arguments.model, n_gpu_layers=0, n_ctx=longest, n_batch=512,
                                     n_threads=arguments.threads, n_threads_batch=arguments.threads, verbose=False)
        self.n_vocab = self.llama.n_vocab()
        self.version = llama_cpp.__version__

    def empty(self):
        self.llama.reset()

    def append(self, tokens):
        self.llama.eval(tokens)


class Transformers(Peer):
    name = "transformers"

    def __init__(self, arguments, longest):
        import torch
        import transformers
        torch.set_num_threads(arguments.threads)
        self.torch, self.past = torch, None
        self.model = transformers.AutoModelForCausalLM.from_pretrained(arguments.model, dtype=torch.bfloat16).eval()
        self.n_vocab = self.model.config.vocab_size
        self.version = transformers.__version__

    def empty(self):
        self.past = None

    def append(self, tokens):
        with self.torch.inference_mode():
            out = self.model(input_ids=self.torch.tensor([tokens]), past_key_values=self.past, use_cache=True,
                             logits_to_keep=1)
        self.past = out.past_key_values


def read_once(path):
    """Into the page cache, for both."""
    files = [os.path.join(path, name) for name in os.listdir(path)] if os.path.isdir(path) else [path]
    for name in files:
        if not os.path.isfile(name):
            continue
        with open(name, "rb", buffering=0) as file:
            while file.read(1 << 24):
                pass


def numbers(text):
    values = [int(part) for part in text.split(",")]
    if min(values) < 0:
        raise argparse.ArgumentTypeError("no negative numbers")
    return values


def positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return value


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("afmoe", help="the afmoe command")
    parser.add_argument("model", help="GGUF file or hub folder")
    parser.add_argument("-p", type=numbers, default=[512], metavar="LIST", help="prompt lengths")
    parser.add_argument("-n", type=numbers, default=[64], metavar="LIST", help="tokens to decode")
    parser.add_argument("-d", type=numbers, default=[0], metavar="LIST", help="depths")
    parser.add_argument("-t", "--threads", type=positive, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=positive, default=5)
    parser.add_argument("--block", type=positive, help="measurements of one side in a row; default 1, transformers 3")
    parser.add_argument("--cells", choices=["f32", "f16", "bf16"], help="what afmoe keeps keys and values as")
    parser.add_argument("--json", action="store_true", help="print one JSON object, with all samples")
    return parser.parse_args()


def main():
    arguments = parse()
    tests = [(kind, n, d) for d in arguments.d for kind, list_ in (("pp", arguments.p), ("tg", arguments.n))
             for n in list_ if n]
    if not tests:
        sys.exit("peer.py: there is nothing to measure: both -p and -n are 0")
    hub = os.path.isdir(arguments.model)
    block = arguments.block or (3 if hub else 1)
    ours = Afmoe(arguments)
    read_once(arguments.model)
    try:
        peer = (Transformers if hub else LlamaCpp)(arguments, max(n + d for _, n, d in tests))
    except ImportError as error:
        sys.exit(f"peer.py: {error}; it is needed as the peer of {arguments.model}")

    samples = {test: {ours: [], peer: []} for test in tests}
    for test in tests:
        peer.measure(test, 1)
    for round_ in range(arguments.rounds):
        for test in tests:
            for side in (ours, peer) if round_ % 2 == 0 else (peer, ours):
                samples[test][side] += side.measure(test, block)

    if arguments.json:
        rows = [{"test": kind, "n": n, "n_depth": depth, "n_threads": arguments.threads, "afmoe_ts": values[ours],
                 "peer_ts": values[peer], "ratio": statistics.median(values[ours]) / statistics.median(values[peer])}
                for (kind, n, depth), values in samples.items()]
        print(json.dumps({"peer": peer.name, "peer_version": peer.version, "model": arguments.model,
                          "read_gb_s": statistics.median(ours.read_rates), "rows": rows}, indent=1))
        return
    print(f"| test | threads | afmoe t/s | {peer.name} {peer.version} t/s | ratio |")
    print("| ---: | ---: | ---: | ---: | ---: |")
    for (kind, n, depth), values in samples.items():
        a, b = statistics.median(values[ours]), statistics.median(values[peer])
        name = f"{kind}{n}" + (f" @ d{depth}" if depth else "")
        print(f"| {name} | {arguments.threads} | {a:.2f} | {b:.2f} | {a / b:.2f} |")
    print(f"\nplain read: {statistics.median(ours.read_rates):.1f} GB/s (median)")


main()
