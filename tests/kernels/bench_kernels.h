/* Figures of the kernels on this machine, one thread. */
#ifndef AFMOE_TESTS_BENCH_KERNELS_H
#define AFMOE_TESTS_BENCH_KERNELS_H

#include "kernels.h"

/* The products of one format by its name, or "attention"; NULL: everything. Returns the exit status: 0, or 1 when there
 * is no memory. */
int bench_kernels(const struct kernels *levels, int n_levels, const char *format);

#endif
