/* afmoe.h - run Arcee Trinity (AFMoE) language models inside your program.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 * Three nouns:
 *   model    weights, configuration and tokenizer of one checkpoint; immutable, shared by any number of threads
 *   context  what it takes to compute: worker threads, scratch memory, key/value pages, precision
 *   session  one timeline of tokens with its keys and values
 *
 * The shortest complete use (every call returns an afmoe_status; checks left out):
 *
 *     afmoe_error error; afmoe_error_init(&error, sizeof error);
 *     afmoe_generate_options options; afmoe_generate_options_init(&options, sizeof options);
 *     options.on_piece = print;                                    // gets the text
 *     afmoe_model *model; afmoe_context *context; afmoe_session *session;
 *     afmoe_model_open(&model, "trinity.gguf", NULL, &error);
 *     afmoe_context_create(&context, model, NULL, &error);
 *     afmoe_session_create(&session, context, &error);
 *     afmoe_token ids[512]; uint64_t n;
 *     afmoe_tokenize(model, "Once upon a time", 16, NULL, ids, 512, &n, &error);
 *     afmoe_session_append(session, ids, n, NULL, NULL, &error);
 *     afmoe_generate(session, NULL, &options, NULL, &error);
 *     afmoe_session_free(session); afmoe_context_free(context); afmoe_model_free(model);
 *
 * Rules that hold for every call, so the comments below name only exceptions:
 *   Status     0 is good, positive is good with a remark, negative is a failure. Values never change meaning.
 *   Errors     the last argument is the caller's afmoe_error, may be NULL; it gets the text on failure only.
 *   Ownership  an object handed out through a first argument `X **out` belongs to the caller, who frees it with
 *              afmoe_X_free (NULL is fine). A pointer returned otherwise is borrowed; its comment says how long it
 *              lives. Arguments are read during the call only, never kept, unless said.
 *   Order      a context holds a reference on its model, a session on its context, a generation on its session: free
 *              them in any order.
 *   Structs    begin with `size`, the caller's sizeof. X_init(&x, sizeof x) sets it and all defaults, within that size;
 *              a NULL options pointer means these defaults. Zero has no second meaning. Structs only ever grow at the
 *              end: one smaller than this header's (an older caller) gets the defaults for what it lacks; a larger one
 *              is accepted when the unknown tail is zero and answers AFMOE_UNSUPPORTED otherwise. A size that cuts a
 *              field is AFMOE_INVALID. For structs that come out, set `size` before the call: only what fits is
 *              written.
 *   Strings    are UTF-8 with an explicit length in bytes where any byte may occur, else NUL-terminated.
 *   Buffers    when one is too small: AFMOE_CAPACITY, the needed count in *out_n, nothing else written. A NULL buffer
 *              with capacity 0 asks for the count. out_n may be NULL where a buffer stands beside it.
 *   Threads    see the table; "one caller" means a second concurrent caller gets AFMOE_BUSY, never a race.
 *
 *     model, version, status names        any number of threads at once
 *     context                             any number; calls on its different sessions take turns in arrival order
 *     session, sampler, stream decoder,   one caller at a time
 *     generation
 *     scheduler                           submit and get_info any thread; step and run one caller at a time
 *     cancel                              any thread, also a signal handler (afmoe_cancel_set only)
 *     callbacks                           run on the calling thread, before the call returns. Non-zero = stop: the call
 *                                         returns AFMOE_CANCELLED. A call into the same session from inside a callback
 *                                         answers AFMOE_BUSY; freeing it inside is deferred to the end of the call.
 *
 * The library never aborts, exits, prints, installs signal handlers or changes global state. */
#ifndef AFMOE_H
#define AFMOE_H

#include <stdint.h>

#if defined(__GNUC__) && !defined(_WIN32)
#define AFMOE_API __attribute__((visibility("default")))
#else
#define AFMOE_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Version, status, errors ------------------------------------------------------------------------------------ */

enum { AFMOE_VERSION_MAJOR = 0, AFMOE_VERSION_MINOR = 1, AFMOE_VERSION_PATCH = 0 };

/** Version of the library at run time: major * 1000000 + minor * 1000 + patch. */
AFMOE_API uint32_t afmoe_version(void);

/** "0.1.0". Static. */
AFMOE_API const char *afmoe_version_string(void);

/** What this build has, as words separated by spaces, e.g. "c avx2 state formats:F32,F16,BF16,Q8_0": "state" where
 *  sessions can be saved. Static. */
AFMOE_API const char *afmoe_build_features(void);

typedef int32_t afmoe_status;
enum {
    AFMOE_OK = 0,
    AFMOE_END = 1,            /* nothing more: end of text, stop token or stop string */
    AFMOE_INVALID = -1,       /* an argument outside its stated range; the message names the range */
    AFMOE_NO_MEMORY = -2,     /* out of memory */
    AFMOE_IO = -3,            /* the system reported a failure; errno is in the message */
    AFMOE_NOT_FOUND = -4,     /* no such file, or a folder without the file needed */
    AFMOE_FORMAT = -5,        /* malformed input */
    AFMOE_TRUNCATED = -6,     /* input ends early */
    AFMOE_LIMIT = -7,         /* over a stated cap */
    AFMOE_CORRUPT = -8,       /* a checksum does not match */
    AFMOE_UNSUPPORTED = -9,   /* well formed, but not supported; the message says why */
    AFMOE_BUSY = -10,         /* another caller is using this object */
    AFMOE_CANCELLED = -11,    /* stopped by a cancel object or a callback; what was kept is reported */
    AFMOE_CONTEXT_FULL = -12, /* a session or page limit is reached; calls that append change nothing then */
    AFMOE_CAPACITY = -13,     /* the caller's buffer is too small; the needed count was given */
    AFMOE_STATE = -14,        /* the object does not fit this use (e.g. no weights, no logits yet) */
    AFMOE_NUMERIC = -15,      /* NaN or infinity where a number is needed */
    AFMOE_INTERNAL = -16      /* a broken invariant; please report it */
};

/** "AFMOE_OK", "AFMOE_INVALID", ...; "AFMOE_UNKNOWN" for other values. Static. */
AFMOE_API const char *afmoe_status_name(afmoe_status status);

/** Text of a failure. The caller sets `size` (sizeof) once; code and message are written on failure only. */
typedef struct afmoe_error {
    uint32_t size;
    int32_t code;      /* the status returned */
    char message[504]; /* NUL-terminated, one line */
} afmoe_error;

AFMOE_API void afmoe_error_init(afmoe_error *error, uint32_t size);

enum { AFMOE_LOG_INFO = 0, AFMOE_LOG_WARNING = 1 };

/** Receives one line of text (borrowed for the call). There is no global log: objects take it in their options. */
typedef void (*afmoe_log_fn)(void *user_data, int32_t level, const char *message);

/** Progress of a long call: `done` of `total` units (tokens, bytes). Non-zero stops the call with AFMOE_CANCELLED. */
typedef int32_t (*afmoe_progress_fn)(void *user_data, uint64_t done, uint64_t total);

/* ---- Cancel ----------------------------------------------------------------------------------------------------- */

/** A flag that stops calls it was given to. Reference counted; create gives one reference. */
typedef struct afmoe_cancel afmoe_cancel;

/** A new flag, not set. */
AFMOE_API afmoe_status afmoe_cancel_create(afmoe_cancel **out, afmoe_error *error);
AFMOE_API void afmoe_cancel_retain(afmoe_cancel *cancel);
/** Drop a reference; the last one frees it. */
AFMOE_API void afmoe_cancel_free(afmoe_cancel *cancel);
/** Stop every call this object was passed to, now and later, until afmoe_cancel_clear. Safe in signal handlers. */
AFMOE_API void afmoe_cancel_set(afmoe_cancel *cancel);
/** Take the flag down: calls made from now on run. */
AFMOE_API void afmoe_cancel_clear(afmoe_cancel *cancel);
/** 1 when set, else 0. */
AFMOE_API int32_t afmoe_cancel_is_set(const afmoe_cancel *cancel);

