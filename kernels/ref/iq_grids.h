/* Grids of the IQ formats: rows of eight bytes (iq1, iq2) or four (iq3), the first in the lowest bits. Bytes of iq2
 * and iq3 are values before scale and sign, 1..62; of iq1, whose values g are -1, 0 and 1, they are 8 g + 15: whole
 * with the eighth that is added or taken away, and never negative. */
#ifndef AFMOE_KERNELS_IQ_GRIDS_H
#define AFMOE_KERNELS_IQ_GRIDS_H

#include <stdint.h>

extern const uint64_t afmoe__iq1_grid[2048];
extern const uint64_t afmoe__iq2_xxs_grid[256];
extern const uint64_t afmoe__iq2_xs_grid[512];
extern const uint64_t afmoe__iq2_s_grid[1024];
extern const uint32_t afmoe__iq3_xxs_grid[256];
extern const uint32_t afmoe__iq3_s_grid[512];

#endif
