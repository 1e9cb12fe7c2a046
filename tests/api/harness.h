/* What tests through the public API share: opening things or failing the test, tokens, and variants of small models. */
#ifndef AFMOE_TESTS_HARNESS_H
#define AFMOE_TESTS_HARNESS_H

#include "afmoe.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdbool.h>

#include <cmocka.h>

enum { PATH_BYTES = 4096 };

/* Fail the test, with the call's own message, unless `call` (which fills `error`) answers `expected`. */
#define CHECK_STATUS(expected, call) check_status(expected, call, #call, &error, __FILE__, __LINE__)
void check_status(afmoe_status expected, afmoe_status status, const char *call, const afmoe_error *error,
                  const char *file, int line);

afmoe_error fresh_error(void);

/* A small hub model: of tests/data, else of the optional reference folder. NULL: not there, "skipped" is printed. */
const char *small_model_path(char *out, const char *name);
/* The trained text model of the repository. */
const char *text_model_path(char *out);

afmoe_model *open_model(const char *path);
/* `options` NULL: two threads, else defaults. */
afmoe_context *open_context(afmoe_model *model, const afmoe_context_options *options);
afmoe_session *open_session(afmoe_context *context);
afmoe_context_options two_threads(void);
afmoe_model_info info_of(const afmoe_model *model);
afmoe_session_stats stats_of(afmoe_session *session);
uint64_t page_bytes_of(afmoe_context *context);
uint64_t n_tokens_of(afmoe_session *session);

/* The same tokens every time, for a vocabulary of n ids; different for different seeds. */
void make_tokens(afmoe_token *out, uint64_t n, uint64_t vocab_size, uint32_t seed);

/* A copy of the hub folder `from` in a new temporary folder, with the value of `key` in config.json replaced by
 * `value` (JSON text); key NULL: unchanged. */
void make_variant(char *out_path, const char *from, const char *key, const char *value);
/* Make the first element of a float32 tensor of a variant NaN. */
void poison_variant(const char *path, const char *tensor);
/* Write a further file into a variant. */
void add_to_variant(const char *path, const char *name, const char *text);
void remove_variant(const char *path);

#endif
