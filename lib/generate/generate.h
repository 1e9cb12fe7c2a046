/* The loop: sample, append, decode text, stop; what happens in it: generation.h. */
#ifndef AFMOE_GENERATE_GENERATE_H
#define AFMOE_GENERATE_GENERATE_H

#include "generation.h"

/* Make the next piece. False: there is none, the generation has ended; `error`, the same in all calls, has the text.
 * The session, the sampler and what the options point to must be there until then. */
bool afmoe__generation_pull(struct generation *g, afmoe_error *error);

/* The same for all pieces, as afmoe_generate; options and result are full structs, options are validated here.
 *
 * A cancel object that is set while a token goes through the layers leaves the timeline without it; whether the
 * logits before it are still there is the session's affair. */
afmoe_status afmoe__generate(const struct generation_source *from, const afmoe_generate_options *options,
                             afmoe_generate_result *result, afmoe_error *error);

#endif
