#!/usr/bin/env python3
"""Shift against the model's formulas in numpy, float64: test_shift_reference.py CASES_PROGRAM

The reference keeps every key and value and masks: a token sees, in full layers, those that no shift before it has
dropped, in sliding layers its window. What a shift drops is worked out here from afmoe.h alone. Without shifts the same
lines give the recorded values of the fixture. AFMOE_TEST_DATA: the folder of the fixtures."""
import json
import math
import os
import struct
import subprocess
import sys

try:
    import numpy as np
except ImportError:
    print("skipped: program python3-numpy (not installed)")
    sys.exit(77)

PAGE = 64
TOLERANCE = 1e-4  # on logits of about 1


def read_safetensors(path):
    with open(path, "rb") as file:
        n = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(n))
        data = file.read()
    kinds = {"F32": np.float32, "I64": np.int64}
    return {name: np.frombuffer(data[t["data_offsets"][0]:t["data_offsets"][1]], kinds[t["dtype"]]).reshape(t["shape"])
            for name, t in header.items() if name != "__metadata__"}


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


class Reference:
    def __init__(self, folder):
        with open(os.path.join(folder, "config.json")) as file:
            self.config = json.load(file)
        tensors = read_safetensors(os.path.join(folder, "model.safetensors"))
        self.tensors = {name: t.astype(np.float64) for name, t in tensors.items()}
        self.n_tokens = 0
        self.seen = []  # positions that full layers still see
        self.cells = [([], []) for _ in self.config["layer_types"]]

    def shift(self, n_keep, n_drop):
        first, n = -(-n_keep // PAGE) * PAGE, -(-n_drop // PAGE) * PAGE
        assert first + n <= len(self.seen)
        del self.seen[first:first + n]

    def rewind(self, n_tokens):
        self.n_tokens = n_tokens
        self.seen = [p for p in self.seen if p < n_tokens]
        for keys, values in self.cells:
            del keys[n_tokens:], values[n_tokens:]

    def linear(self, x, name):
        y = x @ self.tensors[name + ".weight"].T
        return y + self.tensors[name + ".bias"] if name + ".bias" in self.tensors else y

    def norm(self, x, name):
        eps = self.config["rms_norm_eps"]
        return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * self.tensors[name + ".weight"]

    def rotate(self, x, position):
        half, theta = self.config["head_dim"] // 2, self.config["rope_parameters"]["rope_theta"]
        frequencies = (1 / theta ** (np.arange(half) * 2 / self.config["head_dim"])).astype(np.float32)
        angles = (np.float32(position) * frequencies).astype(np.float64)
        if position >= self.config["max_position_embeddings"]:
            angles = position * frequencies.astype(np.float64)
        c, s = np.cos(angles), np.sin(angles)
        a, b = x[..., :half], x[..., half:]
        return np.concatenate([a * c - b * s, b * c + a * s], axis=-1)

    def attention(self, layer, x, position):
        c, at = self.config, f"model.layers.{layer}.self_attn."
        heads, dim = c["num_attention_heads"], c["head_dim"]
        q = self.norm(self.linear(x, at + "q_proj").reshape(heads, dim), at + "q_norm")
        k = self.linear(x, at + "k_proj").reshape(-1, dim)
        k, v = self.norm(k, at + "k_norm"), self.linear(x, at + "v_proj").reshape(-1, dim)
        keys, values = self.cells[layer]
        if c["layer_types"][layer] == "sliding_attention":
            q, k = self.rotate(q, position), self.rotate(k, position)
            seen = range(max(0, position - c["sliding_window"] + 1), position + 1)
        else:
            seen = self.seen
        keys.append(k)
        values.append(v)
        q = q.reshape(len(k), heads // len(k), dim)  # those of one key/value head side by side
        scores = np.einsum("jgd,pjd->jgp", q, np.array([keys[p] for p in seen])) / math.sqrt(dim)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        out = np.einsum("jgp,pjd->jgd", weights, np.array([values[p] for p in seen]))
        return self.linear(out.reshape(-1) * sigmoid(self.linear(x, at + "gate_proj")), at + "o_proj")

    def feed_forward(self, x, name):
        gate, up = self.linear(x, name + ".gate_proj"), self.linear(x, name + ".up_proj")
        return self.linear(gate * sigmoid(gate) * up, name + ".down_proj")

    def mlp(self, layer, x):
        c, name = self.config, f"model.layers.{layer}.mlp"
        if layer < c["num_dense_layers"]:
            return self.feed_forward(x, name)
        scores = sigmoid(self.linear(x, name + ".router.gate"))
        biased = scores + self.tensors[name + ".expert_bias"]
        chosen = np.argsort(-biased, kind="stable")[:c["num_experts_per_tok"]]
        weights = scores[chosen] / (scores[chosen].sum() + 1e-20) * c["route_scale"]
        y = sum(w * self.feed_forward(x, f"{name}.experts.{e}") for w, e in zip(weights, chosen))
        return y + self.feed_forward(x, name + ".shared_experts")

    def append(self, token):
        position = self.n_tokens
        self.seen.append(position)
        h = self.tensors["model.embed_tokens.weight"][token]
        if self.config["mup_enabled"]:
            h = h * math.sqrt(self.config["hidden_size"])
        for layer in range(self.config["num_hidden_layers"]):
            at = f"model.layers.{layer}."
            a = self.attention(layer, self.norm(h, at + "input_layernorm"), position)
            h = h + self.norm(a, at + "post_attention_layernorm")
            y = self.mlp(layer, self.norm(h, at + "pre_mlp_layernorm"))
            h = h + self.norm(y, at + "post_mlp_layernorm")
        self.n_tokens += 1
        return self.linear(self.norm(h, "model.norm"), "lm_head")


def reference_logits(folder, tokens, steps):
    reference, rows = Reference(folder), []
    for name, *numbers in steps:
        if name == "append":
            rows += [reference.append(tokens[reference.n_tokens]) for _ in range(numbers[0])]
        else:
            getattr(reference, name)(*numbers)
    return np.array(rows)


def our_logits(program, folder, max_tokens, tokens, steps):
    lines = [str(len(tokens)), " ".join(map(str, tokens))] + [" ".join(map(str, step)) for step in steps]
    done = subprocess.run([program, folder, str(max_tokens)], input="\n".join(lines).encode(), stdout=subprocess.PIPE,
                          check=True)
    return np.frombuffer(done.stdout, np.float32)


CASES = {  # model: longest session, steps
    "nano": (512, [("append", 150), ("shift", 10, 60), ("append", 110), ("shift", 70, 64), ("append", 20)]),
    "tiny-window-1": (192, [("append", 192), ("shift", 0, 64), ("append", 64), ("shift", 64, 128), ("append", 128),
                            ("shift", 128, 1), ("append", 64), ("shift", 0, 128), ("append", 70), ("rewind", 505),
                            ("append", 20)]),
    "tiny-bias": (128, [("append", 100), ("shift", 0, 64)] + 8 * [("append", 64), ("shift", 0, 64)]),
}


def main():
    program = sys.argv[1]
    for name, (max_tokens, steps) in CASES.items():
        folder = os.path.join(os.environ["AFMOE_TEST_DATA"], name)
        expected = read_safetensors(os.path.join(folder, "expected.safetensors"))
        ids = expected["input_ids"][0]
        known = reference_logits(folder, ids, [("append", len(ids))])
        error = np.abs(known - expected["logits"][0]).max()
        assert error < 1e-4, f"{name}: the reference is off by {error}"

        vocab = known.shape[1]
        tokens = np.random.default_rng(7).integers(16, vocab, 700)
        theirs = reference_logits(folder, tokens, steps)
        ours = our_logits(program, folder, max_tokens, tokens, steps).reshape(-1, vocab)
        assert ours.shape == theirs.shape
        error = np.abs(ours - theirs).max()
        unshifted = [step for step in steps if step[0] != "shift"]
        effect = np.abs(theirs - reference_logits(folder, tokens, unshifted)).max()
        print(f"{name}: {len(ours)} tokens, largest difference {error:.2g}, effect of the shifts {effect:.2g}")
        assert error < TOLERANCE
        assert effect > 1000 * TOLERANCE


if __name__ == "__main__":
    main()
