/* Public calls in any order on a tiny model: handles are made, used and freed as the input says, callbacks call back in
 * and free what is in use. A handle is never used after its free; everything else is allowed. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

enum { N_SLOTS = 3, N_CALLS = 24 };

static struct {
    struct choices choices;
    afmoe_model *models[N_SLOTS];
    afmoe_context *contexts[N_SLOTS];
    afmoe_session *sessions[N_SLOTS];
    afmoe_sampler *samplers[N_SLOTS];
    afmoe_stream_decoder *decoders[N_SLOTS];
    afmoe_generation *generations[N_SLOTS];
    afmoe_cancel *cancels[N_SLOTS];
    struct buffer saved; /* the state of a session */
    uint32_t depth;
    uint32_t n_opened, n_released; /* models from memory */
    afmoe_session *in_call; /* what a callback finds busy */
} world;

static const afmoe_status any_status[] = {
    AFMOE_OK, AFMOE_END, AFMOE_INVALID, AFMOE_UNSUPPORTED, AFMOE_BUSY, AFMOE_CANCELLED, AFMOE_CONTEXT_FULL,
    AFMOE_CAPACITY, AFMOE_STATE, AFMOE_NUMERIC, AFMOE_NOT_FOUND};
/* Of calls on handles that may be NULL: INVALID for them, and never an I/O, memory or internal failure. */
#define ANY(call) fuzz_check_status(call, &error, any_status, sizeof any_status / sizeof *any_status, #call)

static struct choices *in(void)
{
    return &world.choices;
}

static uint32_t slot(void)
{
    return choose_below(in(), N_SLOTS);
}

static void one_call(void);

static void call_back(void)
{
    if (world.depth >= 3) return;
    world.depth++;
    for (uint32_t n = choose_below(in(), 4); n > 0; n--) one_call();
    world.depth--;
}

static int32_t on_piece(void *user_data, const afmoe_piece *piece)
{
    (void)user_data;
    uint64_t n = 0;
    call_back();
    for (uint64_t i = 0; i < piece->text_bytes; i++) n += piece->text[i] != 0; /* still there */
    return choose_u8(in()) > 200 + (n > 1000);
}

static int32_t on_progress(void *user_data, uint64_t done, uint64_t total)
{
    (void)user_data;
    REQUIRE(done <= total);
    call_back();
    return choose_u8(in()) > 200;
}

static void on_log(void *user_data, int32_t level, const char *message)
{
    (void)user_data;
    REQUIRE(level >= AFMOE_LOG_INFO && level <= AFMOE_LOG_WARNING && strlen(message) < 4096);
}

/* ---- Making and freeing ----------------------------------------------------------------------------------------- */

static void on_release(void *user_data)
{
    ++*(uint32_t *)user_data;
}

/* One more reference of the kept one, or one of its own. */
static void open_model(uint32_t i, uint8_t how)
{
    const struct buffer *bytes = tiny_file();
    afmoe_model_options options;
    afmoe_error error;
    afmoe_error_init(&error, sizeof error);
    afmoe_model_options_init(&options, sizeof options);
    options.load = how & 1 ? AFMOE_LOAD_READ : AFMOE_LOAD_MAP;
    options.tokenizer_only = how & 2 ? 1 : 0;
    options.log = on_log;
    if (how < 192) {
        world.models[i] = tiny_model();
        afmoe_model_retain(world.models[i]);
    } else if (ANY(afmoe_model_open_memory(&world.models[i], bytes->data, bytes->n, on_release, &world.n_released,
                                           &options, &error)) == AFMOE_OK) {
        world.n_opened++;
    }
}