/* ---- Model ------------------------------------------------------------------------------------------------------ */

typedef struct afmoe_model afmoe_model;

/** A token id. Valid ids are 0 <= id < vocab_size; -1 means "none" where said. */
typedef int32_t afmoe_token;

enum {
    AFMOE_LOAD_MAP = 0, /* weights stay in the mapped file; the system shares and drops its pages */
    AFMOE_LOAD_READ = 1 /* weights are read into private memory: what goes wrong with the file is a status */
};

typedef struct afmoe_model_options {
    uint32_t size;
    int32_t tokenizer_only;  /* 1: open the tokenizer, no weights; compute calls then answer STATE. Default 0 */
    int32_t strict;          /* 1: surplus tensors are an error instead of a warning. Default 0 */
    int32_t reserved;        /* 0 */
    uint64_t max_json_bytes; /* cap for one JSON document. 1..2^30, default 33554432 (32 MiB) */
    afmoe_log_fn log;        /* warnings while opening. Default NULL */
    void *log_data;
    int32_t load;            /* AFMOE_LOAD_*, default MAP. With READ a failing disk or a file that became shorter is
                                IO or TRUNCATED, never a signal, and later changes of the file do not matter */
    int32_t lock;            /* 1: keep the weights in memory (mlock), with either load. Where the system does not allow
                                it: IO, with the limit. Default 0 */
    afmoe_progress_fn progress; /* bytes of weights read or locked, every few MiB; not called when neither happens.
                                   Default NULL */
    void *progress_data;
    const afmoe_cancel *cancel; /* looked at as often. Default NULL */
    int32_t inspect_only;    /* 1: read the configuration, the list of tensors and the tokenizer, but use no weights:
                                tensors may have any format, be missing or surplus; compute calls then answer STATE.
                                Not together with tokenizer_only. Default 0 */
    int32_t reserved_2;      /* 0 */
} afmoe_model_options;

AFMOE_API void afmoe_model_options_init(afmoe_model_options *options, uint32_t size);

/** Open a checkpoint.
 *
 *  `path` is a GGUF file (v2, v3); a folder with config.json and model.safetensors or model.safetensors.index.json
 *  (tokenizer.json and generation_config.json are read where they are); or, with tokenizer_only, also a
 *  tokenizer.json. Unless the options say otherwise weights stay in the mapped file, only headers are read here, and
 *  the files must not change while the model is open.
 *
 *  NOT_FOUND, IO, FORMAT, TRUNCATED, LIMIT, UNSUPPORTED: the message names the file and the key or tensor. CANCELLED:
 *  by cancel or progress; nothing is left behind. */
AFMOE_API afmoe_status afmoe_model_open(afmoe_model **out, const char *path, const afmoe_model_options *options,
                                        afmoe_error *error);

/** Open a GGUF file (with tokenizer_only also a tokenizer.json) that is a part of a larger file: `length` bytes from
 *  `offset` on, which needs no alignment; 2^64-1: all up to the end. The descriptor is duplicated: close it when you
 *  like; its position is neither used nor changed.
 *
 *  Failures as in open. INVALID: fd is negative. IO: it is not open for reading. FORMAT: not a regular file.
 *  TRUNCATED: the file does not hold that range. UNSUPPORTED: safetensors, which need the other files of their
 *  folder. */
AFMOE_API afmoe_status afmoe_model_open_fd(afmoe_model **out, int32_t fd, uint64_t offset, uint64_t length,
                                           const afmoe_model_options *options, afmoe_error *error);

/** Takes borrowed memory back: nothing of the library refers to it any more. */
typedef void (*afmoe_release_fn)(void *user_data);

/** The same from memory, any alignment. The n_bytes are borrowed and must not change until the last reference of the
 *  model goes; then release(release_data) is called once, on the thread that dropped it (NULL: nobody is told). When
 *  the call fails the memory was not taken and release is not called. With READ a copy is used, and changes do not
 *  matter; `lock` without READ is UNSUPPORTED: the pages are yours to lock. */
AFMOE_API afmoe_status afmoe_model_open_memory(afmoe_model **out, const void *data, uint64_t n_bytes,
                                               afmoe_release_fn release, void *release_data,
                                               const afmoe_model_options *options, afmoe_error *error);

/** Add a reference; every retain needs one more free. */
AFMOE_API void afmoe_model_retain(afmoe_model *model);
/** Drop a reference; the last one unmaps the files. */
AFMOE_API void afmoe_model_free(afmoe_model *model);

enum { AFMOE_CONTAINER_SAFETENSORS = 1, AFMOE_CONTAINER_GGUF = 2, AFMOE_CONTAINER_TOKENIZER = 3 };
enum { AFMOE_LAYOUT_NONE = 0, AFMOE_LAYOUT_HUB = 1, AFMOE_LAYOUT_STACKED = 2, AFMOE_LAYOUT_PRIME_RL = 3,
       AFMOE_LAYOUT_GGUF = 4 };

enum { AFMOE_SCORE_SIGMOID = 1, AFMOE_SCORE_SOFTMAX = 2 };
enum { AFMOE_ROPE_DEFAULT = 1, AFMOE_ROPE_LINEAR = 2, AFMOE_ROPE_DYNAMIC = 3, AFMOE_ROPE_LLAMA3 = 4,
       AFMOE_ROPE_YARN = 5 };

/** What concerns layers is 0 with tokenizer_only. */
typedef struct afmoe_model_info {
    uint32_t size;
    int32_t container;             /* AFMOE_CONTAINER_* */
    int32_t layout;                /* AFMOE_LAYOUT_*: how tensors are named; NONE without weights */
    int32_t has_weights;
    int32_t has_tokenizer;
    int32_t add_bos;               /* the file asks for bos before raw text; afmoe_tokenize itself never adds it */
    afmoe_token bos_token;         /* -1: none */
    afmoe_token eos_token;         /* -1: none */
    afmoe_token pad_token;         /* -1: none */
    uint32_t n_layers;
    uint32_t n_dense_layers;
    uint32_t n_full_layers;        /* layers with full attention */
    uint32_t n_heads;
    uint32_t n_kv_heads;
    uint32_t head_dim;
    uint32_t n_experts;
    uint32_t n_experts_per_token;
    uint32_t n_shared_experts;
    uint32_t sliding_window;       /* keys seen in sliding layers, the query's own included */
    int32_t reserved;              /* 0 */
    uint64_t vocab_size;           /* rows of the output, also the number of logits; without weights: tokens */
    uint64_t n_tokens;             /* tokens the tokenizer has; 0 without one */
    uint64_t hidden_size;
    uint64_t max_positions;        /* longest timeline the model was made for */
    uint64_t n_parameters;         /* elements of all tensors used; with inspect_only: of all */
    uint64_t weight_bytes;         /* bytes of all tensors used; with inspect_only: of all */
    uint64_t intermediate_size;    /* width of the feed-forward half of dense layers */
    uint64_t moe_intermediate_size; /* of one expert */
    uint32_t n_groups;             /* experts are chosen in two steps when more than 1: groups, then experts in them */
    uint32_t n_groups_chosen;
    int32_t score_function;        /* AFMOE_SCORE_*: of the router */
    int32_t route_norm;            /* 1: the weights of the chosen experts are made to sum to 1 */
    float route_scale;             /* factor on them */
    float rms_norm_eps;
    int32_t mup_enabled;           /* 1: embeddings are scaled by the root of hidden_size */
    int32_t tied_embeddings;       /* 1: the output uses the embedding's weights */
    int32_t attention_bias;
    int32_t rope_kind;             /* AFMOE_ROPE_*; only sliding layers rotate */
    float rope_theta;
    float rope_factor;             /* 1 for DEFAULT */
    uint64_t rope_original_positions; /* LLAMA3 and YARN: what the model was trained for first; else 0 */
} afmoe_model_info;

