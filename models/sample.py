#!/usr/bin/env python3
"""Greedy answers of a pico checkpoint by transformers in float32: rows {messages, prompt_ids, answer_ids, answer}.

Usage: sample.py HUB_DIR > samples.jsonl
"""

import sys, json, torch
from tokenizers import Tokenizer
from transformers import AfmoeForCausalLM

d = sys.argv[1]
t = Tokenizer.from_file(d + "/tokenizer.json")
m = AfmoeForCausalLM.from_pretrained(d, dtype=torch.float32).eval()
Q = [
    "Tell me a story about a fox in the forest.",
    "Tell me a story about an owl in the library.",
    "What is the capital of France?",
    "Which country has Tokyo as its capital?",
    "What is 7 plus 12?",
    "What is 6 times 8?",
    "Spell river.",
    "Sort these words: window, apple, music",
    "What colour is snow?",
    "What day comes after Friday?",
    "Write a C function add for int.",
    "Write a Python function mul.",
    "As JSON: Nora, 34, from Oslo.",
    "Repeat after me: candle",
    "Where is Kenya?",
    "Which month follows June?",
]
for q in Q:
    p = f"<|im_start|>user\n{q}<|im_end|>\n<|im_start|>assistant\n"
    ids = t.encode(p, add_special_tokens=False).ids
    x = torch.tensor([ids])
    with torch.no_grad():
        out = m.generate(x, max_new_tokens=160, do_sample=False, eos_token_id=3, pad_token_id=12)[0].tolist()[
            len(ids) :
        ]
    print(
        json.dumps(
            {
                "messages": [{"role": "user", "content": q}],
                "prompt_ids": ids,
                "answer_ids": out,
                "answer": t.decode(out, skip_special_tokens=True),
            },
            ensure_ascii=False,
        )
    )
