/* Every allocation of an open fails, once and from then on: an error comes back and nothing is leaked.
 *
 * This program's malloc stands before the C library's, for jansson as well. It does nothing where a sanitizer has an
 * allocator of its own, or without glibc. */
#include "fixture_writer.h"
#include "opening.h"
#include "sanitizer.h"

#include <errno.h>

#if defined(__GLIBC__) && !UNDER_SANITIZER
#define CAN_INTERPOSE 1
#endif

#ifdef CAN_INTERPOSE

extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t n);
extern void *__libc_memalign(size_t alignment, size_t n);
extern void __libc_free(void *p);

static int64_t n_live, n_calls, fail_at = -1; /* fail_at: the call to fail, counted from 0 */
static bool fail_for_good;

static bool should_fail(void)
{
    int64_t call = n_calls++;
    bool fails = fail_at >= 0 && (call == fail_at || (fail_for_good && call > fail_at));
    if (fails) errno = ENOMEM;
    return fails;
}

static void *counted(void *p)
{
    if (p) n_live++;
    return p;
}

void *malloc(size_t n);
void *calloc(size_t n, size_t size);
void *realloc(void *p, size_t n);
int posix_memalign(void **out, size_t alignment, size_t n);
void free(void *p);

void *malloc(size_t n)
{
    return should_fail() ? NULL : counted(__libc_malloc(n));
}

void *calloc(size_t n, size_t size)
{
    return should_fail() ? NULL : counted(__libc_calloc(n, size));
}

void *realloc(void *p, size_t n)
{
    if (!p) return malloc(n);
    return should_fail() ? NULL : __libc_realloc(p, n);
}

int posix_memalign(void **out, size_t alignment, size_t n)
{
    if (should_fail()) return ENOMEM;
    *out = counted(__libc_memalign(alignment, n));
    return *out ? 0 : ENOMEM;
}

void free(void *p)
{
    if (p) n_live--;
    __libc_free(p);
}

/* Opens with allocation k failing, for k = 0, 1, ... until one opens with no failure left to meet. */
static void torture(const char *path, bool for_good, const char *what)
{
    const struct checkpoint_options options = {.max_json_bytes = 32 << 20};
    struct checkpoint whole;
    bool done = false;
    int64_t k;
    check_open(&whole, path, &options, AFMOE_OK, "", what);
    const uint64_t n_parameters = whole.weights.n_parameters;
    afmoe__checkpoint_close(&whole);
    for (k = 0; !done; k++) {
        struct checkpoint c;
        afmoe_error error = {.size = sizeof error};
        int64_t live = n_live;
        n_calls = 0;
        fail_for_good = for_good;
        fail_at = k;
        int32_t status = afmoe__checkpoint_open(&c, path, &options, &error);
        done = n_calls <= k;
        fail_at = -1;
        if (status == AFMOE_OK) { /* in spite of a failure, so nothing may be lost */
            assert_int_equal(c.weights.n_parameters, n_parameters);
            assert_int_equal(c.config.n_layers, 2);
            assert_int_equal(c.config.sliding_window, 8);
            assert_int_equal(c.config.max_positions, 128);
            assert_true(touch_view(&c) != 0);
        }
        afmoe__checkpoint_close(&c);
        if (status != AFMOE_OK && status != AFMOE_NO_MEMORY) {
            print_error("%s, allocation %lld: %d %s\n", what, (long long)k, status, error.message);
        }
        assert_true(status == AFMOE_NO_MEMORY || status == AFMOE_OK);
        if (n_live != live)
            print_error("%s, allocation %lld: %lld leaked\n", what, (long long)k, (long long)(n_live - live));
        assert_int_equal(n_live, live);
        assert_true(k < 100000);
    }
    print_message("%s: %lld allocations, %s\n", what, (long long)k - 1, for_good ? "failing for good" : "failing once");
    assert_true(k > 20);
}

static void test_out_of_memory(void **state)
{
    (void)state;
    struct scratch scratch;
    struct gguf_writer gguf;
    struct safetensors_writer hub;
    struct buffer bytes;
    uint64_t n_header;
    char path[512];
    json_t *config = tiny_config(), *map = json_object(), *entry, *index;
    const char *name;
    scratch_make(&scratch);
    gguf_writer_init(&gguf, FORMAT_Q8_0);
    gguf_serialise(&gguf, &bytes, &n_header);
    scratch_write(&scratch, "tiny.gguf", bytes.data, bytes.n);
    snprintf(path, sizeof path, "%s", scratch_path(&scratch, "tiny.gguf"));
    torture(path, false, "GGUF");
    torture(path, true, "GGUF");
    for (uint32_t part = 0; part < 3; part++) {
        char part_name[64];
        struct gguf_writer w;
        struct buffer one;
        snprintf(part_name, sizeof part_name, "tiny-%05u-of-00003.gguf", part + 1);
        gguf_writer_init_part(&w, FORMAT_Q8_0, part, 3);
        gguf_serialise(&w, &one, &n_header);
        scratch_write(&scratch, part_name, one.data, one.n);
        gguf_writer_free(&w);
        buffer_free(&one);
    }
    snprintf(path, sizeof path, "%s", scratch_path(&scratch, "tiny-00001-of-00003.gguf"));
    torture(path, false, "split GGUF");
    torture(path, true, "split GGUF");
    snprintf(path, sizeof path, "%s", scratch_path(&scratch, "tiny.gguf"));
    safetensors_writer_init(&hub);
    safetensors_add_tiny(&hub, FORMAT_BF16);
    write_tiny_hub(&scratch, config, &hub);
    scratch_write(&scratch, "generation_config.json", "{\"eos_token_id\": [1, 2], \"top_k\": 3}", 36);
    scratch_write(&scratch, "tokenizer_config.json", "{}", 2);
    torture(scratch.path, false, "folder");
    torture(scratch.path, true, "folder");
    json_object_foreach(hub.header, name, entry) json_object_set_new(map, name, json_string("a.safetensors"));
    assert_int_equal(rename(scratch_path(&scratch, "model.safetensors"), path), 0);
    scratch_write(&scratch, "a.safetensors", "", 0);
    assert_int_equal(rename(path, scratch_path(&scratch, "a.safetensors")), 0);
    index = json_pack("{s:o}", "weight_map", map);
    scratch_write_json(&scratch, "model.safetensors.index.json", index);
    torture(scratch.path, false, "shards");
    torture(scratch.path, true, "shards");
    json_decref(index);
    json_decref(config);
    safetensors_writer_free(&hub);
    gguf_writer_free(&gguf);
    buffer_free(&bytes);
    scratch_remove(&scratch);
}

#else

static void test_out_of_memory(void **state)
{
    (void)state;
    printf("skipped: sanitizer out of memory (no allocator to stand before)\n");
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_out_of_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
