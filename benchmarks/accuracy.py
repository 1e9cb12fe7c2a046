#!/usr/bin/env python3
"""How far a precision of the library is from exact logits, beside llama.cpp: accuracy.py LIBAFMOE.so [OPTION..]

By the criterion of the reference folder: of one model file, KL(exact || X) in nats at every position; a quantised
kernel is good when its median is at most 1.25 times llama.cpp's on the same file (random weights flip experts, so a
few positions rule a mean: it is printed beside).

--blocks FOLDER   NAME.gguf with NAME.expected.safetensors: input_ids, logits (of exactly decoded weights) and
                  peer_logits (llama.cpp's)
--pico FOLDER     the demo model in several formats, as pico-FORMAT.gguf, made by benchmarks/llama_quantize.py:
                  the first 24 windows of 256 tokens of --text. Exact logits are the library's own in EXACT; llama.cpp's
                  are computed now, or with --recorded its figures read (benchmarks/pico_peer.json). Figures of both
                  sides must come from double: in float32 rounding alone makes medians of 1e-8 three times as large
--samples FILE    greedy answers (prompt_ids, answer_ids): along them, in every model of --pico and --model, the most
                  likely token must be that of EXACT wherever EXACT has it more than 0.1 in logits ahead of the next

Prints a table each; ends with 1 where a ratio is above 1.25 or a token differs, with 2 where the library does not
support the precision. Needs numpy; --pico without --recorded needs the package llama_cpp."""
import argparse
import glob
import json
import os
import struct
import sys

import numpy

import libafmoe

WINDOW, N_WINDOWS, ALLOWED, MARGIN = 256, 24, 1.25, 0.1
problems = []


def read_safetensors(path):
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    kinds = {"F32": "<f4", "I64": "<i8"}
    return {name: numpy.frombuffer(data[slice(*entry["data_offsets"])], kinds[entry["dtype"]]).reshape(entry["shape"])
            for name, entry in header.items() if name != "__metadata__"}


def log_softmax(logits):
    """In double: medians go down to 1e-9."""
    z = logits.astype(numpy.float64)
    z -= z.max(axis=-1, keepdims=True)
    return z - numpy.log(numpy.exp(z).sum(axis=-1, keepdims=True))


def divergence(exact, other):
    """KL(exact || other) of every row."""
    p, q = log_softmax(exact), log_softmax(other)
    return (numpy.exp(p) * (p - q)).sum(axis=-1)


class Ours:
    """One model in one or more precisions."""

    def __init__(self, a, path):
        self.library, self.n_threads = libafmoe.Library(a.library), a.threads
        self.model = self.library.open(path)
        self.n_vocab = self.library.n_vocab(self.model)
        self.contexts = {}

    def logits(self, tokens, precision, cells="f32"):
        """[n, vocab] of tokens that stand alone."""
        key = precision, cells
        if key not in self.contexts:
            self.contexts[key] = self.library.create_context(self.model, n_threads=self.n_threads,
                                                             precision=precision, cells=cells)
        session = self.library.create_session(self.contexts[key])
        out = self.library.append(session, tokens, self.n_vocab)
        self.library.dll.afmoe_session_free(session)
        return numpy.frombuffer(out, numpy.float32).reshape(len(tokens), self.n_vocab)

    def tokenize(self, text):
        return self.library.tokenize(self.model, text)

    def close(self):
        for context in self.contexts.values():
            self.library.dll.afmoe_context_free(context)
        self.library.dll.afmoe_model_free(self.model)


class Peer:
    def __init__(self, a, path):
        import peer_engines
        options = argparse.Namespace(threads=a.threads, flash=a.flash, ubatch=512, repack="on")
        self.engine = peer_engines.LlamaCpp(path, options)
        self.engine.start(512, 1)

    def logits(self, tokens):
        rows = numpy.frombuffer(self.engine.logits(tokens), numpy.float32)
        return rows.reshape(len(tokens), self.engine.n_vocab).copy()

    def close(self):
        self.engine.close()


def title(text):
    print(f"\n{text}\n\n| file | ours median | peer median | ratio | ours mean | peer mean | same top |\n"
          "| --- | ---: | ---: | ---: | ---: | ---: | ---: |")


def report(name, ours, peer_median, peer_mean, same_top):
    """ours: divergences of all positions; the two peer figures may be None."""
    median = float(numpy.median(ours))
    ratio = median / peer_median if peer_median else None
    if ratio is not None and not ratio <= ALLOWED:
        problems.append(f"{name}: {ratio:.2f} times the peer's median divergence")
    figures = [median, peer_median, ratio, float(ours.mean()), peer_mean]
    words = ["" if x is None else f"{x:.2f}" if i == 2 else f"{x:.3g}" for i, x in enumerate(figures)]
    print(f"| {name} | {' | '.join(words)} | {same_top:.4f} |", flush=True)


def same_top(a, b):
    return float((a.argmax(axis=-1) == b.argmax(axis=-1)).mean())


def check_blocks(a):
    title(f"{a.precision} on random models, {a.blocks}")
    paths = sorted(glob.glob(os.path.join(a.blocks, "*.gguf")))
    if not paths:
        raise OSError(f"{a.blocks} has no GGUF files")
    for path in paths:
        known = read_safetensors(path[:-len(".gguf")] + ".expected.safetensors")
        model, exact, peer = Ours(a, path), known["logits"], known["peer_logits"]
        ours = model.logits(known["input_ids"].ravel().tolist(), a.precision, a.cells)
        model.close()
        kl = divergence(exact, peer)
        report(os.path.basename(path), divergence(exact, ours), float(numpy.median(kl)), float(kl.mean()),
               same_top(exact, ours))


