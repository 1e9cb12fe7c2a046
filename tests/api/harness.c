/* Shared by tests through the public API, see harness.h. */
#include "harness.h"

#include "test_paths.h"

#include <dirent.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

void check_status(afmoe_status expected, afmoe_status status, const char *call, const afmoe_error *error,
                  const char *file, int line)
{
    if (status == expected) return;
    print_error("%s: %s, expected %s (%s)\n", call, afmoe_status_name(status), afmoe_status_name(expected),
                status < 0 ? error->message : "");
    _fail(file, line);
}

afmoe_error fresh_error(void)
{
    afmoe_error error;
    afmoe_error_init(&error, sizeof error);
    return error;
}

const char *small_model_path(char *out, const char *name)
{
    struct stat info;
    char shared[64];
    data_path(out, PATH_BYTES, name);
    if (stat(out, &info) == 0) return out;
    snprintf(shared, sizeof shared, "fixtures/models/%s", name);
    return shared_path(out, PATH_BYTES, shared, name);
}

const char *text_model_path(char *out)
{
    const char *path = getenv("AFMOE_TEST_MODEL");
    snprintf(out, PATH_BYTES, "%s", path ? path : "models/pico-q8_0.gguf");
    return out;
}

afmoe_model *open_model(const char *path)
{
    afmoe_error error = fresh_error();
    afmoe_model *model;
    CHECK_STATUS(AFMOE_OK, afmoe_model_open(&model, path, NULL, &error));
    return model;
}

afmoe_context_options two_threads(void)
{
    afmoe_context_options options;
    afmoe_context_options_init(&options, sizeof options);
    options.n_threads = 2;
    return options;
}

afmoe_context *open_context(afmoe_model *model, const afmoe_context_options *options)
{
    afmoe_error error = fresh_error();
    afmoe_context_options defaults = two_threads();
    afmoe_context *context;
    CHECK_STATUS(AFMOE_OK, afmoe_context_create(&context, model, options ? options : &defaults, &error));
    return context;
}

afmoe_session *open_session(afmoe_context *context)
{
    afmoe_error error = fresh_error();
    afmoe_session *session;
    CHECK_STATUS(AFMOE_OK, afmoe_session_create(&session, context, &error));
    return session;
}

afmoe_model_info info_of(const afmoe_model *model)
{
    afmoe_error error = fresh_error();
    afmoe_model_info info;
    afmoe_model_info_init(&info, sizeof info);
    CHECK_STATUS(AFMOE_OK, afmoe_model_get_info(model, &info, &error));
    return info;
}

afmoe_session_stats stats_of(afmoe_session *session)
{
    afmoe_error error = fresh_error();
    afmoe_session_stats stats;
    afmoe_session_stats_init(&stats, sizeof stats);
    CHECK_STATUS(AFMOE_OK, afmoe_session_get_stats(session, &stats, &error));
    return stats;
}

uint64_t page_bytes_of(afmoe_context *context)
{
    afmoe_error error = fresh_error();
    afmoe_context_info info;
    afmoe_context_info_init(&info, sizeof info);
    CHECK_STATUS(AFMOE_OK, afmoe_context_get_info(context, &info, &error));
    return info.page_bytes;
}

uint64_t n_tokens_of(afmoe_session *session)
{
    return stats_of(session).n_tokens;
}

void make_tokens(afmoe_token *out, uint64_t n, uint64_t vocab_size, uint32_t seed)
{
    uint32_t random = seed * 2654435761u + 1;
    for (uint64_t i = 0; i < n; i++) {
        random = random * 1664525u + 1013904223u;
        out[i] = (afmoe_token)((random >> 8) % vocab_size);
    }
}

/* ---- Variants ---- */

/* A whole file, NUL-terminated. */
static char *read_file(const char *folder, const char *name, size_t *out_n)
{
    char path[PATH_BYTES + 64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    size_t n = (size_t)ftell(file);
    rewind(file);
    char *bytes = malloc(n + 1);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, n, file), n);
    bytes[n] = '\0';
    fclose(file);
    *out_n = n;
    return bytes;
}

static void write_file(const char *folder, const char *name, const char *bytes, size_t n)
{
    char path[PATH_BYTES + 64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

/* config.json with the value behind "key": replaced; values there are scalars or lists without nesting. */
static void write_config(const char *folder, const char *config, const char *key, const char *value)
{
    char quoted[64];
    snprintf(quoted, sizeof quoted, "\"%s\":", key);
    const char *at = strstr(config, quoted);
    assert_non_null(at);
    at += strlen(quoted);
    const char *end = at + strspn(at, " ");
    end += *end == '[' ? strcspn(end, "]") + 1 : strcspn(end, ",\n}");
    size_t n = strlen(config) + strlen(value) + 1;
    char *changed = malloc(n);
    assert_non_null(changed);
    int written = snprintf(changed, n, "%.*s%s%s", (int)(at - config), config, value, end);
    write_file(folder, "config.json", changed, (size_t)written);
    free(changed);
}

void make_variant(char *out_path, const char *from, const char *key, const char *value)
{
    const char *root = getenv("TMPDIR");
    snprintf(out_path, PATH_BYTES, "%s/afmoe-test-XXXXXX", root ? root : "/tmp");
    assert_non_null(mkdtemp(out_path));
    size_t n;
    char *bytes = read_file(from, "model.safetensors", &n);
    write_file(out_path, "model.safetensors", bytes, n);
    free(bytes);
    bytes = read_file(from, "config.json", &n);
    if (key)
        write_config(out_path, bytes, key, value);
    else
        write_file(out_path, "config.json", bytes, n);
    free(bytes);
}

void poison_variant(const char *path, const char *tensor)
{
    size_t n;
    uint64_t header_bytes, begin;
    char quoted[128];
    char *bytes = read_file(path, "model.safetensors", &n);
    memcpy(&header_bytes, bytes, sizeof header_bytes);
    snprintf(quoted, sizeof quoted, "\"%s\":", tensor);
    char last = bytes[8 + header_bytes - 1];
    bytes[8 + header_bytes - 1] = '\0'; /* strstr ends there */
    const char *at = strstr(bytes + 8, quoted);
    assert_non_null(at);
    at = strstr(at, "\"data_offsets\":");
    assert_non_null(at);
    begin = strtoull(at + strcspn(at, "0123456789"), NULL, 10);
    bytes[8 + header_bytes - 1] = last;
    const float nan_value = NAN;
    memcpy(bytes + 8 + header_bytes + begin, &nan_value, sizeof nan_value);
    write_file(path, "model.safetensors", bytes, n);
    free(bytes);
}

void add_to_variant(const char *path, const char *name, const char *text)
{
    write_file(path, name, text, strlen(text));
}

void remove_variant(const char *path)
{
    char file[PATH_BYTES + 300];
    DIR *folder = opendir(path);
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder));) {
        if (entry->d_name[0] == '.') continue;
        snprintf(file, sizeof file, "%s/%s", path, entry->d_name);
        unlink(file);
    }
    closedir(folder);
    rmdir(path);
}
