/* State of a session, see state.h. Version 1, or 2 where a shift dropped tokens; all numbers are little-endian, nothing
 * lies between the parts:
 *
 *   header        192 bytes
 *     0   8 bytes  "AFMOESES"
 *     8   u32      version, 1 or 2
 *     12  u32      sections, 4
 *     16  u64      bytes of all
 *     24  u64      fingerprint of the model (weights/fingerprint.c)
 *     32  u32      precision, AFMOE_PRECISION_*
 *     36  u32      cells, AFMOE_CELLS_*
 *     40  u32      layers
 *     44  u32      key/value heads
 *     48  u32      head dimension
 *     52  u32      positions of a page, 64
 *     56  u64      vocabulary
 *     64  u64      hidden size
 *     72  u64      sliding window
 *     80  u64      tokens n
 *     88  u64      first page of the sliding layers
 *     96  u32      1: logits and hidden state are there, 0: their sections are empty
 *     100 u32      version of the library that wrote it, for people
 *     104 u32[2]   version 2: pages from the first to the last one dropped, [begin, end); else 0
 *     112          for each section its bytes, u64, and their XXH3 with 64 bits, u64
 *     176 u64      version 2: tokens dropped, n_dropped; else 0
 *     184 u64      XXH3 of the 184 bytes before
 *   tokens        i32[n]
 *   logits        f32[vocabulary], of position n - 1
 *   hidden state  f32[hidden size]
 *   cells         for each layer, for each page from 0 (full layers) or the first (sliding layers) to the one with
 *                 position n - 1, but those that were dropped: the keys of head 0, its values, those of head 1, ...;
 *                 the keys (values) of a page and head are cells[64][head dimension], in the last page only as many
 *                 positions as the timeline has; of Q8_0 each 32 cells (of a position the last ones fewer) follow their
 *                 scale, an f16. In this order whatever the one in memory is (kernels/page.h)
 *
 * Snapshots behind the sliding pages (page_plan.h) are left out. A later version reads this one. */
#include "state.h"

#include "bytes.h"
#include "checksum.h"
#include "context_private.h"
#include "error.h"
#include "memory.h"
#include "page_rows.h"
#include "replace_file.h"
#include "session_private.h"

#include <assert.h>
#include <string.h>

enum { STATE_VERSION = 1, SHIFTED_STATE_VERSION = 2 };
enum { HEADER_BYTES = 192, SECTION_TABLE = 112, HEADER_CHECKSUM = 184 };
enum { SECTION_TOKENS, SECTION_LOGITS, SECTION_HIDDEN, SECTION_CELLS, N_SECTIONS };

static const char magic[8] = {'A', 'F', 'M', 'O', 'E', 'S', 'E', 'S'};
static const char *const section_names[N_SECTIONS] = {"tokens", "logits", "hidden state", "cells"};

/* ---- Sizes ---- */

static uint64_t first_slot(const struct timeline *timeline, uint32_t layer)
{
    return timeline->context->config->layer_is_full[layer] ? 0 : timeline->first_sliding_page;
}

/* Positions that the slots of a layer are for. */
static uint64_t n_positions(const struct timeline *timeline, uint32_t layer)
{
    return timeline->n_tokens - (timeline->context->config->layer_is_full[layer] ? timeline->hole.n_tokens : 0);
}

/* Of a timeline that is there, or of which only n_tokens, first_sliding_page and hole are. */
static uint64_t cells_bytes(const struct timeline *timeline)
{
    const struct context *context = timeline->context;
    const struct model_config *config = context->config;
    uint64_t n_pages = afmoe__plan_pages_held(&context->plan, timeline->first_sliding_page, timeline->n_tokens) -
                       context->plan.n_full * (timeline->hole.n_tokens / PAGE_POSITIONS);
    uint64_t missing = page_count(timeline->n_tokens) * PAGE_POSITIONS - timeline->n_tokens;
    return (n_pages * PAGE_POSITIONS - config->n_layers * missing) * 2 * config->n_kv_heads *
           page_row_bytes(context->cell_format, config->head_dim);
}

