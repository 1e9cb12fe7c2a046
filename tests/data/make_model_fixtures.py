#!/usr/bin/env python3
"""Write small AfmoeForCausalLM checkpoints with the values Hugging Face transformers computes for them.

Every folder written holds
  config.json, model*.safetensors    the checkpoint in hub layout (float32 unless the case says otherwise)
  expected.safetensors               inputs and reference values, float32 unless noted:
    input_ids          [B, T] int64
    attention_mask     [B, T] int64, only for the ragged case (left padded)
    logits             [B, T, vocab]
    hidden.{l}         [B, T, hidden]  residual stream entering layer l; hidden.{L} is the final norm's output
    router_logits.{l}  [B*T, experts]  for MoE layers
    topk_ids.{l}, topk_weights.{l}     selected experts and their final weights (normalised, times route_scale)
    loss, grad.{parameter}             mean next-token cross entropy and its gradients, for cases with grads
    greedy_ids         [1, T + new] int64 greedy continuation of row 0 (cases without padding)

Usage: make_model_fixtures.py OUT_DIR [--seed N] [--only NAME ...]
Needs: torch, transformers >= 5, safetensors.
"""
import argparse, json, os, shutil
import torch
from safetensors.torch import save_file, load_file
from transformers import AfmoeConfig, AfmoeForCausalLM

BASE = dict(vocab_size=320, hidden_size=64, intermediate_size=96, moe_intermediate_size=32, num_hidden_layers=6,
            num_dense_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=16, num_experts=8,
            num_experts_per_tok=2, num_shared_experts=1, route_scale=2.826, sliding_window=8,
            global_attn_every_n_layers=4, mup_enabled=True, max_position_embeddings=512, rms_norm_eps=1e-5,
            rope_parameters={"rope_type": "default", "rope_theta": 10000.0}, bos_token_id=0, eos_token_id=3, pad_token_id=12)

def case(T=40, B=1, grads=False, new=24, dtype=torch.float32, shards=None, pad=None, router=None, **cfg):
    return dict(T=T, B=B, grads=grads, new=new, dtype=dtype, shards=shards, pad=pad, router=router, cfg={**BASE, **cfg})

