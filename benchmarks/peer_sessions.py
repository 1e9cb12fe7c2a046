#!/usr/bin/env python3
"""Conversations beside llama.cpp, in one process, turn about: peer_sessions.py MODEL [OPTION..]

same    a prompt is read, then the same prompt is asked for again: until its logits are there
edited  the prompt without its last 40 tokens, and 3 new ones
turns   8 conversations, each with its own beginning, in turn: 32 new tokens, then 16 tokens one by one

llama.cpp is used as its best clients do: one context with a sequence for each conversation; the common prefix stays, the
rest is removed, and as it keeps no logits the last token of a prompt asked for again is computed anew. Prints
milliseconds, median over the rounds, and their ratio; --json also every sample."""
import argparse
import ctypes
import json
import os
import random
import statistics
import time

import libafmoe
import peer_engines

N_EDIT, N_NEW, N_CONVERSATIONS, N_BEGINNING, N_TURN, N_ANSWER = 40, 3, 8, 256, 32, 16


class Afmoe(peer_engines.Afmoe):
    def sync(self, session, tokens):
        ids = (ctypes.c_int32 * len(tokens))(*tokens)
        self.library.call("session_sync", self.sessions[session], ids, len(tokens), None, None)


class LlamaCpp(peer_engines.LlamaCpp):
    def start(self, n_tokens, n_sessions):
        super().start(n_tokens, n_sessions)
        self.tokens = [[] for _ in range(n_sessions)]

    def sync(self, session, tokens):
        known = len(os.path.commonprefix([self.tokens[session], tokens]))
        known = min(known, len(tokens) - 1)
        self.rewind(session, known)
        super().append(session, tokens[known:])
        self.tokens[session] = list(tokens)

    def append(self, session, tokens):
        super().append(session, tokens)
        self.tokens[session] += tokens


def timed(function, *arguments):
    begin = time.perf_counter()
    function(*arguments)
    return 1e3 * (time.perf_counter() - begin)


def turn(engine, session, tokens):
    engine.append(session, tokens[:N_TURN])
    for token in tokens[N_TURN:]:
        engine.append(session, [token])


class Rounds:
    def __init__(self, engine, a):
        self.engine, self.a, self.random = engine, a, random.Random(1)

    def tokens(self, n):
        return [self.random.randrange(self.engine.n_vocab) for _ in range(n)]

    def prompts(self):
        """Milliseconds of `same` and `edited`."""
        self.engine.start(self.a.tokens + 64, 1)
        prompt, new = self.tokens(self.a.tokens), self.tokens(N_NEW)
        self.engine.sync(0, prompt)
        same = timed(self.engine.sync, 0, prompt)
        return same, timed(self.engine.sync, 0, prompt[:-N_EDIT] + new)

    def turns(self):
        """Milliseconds a turn."""
        self.engine.start(N_BEGINNING + 3 * (N_TURN + N_ANSWER), N_CONVERSATIONS)
        for session in range(N_CONVERSATIONS):
            self.engine.append(session, self.tokens(N_BEGINNING))
        return statistics.fmean(timed(turn, self.engine, session, self.tokens(N_TURN + N_ANSWER))
                                for _ in range(2) for session in range(N_CONVERSATIONS))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--library", required=True, help="libafmoe.so")
    parser.add_argument("-t", "--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--tokens", type=int, default=2048, help="of the prompt; default 2048")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--flash", choices=["on", "off"], default="on")
    parser.add_argument("--ubatch", type=int, default=512)
    parser.add_argument("--precision", choices=sorted(libafmoe.PRECISIONS))
    parser.add_argument("--cells", choices=sorted(libafmoe.CELLS), default="f16")
    parser.add_argument("--json", metavar="FILE")
    a = parser.parse_args()
    rounds = {name: Rounds(kind(a.model, a), a) for name, kind in (("afmoe", Afmoe), ("llama.cpp", LlamaCpp))}
    samples = {name: {"same": [], "edited": [], "turns": []} for name in rounds}
    for i in range(a.rounds):
        for name in sorted(rounds, reverse=i % 2 == 1):
            same, edited = rounds[name].prompts()
            samples[name]["same"].append(same)
            samples[name]["edited"].append(edited)
            samples[name]["turns"].append(rounds[name].turns())
    print(f"{os.path.basename(a.model)}, {a.threads} threads, prompt of {a.tokens}, {a.rounds} rounds; milliseconds\n")
    print("| | afmoe | llama.cpp | ratio |\n|---|---|---|---|")
    for row in samples["afmoe"]:
        ours, peer = (statistics.median(samples[name][row]) for name in ("afmoe", "llama.cpp"))
        print(f"| {row} | {ours:.3g} | {peer:.4g} | {peer / ours:.3g} |")
    if a.json:
        with open(a.json, "w", encoding="utf-8") as file:
            json.dump(samples, file)


if __name__ == "__main__":
    main()
