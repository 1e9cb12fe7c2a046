/* afmoe bench: tokens a second, by the wall clock around the calls that append.
 *
 *   prompt rows  n_prompt random tokens appended in one call, at depth n_depth
 *   decode rows  n_gen tokens appended one a call; every call leaves logits. With several sessions one token of each is
 *                appended by one afmoe_context_step
 *
 * Each row is run once unmeasured, then `repetitions` times; the session is taken back to its depth in between. */
#include "bench.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_LIST = 64, MAX_SESSIONS = 256 };

struct list {
    uint64_t values[MAX_LIST];
    unsigned n;
};

struct bench {
    const struct settings *settings;
    enum bench_form form;
    struct list prompts, gens, depths, sessions, threads;
    uint64_t n_repetitions;
    afmoe_model *model;
    afmoe_model_info info;
    const char *path;
    uint64_t n_rows, n_rows_total, random;
    afmoe_token *tokens;                   /* random ones of one run */
    uint64_t samples_ns[MAX_REPETITIONS];
    /* for one number of threads */
    afmoe_context *context;
    afmoe_session *open[MAX_SESSIONS];
};

/* ---- Lists ------------------------------------------------------------------------------------------------------- */

/* The digits at *text as a number, moving past them. */
static bool take_number(const char **text, uint64_t *out)
{
    uint64_t value = 0;
    const char *p = *text;
    for (; *p >= '0' && *p <= '9'; p++) {
        if (value > UINT32_MAX) return false;
        value = 10 * value + (uint64_t)(*p - '0');
    }
    if (p == *text) return false;
    *text = p;
    *out = value;
    return true;
}

/* FIRST, FIRST-LAST, FIRST-LAST+STEP or FIRST-LAST*FACTOR. */
static bool take_range(const char **text, struct list *list)
{
    uint64_t first, last, step = 1;
    char way = '+';
    if (!take_number(text, &first)) return false;
    last = first;
    if (**text == '-') {
        ++*text;
        if (!take_number(text, &last)) return false;
        if (**text == '+' || **text == '*') {
            way = *(*text)++;
            if (!take_number(text, &step)) return false;
        }
    }
    if (last < first || step == 0 || (way == '*' && (step == 1 || first == 0))) return false;
    for (uint64_t value = first; value <= last; value = way == '+' ? value + step : value * step) {
        if (list->n == MAX_LIST) return false;
        list->values[list->n++] = value;
    }
    return true;
}

static bool parse_list(struct list *out, const char *option, const char *text, uint64_t min, uint64_t max)
{
    const char *p = text;
    bool good = take_range(&p, out);
    while (good && *p == ',') {
        p++;
        good = take_range(&p, out);
    }
    if (!good || *p) {
        complain("%s takes at most %d numbers as 1,2 or 1-4 or 0-8+2 or 1-8*2, not '%s'", option_as_typed(option),
                 MAX_LIST, text);
        return false;
    }
    for (unsigned i = 0; i < out->n; i++)
        if (out->values[i] < min || out->values[i] > max) {
            complain("%s has %" PRIu64 ", must be %" PRIu64 "..%" PRIu64, option_as_typed(option), out->values[i], min,
                     max);
            return false;
        }
    return true;
}

static uint64_t largest(const struct list *list)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < list->n; i++)
        if (list->values[i] > value) value = list->values[i];
    return value;
}

static unsigned n_positive(const struct list *list)
{
    unsigned n = 0;
    for (unsigned i = 0; i < list->n; i++) n += list->values[i] > 0;
    return n;
}

static bool parse_form(enum bench_form *out, const char *word)
{
    static const char *const words[] = {[BENCH_MD] = "md", [BENCH_CSV] = "csv", [BENCH_JSON] = "json"};
    for (int i = 0; i < 3; i++)
        if (strcmp(word, words[i]) == 0) {
            *out = (enum bench_form)i;
            return true;
        }
    complain("%s takes md, csv or json, not '%s'", option_as_typed("output"), word);
    return false;
}

static bool parse(struct bench *b, const struct settings *s)
{
    if (s->n_arguments) {
        complain("bench takes options only, not '%s'", s->arguments[0]);
        return false;
    }
    if (!parse_form(&b->form, s->output ? s->output : "md") ||
        !parse_list(&b->prompts, "n-prompt", s->prompt_lengths ? s->prompt_lengths : "512", 0, UINT32_MAX) ||
        !parse_list(&b->gens, "n-gen", s->gen_lengths ? s->gen_lengths : "128", 0, UINT32_MAX) ||
        !parse_list(&b->depths, "n-depth", s->depths ? s->depths : "0", 0, UINT32_MAX) ||
        !parse_list(&b->sessions, "sessions", s->session_counts ? s->session_counts : "1", 1, MAX_SESSIONS) ||
        (s->thread_counts && !parse_list(&b->threads, "threads", s->thread_counts, 1, 256)))
        return false;
    b->n_repetitions = s->repetitions == UINT64_MAX ? 5 : s->repetitions;
    if (b->n_repetitions < 1 || b->n_repetitions > MAX_REPETITIONS) {
        complain("%s is %" PRIu64 ", must be 1..%d", option_as_typed("repetitions"), b->n_repetitions,
                 MAX_REPETITIONS);
        return false;
    }
    unsigned n_threads = b->threads.n ? b->threads.n : 1;
    b->n_rows_total = (uint64_t)n_threads * b->depths.n * (n_positive(&b->prompts) +
                                                           n_positive(&b->gens) * b->sessions.n);
    if (b->n_rows_total == 0) complain("there is nothing to measure: both -p and -n are 0");
    return b->n_rows_total > 0;
}

