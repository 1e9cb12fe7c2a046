/* What the fuzz targets share: the fuzzer's bytes as choices, files without a disk, edits on JSON texts, and a tiny
 * model.
 *
 * A target exports LLVMFuzzerTestOneInput. With clang and -Dfuzz=enabled it is a libFuzzer program; with replay.c and
 * any compiler it runs the inputs kept in corpus/ as a test. A broken promise ends the process. */
#ifndef AFMOE_TESTS_FUZZ_H
#define AFMOE_TESTS_FUZZ_H

#include "fixture_writer.h"

#include <stdbool.h>
#include <stddef.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Print and abort: what libFuzzer and a test take for a failure. */
#define REQUIRE(condition) ((condition) ? (void)0 : fuzz_broken(#condition, __FILE__, __LINE__))
_Noreturn void fuzz_broken(const char *condition, const char *file, int line);
/* Require that `status`, which it returns, is one of the `n` expected ones and that a failure comes with its own code
 * and a text of one line. */
afmoe_status fuzz_check_status(afmoe_status status, const afmoe_error *error, const afmoe_status *expected, size_t n,
                               const char *call);
#define CHECK_ONE_OF(call, ...)                                                                                        \
    fuzz_check_status(call, &error, (const afmoe_status[]){__VA_ARGS__},                                               \
                      sizeof((const afmoe_status[]){__VA_ARGS__}) / sizeof(afmoe_status), #call)

/* Add to it what was read from an opened file, so that the reads are made. */
extern volatile uint64_t fuzz_sink;

/* ---- Choices: zeros after the end ------------------------------------------------------------------------------- */

struct choices {
    const uint8_t *at;
    size_t n;
};

uint8_t choose_u8(struct choices *c);
uint16_t choose_u16(struct choices *c);
uint32_t choose_u32(struct choices *c);
uint64_t choose_u64(struct choices *c);
/* One below n. */
uint32_t choose_below(struct choices *c, uint32_t n);
/* A number near the limits of types and sizes, or any. */
uint64_t choose_size(struct choices *c);
/* The same for float: NaN, infinities, edges of ranges, or any. */
float choose_float(struct choices *c);
/* Up to `max` bytes: a length, then so many. */
const uint8_t *choose_bytes(struct choices *c, size_t max, size_t *out_n);

/* ---- Files without a disk: DISK is a folder, DISK/NAME a file, in memory exactly as long ----------------- */

#define DISK "/fuzz"
void disk_clear(void);
void disk_put(const char *name, const void *bytes, uint64_t n);

/* ---- JSON: edits on a valid text -------------------------------------------------------------------------------- */

struct json_span {
    size_t key, begin, end; /* of a value; key: where its member begins, `begin` in arrays */
};

struct json_base {
    const char *text;
    size_t n;
    struct json_span *spans;
    size_t n_spans;
};

/* Find the values of a text; it is borrowed. */
void json_base_init(struct json_base *base, const char *text);
/* The text with edits as chosen: values replaced, dropped, repeated, keys renamed, bytes put in. `words`: strings worth
 * trying for this document. */
void json_edit(struct buffer *out, const struct json_base *base, struct choices *c, const char *const *words,
               size_t n_words);

/* ---- A tiny model ----------------------------------------------------------------------------------------------- */

enum { TINY_IDS = 288 };

/* The tiny model with TINY_IDS rows and the tiny tokenizer, as a GGUF file and open; both are made once and kept. */
const struct buffer *tiny_file(void);
afmoe_model *tiny_model(void);
/* A file below $AFMOE_TEST_DATA (else tests/data). */
void read_data_file(struct buffer *out, const char *name);

#endif
