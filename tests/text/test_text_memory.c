/* Out of memory at every allocation in turn: NO_MEMORY (or, for the piece cache, the same ids more slowly), nothing
 * leaked (under a leak checker), nothing half done. The linker replaces the allocator, see meson.build. */
#include "chatml.h"
#include "stream_decoder.h"

#include "text_fixture.h"

static int64_t n_until_failure = INT64_MAX;
static bool failed;

static bool fails(void)
{
    if (n_until_failure-- != 0) return false;
    failed = true;
    return true;
}

void *__real_afmoe__alloc_array(uint64_t n, uint64_t element_bytes);
void *__real_afmoe__alloc_zeroed(uint64_t n, uint64_t element_bytes);
void *__real_afmoe__alloc_aligned(uint64_t n, uint64_t element_bytes);
void *__real_afmoe__realloc_array(void *p, uint64_t n, uint64_t element_bytes);
void *__wrap_afmoe__alloc_array(uint64_t n, uint64_t element_bytes);
void *__wrap_afmoe__alloc_zeroed(uint64_t n, uint64_t element_bytes);
void *__wrap_afmoe__alloc_aligned(uint64_t n, uint64_t element_bytes);
void *__wrap_afmoe__realloc_array(void *p, uint64_t n, uint64_t element_bytes);

void *__wrap_afmoe__alloc_array(uint64_t n, uint64_t element_bytes)
{
    return fails() ? NULL : __real_afmoe__alloc_array(n, element_bytes);
}

void *__wrap_afmoe__alloc_zeroed(uint64_t n, uint64_t element_bytes)
{
    return fails() ? NULL : __real_afmoe__alloc_zeroed(n, element_bytes);
}

void *__wrap_afmoe__alloc_aligned(uint64_t n, uint64_t element_bytes)
{
    return fails() ? NULL : __real_afmoe__alloc_aligned(n, element_bytes);
}

void *__wrap_afmoe__realloc_array(void *p, uint64_t n, uint64_t element_bytes)
{
    return fails() ? NULL : __real_afmoe__realloc_array(p, n, element_bytes);
}

/* Run `attempt` with the first allocation failing, then the second, ... until one run has no failure; returns how many
 * did not answer NO_MEMORY although one failed. */
static int64_t torture(afmoe_status (*attempt)(void *data), void *data, int64_t *out_n_failures)
{
    int64_t n_tolerated = 0;
    for (int64_t at = 0;; at++) {
        n_until_failure = at;
        failed = false;
        afmoe_status status = attempt(data);
        n_until_failure = INT64_MAX;
        if (!failed) {
            assert_int_equal(status, AFMOE_OK);
            *out_n_failures = at;
            return n_tolerated;
        }
        if (status == AFMOE_OK)
            n_tolerated++;
        else
            assert_int_equal(status, AFMOE_NO_MEMORY);
    }
}

static afmoe_status load(void *data)
{
    struct file_bytes *file = data;
    struct tokenizer *tokenizer = NULL;
    afmoe_status status = afmoe__tokenizer_from_json(&tokenizer, file->data, file->n, 1 << 25, "t.json", NULL);
    assert_true((status == AFMOE_OK) == (tokenizer != NULL));
    afmoe__tokenizer_free(tokenizer);
    return status;
}

static void loading(void **state)
{
    (void)state;
    struct file_bytes file = read_fixture("AFMOE_TEST_DATA", "tokenizer/pico-tokenizer.json");
    assert_non_null(file.data);
    int64_t n_failures;
    assert_int_equal(torture(load, &file, &n_failures), 9); /* copies of afmoe__tokenizer_move: the originals stay */
    assert_true(n_failures > 10);
    free(file.data);
}

struct work {
    struct tokenizer *tokenizer;
    char text[8192];
    afmoe_token ids[8192], wanted[8192];
    uint64_t n_wanted;
};

static afmoe_status encode_all(void *data)
{
    struct work *work = data;
    uint64_t n = 0;
    afmoe_status status =
        afmoe__tokenizer_encode(work->tokenizer, work->text, sizeof work->text, NULL, work->ids, 8192, &n, NULL);
    if (status == AFMOE_OK) {
        assert_int_equal(n, work->n_wanted);
        assert_memory_equal(work->ids, work->wanted, n * sizeof *work->ids);
    }
    return status;
}

static afmoe_status encode_chat(void *data)
{
    struct work *work = data;
    const char *roles[] = {"user"}, *contents[] = {"Hello"};
    const afmoe_chat_options options = {.size = sizeof options, .add_generation_prompt = 1, .max_text_bytes = 8192};
    uint64_t n;
    return afmoe__chatml_encode(work->tokenizer, roles, contents, 1, &options, work->ids, 8192, &n, NULL);
}

static afmoe_status decode_stream(void *data)
{
    struct work *work = data;
    struct stream_decoder *decoder = NULL;
    const char *text;
    uint64_t n;
    afmoe_status status = afmoe__stream_decoder_create(&decoder, work->tokenizer, 1600, 0, NULL);
    for (uint64_t i = 0; i < work->n_wanted && status == AFMOE_OK; i++) {
        status = afmoe__stream_decoder_push(decoder, work->wanted[i], &text, &n, NULL);
    }
    afmoe__stream_decoder_free(decoder);
    return status;
}

static void using(void **state)
{
    (void)state;
    struct work *work = calloc(1, sizeof *work);
    int64_t n_failures;
    work->tokenizer = load_pico();
    memset(work->text, 'a', sizeof work->text); /* one long piece, then short ones */
    for (size_t i = sizeof work->text / 2; i < sizeof work->text; i += 7) work->text[i] = ' ';
    assert_int_equal(afmoe__tokenizer_encode(work->tokenizer, work->text, sizeof work->text, NULL, work->wanted, 8192,
                                             &work->n_wanted, NULL),
                     AFMOE_OK);
    assert_int_equal(torture(encode_all, work, &n_failures), 1); /* the piece cache */
    assert_true(n_failures >= 4);
    assert_int_equal(torture(encode_chat, work, &n_failures), 0);
    assert_int_equal(torture(decode_stream, work, &n_failures), 0);
    assert_true(n_failures >= 3);
    afmoe__tokenizer_free(work->tokenizer);
    free(work);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loading),
        cmocka_unit_test(using),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