static void section_bytes(uint64_t out[N_SECTIONS], const struct timeline *timeline, bool has_logits)
{
    const struct model_config *config = timeline->context->config;
    out[SECTION_TOKENS] = timeline->n_tokens * sizeof(afmoe_token);
    out[SECTION_LOGITS] = has_logits ? config->vocab_size * sizeof(float) : 0;
    out[SECTION_HIDDEN] = has_logits ? config->hidden_size * sizeof(float) : 0;
    out[SECTION_CELLS] = cells_bytes(timeline);
}

static uint64_t state_bytes(const uint64_t sections[N_SECTIONS])
{
    uint64_t total = HEADER_BYTES;
    for (int i = 0; i < N_SECTIONS; i++) total += sections[i];
    return total;
}

uint64_t afmoe__session_state_bytes(const struct session *session)
{
    uint64_t sections[N_SECTIONS];
    section_bytes(sections, &session->timeline, session->has_logits);
    return state_bytes(sections);
}

/* ---- Cells, piece by piece ---- */

typedef afmoe_status (*piece_fn)(void *user, uint8_t *bytes, uint64_t n, afmoe_error *error);

/* How pieces of cells go: out of the pages to `piece`, or from it into them. */
struct walk {
    bool into_pages;
    piece_fn piece;
    void *user;
};

enum { PIECE_BYTES = 16384 }; /* one row at least: head_dim is at most 4096 */

/* The keys or values of one head. */
static afmoe_status walk_head(const struct walk *walk, uint8_t *head_page, uint64_t n_positions, struct page_rows rows,
                              afmoe_error *error)
{
    uint8_t bytes[PIECE_BYTES];
    uint64_t row_bytes = page_row_bytes(rows.format, rows.head_dim), most = PIECE_BYTES / row_bytes;
    afmoe_status status = AFMOE_OK;
    assert(most > 0);
    for (rows.begin = 0; rows.begin < n_positions && status == AFMOE_OK; rows.begin = rows.end) {
        rows.end = n_positions - rows.begin < most ? n_positions : rows.begin + most;
        if (!walk->into_pages) afmoe__page_rows_read(bytes, head_page, &rows);
        status = walk->piece(walk->user, bytes, (rows.end - rows.begin) * row_bytes, error);
        if (walk->into_pages && status == AFMOE_OK) afmoe__page_rows_write(head_page, bytes, &rows);
    }
    return status;
}

static afmoe_status walk_page(const struct walk *walk, const struct context *context, uint8_t *page,
                              uint64_t n_positions, afmoe_error *error)
{
    struct page_rows rows = {.format = context->cell_format, .head_dim = context->config->head_dim};
    uint64_t half = head_page_bytes(rows.format, rows.head_dim);
    afmoe_status status = AFMOE_OK;
    if (n_positions > PAGE_POSITIONS) n_positions = PAGE_POSITIONS;
    for (uint32_t i = 0; i < 2 * context->config->n_kv_heads && status == AFMOE_OK; i++) {
        rows.is_value = i % 2;
        status = walk_head(walk, page + i * half, n_positions, rows, error);
    }
    return status;
}

static afmoe_status walk_cells(const struct walk *walk, const struct timeline *timeline, afmoe_error *error)
{
    const struct context *context = timeline->context;
    for (uint32_t layer = 0; layer < context->config->n_layers; layer++) {
        uint64_t n = n_positions(timeline, layer);
        for (uint64_t slot = first_slot(timeline, layer); slot < page_count(n); slot++) {
            afmoe_status status = walk_page(walk, context, cells_page(&timeline->cells, layer, slot),
                                            n - slot * PAGE_POSITIONS, error);
            if (status != AFMOE_OK) return status;
        }
    }
    return AFMOE_OK;
}

