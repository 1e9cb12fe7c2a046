"""benchmarks/peer.py: test_peer.py AFMOE MODEL [LIBAFMOE.so]

The peer is the command itself, or llama.cpp where the package llama_cpp is installed; figures come from a recorded
file. Without a library that Python can load the rows that need it are left out."""
import csv
import io
import json
import os
import subprocess
import sys
import tempfile
import unittest

AFMOE, MODEL = sys.argv[1:3]
LIBRARY = sys.argv[3] if len(sys.argv) > 3 else None
BENCHMARKS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "benchmarks")
sys.path.insert(0, BENCHMARKS)
import peer_report  # noqa: E402

COMMON = {"model": "m.gguf", "peer": "llama.cpp", "n_threads": 2, "precision": "fast", "cells": "f16",
          "peer_options": "--flash on", "peer_version": "1", "peer_system": "AVX2 = 1", "afmoe_version": "0.1.0",
          "cpu_level": "avx2"}
RECORDED = [
    {"test": "tg64@4096", **COMMON, "rounds": [{"afmoe": [10.0], "peer": [4.0], "read_gb_s": 30.0},
                                               {"afmoe": [12.0], "peer": [6.0], "read_gb_s": 40.0}]},
    {"test": "open", **COMMON, "rounds": [{"afmoe": [0.5], "peer": [4.0], "read_gb_s": None}]},
]
MORE = [{"test": "tg64@4096", **COMMON, "rounds": [{"afmoe": [20.0], "peer": [5.0], "read_gb_s": 35.0}]}]


def peer(*arguments):
    return subprocess.run([sys.executable, "-B", os.path.join(BENCHMARKS, "peer.py"), *arguments],
                          capture_output=True, timeout=1000)


class Recorded(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="afmoe-peer-")
        self.addCleanup(self.folder.cleanup)
        self.paths = [os.path.join(self.folder.name, name) for name in ("a.json", "b.json")]
        for path, records in zip(self.paths, (RECORDED, MORE)):
            with open(path, "w", encoding="utf-8") as file:
                json.dump(records, file)

    def printed(self, form, *paths):
        result = peer("-o", form, "--from", *paths)
        self.assertEqual((result.returncode, result.stderr), (0, b""))
        return result.stdout.decode()

    def test_statistics(self):
        decode, opening = json.loads(self.printed("json", *self.paths))
        self.assertEqual((decode["test"], decode["n_rounds"], decode["unit"]), ("tg64@4096", 3, "t/s"))
        self.assertEqual([decode[k] for k in ("afmoe", "afmoe_min", "afmoe_max")], [12, 10, 20])
        self.assertEqual([decode[k] for k in ("peer_median", "peer_min", "peer_max")], [5, 4, 6])
        self.assertAlmostEqual(decode["ratio"], 12 / 5)
        self.assertEqual([decode[k] for k in ("ratio_min", "ratio_max", "read_gb_s")], [2, 4, 35])
        self.assertEqual([opening[k] for k in ("unit", "afmoe", "peer_median", "ratio", "read_gb_s")],
                         ["s", 0.5, 4, 8, None])

    def test_forms(self):
        rows = list(csv.DictReader(io.StringIO(self.printed("csv", self.paths[0]))))
        self.assertEqual([(row["test"], float(row["ratio"])) for row in rows], [("tg64@4096", 2.2), ("open", 8)])
        table = self.printed("md", self.paths[0])
        self.assertIn("| m.gguf | tg64@4096 | t/s | 11 (10..12) | 5 (4..6) | 2.2 (2..2.5) | 2 | 35.0 |\n", table)
        self.assertIn("open: 2 threads, afmoe 0.1.0 avx2 fast f16; llama.cpp 1 --flash on", table)

    def test_other_files(self):
        for text in ("{}x", "[{}]", '[{"test": "pp1"}]', "3"):
            with open(self.paths[1], "w", encoding="utf-8") as file:
                file.write(text)
            result = peer("--from", *self.paths)
            self.assertEqual((result.returncode, result.stdout), (1, b""), text)
            self.assertTrue(result.stderr.startswith(b"peer.py: "), result.stderr)


