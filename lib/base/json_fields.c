/* Typed reading of one object's fields, see json_fields.h. */
#include "json_fields.h"

#include "error.h"

static const char *type_text(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "an array";
    case JSON_STRING: return "a string";
    case JSON_INTEGER: return "an integer";
    case JSON_REAL: return "a fraction";
    case JSON_TRUE:
    case JSON_FALSE: return "a boolean";
    case JSON_NULL: break;
    }
    return "null";
}

afmoe_status afmoe__json_fail_type(const struct json_object *from, const char *key, const json_t *value,
                                   const char *expected)
{
    return afmoe__fail(from->error, AFMOE_FORMAT, "%.120s: %.120s is %s, expected %s", from->file, key,
                       type_text(value), expected);
}

static const json_t *field(const struct json_object *from, const char *key, enum json_null null, bool *has)
{
    const json_t *value = json_object_get(from->object, key);
    *has = value && !(null == NULL_IS_ABSENT && json_is_null(value));
    return value;
}

afmoe_status afmoe__json_integer(const struct json_object *from, const char *key, enum json_null null, bool *has,
                                 int64_t *out)
{
    const json_t *value = field(from, key, null, has);
    if (!*has) return AFMOE_OK;
    if (!json_is_integer(value)) return afmoe__json_fail_type(from, key, value, "an integer");
    *out = json_integer_value(value);
    return AFMOE_OK;
}

afmoe_status afmoe__json_number(const struct json_object *from, const char *key, enum json_null null, bool *has,
                                double *out)
{
    const json_t *value = field(from, key, null, has);
    if (!*has) return AFMOE_OK;
    if (!json_is_number(value)) return afmoe__json_fail_type(from, key, value, "a number");
    *out = json_number_value(value);
    return AFMOE_OK;
}

afmoe_status afmoe__json_bool(const struct json_object *from, const char *key, enum json_null null, bool *has,
                              bool *out)
{
    const json_t *value = field(from, key, null, has);
    if (!*has) return AFMOE_OK;
    if (!json_is_boolean(value)) return afmoe__json_fail_type(from, key, value, "a boolean");
    *out = json_is_true(value);
    return AFMOE_OK;
}

afmoe_status afmoe__json_string(const struct json_object *from, const char *key, enum json_null null, bool *has,
                                const char **out)
{
    const json_t *value = field(from, key, null, has);
    if (!*has) return AFMOE_OK;
    if (!json_is_string(value)) return afmoe__json_fail_type(from, key, value, "a string");
    *out = json_string_value(value);
    return AFMOE_OK;
}
