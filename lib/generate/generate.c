/* The loop for one session, see generate.h. */
#include "generate.h"

static afmoe_status step(struct generation *g, afmoe_error *error)
{
    const afmoe_token *draft;
    afmoe_token token;
    uint64_t n_draft;
    afmoe_status status = afmoe__generation_next(g, &token, &draft, &n_draft, error);
    if (status == AFMOE_OK)
        status = afmoe__session_append_drafted(g->from.session, token, draft, n_draft, g->options->cancel, error);
    return status == AFMOE_OK ? afmoe__generation_given(g, error) : status;
}

bool afmoe__generation_pull(struct generation *g, afmoe_error *error)
{
    if (g->has_ended) return false;
    afmoe_status status = AFMOE_OK;
    if (!afmoe__generation_is_over(g)) {
        status = step(g, error);
        if (status == AFMOE_OK) return true;
    }
    return afmoe__generation_finish(g, status, error);
}

afmoe_status afmoe__generate(const struct generation_source *from, const afmoe_generate_options *options,
                             afmoe_generate_result *result, afmoe_error *error)
{
    struct generation g;
    afmoe__generation_begin(&g, from, options, result, error);
    while (afmoe__generation_pull(&g, error) && afmoe__generation_give(&g, error)) {}
    return afmoe__generation_end(&g);
}
