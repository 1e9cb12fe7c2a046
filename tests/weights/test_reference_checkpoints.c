/* Checkpoints made with transformers, gguf-py and others open, with the values their scripts put in; layouts of later
 * versions are refused by name. Runs on the optional reference folder; the small ones are in tests/data as well. */
#include "opening.h"
#include "test_paths.h"

#include <math.h>

struct opening_case {
    const char *path;
    int32_t status;
    int32_t layout;
    uint32_t n_layers, n_dense, n_full, n_experts, n_kv_heads;
    uint64_t vocab_size, n_parameters, weight_bytes; /* 0: not compared */
    const char *message;                             /* part of it, when refused */
};

static uint32_t count_full(const struct model_config *c)
{
    uint32_t n = 0;
    for (uint32_t l = 0; l < c->n_layers; l++) n += c->layer_is_full[l];
    return n;
}

static void check_view(const struct checkpoint *c)
{
    const struct model_config *f = &c->config;
    const struct model_weights *w = &c->weights;
    assert_int_equal(w->embedding.n_rows, f->vocab_size);
    assert_int_equal(w->embedding.n_columns, f->hidden_size);
    assert_true(f->tie_word_embeddings ? w->head.data == w->embedding.data : w->head.data != w->embedding.data);
    for (uint32_t l = 0; l < f->n_layers; l++) {
        const struct layer_weights *y = &w->layers[l];
        assert_non_null(y->input_norm);
        assert_true(isfinite(y->q_norm[f->head_dim - 1]) && isfinite(y->post_mlp_norm[f->hidden_size - 1]));
        assert_int_equal(y->q.n_rows, (uint64_t)f->n_heads * f->head_dim);
        assert_int_equal(y->v.n_rows, (uint64_t)f->n_kv_heads * f->head_dim);
        assert_int_equal(y->o.row_bytes, format_row_bytes(y->o.format, y->o.n_columns));
        if (l < f->n_dense_layers) {
            assert_int_equal(y->mlp.down.n_columns, f->intermediate_size);
            continue;
        }
        assert_int_equal(y->router.n_rows, f->n_experts);
        assert_non_null(y->expert_bias);
        assert_true((y->shared.gate.data != NULL) == (f->n_shared_experts != 0));
        for (uint32_t e = 0; e < f->n_experts; e++) {
            assert_int_equal(y->experts[e].gate.n_rows, f->moe_intermediate_size);
            assert_int_equal(y->experts[e].up.n_columns, f->hidden_size);
            assert_int_equal(y->experts[e].down.n_columns, f->moe_intermediate_size);
        }
    }
}

static void check_case(const struct opening_case *t, const char *path)
{
    struct checkpoint c;
    struct checkpoint_options options = plain_options();
    check_open(&c, path, &options, t->status, t->message, t->path);
    if (t->status) return;
    assert_int_equal(c.layout, t->layout);
    assert_int_equal(c.config.n_layers, t->n_layers);
    assert_int_equal(c.config.n_dense_layers, t->n_dense);
    assert_int_equal(count_full(&c.config), t->n_full);
    assert_int_equal(c.config.n_experts, t->n_experts);
    assert_int_equal(c.config.n_kv_heads, t->n_kv_heads);
    assert_int_equal(c.config.vocab_size, t->vocab_size);
    if (t->n_parameters) assert_int_equal(c.weights.n_parameters, t->n_parameters);
    if (t->weight_bytes) assert_int_equal(c.weights.weight_bytes, t->weight_bytes);
    check_view(&c);
    afmoe__checkpoint_close(&c);
}

static const struct opening_case cases[] = {
#include "reference_checkpoints.inc"
};

static void test_reference_folder(void **state)
{
    (void)state;
    char path[1024];
    if (!shared_path(path, sizeof path, "fixtures", "reference checkpoints")) return;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_non_null(shared_path(path, sizeof path, cases[i].path, cases[i].path));
        check_case(&cases[i], path);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_reference_folder)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