class Arguments(unittest.TestCase):
    def test_names_of_tests(self):
        def parts(name):
            test = peer_report.Test(name)
            return test.kind, test.n_prompt, test.n_gen, test.n_depth, test.n_sessions
        self.assertEqual(parts("pp512"), ("pp", 512, 0, 0, 1))
        self.assertEqual(parts("pp8@16"), ("pp", 8, 0, 16, 1))
        self.assertEqual(parts("tg64@4096x8"), ("tg", 0, 64, 4096, 8))
        self.assertEqual(parts("open"), ("open", 0, 0, 0, 1))
        self.assertEqual(parts("mem4096"), ("mem", 0, 0, 4096, 1))
        for name in ("", "pp", "pp0", "tg-1", "pp4x2", "tg4x0", "tg4@", "open2", "mem", "mem1", "xx4", "tg4x2@3"):
            self.assertRaises(ValueError, peer_report.Test, name)

    def test_wrong_use(self):
        for arguments in ([], [AFMOE], [AFMOE, MODEL, "pp"], ["--from", "x", "-t", "0"], [AFMOE, MODEL, "-o", "xml"],
                          [AFMOE, MODEL, "--flash", "maybe"], [AFMOE, MODEL, "open", "--peer", AFMOE]):
            self.assertEqual(peer(*arguments).returncode, 2, arguments)

    def test_failures(self):
        for model, peer_command in (("/nonexistent", AFMOE), (MODEL, "/nonexistent")):
            result = peer(AFMOE, model, "tg1", "--peer", peer_command)
            self.assertEqual((result.returncode, result.stdout), (1, b""))
            self.assertIn(b"/nonexistent", result.stderr)


class Measured(unittest.TestCase):
    def test_with_itself(self):
        with tempfile.TemporaryDirectory(prefix="afmoe-peer-") as folder:
            saved = os.path.join(folder, "all.json")
            result = peer(AFMOE, MODEL, "pp4", "tg2@3", "tg2x2", "--peer", AFMOE, "-t", "1", "--rounds", "2",
                          "--block", "3", "--cells", "bf16", "-o", "json", "--save", saved)
            self.assertEqual(result.returncode, 0, result.stderr)
            rows = json.loads(result.stdout)
            self.assertEqual([(row["test"], row["n_rounds"], row["cells"]) for row in rows],
                             [("pp4", 2, "bf16"), ("tg2@3", 2, "bf16"), ("tg2x2", 2, "bf16")])
            with open(saved, encoding="utf-8") as file:
                for record in json.load(file):
                    for round_ in record["rounds"]:
                        self.assertEqual((len(round_["afmoe"]), len(round_["peer"])), (3, 3))
                        self.assertGreater(round_["read_gb_s"], 0)
            self.assertEqual(json.loads(peer("-o", "json", "--from", saved).stdout), rows)

    def test_open_and_memory(self):
        if not LIBRARY:
            print("left out: open and mem (no library that Python can load)")
            return
        script = [sys.executable, "-B", os.path.join(BENCHMARKS, "peer_run.py"), "afmoe", "-m", MODEL, "-t", "1",
                  "--library", LIBRARY]
        row, = json.loads(subprocess.run([*script, "--memory", "300"], capture_output=True, check=True).stdout)
        self.assertLess(abs(row["private_bytes"]), 100e6)
        self.assertEqual((row["engine"], row["n_depth"]), ("afmoe", 300))
        row, = json.loads(subprocess.run([*script, "--open", "--cells", "f16"], capture_output=True, check=True).stdout)
        self.assertGreater(row["seconds"], 0)

    def test_llama_cpp(self):
        try:
            import llama_cpp  # noqa: F401
        except ImportError as error:
            print(f"left out: llama.cpp ({error})")
            return
        more = ["open", "mem64", "--library", LIBRARY] if LIBRARY else []
        result = peer(AFMOE, MODEL, "pp40", "tg2@40", "tg2x2", *more, "--ubatch", "16,32", "-t", "1", "--rounds", "1",
                      "-o", "json")
        self.assertEqual(result.returncode, 0, result.stderr)
        for row in json.loads(result.stdout):
            self.assertIn("--flash", row["peer_options"])
            self.assertGreater(row["peer_median"], 0)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
