"""The C interface for ctypes, name by name. Written by bindings/generate/make_ffi.py from include/afmoe.h: change
that and run it again.

Text that comes out with a length is a pointer to c_char, for it has no NUL at its end; text that goes in is bytes.
"""
from __future__ import annotations

import ctypes
import enum
from typing import Any, Callable, Dict, Final, Optional, Tuple

from ._struct import Struct


AFMOE_VERSION_MAJOR: Final = 0
AFMOE_VERSION_MINOR: Final = 1
AFMOE_VERSION_PATCH: Final = 0


AFMOE_OK: Final = 0
AFMOE_END: Final = 1
"""nothing more: end of text, stop token or stop string"""
AFMOE_INVALID: Final = -1
"""an argument outside its stated range; the message names the range"""
AFMOE_NO_MEMORY: Final = -2
"""out of memory"""
AFMOE_IO: Final = -3
"""the system reported a failure; errno is in the message"""
AFMOE_NOT_FOUND: Final = -4
"""no such file, or a folder without the file needed"""
AFMOE_FORMAT: Final = -5
"""malformed input"""
AFMOE_TRUNCATED: Final = -6
"""input ends early"""
AFMOE_LIMIT: Final = -7
"""over a stated cap"""
AFMOE_CORRUPT: Final = -8
"""a checksum does not match"""
AFMOE_UNSUPPORTED: Final = -9
"""well formed, but not supported; the message says why"""
AFMOE_BUSY: Final = -10
"""another caller is using this object"""
AFMOE_CANCELLED: Final = -11
"""stopped by a cancel object or a callback; what was kept is reported"""
AFMOE_CONTEXT_FULL: Final = -12
"""a session or page limit is reached; calls that append change nothing then"""
AFMOE_CAPACITY: Final = -13
"""the caller's buffer is too small; the needed count was given"""
AFMOE_STATE: Final = -14
"""the object does not fit this use (e.g. no weights, no logits yet)"""
AFMOE_NUMERIC: Final = -15
"""NaN or infinity where a number is needed"""
AFMOE_INTERNAL: Final = -16
"""a broken invariant; please report it"""


class Status(enum.IntEnum):
    """AFMOE_*"""

    OK = AFMOE_OK
    END = AFMOE_END
    INVALID = AFMOE_INVALID
    NO_MEMORY = AFMOE_NO_MEMORY
    IO = AFMOE_IO
    NOT_FOUND = AFMOE_NOT_FOUND
    FORMAT = AFMOE_FORMAT
    TRUNCATED = AFMOE_TRUNCATED
    LIMIT = AFMOE_LIMIT
    CORRUPT = AFMOE_CORRUPT
    UNSUPPORTED = AFMOE_UNSUPPORTED
    BUSY = AFMOE_BUSY
    CANCELLED = AFMOE_CANCELLED
    CONTEXT_FULL = AFMOE_CONTEXT_FULL
    CAPACITY = AFMOE_CAPACITY
    STATE = AFMOE_STATE
    NUMERIC = AFMOE_NUMERIC
    INTERNAL = AFMOE_INTERNAL


class afmoe_error(Struct):
    """Text of a failure. The caller sets `size` (sizeof) once; code and message are written on failure only."""

    size: int
    code: int
    """the status returned"""
    message: bytes
    """NUL-terminated, one line"""

    _fields_ = [
        ('size', ctypes.c_uint32),
        ('code', ctypes.c_int32),
        ('message', ctypes.c_char * 504),
    ]


AFMOE_LOG_INFO: Final = 0
AFMOE_LOG_WARNING: Final = 1


class Log(enum.IntEnum):
    """AFMOE_LOG_*"""

    INFO = AFMOE_LOG_INFO
    WARNING = AFMOE_LOG_WARNING


afmoe_log_fn = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32, ctypes.c_char_p)
"""Receives one line of text (borrowed for the call). There is no global log: objects take it in their options."""


afmoe_progress_fn = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64)
"""Progress of a long call: `done` of `total` units (tokens, bytes). Non-zero stops the call with AFMOE_CANCELLED."""


class afmoe_cancel(ctypes.Structure):
    """Opaque."""


class afmoe_model(ctypes.Structure):
    """Opaque."""


AFMOE_LOAD_MAP: Final = 0
"""weights stay in the mapped file; the system shares and drops its pages"""
AFMOE_LOAD_READ: Final = 1
"""weights are read into private memory: what goes wrong with the file is a status"""


class Load(enum.IntEnum):
    """AFMOE_LOAD_*"""

    MAP = AFMOE_LOAD_MAP
    READ = AFMOE_LOAD_READ


class afmoe_model_options(Struct):
    size: int
    tokenizer_only: int
    """1: open the tokenizer, no weights; compute calls then answer STATE. Default 0"""
    strict: int
    """1: surplus tensors are an error instead of a warning. Default 0"""
    reserved: int
    """0"""
    max_json_bytes: int
    """cap for one JSON document. 1..2^30, default 33554432 (32 MiB)"""
    log: Any
    """warnings while opening. Default NULL"""
    log_data: Optional[int]
    load: int
    """AFMOE_LOAD_*, default MAP. With READ a failing disk or a file that became shorter is
    IO or TRUNCATED, never a signal, and later changes of the file do not matter"""
    lock: int
    """1: keep the weights in memory (mlock), with either load. Where the system does not allow
    it: IO, with the limit. Default 0"""
    progress: Any
    """bytes of weights read or locked, every few MiB; not called when neither happens.
    Default NULL"""
    progress_data: Optional[int]
    cancel: Any
    """looked at as often. Default NULL"""
    inspect_only: int
    """1: read the configuration, the list of tensors and the tokenizer, but use no weights:
    tensors may have any format, be missing or surplus; compute calls then answer STATE.
    Not together with tokenizer_only. Default 0"""
    reserved_2: int
    """0"""

    _fields_ = [
        ('size', ctypes.c_uint32),
        ('tokenizer_only', ctypes.c_int32),
        ('strict', ctypes.c_int32),
        ('reserved', ctypes.c_int32),
        ('max_json_bytes', ctypes.c_uint64),
        ('log', afmoe_log_fn),
        ('log_data', ctypes.c_void_p),
        ('load', ctypes.c_int32),
        ('lock', ctypes.c_int32),
        ('progress', afmoe_progress_fn),
        ('progress_data', ctypes.c_void_p),
        ('cancel', ctypes.POINTER(afmoe_cancel)),
        ('inspect_only', ctypes.c_int32),
        ('reserved_2', ctypes.c_int32),
    ]


afmoe_release_fn = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
"""Takes borrowed memory back: nothing of the library refers to it any more."""


AFMOE_CONTAINER_SAFETENSORS: Final = 1
AFMOE_CONTAINER_GGUF: Final = 2
AFMOE_CONTAINER_TOKENIZER: Final = 3


class Container(enum.IntEnum):
    """AFMOE_CONTAINER_*"""

    SAFETENSORS = AFMOE_CONTAINER_SAFETENSORS
    GGUF = AFMOE_CONTAINER_GGUF
    TOKENIZER = AFMOE_CONTAINER_TOKENIZER


AFMOE_LAYOUT_NONE: Final = 0
AFMOE_LAYOUT_HUB: Final = 1
AFMOE_LAYOUT_STACKED: Final = 2
AFMOE_LAYOUT_PRIME_RL: Final = 3
AFMOE_LAYOUT_GGUF: Final = 4


class Layout(enum.IntEnum):
    """AFMOE_LAYOUT_*"""

    NONE = AFMOE_LAYOUT_NONE
    HUB = AFMOE_LAYOUT_HUB
    STACKED = AFMOE_LAYOUT_STACKED
    PRIME_RL = AFMOE_LAYOUT_PRIME_RL
    GGUF = AFMOE_LAYOUT_GGUF


AFMOE_SCORE_SIGMOID: Final = 1
AFMOE_SCORE_SOFTMAX: Final = 2


class Score(enum.IntEnum):
    """AFMOE_SCORE_*"""

    SIGMOID = AFMOE_SCORE_SIGMOID
    SOFTMAX = AFMOE_SCORE_SOFTMAX


AFMOE_ROPE_DEFAULT: Final = 1
AFMOE_ROPE_LINEAR: Final = 2
AFMOE_ROPE_DYNAMIC: Final = 3
AFMOE_ROPE_LLAMA3: Final = 4
AFMOE_ROPE_YARN: Final = 5


class Rope(enum.IntEnum):
    """AFMOE_ROPE_*"""

    DEFAULT = AFMOE_ROPE_DEFAULT
    LINEAR = AFMOE_ROPE_LINEAR
    DYNAMIC = AFMOE_ROPE_DYNAMIC
    LLAMA3 = AFMOE_ROPE_LLAMA3
    YARN = AFMOE_ROPE_YARN


class afmoe_model_info(Struct):
    """What concerns layers is 0 with tokenizer_only."""

    size: int
    container: int
    """AFMOE_CONTAINER_*"""
    layout: int
    """AFMOE_LAYOUT_*: how tensors are named; NONE without weights"""
    has_weights: int
    has_tokenizer: int
    add_bos: int
    """the file asks for bos before raw text; afmoe_tokenize itself never adds it"""
    bos_token: int
    """-1: none"""
    eos_token: int
    """-1: none"""
    pad_token: int
    """-1: none"""
    n_layers: int
    n_dense_layers: int
    n_full_layers: int
    """layers with full attention"""
    n_heads: int
    n_kv_heads: int
    head_dim: int
    n_experts: int
    n_experts_per_token: int
    n_shared_experts: int
    sliding_window: int
    """keys seen in sliding layers, the query's own included"""
    reserved: int
    """0"""
    vocab_size: int
    """rows of the output, also the number of logits; without weights: tokens"""
    n_tokens: int
    """tokens the tokenizer has; 0 without one"""
    hidden_size: int
    max_positions: int
    """longest timeline the model was made for"""
    n_parameters: int
    """elements of all tensors used; with inspect_only: of all"""
    weight_bytes: int
    """bytes of all tensors used; with inspect_only: of all"""
    intermediate_size: int
    """width of the feed-forward half of dense layers"""
    moe_intermediate_size: int
    """of one expert"""
    n_groups: int
    """experts are chosen in two steps when more than 1: groups, then experts in them"""
    n_groups_chosen: int
    score_function: int
    """AFMOE_SCORE_*: of the router"""
    route_norm: int
    """1: the weights of the chosen experts are made to sum to 1"""
    route_scale: float
    """factor on them"""
    rms_norm_eps: float
    mup_enabled: int
    """1: embeddings are scaled by the root of hidden_size"""
    tied_embeddings: int
    """1: the output uses the embedding's weights"""
    attention_bias: int
    rope_kind: int
    """AFMOE_ROPE_*; only sliding layers rotate"""
    rope_theta: float
    rope_factor: float
    """1 for DEFAULT"""
    rope_original_positions: int
    """LLAMA3 and YARN: what the model was trained for first; else 0"""

    _fields_ = [
        ('size', ctypes.c_uint32),
        ('container', ctypes.c_int32),
        ('layout', ctypes.c_int32),
        ('has_weights', ctypes.c_int32),
        ('has_tokenizer', ctypes.c_int32),
        ('add_bos', ctypes.c_int32),
        ('bos_token', ctypes.c_int32),
        ('eos_token', ctypes.c_int32),
        ('pad_token', ctypes.c_int32),
        ('n_layers', ctypes.c_uint32),
        ('n_dense_layers', ctypes.c_uint32),
        ('n_full_layers', ctypes.c_uint32),
        ('n_heads', ctypes.c_uint32),
        ('n_kv_heads', ctypes.c_uint32),
        ('head_dim', ctypes.c_uint32),
        ('n_experts', ctypes.c_uint32),
        ('n_experts_per_token', ctypes.c_uint32),
        ('n_shared_experts', ctypes.c_uint32),
        ('sliding_window', ctypes.c_uint32),
        ('reserved', ctypes.c_int32),
        ('vocab_size', ctypes.c_uint64),
        ('n_tokens', ctypes.c_uint64),
        ('hidden_size', ctypes.c_uint64),
        ('max_positions', ctypes.c_uint64),
        ('n_parameters', ctypes.c_uint64),
        ('weight_bytes', ctypes.c_uint64),
        ('intermediate_size', ctypes.c_uint64),
        ('moe_intermediate_size', ctypes.c_uint64),
        ('n_groups', ctypes.c_uint32),
        ('n_groups_chosen', ctypes.c_uint32),
        ('score_function', ctypes.c_int32),
        ('route_norm', ctypes.c_int32),
        ('route_scale', ctypes.c_float),
        ('rms_norm_eps', ctypes.c_float),
        ('mup_enabled', ctypes.c_int32),
        ('tied_embeddings', ctypes.c_int32),
        ('attention_bias', ctypes.c_int32),
        ('rope_kind', ctypes.c_int32),
        ('rope_theta', ctypes.c_float),
        ('rope_factor', ctypes.c_float),
        ('rope_original_positions', ctypes.c_uint64),
    ]


