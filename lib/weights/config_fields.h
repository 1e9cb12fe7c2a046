/* The table of configuration fields: what both readers of a configuration (config_json.c, config_gguf.c) share. */
#ifndef AFMOE_WEIGHTS_CONFIG_FIELDS_H
#define AFMOE_WEIGHTS_CONFIG_FIELDS_H

#include "config.h"

enum config_key {
    KEY_VOCAB_SIZE,
    KEY_HIDDEN_SIZE,
    KEY_N_LAYERS,
    KEY_N_DENSE_LAYERS,
    KEY_N_HEADS,
    KEY_N_KV_HEADS,
    KEY_HEAD_DIM,
    KEY_INTERMEDIATE_SIZE,
    KEY_MOE_INTERMEDIATE_SIZE,
    KEY_N_EXPERTS,
    KEY_N_EXPERTS_PER_TOKEN,
    KEY_N_SHARED_EXPERTS,
    KEY_N_GROUPS,
    KEY_N_GROUPS_CHOSEN,
    KEY_ROUTE_NORM,
    KEY_ROUTE_SCALE,
    KEY_MUP_ENABLED,
    KEY_TIE_WORD_EMBEDDINGS,
    KEY_ATTENTION_BIAS,
    KEY_RMS_NORM_EPS,
    KEY_SLIDING_WINDOW,
    KEY_MAX_POSITIONS,
    N_CONFIG_KEYS
};

enum field_type { FIELD_BOOL, FIELD_U32, FIELD_U64, FIELD_F64 };

struct config_field {
    const char *hub;       /* key in config.json */
    const char *hub_alias; /* read where `hub` is absent */
    const char *gguf;      /* key in GGUF metadata; NULL: never there */
    size_t offset;         /* in struct model_config */
    enum field_type type;
    double hub_default, gguf_default; /* NAN: the key must be there */
    double min, max;
};

extern const struct config_field afmoe__config_fields[N_CONFIG_KEYS];

/* Where a configuration comes from, for messages. */
struct config_source {
    const char *file;
    bool is_gguf;
    afmoe_error *error;
};

/* The key as this source spells it. */
const char *afmoe__config_key(const struct config_source *source, enum config_key key);
/* FORMAT when the value is out of the field's range. */
afmoe_status afmoe__config_store(const struct config_source *source, struct model_config *config, enum config_key key,
                                 double value);
/* Layer l has full attention if (l + 1) % period == 0. */
void afmoe__config_apply_period(struct model_config *config, uint64_t period);
enum { MAX_PERIOD = 1048576 };

/* A named number of the rope block: FORMAT when out of its range. */
afmoe_status afmoe__config_check_rope(const struct config_source *source, const struct rope_config *rope);
/* Rules between fields, once all are stored: after this nothing downstream meets an unchecked size. */
afmoe_status afmoe__config_check(const struct config_source *source, const struct model_config *config);
/* -1 or below the vocabulary (which may be 0: not known). */
afmoe_status afmoe__config_check_token(const struct config_source *source, const char *key, int64_t token,
                                       uint64_t vocab_size, int32_t *out);

#endif
