/* Router: which experts a token goes to, and with what weights. */
#ifndef AFMOE_CORE_ROUTER_H
#define AFMOE_CORE_ROUTER_H

#include "config.h"
#include "kernels.h"

/* z[n_experts]: the router's product, before the sigmoid and without bias. out_ids and out_weights
 * [n_experts_per_token], falling by biased score. scratch: 3 * n_experts floats. Always gives that many different
 * valid ids, also for NaN. */
void afmoe__router_choose(uint32_t *out_ids, float *out_weights, const float *z, const float *expert_bias,
                          const struct model_config *config, const struct kernels *kernels, float *scratch);

#endif
