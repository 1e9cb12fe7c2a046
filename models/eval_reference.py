#!/usr/bin/env python3
"""Perplexity of a text by transformers in float32: special tokens parsed, windows of 256 tokens without overlap, every
position but the first of a window predicted.

Usage: eval_reference.py HUB_DIR TEXT
"""

import sys, json, torch
from tokenizers import Tokenizer
from transformers import AfmoeForCausalLM

t = Tokenizer.from_file(sys.argv[1] + "/tokenizer.json")
m = AfmoeForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32).eval()
ids = t.encode(open(sys.argv[2]).read(), add_special_tokens=False).ids
W = 256
s = n = 0
with torch.no_grad():
    for i in range(0, len(ids) - W + 1, W):
        x = torch.tensor([ids[i : i + W]])
        lg = m(x, use_cache=False).logits[0, :-1].log_softmax(-1)
        s -= lg.gather(1, x[0, 1:, None]).sum().item()
        n += W - 1
print(
    json.dumps({"tokens": len(ids), "predicted": n, "mean_nll": s / n, "perplexity": float(torch.tensor(s / n).exp())})
)