AFMOE_API void afmoe_model_info_init(afmoe_model_info *info, uint32_t size);
/** What the checkpoint is: read at open, never changes. */
AFMOE_API afmoe_status afmoe_model_get_info(const afmoe_model *model, afmoe_model_info *info, afmoe_error *error);

/** 1 where the layer sees all positions, 0 where it slides. INVALID for a layer the model does not have. */
AFMOE_API afmoe_status afmoe_model_layer_is_full(const afmoe_model *model, uint32_t layer, int32_t *out,
                                                 afmoe_error *error);

/** One tensor of the files. Names live as long as the model. */
typedef struct afmoe_tensor_info {
    uint32_t size;
    uint32_t n_dims;       /* 0..8 */
    uint64_t shape[8];     /* slowest first: rows before columns, whatever the file's own order; the rest 0 */
    const char *name;
    const char *format;    /* as the file spells it: "Q8_0", "BF16" */
    const char *file;      /* without folders */
    uint64_t file_offset;  /* of the first byte */
    uint64_t n_bytes;
    uint64_t n_elements;
    int32_t is_supported;  /* 1: this version computes with the format, in a matrix at least */
    int32_t is_used;       /* 1: part of the model, 0: surplus, -1: not known (inspect_only) */
} afmoe_tensor_info;

AFMOE_API void afmoe_tensor_info_init(afmoe_tensor_info *info, uint32_t size);
/** How many tensors the files have; 0 with tokenizer_only and for NULL. */
AFMOE_API uint64_t afmoe_model_n_tensors(const afmoe_model *model);
/** The tensors by name, rising in bytes: 0 <= index < afmoe_model_n_tensors. */
AFMOE_API afmoe_status afmoe_model_get_tensor(const afmoe_model *model, uint64_t index, afmoe_tensor_info *info,
                                              afmoe_error *error);

/** The chat template the checkpoint brings (Jinja), for the caller to read: the library does not run it. Borrowed, not
 *  NUL-terminated, lives as long as the model; bytes as they are in the file. NOT_FOUND when there is none. */
AFMOE_API afmoe_status afmoe_model_chat_template(const afmoe_model *model, const char **out_text, uint64_t *out_n,
                                                 afmoe_error *error);

/** The model's stop set: the eos ids of generation_config.json; without them the file's eos and, where the vocabulary
 *  has them, <|im_end|> and <|end_of_text|>. */
AFMOE_API afmoe_status afmoe_model_stop_tokens(const afmoe_model *model, afmoe_token *out, uint64_t capacity,
                                               uint64_t *out_n, afmoe_error *error);

/* ---- Text ------------------------------------------------------------------------------------------------------- */

enum {
    AFMOE_SPECIAL_ALL = 0,   /* added tokens (<|im_end|>, <think>, ...) are recognised everywhere */
    AFMOE_SPECIAL_NONE = 1,  /* nowhere: their text is ordinary text */
    AFMOE_SPECIAL_RANGES = 2 /* only where they lie wholly inside one of the given byte ranges */
};

typedef struct afmoe_tokenize_options {
    uint32_t size;
    int32_t special;                /* AFMOE_SPECIAL_*, default ALL. For text from users: NONE or RANGES */
    const uint64_t *special_ranges; /* n_special_ranges pairs (begin, end) of bytes, rising, not overlapping */
    uint64_t n_special_ranges;      /* default 0 */
    uint64_t max_text_bytes;        /* longer text answers LIMIT. Default 67108864 (64 MiB); a piece without a break
                                       takes about 32 bytes of memory for each of its bytes */
    const afmoe_cancel *cancel;     /* default NULL */
} afmoe_tokenize_options;

AFMOE_API void afmoe_tokenize_options_init(afmoe_tokenize_options *options, uint32_t size);

/** Text to token ids, in one pass over the whole text; nothing is added before or after. Any bytes are accepted:
 *  invalid UTF-8 becomes byte tokens. UNSUPPORTED when the model has no tokenizer or one of a kind not known (the model
 *  itself opens and computes; with tokenizer_only the open answers UNSUPPORTED). */
AFMOE_API afmoe_status afmoe_tokenize(const afmoe_model *model, const char *text, uint64_t text_bytes,
                                      const afmoe_tokenize_options *options, afmoe_token *out, uint64_t capacity,
                                      uint64_t *out_n, afmoe_error *error);

/** Token ids to bytes, not NUL-terminated. `skip_special` 1 leaves out tokens of kind CONTROL. Ids without a token
 *  give nothing; ids outside the vocabulary are INVALID. The bytes may be invalid UTF-8 (a token can be part of a
 *  character): a stream decoder repairs that. */
AFMOE_API afmoe_status afmoe_detokenize(const afmoe_model *model, const afmoe_token *tokens, uint64_t n_tokens,
                                        int32_t skip_special, char *out, uint64_t capacity, uint64_t *out_n,
                                        afmoe_error *error);

enum {
    AFMOE_TOKEN_NORMAL = 0,
    AFMOE_TOKEN_CONTROL = 1, /* added and special: <|im_end|> */
    AFMOE_TOKEN_ADDED = 2,   /* added, not special: <think> */
    AFMOE_TOKEN_UNUSED = 3   /* a row of the output without a token: never generated */
};

/** Bytes and kind of one token; `out_bytes` lives as long as the model. Each out pointer may be NULL. */
AFMOE_API afmoe_status afmoe_token_text(const afmoe_model *model, afmoe_token token, const char **out_bytes,
                                        uint64_t *out_n, int32_t *out_kind, afmoe_error *error);

/** The id of the token whose text is exactly these bytes (added tokens first); NOT_FOUND when there is none. */
AFMOE_API afmoe_status afmoe_token_find(const afmoe_model *model, const char *text, uint64_t text_bytes,
                                        afmoe_token *out, afmoe_error *error);

typedef struct afmoe_chat_options {
    uint32_t size;
    int32_t add_generation_prompt;  /* 1: end with <|im_start|>assistant\n, so that an answer follows. Default 1 */
    const uint64_t *content_bytes;  /* length of each content; default NULL: they are NUL-terminated */
    uint64_t max_text_bytes;        /* of all together; more answers LIMIT. Default 67108864 (64 MiB) */
    const afmoe_cancel *cancel;     /* default NULL */
} afmoe_chat_options;

AFMOE_API void afmoe_chat_options_init(afmoe_chat_options *options, uint32_t size);

/** Messages to token ids in ChatML: <|im_start|>ROLE\nCONTENT<|im_end|>\n for each. Roles are NUL-terminated. Only the
 *  template's own text yields control tokens; roles and contents never do. UNSUPPORTED where the vocabulary has no
 *  <|im_start|> and <|im_end|>. */
AFMOE_API afmoe_status afmoe_chat_tokenize(const afmoe_model *model, const char *const *roles,
                                           const char *const *contents, uint64_t n_messages,
                                           const afmoe_chat_options *options, afmoe_token *out, uint64_t capacity,
                                           uint64_t *out_n, afmoe_error *error);

/** Turns tokens into text piece by piece, giving whole code points only. */
typedef struct afmoe_stream_decoder afmoe_stream_decoder;

/** `skip_special` as in afmoe_detokenize. Holds a reference on the model. */
AFMOE_API afmoe_status afmoe_stream_decoder_create(afmoe_stream_decoder **out, afmoe_model *model,
                                                   int32_t skip_special, afmoe_error *error);
AFMOE_API void afmoe_stream_decoder_free(afmoe_stream_decoder *decoder);
/** Add one token; the text that is complete now (may be empty), borrowed until the decoder's next call. Bytes that
 *  cannot become valid UTF-8 come out as U+FFFD. */
AFMOE_API afmoe_status afmoe_stream_decoder_push(afmoe_stream_decoder *decoder, afmoe_token token,
                                                 const char **out_text, uint64_t *out_n, afmoe_error *error);