/* ---- Header ---- */

struct header {
    uint64_t fingerprint, n_tokens, first_sliding_page;
    uint32_t has_logits;
    struct hole hole;
    struct {
        uint64_t bytes, checksum;
    } sections[N_SECTIONS];
};

/* The fields that say what the state is of; all must be the same here and there. */
static const struct {
    uint32_t at, bytes;
    const char *name;
} shape_fields[] = {{32, 4, "precision"},    {36, 4, "cells"},      {40, 4, "n_layers"},       {44, 4, "n_kv_heads"},
                    {48, 4, "head_dim"},     {52, 4, "page size"},  {56, 8, "vocab_size"},     {64, 8, "hidden_size"},
                    {72, 8, "sliding_window"}, {24, 8, "fingerprint of the model"}};

static void put_shape(uint8_t *bytes, const struct context *context, uint64_t fingerprint)
{
    const struct model_config *config = context->config;
    store_le64(bytes + 24, fingerprint);
    store_le32(bytes + 32, (uint32_t)context->precision);
    store_le32(bytes + 36, (uint32_t)context->cells);
    store_le32(bytes + 40, config->n_layers);
    store_le32(bytes + 44, config->n_kv_heads);
    store_le32(bytes + 48, config->head_dim);
    store_le32(bytes + 52, PAGE_POSITIONS);
    store_le64(bytes + 56, config->vocab_size);
    store_le64(bytes + 64, config->hidden_size);
    store_le64(bytes + 72, config->sliding_window);
}

static void put_header(uint8_t bytes[HEADER_BYTES], const struct session *session, const struct header *header)
{
    uint64_t total = HEADER_BYTES;
    memset(bytes, 0, HEADER_BYTES);
    memcpy(bytes, magic, sizeof magic);
    store_le32(bytes + 8, header->hole.n_tokens ? SHIFTED_STATE_VERSION : STATE_VERSION);
    store_le32(bytes + 12, N_SECTIONS);
    put_shape(bytes, session->timeline.context, header->fingerprint);
    store_le64(bytes + 80, header->n_tokens);
    store_le64(bytes + 88, header->first_sliding_page);
    store_le32(bytes + 96, header->has_logits);
    store_le32(bytes + 100, afmoe_version());
    store_le32(bytes + 104, (uint32_t)(header->hole.begin / PAGE_POSITIONS));
    store_le32(bytes + 108, (uint32_t)(header->hole.end / PAGE_POSITIONS));
    store_le64(bytes + 176, header->hole.n_tokens);
    for (int i = 0; i < N_SECTIONS; i++) {
        store_le64(bytes + SECTION_TABLE + 16 * i, header->sections[i].bytes);
        store_le64(bytes + SECTION_TABLE + 16 * i + 8, header->sections[i].checksum);
        total += header->sections[i].bytes;
    }
    store_le64(bytes + 16, total);
    store_le64(bytes + HEADER_CHECKSUM, checksum_of(bytes, HEADER_CHECKSUM));
}

/* Cells and floats are kept as they lie in memory. */
static afmoe_status check_byte_order(afmoe_error *error)
{
    const uint32_t one = 1;
    uint8_t first;
    memcpy(&first, &one, 1);
    return first ? AFMOE_OK : afmoe__fail(error, AFMOE_UNSUPPORTED, "states on a big-endian machine");
}

/* ---- Saving ---- */

/* Where it goes: a file, or memory. */
struct sink {
    struct replace_file *file;
    uint8_t *memory;
    uint64_t at;
    struct checksum checksum; /* of the section being written */
};

static afmoe_status put(void *user, uint8_t *bytes, uint64_t n, afmoe_error *error)
{
    struct sink *sink = user;
    afmoe_status status = AFMOE_OK;
    checksum_add(&sink->checksum, bytes, n);
    if (sink->file)
        status = afmoe__replace_file_write(sink->file, bytes, n, sink->at, error);
    else
        memcpy(sink->memory + sink->at, bytes, n);
    sink->at += n;
    return status;
}

