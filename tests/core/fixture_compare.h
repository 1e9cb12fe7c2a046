/* Runs a checkpoint on its fixture's inputs and compares everything the fixture has values for. */
#ifndef AFMOE_TESTS_FIXTURE_COMPARE_H
#define AFMOE_TESTS_FIXTURE_COMPARE_H

#include "pass_runner.h"

#include <stdbool.h>

/* NaN where the fixture has no such value. */
struct fixture_result {
    double max_logit, mean_logit;     /* |difference| */
    double worst_layer_error;         /* of the residual stream: norm of the difference over norm of the row */
    int worst_layer;                  /* -1: no values */
    int64_t expert_mismatches;        /* -1: no values */
    double max_route_weight;          /* |difference| of the chosen experts' weights */
    int greedy_match;                 /* 1, 0; -1: no values */
    double median_divergence, mean_divergence; /* KL(reference || ours) in nats */
};

afmoe_status fixture_compare(struct fixture_result *out, const char *path, const struct runner_options *options,
                             afmoe_error *error);

#endif