/** The end: what was held back, as U+FFFD. The decoder starts afresh. */
AFMOE_API afmoe_status afmoe_stream_decoder_finish(afmoe_stream_decoder *decoder, const char **out_text,
                                                   uint64_t *out_n, afmoe_error *error);

/* ---- Context ---------------------------------------------------------------------------------------------------- */

typedef struct afmoe_context afmoe_context;

/** CPU levels; each includes those before it, except that a CPU of level AVX512 or higher may lack AVXVNNI. What they
 *  need: afmoe_cpu_level_name and docs/architecture.md. */
enum {
    AFMOE_CPU_AUTO = -1,
    AFMOE_CPU_C = 0, /* plain C, the readable reference */
    AFMOE_CPU_AVX2 = 1,
    AFMOE_CPU_AVXVNNI = 2,
    AFMOE_CPU_AVX512 = 3,
    AFMOE_CPU_AVX512ICL = 4,
    AFMOE_CPU_AVX512BF16 = 5
};

/** The highest level this CPU and operating system allow. */
AFMOE_API int32_t afmoe_cpu_level(void);
/** "c", "avx2", ...; "unknown" for other values. Static. */
AFMOE_API const char *afmoe_cpu_level_name(int32_t level);

enum {
    AFMOE_PRECISION_EXACT = 1, /* float32 arithmetic on exactly decoded weights */
    AFMOE_PRECISION_FAST = 2   /* block formats are multiplied in whole numbers: activations are rounded to 8 bits, with
                                  a scale for every 32 (formats of blocks of 32 or 64) or 256 of them; at level
                                  AVX512BF16 BF16 is multiplied with activations rounded to bfloat16 */
};
enum {
    AFMOE_CELLS_AUTO = 0, /* F32 with EXACT, BF16 with FAST */
    AFMOE_CELLS_F32 = 1, /* keys and values as float32 */
    AFMOE_CELLS_F16 = 2, /* half the memory; see docs/model.md for the divergence measured */
    AFMOE_CELLS_BF16 = 3,
    AFMOE_CELLS_Q8_0 = 4 /* a good quarter of the memory: whole numbers of 8 bits, 32 of a head share a scale */
};

/** One piece of parallel work: what an afmoe_parallel_fn calls. */
typedef void (*afmoe_task_fn)(void *task_data, uint32_t worker);

/** The host's own parallel-for. Calls task(task_data, w) exactly once for every w < n_workers (n_workers is 2 to the
 *  context's n_threads), on any threads, side by side or one after another, and returns when all have returned: 0, or
 *  non-zero to stop: the computing call then answers CANCELLED, as with a cancel object. It runs on the thread that
 *  computes, and must not call into the same context. */
typedef int32_t (*afmoe_parallel_fn)(void *user_data, uint32_t n_workers, afmoe_task_fn task, void *task_data);

typedef struct afmoe_context_options {
    uint32_t size;
    int32_t n_threads;         /* 1..256, or -1: one per usable core (affinity and cgroup quota; with cpus, at most
                                  n_cpus). Default -1 */
    int32_t cpu_level;         /* AFMOE_CPU_*, default AUTO. One the CPU lacks is UNSUPPORTED */
    int32_t precision;         /* AFMOE_PRECISION_*, default FAST */
    int32_t cells;             /* AFMOE_CELLS_*, default AUTO */
    uint32_t chunk_tokens;     /* tokens computed together while reading a prompt. 1..4096, default 512 */
    uint64_t max_tokens;       /* longest timeline of a session, what a shift dropped not counted; 1..max_positions of
                                  the model. Default 2^64-1: 4096, or max_positions where that is less. Memory grows
                                  only as tokens come */
    uint64_t rewind_tokens;    /* how far back rewind and sync are free of recomputing. 0..2^32, default 256 */
    uint64_t max_page_bytes;   /* cap on key/value memory of all sessions together. Default 2^64-1 */
    afmoe_log_fn log;          /* default NULL */
    void *log_data;
    const int32_t *cpus;       /* worker thread i (1..n_threads - 1) runs on CPU cpus[i % n_cpus] only. The calling
                                  thread is worker 0 and left alone. A CPU this process may not use is INVALID.
                                  Default NULL: where the system puts them */
    uint64_t n_cpus;           /* default 0 */
    afmoe_parallel_fn parallel; /* the host's threads instead of ours: none are started, cpus is INVALID. Same bits.
                                  Default NULL */
    void *parallel_data;
    uint64_t snapshot_tokens;  /* going back further than rewind_tokens starts from the last snapshot before: one every
                                  so many tokens, rounded up to whole pages of 64. 64..2^32, default 1024 */
    uint64_t snapshot_bytes;   /* key/value memory for the snapshots of one session: as many as fit, on longer timelines
                                  at larger distances. One takes a window of the sliding layers (Nano: 88 MB with
                                  16-bit cells); where not one fits none is taken, and the log says so.
                                  Default 0: none */
    uint64_t prefix_bytes;     /* key/value memory that finished sessions may leave behind, so that a new one with the
                                  same beginning starts from there: append and sync of a session without tokens tell it
                                  by n_reused. It holds what rewind_tokens and snapshots hold, so a beginning that ends
                                  between these is used up to the snapshot before. What was used longest ago goes
                                  first, also where a session needs the room. Whoever shares a context can tell by time
                                  and n_reused what others have read. Default 0: none */
    const char *prefix_folder; /* a folder on disk for the same, see afmoe_context_create; copied. Default NULL: none */
    uint64_t prefix_folder_bytes; /* the most that may lie there for this model, precision and cells. Default 2^33 */
} afmoe_context_options;

AFMOE_API void afmoe_context_options_init(afmoe_context_options *options, uint32_t size);

/** Make a context. STATE when the model was opened without weights. Worker threads start here (n_threads - 1: the
 *  calling thread works too) and sleep when idle.
 *
 *  With `prefix_folder` what a session holds when it is freed, from 64 tokens on, is written there as a state, before
 *  the free returns: it takes what afmoe_session_save takes but does not wait for the disk; tokens that lie there
 *  already cost nothing. When a session without tokens begins (append, sync, step, a request), the files with its first
 *  64 tokens are looked at, and the one that holds the longest beginning it can go on from is read, if that is longer
 *  than what prefix_bytes has. A file serves tokens that go on where it ends, or leave it at most rewind_tokens before.
 *  The result has the bits it would have anyway. What was used longest ago is removed first. Any number of contexts and
 *  processes may share a folder; files of other models, precisions, cells or versions are left alone and not counted.
 *  A file that is gone, damaged or cannot be written is no failure of any call: afmoe_context_info counts these.
 *
 *  The conversations lie there in the clear. A folder that is not there is made for its owner alone; one that is must
 *  belong to the process's user and be closed to all others (INVALID), for who can write to it decides what sessions
 *  remember. NOT_FOUND: the folder above is not there. IO: it cannot be written to. UNSUPPORTED: this build has no
 *  "state".
 *
 *  Threads do not survive fork: in the child, calls on the context and its sessions answer STATE, and freeing them
 *  works (memory of a session that another thread was computing on stays allocated there). */
AFMOE_API afmoe_status afmoe_context_create(afmoe_context **out, afmoe_model *model,
                                            const afmoe_context_options *options, afmoe_error *error);
AFMOE_API void afmoe_context_free(afmoe_context *context);

typedef struct afmoe_context_info {
    uint32_t size;
    int32_t n_threads;       /* chosen */
    int32_t cpu_level;       /* level of the kernels used */
    int32_t precision;
    int32_t cells;
    uint32_t chunk_tokens;
    uint64_t max_tokens;
    uint64_t page_bytes;     /* key/value memory held now by all sessions and the free list */
    uint64_t scratch_bytes;  /* working memory held now */
    uint64_t n_prefix_files_read;    /* of prefix_folder, by sessions that began with one */
    uint64_t n_prefix_files_written;
    uint64_t n_prefix_files_failed;  /* not written, or damaged and therefore removed */
} afmoe_context_info;

