/* State of a session: what is loaded goes on to the bits of what was saved; what is not whole is refused and changes
 * nothing; what was written by earlier versions is read. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "timelines.h"

#include "checksum.h"
#include "test_paths.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { HEADER_BYTES = 192 };

struct blob {
    uint8_t *bytes;
    uint64_t n;
};

static struct blob blob_of(afmoe_session *session)
{
    struct blob blob;
    assert_int_equal(afmoe_session_save_memory(session, NULL, 0, &blob.n, &error), AFMOE_CAPACITY);
    blob.bytes = malloc(blob.n);
    assert_non_null(blob.bytes);
    CHECK_STATUS(AFMOE_OK, afmoe_session_save_memory(session, blob.bytes, blob.n, &blob.n, &error));
    return blob;
}

static void load_blob(afmoe_session *session, const struct blob *blob)
{
    CHECK_STATUS(AFMOE_OK, afmoe_session_load_memory(session, blob->bytes, blob->n, &error));
}

static void temporary_path(char *out)
{
    const char *root = getenv("TMPDIR");
    snprintf(out, PATH_BYTES, "%s/afmoe-state-XXXXXX", root ? root : "/tmp");
    int descriptor = mkstemp(out);
    assert_true(descriptor >= 0);
    close(descriptor);
}

/* ---- Round trips ---- */

static afmoe_context_options options_with(int32_t cells, uint64_t rewind_tokens, uint32_t chunk_tokens)
{
    afmoe_context_options options = exact_options();
    options.cells = cells;
    options.rewind_tokens = rewind_tokens;
    options.chunk_tokens = chunk_tokens;
    return options;
}

/* `loaded` is at n tokens of the whole, gives them again for nothing, and goes on, back and on again. */
static void check_loaded(const struct bits *expected, afmoe_session *loaded, uint64_t n)
{
    afmoe_append_result result;
    afmoe_append_result_init(&result, sizeof result);
    assert_tokens(loaded, tokens, n);
    if (n == 0) assert_no_logits(loaded);
    if (n) assert_last(expected, loaded, n);
    CHECK_STATUS(AFMOE_OK, afmoe_session_sync(loaded, tokens, n, NULL, &result, &error));
    assert_result(&result, n, n, 0);
    append(loaded, n, N_TOKENS);
    assert_last(expected, loaded, N_TOKENS);
    CHECK_STATUS(AFMOE_OK, afmoe_session_sync(loaded, tokens, n + 5, NULL, NULL, &error));
    assert_last(expected, loaded, n + 5);
}

static void goes_on_to_the_same_bits(void **state)
{
    static const int32_t cells[] = {AFMOE_CELLS_F32, AFMOE_CELLS_F16, AFMOE_CELLS_BF16, AFMOE_CELLS_Q8_0};
    static const uint64_t places[] = {0, 1, 63, 64, 65, 128, 200, 250}, rewinds[] = {0, 10, 256};
    char path[PATH_BYTES];
    (void)state;
    temporary_path(path);
    for (int i = 0; i < 4 * 8; i++) {
        uint64_t n = places[i % 8];
        afmoe_context_options here = options_with(cells[i / 8], rewinds[i % 3], 64);
        afmoe_context_options there = options_with(cells[i / 8], rewinds[(i + i / 8 + 1) % 3], 37);
        there.n_threads = 3;
        struct bits *expected = whole(tiny, &here);
        afmoe_session *session = session_with(tiny, &here), *loaded = session_with(tiny, &there);
        append(session, 0, n);
        append(loaded, 0, 100); /* goes */
        CHECK_STATUS(AFMOE_OK, afmoe_session_save(session, path, &error));
        struct blob blob = blob_of(session);
        struct stat info;
        assert_int_equal(stat(path, &info), 0);
        assert_int_equal(info.st_size, blob.n);
        assert_int_equal(info.st_mode & 0777, 0600);
        CHECK_STATUS(AFMOE_OK, afmoe_session_load(loaded, path, &error));
        check_loaded(expected, loaded, n);
        load_blob(loaded, &blob);
        check_loaded(expected, loaded, n);
        load_blob(session, &blob); /* over itself */
        check_loaded(expected, session, n);
        free(blob.bytes);
        afmoe_session_free(session);
        afmoe_session_free(loaded);
        free(expected);
    }
    unlink(path);
}

