/* The table of tensor formats, see format.h. */
#include "format.h"

const struct format_traits afmoe__format_traits[N_FORMATS] = {
    [FORMAT_F32] = {"F32", 1, 4},
    [FORMAT_F16] = {"F16", 1, 2},
    [FORMAT_BF16] = {"BF16", 1, 2},
    [FORMAT_Q8_0] = {"Q8_0", 32, 34},
};
