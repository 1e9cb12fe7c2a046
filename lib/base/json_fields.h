/* Typed reading of one object's fields, with errors that name the file and the key. */
#ifndef AFMOE_BASE_JSON_FIELDS_H
#define AFMOE_BASE_JSON_FIELDS_H

#include "json.h"

#include <stdbool.h>

struct json_object {
    const json_t *object;
    const char *file;
    afmoe_error *error;
};

/* What null means for a field: by default a fault like any other wrong type. */
enum json_null { NULL_IS_FAULT, NULL_IS_ABSENT };

/* Each sets *has and, when the field is there, *out; FORMAT for a wrong type. */
afmoe_status afmoe__json_integer(const struct json_object *from, const char *key, enum json_null null, bool *has,
                                 int64_t *out);
afmoe_status afmoe__json_number(const struct json_object *from, const char *key, enum json_null null, bool *has,
                                double *out);
afmoe_status afmoe__json_bool(const struct json_object *from, const char *key, enum json_null null, bool *has,
                              bool *out);
afmoe_status afmoe__json_string(const struct json_object *from, const char *key, enum json_null null, bool *has,
                                const char **out);

/* "FILE: KEY is a string, expected an integer" */
afmoe_status afmoe__json_fail_type(const struct json_object *from, const char *key, const json_t *value,
                                   const char *expected);

#endif
