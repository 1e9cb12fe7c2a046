/* The reference values beside a checkpoint: expected.safetensors in its folder, or X.expected.safetensors beside X.gguf.
 * How they were made stands in the optional reference folder's fixtures/README.md. */
#ifndef AFMOE_TESTS_EXPECTED_H
#define AFMOE_TESTS_EXPECTED_H

#include "safetensors.h"

struct expected {
    struct safetensors file;
    struct tensor_table table;
    uint64_t n_sequences, n_positions; /* of input_ids */
};

afmoe_status expected_open(struct expected *out, const char *checkpoint_path, afmoe_error *error);
void expected_close(struct expected *expected);

/* NULL when the file has no such tensor. `layer` < 0: the bare name, else "name.layer". */
const float *expected_floats(const struct expected *expected, const char *name, int layer);
const int64_t *expected_ints(const struct expected *expected, const char *name, int layer);
/* Elements of a tensor, 0 when absent. */
uint64_t expected_n(const struct expected *expected, const char *name, int layer);

/* First position that is not padding. */
uint64_t expected_first(const struct expected *expected, uint64_t sequence);
/* Token at a position. */
afmoe_token expected_token(const struct expected *expected, uint64_t sequence, uint64_t position);

#endif
