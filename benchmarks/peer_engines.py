"""The engines that peer.py and accuracy.py run in a process of Python: this library, llama.cpp (package llama_cpp, of
llama-cpp-python, through its C interface) and transformers. Each opens a model, starts timelines, appends tokens.

    engine = ENGINES[name](path, options)    options.threads, and those named below
    engine.start(n_tokens, n_sessions)       room for that many sessions of n_tokens each, all empty;
                                             None: 4096, or as many as the model was made for
    engine.append(session, tokens)           leaves the logits of the last one
    engine.best()                            the most likely token after the last append
    engine.step(tokens)                      one token for each session together; not Afmoe: see afmoe bench
    engine.rewind(session, n)                back to the first n tokens; not Afmoe
    engine.kv_bytes()                        keys and values held; not Transformers"""
import ctypes
import re


class Afmoe:
    """options.library, precision, cells (both may be None: the library's defaults)."""

    def __init__(self, path, options):
        import libafmoe
        self.library, self.options = libafmoe.Library(options.library), options
        self.model = self.library.open(path)
        self.n_vocab = self.library.n_vocab(self.model)
        self.version = self.library.text("version_string")

    def system(self):
        return self.library.text("cpu_level_name", self.library.dll.afmoe_cpu_level())

    def start(self, n_tokens, n_sessions):
        named = {"precision": self.options.precision, "cells": self.options.cells, "max_tokens": n_tokens}
        self.context = self.library.create_context(self.model, n_threads=self.options.threads,
                                                   **{key: value for key, value in named.items() if value})
        self.sessions = [self.library.create_session(self.context) for _ in range(n_sessions)]

    def append(self, session, tokens):
        self.library.append(self.sessions[session], tokens)
        self.last = self.sessions[session]

    def best(self):
        token, n = ctypes.c_int32(), ctypes.c_uint64()
        probability = ctypes.c_float()
        self.library.call("session_top_logprobs", self.last, ctypes.byref(token), ctypes.byref(probability), 1,
                          ctypes.byref(n))
        return token.value

    def kv_bytes(self):
        return self.library.page_bytes(self.context)


class LlamaCpp:
    """options.flash: 'on' or 'off'; options.ubatch: tokens computed together; options.repack: weights copied into
    another order for the CPU where it can. What is not said is llama.cpp's default, which maps the file."""

    def __init__(self, path, options):
        import llama_cpp
        self.c, self.options, self.context, self.log = llama_cpp, options, None, []
        self.version = llama_cpp.__version__
        self.on_log = llama_cpp.llama_log_callback(lambda _, text, data: self.log.append(text.decode(errors="replace")))
        llama_cpp.llama_log_set(self.on_log, ctypes.c_void_p())
        llama_cpp.llama_backend_init()
        parameters = llama_cpp.llama_model_default_params()
        parameters.n_gpu_layers = 0
        parameters.load_mode = llama_cpp.LLAMA_LOAD_MODE_MMAP
        parameters.use_extra_bufts = options.repack == "on"
        self.model = llama_cpp.llama_model_load_from_file(path.encode(), parameters)
        if not self.model:
            raise RuntimeError("llama.cpp: " + "".join(self.log[-3:]))
        self.n_vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))

    def system(self):
        return self.c.llama_print_system_info().decode()

    def start(self, n_tokens, n_sessions):
        if self.context:
            self.c.llama_free(self.context)
        self.log.clear()
        p, options = self.c.llama_context_default_params(), self.options
        p.n_ctx, p.n_seq_max = (n_tokens or 4096) * n_sessions, n_sessions
        p.n_ubatch = options.ubatch
        p.n_batch = max(options.ubatch, 2048)
        p.n_threads = p.n_threads_batch = options.threads
        p.flash_attn_type = (self.c.LLAMA_FLASH_ATTN_TYPE_ENABLED if options.flash == "on"
                             else self.c.LLAMA_FLASH_ATTN_TYPE_DISABLED)
        self.context = self.c.llama_init_from_model(self.model, p)
        if not self.context:
            raise RuntimeError("llama.cpp: " + "".join(self.log[-3:]))
        self.n_batch, self.n = p.n_batch, [0] * n_sessions

    def decode(self, rows, all_logits=False):
        """rows: (session, token); the last one of a session leaves logits, or every one."""
        batch = self.c.llama_batch_init(len(rows), 0, 1)
        batch.n_tokens = len(rows)
        sessions = [session for session, _ in rows]
        for i, (session, token) in enumerate(rows):
            batch.token[i], batch.pos[i] = token, self.n[session]
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, session
            batch.logits[i] = all_logits or sessions[i + 1:i + 2] != [session]
            self.n[session] += 1
        status = self.c.llama_decode(self.context, batch)
        self.c.llama_batch_free(batch)
        if status:
            raise RuntimeError(f"llama_decode: {status}: " + "".join(self.log[-3:]))

    def append(self, session, tokens):
        for begin in range(0, len(tokens), self.n_batch):
            self.decode([(session, token) for token in tokens[begin:begin + self.n_batch]])
        self.c.llama_synchronize(self.context)

    def step(self, tokens):
        self.decode(list(enumerate(tokens)))
        self.c.llama_synchronize(self.context)

    def rewind(self, session, n):
        """Sliding layers keep what their window and one batch need, so this goes back a batch at most."""
        memory = self.c.llama_get_memory(self.context)
        if self.n[session] > n and not self.c.llama_memory_seq_rm(memory, session, n, -1):
            raise RuntimeError(f"llama.cpp cannot go back from {self.n[session]} tokens to {n}")
        self.n[session] = n

    def logits(self, tokens):
        """Of every position, as ctypes floats, in one batch."""
        self.rewind(0, 0)
        self.decode([(0, token) for token in tokens], all_logits=True)
        return (ctypes.c_float * (len(tokens) * self.n_vocab)).from_address(
            ctypes.addressof(self.c.llama_get_logits(self.context).contents))

    def best(self):
        row = self.c.llama_get_logits_ith(self.context, -1)
        return max(range(self.n_vocab), key=row.__getitem__)

    def close(self):
        self.c.llama_free(self.context)
        self.c.llama_model_free(self.model)

    def kv_bytes(self):
        found = re.findall(r"KV buffer size = +([0-9.]+) MiB", "".join(self.log))
        return int(sum(float(size) for size in found) * (1 << 20))


class Transformers:
    """In bfloat16; one session."""

    def __init__(self, path, options):
        import torch
        import transformers
        torch.set_num_threads(options.threads)
        self.torch, self.version = torch, transformers.__version__
        self.model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16).eval()
        self.n_vocab = self.model.config.vocab_size

    def system(self):
        return f"torch {self.torch.__version__}, {self.torch.backends.cpu.get_cpu_capability()}"

    def start(self, n_tokens, n_sessions):
        if n_sessions != 1:
            raise RuntimeError("transformers is measured with one session")
        self.past, self.n = None, 0

    def append(self, session, tokens):
        with self.torch.inference_mode():
            out = self.model(input_ids=self.torch.tensor([tokens]), past_key_values=self.past, use_cache=True,
                             logits_to_keep=1)
        self.past, self.row, self.n = out.past_key_values, out.logits[0, -1], self.n + len(tokens)

    def step(self, tokens):
        self.append(0, tokens)

    def rewind(self, session, n):
        if n == 0:
            self.past = None
        elif n < self.n:
            self.past.crop(n - self.n)
        self.n = n

    def best(self):
        return int(self.row.argmax())


ENGINES = {"afmoe": Afmoe, "llama.cpp": LlamaCpp, "transformers": Transformers}
