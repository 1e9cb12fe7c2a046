#!/usr/bin/env python3
"""One measurement of one engine in a process of its own: peer_run.py ENGINE -m MODEL WHAT [OPTION..]

ENGINE is afmoe, llama.cpp or transformers. WHAT is -p N or -n N (with -d, --sessions, -r as in afmoe bench: a run
unmeasured, then repetitions), --open or --memory N. Prints a JSON array of one row, with afmoe bench's field names.

--open      seconds from opening the file to the most likely token after a prompt of one token, with room for 4096
--memory N  bytes of private memory (RssAnon and RssShmem) by which this process has grown once it opened the model and
            appended N tokens, less keys and values: resident memory but for mapped files"""
import argparse
import json
import random
import statistics
import time

from peer_engines import ENGINES


def private_bytes():
    with open("/proc/self/status", encoding="ascii") as file:
        fields = dict(line.split(":", 1) for line in file)
    return sum(1024 * int(fields[name].split()[0]) for name in ("RssAnon", "RssShmem"))


def random_tokens(n, n_vocab):
    return [random.randrange(n_vocab) for _ in range(n)]


def fill(engine, session, n_depth):
    for begin in range(0, n_depth, 512):
        engine.append(session, random_tokens(min(512, n_depth - begin), engine.n_vocab))


def run_once(engine, a):
    tokens = random_tokens(a.n_prompt or a.n_gen * a.sessions, engine.n_vocab)
    begin = time.perf_counter()
    if a.n_prompt:
        engine.append(0, tokens)
    else:
        for i in range(a.n_gen):
            engine.step(tokens[i * a.sessions:(i + 1) * a.sessions])
    seconds = time.perf_counter() - begin
    for session in range(a.sessions):
        engine.rewind(session, a.n_depth)
    return len(tokens) / seconds


def measure_rate(engine, a):
    engine.start(a.n_depth + (a.n_prompt or a.n_gen), a.sessions)
    for session in range(a.sessions):
        fill(engine, session, a.n_depth)
    samples = [run_once(engine, a) for _ in range(a.repetitions + 1)][1:]
    return {"n_prompt": a.n_prompt, "n_gen": a.n_gen, "n_depth": a.n_depth, "n_sessions": a.sessions,
            "avg_ts": statistics.fmean(samples), "samples_ts": samples}


def measure_open(kind, a):
    begin = time.perf_counter()
    engine = kind(a.model, a)
    engine.start(None, 1)
    engine.append(0, [0])
    engine.best()
    return engine, {"seconds": time.perf_counter() - begin}


def measure_memory(kind, a):
    before = private_bytes()
    engine = kind(a.model, a)
    engine.start(a.memory, 1)
    fill(engine, 0, a.memory - 1)
    engine.append(0, [0])
    return engine, {"n_depth": a.memory, "private_bytes": private_bytes() - before - engine.kv_bytes()}


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", choices=list(ENGINES))
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("-p", "--n-prompt", type=int, default=0)
    parser.add_argument("-n", "--n-gen", type=int, default=0)
    parser.add_argument("-d", "--n-depth", type=int, default=0)
    parser.add_argument("-r", "--repetitions", type=int, default=1)
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("--sessions", type=int, default=1)
    parser.add_argument("--open", action="store_true")
    parser.add_argument("--memory", type=int, default=0, metavar="N")
    parser.add_argument("--library", help="libafmoe.so")
    parser.add_argument("--precision", help="of afmoe")
    parser.add_argument("--cells", help="of afmoe")
    parser.add_argument("--flash", choices=["on", "off"], default="on", help="flash attention of llama.cpp")
    parser.add_argument("--repack", choices=["on", "off"], default="on", help="llama.cpp copies weights for the CPU")
    parser.add_argument("--ubatch", type=int, default=512, help="tokens llama.cpp computes together")
    a = parser.parse_args()
    if sum(value > 0 for value in (a.n_prompt, a.n_gen, a.open, a.memory)) != 1:
        parser.error("needs one of -p, -n, --open, --memory")
    return a


def main():
    a = parse()
    if a.open or a.memory:
        engine, row = (measure_open if a.open else measure_memory)(ENGINES[a.engine], a)
    else:
        engine = ENGINES[a.engine](a.model, a)
        row = measure_rate(engine, a)
    row.update(engine=a.engine, engine_version=engine.version, engine_system=engine.system(), n_threads=a.threads)
    print(json.dumps([row]))


if __name__ == "__main__":
    main()
