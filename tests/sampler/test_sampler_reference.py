#!/usr/bin/env python3
"""The sampler against a slow reference written from sampler.h and draw.h alone: test_sampler_reference.py CASES_PROGRAM

Every random case must give the same token. float32 arithmetic is done by rounding each double result to float32,
which is exact for one addition, subtraction, multiplication or division. Only the standard library is needed.

One case on standard input of the program: rows, the six float options (bits in hexadecimal), top_k, seed, history
length, prompt length, bias length, then usable flags, logits (bits), history, bias tokens, bias values (bits)."""
import math
import random
import struct
import subprocess
import sys

OFF = 1 << 32
INF = math.inf
FLOAT_OPTIONS = ("temperature", "top_p", "min_p", "repetition", "presence", "frequency")


def bits_of(x):
    return struct.unpack("<I", struct.pack("<f", x))[0]


def f32(x):
    if math.isinf(x) or math.isnan(x):
        return x
    try:
        return struct.unpack("<f", struct.pack("<f", x))[0]
    except OverflowError:
        return math.copysign(INF, x)


def from_bits(bits):
    return struct.unpack("<f", struct.pack("<I", bits))[0]


LOG2E, LN2_HIGH, LN2_LOW = map(float.fromhex, ("0x1.715476p+0", "0x1.63p-1", "-0x1.bd0106p-13"))
POLYNOMIAL = [float.fromhex(c) for c in ("0x1.6a2256p-10", "0x1.123b02p-7", "0x1.5558f8p-5", "0x1.55549p-3",
                                         "0x1.fffffcp-2")]


def exp32(x):
    """exp_f32 of kernels/exp.h, for x <= 0; below -87 as exp_block.h limits it."""
    x = max(x, -87.0)
    n = float(round(f32(x * LOG2E)))  # to nearest even, as adding 1.5 * 2^23 does
    r = f32(x - f32(n * LN2_HIGH))
    r = f32(r - f32(n * LN2_LOW))
    q = POLYNOMIAL[0]
    for c in POLYNOMIAL[1:]:
        q = f32(f32(q * r) + c)
    p = f32(1.0 + f32(r + f32(f32(r * r) * q)))
    first = int(n / 2)  # towards zero
    return f32(f32(p * 2.0 ** first) * 2.0 ** (n - first))


def philox_word64(seed, position):
    c = [position & 0xffffffff, position >> 32, 0, 0]
    k = [seed & 0xffffffff, seed >> 32]
    for _ in range(10):
        p0, p1 = 0xd2511f53 * c[0], 0xcd9e8d57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & 0xffffffff, (p0 >> 32) ^ c[3] ^ k[1], p0 & 0xffffffff]
        k = [(k[0] + 0x9e3779b9) & 0xffffffff, (k[1] + 0xbb67ae85) & 0xffffffff]
    return c[1] << 32 | c[0]


def adjusted(case):
    z = [x if u else -INF for x, u in zip(case["logits"], case["usable"])]
    for token, value in zip(case["bias_tokens"], case["bias_values"]):
        z[token] = f32(z[token] + value)
    if case["repetition"] != 1.0:
        for token in set(case["history"]):
            z[token] = f32(z[token] / case["repetition"] if z[token] > 0 else z[token] * case["repetition"])
    generated = case["history"][case["n_prompt"]:]
    for token in set(generated):
        z[token] = f32(z[token] - case["presence"])
        z[token] = f32(z[token] - f32(case["frequency"] * generated.count(token)))
    return z


def sample(case):
    if any(math.isnan(x) or x == INF for x, u in zip(case["logits"], case["usable"]) if u):
        return None
    z = adjusted(case)
    best = max(z)
    if math.isinf(best):
        return None
    if case["temperature"] == 0:
        return z.index(best)
    order = sorted((i for i in range(len(z)) if z[i] > -INF), key=lambda i: (-z[i], i))
    weight = {i: math.floor(exp32(f32(f32(z[i] - best) / case["temperature"])) * 2.0 ** 39) for i in order}
    order = order[:case["top_k"]]
    if case["top_p"] < 1:
        total = sum(weight[i] for i in order)
        need = max(1, math.ceil(case["top_p"] * float(total)))
        kept, reached = [], 0
        for i in order:
            kept.append(i)
            reached += weight[i]
            if reached >= min(need, total):
                break
        order = kept
    order = [i for i in order if weight[i] >= case["min_p"] * 2.0 ** 39]
    target = philox_word64(case["seed"], len(case["history"])) * sum(weight[i] for i in order) >> 64
    for i in sorted(order):
        if target < weight[i]:
            return i
        target -= weight[i]
    raise AssertionError("weights do not reach their own sum")


def logprob(case, token):
    best = max(case["logits"])
    total = math.fsum(math.exp(x - best) for x in case["logits"])
    return case["logits"][token] - best - math.log(total)


def line(case):
    words = [len(case["logits"])]
    words += ["%08x" % bits_of(case[k]) for k in FLOAT_OPTIONS]
    words += [case["top_k"], case["seed"], len(case["history"]), case["n_prompt"], len(case["bias_tokens"])]
    words += case["usable"] + ["%08x" % bits_of(x) for x in case["logits"]] + case["history"] + case["bias_tokens"]
    words += ["%08x" % bits_of(x) for x in case["bias_values"]]
    return " ".join(str(w) for w in words)


