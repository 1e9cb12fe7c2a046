/* JSON documents with caps, see json.h. */
#include "json.h"

#include "error.h"
#include "json_prescan.h"

afmoe_status afmoe__json_parse(json_t **out, const uint8_t *text, uint64_t n_bytes, const struct json_caps *caps,
                               const char *name, afmoe_error *error)
{
    if (n_bytes > caps->max_bytes) {
        return afmoe__fail(error, AFMOE_LIMIT, "%s: %llu bytes, allowed are %llu", name, (unsigned long long)n_bytes,
                           (unsigned long long)caps->max_bytes);
    }
    afmoe_status status = afmoe__json_prescan(text, n_bytes, caps, name, error);
    if (status) return status;
    json_error_t fault;
    json_t *document = json_loadb((const char *)text, (size_t)n_bytes, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &fault);
    if (document) {
        *out = document;
        return AFMOE_OK;
    }
    if (json_error_code(&fault) == json_error_out_of_memory) {
        return afmoe__fail(error, AFMOE_NO_MEMORY, "out of memory while parsing %s (%llu bytes)", name,
                           (unsigned long long)n_bytes);
    }
    return afmoe__fail(error, AFMOE_FORMAT, "%s: %s at byte %d", name, fault.text, fault.position);
}
