/* Rotary positions: frequencies of every published scaling, and tables of cos and sin for a pass. */
#ifndef AFMOE_CORE_ROPE_H
#define AFMOE_CORE_ROPE_H

#include "config.h"

/* out_frequencies[head_dim / 2]; returns the attention factor that multiplies cos and sin. */
float afmoe__rope_frequencies(float *out_frequencies, const struct model_config *config);

/* cos_out and sin_out [n_frequencies] of one position, both times `attention_factor`. */
void afmoe__rope_row(float *cos_out, float *sin_out, const float *frequencies, uint64_t n_frequencies,
                     float attention_factor, uint64_t max_positions, uint64_t position);

#endif
