/* Tensor formats: how the elements of one row of weights lie in memory.
 *
 * A row is a sequence of blocks. A block holds `block_elements` values in `block_bytes` bytes; rows follow each
 * other without padding, so a row of n columns takes n / block_elements * block_bytes bytes. The numbers below are
 * our own and never stored in a file; readers of containers map their type codes to them. */
#ifndef AFMOE_KERNELS_FORMAT_H
#define AFMOE_KERNELS_FORMAT_H

#include <stdint.h>

enum tensor_format {
    FORMAT_F32,
    FORMAT_F16,
    FORMAT_BF16,
    FORMAT_Q8_0, /* 32 values: f16 scale d, 32 int8 q; value = d * q */
    N_FORMATS
};

struct format_traits {
    const char *name; /* as GGUF spells it: "F32", "Q8_0" */
    uint32_t block_elements;
    uint32_t block_bytes;
};

/* Indexed by enum tensor_format. */
extern const struct format_traits afmoe__format_traits[N_FORMATS];

/* Bytes of one row; n_columns must be a multiple of the block (validated when the tensor is bound). */
static inline uint64_t format_row_bytes(enum tensor_format format, uint64_t n_columns)
{
    const struct format_traits *t = &afmoe__format_traits[format];
    return n_columns / t->block_elements * t->block_bytes;
}

#endif