AFMOE_API void afmoe_context_info_init(afmoe_context_info *info, uint32_t size);
/** What was chosen at create, and the memory held now. */
AFMOE_API afmoe_status afmoe_context_get_info(afmoe_context *context, afmoe_context_info *info, afmoe_error *error);

/* ---- Memory ----------------------------------------------------------------------------------------------------- */

/** Bytes by what they are for. Only weights_mapped belongs to files (or to the caller of afmoe_model_open_memory) and
 *  can be dropped and read again by the system; the others are private memory, and their sum is what a process grows
 *  by, but for some ten KiB a thread and what malloc keeps. */
typedef struct afmoe_memory {
    uint32_t size;
    int32_t reserved;
    uint64_t weights_mapped;  /* checkpoint files used where they lie */
    uint64_t weights_private; /* weights read or converted, tensor lists, tokenizer */
    uint64_t scratch;         /* working memory of the context */
    uint64_t pages;           /* keys and values, recycled pages included */
    uint64_t sessions;        /* tokens, last logits and page tables; in an estimate of sessions that never shift */
    uint64_t prefixes;        /* what finished sessions have left, pages that others share included and not in `pages`;
                                 in an estimate the most they may leave (prefix_bytes) */
    uint64_t drafts;          /* logits of tokens guessed ahead, held while an answer is made with max_draft
                                 (afmoe_generate_options); in an estimate: of all n_sessions for a max_draft of 1 */
} afmoe_memory;

AFMOE_API void afmoe_memory_init(afmoe_memory *memory, uint32_t size);

/** What it would take to open `path`, make one context, and have n_sessions sessions with n_tokens each. Reads headers
 *  and tokenizer, no weights; nothing stays open. Options as for the calls meant (NULL: the defaults).
 *
 *  Failures as in afmoe_model_open and afmoe_context_create. CONTEXT_FULL: max_tokens or max_page_bytes do not allow
 *  that much. STATE: tokenizer_only or inspect_only. */
AFMOE_API afmoe_status afmoe_estimate(const char *path, const afmoe_model_options *model_options,
                                      const afmoe_context_options *context_options, uint64_t n_sessions,
                                      uint64_t n_tokens, afmoe_memory *out, afmoe_error *error);

/** What the context, its model and its sessions take now. A model shared by contexts is counted in each. */
AFMOE_API afmoe_status afmoe_context_get_memory(afmoe_context *context, afmoe_memory *out, afmoe_error *error);

/* ---- Session ---------------------------------------------------------------------------------------------------- */

typedef struct afmoe_session afmoe_session;

/** An empty timeline. Memory comes with its tokens. */
AFMOE_API afmoe_status afmoe_session_create(afmoe_session **out, afmoe_context *context, afmoe_error *error);
AFMOE_API void afmoe_session_free(afmoe_session *session);

/** A second session in the same context, with the same timeline and logits: it can be sampled from at once, and both
 *  go on on their own. Nothing is computed and no key/value page is copied: the two share the pages there are, and the
 *  first to append behind the common end copies at most one page of each layer. Statistics begin at zero.
 *
 *  A shared page counts once in max_page_bytes, afmoe_context_info.page_bytes and afmoe_memory.pages, and in
 *  afmoe_session_stats.page_bytes of each session that has it. */
AFMOE_API afmoe_status afmoe_session_fork(afmoe_session **out, afmoe_session *session, afmoe_error *error);

/** How a call that computes runs, and what it writes besides. */
typedef struct afmoe_append_options {
    uint32_t size;
    int32_t reserved;              /* 0 */
    const afmoe_cancel *cancel;    /* checked in every layer. Default NULL */
    afmoe_progress_fn progress;    /* after every chunk, in tokens. Default NULL */
    void *progress_data;
    /* Log-probabilities of the prompt: for every position p in [logprob_begin, logprob_end) the natural logarithm
     * of the probability the model gave to the token at p, from the tokens before it. Positions are absolute; the
     * range must lie inside the tokens this call adds, and 1 <= logprob_begin unless the range is empty. NaN where
     * the logits hold NaN. */
    uint64_t logprob_begin;        /* default 0 */
    uint64_t logprob_end;          /* default 0: none */
    float *out_logprobs;           /* [logprob_end - logprob_begin] */
    /* Logits and final hidden states (after the last norm) at chosen absolute positions, rising, all among the
     * tokens this call adds. Either buffer may be NULL. */
    const uint64_t *positions;     /* default NULL */
    uint64_t n_positions;          /* default 0 */
    float *out_logits;             /* [n_positions][vocab_size] */
    uint64_t logits_capacity;      /* floats in out_logits */
    float *out_hidden;             /* [n_positions][hidden_size] */
    uint64_t hidden_capacity;      /* floats in out_hidden */
    /* The experts chosen for every token this call computes, in every mixture layer, in the router's order:
     * [n_computed][n_layers - n_dense_layers][n_experts_per_token]. CAPACITY, before anything is changed, when they do
     * not fit. Either buffer may be NULL. Of a call that stops early the entries of the tokens kept are good. */
    int32_t *out_expert_ids;       /* 0 <= id < n_experts. Default NULL */
    float *out_expert_weights;     /* what their outputs are multiplied by. Default NULL */
    uint64_t expert_capacity;      /* entries in each buffer */
} afmoe_append_options;

AFMOE_API void afmoe_append_options_init(afmoe_append_options *options, uint32_t size);

/** What a computing call did. */
typedef struct afmoe_append_result {
    uint32_t size;
    int32_t reserved;
    uint64_t n_tokens;   /* length of the timeline now */
    uint64_t n_reused;   /* tokens of the request that were there already */
    uint64_t n_computed; /* tokens that went through the layers */
} afmoe_append_result;

AFMOE_API void afmoe_append_result_init(afmoe_append_result *result, uint32_t size);

/** Extend the timeline by n tokens and leave the logits of the last one.
 *
 *  INVALID: an id outside the vocabulary; nothing was changed. CONTEXT_FULL: no room for all n; nothing was changed.
 *  STATE: the log-probability of the first token is asked for and the logits before it are gone; nothing was changed.
 *  CANCELLED: whole chunks computed so far are kept, result->n_tokens says how many; if there is one, logits are gone
 *  until the next append. NO_MEMORY: as CANCELLED. n = 0 does nothing. */
AFMOE_API afmoe_status afmoe_session_append(afmoe_session *session, const afmoe_token *tokens, uint64_t n_tokens,
                                            const afmoe_append_options *options, afmoe_append_result *result,
                                            afmoe_error *error);

/** Make the timeline equal these n tokens, keeping the common prefix, and leave the logits of the last one.
 *
 *  The same tokens again cost nothing. When the timeline must go back further than the pages held allow
 *  (rewind_tokens), reading starts again at the last snapshot before (snapshot_bytes), else at the beginning: n_reused
 *  says where. Options as in append, but ranges and positions may lie anywhere in the n tokens: kept tokens they need
 *  are computed again. Failures as in append; CANCELLED and NO_MEMORY may leave less than was there before,
 *  result->n_tokens says how much. */
AFMOE_API afmoe_status afmoe_session_sync(afmoe_session *session, const afmoe_token *tokens, uint64_t n_tokens,
                                          const afmoe_append_options *options, afmoe_append_result *result,
                                          afmoe_error *error);

/** Drop all tokens from position n_tokens on (INVALID when there are fewer). Free while the pages needed are held;
 *  else the kept tokens are computed again from the last snapshot before, or the start, and the result says so;
 *  CANCELLED or NO_MEMORY may leave less of them then. Logits are gone until the next append, unless nothing was
 *  dropped. */
AFMOE_API afmoe_status afmoe_session_rewind(afmoe_session *session, uint64_t n_tokens,
                                            const afmoe_append_options *options, afmoe_append_result *result,
                                            afmoe_error *error);

