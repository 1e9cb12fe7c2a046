"""benchmarks/long.py, with timelines that are short: test_long.py AFMOE BENCH_SESSIONS"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

AFMOE, BENCH_SESSIONS = sys.argv[1:3]
LONG = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "benchmarks", "long.py")
SANITIZED = os.environ.get("AFMOE_SANITIZE", "none") != "none"


class Long(unittest.TestCase):
    def test_small(self):
        if SANITIZED:
            print("skipped: sanitizer test_long (a sanitizer's own memory is in RssAnon)")
            self.skipTest("sanitizer")
        cases = ["pico:4:700", "pico:3:2000"]
        with tempfile.TemporaryDirectory(prefix="afmoe-long-") as folder:
            figures = os.path.join(folder, "figures.json")
            command = [sys.executable, "-B", LONG, AFMOE, BENCH_SESSIONS, *cases, "--vocab", "1024", "--folder", folder,
                       "-o", figures]
            result = subprocess.run(command, capture_output=True, text=True, timeout=600)
            self.assertEqual(result.returncode, 0, (result.stdout, result.stderr))
            with open(figures, encoding="utf-8") as file:
                rows = json.load(file)
            self.assertEqual(len([name for name in os.listdir(folder) if name.endswith(".gguf")]), 2)
            result = subprocess.run(command[:5] + ["pico:4:9999999"], capture_output=True, text=True, timeout=600)
            self.assertNotEqual(result.returncode, 0)
        self.assertEqual([row["case"] for row in rows], cases)
        self.assertEqual([row["tokens"] for row in rows], [700, 2000])
        for row in rows:
            self.assertEqual([part["end"] for part in row["parts"]], [row["tokens"] * i // 8 for i in range(1, 9)])
            self.assertTrue(all(part["tokens_per_s"] > 0 for part in row["parts"]))
            for said in "estimate", "memory":
                self.assertLessEqual(abs(row[said] - row["rss_anon"]), 0.05 * row["rss_anon"] + (128 << 10))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
