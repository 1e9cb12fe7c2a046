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
    /* Blocks of GGUF; what lies where is said in the files ref/..._blocks_ref.c that decode them. */
    FORMAT_Q8_0,
    FORMAT_Q4_0,
    FORMAT_Q4_1,
    FORMAT_Q5_0,
    FORMAT_Q5_1,
    FORMAT_Q2_K,
    FORMAT_Q3_K,
    FORMAT_Q4_K,
    FORMAT_Q5_K,
    FORMAT_Q6_K,
    FORMAT_IQ1_S,
    FORMAT_IQ1_M,
    FORMAT_IQ2_XXS,
    FORMAT_IQ2_XS,
    FORMAT_IQ2_S,
    FORMAT_IQ3_XXS,
    FORMAT_IQ3_S,
    FORMAT_IQ4_NL,
    FORMAT_IQ4_XS,
    FORMAT_TQ1_0,
    FORMAT_TQ2_0,
    FORMAT_MXFP4,
    FORMAT_NVFP4,
    N_FORMATS
};

enum { MAX_BLOCK_ELEMENTS = 256 }; /* and a multiple of every block */

struct format_traits {
    const char *name; /* as GGUF spells it: "F32", "Q4_K" */
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