static void make(uint32_t i)
{
    afmoe_error error;
    afmoe_error_init(&error, sizeof error);
    switch (choose_below(in(), 6)) {
    case 0:
        afmoe_model_free(world.models[i]);
        world.models[i] = NULL;
        open_model(i, choose_u8(in()));
        break;
    case 1: {
        afmoe_context_options options;
        afmoe_context_options_init(&options, sizeof options);
        options.n_threads = 1 + (choose_u8(in()) > 240);
        options.chunk_tokens = 1 + choose_below(in(), 8);
        options.max_tokens = 1 + choose_below(in(), 160);
        options.rewind_tokens = choose_below(in(), 64);
        options.cells = 1 + (int32_t)choose_below(in(), 4);
        options.log = on_log;
        afmoe_context_free(world.contexts[i]);
        world.contexts[i] = NULL;
        ANY(afmoe_context_create(&world.contexts[i], world.models[slot()], &options, &error));
        break;
    }
    case 2:
        afmoe_session_free(world.sessions[i]);
        world.sessions[i] = NULL;
        ANY(afmoe_session_create(&world.sessions[i], world.contexts[slot()], &error));
        break;
    case 3: {
        afmoe_sampler_options options;
        afmoe_sampler_options_init(&options, sizeof options);
        options.temperature = (float)choose_below(in(), 3);
        afmoe_sampler_free(world.samplers[i]);
        world.samplers[i] = NULL;
        ANY(afmoe_sampler_create(&world.samplers[i], world.models[slot()], &options, &error));
        break;
    }
    case 4:
        afmoe_stream_decoder_free(world.decoders[i]);
        world.decoders[i] = NULL;
        ANY(afmoe_stream_decoder_create(&world.decoders[i], world.models[slot()], choose_u8(in()) & 1, &error));
        break;
    default:
        if (world.depth > 0) return; /* a call may hold the old one: it is the caller's to keep */
        afmoe_cancel_free(world.cancels[i]);
        world.cancels[i] = NULL;
        ANY(afmoe_cancel_create(&world.cancels[i], &error));
    }
}

static void release(uint32_t i)
{
    switch (choose_below(in(), 6)) {
    case 0:
        afmoe_model_free(world.models[i]);
        world.models[i] = NULL;
        break;
    case 1:
        afmoe_context_free(world.contexts[i]);
        world.contexts[i] = NULL;
        break;
    case 2:
        afmoe_session_free(world.sessions[i]);
        world.sessions[i] = NULL;
        break;
    case 3:
        afmoe_sampler_free(world.samplers[i]);
        world.samplers[i] = NULL;
        break;
    case 4:
        afmoe_stream_decoder_free(world.decoders[i]);
        world.decoders[i] = NULL;
        break;
    default:
        if (world.depth > 0) return;
        afmoe_cancel_free(world.cancels[i]);
        world.cancels[i] = NULL;
    }
}

/* ---- Using ------------------------------------------------------------------------------------------------------ */

/* The session stays marked while its call runs, so that what comes from a callback can be judged. */
static afmoe_session *enter(uint32_t i, afmoe_session **outer)
{
    *outer = world.in_call;
    world.in_call = world.sessions[i];
    return world.sessions[i];
}

static uint64_t choose_tokens(afmoe_token *tokens, uint64_t most)
{
    uint64_t n = choose_below(in(), (uint32_t)most + 1);
    for (uint64_t i = 0; i < n; i++) tokens[i] = choose_below(in(), TINY_IDS + 1);
    return n;
}

static afmoe_status embed(afmoe_session *session, const afmoe_token *tokens, uint64_t n, uint8_t how,
                          const afmoe_cancel *cancel)
{
    float vector[32];
    uint64_t n_out;
    afmoe_error error;
    afmoe_error_init(&error, sizeof error);
    return ANY(afmoe_session_embed(session, tokens, n, how & 4 ? AFMOE_POOL_MEAN : AFMOE_POOL_LAST, how >> 4, cancel,
                                   vector, 32, &n_out, &error));
}

static afmoe_status shift(afmoe_session *session)
{
    uint64_t n_keep = choose_u8(in()) < 200 ? choose_below(in(), 70) : choose_size(in());
    uint64_t n_drop = choose_u8(in()) < 200 ? choose_below(in(), 70) : choose_size(in()), n_dropped = 1;
    afmoe_error error;
    afmoe_error_init(&error, sizeof error);
    afmoe_status status = ANY(afmoe_session_shift(session, n_keep, n_drop, &n_dropped, &error));
    REQUIRE(n_dropped % 64 == 0 && (status == AFMOE_OK || n_dropped == 0));
    return status;
}