/* A saved state is the same bytes however the timeline came about, and after a round trip. */
static void bytes_do_not_depend_on_the_way(void **state)
{
    afmoe_session *a = session_with(tiny, exact()), *b = session_with(tiny, exact());
    (void)state;
    append(a, 0, 200);
    append(b, 0, 150);
    append(b, 150, 151);
    append(b, 151, 230);
    CHECK_STATUS(AFMOE_OK, afmoe_session_sync(b, tokens, 200, NULL, NULL, &error));
    struct blob first = blob_of(a), second = blob_of(b);
    load_blob(b, &first);
    struct blob third = blob_of(b);
    assert_int_equal(first.n, second.n);
    assert_memory_equal(first.bytes, second.bytes, first.n);
    assert_int_equal(first.n, third.n);
    assert_memory_equal(first.bytes, third.bytes, first.n);
    free(first.bytes);
    free(second.bytes);
    free(third.bytes);
    afmoe_session_free(a);
    afmoe_session_free(b);
}

/* Only what is live: a window and the tokens of the full layers, no whole pages. */
static void only_live_cells(void **state)
{
    (void)state;
    for (int scaled = 0; scaled < 2; scaled++) {
        afmoe_context_options options = options_with(scaled ? AFMOE_CELLS_Q8_0 : AFMOE_CELLS_F32, 0, 64);
        afmoe_session *session = session_with(tiny, &options);
        assert_int_equal(info_of(tiny).head_dim, 16); /* a scale each */
        uint64_t position = 2 * info_of(tiny).n_kv_heads * (scaled ? 16 + 2 : 16 * sizeof(float));
        append(session, 0, 256);
        append(session, 256, 257);
        struct blob blob = blob_of(session); /* the window of position 257 begins at 252, in the page from 192 on */
        assert_int_equal(blob.n, HEADER_BYTES + 257 * sizeof(afmoe_token) + (VOCAB + HIDDEN) * sizeof(float) +
                                     (257 + 3 * 65) * position);
        free(blob.bytes);
        afmoe_session_free(session);
    }
}

