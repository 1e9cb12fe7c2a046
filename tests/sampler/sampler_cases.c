/* Reads cases of sampling from standard input and writes one line for each: "TOKEN LOGPROB" (the bits of the float in
 * hexadecimal) or the name of the status. Driven by test_sampler_reference.py, which says what a case looks like. */
#include "sampler.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ROWS = 4096, MAX_HISTORY = 4096 };

static uint64_t read_number(void)
{
    uint64_t value;
    if (scanf("%" SCNu64, &value) != 1) exit(2);
    return value;
}

static float read_float(void)
{
    uint32_t bits;
    if (scanf("%" SCNx32, &bits) != 1) exit(2);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void run_case(uint64_t n_rows)
{
    static uint8_t usable[MAX_ROWS];
    static float logits[MAX_ROWS], bias_values[MAX_ROWS];
    static afmoe_token history[MAX_HISTORY], bias_tokens[MAX_ROWS];

    afmoe_sampler_options options = {.size = sizeof options};
    options.temperature = read_float();
    options.top_p = read_float();
    options.min_p = read_float();
    options.repetition_penalty = read_float();
    options.presence_penalty = read_float();
    options.frequency_penalty = read_float();
    options.top_k = read_number();
    options.seed = read_number();
    uint64_t n_history = read_number(), n_prompt = read_number();
    options.n_bias = read_number();
    if (n_rows > MAX_ROWS || n_history > MAX_HISTORY || options.n_bias > MAX_ROWS) exit(2);
    for (uint64_t i = 0; i < n_rows; i++) usable[i] = (uint8_t)read_number();
    for (uint64_t i = 0; i < n_rows; i++) logits[i] = read_float();
    for (uint64_t i = 0; i < n_history; i++) history[i] = (afmoe_token)read_number();
    for (uint64_t i = 0; i < options.n_bias; i++) bias_tokens[i] = (afmoe_token)read_number();
    for (uint64_t i = 0; i < options.n_bias; i++) bias_values[i] = read_float();
    options.bias_tokens = bias_tokens;
    options.bias_values = bias_values;

    struct sampler *sampler;
    afmoe_token token = -1;
    float logprob = 0.0f;
    afmoe_status status = afmoe__sampler_create(&sampler, n_rows, usable, &options, NULL);
    if (status == AFMOE_OK)
        status = afmoe__sampler_sample(sampler, logits, history, n_history, n_prompt, &token, &logprob, NULL);
    uint32_t bits;
    memcpy(&bits, &logprob, sizeof bits);
    if (status == AFMOE_OK)
        printf("%d %08" PRIx32 "\n", (int)token, bits);
    else
        printf("status %d\n", (int)status);
    afmoe__sampler_free(sampler);
}

int main(void)
{
    uint64_t n_rows;
    while (scanf("%" SCNu64, &n_rows) == 1) run_case(n_rows);
    return 0;
}