static afmoe_status put_section(struct sink *sink, const struct session *session, int section, uint64_t n,
                                afmoe_error *error)
{
    void *const arrays[] = {session->timeline.tokens, session->logits, session->hidden};
    checksum_begin(&sink->checksum);
    const struct walk walk = {.piece = put, .user = sink};
    if (section == SECTION_CELLS) return walk_cells(&walk, &session->timeline, error);
    return n ? put(sink, arrays[section], n, error) : AFMOE_OK;
}

/* The header comes last: it has the checksums. */
static afmoe_status save(const struct session *session, uint64_t fingerprint, struct sink *sink, afmoe_error *error)
{
    struct header header = {.fingerprint = fingerprint, .n_tokens = session->timeline.n_tokens,
                            .first_sliding_page = session->timeline.first_sliding_page,
                            .has_logits = session->has_logits, .hole = session->timeline.hole};
    uint64_t sections[N_SECTIONS];
    uint8_t bytes[HEADER_BYTES];
    section_bytes(sections, &session->timeline, session->has_logits);
    sink->at = HEADER_BYTES;
    for (int i = 0; i < N_SECTIONS; i++) {
        afmoe_status status = put_section(sink, session, i, sections[i], error);
        if (status != AFMOE_OK) return status;
        header.sections[i].bytes = sections[i];
        header.sections[i].checksum = checksum_end(&sink->checksum);
    }
    put_header(bytes, session, &header);
    sink->at = 0;
    return put(sink, bytes, HEADER_BYTES, error);
}

afmoe_status afmoe__session_save(const struct session *session, uint64_t fingerprint, const char *path, bool durable,
                                 afmoe_error *error)
{
    struct replace_file file;
    struct sink sink = {.file = &file};
    afmoe_status status = check_byte_order(error);
    if (status == AFMOE_OK) status = afmoe__replace_file_begin(&file, path, error);
    if (status != AFMOE_OK) return status;
    status = save(session, fingerprint, &sink, error);
    if (status == AFMOE_OK) return afmoe__replace_file_commit(&file, durable, error);
    afmoe__replace_file_discard(&file);
    return status;
}

afmoe_status afmoe__session_save_memory(const struct session *session, uint64_t fingerprint, uint8_t *out,
                                        afmoe_error *error)
{
    struct sink sink = {.memory = out};
    afmoe_status status = check_byte_order(error);
    return status == AFMOE_OK ? save(session, fingerprint, &sink, error) : status;
}

/* ---- Loading ---- */

/* Magic, version and checksum: after these the bytes are those that were written. */
static afmoe_status check_header(const uint8_t bytes[HEADER_BYTES], const char *name, afmoe_error *error)
{
    if (memcmp(bytes, magic, sizeof magic) != 0)
        return afmoe__fail(error, AFMOE_FORMAT, "\"%s\" is not the state of a session", name);
    if (load_le32(bytes + 8) < STATE_VERSION || load_le32(bytes + 8) > SHIFTED_STATE_VERSION)
        return afmoe__fail(error, AFMOE_UNSUPPORTED, "\"%s\": a state of version %u, this library reads %d..%d", name,
                           load_le32(bytes + 8), STATE_VERSION, SHIFTED_STATE_VERSION);
    if (load_le64(bytes + HEADER_CHECKSUM) != checksum_of(bytes, HEADER_CHECKSUM))
        return afmoe__fail(error, AFMOE_CORRUPT, "\"%s\": the checksum of the header does not match", name);
    return AFMOE_OK;
}

