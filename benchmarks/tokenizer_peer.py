#!/usr/bin/env python3
"""Our tokenizer beside one thread of Hugging Face tokenizers: tokenizer_peer.py LIBAFMOE.so TOKENIZER.json FILE...

Each file is cut at line ends into documents of about 4 KiB, which both sides encode in turn, round by round, in this
process; the figures are the fastest rounds, in MB/s, and their ratio. The ids are compared as well. Without the package
tokenizers it prints a line and ends well."""
import ctypes
import os
import sys
import time

import libafmoe

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
ROUNDS, DOCUMENT_BYTES = 5, 4096


class Ours:
    def __init__(self, library, path):
        self.library = libafmoe.Library(library)
        self.model = self.library.open(path, tokenizer_only=True)

    def encode(self, documents):
        """Arrays and counts; made into lists only where somebody asks."""
        out = []
        for document in documents:
            ids, n = (ctypes.c_int32 * len(document))(), ctypes.c_uint64()
            self.library.call("tokenize", self.model, document, len(document), None, ids, len(document),
                              ctypes.byref(n))
            out.append((ids, n.value))
        return out


def cut(data):
    documents, begin = [], 0
    while begin < len(data):
        end = data.find(b"\n", begin + DOCUMENT_BYTES) + 1 or len(data)
        documents.append(data[begin:end])
        begin = end
    return documents


def seconds(function, argument):
    begin = time.perf_counter()
    result = function(argument)
    return time.perf_counter() - begin, result


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    try:
        from tokenizers import Tokenizer
    except ImportError:
        print("skipped: tokenizer_peer (the package tokenizers is not installed)")
        return
    ours, peer = Ours(sys.argv[1], sys.argv[2]), Tokenizer.from_file(sys.argv[2])
    for path in sys.argv[3:]:
        documents = cut(open(path, "rb").read())
        texts = [document.decode() for document in documents]
        best_ours = best_peer = float("inf")
        for _ in range(ROUNDS):
            time_peer, encodings = seconds(lambda t: peer.encode_batch_fast(t, add_special_tokens=False), texts)
            time_ours, ids = seconds(ours.encode, documents)
            best_ours, best_peer = min(best_ours, time_ours), min(best_peer, time_peer)
        assert [e.ids for e in encodings] == [array[:n] for array, n in ids], f"{path}: the ids differ"
        n_bytes = sum(map(len, documents))
        print(f"{os.path.basename(path):24} {n_bytes:9} bytes   ours {n_bytes / best_ours / 1e6:7.1f} MB/s   "
              f"tokenizers {n_bytes / best_peer / 1e6:6.2f} MB/s   ratio {best_peer / best_ours:6.1f}")


if __name__ == "__main__":
    main()