static void compute(uint32_t i, uint8_t how)
{
    afmoe_token tokens[16];
    uint64_t n = choose_tokens(tokens, 16);
    afmoe_append_options options;
    afmoe_append_result result;
    afmoe_session *outer;
    afmoe_error error;
    afmoe_error_init(&error, sizeof error);
    afmoe_append_options_init(&options, sizeof options);
    afmoe_append_result_init(&result, sizeof result);
    if (how & 4) options.progress = on_progress;
    if (how & 8) options.cancel = world.cancels[slot()];
    bool busy = world.depth > 0 && world.sessions[i] && world.sessions[i] == world.in_call;
    afmoe_session *session = enter(i, &outer);
    afmoe_status status;
    if (how >= 30) status = shift(session);
    else if ((how & 3) == 3) status = embed(session, tokens, n, how, options.cancel);
    else if ((how & 3) == 0) status = ANY(afmoe_session_sync(session, tokens, n, &options, &result, &error));
    else if ((how & 3) == 1) status = ANY(afmoe_session_rewind(session, n, &options, &result, &error));
    else status = ANY(afmoe_session_append(session, tokens, n, &options, &result, &error));
    REQUIRE(!busy || status == AFMOE_BUSY);
    world.in_call = outer;
}

static void generate(uint32_t i, uint8_t how)
{
    static const char *const stops[] = {"ab"};
    afmoe_generate_options options;
    afmoe_generate_result result;
    afmoe_session *outer;
    afmoe_error error;
    afmoe_error_init(&error, sizeof error);
    afmoe_generate_options_init(&options, sizeof options);
    afmoe_generate_result_init(&result, sizeof result);
    options.max_tokens = choose_below(in(), 8);
    options.n_top_logprobs = how & 3;
    if (how & 4) options.on_piece = on_piece;
    if (how & 8) options.cancel = world.cancels[slot()];
    if (how & 16) {
        options.stop_strings = stops;
        options.n_stop_strings = 1;
    }
    bool busy = world.depth > 0 && world.sessions[i] && world.sessions[i] == world.in_call;
    afmoe_sampler *sampler = world.samplers[slot()];
    afmoe_session *session = enter(i, &outer);
    afmoe_status status = ANY(afmoe_generate(session, sampler, &options, &result, &error));
    REQUIRE(!busy || status == AFMOE_BUSY);
    world.in_call = outer;
}

static void look(uint32_t i, uint8_t how)
{
    static float floats[TINY_IDS];
    afmoe_token tokens[8], token;
    uint64_t n;
    const float *view;
    afmoe_session_stats stats;
    afmoe_context_info info;
    afmoe_session *session = world.sessions[i];
    afmoe_error error;
    afmoe_error_init(&error, sizeof error);
    afmoe_session_stats_init(&stats, sizeof stats);
    afmoe_context_info_init(&info, sizeof info);
    switch (how % 9) {
    case 0: ANY(afmoe_session_tokens(session, tokens, 8, &n, &error)); break;
    case 1: ANY(afmoe_session_logits(session, floats, TINY_IDS, &n, &error)); break;
    case 2: ANY(afmoe_session_logits_view(session, &view, &n, &error)); break;
    case 3: ANY(afmoe_session_logprobs(session, floats, TINY_IDS, &n, &error)); break;
    case 4: ANY(afmoe_session_hidden(session, floats, TINY_IDS, &n, &error)); break;
    case 5: ANY(afmoe_session_get_stats(session, &stats, &error)); break;
    case 6: ANY(afmoe_session_top_logprobs(session, tokens, floats, 8, &n, &error)); break;
    case 7: ANY(afmoe_context_get_info(world.contexts[i], &info, &error)); break;
    default: ANY(afmoe_sampler_sample(world.samplers[slot()], session, choose_u8(in()), &token, floats, &error));
    }
}