/* Model, context and session all made anew, in a process of its own. */
static void in_another_process(void **state)
{
    char path[PATH_BYTES], model_path[PATH_BYTES];
    struct bits *expected = whole(tiny, exact());
    float *logits = mmap(NULL, VOCAB * sizeof *logits, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int status;
    (void)state;
    assert_true(logits != MAP_FAILED);
    temporary_path(path);
    afmoe_session *session = session_with(tiny, exact());
    append(session, 0, 123);
    CHECK_STATUS(AFMOE_OK, afmoe_session_save(session, path, &error));
    afmoe_session_free(session);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        afmoe_model *model = open_model(small_model_path(model_path, "tiny-bias"));
        session = session_with(model, exact());
        CHECK_STATUS(AFMOE_OK, afmoe_session_load(session, path, &error));
        append(session, 123, 290);
        CHECK_STATUS(AFMOE_OK, afmoe_session_logits(session, logits, VOCAB, NULL, &error));
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_memory_equal(logits, expected->logits[289], VOCAB * sizeof *logits);
    munmap(logits, VOCAB * sizeof *logits);
    unlink(path);
    free(expected);
}

/* ---- What is refused ---- */

static afmoe_status load_bytes(afmoe_session *session, const uint8_t *bytes, uint64_t n)
{
    uint8_t *exact = malloc(n ? n : 1); /* under ASan: not a byte further */
    assert_non_null(exact);
    memcpy(exact, bytes, n);
    afmoe_status status = afmoe_session_load_memory(session, exact, n, &error);
    free(exact);
    return status;
}

/* It is at 100 tokens still, and goes on from there. */
static void assert_untouched(const struct bits *expected, afmoe_session *session, bool go_on)
{
    assert_tokens(session, tokens, 100);
    assert_last(expected, session, 100);
    if (!go_on) return;
    append(session, 100, 110);
    assert_last(expected, session, 110);
    CHECK_STATUS(AFMOE_OK, afmoe_session_sync(session, tokens, 100, NULL, NULL, &error));
}

static bool is_refusal(afmoe_status status)
{
    return status == AFMOE_FORMAT || status == AFMOE_TRUNCATED || status == AFMOE_CORRUPT ||
           status == AFMOE_UNSUPPORTED;
}

static void damage_is_refused(void **state)
{
    struct bits *expected = whole(tiny, exact());
    afmoe_session *saved = session_with(tiny, exact()), *session = session_with(tiny, exact());
    uint32_t random = 1;
    (void)state;
    append(saved, 0, 150);
    append(session, 0, 100);
    struct blob blob = blob_of(saved);
    for (uint64_t i = 0; i < HEADER_BYTES * 8 + 200; i++) { /* every bit of the header, and any others */
        random = random * 1664525u + 1013904223u;
        uint64_t bit = i < HEADER_BYTES * 8 ? i : (random >> 4) % (blob.n * 8);
        blob.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_true(is_refusal(load_bytes(session, blob.bytes, blob.n)));
        assert_untouched(expected, session, i % 64 == 0 || i >= HEADER_BYTES * 8);
        blob.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    for (uint64_t i = 0; i < HEADER_BYTES + 50; i++) { /* ends at every byte of the header, and at any others */
        random = random * 1664525u + 1013904223u;
        uint64_t n = i < HEADER_BYTES ? i : (random >> 4) % blob.n;
        assert_int_equal(load_bytes(session, blob.bytes, n), AFMOE_TRUNCATED);
        assert_untouched(expected, session, i % 64 == 0 || i >= HEADER_BYTES);
    }
    blob.bytes = realloc(blob.bytes, blob.n + 1);
    assert_non_null(blob.bytes);
    blob.bytes[blob.n] = 0;
    assert_int_equal(load_bytes(session, blob.bytes, blob.n + 1), AFMOE_FORMAT);
    assert_untouched(expected, session, true);
    load_blob(session, &blob);
    assert_last(expected, session, 150);
    free(blob.bytes);
    afmoe_session_free(saved);
    afmoe_session_free(session);
    free(expected);
}

static void put_u32(uint8_t *p, uint32_t value)
{
    for (int i = 0; i < 4; i++) p[i] = (uint8_t)(value >> 8 * i);
}

static void put_u64(uint8_t *p, uint64_t value)
{
    put_u32(p, (uint32_t)value);
    put_u32(p + 4, (uint32_t)(value >> 32));
}

/* Made on purpose: every checksum is right, what it says is not. */
static void lies_are_refused(void **state)
{
    static const struct {
        uint32_t at, bytes;
        uint64_t value;
        afmoe_status status;
        const char *words;
    } lies[] = {
        {8, 4, 3, AFMOE_UNSUPPORTED, "version 3"},
        {8, 4, 2, AFMOE_FORMAT, "0 of the tokens 0..0 dropped, of 150"},
        {8, 4, 0, AFMOE_UNSUPPORTED, "version 0"},
        {12, 4, 3, AFMOE_FORMAT, "3 sections"},
        {12, 4, 0xFFFFFFFF, AFMOE_FORMAT, "4294967295 sections"},
        {16, 8, 0, AFMOE_FORMAT, "bytes"},
        {16, 8, UINT64_MAX, AFMOE_TRUNCATED, "18446744073709551615"},
        {24, 8, 1, AFMOE_STATE, "fingerprint of the model is 1 there"},
        {32, 4, 2, AFMOE_STATE, "precision is 2 there and 1 here"},
        {36, 4, 2, AFMOE_STATE, "cells is 2 there and 1 here"},
        {36, 4, 0, AFMOE_STATE, "cells is 0 there"},
        {40, 4, 0xFFFFFFFF, AFMOE_STATE, "n_layers is 4294967295 there and 4 here"},
        {44, 4, 0, AFMOE_STATE, "n_kv_heads is 0"},
        {48, 4, 32, AFMOE_STATE, "head_dim is 32 there and 16 here"},
        {52, 4, 128, AFMOE_STATE, "page size is 128 there and 64 here"},
        {56, 8, 97, AFMOE_STATE, "vocab_size is 97 there and 96 here"},
        {64, 8, UINT64_MAX, AFMOE_STATE, "hidden_size"},
        {72, 8, 7, AFMOE_STATE, "sliding_window is 7 there and 6 here"},
        {80, 8, 513, AFMOE_CONTEXT_FULL, "513 tokens; a session holds 512"},
        {80, 8, UINT64_MAX, AFMOE_CONTEXT_FULL, "18446744073709551615 tokens"},
        {80, 8, 0, AFMOE_FORMAT, "of 0 tokens"},
        {80, 8, 151, AFMOE_FORMAT, "600 bytes of tokens, 151 tokens have 604"},
        {80, 8, 149, AFMOE_FORMAT, "600 bytes of tokens"},
        {88, 8, 3, AFMOE_FORMAT, "pages from 3 on do not hold the window of position 150"},
        {88, 8, UINT64_MAX, AFMOE_FORMAT, "pages from 18446744073709551615"},
        {88, 8, 1, AFMOE_FORMAT, "of cells"},
        {96, 4, 0, AFMOE_FORMAT, "384 bytes of logits, 150 tokens have 0"},
        {96, 4, 2, AFMOE_FORMAT, "logits 2"},
        {112, 8, 596, AFMOE_FORMAT, "596 bytes of tokens"},
        {128, 8, UINT64_MAX, AFMOE_FORMAT, "bytes of logits"},
        {144, 8, 0, AFMOE_FORMAT, "0 bytes of hidden state"},
        {160, 8, 1, AFMOE_FORMAT, "1 bytes of cells"},
        {120, 8, 1, AFMOE_CORRUPT, "checksum of the tokens"},
        {136, 8, 1, AFMOE_CORRUPT, "checksum of the logits"},
        {152, 8, 1, AFMOE_CORRUPT, "checksum of the hidden state"},
        {168, 8, 1, AFMOE_CORRUPT, "checksum of the cells"},
    };
    struct bits *expected = whole(tiny, exact());
    afmoe_session *saved = session_with(tiny, exact()), *session = session_with(tiny, exact());
    (void)state;
    append(saved, 0, 150);
    append(session, 0, 100);
    struct blob blob = blob_of(saved);
    uint8_t header[HEADER_BYTES];
    memcpy(header, blob.bytes, HEADER_BYTES);
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        memcpy(blob.bytes, header, HEADER_BYTES);
        if (lies[i].bytes == 4) put_u32(blob.bytes + lies[i].at, (uint32_t)lies[i].value);
        else put_u64(blob.bytes + lies[i].at, lies[i].value);
        put_u64(blob.bytes + 184, checksum_of(blob.bytes, 184));
        CHECK_STATUS(lies[i].status, load_bytes(session, blob.bytes, blob.n));
        if (!strstr(error.message, lies[i].words)) fail_msg("'%s' is not in: %s", lies[i].words, error.message);
        assert_untouched(expected, session, false);
    }
    for (int i = 0; i < 2; i++) { /* tokens that are none */
        memcpy(blob.bytes, header, HEADER_BYTES);
        put_u32(blob.bytes + HEADER_BYTES + 4 * 77, i ? VOCAB : 0xFFFFFFFF);
        put_u64(blob.bytes + 120, checksum_of(blob.bytes + HEADER_BYTES, 600));
        put_u64(blob.bytes + 184, checksum_of(blob.bytes, 184));
        CHECK_STATUS(AFMOE_FORMAT, load_bytes(session, blob.bytes, blob.n));
        assert_non_null(strstr(error.message, "token 77 is"));
        assert_untouched(expected, session, true);
    }
    free(blob.bytes);
    afmoe_session_free(saved);
    afmoe_session_free(session);
    free(expected);
}

/* The same shape with other weights, other cells, and contexts that are too small. */
static void does_not_fit(void **state)
{
    char from[PATH_BYTES], path[PATH_BYTES];
    afmoe_session *session = session_with(tiny, exact());
    (void)state;
    append(session, 0, 150);
    struct blob blob = blob_of(session);
    make_variant(path, small_model_path(from, "tiny-bias"), NULL, NULL);
    afmoe_model *copy = open_model(path);
    afmoe_session *other = session_with(copy, exact());
    load_blob(other, &blob); /* the same model from another path */
    afmoe_session_free(other);
    afmoe_model_free(copy);
    remove_variant(path);
    make_variant(path, from, "route_scale", "1.5");
    afmoe_model *variant = open_model(path);
    other = session_with(variant, exact());
    CHECK_STATUS(AFMOE_STATE, afmoe_session_load_memory(other, blob.bytes, blob.n, &error));
    assert_non_null(strstr(error.message, "fingerprint"));
    afmoe_session_free(other);
    afmoe_model_free(variant);
    remove_variant(path);

    afmoe_context_options options = options_with(AFMOE_CELLS_BF16, 256, 64);
    other = session_with(tiny, &options);
    CHECK_STATUS(AFMOE_STATE, afmoe_session_load_memory(other, blob.bytes, blob.n, &error));
    afmoe_session_free(other);
    options = exact_options();
    options.max_tokens = 149;
    other = session_with(tiny, &options);
    CHECK_STATUS(AFMOE_CONTEXT_FULL, afmoe_session_load_memory(other, blob.bytes, blob.n, &error));
    afmoe_session_free(other);

    uint64_t layers = info_of(tiny).n_layers; /* 3 pages of each layer, and one more of each that is there */
    options = exact_options();
    options.max_page_bytes = 3 * layers * bytes_of_page(tiny);
    afmoe_context *context = open_context(tiny, &options);
    other = open_session(context);
    append(other, 0, 1);
    CHECK_STATUS(AFMOE_CONTEXT_FULL, afmoe_session_load_memory(other, blob.bytes, blob.n, &error));
    assert_int_equal(n_tokens_of(other), 1);
    CHECK_STATUS(AFMOE_OK, afmoe_session_rewind(other, 0, NULL, NULL, &error));
    load_blob(other, &blob);
    assert_int_equal(page_bytes_of(context), 3 * layers * bytes_of_page(tiny));
    afmoe_session_free(other);
    assert_int_equal(page_bytes_of(context), 0);
    afmoe_context_free(context);
    free(blob.bytes);
    afmoe_session_free(session);
}

static int32_t save_self(void *user, uint64_t done, uint64_t total)
{
    uint64_t n;
    (void)done;
    (void)total;
    assert_int_equal(afmoe_session_save_memory(user, NULL, 0, &n, NULL), AFMOE_BUSY);
    assert_int_equal(afmoe_session_load_memory(user, &n, 8, NULL), AFMOE_BUSY);
    assert_int_equal(afmoe_session_save(user, "never", NULL), AFMOE_BUSY);
    return 0;
}

static void arguments_and_files(void **state)
{
    char path[PATH_BYTES], folder[PATH_BYTES + 8], link[PATH_BYTES + 8];
    afmoe_session *session = session_with(tiny, exact());
    afmoe_append_options options;
    uint8_t byte = 0;
    uint64_t n = 0;
    (void)state;
    afmoe_append_options_init(&options, sizeof options);
    options.progress = save_self;
    options.progress_data = session;
    CHECK_STATUS(AFMOE_OK, afmoe_session_append(session, tokens, 10, &options, NULL, &error));
    assert_int_equal(afmoe_session_save(NULL, "x", &error), AFMOE_INVALID);
    assert_int_equal(afmoe_session_save(session, NULL, &error), AFMOE_INVALID);
    assert_int_equal(afmoe_session_save(session, "", &error), AFMOE_INVALID);
    assert_int_equal(afmoe_session_load(NULL, "x", &error), AFMOE_INVALID);
    assert_int_equal(afmoe_session_load(session, NULL, &error), AFMOE_INVALID);
    assert_int_equal(afmoe_session_load_memory(session, NULL, 0, &error), AFMOE_INVALID);
    assert_int_equal(afmoe_session_load_memory(session, &byte, 0, &error), AFMOE_TRUNCATED);
    assert_int_equal(afmoe_session_save_memory(session, &byte, 1, &n, &error), AFMOE_CAPACITY);
    assert_true(n > HEADER_BYTES && byte == 0);
    assert_int_equal(afmoe_session_load(session, "/nowhere/at/all", &error), AFMOE_NOT_FOUND);
    assert_int_equal(afmoe_session_save(session, "/nowhere/at/all", &error), AFMOE_NOT_FOUND);
    assert_int_equal(afmoe_session_save(session, "/dev/null", &error), AFMOE_INVALID);
    temporary_path(path);
    snprintf(folder, sizeof folder, "%s/", path);
    assert_int_equal(afmoe_session_load(session, path, &error), AFMOE_TRUNCATED); /* empty */
    assert_int_equal(afmoe_session_save(session, folder, &error), AFMOE_NOT_FOUND); /* a file as folder */
    snprintf(link, sizeof link, "%s.link", path);
    assert_int_equal(symlink(path, link), 0);
    assert_int_equal(afmoe_session_save(session, link, &error), AFMOE_INVALID);
    unlink(link);
    unlink(path);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(afmoe_session_save(session, path, &error), AFMOE_INVALID);
    assert_int_equal(afmoe_session_load(session, path, &error), AFMOE_FORMAT);
    rmdir(path);
    assert_tokens(session, tokens, 10);
    afmoe_session_free(session);
}

/* The same of what a shift has dropped. */
static void lies_about_shifts_are_refused(void **state)
{
    static const struct {
        uint32_t version, begin, end; /* pages */
        uint64_t n_dropped;
        afmoe_status status;
        const char *words;
    } lies[] = {
        {2, 1, 1, 64, AFMOE_FORMAT, "64 of the tokens 64..64 dropped, of 200"},
        {2, 2, 1, 64, AFMOE_FORMAT, "64 of the tokens 128..64"},
        {2, 1, 4, 64, AFMOE_FORMAT, "64 of the tokens 64..256 dropped, of 200"},
        {2, 1, UINT32_MAX, 64, AFMOE_FORMAT, "dropped, of 200"},
        {2, 1, 2, 0, AFMOE_FORMAT, "0 of the tokens"},
        {2, 1, 2, 63, AFMOE_FORMAT, "63 of the tokens"},
        {2, 1, 2, 128, AFMOE_FORMAT, "128 of the tokens"},
        {2, 1, 2, UINT64_MAX - 63, AFMOE_FORMAT, "of the tokens"},
        {2, 1, 3, 128, AFMOE_FORMAT, "bytes of cells"},
        {1, 1, 2, 64, AFMOE_FORMAT, "bytes of cells"},
        {2, 1, 2, 64, AFMOE_OK, NULL},
        {2, 0, 2, 64, AFMOE_OK, NULL}, /* where exactly is known to nobody else */
    };
    struct bits *expected = whole(tiny, exact());
    afmoe_session *saved = session_with(tiny, exact()), *session = session_with(tiny, exact());
    (void)state;
    append(saved, 0, 150);
    CHECK_STATUS(AFMOE_OK, afmoe_session_shift(saved, 64, 64, NULL, &error));
    append(saved, 150, 200);
    append(session, 0, 100);
    struct blob blob = blob_of(saved);
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        put_u32(blob.bytes + 8, lies[i].version);
        put_u32(blob.bytes + 104, lies[i].begin);
        put_u32(blob.bytes + 108, lies[i].end);
        put_u64(blob.bytes + 176, lies[i].n_dropped);
        put_u64(blob.bytes + 184, checksum_of(blob.bytes, 184));
        CHECK_STATUS(lies[i].status, load_bytes(session, blob.bytes, blob.n));
        if (lies[i].status == AFMOE_OK) continue;
        if (!strstr(error.message, lies[i].words)) fail_msg("'%s' is not in: %s", lies[i].words, error.message);
        assert_untouched(expected, session, false);
    }
    afmoe_session_free(saved);
    afmoe_session_free(session);
    free(blob.bytes);
    free(expected);
}