/* ---- One row ----------------------------------------------------------------------------------------------------- */

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Random tokens choose the experts as evenly as can be. */
static void draw_tokens(struct bench *b, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        b->random = b->random * 6364136223846793005u + 1442695040888963407u;
        b->tokens[i] = (afmoe_token)((b->random >> 33) % b->info.vocab_size);
    }
}

static bool append(afmoe_session *session, const afmoe_token *tokens, uint64_t n)
{
    afmoe_error error;
    afmoe_error_init(&error, sizeof error);
    if (afmoe_session_append(session, tokens, n, NULL, NULL, &error) == AFMOE_OK) return true;
    complain_error(&error);
    return false;
}

/* Make the session `depth` tokens long. */
static bool go_to(struct bench *b, afmoe_session *session, uint64_t depth)
{
    enum { STRETCH = 512 };
    afmoe_session_stats stats;
    afmoe_error error;
    afmoe_session_stats_init(&stats, sizeof stats);
    afmoe_error_init(&error, sizeof error);
    afmoe_status status = afmoe_session_get_stats(session, &stats, &error);
    if (status == AFMOE_OK && stats.n_tokens > depth) {
        status = afmoe_session_rewind(session, depth, NULL, NULL, &error);
        stats.n_tokens = depth;
    }
    if (status != AFMOE_OK) {
        complain_error(&error);
        return false;
    }
    while (stats.n_tokens < depth) {
        uint64_t n = depth - stats.n_tokens < STRETCH ? depth - stats.n_tokens : STRETCH;
        draw_tokens(b, n);
        if (!append(session, b->tokens, n)) return false;
        stats.n_tokens += n;
    }
    return true;
}

/* The sessions the row needs, at its depth. */
static bool prepare(struct bench *b, const struct bench_row *row)
{
    afmoe_error error;
    afmoe_error_init(&error, sizeof error);
    for (uint64_t i = 0; i < row->n_sessions; i++) {
        if (!b->open[i] && afmoe_session_create(&b->open[i], b->context, &error) != AFMOE_OK) {
            complain_error(&error);
            return false;
        }
        if (!go_to(b, b->open[i], row->n_depth)) return false;
    }
    return true;
}

static bool run_prompt(struct bench *b, const struct bench_row *row, uint64_t *out_ns)
{
    draw_tokens(b, row->n_prompt);
    uint64_t begin = now_ns();
    if (!append(b->open[0], b->tokens, row->n_prompt)) return false;
    *out_ns = now_ns() - begin;
    return true;
}

/* Token i of every session, in one call. */
static bool step(struct bench *b, const struct bench_row *row, uint64_t i)
{
    afmoe_step_item items[MAX_SESSIONS];
    afmoe_error error;
    afmoe_error_init(&error, sizeof error);
    for (uint64_t k = 0; k < row->n_sessions; k++) {
        afmoe_step_item_init(&items[k], sizeof items[k]);
        items[k].session = b->open[k];
        items[k].tokens = &b->tokens[(i + k) % row->n_gen];
        items[k].n_tokens = 1;
    }
    if (afmoe_context_step(b->context, items, row->n_sessions, NULL, &error) == AFMOE_OK) return true;
    complain_error(&error);
    return false;
}

static bool run_decode(struct bench *b, const struct bench_row *row, uint64_t *out_ns)
{
    draw_tokens(b, row->n_gen);
    uint64_t begin = now_ns();
    for (uint64_t i = 0; i < row->n_gen; i++)
        if (!(row->n_sessions == 1 ? append(b->open[0], &b->tokens[i], 1) : step(b, row, i))) return false;
    *out_ns = now_ns() - begin;
    return true;
}

static void stamp(char out[32])
{
    time_t t = time(NULL);
    struct tm parts;
    if (!gmtime_r(&t, &parts) || strftime(out, 32, "%Y-%m-%dT%H:%M:%SZ", &parts) == 0) out[0] = '\0';
}

