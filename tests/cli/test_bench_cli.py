"""afmoe bench, synth and the base files of eval, with random models: test_bench_cli.py AFMOE MODEL

With numpy and the gguf package (of llama.cpp) the files are read by these too; without, that is left out."""
import csv
import io
import json
import math
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

from command import AFMOE, SANITIZED, Case, run

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
RUNNABLE = ("f32", "f16", "bf16", "q8_0")  # in every version; the rest where the build's features name them
BLOCKS = {"f32": (1, 4), "f16": (1, 2), "bf16": (1, 2), "q8_0": (32, 34), "q4_0": (32, 18), "q4_1": (32, 20),
          "q5_0": (32, 22), "q5_1": (32, 24), "q2_k": (256, 84), "q3_k": (256, 110), "q4_k": (256, 144),
          "q5_k": (256, 176), "q6_k": (256, 210), "iq1_s": (256, 50), "iq1_m": (256, 56), "iq2_xxs": (256, 66),
          "iq2_xs": (256, 74), "iq2_s": (256, 82), "iq3_xxs": (256, 98), "iq3_s": (256, 110), "iq4_nl": (32, 18),
          "iq4_xs": (256, 136), "tq1_0": (256, 54), "tq2_0": (256, 66), "mxfp4": (32, 17), "nvfp4": (64, 36)}
# The first are llama-bench's.
JSON_FIELDS = ("model_filename", "model_type", "model_size", "model_n_params", "n_batch", "n_threads", "type_k",
               "type_v", "n_prompt", "n_gen", "n_depth", "test_time", "avg_ns", "stddev_ns", "avg_ts", "stddev_ts")
MORE_FIELDS = ("build_version", "cpu_info", "cpu_level", "precision", "n_sessions", "read_gb_s", "dot_gflops")


class Random(Case):
    """With a small model that synth wrote."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="afmoe-bench-")
        cls.pico = os.path.join(cls.folder, "pico.gguf")
        result = run("synth", "--shape", "pico", "-q", cls.pico, model=False)
        assert result.returncode == 0, result.stderr

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def path(self, name):
        return os.path.join(self.folder, name)

    def output(self, *arguments):
        return self.good(run(*arguments, model=False)).decode()

    def refused(self, code, arguments, *words):
        self.fails(run(*arguments, model=False), code, *words)


def read_gguf(path):
    """Metadata and {name: (dims, type, offset)} by the format's own words, and where the data begins."""
    with open(path, "rb") as file:
        data = file.read()
    at = 0

    def take(form):
        nonlocal at
        values = struct.unpack_from("<" + form, data, at)
        at += struct.calcsize("<" + form)
        return values[0] if len(values) == 1 else values

    def text():
        nonlocal at
        n = take("Q")
        at += n
        return data[at - n:at].decode()

    def value(kind):
        if kind == 9:
            element, n = take("IQ")
            return [value(element) for _ in range(n)]
        return text() if kind == 8 else take({4: "I", 5: "i", 6: "f", 7: "?"}[kind])

    magic, version, n_tensors, n_keys = take("4sIQQ")
    assert (magic, version) == (b"GGUF", 3)
    keys = {}
    for _ in range(n_keys):
        name = text()
        keys[name] = value(take("I"))
    tensors = {}
    for _ in range(n_tensors):
        name = text()
        n_dims = take("I")
        dims = [take("Q") for _ in range(n_dims)]
        tensors[name] = (dims, *take("IQ"))
    return keys, tensors, (at + 31) // 32 * 32, len(data)


