"""afmoe inspect on both containers, whole and broken: test_inspect.py AFMOE MODEL"""
import json
import math
import os
import shutil
import struct
import subprocess
import tempfile
import unittest

from command import AFMOE, MODEL, Case, run

DATA = os.environ["AFMOE_TEST_DATA"]
NANO = os.path.join(DATA, "nano")


def inspect(path, *arguments, code=0):
    result = run("inspect", path, "--json", *arguments, model=False)
    assert result.returncode == code, (result.returncode, result.stdout[:500], result.stderr)
    assert not arguments or arguments == ("--tensors",)
    return json.loads(result.stdout)


def read_header(path):
    with open(path, "rb") as file:
        (n,) = struct.unpack("<Q", file.read(8))
        return json.loads(file.read(n)), 8 + n


class Inspect(Case):
    def folder(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        return folder.name

    def variant(self, change):
        """A copy of a small safetensors folder whose header `change` was called on."""
        folder = self.folder()
        shutil.copy(NANO + "/config.json", folder)
        header, begin = read_header(NANO + "/model.safetensors")
        with open(NANO + "/model.safetensors", "rb") as file:
            data = file.read()[begin:]
        change(header)
        text = json.dumps(header).encode()
        self.write(folder, "model.safetensors", struct.pack("<Q", len(text)) + text + data)
        return folder

    def write(self, folder, name, content):
        with open(os.path.join(folder, name), "wb") as file:
            file.write(content)

    def changed_model(self, change):
        """The text model with its bytes changed by a function."""
        with open(MODEL, "rb") as file:
            content = bytearray(file.read())
        content = change(content) or content
        folder = self.folder()
        self.write(folder, "changed.gguf", content)
        return folder + "/changed.gguf"

    def type_of(self, content, name):
        """Where the type code of a tensor lies in a GGUF file."""
        at = content.index(struct.pack("<Q", len(name)) + name) + 8 + len(name)
        return at + 4 + 8 * struct.unpack_from("<I", content, at)[0]

    def test_safetensors(self):
        report = inspect(NANO, "--tensors")
        self.assertEqual((report["can_run"], report["problem"]), (True, None))
        self.assertEqual(report["verdict"], "runs on token ids only: it has no tokenizer")
        text = self.good(run("inspect", NANO, model=False)).decode()
        self.assertRegex(text, r"(?m)^verdict +runs on token ids only: it has no tokenizer$")
        self.assertNotIn("can be run", text)
        self.assertEqual((report["container"], report["layout"]), ("safetensors", "hub"))
        with open(NANO + "/config.json", encoding="utf-8") as file:
            config = json.load(file)
        for ours, theirs in (("n_layers", "num_hidden_layers"), ("hidden_size",) * 2, ("n_experts", "num_experts"),
                             ("moe_intermediate_size",) * 2, ("intermediate_size",) * 2, ("sliding_window",) * 2,
                             ("route_scale",) * 2, ("rms_norm_eps",) * 2, ("n_dense_layers", "num_dense_layers")):
            self.assertAlmostEqual(report["config"][ours], config[theirs], places=9, msg=ours)
        letters = "".join("f" if kind == "full_attention" else "s" for kind in config["layer_types"])
        self.assertEqual(report["config"]["attention"], letters)
        header, begin = read_header(NANO + "/model.safetensors")
        header.pop("__metadata__", None)
        self.assertEqual([t["name"] for t in report["tensors"]], sorted(header))
        for tensor in report["tensors"]:
            entry = header[tensor["name"]]
            first, end = entry["data_offsets"]
            self.assertEqual((tensor["format"], tensor["shape"]), (entry["dtype"], entry["shape"]))
            self.assertEqual((tensor["offset"], tensor["bytes"]), (begin + first, end - first))
            self.assertEqual((tensor["file"], tensor["supported"], tensor["use"]), ("model.safetensors", True, "used"))
        self.assertEqual(report["formats"], [{"format": "F32", "tensors": len(header), "supported": True,
                                              "bytes": sum(t["bytes"] for t in report["tensors"])}])
        self.assertEqual(report["config"]["n_parameters"], sum(math.prod(t["shape"]) for t in report["tensors"]))

    def test_shards(self):
        report = inspect(os.path.join(DATA, "bf16"), "--tensors")
        self.assertTrue(report["can_run"])
        self.assertEqual(len({t["file"] for t in report["tensors"]}), 23)

    def test_gguf(self):
        report = inspect(MODEL, "--tensors")
        self.assertEqual((report["can_run"], report["container"], report["layout"]), (True, "GGUF", "GGUF"))
        self.assertEqual(report["verdict"], "can be run")
        self.assertEqual({f["format"] for f in report["formats"]}, {"Q8_0", "F32"})
        end = 0
        for tensor in sorted(report["tensors"], key=lambda t: t["offset"]):
            self.assertTrue(end <= tensor["offset"] < end + 32 or end == 0)
            end = tensor["offset"] + tensor["bytes"]
        self.assertEqual(end, os.path.getsize(MODEL))
        tokenizer = report["tokenizer"]
        self.assertEqual((tokenizer["has_tokenizer"], tokenizer["has_chatml"], tokenizer["eos_token"]), (True, True, 3))
        with open(os.path.join(os.path.dirname(MODEL), "chat_template.jinja"), encoding="utf-8") as file:
            self.assertEqual(tokenizer["chat_template"].rstrip("\n"), file.read().rstrip("\n"))
        self.assertNotIn("tensors", inspect(MODEL))

    def test_text(self):
        result = run("inspect", "--tensors")
        text = self.good(result).decode()
        self.assertEqual(result.stderr, b"")
        for pattern in (r"^container +GGUF, names as GGUF$", r"^layers +4 ", r"^attention +sssf ", r"^formats +Q8_0 ",
                        r"^eos +3 <\|im_end\|>$", r"^chat +ChatML; ", r"^verdict +can be run$",
                        r"^Q8_0 +8x256x256 +557056 pico-q8_0\.gguf\+\d+ blk\.1\.ffn_down_exps\.weight$"):
            self.assertRegex(text, "(?m)" + pattern)
        self.assertNotIn("blk.", self.good(run("inspect")).decode())
        self.assertEqual(self.good(run("inspect", MODEL, model=False)), self.good(run("inspect")))

    def test_formats_without_kernels(self):
        def change(header):
            header["model.layers.3.self_attn.q_proj.weight"]["dtype"] = "I32"
        folder = self.variant(change)
        report = inspect(folder, "--tensors", code=1)
        self.assertEqual((report["can_run"], report["problem"]["status"]), (False, "AFMOE_UNSUPPORTED"))
        self.assertIn("layers.3.self_attn.q_proj.weight", report["problem"]["message"])
        self.assertEqual([t["name"] for t in report["tensors"] if not t["supported"]],
                         ["model.layers.3.self_attn.q_proj.weight"])
        self.assertEqual({t["use"] for t in report["tensors"]}, {None})
        self.assertEqual(report["config"]["n_layers"], 6)
        result = run("inspect", folder, "--tensors", model=False)
        self.assertEqual((result.returncode, result.stderr), (1, b""))
        self.assertRegex(result.stdout.decode(), r"(?m)^verdict +cannot be run: .*I32")
        self.assertRegex(result.stdout.decode(), r"(?m)^I32 .*q_proj.weight \(not supported\)$")

    def test_quantised_checkpoints(self):
        def change(header):
            entry = header.pop("model.layers.3.self_attn.q_proj.weight")
            header["model.layers.3.self_attn.q_proj.qweight"] = {**entry, "dtype": "I32"}
        report = inspect(self.variant(change), code=1)
        self.assertEqual(report["problem"]["status"], "AFMOE_UNSUPPORTED")
        self.assertEqual([f["format"] for f in report["formats"]], ["F32", "I32"])

    def test_gguf_formats_without_kernels(self):
        def change(content):
            struct.pack_into("<I", content, self.type_of(content, b"blk.0.attn_norm.weight"), 26)
        report = inspect(self.changed_model(change), code=1)
        self.assertEqual(report["problem"]["status"], "AFMOE_UNSUPPORTED")
        self.assertIn({"format": "I32", "tensors": 1, "bytes": 1024, "supported": False}, report["formats"])
        self.assertTrue(report["tokenizer"]["has_tokenizer"])

    def test_missing_and_surplus_tensors(self):
        def rename(header):
            header["other"] = header.pop("model.norm.weight")
        report = inspect(self.variant(rename), "--tensors", code=1)
        self.assertIn("model.norm.weight", report["problem"]["message"])
        self.assertIn("other", [t["name"] for t in report["tensors"]])

        def add(header):
            header["empty"] = {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}
        folder = self.variant(add)
        uses = {t["name"]: t["use"] for t in inspect(folder, "--tensors")["tensors"]}
        self.assertEqual([name for name, use in uses.items() if use != "used"], ["empty"])
        result = run("inspect", folder, "--tensors", model=False)
        self.assertRegex(self.good(result).decode(), r"(?m) empty \(surplus\) \(not supported\)$")
        self.assertIn(b"empty", result.stderr)  # the warning of opening

    def test_templates_of_folders(self):
        folder = self.variant(lambda header: None)
        self.assertIsNone(inspect(folder)["tokenizer"]["chat_template"])
        for config, template in (({"chat_template": "a{{ b }}"}, "a{{ b }}"), ({"chat_template": None}, None),
                                 ({"chat_template": [{"name": "tools", "template": "t"},
                                                     {"name": "default", "template": "d"}]}, "d"),
                                 ({"chat_template": [{"name": "tools", "template": "t"}]}, None)):
            self.write(folder, "tokenizer_config.json", json.dumps(config).encode())
            self.assertEqual(inspect(folder)["tokenizer"]["chat_template"], template)
        self.write(folder, "chat_template.jinja", "é\n".encode())
        self.assertEqual(inspect(folder)["tokenizer"]["chat_template"], "é\n")
        self.write(folder, "chat_template.jinja", b"\xff")
        self.assertIsNone(inspect(folder)["tokenizer"]["chat_template"])
        self.write(folder, "tokenizer_config.json", b'{"chat_template": 1}')
        report = inspect(folder, code=1)
        self.assertIn("chat_template", report["problem"]["message"])

    def test_tokenizers(self):
        path = os.path.join(DATA, "tokenizer", "pico-tokenizer.json")
        report = inspect(path)
        self.assertEqual((report["can_run"], report["container"], report["config"]), (True, "tokenizer", None))
        self.assertEqual(report["tokenizer"]["n_tokens"], 1600)
        folder = self.folder()  # as part of a checkpoint it is not all there should be
        shutil.copy(path, folder + "/tokenizer.json")
        report = inspect(folder, code=1)
        self.assertEqual((report["problem"]["status"], report["tokenizer"]["n_tokens"]), ("AFMOE_NOT_FOUND", 1600))

    def test_what_cannot_be_read(self):
        for path, word in (("/nonexistent", "/nonexistent"), (__file__, os.path.basename(__file__)),
                           (self.changed_model(lambda c: c[:5000]), "changed.gguf"), (self.folder(), "config.json")):
            self.fails(run("inspect", path, model=False), 1, word)
            report = inspect(path, code=1)
            self.assertEqual((report["can_run"], list(report)), (False, ["path", "can_run", "verdict", "problem"]))
        result = inspect(self.changed_model(lambda c: c[:-1]), code=1)
        self.assertEqual(result["problem"]["status"], "AFMOE_TRUNCATED")

    def test_wrong_use(self):
        self.fails(run("inspect", "a", "b", model=False), 2, "'b'")
        self.fails(run("inspect", "a"), 2, "'a'")
        with open("/dev/full", "wb") as full:
            result = subprocess.run([AFMOE, "inspect", MODEL], stdout=full, stderr=subprocess.PIPE)
        self.assertEqual((result.returncode, result.stderr.count(b"No space left")), (1, 1))


if __name__ == "__main__":
    unittest.main(argv=["test_inspect"])