/** Make room in a session that is full: the full layers forget. Of the tokens they see, the first n_keep stay (say, a
 *  system prompt), the n_drop oldest after these go. The memory of their keys and values is the context's again, where
 *  no other session shares it. This never happens unless asked for.
 *
 *  Only whole pages of 64 tokens go: n_keep and n_drop are rounded up to such, and out_dropped (may be NULL) gets the
 *  tokens dropped. INVALID, with the numbers: there are not as many whole pages. n_drop = 0 does nothing. NO_MEMORY. On
 *  failure nothing has changed and out_dropped is 0.
 *
 *  Nothing is computed, and what was computed stays: the tokens, n_tokens, the logits, the last window of the sliding
 *  layers. Positions run on, also past max_positions of the model, as only sliding layers know them and look no further
 *  than a window. max_tokens counts what was not dropped. What comes next is computed with less to look at: it differs
 *  from what it would be with all tokens, and also from a new session with the tokens kept; docs/model.md says by how
 *  much. From there on:
 *
 *    append, generate   go on; the same tokens and shifts give the same bits, whatever the chunks and threads
 *    sync, embed        compare with all tokens, also those dropped: the same again cost nothing
 *    going back         to a place behind all that was dropped is as free as ever; tokens read again from a snapshot
 *                       there see what is left. Further back, or where there is no such snapshot, the timeline is read
 *                       again from before what was dropped, whole, as n_reused and n_computed say: the shift is
 *                       undone. CONTEXT_FULL, nothing changed, when these are more tokens than max_tokens
 *    fork, save, load   give a session that is shifted likewise
 *    a freed session    leaves to prefix_bytes and prefix_folder at most what comes before the first token dropped
 *
 *  The session keeps its tokens: each one dropped goes on to take 4 bytes, and 8 bytes a layer for every 64. With rope
 *  of kind DYNAMIC a timeline ends at max_positions in any case. */
AFMOE_API afmoe_status afmoe_session_shift(afmoe_session *session, uint64_t n_keep, uint64_t n_drop,
                                           uint64_t *out_dropped, afmoe_error *error);

/** Tokens of the timeline, copied; out_n gets their number. */
AFMOE_API afmoe_status afmoe_session_tokens(afmoe_session *session, afmoe_token *out, uint64_t capacity,
                                            uint64_t *out_n, afmoe_error *error);

/** Logits of the last position, copied: vocab_size floats. STATE when there are none. */
AFMOE_API afmoe_status afmoe_session_logits(afmoe_session *session, float *out, uint64_t capacity, uint64_t *out_n,
                                            afmoe_error *error);
/** The same, borrowed until the session's next append, sync, rewind, shift, generate, load or free, or the next piece of
 *  a generation. */
AFMOE_API afmoe_status afmoe_session_logits_view(afmoe_session *session, const float **out, uint64_t *out_n,
                                                 afmoe_error *error);
/** Natural log-probabilities of the last position (log softmax of the raw logits), vocab_size floats. NUMERIC when a
 *  logit is NaN or none is finite. */
AFMOE_API afmoe_status afmoe_session_logprobs(afmoe_session *session, float *out, uint64_t capacity, uint64_t *out_n,
                                              afmoe_error *error);
/** Final hidden state (after the last norm) of the last position, hidden_size floats. */
AFMOE_API afmoe_status afmoe_session_hidden(afmoe_session *session, float *out, uint64_t capacity, uint64_t *out_n,
                                            afmoe_error *error);

/** One session's part of a step: what append is for one session. */
typedef struct afmoe_step_item {
    uint32_t size;
    afmoe_status status;                 /* out: as append would return */
    afmoe_session *session;              /* of the context of the call */
    const afmoe_token *tokens;
    uint64_t n_tokens;
    const afmoe_append_options *options; /* its cancel object stops this item only. Default NULL */
    afmoe_append_result *result;         /* default NULL */
    afmoe_error *error;                  /* default NULL */
} afmoe_step_item;

AFMOE_API void afmoe_step_item_init(afmoe_step_item *item, uint32_t size);

/** Item `i` is done: its status and result are written, and its session may be used again. Non-zero stops the others
 *  as options->cancel would. */
typedef int32_t (*afmoe_step_item_fn)(void *user_data, uint64_t i);

typedef struct afmoe_step_options {
    uint32_t size;
    int32_t reserved;            /* 0 */
    const afmoe_cancel *cancel;  /* stops all items. Default NULL */
    afmoe_step_item_fn on_item;  /* as soon as each is done, while the others go on. Default NULL */
    void *on_item_data;
} afmoe_step_options;

AFMOE_API void afmoe_step_options_init(afmoe_step_options *options, uint32_t size);

/** Append to several sessions of one context together: prompts, single tokens, any mix. The weights are read once for
 *  all, and every session gets the bits it would get alone.
 *
 *  The items lie one after the other, items[0].size bytes apart. A pass computes at most chunk_tokens tokens: the items
 *  with few are done first, the others share the room evenly. Each item is an append of its own, with its own failures:
 *  one that fails (BUSY, INVALID, CONTEXT_FULL, ...; INVALID also for a session of another context, BUSY for one listed
 *  twice) or is cancelled leaves, and the others are computed as if it had not been there. After a cancelled item the
 *  pass in progress is made again without it.
 *
 *  Returns OK, or the status and text of the first item in the list that is not OK. INVALID before anything is changed:
 *  a size that is not that of items[0]. */
AFMOE_API afmoe_status afmoe_context_step(afmoe_context *context, afmoe_step_item *items, uint64_t n_items,
                                          const afmoe_step_options *options, afmoe_error *error);

enum {
    AFMOE_POOL_MEAN = 1, /* the mean over all positions */
    AFMOE_POOL_LAST = 2  /* the last position */
};

/** A text as one vector: make the timeline equal these tokens (at least one) and pool their final hidden states (after
 *  the last norm) into hidden_size floats; `normalize` 1 scales the vector to length 1. For one vector a token use
 *  out_hidden of append.
 *
 *  No logits are computed and none are left. LAST reuses a common prefix as sync does, MEAN computes all tokens.
 *  CANCELLED: whole chunks are kept, as in append. NUMERIC: the vector is not finite, or zero and cannot be
 *  normalized. On failure `out` is left alone. */
AFMOE_API afmoe_status afmoe_session_embed(afmoe_session *session, const afmoe_token *tokens, uint64_t n_tokens,
                                           int32_t pooling, int32_t normalize, const afmoe_cancel *cancel, float *out,
                                           uint64_t capacity, uint64_t *out_n, afmoe_error *error);

typedef struct afmoe_session_stats {
    uint32_t size;
    int32_t reserved;
    uint64_t n_tokens;          /* length of the timeline */
    uint64_t n_prompt_computed; /* tokens computed in chunks of more than one, over the session's life */
    uint64_t prompt_ns;         /* time in them, nanoseconds */
    uint64_t n_decode_computed; /* tokens computed one at a time */
    uint64_t decode_ns;
    uint64_t n_reused;          /* tokens sync found already there */
    uint64_t page_bytes;        /* key/value memory of this session */
    uint64_t n_drafted;         /* tokens computed ahead as drafts, see afmoe_generate_options */
    uint64_t n_draft_accepted;  /* of them, those that became the next token; in none of the counts above */
    uint64_t n_dropped;         /* of n_tokens, those that full layers see no more (afmoe_session_shift) */
} afmoe_session_stats;

AFMOE_API void afmoe_session_stats_init(afmoe_session_stats *stats, uint32_t size);
/** Counted since the session was created. */
AFMOE_API afmoe_status afmoe_session_get_stats(afmoe_session *session, afmoe_session_stats *stats, afmoe_error *error);

/* ---- State of a session ------------------------------------------------------------------------------------------ */