class afmoe_tensor_info(Struct):
    """One tensor of the files. Names live as long as the model."""

    size: int
    n_dims: int
    """0..8"""
    shape: Any
    """slowest first: rows before columns, whatever the file's own order; the rest 0"""
    name: Any
    format: Any
    """as the file spells it: "Q8_0", "BF16" """
    file: Any
    """without folders"""
    file_offset: int
    """of the first byte"""
    n_bytes: int
    n_elements: int
    is_supported: int
    """1: this version computes with the format, in a matrix at least"""
    is_used: int
    """1: part of the model, 0: surplus, -1: not known (inspect_only)"""

    _fields_ = [
        ('size', ctypes.c_uint32),
        ('n_dims', ctypes.c_uint32),
        ('shape', ctypes.c_uint64 * 8),
        ('name', ctypes.POINTER(ctypes.c_char)),
        ('format', ctypes.POINTER(ctypes.c_char)),
        ('file', ctypes.POINTER(ctypes.c_char)),
        ('file_offset', ctypes.c_uint64),
        ('n_bytes', ctypes.c_uint64),
        ('n_elements', ctypes.c_uint64),
        ('is_supported', ctypes.c_int32),
        ('is_used', ctypes.c_int32),
    ]


AFMOE_SPECIAL_ALL: Final = 0
"""added tokens (<|im_end|>, <think>, ...) are recognised everywhere"""
AFMOE_SPECIAL_NONE: Final = 1
"""nowhere: their text is ordinary text"""
AFMOE_SPECIAL_RANGES: Final = 2
"""only where they lie wholly inside one of the given byte ranges"""


class Special(enum.IntEnum):
    """AFMOE_SPECIAL_*"""

    ALL = AFMOE_SPECIAL_ALL
    NONE = AFMOE_SPECIAL_NONE
    RANGES = AFMOE_SPECIAL_RANGES


class afmoe_tokenize_options(Struct):
    size: int
    special: int
    """AFMOE_SPECIAL_*, default ALL. For text from users: NONE or RANGES"""
    special_ranges: Any
    """n_special_ranges pairs (begin, end) of bytes, rising, not overlapping"""
    n_special_ranges: int
    """default 0"""
    max_text_bytes: int
    """longer text answers LIMIT. Default 67108864 (64 MiB); a piece without a break
    takes about 32 bytes of memory for each of its bytes"""
    cancel: Any
    """default NULL"""

    _fields_ = [
        ('size', ctypes.c_uint32),
        ('special', ctypes.c_int32),
        ('special_ranges', ctypes.POINTER(ctypes.c_uint64)),
        ('n_special_ranges', ctypes.c_uint64),
        ('max_text_bytes', ctypes.c_uint64),
        ('cancel', ctypes.POINTER(afmoe_cancel)),
    ]


AFMOE_TOKEN_NORMAL: Final = 0
AFMOE_TOKEN_CONTROL: Final = 1
"""added and special: <|im_end|>"""
AFMOE_TOKEN_ADDED: Final = 2
"""added, not special: <think>"""
AFMOE_TOKEN_UNUSED: Final = 3
"""a row of the output without a token: never generated"""


class Token(enum.IntEnum):
    """AFMOE_TOKEN_*"""

    NORMAL = AFMOE_TOKEN_NORMAL
    CONTROL = AFMOE_TOKEN_CONTROL
    ADDED = AFMOE_TOKEN_ADDED
    UNUSED = AFMOE_TOKEN_UNUSED


class afmoe_chat_options(Struct):
    size: int
    add_generation_prompt: int
    r"""1: end with <|im_start|>assistant\n, so that an answer follows. Default 1"""
    content_bytes: Any
    """length of each content; default NULL: they are NUL-terminated"""
    max_text_bytes: int
    """of all together; more answers LIMIT. Default 67108864 (64 MiB)"""
    cancel: Any
    """default NULL"""

    _fields_ = [
        ('size', ctypes.c_uint32),
        ('add_generation_prompt', ctypes.c_int32),
        ('content_bytes', ctypes.POINTER(ctypes.c_uint64)),
        ('max_text_bytes', ctypes.c_uint64),
        ('cancel', ctypes.POINTER(afmoe_cancel)),
    ]


class afmoe_stream_decoder(ctypes.Structure):
    """Opaque."""


class afmoe_context(ctypes.Structure):
    """Opaque."""


AFMOE_CPU_AUTO: Final = -1
AFMOE_CPU_C: Final = 0
"""plain C, the readable reference"""
AFMOE_CPU_AVX2: Final = 1
AFMOE_CPU_AVXVNNI: Final = 2
AFMOE_CPU_AVX512: Final = 3
AFMOE_CPU_AVX512ICL: Final = 4
AFMOE_CPU_AVX512BF16: Final = 5


class Cpu(enum.IntEnum):
    """CPU levels; each includes those before it, except that a CPU of level AVX512 or higher may lack AVXVNNI. What
    they need: afmoe_cpu_level_name and docs/architecture.md."""

    AUTO = AFMOE_CPU_AUTO
    C = AFMOE_CPU_C
    AVX2 = AFMOE_CPU_AVX2
    AVXVNNI = AFMOE_CPU_AVXVNNI
    AVX512 = AFMOE_CPU_AVX512
    AVX512ICL = AFMOE_CPU_AVX512ICL
    AVX512BF16 = AFMOE_CPU_AVX512BF16


AFMOE_PRECISION_EXACT: Final = 1
"""float32 arithmetic on exactly decoded weights"""
AFMOE_PRECISION_FAST: Final = 2
"""block formats are multiplied in whole numbers: activations are rounded to 8 bits, with
a scale for every 32 (formats of blocks of 32 or 64) or 256 of them; at level
AVX512BF16 BF16 is multiplied with activations rounded to bfloat16"""


class Precision(enum.IntEnum):
    """AFMOE_PRECISION_*"""

    EXACT = AFMOE_PRECISION_EXACT
    FAST = AFMOE_PRECISION_FAST


AFMOE_CELLS_AUTO: Final = 0
"""F32 with EXACT, BF16 with FAST"""
AFMOE_CELLS_F32: Final = 1
"""keys and values as float32"""
AFMOE_CELLS_F16: Final = 2
"""half the memory; see docs/model.md for the divergence measured"""
AFMOE_CELLS_BF16: Final = 3
AFMOE_CELLS_Q8_0: Final = 4
"""a good quarter of the memory: whole numbers of 8 bits, 32 of a head share a scale"""


class Cells(enum.IntEnum):
    """AFMOE_CELLS_*"""

    AUTO = AFMOE_CELLS_AUTO
    F32 = AFMOE_CELLS_F32
    F16 = AFMOE_CELLS_F16
    BF16 = AFMOE_CELLS_BF16
    Q8_0 = AFMOE_CELLS_Q8_0


afmoe_task_fn = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32)
"""One piece of parallel work: what an afmoe_parallel_fn calls."""


afmoe_parallel_fn = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_uint32, afmoe_task_fn, ctypes.c_void_p)
"""The host's own parallel-for. Calls task(task_data, w) exactly once for every w < n_workers (n_workers is 2 to the
context's n_threads), on any threads, side by side or one after another, and returns when all have returned: 0,
or non-zero to stop: the computing call then answers CANCELLED, as with a cancel object. It runs on the thread
that computes, and must not call into the same context."""


class afmoe_context_options(Struct):
    size: int
    n_threads: int
    """1..256, or -1: one per usable core (affinity and cgroup quota; with cpus, at most
    n_cpus). Default -1"""
    cpu_level: int
    """AFMOE_CPU_*, default AUTO. One the CPU lacks is UNSUPPORTED"""
    precision: int
    """AFMOE_PRECISION_*, default FAST"""
    cells: int
    """AFMOE_CELLS_*, default AUTO"""
    chunk_tokens: int
    """tokens computed together while reading a prompt. 1..4096, default 512"""
    max_tokens: int
    """longest timeline of a session, what a shift dropped not counted; 1..max_positions of
    the model. Default 2^64-1: 4096, or max_positions where that is less. Memory grows
    only as tokens come"""
    rewind_tokens: int
    """how far back rewind and sync are free of recomputing. 0..2^32, default 256"""
    max_page_bytes: int
    """cap on key/value memory of all sessions together. Default 2^64-1"""
    log: Any
    """default NULL"""
    log_data: Optional[int]
    cpus: Any
    """worker thread i (1..n_threads - 1) runs on CPU cpus[i % n_cpus] only. The calling
    thread is worker 0 and left alone. A CPU this process may not use is INVALID.
    Default NULL: where the system puts them"""
    n_cpus: int
    """default 0"""
    parallel: Any
    """the host's threads instead of ours: none are started, cpus is INVALID. Same bits.
    Default NULL"""
    parallel_data: Optional[int]
    snapshot_tokens: int
    """going back further than rewind_tokens starts from the last snapshot before: one every
    so many tokens, rounded up to whole pages of 64. 64..2^32, default 1024"""
    snapshot_bytes: int
    """key/value memory for the snapshots of one session: as many as fit, on longer timelines
    at larger distances. One takes a window of the sliding layers (Nano: 88 MB with
    16-bit cells); where not one fits none is taken, and the log says so.
    Default 0: none"""
    prefix_bytes: int
    """key/value memory that finished sessions may leave behind, so that a new one with the
    same beginning starts from there: append and sync of a session without tokens tell it
    by n_reused. It holds what rewind_tokens and snapshots hold, so a beginning that ends
    between these is used up to the snapshot before. What was used longest ago goes
    first, also where a session needs the room. Whoever shares a context can tell by time
    and n_reused what others have read. Default 0: none"""
    prefix_folder: Any
    """a folder on disk for the same, see afmoe_context_create; copied. Default NULL: none"""
    prefix_folder_bytes: int
    """the most that may lie there for this model, precision and cells. Default 2^33"""

    _fields_ = [
        ('size', ctypes.c_uint32),
        ('n_threads', ctypes.c_int32),
        ('cpu_level', ctypes.c_int32),
        ('precision', ctypes.c_int32),
        ('cells', ctypes.c_int32),
        ('chunk_tokens', ctypes.c_uint32),
        ('max_tokens', ctypes.c_uint64),
        ('rewind_tokens', ctypes.c_uint64),
        ('max_page_bytes', ctypes.c_uint64),
        ('log', afmoe_log_fn),
        ('log_data', ctypes.c_void_p),
        ('cpus', ctypes.POINTER(ctypes.c_int32)),
        ('n_cpus', ctypes.c_uint64),
        ('parallel', afmoe_parallel_fn),
        ('parallel_data', ctypes.c_void_p),
        ('snapshot_tokens', ctypes.c_uint64),
        ('snapshot_bytes', ctypes.c_uint64),
        ('prefix_bytes', ctypes.c_uint64),
        ('prefix_folder', ctypes.POINTER(ctypes.c_char)),
        ('prefix_folder_bytes', ctypes.c_uint64),
    ]


