/* The trained text model, open while the tests of a program run: set_up and tear_down for its group. */
#ifndef AFMOE_TESTS_TEXT_MODEL_H
#define AFMOE_TESTS_TEXT_MODEL_H

#include "harness.h"

static afmoe_error error;
static afmoe_model *model;
static uint64_t vocab_size;

static int set_up(void **state)
{
    char path[PATH_BYTES];
    (void)state;
    error = fresh_error();
    model = open_model(text_model_path(path));
    vocab_size = info_of(model).vocab_size;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    afmoe_model_free(model);
    return 0;
}

#endif