/** Save the session to a file: its tokens, their keys and values as far as they are still held, and the logits of the
 *  last position. Loaded again, also by another process, it goes on to the same bits and, synced to the same tokens,
 *  computes nothing. The file replaces an old one as a whole: whatever happens, also to the process or the machine, the
 *  old file or the new one is there. Only its owner may read it: a conversation lies in it, in the clear. A process
 *  that dies on the way leaves a file ".afmoe-*.tmp" beside it.
 *
 *  NOT_FOUND: no such folder. INVALID: `path` is there and not a regular file (links are not followed). IO: with errno,
 *  e.g. a full disk. UNSUPPORTED: this build has no "state" (afmoe_build_features). */
AFMOE_API afmoe_status afmoe_session_save(afmoe_session *session, const char *path, afmoe_error *error);

/** Make the session what was saved; what it was before goes. The state must be of the same model (told by its shape,
 *  the names and shapes of its tensors and samples of their bytes), precision and cells. Levels and compilers may
 *  differ by rounding in what is computed from now on. Everything is read and checked first: on failure nothing has
 *  changed.
 *
 *  Files may come from anywhere: FORMAT, TRUNCATED, UNSUPPORTED (a later version), CORRUPT (a checksum) and STATE (of
 *  another model or other options; the message names both) as they say. NOT_FOUND, IO. CONTEXT_FULL: longer than
 *  max_tokens, or max_page_bytes has no room for old and new together; rewind to 0 first. NO_MEMORY. */
AFMOE_API afmoe_status afmoe_session_load(afmoe_session *session, const char *path, afmoe_error *error);

/** The same into memory. A NULL buffer with capacity 0 asks for the bytes needed: those of the file. */
AFMOE_API afmoe_status afmoe_session_save_memory(afmoe_session *session, void *out, uint64_t capacity, uint64_t *out_n,
                                                 afmoe_error *error);
/** The same from memory, any alignment, all n_bytes of it. */
AFMOE_API afmoe_status afmoe_session_load_memory(afmoe_session *session, const void *data, uint64_t n_bytes,
                                                 afmoe_error *error);

/* ---- Sampler ---------------------------------------------------------------------------------------------------- */

typedef struct afmoe_sampler afmoe_sampler;

/** Filters are applied in this order: bias, repetition, presence and frequency, temperature, top-k, top-p, min-p. */
typedef struct afmoe_sampler_options {
    uint32_t size;
    int32_t reserved;               /* 0 */
    float temperature;              /* 0..100; 0: greedy, the largest logit (lowest id on a tie). Default 0 */
    float top_p;                    /* 0..1; keeps the most likely tokens up to and with the one that reaches it.
                                       Default 1: off */
    float min_p;                    /* 0..1; drops tokens below min_p times the best. Default 0: off */
    float repetition_penalty;       /* 0.01..100; tokens of prompt and answer: logit divided if positive, else
                                       multiplied. Default 1: off */
    float presence_penalty;         /* -100..100; subtracted once for a token generated already. Default 0 */
    float frequency_penalty;        /* -100..100; subtracted for every time it was generated. Default 0 */
    uint64_t top_k;                 /* keeps the k most likely; 1..2^32, default 2^32: off */
    uint64_t seed;                  /* any value; default 0. A draw depends on seed and position only */
    const afmoe_token *bias_tokens; /* n_bias different ids; copied. Default NULL */
    const float *bias_values;       /* added to their logits, -1e30..1e30 or -infinity (never) */
    uint64_t n_bias;                /* default 0 */
} afmoe_sampler_options;

/** Library defaults: greedy. */
AFMOE_API void afmoe_sampler_options_init(afmoe_sampler_options *options, uint32_t size);

/** Library defaults, then what the checkpoint's generation_config.json recommends, where it has one. */
AFMOE_API afmoe_status afmoe_model_sampler_options(const afmoe_model *model, afmoe_sampler_options *options,
                                                   afmoe_error *error);

/** Holds a reference on the model. */
AFMOE_API afmoe_status afmoe_sampler_create(afmoe_sampler **out, afmoe_model *model,
                                            const afmoe_sampler_options *options, afmoe_error *error);
AFMOE_API void afmoe_sampler_free(afmoe_sampler *sampler);

/** Choose the next token from the session's logits (they are not changed). The first n_prompt tokens of the timeline
 *  count as prompt for the penalties, the rest as generated. NUMERIC when a logit is NaN, or none is left.
 *  out_logprob (may be NULL): its natural log-probability in the raw distribution. */
AFMOE_API afmoe_status afmoe_sampler_sample(afmoe_sampler *sampler, afmoe_session *session, uint64_t n_prompt,
                                            afmoe_token *out_token, float *out_logprob, afmoe_error *error);

/** The same on the caller's logits: vocab_size floats; `history` is the timeline so far; the draw is that of position
 *  n_history. */
AFMOE_API afmoe_status afmoe_sampler_sample_logits(afmoe_sampler *sampler, const float *logits, uint64_t n_logits,
                                                   const afmoe_token *history, uint64_t n_history, uint64_t n_prompt,
                                                   afmoe_token *out_token, float *out_logprob, afmoe_error *error);

/** The k most likely tokens of the last position in the raw distribution, falling; ties by lower id. Rows without a
 *  token are left out. k = capacity of both buffers; out_n gets how many there are. */
AFMOE_API afmoe_status afmoe_session_top_logprobs(afmoe_session *session, afmoe_token *out_tokens,
                                                  float *out_logprobs, uint64_t k, uint64_t *out_n,
                                                  afmoe_error *error);

/* ---- Generate --------------------------------------------------------------------------------------------------- */

/** One step of generation; what it points to is valid during the callback, or until the generation's next call. */
typedef struct afmoe_piece {
    uint32_t size;
    afmoe_token token;               /* -1 in a last piece that only brings held-back text */
    const char *text;                /* whole code points that are final now; may be empty. Not NUL-terminated */
    uint64_t text_bytes;
    uint64_t position;               /* of the token in the timeline */
    float logprob;                   /* of the token in the raw distribution; 0 when token is -1 */
    int32_t reserved;
    const afmoe_token *top_tokens;   /* the n_top most likely tokens at this position */
    const float *top_logprobs;
    uint64_t n_top;
} afmoe_piece;

AFMOE_API void afmoe_piece_init(afmoe_piece *piece, uint32_t size);

/** Non-zero stops: afmoe_generate returns CANCELLED and the tokens so far are kept. */
typedef int32_t (*afmoe_piece_fn)(void *user_data, const afmoe_piece *piece);

typedef struct afmoe_generate_options {
    uint32_t size;
    int32_t ignore_eos;              /* 1: the model's stop set does not stop. Default 0 */
    uint64_t max_tokens;             /* most tokens to generate. Default 2^64-1: until something stops */
    uint64_t n_prompt;               /* tokens of the timeline that count as prompt for the penalties.
                                        Default 2^64-1: all that are there when the call starts */
    const afmoe_token *stop_tokens;  /* further tokens that stop. Default NULL */
    uint64_t n_stop_tokens;
    const char *const *stop_strings; /* text that stops, also across tokens; not given out. Default NULL */
    const uint64_t *stop_string_bytes; /* length of each; NULL: NUL-terminated */
    uint64_t n_stop_strings;         /* 0..64 */
    uint64_t n_top_logprobs;         /* alternatives in each piece, 0..1024. Default 0 */
    int32_t keep_special;            /* 1: text of CONTROL tokens appears in pieces. Default 0 */
    int32_t reserved;                /* 0 */
    afmoe_piece_fn on_piece;         /* default NULL */
    void *on_piece_data;
    const afmoe_cancel *cancel;      /* default NULL */
    uint64_t max_draft;              /* most tokens to guess ahead, 0..64: where the last tokens occurred before, what
                                        followed them is computed together with the next token, and counts where it is
                                        what the sampler chooses. The same tokens come out, sooner where text repeats.
                                        Takes vocab_size floats for each. Default 0: off */
} afmoe_generate_options;

