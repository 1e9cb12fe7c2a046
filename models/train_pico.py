#!/usr/bin/env python3
"""Train the pico demo model with Hugging Face transformers and write it in hub layout.

Usage: train_pico.py TOKENIZER_SPEC.json CORPUS.txt OUT_DIR [MINUTES]
TOKENIZER_SPEC.json lends its pre-tokenizer, decoder and added tokens (the Trinity tokenizer); the BPE itself is trained
here.
"""

import json, math, os, re, sys, time, torch
from tokenizers import Tokenizer, models, trainers
from transformers import AfmoeConfig, AfmoeForCausalLM

spec, corpus, out = sys.argv[1:4]
minutes = float(sys.argv[4]) if len(sys.argv) > 4 else 40
os.makedirs(out, exist_ok=True)
torch.manual_seed(7)
torch.set_num_threads(2)
docs = open(corpus).read().split("\0")[:-1]
s = json.load(open(spec))
added = s["added_tokens"]
base = {**s, "added_tokens": [], "model": {"type": "BPE", "vocab": {}, "merges": []}}
t = Tokenizer.from_str(json.dumps(base))
plain = [
    p
    for d in docs[:20000]
    for p in re.split(r"<\|im_start\|>|<\|im_end\|>|</?tool_call>|</?tools>|</?tool_response>", d)
    if p
]
t.train_from_iterator(
    plain,
    trainers.BpeTrainer(
        vocab_size=2048,
        special_tokens=[a["content"] for a in added],
        initial_alphabet=sorted(
            set(chr(c) for c in list(range(33, 127)) + list(range(161, 173)) + list(range(174, 324)))
        ),
        show_progress=False,
    ),
)
j = json.loads(t.to_str())
j["added_tokens"] = added
json.dump(j, open(os.path.join(out, "tokenizer.json"), "w"), ensure_ascii=False, indent=1)
t = Tokenizer.from_file(os.path.join(out, "tokenizer.json"))
n = t.get_vocab_size()
print("vocab", n, "chars/token", sum(map(len, docs[:500])) / sum(len(t.encode(d).ids) for d in docs[:500]), flush=True)
ids = torch.tensor([i for e in t.encode_batch(docs) for i in e.ids + [1]], dtype=torch.int32)
print("tokens", len(ids), flush=True)
cfg = AfmoeConfig(
    vocab_size=2112,
    hidden_size=256,
    intermediate_size=512,
    moe_intermediate_size=256,
    num_hidden_layers=4,
    num_dense_layers=1,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=64,
    num_experts=8,
    num_experts_per_tok=2,
    num_shared_experts=1,
    route_scale=2.826,
    sliding_window=128,
    global_attn_every_n_layers=4,
    mup_enabled=True,
    max_position_embeddings=2048,
    rms_norm_eps=1e-5,
    rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    bos_token_id=0,
    eos_token_id=3,
    pad_token_id=12,
    initializer_range=0.02,
)
m = AfmoeForCausalLM(cfg)
with torch.no_grad():
    m.model.embed_tokens.weight.normal_(0, 1 / 16)
    for l in m.model.layers:
        if l.moe_enabled:
            l.mlp.router.gate.weight.normal_(0, 0.02)
print("params", sum(p.numel() for p in m.parameters()), flush=True)
decay = [p for p in m.parameters() if p.dim() > 1 and p.requires_grad]
flat = [p for p in m.parameters() if p.dim() <= 1 and p.requires_grad]
opt = torch.optim.AdamW(
    [dict(params=decay, weight_decay=0.05), dict(params=flat, weight_decay=0.0)], lr=2e-3, betas=(0.9, 0.95)
)
T, B = 256, 12
start = time.time()
step = 0
counts = {}
for l, layer in enumerate(m.model.layers):
    if layer.moe_enabled:
        layer.mlp.router.register_forward_hook(
            lambda mod, a, o, l=l: counts.__setitem__(l, torch.bincount(o[2].flatten(), minlength=8).float())
        )
ema = None
while True:
    f = (time.time() - start) / (minutes * 60)
    if f >= 1:
        break
    lr = 2e-3 * min(1, (step + 1) / 100) * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * f)))
    for g in opt.param_groups:
        g["lr"] = lr
    at = torch.randint(0, len(ids) - T - 1, (B,))
    x = torch.stack([ids[a : a + T].long() for a in at])
    loss = m(input_ids=x, labels=x, use_cache=False).loss
    opt.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)
    opt.step()
    with torch.no_grad():  # auxiliary-loss-free balancing: raise the bias of experts that got too few tokens
        for l, c in counts.items():
            b = m.model.layers[l].mlp.expert_bias
            b += 1e-3 * torch.sign(c.mean() - c)
            b -= b.mean()
    ema = loss.item() if ema is None else 0.98 * ema + 0.02 * loss.item()
    step += 1
    if step % 100 == 0:
        print(
            f"step {step} loss {ema:.4f} lr {lr:.2e} {step*B*T/(time.time()-start):.0f} tok/s load {[int(v) for v in counts[3]]}",
            flush=True,
        )
m.to(torch.bfloat16)
for l in m.model.layers:
    if l.moe_enabled:
        l.mlp.expert_bias.data = l.mlp.expert_bias.data.float()
m.save_pretrained(out)
print("done", step, ema)