class afmoe_context_info(Struct):
    size: int
    n_threads: int
    """chosen"""
    cpu_level: int
    """level of the kernels used"""
    precision: int
    cells: int
    chunk_tokens: int
    max_tokens: int
    page_bytes: int
    """key/value memory held now by all sessions and the free list"""
    scratch_bytes: int
    """working memory held now"""
    n_prefix_files_read: int
    """of prefix_folder, by sessions that began with one"""
    n_prefix_files_written: int
    n_prefix_files_failed: int
    """not written, or damaged and therefore removed"""

    _fields_ = [
        ('size', ctypes.c_uint32),
        ('n_threads', ctypes.c_int32),
        ('cpu_level', ctypes.c_int32),
        ('precision', ctypes.c_int32),
        ('cells', ctypes.c_int32),
        ('chunk_tokens', ctypes.c_uint32),
        ('max_tokens', ctypes.c_uint64),
        ('page_bytes', ctypes.c_uint64),
        ('scratch_bytes', ctypes.c_uint64),
        ('n_prefix_files_read', ctypes.c_uint64),
        ('n_prefix_files_written', ctypes.c_uint64),
        ('n_prefix_files_failed', ctypes.c_uint64),
    ]


class afmoe_memory(Struct):
    """Bytes by what they are for. Only weights_mapped belongs to files (or to the caller of
    afmoe_model_open_memory) and can be dropped and read again by the system; the others are private memory, and
    their sum is what a process grows by, but for some ten KiB a thread and what malloc keeps."""

    size: int
    reserved: int
    weights_mapped: int
    """checkpoint files used where they lie"""
    weights_private: int
    """weights read or converted, tensor lists, tokenizer"""
    scratch: int
    """working memory of the context"""
    pages: int
    """keys and values, recycled pages included"""
    sessions: int
    """tokens, last logits and page tables; in an estimate of sessions that never shift"""
    prefixes: int
    """what finished sessions have left, pages that others share included and not in `pages`;
    in an estimate the most they may leave (prefix_bytes)"""
    drafts: int
    """logits of tokens guessed ahead, held while an answer is made with max_draft
    (afmoe_generate_options); in an estimate: of all n_sessions for a max_draft of 1"""

    _fields_ = [
        ('size', ctypes.c_uint32),
        ('reserved', ctypes.c_int32),
        ('weights_mapped', ctypes.c_uint64),
        ('weights_private', ctypes.c_uint64),
        ('scratch', ctypes.c_uint64),
        ('pages', ctypes.c_uint64),
        ('sessions', ctypes.c_uint64),
        ('prefixes', ctypes.c_uint64),
        ('drafts', ctypes.c_uint64),
    ]


class afmoe_session(ctypes.Structure):
    """Opaque."""


class afmoe_append_options(Struct):
    """How a call that computes runs, and what it writes besides."""

    size: int
    reserved: int
    """0"""
    cancel: Any
    """checked in every layer. Default NULL"""
    progress: Any
    """after every chunk, in tokens. Default NULL"""
    progress_data: Optional[int]
    logprob_begin: int
    """Log-probabilities of the prompt: for every position p in [logprob_begin, logprob_end) the natural logarithm
    of the probability the model gave to the token at p, from the tokens before it. Positions are absolute; the
    range must lie inside the tokens this call adds, and 1 <= logprob_begin unless the range is empty. NaN where
    the logits hold NaN.
    default 0"""
    logprob_end: int
    """default 0: none"""
    out_logprobs: Any
    """[logprob_end - logprob_begin]"""
    positions: Any
    """Logits and final hidden states (after the last norm) at chosen absolute positions, rising, all among the
    tokens this call adds. Either buffer may be NULL.
    default NULL"""
    n_positions: int
    """default 0"""
    out_logits: Any
    """[n_positions][vocab_size]"""
    logits_capacity: int
    """floats in out_logits"""
    out_hidden: Any
    """[n_positions][hidden_size]"""
    hidden_capacity: int
    """floats in out_hidden"""
    out_expert_ids: Any
    """The experts chosen for every token this call computes, in every mixture layer, in the router's order:
    [n_computed][n_layers - n_dense_layers][n_experts_per_token]. CAPACITY, before anything is changed, when they
    do not fit. Either buffer may be NULL. Of a call that stops early the entries of the tokens kept are good. 0
    <= id < n_experts. Default NULL"""
    out_expert_weights: Any
    """what their outputs are multiplied by. Default NULL"""
    expert_capacity: int
    """entries in each buffer"""

    _fields_ = [
        ('size', ctypes.c_uint32),
        ('reserved', ctypes.c_int32),
        ('cancel', ctypes.POINTER(afmoe_cancel)),
        ('progress', afmoe_progress_fn),
        ('progress_data', ctypes.c_void_p),
        ('logprob_begin', ctypes.c_uint64),
        ('logprob_end', ctypes.c_uint64),
        ('out_logprobs', ctypes.POINTER(ctypes.c_float)),
        ('positions', ctypes.POINTER(ctypes.c_uint64)),
        ('n_positions', ctypes.c_uint64),
        ('out_logits', ctypes.POINTER(ctypes.c_float)),
        ('logits_capacity', ctypes.c_uint64),
        ('out_hidden', ctypes.POINTER(ctypes.c_float)),
        ('hidden_capacity', ctypes.c_uint64),
        ('out_expert_ids', ctypes.POINTER(ctypes.c_int32)),
        ('out_expert_weights', ctypes.POINTER(ctypes.c_float)),
        ('expert_capacity', ctypes.c_uint64),
    ]


class afmoe_append_result(Struct):
    """What a computing call did."""

    size: int
    reserved: int
    n_tokens: int
    """length of the timeline now"""
    n_reused: int
    """tokens of the request that were there already"""
    n_computed: int
    """tokens that went through the layers"""

    _fields_ = [
        ('size', ctypes.c_uint32),
        ('reserved', ctypes.c_int32),
        ('n_tokens', ctypes.c_uint64),
        ('n_reused', ctypes.c_uint64),
        ('n_computed', ctypes.c_uint64),
    ]


class afmoe_step_item(Struct):
    """One session's part of a step: what append is for one session."""

    size: int
    status: int
    """out: as append would return"""
    session: Any
    """of the context of the call"""
    tokens: Any
    n_tokens: int
    options: Any
    """its cancel object stops this item only. Default NULL"""
    result: Any
    """default NULL"""
    error: Any
    """default NULL"""

    _fields_ = [
        ('size', ctypes.c_uint32),
        ('status', ctypes.c_int32),
        ('session', ctypes.POINTER(afmoe_session)),
        ('tokens', ctypes.POINTER(ctypes.c_int32)),
        ('n_tokens', ctypes.c_uint64),
        ('options', ctypes.POINTER(afmoe_append_options)),
        ('result', ctypes.POINTER(afmoe_append_result)),
        ('error', ctypes.POINTER(afmoe_error)),
    ]


afmoe_step_item_fn = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_uint64)
"""Item `i` is done: its status and result are written, and its session may be used again. Non-zero stops the others
as options->cancel would."""


class afmoe_step_options(Struct):
    size: int
    reserved: int
    """0"""
    cancel: Any
    """stops all items. Default NULL"""
    on_item: Any
    """as soon as each is done, while the others go on. Default NULL"""
    on_item_data: Optional[int]

    _fields_ = [
        ('size', ctypes.c_uint32),
        ('reserved', ctypes.c_int32),
        ('cancel', ctypes.POINTER(afmoe_cancel)),
        ('on_item', afmoe_step_item_fn),
        ('on_item_data', ctypes.c_void_p),
    ]


AFMOE_POOL_MEAN: Final = 1
"""the mean over all positions"""
AFMOE_POOL_LAST: Final = 2
"""the last position"""


class Pool(enum.IntEnum):
    """AFMOE_POOL_*"""

    MEAN = AFMOE_POOL_MEAN
    LAST = AFMOE_POOL_LAST


class afmoe_session_stats(Struct):
    size: int
    reserved: int
    n_tokens: int
    """length of the timeline"""
    n_prompt_computed: int
    """tokens computed in chunks of more than one, over the session's life"""
    prompt_ns: int
    """time in them, nanoseconds"""
    n_decode_computed: int
    """tokens computed one at a time"""
    decode_ns: int
    n_reused: int
    """tokens sync found already there"""
    page_bytes: int
    """key/value memory of this session"""
    n_drafted: int
    """tokens computed ahead as drafts, see afmoe_generate_options"""
    n_draft_accepted: int
    """of them, those that became the next token; in none of the counts above"""
    n_dropped: int
    """of n_tokens, those that full layers see no more (afmoe_session_shift)"""

    _fields_ = [
        ('size', ctypes.c_uint32),
        ('reserved', ctypes.c_int32),
        ('n_tokens', ctypes.c_uint64),
        ('n_prompt_computed', ctypes.c_uint64),
        ('prompt_ns', ctypes.c_uint64),
        ('n_decode_computed', ctypes.c_uint64),
        ('decode_ns', ctypes.c_uint64),
        ('n_reused', ctypes.c_uint64),
        ('page_bytes', ctypes.c_uint64),
        ('n_drafted', ctypes.c_uint64),
        ('n_draft_accepted', ctypes.c_uint64),
        ('n_dropped', ctypes.c_uint64),
    ]


class afmoe_sampler(ctypes.Structure):
    """Opaque."""