static void text(uint32_t i, uint8_t how)
{
    static const char *const roles[] = {"user"}, *const contents[] = {"hi <|im_end|>"};
    afmoe_token tokens[32];
    char bytes[64];
    const char *piece;
    uint64_t n;
    int32_t kind;
    afmoe_model_info info;
    const afmoe_model *model = world.models[i];
    afmoe_error error;
    afmoe_error_init(&error, sizeof error);
    afmoe_model_info_init(&info, sizeof info);
    switch (how % 9) {
    case 0: ANY(afmoe_tokenize(model, "the <think> 12", 14, NULL, tokens, 32, &n, &error)); break;
    case 1:
        n = choose_tokens(tokens, 16);
        ANY(afmoe_detokenize(model, tokens, n, how & 16 ? 1 : 0, bytes, sizeof bytes, &n, &error));
        break;
    case 2: ANY(afmoe_token_text(model, (afmoe_token)choose_u16(in()) - 1, &piece, &n, &kind, &error)); break;
    case 3: ANY(afmoe_token_find(model, "the", 3, tokens, &error)); break;
    case 4: ANY(afmoe_chat_tokenize(model, roles, contents, 1, NULL, tokens, 32, &n, &error)); break;
    case 5: ANY(afmoe_model_get_info(model, &info, &error)); break;
    case 6: ANY(afmoe_model_stop_tokens(model, tokens, 32, &n, &error)); break;
    case 7: ANY(afmoe_stream_decoder_finish(world.decoders[i], &piece, &n, &error)); break;
    default:
        ANY(afmoe_stream_decoder_push(world.decoders[i], (afmoe_token)choose_below(in(), TINY_IDS + 1), &piece, &n,
                                      &error));
    }
}

static void flags(uint32_t i, uint8_t how)
{
    afmoe_cancel *cancel = world.cancels[i];
    if (!cancel) return;
    switch (how % 4) {
    case 0: afmoe_cancel_set(cancel); break;
    case 1: afmoe_cancel_clear(cancel); break;
    case 2:
        afmoe_cancel_retain(cancel);
        afmoe_cancel_free(cancel);
        break;
    default: REQUIRE((uint32_t)afmoe_cancel_is_set(cancel) <= 1);
    }
}

static void save(const uint32_t i)
{
    uint64_t n = 0;
    afmoe_error error;
    afmoe_error_init(&error, sizeof error);
    if (ANY(afmoe_session_save_memory(world.sessions[i], NULL, 0, &n, &error)) != AFMOE_CAPACITY) return;
    free(world.saved.data);
    world.saved = (struct buffer){.data = malloc(n), .n = n};
    CHECK_ONE_OF(afmoe_session_save_memory(world.sessions[i], world.saved.data, n, &n, &error), AFMOE_OK);
}

/* What was saved, of any session, or that with a byte changed. */
static void load(uint32_t i, bool change)
{
    struct buffer *saved = &world.saved;
    afmoe_error error;
    afmoe_error_init(&error, sizeof error);
    uint8_t nothing = 0, *byte = saved->n ? saved->data + choose_u16(in()) % saved->n : &nothing, was = *byte;
    if (change) *byte ^= choose_u8(in());
    afmoe_status status = CHECK_ONE_OF(
        afmoe_session_load_memory(world.sessions[i], saved->data, saved->n, &error), AFMOE_OK, AFMOE_INVALID,
        AFMOE_BUSY, AFMOE_CONTEXT_FULL, AFMOE_STATE, AFMOE_UNSUPPORTED, AFMOE_FORMAT, AFMOE_TRUNCATED, AFMOE_CORRUPT);
    REQUIRE(*byte == was || status != AFMOE_OK);
    *byte = was;
}

static void begin_generation(uint32_t i)
{
    static const char *const stops[] = {"ab"};
    const afmoe_token stop = choose_below(in(), TINY_IDS);
    afmoe_generate_options options;
    afmoe_error error;
    uint8_t how = choose_u8(in());
    afmoe_error_init(&error, sizeof error);
    afmoe_generate_options_init(&options, sizeof options);
    options.n_top_logprobs = how & 1;
    options.n_stop_strings = how >> 1 & 1;
    options.stop_strings = stops;
    options.n_stop_tokens = how >> 2 & 1;
    options.stop_tokens = &stop;
    options.max_draft = how >> 3 & 3;
    if (how & 32) options.cancel = world.cancels[slot()];
    if (how & 64) options.max_tokens = how >> 7;
    afmoe_generation_free(world.generations[i]);
    world.generations[i] = NULL;
    afmoe_sampler *sampler = world.samplers[slot()];
    ANY(afmoe_generation_create(&world.generations[i], world.sessions[slot()], sampler, &options, &error));
}

