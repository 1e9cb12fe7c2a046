/* Fingerprint of a checkpoint: tells models apart whose keys and values must not be mixed. Only in builds with the
 * option `state`. */
#ifndef AFMOE_WEIGHTS_FINGERPRINT_H
#define AFMOE_WEIGHTS_FINGERPRINT_H

#include "checkpoint.h"

/* Of an open checkpoint with weights. Reads at most 32 KiB of them. */
uint64_t afmoe__checkpoint_fingerprint(const struct checkpoint *checkpoint);

#endif