class afmoe_sampler_options(Struct):
    """Filters are applied in this order: bias, repetition, presence and frequency, temperature, top-k, top-p,
    min-p."""

    size: int
    reserved: int
    """0"""
    temperature: float
    """0..100; 0: greedy, the largest logit (lowest id on a tie). Default 0"""
    top_p: float
    """0..1; keeps the most likely tokens up to and with the one that reaches it.
    Default 1: off"""
    min_p: float
    """0..1; drops tokens below min_p times the best. Default 0: off"""
    repetition_penalty: float
    """0.01..100; tokens of prompt and answer: logit divided if positive, else
    multiplied. Default 1: off"""
    presence_penalty: float
    """-100..100; subtracted once for a token generated already. Default 0"""
    frequency_penalty: float
    """-100..100; subtracted for every time it was generated. Default 0"""
    top_k: int
    """keeps the k most likely; 1..2^32, default 2^32: off"""
    seed: int
    """any value; default 0. A draw depends on seed and position only"""
    bias_tokens: Any
    """n_bias different ids; copied. Default NULL"""
    bias_values: Any
    """added to their logits, -1e30..1e30 or -infinity (never)"""
    n_bias: int
    """default 0"""

    _fields_ = [
        ('size', ctypes.c_uint32),
        ('reserved', ctypes.c_int32),
        ('temperature', ctypes.c_float),
        ('top_p', ctypes.c_float),
        ('min_p', ctypes.c_float),
        ('repetition_penalty', ctypes.c_float),
        ('presence_penalty', ctypes.c_float),
        ('frequency_penalty', ctypes.c_float),
        ('top_k', ctypes.c_uint64),
        ('seed', ctypes.c_uint64),
        ('bias_tokens', ctypes.POINTER(ctypes.c_int32)),
        ('bias_values', ctypes.POINTER(ctypes.c_float)),
        ('n_bias', ctypes.c_uint64),
    ]


class afmoe_piece(Struct):
    """One step of generation; what it points to is valid during the callback, or until the generation's next call."""

    size: int
    token: int
    """-1 in a last piece that only brings held-back text"""
    text: Any
    """whole code points that are final now; may be empty. Not NUL-terminated"""
    text_bytes: int
    position: int
    """of the token in the timeline"""
    logprob: float
    """of the token in the raw distribution; 0 when token is -1"""
    reserved: int
    top_tokens: Any
    """the n_top most likely tokens at this position"""
    top_logprobs: Any
    n_top: int

    _fields_ = [
        ('size', ctypes.c_uint32),
        ('token', ctypes.c_int32),
        ('text', ctypes.POINTER(ctypes.c_char)),
        ('text_bytes', ctypes.c_uint64),
        ('position', ctypes.c_uint64),
        ('logprob', ctypes.c_float),
        ('reserved', ctypes.c_int32),
        ('top_tokens', ctypes.POINTER(ctypes.c_int32)),
        ('top_logprobs', ctypes.POINTER(ctypes.c_float)),
        ('n_top', ctypes.c_uint64),
    ]


afmoe_piece_fn = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.POINTER(afmoe_piece))
"""Non-zero stops: afmoe_generate returns CANCELLED and the tokens so far are kept."""


class afmoe_generate_options(Struct):
    size: int
    ignore_eos: int
    """1: the model's stop set does not stop. Default 0"""
    max_tokens: int
    """most tokens to generate. Default 2^64-1: until something stops"""
    n_prompt: int
    """tokens of the timeline that count as prompt for the penalties.
    Default 2^64-1: all that are there when the call starts"""
    stop_tokens: Any
    """further tokens that stop. Default NULL"""
    n_stop_tokens: int
    stop_strings: Any
    """text that stops, also across tokens; not given out. Default NULL"""
    stop_string_bytes: Any
    """length of each; NULL: NUL-terminated"""
    n_stop_strings: int
    """0..64"""
    n_top_logprobs: int
    """alternatives in each piece, 0..1024. Default 0"""
    keep_special: int
    """1: text of CONTROL tokens appears in pieces. Default 0"""
    reserved: int
    """0"""
    on_piece: Any
    """default NULL"""
    on_piece_data: Optional[int]
    cancel: Any
    """default NULL"""
    max_draft: int
    """most tokens to guess ahead, 0..64: where the last tokens occurred before, what
    followed them is computed together with the next token, and counts where it is
    what the sampler chooses. The same tokens come out, sooner where text repeats.
    Takes vocab_size floats for each. Default 0: off"""

    _fields_ = [
        ('size', ctypes.c_uint32),
        ('ignore_eos', ctypes.c_int32),
        ('max_tokens', ctypes.c_uint64),
        ('n_prompt', ctypes.c_uint64),
        ('stop_tokens', ctypes.POINTER(ctypes.c_int32)),
        ('n_stop_tokens', ctypes.c_uint64),
        ('stop_strings', ctypes.POINTER(ctypes.c_char_p)),
        ('stop_string_bytes', ctypes.POINTER(ctypes.c_uint64)),
        ('n_stop_strings', ctypes.c_uint64),
        ('n_top_logprobs', ctypes.c_uint64),
        ('keep_special', ctypes.c_int32),
        ('reserved', ctypes.c_int32),
        ('on_piece', afmoe_piece_fn),
        ('on_piece_data', ctypes.c_void_p),
        ('cancel', ctypes.POINTER(afmoe_cancel)),
        ('max_draft', ctypes.c_uint64),
    ]


AFMOE_FINISH_NONE: Final = 0
AFMOE_FINISH_LENGTH: Final = 1
"""max_tokens reached"""
AFMOE_FINISH_STOP_TOKEN: Final = 2
AFMOE_FINISH_STOP_STRING: Final = 3
AFMOE_FINISH_CANCELLED: Final = 4
"""cancel object or callback"""
AFMOE_FINISH_CONTEXT: Final = 5
"""session or page limit reached"""
AFMOE_FINISH_ERROR: Final = 6


class Finish(enum.IntEnum):
    """AFMOE_FINISH_*"""

    NONE = AFMOE_FINISH_NONE
    LENGTH = AFMOE_FINISH_LENGTH
    STOP_TOKEN = AFMOE_FINISH_STOP_TOKEN
    STOP_STRING = AFMOE_FINISH_STOP_STRING
    CANCELLED = AFMOE_FINISH_CANCELLED
    CONTEXT = AFMOE_FINISH_CONTEXT
    ERROR = AFMOE_FINISH_ERROR


class afmoe_generate_result(Struct):
    size: int
    finish_reason: int
    """AFMOE_FINISH_*"""
    n_generated: int
    """tokens added to the timeline"""
    stop_token: int
    """the one that stopped (not added to the timeline), else -1"""
    stop_string: int
    """index of the one that stopped, else -1"""
    elapsed_ns: int
    n_drafted: int
    """tokens guessed ahead and computed"""
    n_draft_accepted: int
    """of them, those that were right"""

    _fields_ = [
        ('size', ctypes.c_uint32),
        ('finish_reason', ctypes.c_int32),
        ('n_generated', ctypes.c_uint64),
        ('stop_token', ctypes.c_int32),
        ('stop_string', ctypes.c_int32),
        ('elapsed_ns', ctypes.c_uint64),
        ('n_drafted', ctypes.c_uint64),
        ('n_draft_accepted', ctypes.c_uint64),
    ]


class afmoe_generation(ctypes.Structure):
    """Opaque."""


class afmoe_scheduler(ctypes.Structure):
    """Opaque."""


class afmoe_scheduler_options(Struct):
    size: int
    max_running: int
    """requests computed together, 1..4096; the others wait. Default 8"""
    max_waiting: int
    """requests waiting, 1..1048576; submit answers LIMIT above. Default 256"""
    max_prompt_tokens: int
    """tokens of prompts in a step that also computes answers, 1..4096: fewer keep answers
    flowing, more read prompts sooner. Default 64"""

    _fields_ = [
        ('size', ctypes.c_uint32),
        ('max_running', ctypes.c_uint32),
        ('max_waiting', ctypes.c_uint32),
        ('max_prompt_tokens', ctypes.c_uint32),
    ]


afmoe_request_fn = ctypes.CFUNCTYPE(
    None,
    ctypes.c_void_p,
    ctypes.c_int32,
    ctypes.POINTER(afmoe_generate_result),
    ctypes.POINTER(afmoe_error))
"""The end of a request. `result` and `error` (its text when the status is negative) are borrowed for the call. The
session may be used again, also in here; the scheduler's step and run answer BUSY in here, submit works."""


class afmoe_request(Struct):
    """One request: append these tokens, then generate. Until on_done was called the session and the sampler are in
    use (other calls on them answer BUSY), and the tokens and all that the options point to must stay as they
    are."""

    size: int
    priority: int
    """the larger comes first; of the same, who was submitted first. Default 0"""
    session: Any
    """of the scheduler's context"""
    sampler: Any
    """of no other request. Default NULL: greedy"""
    tokens: Any
    """default NULL"""
    n_tokens: int
    """default 0: answer from the session's logits"""
    options: Any
    """copied; its cancel object stops this request, also while it waits.
    Default NULL"""
    on_done: Any
    """default NULL"""
    on_done_data: Optional[int]

    _fields_ = [
        ('size', ctypes.c_uint32),
        ('priority', ctypes.c_int32),
        ('session', ctypes.POINTER(afmoe_session)),
        ('sampler', ctypes.POINTER(afmoe_sampler)),
        ('tokens', ctypes.POINTER(ctypes.c_int32)),
        ('n_tokens', ctypes.c_uint64),
        ('options', ctypes.POINTER(afmoe_generate_options)),
        ('on_done', afmoe_request_fn),
        ('on_done_data', ctypes.c_void_p),
    ]


class afmoe_scheduler_info(Struct):
    size: int
    reserved: int
    n_waiting: int
    """requests"""
    n_running: int
    n_done: int
    """ended, well or not"""

    _fields_ = [
        ('size', ctypes.c_uint32),
        ('reserved', ctypes.c_int32),
        ('n_waiting', ctypes.c_uint64),
        ('n_running', ctypes.c_uint64),
        ('n_done', ctypes.c_uint64),
    ]