static void next_piece(uint32_t i)
{
    afmoe_piece piece;
    afmoe_error error;
    uint64_t n = 0;
    afmoe_error_init(&error, sizeof error);
    afmoe_piece_init(&piece, sizeof piece);
    if (ANY(afmoe_generation_next(world.generations[i], &piece, &error)) != AFMOE_OK) return;
    for (uint64_t k = 0; k < piece.text_bytes; k++) n += piece.text[k] != 0;
    for (uint64_t k = 0; k < piece.n_top; k++) n += piece.top_tokens[k] >= 0;
    fuzz_sink += n;
}

static void end_generation(uint32_t i, bool frees)
{
    afmoe_generate_result result;
    afmoe_error error;
    afmoe_error_init(&error, sizeof error);
    afmoe_generate_result_init(&result, sizeof result);
    ANY(afmoe_generation_get_result(world.generations[i], &result, &error));
    if (!frees) return;
    afmoe_generation_free(world.generations[i]);
    world.generations[i] = NULL;
}

static void fork_session(uint32_t i)
{
    afmoe_error error;
    afmoe_error_init(&error, sizeof error);
    afmoe_session_free(world.sessions[i]);
    world.sessions[i] = NULL;
    ANY(afmoe_session_fork(&world.sessions[i], world.sessions[slot()], &error));
}

static void more(uint32_t i, uint8_t how)
{
    switch (how & 7) {
    case 0: fork_session(i); break;
    case 1: save(i); break;
    case 2: load(i, how & 8); break;
    case 3: end_generation(i, how & 8); break;
    case 4: begin_generation(i); break;
    default: next_piece(i);
    }
}

static void one_call(void)
{
    uint8_t how = choose_u8(in());
    uint32_t i = slot();
    switch (how % 8) {
    case 0: make(i); break;
    case 1: release(i); break;
    case 2:
    case 3: compute(i, how >> 3); break;
    case 4: generate(i, how >> 3); break;
    case 5: look(i, how >> 3); break;
    case 6: text(i, how >> 3); break;
    default: how < 128 ? flags(i, how >> 3) : more(i, how >> 3 & 15);
    }
}

/* One of each to begin with, or nothing. */
static void begin(bool with_handles)
{
    afmoe_error error;
    afmoe_error_init(&error, sizeof error);
    if (!with_handles) return;
    afmoe_context_options options;
    afmoe_context_options_init(&options, sizeof options);
    options.n_threads = 1;
    options.chunk_tokens = 4;
    options.max_tokens = 32;
    world.models[0] = tiny_model();
    afmoe_model_retain(world.models[0]);
    CHECK_ONE_OF(afmoe_context_create(&world.contexts[0], world.models[0], &options, &error), AFMOE_OK);
    for (int i = 0; i < 2; i++)
        CHECK_ONE_OF(afmoe_session_create(&world.sessions[i], world.contexts[0], &error), AFMOE_OK);
    CHECK_ONE_OF(afmoe_cancel_create(&world.cancels[0], &error), AFMOE_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    memset(&world, 0, sizeof world);
    world.choices = (struct choices){data, size};
    begin(choose_u8(in()) & 1);
    for (int n = 0; n < N_CALLS && in()->n > 0; n++) one_call();
    bool forwards = choose_u8(in()) & 1;
    for (int i = 0; i < N_SLOTS; i++) {
        if (forwards) afmoe_model_free(world.models[i]);
        if (forwards) afmoe_context_free(world.contexts[i]);
        afmoe_session_free(world.sessions[i]);
        afmoe_sampler_free(world.samplers[i]);
        afmoe_stream_decoder_free(world.decoders[i]);
        afmoe_generation_free(world.generations[i]);
        afmoe_cancel_free(world.cancels[i]);
        if (!forwards) afmoe_context_free(world.contexts[i]);
        if (!forwards) afmoe_model_free(world.models[i]);
    }
    free(world.saved.data);
    REQUIRE(world.n_released == world.n_opened);
    return 0;
}