/* Of this model, computed and stored in the same way. */
static afmoe_status check_shape(const uint8_t bytes[HEADER_BYTES], const struct context *context, uint64_t fingerprint,
                                const char *name, afmoe_error *error)
{
    uint8_t here[HEADER_BYTES];
    put_shape(here, context, fingerprint);
    for (size_t i = 0; i < sizeof shape_fields / sizeof *shape_fields; i++) {
        uint32_t at = shape_fields[i].at, n = shape_fields[i].bytes;
        if (memcmp(bytes + at, here + at, n) == 0) continue;
        return afmoe__fail(error, AFMOE_STATE, "\"%s\": %s is %llu there and %llu here", name, shape_fields[i].name,
                           (unsigned long long)(n == 4 ? load_le32(bytes + at) : load_le64(bytes + at)),
                           (unsigned long long)(n == 4 ? load_le32(here + at) : load_le64(here + at)));
    }
    return AFMOE_OK;
}

/* Whole pages among the tokens there; header->n_tokens is known. */
static afmoe_status check_hole(struct header *header, const uint8_t bytes[HEADER_BYTES], const char *name,
                               afmoe_error *error)
{
    struct hole *hole = &header->hole;
    if (load_le32(bytes + 8) != SHIFTED_STATE_VERSION) return AFMOE_OK;
    *hole = (struct hole){(uint64_t)load_le32(bytes + 104) * PAGE_POSITIONS,
                          (uint64_t)load_le32(bytes + 108) * PAGE_POSITIONS, load_le64(bytes + 176)};
    if (hole->begin < hole->end && hole->end <= header->n_tokens && hole->n_tokens > 0 &&
        hole->n_tokens <= hole->end - hole->begin && hole->n_tokens % PAGE_POSITIONS == 0)
        return AFMOE_OK;
    return afmoe__fail(error, AFMOE_FORMAT, "\"%s\": %llu of the tokens %llu..%llu dropped, of %llu", name,
                       (unsigned long long)hole->n_tokens, (unsigned long long)hole->begin,
                       (unsigned long long)hole->end, (unsigned long long)header->n_tokens);
}

/* Only a file made on purpose fails here, but for one that is longer than what this context holds. */
static afmoe_status check_lengths(struct header *header, const uint8_t bytes[HEADER_BYTES],
                                  const struct context *context, const char *name, afmoe_error *error)
{
    uint64_t sections[N_SECTIONS];
    header->n_tokens = load_le64(bytes + 80);
    header->first_sliding_page = load_le64(bytes + 88);
    header->has_logits = load_le32(bytes + 96);
    afmoe_status status = check_hole(header, bytes, name, error);
    if (status != AFMOE_OK) return status;
    const struct timeline timeline = {.context = (struct context *)context, .n_tokens = header->n_tokens,
                                      .first_sliding_page = load_le64(bytes + 88), .hole = header->hole};
    if (header->n_tokens > afmoe__timeline_limit(&timeline, header->n_tokens))
        return afmoe__fail(error, AFMOE_CONTEXT_FULL, "\"%s\" has %llu tokens; a session holds %llu", name,
                           (unsigned long long)(header->n_tokens - header->hole.n_tokens),
                           (unsigned long long)context->max_tokens);
    if (header->first_sliding_page > afmoe__plan_window_page(&context->plan, header->n_tokens))
        return afmoe__fail(error, AFMOE_FORMAT, "\"%s\": pages from %llu on do not hold the window of position %llu",
                           name, (unsigned long long)header->first_sliding_page,
                           (unsigned long long)header->n_tokens);
    if (load_le32(bytes + 12) != N_SECTIONS || header->has_logits > (header->n_tokens ? 1 : 0))
        return afmoe__fail(error, AFMOE_FORMAT, "\"%s\": %u sections, logits %u of %llu tokens", name,
                           load_le32(bytes + 12), header->has_logits, (unsigned long long)header->n_tokens);
    section_bytes(sections, &timeline, header->has_logits);
    for (int i = 0; i < N_SECTIONS; i++) {
        header->sections[i].bytes = load_le64(bytes + SECTION_TABLE + 16 * i);
        header->sections[i].checksum = load_le64(bytes + SECTION_TABLE + 16 * i + 8);
        if (header->sections[i].bytes != sections[i])
            return afmoe__fail(error, AFMOE_FORMAT, "\"%s\": %llu bytes of %s, %llu tokens have %llu", name,
                               (unsigned long long)header->sections[i].bytes, section_names[i],
                               (unsigned long long)header->n_tokens, (unsigned long long)sections[i]);
    }
    if (load_le64(bytes + 16) == state_bytes(sections)) return AFMOE_OK;
    return afmoe__fail(error, AFMOE_FORMAT, "\"%s\": its header says %llu bytes, its sections have %llu", name,
                       (unsigned long long)load_le64(bytes + 16), (unsigned long long)state_bytes(sections));
}