SIGNATURES: Dict[str, Tuple[Any, Tuple[Any, ...]]] = {
    'afmoe_version': (ctypes.c_uint32, (
    )),
    'afmoe_version_string': (ctypes.c_char_p, (
    )),
    'afmoe_build_features': (ctypes.c_char_p, (
    )),
    'afmoe_status_name': (ctypes.c_char_p, (
        ctypes.c_int32,
    )),
    'afmoe_error_init': (None, (
        ctypes.POINTER(afmoe_error),
        ctypes.c_uint32,
    )),
    'afmoe_cancel_create': (ctypes.c_int32, (
        ctypes.POINTER(ctypes.POINTER(afmoe_cancel)),
        ctypes.POINTER(afmoe_error),
    )),
    'afmoe_cancel_retain': (None, (
        ctypes.POINTER(afmoe_cancel),
    )),
    'afmoe_cancel_free': (None, (
        ctypes.POINTER(afmoe_cancel),
    )),
    'afmoe_cancel_set': (None, (
        ctypes.POINTER(afmoe_cancel),
    )),
    'afmoe_cancel_clear': (None, (
        ctypes.POINTER(afmoe_cancel),
    )),
    'afmoe_cancel_is_set': (ctypes.c_int32, (
        ctypes.POINTER(afmoe_cancel),
    )),
    'afmoe_model_options_init': (None, (
        ctypes.POINTER(afmoe_model_options),
        ctypes.c_uint32,
    )),
    'afmoe_model_open': (ctypes.c_int32, (
        ctypes.POINTER(ctypes.POINTER(afmoe_model)),
        ctypes.c_char_p,
        ctypes.POINTER(afmoe_model_options),
        ctypes.POINTER(afmoe_error),
    )),
    'afmoe_model_open_fd': (ctypes.c_int32, (
        ctypes.POINTER(ctypes.POINTER(afmoe_model)),
        ctypes.c_int32,
        ctypes.c_uint64,
        ctypes.c_uint64,
        ctypes.POINTER(afmoe_model_options),
        ctypes.POINTER(afmoe_error),
    )),
    'afmoe_model_open_memory': (ctypes.c_int32, (
        ctypes.POINTER(ctypes.POINTER(afmoe_model)),
        ctypes.c_void_p,
        ctypes.c_uint64,
        afmoe_release_fn,
        ctypes.c_void_p,
        ctypes.POINTER(afmoe_model_options),
        ctypes.POINTER(afmoe_error),
    )),
    'afmoe_model_retain': (None, (
        ctypes.POINTER(afmoe_model),
    )),
    'afmoe_model_free': (None, (
        ctypes.POINTER(afmoe_model),
    )),
    'afmoe_model_info_init': (None, (
        ctypes.POINTER(afmoe_model_info),
        ctypes.c_uint32,
    )),
    'afmoe_model_get_info': (ctypes.c_int32, (
        ctypes.POINTER(afmoe_model),
        ctypes.POINTER(afmoe_model_info),
        ctypes.POINTER(afmoe_error),
    )),
    'afmoe_model_layer_is_full': (ctypes.c_int32, (
        ctypes.POINTER(afmoe_model),
        ctypes.c_uint32,
        ctypes.POINTER(ctypes.c_int32),
        ctypes.POINTER(afmoe_error),
    )),
    'afmoe_tensor_info_init': (None, (
        ctypes.POINTER(afmoe_tensor_info),
        ctypes.c_uint32,
    )),
    'afmoe_model_n_tensors': (ctypes.c_uint64, (
        ctypes.POINTER(afmoe_model),
    )),
    'afmoe_model_get_tensor': (ctypes.c_int32, (
        ctypes.POINTER(afmoe_model),
        ctypes.c_uint64,
        ctypes.POINTER(afmoe_tensor_info),
        ctypes.POINTER(afmoe_error),
    )),
    'afmoe_model_chat_template': (ctypes.c_int32, (
        ctypes.POINTER(afmoe_model),
        ctypes.POINTER(ctypes.POINTER(ctypes.c_char)),
        ctypes.POINTER(ctypes.c_uint64),
        ctypes.POINTER(afmoe_error),
    )),
    'afmoe_model_stop_tokens': (ctypes.c_int32, (
        ctypes.POINTER(afmoe_model),
        ctypes.POINTER(ctypes.c_int32),
        ctypes.c_uint64,
        ctypes.POINTER(ctypes.c_uint64),
        ctypes.POINTER(afmoe_error),
    )),
    'afmoe_tokenize_options_init': (None, (
        ctypes.POINTER(afmoe_tokenize_options),
        ctypes.c_uint32,
    )),
    'afmoe_tokenize': (ctypes.c_int32, (
        ctypes.POINTER(afmoe_model),
        ctypes.c_char_p,
        ctypes.c_uint64,
        ctypes.POINTER(afmoe_tokenize_options),
        ctypes.POINTER(ctypes.c_int32),
        ctypes.c_uint64,
        ctypes.POINTER(ctypes.c_uint64),
        ctypes.POINTER(afmoe_error),
    )),
    'afmoe_detokenize': (ctypes.c_int32, (
        ctypes.POINTER(afmoe_model),
        ctypes.POINTER(ctypes.c_int32),
        ctypes.c_uint64,
        ctypes.c_int32,
        ctypes.POINTER(ctypes.c_char),
        ctypes.c_uint64,
        ctypes.POINTER(ctypes.c_uint64),
        ctypes.POINTER(afmoe_error),
    )),
    'afmoe_token_text': (ctypes.c_int32, (
        ctypes.POINTER(afmoe_model),
        ctypes.c_int32,
        ctypes.POINTER(ctypes.POINTER(ctypes.c_char)),
        ctypes.POINTER(ctypes.c_uint64),
        ctypes.POINTER(ctypes.c_int32),
        ctypes.POINTER(afmoe_error),
    )),
    'afmoe_token_find': (ctypes.c_int32, (
        ctypes.POINTER(afmoe_model),
        ctypes.c_char_p,
        ctypes.c_uint64,
        ctypes.POINTER(ctypes.c_int32),
        ctypes.POINTER(afmoe_error),
    )),
    'afmoe_chat_options_init': (None, (
        ctypes.POINTER(afmoe_chat_options),
        ctypes.c_uint32,
    )),
    'afmoe_chat_tokenize': (ctypes.c_int32, (
        ctypes.POINTER(afmoe_model),
        ctypes.POINTER(ctypes.c_char_p),
        ctypes.POINTER(ctypes.c_char_p),
        ctypes.c_uint64,
        ctypes.POINTER(afmoe_chat_options),
        ctypes.POINTER(ctypes.c_int32),
        ctypes.c_uint64,
        ctypes.POINTER(ctypes.c_uint64),
        ctypes.POINTER(afmoe_error),
    )),
    'afmoe_stream_decoder_create': (ctypes.c_int32, (
        ctypes.POINTER(ctypes.POINTER(afmoe_stream_decoder)),
        ctypes.POINTER(afmoe_model),
        ctypes.c_int32,
        ctypes.POINTER(afmoe_error),
    )),
    'afmoe_stream_decoder_free': (None, (
        ctypes.POINTER(afmoe_stream_decoder),
    )),
    'afmoe_stream_decoder_push': (ctypes.c_int32, (
        ctypes.POINTER(afmoe_stream_decoder),
        ctypes.c_int32,
        ctypes.POINTER(ctypes.POINTER(ctypes.c_char)),
        ctypes.POINTER(ctypes.c_uint64),
        ctypes.POINTER(afmoe_error),
    )),
    'afmoe_stream_decoder_finish': (ctypes.c_int32, (
        ctypes.POINTER(afmoe_stream_decoder),
        ctypes.POINTER(ctypes.POINTER(ctypes.c_char)),
        ctypes.POINTER(ctypes.c_uint64),
        ctypes.POINTER(afmoe_error),
    )),
    'afmoe_cpu_level': (ctypes.c_int32, (
    )),
    'afmoe_cpu_level_name': (ctypes.c_char_p, (
        ctypes.c_int32,
    )),
    'afmoe_context_options_init': (None, (
        ctypes.POINTER(afmoe_context_options),
        ctypes.c_uint32,
    )),
    'afmoe_context_create': (ctypes.c_int32, (
        ctypes.POINTER(ctypes.POINTER(afmoe_context)),
        ctypes.POINTER(afmoe_model),
        ctypes.POINTER(afmoe_context_options),
        ctypes.POINTER(afmoe_error),
    )),
    'afmoe_context_free': (None, (
        ctypes.POINTER(afmoe_context),
    )),
    'afmoe_context_info_init': (None, (
        ctypes.POINTER(afmoe_context_info),
        ctypes.c_uint32,
    )),
    'afmoe_context_get_info': (ctypes.c_int32, (
        ctypes.POINTER(afmoe_context),
        ctypes.POINTER(afmoe_context_info),
        ctypes.POINTER(afmoe_error),
    )),
    'afmoe_memory_init': (None, (
        ctypes.POINTER(afmoe_memory),
        ctypes.c_uint32,
    )),
    'afmoe_estimate': (ctypes.c_int32, (
        ctypes.c_char_p,
        ctypes.POINTER(afmoe_model_options),
        ctypes.POINTER(afmoe_context_options),
        ctypes.c_uint64,
        ctypes.c_uint64,
        ctypes.POINTER(afmoe_memory),
        ctypes.POINTER(afmoe_error),
    )),
    'afmoe_context_get_memory': (ctypes.c_int32, (
        ctypes.POINTER(afmoe_context),
        ctypes.POINTER(afmoe_memory),
        ctypes.POINTER(afmoe_error),
    )),
    'afmoe_session_create': (ctypes.c_int32, (
        ctypes.POINTER(ctypes.POINTER(afmoe_session)),
        ctypes.POINTER(afmoe_context),
        ctypes.POINTER(afmoe_error),
    )),
    'afmoe_session_free': (None, (
        ctypes.POINTER(afmoe_session),
    )),
    'afmoe_session_fork': (ctypes.c_int32, (
        ctypes.POINTER(ctypes.POINTER(afmoe_session)),
        ctypes.POINTER(afmoe_session),
        ctypes.POINTER(afmoe_error),
    )),
    'afmoe_append_options_init': (None, (
        ctypes.POINTER(afmoe_append_options),
        ctypes.c_uint32,
    )),
    'afmoe_append_result_init': (None, (
        ctypes.POINTER(afmoe_append_result),
        ctypes.c_uint32,
    )),
    'afmoe_session_append': (ctypes.c_int32, (
        ctypes.POINTER(afmoe_session),
        ctypes.POINTER(ctypes.c_int32),
        ctypes.c_uint64,
        ctypes.POINTER(afmoe_append_options),
        ctypes.POINTER(afmoe_append_result),
        ctypes.POINTER(afmoe_error),
    )),
    'afmoe_session_sync': (ctypes.c_int32, (
        ctypes.POINTER(afmoe_session),
        ctypes.POINTER(ctypes.c_int32),
        ctypes.c_uint64,
        ctypes.POINTER(afmoe_append_options),
        ctypes.POINTER(afmoe_append_result),
        ctypes.POINTER(afmoe_error),
    )),
    'afmoe_session_rewind': (ctypes.c_int32, (
        ctypes.POINTER(afmoe_session),
        ctypes.c_uint64,
        ctypes.POINTER(afmoe_append_options),
        ctypes.POINTER(afmoe_append_result),
        ctypes.POINTER(afmoe_error),
    )),
    'afmoe_session_shift': (ctypes.c_int32, (
        ctypes.POINTER(afmoe_session),
        ctypes.c_uint64,
        ctypes.c_uint64,
        ctypes.POINTER(ctypes.c_uint64),
        ctypes.POINTER(afmoe_error),
    )),
    'afmoe_session_tokens': (ctypes.c_int32, (
        ctypes.POINTER(afmoe_session),
        ctypes.POINTER(ctypes.c_int32),
        ctypes.c_uint64,
        ctypes.POINTER(ctypes.c_uint64),
        ctypes.POINTER(afmoe_error),
    )),
    'afmoe_session_logits': (ctypes.c_int32, (
        ctypes.POINTER(afmoe_session),
        ctypes.POINTER(ctypes.c_float),
        ctypes.c_uint64,
        ctypes.POINTER(ctypes.c_uint64),
        ctypes.POINTER(afmoe_error),
    )),
    'afmoe_session_logits_view': (ctypes.c_int32, (
        ctypes.POINTER(afmoe_session),
        ctypes.POINTER(ctypes.POINTER(ctypes.c_float)),
        ctypes.POINTER(ctypes.c_uint64),
        ctypes.POINTER(afmoe_error),
    )),
    'afmoe_session_logprobs': (ctypes.c_int32, (
        ctypes.POINTER(afmoe_session),
        ctypes.POINTER(ctypes.c_float),
        ctypes.c_uint64,
        ctypes.POINTER(ctypes.c_uint64),
        ctypes.POINTER(afmoe_error),
    )),
    'afmoe_session_hidden': (ctypes.c_int32, (
        ctypes.POINTER(afmoe_session),
        ctypes.POINTER(ctypes.c_float),
        ctypes.c_uint64,
        ctypes.POINTER(ctypes.c_uint64),
        ctypes.POINTER(afmoe_error),
    )),
    'afmoe_step_item_init': (None, (
        ctypes.POINTER(afmoe_step_item),
        ctypes.c_uint32,
    )),
    'afmoe_step_options_init': (None, (
        ctypes.POINTER(afmoe_step_options),
        ctypes.c_uint32,
    )),
    'afmoe_context_step': (ctypes.c_int32, (
        ctypes.POINTER(afmoe_context),
        ctypes.POINTER(afmoe_step_item),
        ctypes.c_uint64,
        ctypes.POINTER(afmoe_step_options),
        ctypes.POINTER(afmoe_error),
    )),
    'afmoe_session_embed': (ctypes.c_int32, (
        ctypes.POINTER(afmoe_session),
        ctypes.POINTER(ctypes.c_int32),
        ctypes.c_uint64,
        ctypes.c_int32,
        ctypes.c_int32,
        ctypes.POINTER(afmoe_cancel),
        ctypes.POINTER(ctypes.c_float),
        ctypes.c_uint64,
        ctypes.POINTER(ctypes.c_uint64),
        ctypes.POINTER(afmoe_error),
    )),
    'afmoe_session_stats_init': (None, (
        ctypes.POINTER(afmoe_session_stats),
        ctypes.c_uint32,
    )),
    'afmoe_session_get_stats': (ctypes.c_int32, (
        ctypes.POINTER(afmoe_session),
        ctypes.POINTER(afmoe_session_stats),
        ctypes.POINTER(afmoe_error),
    )),
    'afmoe_session_save': (ctypes.c_int32, (
        ctypes.POINTER(afmoe_session),
        ctypes.c_char_p,
        ctypes.POINTER(afmoe_error),
    )),
    'afmoe_session_load': (ctypes.c_int32, (
        ctypes.POINTER(afmoe_session),
        ctypes.c_char_p,
        ctypes.POINTER(afmoe_error),
    )),
    'afmoe_session_save_memory': (ctypes.c_int32, (
        ctypes.POINTER(afmoe_session),
        ctypes.c_void_p,
        ctypes.c_uint64,
        ctypes.POINTER(ctypes.c_uint64),
        ctypes.POINTER(afmoe_error),
    )),
    'afmoe_session_load_memory': (ctypes.c_int32, (
        ctypes.POINTER(afmoe_session),
        ctypes.c_void_p,
        ctypes.c_uint64,
        ctypes.POINTER(afmoe_error),
    )),
    'afmoe_sampler_options_init': (None, (
        ctypes.POINTER(afmoe_sampler_options),
        ctypes.c_uint32,
    )),
    'afmoe_model_sampler_options': (ctypes.c_int32, (
        ctypes.POINTER(afmoe_model),
        ctypes.POINTER(afmoe_sampler_options),
        ctypes.POINTER(afmoe_error),
    )),
    'afmoe_sampler_create': (ctypes.c_int32, (
        ctypes.POINTER(ctypes.POINTER(afmoe_sampler)),
        ctypes.POINTER(afmoe_model),
        ctypes.POINTER(afmoe_sampler_options),
        ctypes.POINTER(afmoe_error),
    )),
    'afmoe_sampler_free': (None, (
        ctypes.POINTER(afmoe_sampler),
    )),
    'afmoe_sampler_sample': (ctypes.c_int32, (
        ctypes.POINTER(afmoe_sampler),
        ctypes.POINTER(afmoe_session),
        ctypes.c_uint64,
        ctypes.POINTER(ctypes.c_int32),
        ctypes.POINTER(ctypes.c_float),
        ctypes.POINTER(afmoe_error),
    )),
    'afmoe_sampler_sample_logits': (ctypes.c_int32, (
        ctypes.POINTER(afmoe_sampler),
        ctypes.POINTER(ctypes.c_float),
        ctypes.c_uint64,
        ctypes.POINTER(ctypes.c_int32),
        ctypes.c_uint64,
        ctypes.c_uint64,
        ctypes.POINTER(ctypes.c_int32),
        ctypes.POINTER(ctypes.c_float),
        ctypes.POINTER(afmoe_error),
    )),
    'afmoe_session_top_logprobs': (ctypes.c_int32, (
        ctypes.POINTER(afmoe_session),
        ctypes.POINTER(ctypes.c_int32),
        ctypes.POINTER(ctypes.c_float),
        ctypes.c_uint64,
        ctypes.POINTER(ctypes.c_uint64),
        ctypes.POINTER(afmoe_error),
    )),
    'afmoe_piece_init': (None, (
        ctypes.POINTER(afmoe_piece),
        ctypes.c_uint32,
    )),
    'afmoe_generate_options_init': (None, (
        ctypes.POINTER(afmoe_generate_options),
        ctypes.c_uint32,
    )),
    'afmoe_generate_result_init': (None, (
        ctypes.POINTER(afmoe_generate_result),
        ctypes.c_uint32,
    )),
    'afmoe_generate': (ctypes.c_int32, (
        ctypes.POINTER(afmoe_session),
        ctypes.POINTER(afmoe_sampler),
        ctypes.POINTER(afmoe_generate_options),
        ctypes.POINTER(afmoe_generate_result),
        ctypes.POINTER(afmoe_error),
    )),
    'afmoe_generation_create': (ctypes.c_int32, (
        ctypes.POINTER(ctypes.POINTER(afmoe_generation)),
        ctypes.POINTER(afmoe_session),
        ctypes.POINTER(afmoe_sampler),
        ctypes.POINTER(afmoe_generate_options),
        ctypes.POINTER(afmoe_error),
    )),
    'afmoe_generation_free': (None, (
        ctypes.POINTER(afmoe_generation),
    )),
    'afmoe_generation_next': (ctypes.c_int32, (
        ctypes.POINTER(afmoe_generation),
        ctypes.POINTER(afmoe_piece),
        ctypes.POINTER(afmoe_error),
    )),
    'afmoe_generation_get_result': (ctypes.c_int32, (
        ctypes.POINTER(afmoe_generation),
        ctypes.POINTER(afmoe_generate_result),
        ctypes.POINTER(afmoe_error),
    )),
    'afmoe_scheduler_options_init': (None, (
        ctypes.POINTER(afmoe_scheduler_options),
        ctypes.c_uint32,
    )),
    'afmoe_request_init': (None, (
        ctypes.POINTER(afmoe_request),
        ctypes.c_uint32,
    )),
    'afmoe_scheduler_create': (ctypes.c_int32, (
        ctypes.POINTER(ctypes.POINTER(afmoe_scheduler)),
        ctypes.POINTER(afmoe_context),
        ctypes.POINTER(afmoe_scheduler_options),
        ctypes.POINTER(afmoe_error),
    )),
    'afmoe_scheduler_free': (None, (
        ctypes.POINTER(afmoe_scheduler),
    )),
    'afmoe_scheduler_submit': (ctypes.c_int32, (
        ctypes.POINTER(afmoe_scheduler),
        ctypes.POINTER(afmoe_request),
        ctypes.POINTER(afmoe_error),
    )),
    'afmoe_scheduler_step': (ctypes.c_int32, (
        ctypes.POINTER(afmoe_scheduler),
        ctypes.POINTER(afmoe_error),
    )),
    'afmoe_scheduler_run': (ctypes.c_int32, (
        ctypes.POINTER(afmoe_scheduler),
        ctypes.POINTER(afmoe_error),
    )),
    'afmoe_scheduler_info_init': (None, (
        ctypes.POINTER(afmoe_scheduler_info),
        ctypes.c_uint32,
    )),
    'afmoe_scheduler_get_info': (ctypes.c_int32, (
        ctypes.POINTER(afmoe_scheduler),
        ctypes.POINTER(afmoe_scheduler_info),
        ctypes.POINTER(afmoe_error),
    )),
}
"""Result and arguments of every function."""


