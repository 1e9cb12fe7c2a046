/* Rotary positions (RoPE), pairs (i, i + D/2), i = 0..D/2-1.
 *
 *   f0_i = theta^(-2i/D)
 *   default, dynamic  f = f0 (dynamic: up to max_positions, which caps the context)
 *   linear            f = f0 / factor
 *   llama3            wavelength L = 2 pi / f0, O = original_max_positions: L < O/high: f0; L > O/low: f0/factor;
 *                     between, t = (O/L - low) / (high - low): (1-t) f0/factor + t f0
 *   yarn              c(r) = D ln(O / (2 pi r)) / (2 ln theta); lo = c(beta_fast), hi = c(beta_slow), floored and
 *                     ceiled when truncate, clamped to [0, D-1]; ramp_i = clamp((i - lo)/(hi - lo), 0, 1);
 *                     f = (1 - ramp) f0 + ramp f0/factor
 *   attention factor  1, but for yarn (see attention_factor)
 *
 * The angle is the float32 product position * f, as the reference forms it; cos and sin of that float are taken in
 * double and rounded once. Angles in double differ from the reference by 2e-5 in logits at position 700, and more
 * further on. From max_positions on there is no reference: there the product is one in double, so that differences of
 * positions, which are all that counts, stay exact however long a shifted timeline becomes. */
#include "rope.h"

#include <math.h>

static const double PI = 3.14159265358979323846;

static double clamp(double x, double low, double high)
{
    return x < low ? low : x > high ? high : x;
}

static float llama3_frequency(float f0, const struct rope_config *rope)
{
    double original = (double)rope->original_max_positions;
    double low = rope->low_freq_factor, high = rope->high_freq_factor;
    double wavelength = 2 * PI / f0;
    if (wavelength < original / high) return f0;
    if (wavelength > original / low) return (float)(f0 / rope->factor);
    double t = (original / wavelength - low) / (high - low);
    return (float)((1 - t) * f0 / rope->factor + t * f0);
}

/* The (fractional) pair index whose wavelength turns `rotations` times within the original context. */
static double yarn_index(double rotations, uint32_t head_dim, const struct rope_config *rope)
{
    return head_dim * log((double)rope->original_max_positions / (rotations * 2 * PI)) / (2 * log(rope->theta));
}

static void yarn_range(double *out_low, double *out_high, uint32_t head_dim, const struct rope_config *rope)
{
    double low = yarn_index(rope->beta_fast, head_dim, rope);
    double high = yarn_index(rope->beta_slow, head_dim, rope);
    if (rope->truncate) {
        low = floor(low);
        high = ceil(high);
    }
    if (low < 0) low = 0;
    if (high > head_dim - 1) high = head_dim - 1;
    if (low == high) high += 0.001;
    *out_low = low;
    *out_high = high;
}

/* yarn: attention_factor as given (0 counts), else from mscale and mscale_all_dim when both are non-zero, else from
 * the factor alone. */
static float attention_factor(const struct rope_config *rope)
{
    if (rope->has_attention_factor) return (float)rope->attention_factor;
    double log_factor = rope->factor > 1 ? log(rope->factor) : 0; /* gain(x, m) = 1 for x <= 1 */
    if (rope->mscale != 0 && rope->mscale_all_dim != 0)
        return (float)((0.1 * rope->mscale * log_factor + 1) / (0.1 * rope->mscale_all_dim * log_factor + 1));
    return (float)(0.1 * log_factor + 1);
}

float afmoe__rope_frequencies(float *out_frequencies, const struct model_config *config)
{
    const struct rope_config *rope = &config->rope;
    uint32_t n = config->head_dim / 2;
    double low = 0, high = 1;
    if (rope->kind == ROPE_YARN) yarn_range(&low, &high, config->head_dim, rope);
    for (uint32_t i = 0; i < n; i++) {
        float f0 = (float)(1.0 / pow(rope->theta, 2.0 * i / config->head_dim));
        double ramp = clamp((i - low) / (high - low), 0, 1);
        switch (rope->kind) {
        case ROPE_DEFAULT:
        case ROPE_DYNAMIC: out_frequencies[i] = f0; break;
        case ROPE_LINEAR: out_frequencies[i] = (float)(f0 / rope->factor); break;
        case ROPE_LLAMA3: out_frequencies[i] = llama3_frequency(f0, rope); break;
        case ROPE_YARN: out_frequencies[i] = (float)((1 - ramp) * f0 + ramp * (f0 / rope->factor)); break;
        }
    }
    return rope->kind == ROPE_YARN ? attention_factor(rope) : 1.0f;
}

void afmoe__rope_row(float *cos_out, float *sin_out, const float *frequencies, uint64_t n_frequencies,
                     float attention_factor, uint64_t max_positions, uint64_t position)
{
    for (uint64_t i = 0; i < n_frequencies; i++) {
        double angle = (float)position * frequencies[i];
        if (position >= max_positions) angle = (double)position * frequencies[i];
        cos_out[i] = (float)cos(angle) * attention_factor;
        sin_out[i] = (float)sin(angle) * attention_factor;
    }
}
