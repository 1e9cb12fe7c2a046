"""benchmarks/accuracy.py: test_accuracy.py AFMOE MODEL LIBAFMOE.so   (the command is not used)

EXACT, and FAST where the library has it, by the criterion of the reference folder (AFMOE_SHARED), without which only
the demo model's greedy answers are compared."""
import importlib.util
import os
import subprocess
import sys
import tempfile
import unittest

MODEL, LIBRARY = sys.argv[2:4]
SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "benchmarks", "accuracy.py")
SAMPLES = os.path.join(os.path.dirname(MODEL), "samples-q8_0.jsonl")
BLOCKS = os.path.join(os.environ.get("AFMOE_SHARED", ""), "fixtures", "gguf")


def accuracy(*arguments):
    return subprocess.run([sys.executable, "-B", SCRIPT, LIBRARY, *arguments], capture_output=True, timeout=1000)


def rows(result):
    """Cells of the lines of tables that begin with a file."""
    lines = (line.strip("| ").split(" | ") for line in result.stdout.decode().splitlines())
    return {cells[0]: cells[1:] for cells in lines if cells[0].endswith(".gguf")}


class Accuracy(unittest.TestCase):
    def measured(self, *arguments):
        """In each precision the library has."""
        for precision in ("exact", "fast"):
            result = accuracy("--precision", precision, *arguments)
            if precision == "fast" and result.returncode == 2 and b"FAST" in result.stderr:
                print(f"left out: fast ({result.stderr.decode().strip()})")
                continue
            self.assertEqual(result.returncode, 0, (precision, result.stdout.decode(), result.stderr.decode()))
            yield precision, rows(result)

    def test_random_models(self):
        if not os.path.isdir(BLOCKS):
            print(f"left out: random models (no {BLOCKS})")
            return
        for precision, table in self.measured("--blocks", BLOCKS):
            self.assertEqual(len(table), len([name for name in os.listdir(BLOCKS) if name.endswith(".gguf")]))
            for name, cells in table.items():
                median, peer_median = float(cells[0]), float(cells[1])
                self.assertLessEqual(median, (1e-9 if precision == "exact" else 1.25 * peer_median), (precision, name))

    def test_greedy_answers(self):
        for precision, table in self.measured("--samples", SAMPLES, "--model", MODEL):
            (n, n_clear, n_wrong, n_close), = ([int(cell) for cell in cells] for cells in table.values())
            self.assertEqual(n_wrong, 0)
            self.assertGreater(n_clear, n * 0.9)
            if precision == "exact":
                self.assertEqual(n_close, 0)

    def test_finds_what_is_too_far(self):
        """A model is as far from another one's logits as can be."""
        if not os.path.isdir(BLOCKS):
            print(f"left out: wrong logits (no {BLOCKS})")
            return
        with tempfile.TemporaryDirectory(prefix="afmoe-accuracy-") as folder:
            os.symlink(os.path.join(BLOCKS, "blocks-q8_0.gguf"), os.path.join(folder, "x.gguf"))
            os.symlink(os.path.join(BLOCKS, "blocks-q2_k.expected.safetensors"),
                       os.path.join(folder, "x.expected.safetensors"))
            result = accuracy("--precision", "exact", "--blocks", folder)
            self.assertEqual(result.returncode, 1, result.stderr)
            self.assertIn(b"x.gguf: ", result.stderr)
            self.assertGreater(float(rows(result)["x.gguf"][2]), 1.25)

    def test_failures(self):
        self.assertEqual(accuracy().returncode, 2)
        for arguments in (["--blocks", "/nonexistent"], ["--samples", SAMPLES, "--model", "/nonexistent"]):
            result = accuracy("--precision", "exact", *arguments)
            self.assertEqual(result.returncode, 3, result.stderr)
            self.assertIn(b"/nonexistent", result.stderr)

    def test_divergence(self):
        spec = importlib.util.spec_from_file_location("accuracy", SCRIPT)
        module = importlib.util.module_from_spec(spec)
        sys.path.insert(0, os.path.dirname(SCRIPT))
        spec.loader.exec_module(module)
        import numpy
        p, q = numpy.array([[0.5, 0.25, 0.25]]), numpy.array([[0.25, 0.5, 0.25]])
        found = module.divergence(numpy.log(p) + 3, numpy.log(q) - 70)
        self.assertAlmostEqual(float(found[0]), 0.25 * float(numpy.log(2)), places=12)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