CASES = {
    # the released shape in miniature; the window is crossed several times
    "nano": case(B=2, grads=True),
    # 8-of-128 fine-grained experts, head_dim 128, GQA 4:1
    "nano-wide": case(T=24, hidden_size=64, num_attention_heads=8, num_key_value_heads=2, head_dim=128,
                      num_experts=128, num_experts_per_tok=8, moe_intermediate_size=8, num_hidden_layers=3, num_dense_layers=1),
    # 4-of-256 coarse experts, 48 heads on 8 kv heads, 6 dense layers as in Large
    "large": case(T=24, hidden_size=64, num_attention_heads=48, num_key_value_heads=8, head_dim=8, num_experts=256,
                  num_experts_per_tok=4, moe_intermediate_size=8, num_hidden_layers=8, num_dense_layers=6, sliding_window=16),
    # no embedding scaling, irregular layer types, other theta and eps
    "no-mup": case(mup_enabled=False, layer_types=["full_attention", "sliding_attention", "sliding_attention",
                   "full_attention", "full_attention", "sliding_attention"], rms_norm_eps=1e-6,
                   rope_parameters={"rope_type": "default", "rope_theta": 1000000.0}),
    # tied head, kv heads left out (means: as many as heads), two shared experts
    "tied": case(tie_word_embeddings=True, num_key_value_heads=None, num_shared_experts=2, grads=True),
    "no-shared": case(num_shared_experts=0),
    "all-dense": case(num_dense_layers=6, grads=True),
    "all-moe": case(num_dense_layers=0, grads=True),
    "yarn": case(T=96, sliding_window=32, max_position_embeddings=256, rope_parameters={"rope_type": "yarn", "rope_theta": 10000.0,
                 "factor": 4.0, "original_max_position_embeddings": 64, "beta_fast": 32.0, "beta_slow": 1.0}),
    "linear-rope": case(T=64, rope_parameters={"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0}),
    "llama3-rope": case(T=64, rope_parameters={"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
                        "high_freq_factor": 4.0, "original_max_position_embeddings": 32}),
    # rows of different length, left padded as generate() does
    "ragged": case(B=3, T=32, pad=[0, 9, 21]),
    # weights stored as bfloat16, reference computed in float32 from those rounded weights
    "bf16": case(dtype=torch.bfloat16, shards="40KB"),
    "f16": case(dtype=torch.float16),
    # router variants that config.json can ask for and this transformers class ignores: computed by variant_router below
    "softmax-router": case(router=dict(score_func="softmax")),
    "no-route-norm": case(router=dict(route_norm=False)),
    "grouped-router": case(router=dict(n_group=4, topk_group=2), num_experts=16, num_experts_per_tok=3),
    # widths that block quantisation can take: multiples of 256
    "blocks": case(T=48, vocab_size=320, hidden_size=256, intermediate_size=512, moe_intermediate_size=256, num_hidden_layers=4,
                   num_dense_layers=1, num_attention_heads=4, num_key_value_heads=1, head_dim=64, num_experts=3, sliding_window=16,
                   dtype=torch.bfloat16),
}

# The variants above that are not in the repository in full size, in a tiny shape, and two that have no other fixture.
TINY = dict(T=24, new=16, hidden_size=32, intermediate_size=48, moe_intermediate_size=16, num_hidden_layers=4, num_dense_layers=1,
            vocab_size=96, num_experts=4, sliding_window=6)
CASES.update({
    "tiny-bias": case(**TINY, attention_bias=True),
    "tiny-dynamic-rope": case(**{**TINY, "max_position_embeddings": 64}, rope_parameters={"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}),
    "tiny-linear-rope": case(**TINY, rope_parameters={"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0}),
    "tiny-llama3-rope": case(**TINY, rope_parameters={"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
                             "high_freq_factor": 4.0, "original_max_position_embeddings": 32}),
    "tiny-softmax-router": case(**TINY, router=dict(score_func="softmax")),
    "tiny-no-route-norm": case(**TINY, router=dict(route_norm=False)),
    "tiny-no-shared-f16": case(**TINY, num_shared_experts=0, dtype=torch.float16),
    "tiny-window-1": case(**{**TINY, "sliding_window": 1}, layer_types=["full_attention", "sliding_attention", "sliding_attention", "full_attention"]),
})

OLD_STYLE = {"bf16", "yarn", "all-moe"}

def randomise(model, gen):
    with torch.no_grad():
        for name, p in model.named_parameters():
            r = torch.randn(p.shape, generator=gen)
            if "norm" in name: p.copy_(1 + 0.2 * r)
            elif "expert_bias" in name: p.copy_(0.15 * r)
            elif "router.gate" in name: p.copy_(0.4 * r)
            elif "embed_tokens" in name: p.copy_(r * (1.0 / model.config.hidden_size ** 0.5 if model.config.mup_enabled else 1.0))
            else: p.copy_(r / p.shape[-1] ** 0.5)
    model.tie_weights()

def variant_router(router, bias, score_func="sigmoid", route_norm=True, n_group=1, topk_group=1):
    """Group-limited selection: a group's score is the sum of its two best biased scores; experts outside the topk_group best groups are never taken."""
    def forward(x, expert_bias):
        z = router.gate(x.reshape(-1, x.shape[-1])).float()
        s = torch.sigmoid(z) if score_func == "sigmoid" else torch.softmax(z, -1)
        pick = s + expert_bias
        if n_group > 1:
            g = pick.unflatten(-1, (n_group, -1)); best = g.topk(2, -1).values.sum(-1).topk(topk_group, -1).indices
            keep = torch.zeros(g.shape[:2], dtype=torch.bool).scatter(1, best, True)
            pick = g.masked_fill(~keep.unsqueeze(-1), float("-inf")).flatten(-2)
        idx = pick.topk(router.top_k, -1).indices; w = s.gather(1, idx)
        if route_norm: w = w / (w.sum(-1, keepdim=True) + 1e-20)
        return z, w * router.route_scale, idx
    router.forward = forward

def write(name, c, out, seed):
    gen = torch.Generator().manual_seed(seed)
    cfg = AfmoeConfig(**c["cfg"], attn_implementation="eager")
    model = AfmoeForCausalLM(cfg).float().eval()
    randomise(model, gen)
    if c["router"]:
        for layer in model.model.layers:
            if layer.moe_enabled: variant_router(layer.mlp.router, layer.mlp.expert_bias, **c["router"])
    if c["dtype"] != torch.float32:
        with torch.no_grad():
            for n, p in model.named_parameters():
                if "expert_bias" not in n: p.copy_(p.to(c["dtype"]).float())
    d = os.path.join(out, name)
    shutil.rmtree(d, ignore_errors=True); os.makedirs(d)
    keep = {n: p.clone() for n, p in model.named_parameters()}
    model.to(c["dtype"])
    with torch.no_grad():
        for n, p in model.named_parameters():
            if "expert_bias" in n: p.data = keep[n].float()
    model.save_pretrained(d, **({"max_shard_size": c["shards"]} if c["shards"] else {}))
    for f in os.listdir(d):
        if f == "generation_config.json": os.remove(os.path.join(d, f))
    model.float()
    model.model.rotary_emb = type(model.model.rotary_emb)(cfg)  # .to(dtype) rounded its frequencies; from_pretrained would not
    with torch.no_grad():
        for n, p in model.named_parameters(): p.copy_(keep[n])
    # what the hub files carry, and this class drops: written for readers that honour them
    j = json.load(open(os.path.join(d, "config.json")))
    j.update(score_func="sigmoid", route_norm=True, n_group=1, topk_group=1, num_expert_groups=1, num_limited_groups=1)
    j.update(c["router"] or {}); j["num_expert_groups"], j["num_limited_groups"] = j["n_group"], j["topk_group"]
    if c["cfg"]["num_key_value_heads"] is None: j["num_key_value_heads"] = None
    if name in OLD_STYLE:  # as written before rope_parameters existed: rope_theta beside rope_scaling, torch_dtype
        rp = j.pop("rope_parameters"); j["rope_theta"] = rp.pop("rope_theta"); j["torch_dtype"] = j.pop("dtype")
        j["rope_scaling"] = None if rp["rope_type"] == "default" else rp
        j.pop("layer_types")
    json.dump(j, open(os.path.join(d, "config.json"), "w"), indent=2)

    B, T = c["B"], c["T"]
    ids = torch.randint(16, cfg.vocab_size, (B, T), generator=gen)
    exp = {"input_ids": ids}
    kw = {}
    if c["pad"]:
        mask = torch.ones(B, T, dtype=torch.long)
        for b, n in enumerate(c["pad"]): mask[b, :n] = 0; ids[b, :n] = cfg.pad_token_id
        exp["attention_mask"] = mask
        kw = dict(attention_mask=mask, position_ids=(mask.cumsum(1) - 1).clamp(min=0))
    model.zero_grad()
    picked = {}
    hooks = []
    for l, layer in enumerate(model.model.layers):
        if layer.moe_enabled:
            hooks.append(layer.mlp.router.register_forward_hook(lambda m, a, o, l=l: picked.__setitem__(l, o)))
    o = model(input_ids=ids, output_hidden_states=True, use_cache=False, labels=ids if c["grads"] else None, **kw)
    for h in hooks: h.remove()
    exp["logits"] = o.logits
    for l, h in enumerate(o.hidden_states): exp[f"hidden.{l}"] = h
    for l, (rl, w, idx) in picked.items():
        exp[f"router_logits.{l}"], exp[f"topk_weights.{l}"], exp[f"topk_ids.{l}"] = rl, w, idx
    if c["grads"]:
        exp["loss"] = o.loss
        o.loss.backward()
        for n, p in model.named_parameters():
            if p.grad is not None: exp["grad." + n] = p.grad
    if not c["pad"]:
        with torch.no_grad():
            row = ids[:1]
            for _ in range(c["new"]):
                row = torch.cat([row, model(input_ids=row, use_cache=False).logits[:, -1:].argmax(-1)], 1)
        exp["greedy_ids"] = row
    save_file({k: v.detach().contiguous().clone() for k, v in exp.items()}, os.path.join(d, "expected.safetensors"))
    size = sum(os.path.getsize(os.path.join(d, f)) for f in os.listdir(d))
    print(f"{name}: {size/1e6:.2f} MB  {sorted(f for f in os.listdir(d))}", "loss", o.loss.item() if o.loss is not None else "-")

if __name__ == "__main__":
    ap = argparse.ArgumentParser(); ap.add_argument("out"); ap.add_argument("--seed", type=int, default=11); ap.add_argument("--only", nargs="*")
    a = ap.parse_args()
    for i, (n, c) in enumerate(CASES.items()):
        if not a.only or n in a.only: write(n, c, a.out, a.seed + i)
