/* ggml's type codes (enum ggml_type of ggml.h; block sizes of ggml-common.h). */
#include "gguf_types.h"

static const struct gguf_tensor_type types[] = {
    [0] = {"F32", 1, 4, FORMAT_F32},
    [1] = {"F16", 1, 2, FORMAT_F16},
    [2] = {"Q4_0", 32, 18, FORMAT_Q4_0},
    [3] = {"Q4_1", 32, 20, FORMAT_Q4_1},
    [4] = {"Q4_2", 0, 0, N_FORMATS},
    [5] = {"Q4_3", 0, 0, N_FORMATS},
    [6] = {"Q5_0", 32, 22, FORMAT_Q5_0},
    [7] = {"Q5_1", 32, 24, FORMAT_Q5_1},
    [8] = {"Q8_0", 32, 34, FORMAT_Q8_0},
    [9] = {"Q8_1", 32, 36, N_FORMATS},
    [10] = {"Q2_K", 256, 84, FORMAT_Q2_K},
    [11] = {"Q3_K", 256, 110, FORMAT_Q3_K},
    [12] = {"Q4_K", 256, 144, FORMAT_Q4_K},
    [13] = {"Q5_K", 256, 176, FORMAT_Q5_K},
    [14] = {"Q6_K", 256, 210, FORMAT_Q6_K},
    [15] = {"Q8_K", 256, 292, N_FORMATS},
    [16] = {"IQ2_XXS", 256, 66, FORMAT_IQ2_XXS},
    [17] = {"IQ2_XS", 256, 74, FORMAT_IQ2_XS},
    [18] = {"IQ3_XXS", 256, 98, FORMAT_IQ3_XXS},
    [19] = {"IQ1_S", 256, 50, FORMAT_IQ1_S},
    [20] = {"IQ4_NL", 32, 18, FORMAT_IQ4_NL},
    [21] = {"IQ3_S", 256, 110, FORMAT_IQ3_S},
    [22] = {"IQ2_S", 256, 82, FORMAT_IQ2_S},
    [23] = {"IQ4_XS", 256, 136, FORMAT_IQ4_XS},
    [24] = {"I8", 1, 1, N_FORMATS},
    [25] = {"I16", 1, 2, N_FORMATS},
    [26] = {"I32", 1, 4, N_FORMATS},
    [27] = {"I64", 1, 8, N_FORMATS},
    [28] = {"F64", 1, 8, N_FORMATS},
    [29] = {"IQ1_M", 256, 56, FORMAT_IQ1_M},
    [30] = {"BF16", 1, 2, FORMAT_BF16},
    [31] = {"Q4_0_4_4", 0, 0, N_FORMATS},
    [32] = {"Q4_0_4_8", 0, 0, N_FORMATS},
    [33] = {"Q4_0_8_8", 0, 0, N_FORMATS},
    [34] = {"TQ1_0", 256, 54, FORMAT_TQ1_0},
    [35] = {"TQ2_0", 256, 66, FORMAT_TQ2_0},
    [36] = {"IQ4_NL_4_4", 0, 0, N_FORMATS},
    [37] = {"IQ4_NL_4_8", 0, 0, N_FORMATS},
    [38] = {"IQ4_NL_8_8", 0, 0, N_FORMATS},
    [39] = {"MXFP4", 32, 17, FORMAT_MXFP4},
    [40] = {"NVFP4", 64, 36, FORMAT_NVFP4},
    [41] = {"Q1_0", 128, 18, N_FORMATS},
};

const struct gguf_tensor_type *afmoe__gguf_tensor_type(uint32_t code)
{
    static const struct gguf_tensor_type unknown = {0};
    return code < sizeof types / sizeof *types ? &types[code] : &unknown;
}
