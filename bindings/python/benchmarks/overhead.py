#!/usr/bin/python3
"""What Python costs for each token: generate and stream against the library's own loop, called without a callback, in
one process and in turns. Prints one JSON object a line: microseconds of CPU time a token, [least, median] of the
rounds. The smaller the model, the clearer the difference.

overhead.py MODEL [TOKENS [ROUNDS]]     the package must be found (PYTHONPATH, AFMOE_LIBRARY)
"""
import json
import statistics
import sys
import time

import afmoe
from afmoe import _ffi
from afmoe._library import lib
from afmoe._native import call, make


def c_loop(session, n_tokens):
    options = make(_ffi.afmoe_generate_options, max_tokens=n_tokens, ignore_eos=1)
    with session._borrow as pointer:
        call(lib.afmoe_generate, pointer, None, options, None)


def python_generate(session, n_tokens):
    session.generate(max_new_tokens=n_tokens, ignore_eos=True)


def python_generate_on_piece(session, n_tokens):
    session.generate(max_new_tokens=n_tokens, ignore_eos=True, on_piece=lambda piece: None)


def python_stream(session, n_tokens):
    for _ in session.stream(max_new_tokens=n_tokens, ignore_eos=True):
        pass


WAYS = (c_loop, python_generate, python_generate_on_piece, python_stream)


def main():
    path = sys.argv[1]
    n_tokens = int(sys.argv[2]) if len(sys.argv) > 2 else 200
    n_rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 15
    times = {way: [] for way in WAYS}
    with afmoe.Model.open(path) as model, model.session(n_threads=1) as session:
        prompt = [index * 7919 % model.info.vocab_size for index in range(8)]
        for _ in range(n_rounds):
            for way in WAYS:
                session.rewind(0)
                session.append(prompt)
                began = time.thread_time_ns()
                way(session, n_tokens)
                times[way].append((time.thread_time_ns() - began) / 1000 / n_tokens)
    base = [min(times[c_loop]), statistics.median(times[c_loop])]
    for way in WAYS:
        us = [min(times[way]), statistics.median(times[way])]
        print(json.dumps({'way': way.__name__, 'us_per_token': [round(value, 2) for value in us],
                          'over_c': [round(value - c, 2) for value, c in zip(us, base)]}))


if __name__ == '__main__':
    main()
