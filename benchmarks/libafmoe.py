"""The calls of libafmoe.so that measurements need, through ctypes. Structs are declared as far as they are used: the
library fills in its defaults for what a shorter one lacks. Without numpy."""
import ctypes
import os

PRECISIONS = {"exact": 1, "fast": 2}
CELLS = {"f32": 1, "f16": 2, "bf16": 3, "q8_0": 4}
UNSUPPORTED = -9
c_i32, c_u32, c_u64, c_p = ctypes.c_int32, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_void_p


class Error(ctypes.Structure):
    _fields_ = [("size", c_u32), ("code", c_i32), ("message", ctypes.c_char * 504)]


class ModelOptions(ctypes.Structure):
    _fields_ = [("size", c_u32), ("tokenizer_only", c_i32), ("strict", c_i32), ("reserved", c_i32),
                ("max_json_bytes", c_u64), ("log", c_p), ("log_data", c_p)]


class ModelInfo(ctypes.Structure):
    _fields_ = [("size", c_u32), ("numbers", c_i32 * 19), ("vocab_size", c_u64)]


class ContextOptions(ctypes.Structure):
    _fields_ = [("size", c_u32), ("n_threads", c_i32), ("cpu_level", c_i32), ("precision", c_i32), ("cells", c_i32),
                ("chunk_tokens", c_u32), ("max_tokens", c_u64)]


class AppendOptions(ctypes.Structure):
    _fields_ = [("size", c_u32), ("reserved", c_i32), ("cancel", c_p), ("progress", c_p), ("progress_data", c_p),
                ("logprob_begin", c_u64), ("logprob_end", c_u64), ("out_logprobs", c_p), ("positions", c_p),
                ("n_positions", c_u64), ("out_logits", c_p), ("logits_capacity", c_u64)]


class Memory(ctypes.Structure):
    _fields_ = [("size", c_u32), ("reserved", c_i32), ("weights_mapped", c_u64), ("weights_private", c_u64),
                ("scratch", c_u64), ("pages", c_u64), ("sessions", c_u64)]


class Failure(Exception):
    def __init__(self, status, message):
        super().__init__(message)
        self.status = status


class Library:
    def __init__(self, path):
        self.dll, self.error = ctypes.CDLL(path), Error()
        self.dll.afmoe_error_init(ctypes.byref(self.error), ctypes.sizeof(Error))

    def struct(self, kind, name):
        """One with the library's defaults: name is afmoe_NAME_init's."""
        value = kind()
        getattr(self.dll, f"afmoe_{name}_init")(ctypes.byref(value), ctypes.sizeof(value))
        return value

    def call(self, name, *arguments):
        """afmoe_NAME(arguments.., error); Failure when it is negative. Integers go as 64 bits."""
        arguments = [c_u64(a) if isinstance(a, int) else a for a in arguments]
        status = getattr(self.dll, "afmoe_" + name)(*arguments, ctypes.byref(self.error))
        if status < 0:
            raise Failure(status, self.error.message.decode(errors="replace"))

    def open(self, path, tokenizer_only=False):
        model, options = c_p(), self.struct(ModelOptions, "model_options")
        options.tokenizer_only = int(tokenizer_only)
        self.call("model_open", ctypes.byref(model), os.fsencode(path), ctypes.byref(options))
        return model

    def n_vocab(self, model):
        info = self.struct(ModelInfo, "model_info")
        self.call("model_get_info", model, ctypes.byref(info))
        return info.vocab_size

    def tokenize(self, model, text):
        """Special tokens are recognised, none is added."""
        ids, n = (c_i32 * (len(text) + 1))(), c_u64()
        self.call("tokenize", model, text, len(text), None, ids, len(ids), ctypes.byref(n))
        return ids[:n.value]

    def text(self, name, *arguments):
        """What afmoe_NAME returns: a string that is static."""
        function = getattr(self.dll, "afmoe_" + name)
        function.restype = ctypes.c_char_p
        return function(*arguments).decode()

    def create_context(self, model, **options):
        """Options by their names in the header; precision and cells by theirs here."""
        context, struct = c_p(), self.struct(ContextOptions, "context_options")
        for name, value in options.items():
            setattr(struct, name, {**PRECISIONS, **CELLS}.get(value, value))
        self.call("context_create", ctypes.byref(context), model, ctypes.byref(struct))
        return context

    def create_session(self, context):
        session = c_p()
        self.call("session_create", ctypes.byref(session), context)
        return session

    def append(self, session, tokens, n_vocab=0, begin=0):
        """With n_vocab also the logits of all of them, row after row, as ctypes floats: they begin at `begin`."""
        ids, n = (c_i32 * len(tokens))(*tokens), len(tokens)
        options, logits = self.struct(AppendOptions, "append_options"), None
        if n_vocab:
            logits, positions = (ctypes.c_float * (n * n_vocab))(), (c_u64 * n)(*range(begin, begin + n))
            options.positions, options.n_positions = ctypes.addressof(positions), n
            options.out_logits, options.logits_capacity = ctypes.addressof(logits), n * n_vocab
        self.call("session_append", session, ids, n, ctypes.byref(options), None)
        return logits

    def page_bytes(self, context):
        memory = self.struct(Memory, "memory")
        self.call("context_get_memory", context, ctypes.byref(memory))
        return memory.pages
