/* Tensor types a GGUF file can name: code, spelling and block. */
#ifndef AFMOE_WEIGHTS_GGUF_TYPES_H
#define AFMOE_WEIGHTS_GGUF_TYPES_H

#include "format.h"

struct gguf_tensor_type {
    const char *name;           /* NULL: no such code */
    uint32_t block_elements;    /* 0: a code that was given up */
    uint32_t block_bytes;
    enum tensor_format format;  /* N_FORMATS: no kernels for it */
};

/* Any code is accepted. */
const struct gguf_tensor_type *afmoe__gguf_tensor_type(uint32_t code);

#endif