def random_case(rng):
    n = rng.choice([1, 2, 3, 7, 8, 9, 17, 64, 100, 300, 600])
    kind = rng.randrange(6)
    if kind == 0:
        logits = [rng.gauss(0, 3) for _ in range(n)]
    elif kind == 1:
        logits = [float(rng.randint(-3, 3)) for _ in range(n)]  # many ties, also 0 and -0
        logits = [-0.0 if x == 0 and rng.random() < 0.5 else x for x in logits]
    elif kind == 2:
        logits = [rng.gauss(0, 1e-3) for _ in range(n)]
    elif kind == 3:
        logits = [rng.gauss(0, 40) for _ in range(n)]
    elif kind == 4:
        logits = [rng.gauss(-100, 2) if rng.random() < 0.7 else -INF for _ in range(n)]
    else:
        logits = [from_bits(rng.getrandbits(32)) for _ in range(n)]
        logits = [x if abs(x) < 1e37 else rng.gauss(0, 1) for x in logits]
    history = [rng.randrange(n) for _ in range(rng.choice([0, 0, 1, 5, 50]))]
    n_bias = rng.choice([0, 0, 0, 1, 3])
    bias_tokens = rng.sample(range(n), min(n_bias, n))
    case = {
        "temperature": rng.choice([0.0, 0.15, 0.3, 0.7, 1.0, 1.0, 2.0, 100.0, 1e-6]),
        "top_p": rng.choice([1.0, 1.0, 0.95, 0.75, 0.5, 0.1, 0.0, rng.random()]),
        "min_p": rng.choice([0.0, 0.0, 0.06, 0.3, 1.0, rng.random()]),
        "repetition": rng.choice([1.0, 1.0, 1.1, 0.9, 2.0]),
        "presence": rng.choice([0.0, 0.0, 0.5, -1.0]),
        "frequency": rng.choice([0.0, 0.0, 0.3, -0.2]),
        "top_k": rng.choice([OFF, OFF, 1, 2, 5, 40, 100, rng.randint(1, n)]),
        "seed": rng.getrandbits(64),
        "n_prompt": rng.randint(0, len(history)),
        "history": history,
        "usable": [int(rng.random() < 0.9) for _ in range(n)] if rng.random() < 0.5 else [1] * n,
        "logits": [f32(x) for x in logits],
        "bias_tokens": bias_tokens,
        "bias_values": [f32(rng.choice([-INF, -5.0, 5.0, 0.1])) for _ in bias_tokens],
    }
    for key in FLOAT_OPTIONS:
        case[key] = f32(case[key])
    return case


def run(program, cases):
    text = "\n".join(line(c) for c in cases) + "\n"
    out = subprocess.run([program], input=text, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(out) == len(cases), "%d answers to %d cases" % (len(out), len(cases))
    return out


def check_tokens(program):
    rng = random.Random(20240607)
    cases = [random_case(rng) for _ in range(3000)]
    n_drawn = n_refused = 0
    for case, answer in zip(cases, run(program, cases)):
        want = sample(case)
        if want is None:
            assert answer == "status -15", (answer, case)
            n_refused += 1
            continue
        token, bits = answer.split()
        assert int(token) == want, (answer, want, case)
        got, exact = from_bits(int(bits, 16)), logprob(case, want)
        assert abs(got - exact) <= 2e-6 + 3e-7 * abs(exact), (got, exact, case)
        n_drawn += 1
    assert n_drawn > 2500 and n_refused > 10, (n_drawn, n_refused)
    print("%d cases with the same token, %d refused as they should be" % (n_drawn, n_refused))


def check_distribution(program):
    """Draws at 20000 positions follow the probabilities: chi-square with 7 degrees of freedom, 0.1 % bound 24.3."""
    logits = [f32(x) for x in (2.0, 1.5, 1.0, 0.5, 0.0, -0.5, -1.0, -1.5)]
    n = 20000
    base = dict(temperature=1.0, top_p=1.0, min_p=0.0, repetition=1.0, presence=0.0, frequency=0.0, top_k=OFF,
                n_prompt=0, usable=[1] * 8, logits=logits, bias_tokens=[], bias_values=[])
    total = sum(math.exp(x) for x in logits)
    for seeds, history in ((lambda i: i, lambda i: []), (lambda i: 42, lambda i: [0] * (i % 2000))):
        cases = [dict(base, seed=seeds(i) + (i // 2000 << 40), history=history(i)) for i in range(n)]
        counts = [0] * 8
        for answer in run(program, cases):
            counts[int(answer.split()[0])] += 1
        expected = [n * math.exp(x) / total for x in logits]
        chi_square = sum((c - e) ** 2 / e for c, e in zip(counts, expected))
        assert chi_square < 24.3, (chi_square, counts, expected)
        print("chi-square of %d draws: %.2f" % (n, chi_square))


check_tokens(sys.argv[1])
check_distribution(sys.argv[1])
