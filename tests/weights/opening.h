/* What the tests of this folder share: opening a path and judging the answer. */
#ifndef AFMOE_TESTS_OPENING_H
#define AFMOE_TESTS_OPENING_H

#include "checkpoint.h"

#include "cmocka_all.h"
#include "memory_peak.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

/* Warnings that came while opening. */
struct heard {
    uint32_t n;
    char text[600];
};

static inline void hear(void *user_data, int32_t level, const char *message)
{
    struct heard *heard = user_data;
    assert_int_equal(level, AFMOE_LOG_WARNING);
    heard->n++;
    snprintf(heard->text, sizeof heard->text, "%s", message);
}

static inline struct checkpoint_options plain_options(void)
{
    return (struct checkpoint_options){.max_json_bytes = 32 << 20};
}

/* Of a file, or of all in a folder. */
static inline uint64_t bytes_of_path(const char *path)
{
    struct stat info;
    uint64_t n = 0;
    char name[1024];
    if (stat(path, &info) != 0) return 0;
    if (!S_ISDIR(info.st_mode)) return (uint64_t)info.st_size;
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        int n_name = snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        if (n_name < (int)sizeof name && stat(name, &info) == 0 && S_ISREG(info.st_mode)) n += (uint64_t)info.st_size;
    }
    if (folder) closedir(folder);
    return n;
}

/* Opens; `what` names the case when the answer is another one. On failure the message must hold `part`. Whatever the
 * answer, the memory taken is bounded by the size of the files. */
static inline void check_open(struct checkpoint *out, const char *path, const struct checkpoint_options *options,
                              int32_t status, const char *part, const char *what)
{
    afmoe_error error = {.size = sizeof error};
    uint64_t before = memory_peak_begin();
    int32_t answer = afmoe__checkpoint_open(out, path, options, &error);
    uint64_t growth = memory_peak_growth_kib(before), allowed = memory_allowed_kib(bytes_of_path(path));
    if (growth > allowed) print_error("%s: took %llu KiB\n", what ? what : path, (unsigned long long)growth);
    assert_true(growth <= allowed);
    if (answer != status) print_error("%s: status %d, expected %d: %s\n", what, answer, status, error.message);
    assert_int_equal(answer, status);
    if (!answer) return;
    assert_int_equal(error.code, status);
    const char *wanted = part ? part : "", *found = strstr(error.message, wanted);
    if (!found) print_error("%s: no \"%s\" in: %s\n", what ? what : "", wanted, error.message);
    assert_non_null(found);
    assert_null(strchr(error.message, '\n'));
}

static inline void check_refused(const char *path, int32_t status, const char *part, const char *what)
{
    struct checkpoint c;
    struct checkpoint_options options = plain_options();
    check_open(&c, path, &options, status, part, what);
    afmoe__checkpoint_close(&c);
}

static inline uint32_t touch_matrix(const struct matrix *m)
{
    return m->data && m->n_rows ? m->data[0] + (uint32_t)m->data[m->n_rows * m->row_bytes - 1] : 0;
}

/* Reads the first and last byte of every matrix and vector: a view that reaches outside of its file dies here. */
static inline double touch_view(const struct checkpoint *c)
{
    const struct model_config *f = &c->config;
    const struct model_weights *w = &c->weights;
    double sum = touch_matrix(&w->embedding) + touch_matrix(&w->head) + w->norm[f->hidden_size - 1];
    for (uint32_t l = 0; l < f->n_layers; l++) {
        const struct layer_weights *y = &w->layers[l];
        sum += touch_matrix(&y->q) + touch_matrix(&y->k) + touch_matrix(&y->v) + touch_matrix(&y->gate);
        sum += touch_matrix(&y->o) + touch_matrix(&y->mlp.gate) + touch_matrix(&y->mlp.up) + touch_matrix(&y->mlp.down);
        sum += touch_matrix(&y->router) + touch_matrix(&y->shared.gate) + touch_matrix(&y->shared.down);
        sum += (double)y->input_norm[f->hidden_size - 1] + (double)y->q_norm[f->head_dim - 1];
        for (uint32_t e = 0; y->experts && e < f->n_experts; e++) {
            const struct ffn_weights *x = &y->experts[e];
            sum += touch_matrix(&x->gate) + touch_matrix(&x->up) + touch_matrix(&x->down);
        }
    }
    return sum;
}

/* How often a checkpoint was opened, and with what it was refused. */
struct flips {
    uint64_t n_opened, n_format, n_unsupported, n_truncated, n_limit;
};

/* Opens `path` with each of the first n_bits of `file` flipped in turn: refused with a message of one line, or whole, to
 * the last byte of its view. The file is as before afterwards. Memory stays bounded. */
static inline struct flips flip_every_bit(const char *path, const char *file, uint64_t n_bits)
{
    struct flips flips = {0};
    struct checkpoint_options options = plain_options();
    uint64_t before = memory_peak_begin();
    int descriptor = open(file, O_RDWR);
    assert_true(descriptor >= 0);
    for (uint64_t bit = 0; bit < n_bits; bit++) {
        struct checkpoint c;
        afmoe_error error = {.size = sizeof error};
        uint8_t byte, flipped;
        assert_int_equal(pread(descriptor, &byte, 1, (off_t)(bit / 8)), 1);
        flipped = (uint8_t)(byte ^ 1u << bit % 8);
        assert_int_equal(pwrite(descriptor, &flipped, 1, (off_t)(bit / 8)), 1);
        afmoe_status status = afmoe__checkpoint_open(&c, path, &options, &error);
        if (status) assert_true(error.message[0] != '\0' && !strchr(error.message, '\n'));
        else assert_true(touch_view(&c) == touch_view(&c));
        flips.n_opened += status == AFMOE_OK;
        flips.n_format += status == AFMOE_FORMAT;
        flips.n_unsupported += status == AFMOE_UNSUPPORTED;
        flips.n_truncated += status == AFMOE_TRUNCATED;
        flips.n_limit += status == AFMOE_LIMIT;
        afmoe__checkpoint_close(&c);
        assert_int_equal(pwrite(descriptor, &byte, 1, (off_t)(bit / 8)), 1);
    }
    close(descriptor);
    assert_true(memory_peak_growth_kib(before) < 16 * 1024);
    /* There is no other answer to a broken file. */
    assert_int_equal(flips.n_opened + flips.n_format + flips.n_unsupported + flips.n_truncated + flips.n_limit, n_bits);
    return flips;
}

#endif