static afmoe_status check_file_bytes(const struct mapped_file *file, uint64_t expected, afmoe_error *error)
{
    if (file->size == expected) return AFMOE_OK;
    return afmoe__fail(error, file->size < expected ? AFMOE_TRUNCATED : AFMOE_FORMAT,
                       "\"%s\" has %llu bytes, a state of %llu", file->path, (unsigned long long)file->size,
                       (unsigned long long)expected);
}

static afmoe_status read_header(struct header *header, const struct mapped_file *file, const struct context *context,
                                uint64_t fingerprint, afmoe_error *error)
{
    uint8_t bytes[HEADER_BYTES];
    if (file->size < HEADER_BYTES) return check_file_bytes(file, HEADER_BYTES, error);
    afmoe_status status = afmoe__file_copy(file, bytes, HEADER_BYTES, 0, error);
    if (status == AFMOE_OK) status = check_header(bytes, file->path, error);
    if (status == AFMOE_OK) status = check_file_bytes(file, load_le64(bytes + 16), error);
    if (status == AFMOE_OK) status = check_shape(bytes, context, fingerprint, file->path, error);
    return status == AFMOE_OK ? check_lengths(header, bytes, context, file->path, error) : status;
}

struct source {
    const struct mapped_file *file;
    uint64_t at;
    struct checksum checksum; /* of the section being read */
};

static afmoe_status get(void *user, uint8_t *bytes, uint64_t n, afmoe_error *error)
{
    struct source *source = user;
    afmoe_status status = afmoe__file_copy(source->file, bytes, n, source->at, error);
    if (status != AFMOE_OK) return status;
    checksum_add(&source->checksum, bytes, n);
    source->at += n;
    return AFMOE_OK;
}

static afmoe_status fail_checksum(const struct mapped_file *file, int section, afmoe_error *error)
{
    return afmoe__fail(error, AFMOE_CORRUPT, "\"%s\": the checksum of the %s does not match", file->path,
                       section_names[section]);
}

static afmoe_status get_section(struct source *source, const struct session *session, int section,
                                const struct header *header, afmoe_error *error)
{
    void *const arrays[] = {session->timeline.tokens, session->logits, session->hidden};
    const struct walk walk = {.into_pages = true, .piece = get, .user = source};
    uint64_t n = header->sections[section].bytes;
    afmoe_status status = AFMOE_OK;
    checksum_begin(&source->checksum);
    if (section == SECTION_CELLS)
        status = walk_cells(&walk, &session->timeline, error);
    else if (n)
        status = get(source, arrays[section], n, error);
    if (status != AFMOE_OK || checksum_end(&source->checksum) == header->sections[section].checksum) return status;
    return fail_checksum(source->file, section, error);
}

static afmoe_status check_tokens(const struct session *session, const char *name, afmoe_error *error)
{
    const struct timeline *timeline = &session->timeline;
    uint64_t vocab = timeline->context->config->vocab_size;
    for (uint64_t i = 0; i < timeline->n_tokens; i++)
        if (timeline->tokens[i] < 0 || (uint64_t)timeline->tokens[i] >= vocab)
            return afmoe__fail(error, AFMOE_FORMAT, "\"%s\": token %llu is %d, allowed are 0..%llu", name,
                               (unsigned long long)i, timeline->tokens[i], (unsigned long long)(vocab - 1));
    return AFMOE_OK;
}