/* ---- Files of earlier versions ---- */

static const struct {
    const char *name;
    int32_t precision, cells;
    uint64_t n_tokens;
    double tolerance; /* of another CPU level */
    uint64_t shift_at; /* 0: none; else its first page is dropped when it has so many tokens */
} golden[] = {{"states/v1-tiny-bias-f32.state", AFMOE_PRECISION_EXACT, AFMOE_CELLS_F32, 70, 1e-4, 0},
              {"states/v1-tiny-bias-bf16.state", AFMOE_PRECISION_EXACT, AFMOE_CELLS_BF16, 130, 2e-2, 0},
              {"states/v1-tiny-bias-fast-bf16.state", AFMOE_PRECISION_FAST, AFMOE_CELLS_BF16, 130, 2e-2, 0},
              {"states/v2-tiny-bias-f32.state", AFMOE_PRECISION_EXACT, AFMOE_CELLS_F32, 134, 1e-4, 100},
              {"states/v2-tiny-bias-q8_0.state", AFMOE_PRECISION_EXACT, AFMOE_CELLS_Q8_0, 134, 2e-2, 100}};

static void assert_close(const float *a, const float *b, double tolerance)
{
    for (int i = 0; i < VOCAB; i++) assert_true(fabs((double)a[i] - (double)b[i]) <= tolerance);
}