class Synth(Random):
    def test_pico_is_whole(self):
        keys, tensors, begin, size = read_gguf(self.pico)
        self.assertEqual(keys["general.architecture"], "afmoe")
        self.assertEqual((keys["afmoe.block_count"], keys["afmoe.leading_dense_block_count"]), (4, 1))
        self.assertEqual(tensors["blk.1.ffn_down_exps.weight"][0], [256, 256, 8])
        self.assertEqual(tensors["blk.0.ffn_down.weight"][0], [512, 256])
        end = 0
        for name, (dims, kind, offset) in tensors.items():
            self.assertEqual(offset, end, name)
            elements, n_bytes = {0: (1, 4), 8: (32, 34)}[kind]
            self.assertEqual(kind == 0, bool(re.search(r"norm|ffn_gate_inp|exp_probs_b", name)), name)
            end = offset + (math.prod(dims) // elements * n_bytes + 31) // 32 * 32
        self.assertEqual(begin + end, size)

    def test_vocabulary(self):
        keys = read_gguf(self.pico)[0]
        tokens, kinds = keys["tokenizer.ggml.tokens"], keys["tokenizer.ggml.token_type"]
        self.assertEqual(len(tokens), 2112)
        self.assertEqual(len(set(tokens)), len(tokens))
        self.assertEqual([kinds.count(kind) for kind in (1, 3, 4, 5)], [2112 - 32 - 192, 24, 8, 192])
        self.assertEqual((tokens[0], tokens[3], tokens[13]), ("<|begin_of_text|>", "<|im_end|>", "<think>"))
        self.assertEqual([tokens[i] for i in (32, 45, 47, 64)], ["!", ".", "0", "A"])  # as in Trinity's
        merged = []
        for merge in keys["tokenizer.ggml.merges"]:
            left, right = merge.split(" ")
            merged.append(left + right)
            self.assertLess(max(tokens.index(left), tokens.index(right)), tokens.index(left + right))
        self.assertEqual(merged, tokens[288:2112 - 192])

    def test_text_goes_through(self):
        text = "Hello w\u00f6rld, 12 f\u00fcr\n\u4f60\u597d"
        ids = [int(i) for i in self.output("tokenize", "-m", self.pico, text).split()]
        self.assertTrue(all(32 <= i < 2112 - 192 for i in ids))
        self.assertLess(len(ids), len(text.encode()))  # some merges apply
        self.assertTrue(self.output("run", "-m", self.pico, "-q", "-n", "4", "Hello"))

    def test_same_seed_same_file(self):
        def content(*options):
            path = self.path("seed.gguf")
            self.output("synth", "--shape", "pico", "--layers", "1", "--vocab", "512", "--force", *options, "-q", path)
            with open(path, "rb") as file:
                return file.read()
        self.assertEqual(content(), content("--seed", "0"))
        self.assertNotEqual(content(), content("--seed", "1"))

    def test_every_format_has_its_size(self):
        out = self.path("format.gguf")
        features = self.output("--version").lower()
        for name, (elements, n_bytes) in BLOCKS.items():
            self.output("synth", "--shape", "pico", "--layers", "2", "--vocab", "512", "-f", name, "--force", "-q", out)
            keys, tensors, begin, size = read_gguf(out)
            q, embedding = tensors["blk.1.attn_q.weight"], tensors["token_embd.weight"]
            k = tensors["blk.1.attn_k.weight"]
            self.assertEqual(k[2] - q[2], 256 * 256 // elements * n_bytes, name)
            self.assertEqual(q[1], embedding[1])
            self.assertEqual(os.path.getsize(out), size)
            if SANITIZED and name not in ("f32", "q4_0", "q6_k"):
                continue  # the kernels' own tests read every format there
            if name in RUNNABLE or re.search(rf"\b{name}\b", features.split("formats:")[1]):
                self.check_runs(out, name)
            else:
                self.refused(1, ["bench", "-m", out, "-p", "1"], name.upper())

    def check_runs(self, model, name):
        """Logits are finite, and neither constant nor far from those of a random guess (ln 512 = 6.24 nats)."""
        text = self.path("text.txt")
        with open(text, "w", encoding="utf-8") as file:
            file.write("the quick brown fox jumps over the lazy dog " * 8)
        out = json.loads(self.output("eval", "-m", model, "-q", "--json", "-w", "64", text))
        self.assertTrue(3 < out["mean_nll"] < 12, (name, out))
        self.assertGreater(abs(out["mean_nll"] - math.log(512)), 1e-6, name)

    def test_mixes_are_llama_cpps(self):
        for name, base in (("q4_k_m", 12), ("q5_k_m", 13)):
            self.output("synth", "--shape", "pico", "-f", name, "--force", "-q", self.path("mix.gguf"))
            keys, tensors, _, _ = read_gguf(self.path("mix.gguf"))
            better = {n for n, t in tensors.items() if t[1] == 14}
            # Of 4 layers: none in the first eighth, 3 in the last, and 2, the third of three.
            wanted = {"output.weight"} | {f"blk.{i}.{n}.weight" for i in (2, 3)
                                          for n in ("attn_v", "ffn_down_exps", "ffn_down_shexp")}
            self.assertEqual(better, wanted)
            self.assertEqual({t[1] for t in tensors.values()}, {0, base, 14})
            self.assertEqual(keys["general.file_type"], {"q4_k_m": 15, "q5_k_m": 17}[name])

    def test_layers(self):
        self.output("synth", "--shape", "pico", "--layers", "1", "-q", self.path("one.gguf"))
        keys, tensors, _, _ = read_gguf(self.path("one.gguf"))
        self.assertEqual((keys["afmoe.block_count"], keys["afmoe.leading_dense_block_count"]), (1, 0))
        self.assertIn("blk.0.ffn_up_exps.weight", tensors)

    def test_safetensors(self):
        for name in ("f32", "f16", "bf16"):
            folder = self.path("hub-" + name)
            self.output("synth", "--shape", "pico", "--container", "safetensors", "-f", name, "-q", folder)
            self.assertEqual(sorted(os.listdir(folder)), ["config.json", "model.safetensors"])
            with open(folder + "/config.json", encoding="utf-8") as file:
                config = json.load(file)
            self.assertEqual((config["num_hidden_layers"], config["vocab_size"]), (4, 2112))
            self.assertEqual(config["layer_types"], ["sliding_attention"] * 3 + ["full_attention"])
            with open(folder + "/model.safetensors", "rb") as file:
                n = int.from_bytes(file.read(8), "little")
                header = json.loads(file.read(n))
            self.assertEqual(os.path.getsize(folder + "/model.safetensors"),
                             8 + n + max(t["data_offsets"][1] for k, t in header.items() if k != "__metadata__"))
            self.assertEqual(header["model.layers.3.mlp.experts.7.down_proj.weight"]["shape"], [256, 256])
            self.assertEqual(header["lm_head.weight"]["dtype"], name.upper())
            self.output("bench", "-q", "-m", folder, "-p", "4", "-n", "0", "-r", "1", "-t", "1")
            self.refused(1, ["synth", "--container", "safetensors", folder], folder, "exists")

    def test_shards(self):
        folder = self.path("shards")
        self.output("synth", "--shape", "pico", "--container", "safetensors", "--shard-mb", "4", "-q", folder)
        with open(folder + "/model.safetensors.index.json", encoding="utf-8") as file:
            index = json.load(file)
        names, total = {}, 0
        shards = sorted(set(index["weight_map"].values()))
        self.assertEqual(shards, [f"model-{i + 1:05}-of-{len(shards):05}.safetensors" for i in range(len(shards))])
        self.assertGreater(len(shards), 2)
        for shard in shards:
            with open(f"{folder}/{shard}", "rb") as file:
                header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
            names.update({name: shard for name in header if name != "__metadata__"})
            size = max(t["data_offsets"][1] for name, t in header.items() if name != "__metadata__")
            self.assertLessEqual(size, 4000000)
            total += size
        self.assertEqual((index["weight_map"], index["metadata"]["total_size"]), (names, total))
        self.output("bench", "-q", "-m", folder, "-p", "4", "-n", "0", "-r", "1", "-t", "1")

    def test_wrong_use(self):
        out = self.path("never")
        for arguments, words in (
            ([], ["OUT"]), (["a", "b"], ["OUT"]), (["--shape", "giant", out], ["giant", "pico"]),
            (["--layers", "57", out], ["57", "1..56"]), (["--layers", "0", out], ["1..56"]),
            (["--shape", "pico", "--layers", "5", out], ["1..4"]),
            (["--vocab", "511", out], ["512..1000000"]), (["--vocab", "1000001", out], ["512..1000000"]),
            (["-f", "q9_9", out], ["q9_9", "q8_0", "nvfp4"]), (["--container", "zip", out], ["zip"]),
            (["--shard-mb", "0", out], ["1..1000000"]),
            (["--container", "safetensors", "-f", "q8_0", out], ["q8_0", "GGUF"]), (["-m", "x", out], ["-m"]),
        ):
            self.refused(2, ["synth", *arguments], *words)
        self.assertFalse(os.path.exists(out))

    def test_what_is_there_stays(self):
        out = self.path("there.gguf")
        with open(out, "w", encoding="utf-8") as file:
            file.write("precious")
        self.refused(1, ["synth", "--shape", "pico", out], out, "exists", "--force")
        self.assertEqual(os.path.getsize(out), 8)
        self.assertFalse(os.path.exists(out + ".part"))
        self.output("synth", "--shape", "pico", "--layers", "1", "--vocab", "512", "--force", "-q", out)
        self.assertEqual(read_gguf(out)[0]["general.architecture"], "afmoe")

    def test_full_disk(self):
        self.refused(1, ["synth", "--shape", "pico", "/dev/full"], "/dev/full", "No space left")
        self.assertTrue(os.path.exists("/dev/full"))
        self.refused(1, ["synth", "--shape", "pico", self.path("no/such/folder")], "No such file")

    def test_nothing_stays_of_a_failure(self):
        """A limit on the size of files stands for the full disk."""
        import resource
        import signal

        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
        for options in ([], ["--container", "safetensors"],
                        ["--container", "safetensors", "--shard-mb", "1"]):
            out = self.path("cut")
            result = run("synth", "--shape", "pico", *options, out, model=False, preexec_fn=limit)
            self.assertEqual((result.returncode, result.stdout), (1, b""))
            self.assertIn(b"File too large", result.stderr)
            self.assertFalse(os.path.exists(out), options)

    def test_peers_reader_agrees(self):
        try:
            import gguf
            import numpy
        except ImportError as error:
            print(f"left out: the files as the gguf package reads them ({error})")
            return
        for name in BLOCKS:
            path = self.path("peer.gguf")
            self.output("synth", "--shape", "pico", "--vocab", "512", "-f", name, "--force", "-q", path)
            for tensor in gguf.GGUFReader(path).tensors:
                values = (gguf.quants.dequantize(tensor.data, tensor.tensor_type) if tensor.tensor_type > 1
                          else tensor.data.astype(numpy.float32))
                mean = 1 if "norm" in tensor.name else 0
                deviation = 0.05 if "norm" in tensor.name else 0.01 if "probs" in tensor.name else 0.02
                self.assertTrue(numpy.isfinite(values).all(), (name, tensor.name))
                if values.size >= 1024:
                    self.assertLess(abs(values.mean() - mean), 0.15 * deviation + 0.002, (name, tensor.name))
                    self.assertLess(abs(values.std() / deviation - 1), 0.2, (name, tensor.name))


class Bench(Random):
    def bench(self, form, *options):
        return self.output("bench", "-q", "-m", self.pico, "-r", "2", "-o", form, *options)

    def test_json(self):
        rows = json.loads(self.bench("json", "-p", "3,8", "-n", "2", "-d", "0,5", "--sessions", "1-2", "-t", "1,2"))
        self.assertEqual([(r["n_threads"], r["n_depth"], r["n_prompt"], r["n_gen"], r["n_sessions"]) for r in rows],
                         [(t, d, *test) for t in (1, 2) for d in (0, 5)
                          for test in ((3, 0, 1), (8, 0, 1), (0, 2, 1), (0, 2, 2))])
        for row in rows:
            self.assertEqual(set(row), {*JSON_FIELDS, *MORE_FIELDS, "samples_ns", "samples_ts"})
            self.assertEqual((row["model_filename"], row["type_k"], row["precision"]), (self.pico, "bf16", "fast"))
            self.assertRegex(row["test_time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
            self.assertEqual(len(row["samples_ns"]), 2)
            n = row["n_prompt"] + row["n_gen"] * row["n_sessions"]
            for ns, ts in zip(row["samples_ns"], row["samples_ts"]):
                self.assertAlmostEqual(ts, 1e9 * n / ns, delta=1e-6 * ts)
            first, second = row["samples_ts"]
            self.assertAlmostEqual(row["avg_ts"], (first + second) / 2, delta=1e-6 * first)
            self.assertAlmostEqual(row["stddev_ts"], abs(first - second) / 2 ** 0.5, delta=1e-6 * first)
            self.assertGreater(row["read_gb_s"], 0)
            self.assertGreater(row["dot_gflops"], 0)

    def test_csv(self):
        out = self.bench("csv", "-p", "4", "-n", "2", "--cells", "f16", "--cpu", "c")
        rows = list(csv.DictReader(io.StringIO(out)))
        self.assertEqual([(r["n_prompt"], r["n_gen"]) for r in rows], [("4", "0"), ("0", "2")])
        for row in rows:
            self.assertEqual(set(row), {*JSON_FIELDS, *MORE_FIELDS})
            self.assertEqual((row["cpu_level"], row["type_k"]), ("c", "f16"))
            self.assertGreater(float(row["avg_ts"]), 0)

    def test_md(self):
        lines = self.bench("md", "-p", "4", "-n", "2", "-d", "3", "--sessions", "2").splitlines()
        self.assertEqual(len(lines), 4)
        self.assertEqual(len({line.count("|") for line in lines}), 1)
        self.assertIn("| pp4 @ d3 |", lines[2])
        self.assertRegex(lines[3], r"\| tg2 @ d3 x 2 \| [\d.]+ \u00b1 [\d.]+ \|")

    def test_lists(self):
        def prompts(text):
            rows = json.loads(self.output("bench", "-q", "-m", self.pico, "-r", "1", "-o", "json", "-n", "0", "-t", "1",
                                        "-p", text))
            return [row["n_prompt"] for row in rows]
        self.assertEqual(prompts("1-3"), [1, 2, 3])
        self.assertEqual(prompts("2-9+3,0,1"), [2, 5, 8, 1])
        self.assertEqual(prompts("1-8*2"), [1, 2, 4, 8])
        for text in ("", "a", "1,", ",1", "3-1", "1-4+0", "1-4*1", "0-4*2", "-1", "1-", "1-2+", "1.5", "1-65", " 1",
                     "99999999999999999999"):
            self.refused(2, ["bench", "-m", self.pico, "-p", text], "-p takes")

    def test_matrices_of_many_widths(self):
        """The widest matrix of Mini is not the one whose panel needs most scratch; a sanitizer sees what is missing."""
        model = self.path("mini.gguf")
        self.output("synth", "--shape", "mini", "--layers", "2", "--vocab", "512", "-f", "q4_0", "-q", model)
        self.output("bench", "-q", "-m", model, "-p", "8", "-n", "0", "-r", "1")
        os.unlink(model)

    def test_wrong_use(self):
        for arguments, words in (
            (["x"], ["'x'"]), (["-p", "0", "-n", "0"], ["nothing"]), (["-r", "0"], ["1..1000"]),
            (["-r", "1001"], ["1..1000"]), (["-o", "xml"], ["xml", "csv"]), (["-t", "0"], ["1..256"]),
            (["-t", "257"], ["1..256"]), (["--sessions", "0"], ["1..256"]), (["-p", "9999"], ["-p", "9999", "2048"]),
            (["-p", "4", "-b", "0"], ["-b is 0"]), (["-p", "4", "--batch-size", "5000"], ["--batch-size is 5000"]),
            (["--threads", "0"], ["--threads has 0"]), (["--cells", "f12"], ["f12"]),
        ):
            self.refused(2, ["bench", "-q", "-m", self.pico, *arguments], *words)
        self.refused(1, ["bench", "-m", "/nonexistent"], "/nonexistent")

    def test_full_output(self):
        with open("/dev/full", "wb") as full:
            result = subprocess.run([AFMOE, "bench", "-q", "-m", self.pico, "-p", "2", "-n", "0", "-r", "1", "-t", "1"],
                                    stdout=full, stderr=subprocess.PIPE, timeout=600)
        self.assertEqual(result.returncode, 1)
        self.assertIn(b"No space left", result.stderr)

    def test_plots(self):
        if SANITIZED:
            print("skipped: sanitizer test_plots (it is about a program in Python)")
            return
        python = [sys.executable, "-B", os.path.join(ROOT, "benchmarks", "plot.py")]
        with open(self.path("rows.csv"), "w", encoding="utf-8") as file:
            file.write(self.bench("csv", "-p", "2,4", "-n", "2", "-d", "0,2", "--sessions", "1,2", "-t", "1,2"))
        try:
            import matplotlib
        except ImportError as error:
            result = subprocess.run([*python, self.path("png"), self.path("rows.csv")], capture_output=True)
            self.assertEqual((result.returncode, result.stdout), (1, b""))
            print(f"left out: plots ({error})")
            return
        subprocess.run([*python, self.path("png"), self.path("rows.csv")], check=True, stdout=subprocess.DEVNULL)
        for name in ("prompt", "depth", "sessions", "threads"):
            with open(self.path(f"png/{name}.png"), "rb") as file:
                self.assertEqual(file.read(8), b"\x89PNG\r\n\x1a\n")


class EvalBase(Random):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.text = os.path.join(cls.folder, "text.txt")
        with open(cls.text, "w", encoding="utf-8") as file:
            file.write("a dog and a cat went over the hill, and then home again. " * 20)
        cls.base = os.path.join(cls.folder, "base")
        result = run("eval", "-m", cls.pico, "-q", "-w", "32", "--chunks", "3", "--save-base", cls.base, cls.text,
                     model=False)
        assert result.returncode == 0, result.stderr

    def eval(self, *options, model=None):
        out = self.output("eval", "-m", model or self.pico, "-q", "--json", "-w", "32", *options, self.text)
        return json.loads(out)

    def test_file_is_as_documented(self):
        with open(self.base, "rb") as file:
            data = file.read()
        magic, version, kind, vocab, window, n_windows = struct.unpack_from("<8sIIQQQ", data)
        self.assertEqual((magic, version, kind, vocab, window, n_windows), (b"AFMOEKLD", 1, 1, 2112, 32, 3))
        self.assertEqual(len(data), 40 + 4 * 3 * 32 + 4 * 3 * 31 * 2112)
        ids = struct.unpack_from(f"<{3 * 32}i", data, 40)
        with open(self.text, encoding="utf-8") as file:
            wanted = [int(i) for i in self.output("tokenize", "-m", self.pico, file.read()).split()]
        self.assertEqual(list(ids), wanted[:96])
        at, nll = 40 + 4 * 96, 0.0
        for window in range(3):
            for i in range(31):
                row = struct.unpack_from("<2112f", data, at)
                self.assertAlmostEqual(sum(math.exp(x) for x in row), 1, places=4)
                nll -= row[ids[32 * window + i + 1]]
                at += 4 * 2112
        self.assertAlmostEqual(nll / 93, self.eval("--chunks", "3")["mean_nll"], places=5)

    def test_itself(self):
        out = self.eval("--chunks", "3", "--base", self.base)
        plain = self.eval("--chunks", "3")
        self.assertEqual({k: out[k] for k in plain}, plain)
        self.assertEqual([out[k] for k in ("kl_mean", "kl_median", "kl_99", "kl_max", "same_top")], [0, 0, 0, 0, 1])
        lines = self.output("eval", "-m", self.pico, "-q", "-w", "32", "--chunks", "3", "--base", self.base, self.text)
        self.assertEqual([line.split()[0] for line in lines.splitlines()[4:]],
                         ["kl_mean", "kl_median", "kl_99", "kl_max", "same_top"])

    def test_another_model(self):
        """The figures, computed again from two files."""
        other = self.path("other.gguf")
        self.output("synth", "--shape", "pico", "--seed", "9", "-q", other)
        out = self.eval("--chunks", "3", "--base", self.base, model=other)
        self.eval("--chunks", "3", "--save-base", self.path("other"), model=other)
        rows = []
        for path in (self.base, self.path("other")):
            with open(path, "rb") as file:
                data = file.read()
            rows.append([struct.unpack_from("<2112f", data, 40 + 4 * 96 + 4 * 2112 * i) for i in range(93)])
        kl = sorted(sum(math.exp(p) * (p - q) for p, q in zip(a, b)) for a, b in zip(*rows))
        same = sum(a.index(max(a)) == b.index(max(b)) for a, b in zip(*rows)) / 93
        self.assertGreater(kl[0], 0)
        for name, wanted in (("kl_mean", sum(kl) / 93), ("kl_median", kl[46]), ("kl_max", kl[92]), ("same_top", same),
                             ("kl_99", kl[91] + (0.99 * 92 - 91) * (kl[92] - kl[91]))):
            self.assertAlmostEqual(out[name], wanted, delta=1e-6 * max(1, wanted), msg=name)

    def test_pieces_of_a_window(self):
        """A vocabulary so large that logits of a window do not fit the buffer gives the same figures."""
        if SANITIZED:
            print("skipped: sanitizer test_pieces_of_a_window (200,000 rows take a minute there)")
            return
        model = self.path("wide.gguf")
        self.output("synth", "--shape", "pico", "--layers", "1", "--vocab", "200000", "-q", model)
        options = ("-w", "100", "--chunks", "1")
        plain = self.eval(*options, model=model)
        self.output("eval", "-m", model, "-q", *options, "--save-base", self.path("wide"), self.text)
        out = self.eval(*options, "--base", self.path("wide"), model=model)
        self.assertEqual((out["mean_nll"], out["predicted"]), (plain["mean_nll"], 99))
        self.assertEqual((out["kl_max"], out["same_top"]), (0, 1))
        os.unlink(self.path("wide"))

    def test_another_run(self):
        for options, words in (
            (["-w", "16", "--chunks", "3"], ["window is 32", "16"]), (["-w", "32", "--chunks", "2"], ["windows is 3"]),
            (["-w", "32"], ["windows is 3"]),
        ):
            arguments = ["eval", "-m", self.pico, "-q", *options, "--base", self.base, self.text]
            self.refused(1, arguments, self.base, *words)
        other = self.path("other.txt")
        with open(self.text, encoding="utf-8") as file, open(other, "w", encoding="utf-8") as out:
            out.write("Z" + file.read())
        self.refused(1, ["eval", "-m", self.pico, "-q", "-w", "32", "--chunks", "3", "--base", self.base, other],
                   self.base, "other tokens")

    def test_hostile_files(self):
        with open(self.base, "rb") as file:
            data = bytearray(file.read())
        row = 40 + 4 * 96
        cases = {
            "empty": (b"", "ends early"), "header": (data[:39], "ends early"),
            "magic": (b"X" + data[1:], "no base file"), "version": (data[:8] + b"\x02" + data[9:], "version is 2"),
            "type": (data[:12] + b"\x07" + data[13:], "is 7"),
            "vocab": (data[:16] + b"\xff" * 8 + data[24:], "vocabulary"),
            "window": (data[:24] + b"\xff" * 8 + data[32:], "window"),
            "windows": (data[:32] + b"\xff" * 8 + data[40:], "number of windows"),
            "short": (data[:-1], "size"), "long": (data + b"\0", "size"),
            "nan": (data[:row] + struct.pack("<f", math.nan) + data[row + 4:], "row 0"),
            "positive": (data[:row + 8] + struct.pack("<f", 1) + data[row + 12:], "row 0"),
            "sum": (data[:row] + bytes(4) + data[row + 4:], "row 0"),
            "last": (data[:-4] + struct.pack("<f", -0.0), "row 92"),
        }
        for name, (content, word) in cases.items():
            with open(self.path("hostile"), "wb") as file:
                file.write(content)
            self.refused(1, ["eval", "-m", self.pico, "-q", "-w", "32", "--chunks", "3", "--base", self.path("hostile"),
                           self.text], "hostile", word)

    def test_wrong_use(self):
        self.refused(2, ["eval", "-m", self.pico, "--base", "a", "--save-base", "b", self.text], "exclude")
        self.refused(2, ["eval", "-m", self.pico, "--chunks", "0", self.text], "chunks")
        self.refused(1, ["eval", "-m", self.pico, "-q", "--base", "/nonexistent", self.text], "/nonexistent")
        self.refused(1, ["eval", "-m", self.pico, "-q", "--base", self.folder, self.text], self.folder)

    def test_full_disk(self):
        self.refused(1, ["eval", "-m", self.pico, "-q", "--save-base", "/dev/full", self.text], "No space left")
        self.refused(1, ["eval", "-m", self.pico, "-q", "--save-base", self.path("no/such"), self.text], "No such file")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