afmoe_status afmoe__session_fill(struct session *session, uint64_t fingerprint, const struct mapped_file *file,
                                 afmoe_error *error)
{
    struct header header = {.n_tokens = 0};
    struct source source = {.file = file, .at = HEADER_BYTES};
    afmoe_status status = check_byte_order(error);
    if (status == AFMOE_OK) status = read_header(&header, file, session->timeline.context, fingerprint, error);
    if (status == AFMOE_OK) status = afmoe__session_reserve(session, header.hole.n_tokens, error);
    if (status == AFMOE_OK)
        status = afmoe__timeline_fill(&session->timeline, header.first_sliding_page, header.n_tokens, &header.hole,
                                      error);
    for (int i = 0; i < N_SECTIONS && status == AFMOE_OK; i++)
        status = get_section(&source, session, i, &header, error);
    session->has_logits = header.has_logits;
    return status == AFMOE_OK ? check_tokens(session, file->path, error) : status;
}

afmoe_status afmoe__session_load(struct session *session, uint64_t fingerprint, const struct mapped_file *file,
                                 afmoe_error *error)
{
    const struct model_config *config = session->timeline.context->config;
    struct session *spare;
    afmoe_status status = afmoe__session_create(&spare, session->timeline.context, error);
    if (status != AFMOE_OK) return status;
    status = afmoe__session_fill(spare, fingerprint, file, error);
    if (status == AFMOE_OK) status = afmoe__session_reserve(session, spare->timeline.hole.n_tokens, error);
    if (status == AFMOE_OK) {
        afmoe__session_end_drafts(session);
        afmoe__timeline_move(&session->timeline, &spare->timeline);
        session->has_logits = spare->has_logits;
        memcpy(session->logits, spare->logits, config->vocab_size * sizeof(float));
        memcpy(session->hidden, spare->hidden, config->hidden_size * sizeof(float));
    }
    afmoe__timeline_truncate(&spare->timeline, 0); /* what did not pass must not become a prefix */
    afmoe__session_free(spare);
    return status;
}

/* ---- Looking at one ---- */

uint64_t afmoe__state_kind(const struct context *context, uint64_t fingerprint)
{
    uint8_t bytes[HEADER_BYTES] = {0};
    store_le32(bytes + 8, STATE_VERSION);
    put_shape(bytes, context, fingerprint);
    return checksum_of(bytes, HEADER_BYTES);
}

afmoe_status afmoe__state_tokens(afmoe_token **out, uint64_t *out_n, uint64_t *out_first_page,
                                 const struct context *context, uint64_t fingerprint, const struct mapped_file *file,
                                 afmoe_error *error)
{
    struct header header = {.n_tokens = 0};
    afmoe_status status = check_byte_order(error);
    *out = NULL;
    if (status == AFMOE_OK) status = read_header(&header, file, context, fingerprint, error);
    if (status != AFMOE_OK) return status;
    uint64_t n_bytes = header.sections[SECTION_TOKENS].bytes;
    afmoe_token *tokens = afmoe__alloc_array(n_bytes, 1);
    if (!tokens) return afmoe__fail_memory(error, n_bytes, "the tokens of a state");
    status = afmoe__file_copy(file, tokens, n_bytes, HEADER_BYTES, error);
    if (status == AFMOE_OK && checksum_of(tokens, n_bytes) != header.sections[SECTION_TOKENS].checksum)
        status = fail_checksum(file, SECTION_TOKENS, error);
    if (status != AFMOE_OK) {
        afmoe__free(tokens);
        return status;
    }
    *out = tokens;
    *out_n = header.n_tokens;
    *out_first_page = header.first_sliding_page;
    return AFMOE_OK;
}
