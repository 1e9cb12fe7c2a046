/* The parts of the AVX2 table, one function for each file *_avx2.c of this folder. */
#ifndef AFMOE_KERNELS_AVX2_H
#define AFMOE_KERNELS_AVX2_H

#include "kernels.h"
#include "ref/decode.h"

void afmoe__product_avx2(struct kernels *k);
void afmoe__block_product_avx2(struct kernels *k);
void afmoe__prepare_avx2(struct kernels *k);
void afmoe__whole_avx2(struct kernels *k);
void afmoe__elementwise_avx2(struct kernels *k);
void afmoe__norm_avx2(struct kernels *k);
void afmoe__rope_avx2(struct kernels *k);
void afmoe__activation_avx2(struct kernels *k);
void afmoe__cells_avx2(struct kernels *k);
void afmoe__attention_avx2(struct kernels *k);

/* X(name, FORMAT, kind of activations, elements and bytes of a block): formats that block_vectors_avx2.h makes
 * vectors of. Kinds are those without a dot product of bytes: what is signed and of eight bits is multiplied as words
 * in panels. Sizes are written out so that they are constants; test_kernels holds them to format.c by decoding. */
#define FOR_EACH_VECTOR_FORMAT(X)                                                                                      \
    X(q4_0, FORMAT_Q4_0, ACTIVATION_INT8_32, 32, 18)                                                                   \
    X(q4_1, FORMAT_Q4_1, ACTIVATION_INT8_32, 32, 20)                                                                   \
    X(q5_0, FORMAT_Q5_0, ACTIVATION_INT8_32, 32, 22)                                                                   \
    X(q5_1, FORMAT_Q5_1, ACTIVATION_INT8_32, 32, 24)                                                                   \
    X(q2_k, FORMAT_Q2_K, ACTIVATION_INT8_256, 256, 84)                                                                 \
    X(q3_k, FORMAT_Q3_K, ACTIVATION_INT8_256, 256, 110)                                                                \
    X(q4_k, FORMAT_Q4_K, ACTIVATION_INT8_256, 256, 144)                                                                \
    X(q5_k, FORMAT_Q5_K, ACTIVATION_INT8_256, 256, 176)                                                                \
    X(q6_k, FORMAT_Q6_K, ACTIVATION_INT8_256, 256, 210)                                                                \
    X(iq1_s, FORMAT_IQ1_S, ACTIVATION_INT8_256, 256, 50)                                                               \
    X(iq1_m, FORMAT_IQ1_M, ACTIVATION_INT8_256, 256, 56)                                                               \
    X(iq2_xxs, FORMAT_IQ2_XXS, ACTIVATION_INT8_256, 256, 66)                                                           \
    X(iq2_xs, FORMAT_IQ2_XS, ACTIVATION_INT8_256, 256, 74)                                                             \
    X(iq2_s, FORMAT_IQ2_S, ACTIVATION_INT8_256, 256, 82)                                                               \
    X(iq3_xxs, FORMAT_IQ3_XXS, ACTIVATION_INT8_256, 256, 98)                                                           \
    X(iq3_s, FORMAT_IQ3_S, ACTIVATION_INT8_256, 256, 110)                                                              \
    X(iq4_nl, FORMAT_IQ4_NL, ACTIVATION_INT16_32, 32, 18)                                                              \
    X(iq4_xs, FORMAT_IQ4_XS, ACTIVATION_INT16_256, 256, 136)                                                           \
    X(tq1_0, FORMAT_TQ1_0, ACTIVATION_INT8_256, 256, 54)                                                               \
    X(tq2_0, FORMAT_TQ2_0, ACTIVATION_INT8_256, 256, 66)                                                               \
    X(mxfp4, FORMAT_MXFP4, ACTIVATION_INT8_32, 32, 17)                                                                 \
    X(nvfp4, FORMAT_NVFP4, ACTIVATION_INT8_32, 64, 36)

/* The products in whole numbers. */
#define FOR_EACH_WHOLE_FORMAT(X)                                                                                       \
    X(q8_0, FORMAT_Q8_0, ACTIVATION_INT16_32, 32, 34)                                                                  \
    FOR_EACH_VECTOR_FORMAT(X)

/* The panel of product_kernels over rows decoded by `decode`; NULL: the rows are floats, used where they lie. */
void afmoe__panel_avx2(decode_fn decode, float *out, uint64_t out_stride, const void *const *x, uint64_t n_tokens,
                       const uint8_t *rows, uint64_t row_bytes, uint64_t n_rows, uint64_t n_columns, float *scratch);
uint64_t afmoe__panel_scratch_bytes_avx2(uint64_t n_columns);

#endif