static bool measure_row(struct bench *b, struct bench_row *row)
{
    static char label[] = "measuring";
    if (!b->settings->quiet) show_progress(label, b->n_rows, b->n_rows_total);
    stamp(row->time);
    if (!measure_limits(&row->limits, row->context.n_threads)) return false;
    for (uint64_t run = 0; run <= b->n_repetitions; run++) {
        uint64_t ns;
        if (!prepare(b, row) || !(row->n_prompt ? run_prompt : run_decode)(b, row, &ns)) return false;
        if (run > 0) b->samples_ns[run - 1] = ns;
    }
    row->samples_ns = b->samples_ns;
    row->n_samples = b->n_repetitions;
    return bench_print_row(b->form, row, b->n_rows++);
}

/* ---- All rows ---------------------------------------------------------------------------------------------------- */

static bool measure_depth(struct bench *b, struct bench_row *row)
{
    row->n_sessions = 1;
    row->n_gen = 0;
    for (unsigned i = 0; i < b->prompts.n; i++) {
        row->n_prompt = b->prompts.values[i];
        if (row->n_prompt && !measure_row(b, row)) return false;
    }
    row->n_prompt = 0;
    for (unsigned i = 0; i < b->gens.n; i++)
        for (unsigned k = 0; k < b->sessions.n; k++) {
            row->n_gen = b->gens.values[i];
            row->n_sessions = b->sessions.values[k];
            if (row->n_gen && !measure_row(b, row)) return false;
        }
    return true;
}

static int make_context(struct bench *b, uint64_t longest, int32_t n_threads)
{
    afmoe_context_options options;
    afmoe_error error;
    afmoe_error_init(&error, sizeof error);
    if (!context_options(b->settings, &options)) return EXIT_USAGE;
    options.n_threads = n_threads;
    options.max_tokens = largest(&b->depths) + longest;
    if (options.max_tokens > b->info.max_positions) {
        complain("-d and -p or -n make timelines of %" PRIu64 " tokens, the model reads at most %" PRIu64,
                 options.max_tokens, b->info.max_positions);
        return EXIT_USAGE;
    }
    options.rewind_tokens = longest; /* going back to the depth is free */
    if (b->settings->batch != UINT64_MAX)
        options.chunk_tokens = b->settings->batch < UINT32_MAX ? (uint32_t)b->settings->batch : UINT32_MAX;
    return afmoe_context_create(&b->context, b->model, &options, &error) == AFMOE_OK ? EXIT_OK
                                                                                    : complain_error(&error);
}

static int measure_threads(struct bench *b, uint64_t longest, int32_t n_threads)
{
    struct bench_row row = {.model_path = b->path, .model = &b->info};
    int code = make_context(b, longest, n_threads);
    if (code != EXIT_OK) return code;
    afmoe_context_info_init(&row.context, sizeof row.context);
    bool good = afmoe_context_get_info(b->context, &row.context, NULL) == AFMOE_OK;
    for (unsigned i = 0; good && i < b->depths.n; i++) {
        row.n_depth = b->depths.values[i];
        good = measure_depth(b, &row);
    }
    for (int i = 0; i < MAX_SESSIONS; i++) {
        afmoe_session_free(b->open[i]);
        b->open[i] = NULL;
    }
    afmoe_context_free(b->context);
    b->context = NULL;
    return good ? EXIT_OK : EXIT_FAILED;
}

static int measure_all(struct bench *b)
{
    uint64_t longest = largest(&b->prompts) > largest(&b->gens) ? largest(&b->prompts) : largest(&b->gens);
    b->tokens = malloc((longest > 512 ? longest : 512) * sizeof *b->tokens);
    if (!b->tokens) {
        complain("out of memory: %" PRIu64 " tokens", longest);
        return EXIT_FAILED;
    }
    int code = b->threads.n ? EXIT_OK : measure_threads(b, longest, -1);
    for (unsigned i = 0; code == EXIT_OK && i < b->threads.n; i++)
        code = measure_threads(b, longest, (int32_t)b->threads.values[i]);
    hide_progress();
    if (code == EXIT_OK && !bench_print_end(b->form, b->n_rows)) code = EXIT_FAILED;
    free(b->tokens);
    return code;
}

int command_bench(const struct settings *settings)
{
    char buffer[PATH_MAX];
    struct bench *b = calloc(1, sizeof *b);
    if (!b) {
        complain("out of memory");
        return EXIT_FAILED;
    }
    b->settings = settings;
    int code = parse(b, settings) ? open_model(&b->model, settings, false) : EXIT_USAGE;
    if (code == EXIT_OK) {
        b->path = find_model(settings, buffer, sizeof buffer);
        afmoe_model_info_init(&b->info, sizeof b->info);
        afmoe_error error;
        afmoe_error_init(&error, sizeof error);
        code = afmoe_model_get_info(b->model, &b->info, &error) == AFMOE_OK ? measure_all(b) : complain_error(&error);
    }
    afmoe_model_free(b->model);
    free(b);
    return code;
}