class Functions:
    """Every function of the header, bound to a library that was loaded."""

    def __init__(self, library: ctypes.CDLL) -> None:
        for name, (result, arguments) in SIGNATURES.items():
            function = getattr(library, name)
            function.restype = result
            function.argtypes = arguments
            setattr(self, name, function)

    afmoe_version: Callable[..., int]
    """afmoe_version()

    Version of the library at run time: major * 1000000 + minor * 1000 + patch."""

    afmoe_version_string: Callable[..., bytes]
    """afmoe_version_string()

    "0.1.0". Static."""

    afmoe_build_features: Callable[..., bytes]
    """afmoe_build_features()

    What this build has, as words separated by spaces, e.g. "c avx2 state formats:F32,F16,BF16,Q8_0": "state"
    where sessions can be saved. Static."""

    afmoe_status_name: Callable[..., bytes]
    """afmoe_status_name(status)

    "AFMOE_OK", "AFMOE_INVALID", ...; "AFMOE_UNKNOWN" for other values. Static."""

    afmoe_error_init: Callable[..., None]
    """afmoe_error_init(error, size)"""

    afmoe_cancel_create: Callable[..., int]
    """afmoe_cancel_create(out, error)

    A new flag, not set."""

    afmoe_cancel_retain: Callable[..., None]
    """afmoe_cancel_retain(cancel)"""

    afmoe_cancel_free: Callable[..., None]
    """afmoe_cancel_free(cancel)

    Drop a reference; the last one frees it."""

    afmoe_cancel_set: Callable[..., None]
    """afmoe_cancel_set(cancel)

    Stop every call this object was passed to, now and later, until afmoe_cancel_clear. Safe in signal handlers."""

    afmoe_cancel_clear: Callable[..., None]
    """afmoe_cancel_clear(cancel)

    Take the flag down: calls made from now on run."""

    afmoe_cancel_is_set: Callable[..., int]
    """afmoe_cancel_is_set(cancel)

    1 when set, else 0."""

    afmoe_model_options_init: Callable[..., None]
    """afmoe_model_options_init(options, size)"""

    afmoe_model_open: Callable[..., int]
    """afmoe_model_open(out, path, options, error)

    Open a checkpoint.

    `path` is a GGUF file (v2, v3); a folder with config.json and model.safetensors or
    model.safetensors.index.json (tokenizer.json and generation_config.json are read where they are); or, with
    tokenizer_only, also a tokenizer.json. Unless the options say otherwise weights stay in the mapped file, only
    headers are read here, and the files must not change while the model is open.

    NOT_FOUND, IO, FORMAT, TRUNCATED, LIMIT, UNSUPPORTED: the message names the file and the key or tensor.
    CANCELLED: by cancel or progress; nothing is left behind."""

    afmoe_model_open_fd: Callable[..., int]
    """afmoe_model_open_fd(out, fd, offset, length, options, error)

    Open a GGUF file (with tokenizer_only also a tokenizer.json) that is a part of a larger file: `length` bytes
    from `offset` on, which needs no alignment; 2^64-1: all up to the end. The descriptor is duplicated: close it
    when you like; its position is neither used nor changed.

    Failures as in open. INVALID: fd is negative. IO: it is not open for reading. FORMAT: not a regular file.
    TRUNCATED: the file does not hold that range. UNSUPPORTED: safetensors, which need the other files of their
    folder."""

    afmoe_model_open_memory: Callable[..., int]
    """afmoe_model_open_memory(out, data, n_bytes, release, release_data, options, error)

    The same from memory, any alignment. The n_bytes are borrowed and must not change until the last reference of
    the model goes; then release(release_data) is called once, on the thread that dropped it (NULL: nobody is
    told). When the call fails the memory was not taken and release is not called. With READ a copy is used, and
    changes do not matter; `lock` without READ is UNSUPPORTED: the pages are yours to lock."""

    afmoe_model_retain: Callable[..., None]
    """afmoe_model_retain(model)

    Add a reference; every retain needs one more free."""

    afmoe_model_free: Callable[..., None]
    """afmoe_model_free(model)

    Drop a reference; the last one unmaps the files."""

    afmoe_model_info_init: Callable[..., None]
    """afmoe_model_info_init(info, size)"""

    afmoe_model_get_info: Callable[..., int]
    """afmoe_model_get_info(model, info, error)

    What the checkpoint is: read at open, never changes."""

    afmoe_model_layer_is_full: Callable[..., int]
    """afmoe_model_layer_is_full(model, layer, out, error)

    1 where the layer sees all positions, 0 where it slides. INVALID for a layer the model does not have."""

    afmoe_tensor_info_init: Callable[..., None]
    """afmoe_tensor_info_init(info, size)"""

    afmoe_model_n_tensors: Callable[..., int]
    """afmoe_model_n_tensors(model)

    How many tensors the files have; 0 with tokenizer_only and for NULL."""

    afmoe_model_get_tensor: Callable[..., int]
    """afmoe_model_get_tensor(model, index, info, error)

    The tensors by name, rising in bytes: 0 <= index < afmoe_model_n_tensors."""

    afmoe_model_chat_template: Callable[..., int]
    """afmoe_model_chat_template(model, out_text, out_n, error)

    The chat template the checkpoint brings (Jinja), for the caller to read: the library does not run it.
    Borrowed, not NUL-terminated, lives as long as the model; bytes as they are in the file. NOT_FOUND when there
    is none."""

    afmoe_model_stop_tokens: Callable[..., int]
    """afmoe_model_stop_tokens(model, out, capacity, out_n, error)

    The model's stop set: the eos ids of generation_config.json; without them the file's eos and, where the
    vocabulary has them, <|im_end|> and <|end_of_text|>."""

    afmoe_tokenize_options_init: Callable[..., None]
    """afmoe_tokenize_options_init(options, size)"""

    afmoe_tokenize: Callable[..., int]
    """afmoe_tokenize(model, text, text_bytes, options, out, capacity, out_n, error)

    Text to token ids, in one pass over the whole text; nothing is added before or after. Any bytes are accepted:
    invalid UTF-8 becomes byte tokens. UNSUPPORTED when the model has no tokenizer or one of a kind not known
    (the model itself opens and computes; with tokenizer_only the open answers UNSUPPORTED)."""

    afmoe_detokenize: Callable[..., int]
    """afmoe_detokenize(model, tokens, n_tokens, skip_special, out, capacity, out_n, error)

    Token ids to bytes, not NUL-terminated. `skip_special` 1 leaves out tokens of kind CONTROL. Ids without a
    token give nothing; ids outside the vocabulary are INVALID. The bytes may be invalid UTF-8 (a token can be
    part of a character): a stream decoder repairs that."""

    afmoe_token_text: Callable[..., int]
    """afmoe_token_text(model, token, out_bytes, out_n, out_kind, error)

    Bytes and kind of one token; `out_bytes` lives as long as the model. Each out pointer may be NULL."""

    afmoe_token_find: Callable[..., int]
    """afmoe_token_find(model, text, text_bytes, out, error)

    The id of the token whose text is exactly these bytes (added tokens first); NOT_FOUND when there is none."""

    afmoe_chat_options_init: Callable[..., None]
    """afmoe_chat_options_init(options, size)"""

    afmoe_chat_tokenize: Callable[..., int]
    r"""afmoe_chat_tokenize(model, roles, contents, n_messages, options, out, capacity, out_n, error)

    Messages to token ids in ChatML: <|im_start|>ROLE\nCONTENT<|im_end|>\n for each. Roles are NUL-terminated.
    Only the template's own text yields control tokens; roles and contents never do. UNSUPPORTED where the
    vocabulary has no <|im_start|> and <|im_end|>."""

    afmoe_stream_decoder_create: Callable[..., int]
    """afmoe_stream_decoder_create(out, model, skip_special, error)

    `skip_special` as in afmoe_detokenize. Holds a reference on the model."""

    afmoe_stream_decoder_free: Callable[..., None]
    """afmoe_stream_decoder_free(decoder)"""

    afmoe_stream_decoder_push: Callable[..., int]
    """afmoe_stream_decoder_push(decoder, token, out_text, out_n, error)

    Add one token; the text that is complete now (may be empty), borrowed until the decoder's next call. Bytes
    that cannot become valid UTF-8 come out as U+FFFD."""

    afmoe_stream_decoder_finish: Callable[..., int]
    """afmoe_stream_decoder_finish(decoder, out_text, out_n, error)

    The end: what was held back, as U+FFFD. The decoder starts afresh."""

    afmoe_cpu_level: Callable[..., int]
    """afmoe_cpu_level()

    The highest level this CPU and operating system allow."""

    afmoe_cpu_level_name: Callable[..., bytes]
    """afmoe_cpu_level_name(level)

    "c", "avx2", ...; "unknown" for other values. Static."""

    afmoe_context_options_init: Callable[..., None]
    """afmoe_context_options_init(options, size)"""

    afmoe_context_create: Callable[..., int]
    """afmoe_context_create(out, model, options, error)

    Make a context. STATE when the model was opened without weights. Worker threads start here (n_threads - 1:
    the calling thread works too) and sleep when idle.

    With `prefix_folder` what a session holds when it is freed, from 64 tokens on, is written there as a state,
    before the free returns: it takes what afmoe_session_save takes but does not wait for the disk; tokens that
    lie there already cost nothing. When a session without tokens begins (append, sync, step, a request), the
    files with its first 64 tokens are looked at, and the one that holds the longest beginning it can go on from
    is read, if that is longer than what prefix_bytes has. A file serves tokens that go on where it ends, or
    leave it at most rewind_tokens before. The result has the bits it would have anyway. What was used longest
    ago is removed first. Any number of contexts and processes may share a folder; files of other models,
    precisions, cells or versions are left alone and not counted. A file that is gone, damaged or cannot be
    written is no failure of any call: afmoe_context_info counts these.

    The conversations lie there in the clear. A folder that is not there is made for its owner alone; one that is
    must belong to the process's user and be closed to all others (INVALID), for who can write to it decides what
    sessions remember. NOT_FOUND: the folder above is not there. IO: it cannot be written to. UNSUPPORTED: this
    build has no "state".

    Threads do not survive fork: in the child, calls on the context and its sessions answer STATE, and freeing
    them works (memory of a session that another thread was computing on stays allocated there)."""

    afmoe_context_free: Callable[..., None]
    """afmoe_context_free(context)"""

    afmoe_context_info_init: Callable[..., None]
    """afmoe_context_info_init(info, size)"""

    afmoe_context_get_info: Callable[..., int]
    """afmoe_context_get_info(context, info, error)

    What was chosen at create, and the memory held now."""

    afmoe_memory_init: Callable[..., None]
    """afmoe_memory_init(memory, size)"""

    afmoe_estimate: Callable[..., int]
    """afmoe_estimate(path, model_options, context_options, n_sessions, n_tokens, out, error)

    What it would take to open `path`, make one context, and have n_sessions sessions with n_tokens each. Reads
    headers and tokenizer, no weights; nothing stays open. Options as for the calls meant (NULL: the defaults).

    Failures as in afmoe_model_open and afmoe_context_create. CONTEXT_FULL: max_tokens or max_page_bytes do not
    allow that much. STATE: tokenizer_only or inspect_only."""

    afmoe_context_get_memory: Callable[..., int]
    """afmoe_context_get_memory(context, out, error)

    What the context, its model and its sessions take now. A model shared by contexts is counted in each."""

    afmoe_session_create: Callable[..., int]
    """afmoe_session_create(out, context, error)

    An empty timeline. Memory comes with its tokens."""

    afmoe_session_free: Callable[..., None]
    """afmoe_session_free(session)"""

    afmoe_session_fork: Callable[..., int]
    """afmoe_session_fork(out, session, error)

    A second session in the same context, with the same timeline and logits: it can be sampled from at once, and
    both go on on their own. Nothing is computed and no key/value page is copied: the two share the pages there
    are, and the first to append behind the common end copies at most one page of each layer. Statistics begin at
    zero.

    A shared page counts once in max_page_bytes, afmoe_context_info.page_bytes and afmoe_memory.pages, and in
    afmoe_session_stats.page_bytes of each session that has it."""

    afmoe_append_options_init: Callable[..., None]
    """afmoe_append_options_init(options, size)"""

    afmoe_append_result_init: Callable[..., None]
    """afmoe_append_result_init(result, size)"""

    afmoe_session_append: Callable[..., int]
    """afmoe_session_append(session, tokens, n_tokens, options, result, error)

    Extend the timeline by n tokens and leave the logits of the last one.

    INVALID: an id outside the vocabulary; nothing was changed. CONTEXT_FULL: no room for all n; nothing was
    changed. STATE: the log-probability of the first token is asked for and the logits before it are gone;
    nothing was changed. CANCELLED: whole chunks computed so far are kept, result->n_tokens says how many; if
    there is one, logits are gone until the next append. NO_MEMORY: as CANCELLED. n = 0 does nothing."""

    afmoe_session_sync: Callable[..., int]
    """afmoe_session_sync(session, tokens, n_tokens, options, result, error)

    Make the timeline equal these n tokens, keeping the common prefix, and leave the logits of the last one.

    The same tokens again cost nothing. When the timeline must go back further than the pages held allow
    (rewind_tokens), reading starts again at the last snapshot before (snapshot_bytes), else at the beginning:
    n_reused says where. Options as in append, but ranges and positions may lie anywhere in the n tokens: kept
    tokens they need are computed again. Failures as in append; CANCELLED and NO_MEMORY may leave less than was
    there before, result->n_tokens says how much."""

    afmoe_session_rewind: Callable[..., int]
    """afmoe_session_rewind(session, n_tokens, options, result, error)

    Drop all tokens from position n_tokens on (INVALID when there are fewer). Free while the pages needed are
    held; else the kept tokens are computed again from the last snapshot before, or the start, and the result
    says so; CANCELLED or NO_MEMORY may leave less of them then. Logits are gone until the next append, unless
    nothing was dropped."""

    afmoe_session_shift: Callable[..., int]
    """afmoe_session_shift(session, n_keep, n_drop, out_dropped, error)

    Make room in a session that is full: the full layers forget. Of the tokens they see, the first n_keep stay
    (say, a system prompt), the n_drop oldest after these go. The memory of their keys and values is the
    context's again, where no other session shares it. This never happens unless asked for.

    Only whole pages of 64 tokens go: n_keep and n_drop are rounded up to such, and out_dropped (may be NULL)
    gets the tokens dropped. INVALID, with the numbers: there are not as many whole pages. n_drop = 0 does
    nothing. NO_MEMORY. On failure nothing has changed and out_dropped is 0.

    Nothing is computed, and what was computed stays: the tokens, n_tokens, the logits, the last window of the
    sliding layers. Positions run on, also past max_positions of the model, as only sliding layers know them and
    look no further than a window. max_tokens counts what was not dropped. What comes next is computed with less
    to look at: it differs from what it would be with all tokens, and also from a new session with the tokens
    kept; docs/model.md says by how much. From there on:

    append, generate go on; the same tokens and shifts give the same bits, whatever the chunks and threads sync,
    embed compare with all tokens, also those dropped: the same again cost nothing going back to a place behind
    all that was dropped is as free as ever; tokens read again from a snapshot there see what is left. Further
    back, or where there is no such snapshot, the timeline is read again from before what was dropped, whole, as
    n_reused and n_computed say: the shift is undone. CONTEXT_FULL, nothing changed, when these are more tokens
    than max_tokens fork, save, load give a session that is shifted likewise a freed session leaves to
    prefix_bytes and prefix_folder at most what comes before the first token dropped

    The session keeps its tokens: each one dropped goes on to take 4 bytes, and 8 bytes a layer for every 64.
    With rope of kind DYNAMIC a timeline ends at max_positions in any case."""

    afmoe_session_tokens: Callable[..., int]
    """afmoe_session_tokens(session, out, capacity, out_n, error)

    Tokens of the timeline, copied; out_n gets their number."""

    afmoe_session_logits: Callable[..., int]
    """afmoe_session_logits(session, out, capacity, out_n, error)

    Logits of the last position, copied: vocab_size floats. STATE when there are none."""

    afmoe_session_logits_view: Callable[..., int]
    """afmoe_session_logits_view(session, out, out_n, error)

    The same, borrowed until the session's next append, sync, rewind, shift, generate, load or free, or the next
    piece of a generation."""

    afmoe_session_logprobs: Callable[..., int]
    """afmoe_session_logprobs(session, out, capacity, out_n, error)

    Natural log-probabilities of the last position (log softmax of the raw logits), vocab_size floats. NUMERIC
    when a logit is NaN or none is finite."""

    afmoe_session_hidden: Callable[..., int]
    """afmoe_session_hidden(session, out, capacity, out_n, error)

    Final hidden state (after the last norm) of the last position, hidden_size floats."""

    afmoe_step_item_init: Callable[..., None]
    """afmoe_step_item_init(item, size)"""

    afmoe_step_options_init: Callable[..., None]
    """afmoe_step_options_init(options, size)"""

    afmoe_context_step: Callable[..., int]
    """afmoe_context_step(context, items, n_items, options, error)

    Append to several sessions of one context together: prompts, single tokens, any mix. The weights are read
    once for all, and every session gets the bits it would get alone.

    The items lie one after the other, items[0].size bytes apart. A pass computes at most chunk_tokens tokens:
    the items with few are done first, the others share the room evenly. Each item is an append of its own, with
    its own failures: one that fails (BUSY, INVALID, CONTEXT_FULL, ...; INVALID also for a session of another
    context, BUSY for one listed twice) or is cancelled leaves, and the others are computed as if it had not been
    there. After a cancelled item the pass in progress is made again without it.

    Returns OK, or the status and text of the first item in the list that is not OK. INVALID before anything is
    changed: a size that is not that of items[0]."""

    afmoe_session_embed: Callable[..., int]
    """afmoe_session_embed(session, tokens, n_tokens, pooling, normalize, cancel, out, capacity, out_n, error)

    A text as one vector: make the timeline equal these tokens (at least one) and pool their final hidden states
    (after the last norm) into hidden_size floats; `normalize` 1 scales the vector to length 1. For one vector a
    token use out_hidden of append.

    No logits are computed and none are left. LAST reuses a common prefix as sync does, MEAN computes all tokens.
    CANCELLED: whole chunks are kept, as in append. NUMERIC: the vector is not finite, or zero and cannot be
    normalized. On failure `out` is left alone."""

    afmoe_session_stats_init: Callable[..., None]
    """afmoe_session_stats_init(stats, size)"""

    afmoe_session_get_stats: Callable[..., int]
    """afmoe_session_get_stats(session, stats, error)

    Counted since the session was created."""

    afmoe_session_save: Callable[..., int]
    """afmoe_session_save(session, path, error)

    Save the session to a file: its tokens, their keys and values as far as they are still held, and the logits
    of the last position. Loaded again, also by another process, it goes on to the same bits and, synced to the
    same tokens, computes nothing. The file replaces an old one as a whole: whatever happens, also to the process
    or the machine, the old file or the new one is there. Only its owner may read it: a conversation lies in it,
    in the clear. A process that dies on the way leaves a file ".afmoe-*.tmp" beside it.

    NOT_FOUND: no such folder. INVALID: `path` is there and not a regular file (links are not followed). IO: with
    errno, e.g. a full disk. UNSUPPORTED: this build has no "state" (afmoe_build_features)."""

    afmoe_session_load: Callable[..., int]
    """afmoe_session_load(session, path, error)

    Make the session what was saved; what it was before goes. The state must be of the same model (told by its
    shape, the names and shapes of its tensors and samples of their bytes), precision and cells. Levels and
    compilers may differ by rounding in what is computed from now on. Everything is read and checked first: on
    failure nothing has changed.

    Files may come from anywhere: FORMAT, TRUNCATED, UNSUPPORTED (a later version), CORRUPT (a checksum) and
    STATE (of another model or other options; the message names both) as they say. NOT_FOUND, IO. CONTEXT_FULL:
    longer than max_tokens, or max_page_bytes has no room for old and new together; rewind to 0 first. NO_MEMORY."""

    afmoe_session_save_memory: Callable[..., int]
    """afmoe_session_save_memory(session, out, capacity, out_n, error)

    The same into memory. A NULL buffer with capacity 0 asks for the bytes needed: those of the file."""

    afmoe_session_load_memory: Callable[..., int]
    """afmoe_session_load_memory(session, data, n_bytes, error)

    The same from memory, any alignment, all n_bytes of it."""

    afmoe_sampler_options_init: Callable[..., None]
    """afmoe_sampler_options_init(options, size)

    Library defaults: greedy."""

    afmoe_model_sampler_options: Callable[..., int]
    """afmoe_model_sampler_options(model, options, error)

    Library defaults, then what the checkpoint's generation_config.json recommends, where it has one."""

    afmoe_sampler_create: Callable[..., int]
    """afmoe_sampler_create(out, model, options, error)

    Holds a reference on the model."""

    afmoe_sampler_free: Callable[..., None]
    """afmoe_sampler_free(sampler)"""

    afmoe_sampler_sample: Callable[..., int]
    """afmoe_sampler_sample(sampler, session, n_prompt, out_token, out_logprob, error)

    Choose the next token from the session's logits (they are not changed). The first n_prompt tokens of the
    timeline count as prompt for the penalties, the rest as generated. NUMERIC when a logit is NaN, or none is
    left. out_logprob (may be NULL): its natural log-probability in the raw distribution."""

    afmoe_sampler_sample_logits: Callable[..., int]
    """afmoe_sampler_sample_logits(sampler, logits, n_logits, history, n_history, n_prompt, out_token, out_logprob,
    error)

    The same on the caller's logits: vocab_size floats; `history` is the timeline so far; the draw is that of
    position n_history."""

    afmoe_session_top_logprobs: Callable[..., int]
    """afmoe_session_top_logprobs(session, out_tokens, out_logprobs, k, out_n, error)

    The k most likely tokens of the last position in the raw distribution, falling; ties by lower id. Rows
    without a token are left out. k = capacity of both buffers; out_n gets how many there are."""

    afmoe_piece_init: Callable[..., None]
    """afmoe_piece_init(piece, size)"""

    afmoe_generate_options_init: Callable[..., None]
    """afmoe_generate_options_init(options, size)"""

    afmoe_generate_result_init: Callable[..., None]
    """afmoe_generate_result_init(result, size)"""

    afmoe_generate: Callable[..., int]
    """afmoe_generate(session, sampler, options, result, error)

    Sample, append and give out text until something stops. Starts from the session's logits (STATE without
    them).

    `sampler` NULL: greedy. Every token given out is in the timeline, and the logits of the last one are there,
    so the next call goes on. Returns END when a stop token or stop string ended it, OK when max_tokens did,
    CANCELLED, CONTEXT_FULL (all tokens so far kept), NUMERIC, NO_MEMORY."""

    afmoe_generation_create: Callable[..., int]
    """afmoe_generation_create(out, session, sampler, options, error)

    Begin at the session's logits (STATE without them); the first token is computed by the first next. `sampler`
    and `options` as in afmoe_generate, but on_piece must be NULL. Options are copied with all they point to;
    session, sampler and cancel object are referenced, so any of them may be freed before the generation.

    Between two pieces the session may be looked at, saved and forked, and the sampler used. What may change the
    session (append, sync, rewind, embed, load, a step, a request, afmoe_generate, another generation), well or
    not, takes it away: next then answers STATE."""

    afmoe_generation_free: Callable[..., None]
    """afmoe_generation_free(generation)

    Free it at any time: the session keeps the tokens given out, and its logits."""

    afmoe_generation_next: Callable[..., int]
    """afmoe_generation_next(generation, piece, error)

    The next piece; what it points to is borrowed until the generation's next call of next or free. After the
    last piece: END when a stop token, a stop string or max_tokens ended it (the result says which), CANCELLED,
    CONTEXT_FULL, NUMERIC, NO_MEMORY as in afmoe_generate, with all tokens so far kept; from then on the same
    again. BUSY (generation, session or sampler) ends nothing."""

    afmoe_generation_get_result: Callable[..., int]
    """afmoe_generation_get_result(generation, result, error)

    What it came to so far: finish_reason is AFMOE_FINISH_NONE until next has said that it ended."""

    afmoe_scheduler_options_init: Callable[..., None]
    """afmoe_scheduler_options_init(options, size)"""

    afmoe_request_init: Callable[..., None]
    """afmoe_request_init(request, size)"""

    afmoe_scheduler_create: Callable[..., int]
    """afmoe_scheduler_create(out, context, options, error)

    Holds a reference on the context."""

    afmoe_scheduler_free: Callable[..., None]
    """afmoe_scheduler_free(scheduler)

    Requests that are not done end as CANCELLED. In a child of fork they are the parent's: sessions and samplers
    are let go, and on_done is not called."""

    afmoe_scheduler_submit: Callable[..., int]
    """afmoe_scheduler_submit(scheduler, request, error)

    Put a request in line; callable from any thread, also while another is in step or run. LIMIT: max_waiting are
    waiting. INVALID, UNSUPPORTED, STATE, BUSY: as afmoe_generate would answer. On failure nothing is kept and
    on_done is not called."""

    afmoe_scheduler_step: Callable[..., int]
    """afmoe_scheduler_step(scheduler, error)

    One pass: the next token of every answer, and a part of the prompts that are being read; callbacks are called
    on the way. END when nothing is left to do, else OK. What happens to a request is told to its on_done only. A
    request whose prompt finds no room for its pages waits until running ones are done."""

    afmoe_scheduler_run: Callable[..., int]
    """afmoe_scheduler_run(scheduler, error)

    Steps until nothing is left to do: OK then."""

    afmoe_scheduler_info_init: Callable[..., None]
    """afmoe_scheduler_info_init(info, size)"""

    afmoe_scheduler_get_info: Callable[..., int]
    """afmoe_scheduler_get_info(scheduler, info, error)

    Callable from any thread."""
