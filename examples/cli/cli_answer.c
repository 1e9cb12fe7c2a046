/* What run and chat share: sampler and session from the settings, and the answer on its way out. */
#include "cli.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { BAR_FROM_TOKENS = 64 };

static void override(float *value, float given)
{
    if (!isnan(given)) *value = given;
}

int sampler_options(afmoe_sampler_options *out, const afmoe_model *model, const struct settings *settings)
{
    afmoe_error error;
    afmoe_error_init(&error, sizeof error);
    afmoe_sampler_options_init(out, sizeof *out);
    if (afmoe_model_sampler_options(model, out, &error) != AFMOE_OK) return complain_error(&error);
    override(&out->temperature, settings->temperature);
    override(&out->top_p, settings->top_p);
    override(&out->min_p, settings->min_p);
    override(&out->repetition_penalty, settings->repeat_penalty);
    override(&out->presence_penalty, settings->presence_penalty);
    override(&out->frequency_penalty, settings->frequency_penalty);
    if (settings->top_k != UINT64_MAX) out->top_k = settings->top_k;
    if (settings->seed_given) out->seed = settings->seed;
    return EXIT_OK;
}

int make_sampler(afmoe_sampler **out, afmoe_model *model, const struct settings *settings,
                 const afmoe_sampler_options *options)
{
    afmoe_error error;
    afmoe_error_init(&error, sizeof error);
    if (afmoe_sampler_create(out, model, options, &error) != AFMOE_OK) return complain_error(&error);
    if (settings->verbose)
        complain("temperature %g, top_k %" PRIu64 ", top_p %g, min_p %g, seed %" PRIu64, (double)options->temperature,
                 options->top_k, (double)options->top_p, (double)options->min_p, options->seed);
    return EXIT_OK;
}

int make_session(afmoe_context **out_context, afmoe_session **out_session, afmoe_model *model,
                 const afmoe_context_options *options)
{
    afmoe_error error;
    afmoe_error_init(&error, sizeof error);
    if (afmoe_context_create(out_context, model, options, &error) != AFMOE_OK ||
        afmoe_session_create(out_session, *out_context, &error) != AFMOE_OK)
        return complain_error(&error);
    return EXIT_OK;
}

void reading_options(afmoe_append_options *out, const struct settings *settings, uint64_t n_tokens)
{
    static char label[] = "reading the prompt";
    afmoe_append_options_init(out, sizeof *out);
    out->cancel = interrupt;
    if (settings->quiet || n_tokens < BAR_FROM_TOKENS) return;
    out->progress = show_progress;
    out->progress_data = label;
}

/* Messages end at a byte of zero, so none is kept. */
static bool keep(struct buffer *text, const char *bytes, size_t n)
{
    while (n) {
        const char *zero = memchr(bytes, '\0', n);
        size_t n_kept = zero ? (size_t)(zero - bytes) : n;
        if (!buffer_append(text, bytes, n_kept)) return false;
        n_kept += zero != NULL;
        bytes += n_kept;
        n -= n_kept;
    }
    return true;
}

static int32_t write_piece(void *user_data, const afmoe_piece *piece)
{
    struct answer *answer = user_data;
    if (piece->text_bytes == 0) return 0;
    answer->wrote = true;
    answer->wrote_newline = piece->text[piece->text_bytes - 1] == '\n';
    answer->failed = !write_out(piece->text, piece->text_bytes) || !flush_out() ||
                     (answer->text && !keep(answer->text, piece->text, piece->text_bytes));
    return answer->failed;
}

void answer_options(afmoe_generate_options *out, const struct settings *settings, struct answer *answer)
{
    afmoe_generate_options_init(out, sizeof *out);
    out->ignore_eos = settings->ignore_eos;
    out->max_tokens = settings->n_predict;
    if (settings->n_draft != UINT64_MAX) out->max_draft = settings->n_draft;
    out->stop_strings = settings->stops;
    out->n_stop_strings = settings->n_stops;
    out->on_piece = write_piece;
    out->on_piece_data = answer;
    out->cancel = interrupt;
}

bool end_answer(struct answer *answer)
{
    return answer->wrote_newline || (write_out("\n", 1) && flush_out());
}

double rate(uint64_t n_tokens, uint64_t ns)
{
    return ns ? (double)n_tokens * 1e9 / (double)ns : 0.0;
}