/* What golden file i was made from. */
static void make_golden(size_t i, afmoe_session *session)
{
    append(session, 0, golden[i].shift_at);
    if (golden[i].shift_at) CHECK_STATUS(AFMOE_OK, afmoe_session_shift(session, 0, 64, NULL, &error));
    append(session, golden[i].shift_at, golden[i].n_tokens);
}

static void assert_close_sessions(afmoe_session *a, afmoe_session *b, double tolerance)
{
    float first[VOCAB], second[VOCAB];
    CHECK_STATUS(AFMOE_OK, afmoe_session_logits(a, first, VOCAB, NULL, &error));
    CHECK_STATUS(AFMOE_OK, afmoe_session_logits(b, second, VOCAB, NULL, &error));
    assert_close(first, second, tolerance);
}

static void files_of_earlier_versions(void **state)
{
    char path[PATH_BYTES];
    (void)state;
    for (size_t i = 0; i < sizeof golden / sizeof *golden; i++) {
        afmoe_context_options options = options_with(golden[i].cells, 0, 64);
        options.precision = golden[i].precision;
        afmoe_session *session = session_with(tiny, &options), *expected = session_with(tiny, &options);
        uint64_t n = golden[i].n_tokens;
        make_golden(i, expected);
        data_path(path, sizeof path, golden[i].name);
        if (getenv("AFMOE_WRITE_STATES") && access(path, F_OK) != 0) /* what is there is never written again */
            CHECK_STATUS(AFMOE_OK, afmoe_session_save(expected, path, &error));
        CHECK_STATUS(AFMOE_OK, afmoe_session_load(session, path, &error));
        assert_tokens(session, tokens, n);
        assert_int_equal(stats_of(session).n_dropped, golden[i].shift_at ? 64 : 0);
        assert_close_sessions(session, expected, golden[i].tolerance);
        append(session, n, N_TOKENS);
        append(expected, n, N_TOKENS);
        assert_close_sessions(session, expected, golden[i].tolerance);
        afmoe_session_free(session);
        afmoe_session_free(expected);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(goes_on_to_the_same_bits),
        cmocka_unit_test(bytes_do_not_depend_on_the_way),
        cmocka_unit_test(only_live_cells),
        cmocka_unit_test(in_another_process),
        cmocka_unit_test(damage_is_refused),
        cmocka_unit_test(lies_are_refused),
        cmocka_unit_test(does_not_fit),
        cmocka_unit_test(arguments_and_files),
        cmocka_unit_test(lies_about_shifts_are_refused),
        cmocka_unit_test(files_of_earlier_versions),
    };
    return cmocka_run_group_tests_name("state", tests, open_tiny, close_tiny);
}