AFMOE_API void afmoe_generate_options_init(afmoe_generate_options *options, uint32_t size);

enum {
    AFMOE_FINISH_NONE = 0,
    AFMOE_FINISH_LENGTH = 1,      /* max_tokens reached */
    AFMOE_FINISH_STOP_TOKEN = 2,
    AFMOE_FINISH_STOP_STRING = 3,
    AFMOE_FINISH_CANCELLED = 4,   /* cancel object or callback */
    AFMOE_FINISH_CONTEXT = 5,     /* session or page limit reached */
    AFMOE_FINISH_ERROR = 6
};

typedef struct afmoe_generate_result {
    uint32_t size;
    int32_t finish_reason;     /* AFMOE_FINISH_* */
    uint64_t n_generated;      /* tokens added to the timeline */
    afmoe_token stop_token;    /* the one that stopped (not added to the timeline), else -1 */
    int32_t stop_string;       /* index of the one that stopped, else -1 */
    uint64_t elapsed_ns;
    uint64_t n_drafted;        /* tokens guessed ahead and computed */
    uint64_t n_draft_accepted; /* of them, those that were right */
} afmoe_generate_result;

AFMOE_API void afmoe_generate_result_init(afmoe_generate_result *result, uint32_t size);

/** Sample, append and give out text until something stops. Starts from the session's logits (STATE without them).
 *
 *  `sampler` NULL: greedy. Every token given out is in the timeline, and the logits of the last one are there, so the
 *  next call goes on. Returns END when a stop token or stop string ended it, OK when max_tokens did, CANCELLED,
 *  CONTEXT_FULL (all tokens so far kept), NUMERIC, NO_MEMORY. */
AFMOE_API afmoe_status afmoe_generate(afmoe_session *session, afmoe_sampler *sampler,
                                      const afmoe_generate_options *options, afmoe_generate_result *result,
                                      afmoe_error *error);

/** The same answer, asked for piece by piece: nothing is computed before it is asked for, and the timeline holds the
 *  tokens given out and no more. */
typedef struct afmoe_generation afmoe_generation;

/** Begin at the session's logits (STATE without them); the first token is computed by the first next. `sampler` and
 *  `options` as in afmoe_generate, but on_piece must be NULL. Options are copied with all they point to; session,
 *  sampler and cancel object are referenced, so any of them may be freed before the generation.
 *
 *  Between two pieces the session may be looked at, saved and forked, and the sampler used. What may change the session
 *  (append, sync, rewind, embed, load, a step, a request, afmoe_generate, another generation), well or not, takes it
 *  away: next then answers STATE. */
AFMOE_API afmoe_status afmoe_generation_create(afmoe_generation **out, afmoe_session *session, afmoe_sampler *sampler,
                                               const afmoe_generate_options *options, afmoe_error *error);
/** Free it at any time: the session keeps the tokens given out, and its logits. */
AFMOE_API void afmoe_generation_free(afmoe_generation *generation);

/** The next piece; what it points to is borrowed until the generation's next call of next or free. After the last
 *  piece: END when a stop token, a stop string or max_tokens ended it (the result says which), CANCELLED, CONTEXT_FULL,
 *  NUMERIC, NO_MEMORY as in afmoe_generate, with all tokens so far kept; from then on the same again. BUSY (generation,
 *  session or sampler) ends nothing. */
AFMOE_API afmoe_status afmoe_generation_next(afmoe_generation *generation, afmoe_piece *piece, afmoe_error *error);

/** What it came to so far: finish_reason is AFMOE_FINISH_NONE until next has said that it ended. */
AFMOE_API afmoe_status afmoe_generation_get_result(afmoe_generation *generation, afmoe_generate_result *result,
                                                   afmoe_error *error);

/* ---- Scheduler -------------------------------------------------------------------------------------------------- */

/** Makes the answers to many requests in steps of one context, side by side. It has no thread: somebody calls step or
 *  run. Each answer is the one afmoe_generate would give. */
typedef struct afmoe_scheduler afmoe_scheduler;

typedef struct afmoe_scheduler_options {
    uint32_t size;
    uint32_t max_running;       /* requests computed together, 1..4096; the others wait. Default 8 */
    uint32_t max_waiting;       /* requests waiting, 1..1048576; submit answers LIMIT above. Default 256 */
    uint32_t max_prompt_tokens; /* tokens of prompts in a step that also computes answers, 1..4096: fewer keep answers
                                   flowing, more read prompts sooner. Default 64 */
} afmoe_scheduler_options;

AFMOE_API void afmoe_scheduler_options_init(afmoe_scheduler_options *options, uint32_t size);

/** The end of a request. `result` and `error` (its text when the status is negative) are borrowed for the call. The
 *  session may be used again, also in here; the scheduler's step and run answer BUSY in here, submit works. */
typedef void (*afmoe_request_fn)(void *user_data, afmoe_status status, const afmoe_generate_result *result,
                                 const afmoe_error *error);

/** One request: append these tokens, then generate. Until on_done was called the session and the sampler are in use
 *  (other calls on them answer BUSY), and the tokens and all that the options point to must stay as they are. */
typedef struct afmoe_request {
    uint32_t size;
    int32_t priority;            /* the larger comes first; of the same, who was submitted first. Default 0 */
    afmoe_session *session;      /* of the scheduler's context */
    afmoe_sampler *sampler;      /* of no other request. Default NULL: greedy */
    const afmoe_token *tokens;   /* default NULL */
    uint64_t n_tokens;           /* default 0: answer from the session's logits */
    const afmoe_generate_options *options; /* copied; its cancel object stops this request, also while it waits.
                                              Default NULL */
    afmoe_request_fn on_done;    /* default NULL */
    void *on_done_data;
} afmoe_request;

AFMOE_API void afmoe_request_init(afmoe_request *request, uint32_t size);

/** Holds a reference on the context. */
AFMOE_API afmoe_status afmoe_scheduler_create(afmoe_scheduler **out, afmoe_context *context,
                                              const afmoe_scheduler_options *options, afmoe_error *error);
/** Requests that are not done end as CANCELLED. In a child of fork they are the parent's: sessions and samplers are let
 *  go, and on_done is not called. */
AFMOE_API void afmoe_scheduler_free(afmoe_scheduler *scheduler);

/** Put a request in line; callable from any thread, also while another is in step or run. LIMIT: max_waiting are
 *  waiting. INVALID, UNSUPPORTED, STATE, BUSY: as afmoe_generate would answer. On failure nothing is kept and on_done is
 *  not called. */
AFMOE_API afmoe_status afmoe_scheduler_submit(afmoe_scheduler *scheduler, const afmoe_request *request,
                                              afmoe_error *error);

/** One pass: the next token of every answer, and a part of the prompts that are being read; callbacks are called on the
 *  way. END when nothing is left to do, else OK. What happens to a request is told to its on_done only. A request whose
 *  prompt finds no room for its pages waits until running ones are done. */
AFMOE_API afmoe_status afmoe_scheduler_step(afmoe_scheduler *scheduler, afmoe_error *error);
/** Steps until nothing is left to do: OK then. */
AFMOE_API afmoe_status afmoe_scheduler_run(afmoe_scheduler *scheduler, afmoe_error *error);

typedef struct afmoe_scheduler_info {
    uint32_t size;
    int32_t reserved;
    uint64_t n_waiting; /* requests */
    uint64_t n_running;
    uint64_t n_done;    /* ended, well or not */
} afmoe_scheduler_info;

AFMOE_API void afmoe_scheduler_info_init(afmoe_scheduler_info *info, uint32_t size);
/** Callable from any thread. */
AFMOE_API afmoe_status afmoe_scheduler_get_info(afmoe_scheduler *scheduler, afmoe_scheduler_info *info,
                                                afmoe_error *error);

#ifdef __cplusplus
}
#endif

#endif