def live_divergence(a, path, windows, exact):
    peer = Peer(a, path)
    kl = numpy.concatenate([divergence(e, peer.logits(tokens)) for e, tokens in zip(exact, windows)])
    peer.close()
    return float(numpy.median(kl)), float(kl.mean())


def pico_files(a):
    """(FORMAT, path)"""
    files = sorted(glob.glob(os.path.join(a.pico, "pico-*.gguf")))
    if not files:
        raise OSError(f"{a.pico} has no files pico-FORMAT.gguf")
    return [(os.path.basename(path)[len("pico-"):-len(".gguf")].upper(), path) for path in files]


def check_pico(a):
    title(f"{a.precision} on the trained model, {N_WINDOWS} windows of {WINDOW} tokens")
    recorded = {}
    if a.recorded:
        with open(a.recorded, encoding="utf-8") as file:
            recorded = json.load(file)["formats"]
    with open(a.text, "rb") as file:
        text = file.read()
    for name, path in pico_files(a):
        model = Ours(a, path)
        ids = model.tokenize(text)[:N_WINDOWS * WINDOW]
        windows = [ids[i:i + WINDOW] for i in range(0, len(ids) - WINDOW + 1, WINDOW)]
        exact = [model.logits(tokens, "exact") for tokens in windows]
        ours = [model.logits(tokens, a.precision, a.cells) for tokens in windows]
        model.close()
        if name in recorded:
            peer = recorded[name]["peer_vs_exact_median"], recorded[name]["peer_vs_exact_mean"]
        else:
            peer = live_divergence(a, path, windows, exact)
        report(name, numpy.concatenate([divergence(e, o) for e, o in zip(exact, ours)]), *peer,
               float(numpy.mean([same_top(e, o) for e, o in zip(exact, ours)])))


def check_samples(a):
    print(f"\n{a.precision} along greedy answers\n\n| file | tokens | margin above {MARGIN:g} | differ there | "
          "differ below |\n| --- | ---: | ---: | ---: | ---: |")
    with open(a.samples, encoding="utf-8") as file:
        samples = [json.loads(line) for line in file]
    for path in ([path for _, path in pico_files(a)] if a.pico else []) + a.model:
        model, n, n_clear, n_wrong, n_close = Ours(a, path), 0, 0, 0, 0
        for sample in samples:
            tokens, n_answer = sample["prompt_ids"] + sample["answer_ids"], len(sample["answer_ids"])
            exact = model.logits(tokens, "exact")[-n_answer - 1:-1]
            ours = model.logits(tokens, a.precision, a.cells)[-n_answer - 1:-1]
            first_two = numpy.partition(exact, -2, axis=-1)[:, -2:]
            clear = first_two[:, 1] - first_two[:, 0] > MARGIN
            differs = exact.argmax(axis=-1) != ours.argmax(axis=-1)
            n, n_clear = n + n_answer, n_clear + int(clear.sum())
            n_wrong, n_close = n_wrong + int((differs & clear).sum()), n_close + int((differs & ~clear).sum())
        model.close()
        if n_wrong:
            problems.append(f"{path}: {n_wrong} greedy tokens differ where EXACT is clear")
        print(f"| {os.path.basename(path)} | {n} | {n_clear} | {n_wrong} | {n_close} |", flush=True)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", metavar="LIBAFMOE.so")
    parser.add_argument("--precision", choices=list(libafmoe.PRECISIONS), default="fast")
    parser.add_argument("--cells", choices=list(libafmoe.CELLS), default="f32",
                        help="keys and values of what is tested; default f32")
    parser.add_argument("-t", "--threads", type=int, default=-1)
    parser.add_argument("--blocks", metavar="FOLDER")
    parser.add_argument("--pico", metavar="FOLDER")
    parser.add_argument("--text", metavar="FILE", help="for --pico")
    parser.add_argument("--recorded", metavar="JSON", help="formats.FORMAT.peer_vs_exact_median and _mean, for --pico")
    parser.add_argument("--flash", choices=["on", "off"], default="on", help="flash attention of llama.cpp")
    parser.add_argument("--samples", metavar="FILE")
    parser.add_argument("--model", action="append", default=[], metavar="GGUF", help="for --samples")
    a = parser.parse_args()
    if not (a.blocks or a.pico or a.samples):
        parser.error("needs --blocks, --pico or --samples")
    if a.pico and not a.text:
        parser.error("--pico needs --text")
    if a.samples and not (a.pico or a.model):
        parser.error("--samples needs --pico or --model")
    return a


def main():
    a = parse()
    try:
        for wanted, check in ((a.blocks, check_blocks), (a.pico, check_pico), (a.samples, check_samples)):
            if wanted:
                check(a)
    except libafmoe.Failure as error:
        print(f"accuracy.py: {error}", file=sys.stderr)
        sys.exit(2 if error.status == libafmoe.UNSUPPORTED else 3)
    except (ImportError, OSError, RuntimeError) as error:
        print(f"accuracy.py: {error}", file=sys.stderr)
        sys.exit(3)
    for problem in problems:
        print(f"accuracy.py: {problem}", file=sys.stderr)
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
