/* Prefixes on disk, see prefix_folder.h. A file is a state (state.c) without logits, by the name
 *
 *   KIND-FIRST-ALL-N.state
 *
 *     KIND   afmoe__state_kind: version of states, model, precision, cells
 *     FIRST  XXH3 of the first 64 tokens, i32 each
 *     ALL    XXH3 of all N tokens
 *
 * each 16 hexadecimal digits, N decimal. Names only say where to look: what a file holds is read from it and checked.
 * It was last used when it was last modified. Files that are not named so, or are of another kind, are not touched, but
 * for what a process left that died while writing (replace_file.h). */
#define _GNU_SOURCE /* realpath */

#include "prefix_folder.h"

#include "error.h"

#ifdef AFMOE_HAVE_STATE

#include "checksum.h"
#include "context_private.h"
#include "memory.h"
#include "replace_file.h"
#include "session_private.h"
#include "state.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { FIRST_TOKENS = PAGE_POSITIONS, NAME_BYTES = 96, MAX_WRITING_SECONDS = 3600 };

struct prefix_folder {
    struct context *context;
    char *path; /* absolute */
    int descriptor;
    uint64_t max_bytes, fingerprint, kind;
    _Atomic uint64_t n_read, n_written, n_failed;
};

struct file_key {
    uint64_t first, all, n_tokens;
};

struct found {
    struct file_key key;
    uint64_t n_usable;    /* when looking for a beginning */
    uint64_t n_bytes;     /* when making room */
    struct timespec used;
};

struct listing {
    const struct prefix_folder *folder;
    uint64_t first; /* when looking for a beginning */
    struct found *files;
    uint64_t n, capacity;
};

/* ---- Names ---- */

static void make_name(char out[NAME_BYTES], const struct prefix_folder *folder, const struct file_key *key)
{
    snprintf(out, NAME_BYTES, "%016llx-%016llx-%016llx-%llu.state", (unsigned long long)folder->kind,
             (unsigned long long)key->first, (unsigned long long)key->all, (unsigned long long)key->n_tokens);
}

/* Of this kind, and spelt as it is made. */
static bool read_name(struct file_key *out, const struct prefix_folder *folder, const char *name)
{
    unsigned long long kind, first, all, n_tokens;
    char again[NAME_BYTES];
    if (sscanf(name, "%16llx-%16llx-%16llx-%20llu", &kind, &first, &all, &n_tokens) != 4) return false;
    *out = (struct file_key){first, all, n_tokens};
    make_name(again, folder, out);
    return strcmp(name, again) == 0;
}

/* Its path, for afmoe__free; NULL: out of memory. */
static char *make_path(const struct prefix_folder *folder, const struct file_key *key)
{
    char name[NAME_BYTES];
    size_t n = strlen(folder->path) + 1 + NAME_BYTES;
    char *path = afmoe__alloc_array(n, 1);
    make_name(name, folder, key);
    if (path) snprintf(path, n, "%s/%s", folder->path, name);
    return path;
}

static void remove_file(const struct prefix_folder *folder, const char *name)
{
    unlinkat(folder->descriptor, name, 0);
}

static void touch(const struct prefix_folder *folder, const struct file_key *key)
{
    char name[NAME_BYTES];
    make_name(name, folder, key);
    utimensat(folder->descriptor, name, NULL, 0);
}

/* ---- Going through the folder ---- */

/* Out of memory: it is not in the list. */
static void add(struct listing *listing, const struct found *found)
{
    if (listing->n == listing->capacity) {
        uint64_t capacity = listing->capacity ? 2 * listing->capacity : 16;
        struct found *files = afmoe__realloc_array(listing->files, capacity, sizeof *files);
        if (!files) return;
        listing->files = files;
        listing->capacity = capacity;
    }
    listing->files[listing->n++] = *found;
}

static void list(struct listing *listing, void (*visit)(struct listing *listing, const char *name))
{
    int descriptor = openat(listing->folder->descriptor, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *entries = descriptor >= 0 ? fdopendir(descriptor) : NULL;
    if (!entries) {
        if (descriptor >= 0) close(descriptor);
        return;
    }
    for (struct dirent *entry; (entry = readdir(entries));) visit(listing, entry->d_name);
    closedir(entries);
}

/* ---- Looking for a beginning ---- */

static void find_first(struct listing *listing, const char *name)
{
    struct found found = {.n_usable = 0};
    if (read_name(&found.key, listing->folder, name) && found.key.first == listing->first) add(listing, &found);
}

static afmoe_status open_file(struct mapped_file *out, const struct prefix_folder *folder, const struct file_key *key)
{
    char name[NAME_BYTES];
    make_name(name, folder, key);
    return afmoe__file_open_in(out, folder->path, name, FILE_PEEKED, NULL);
}

/* What is damaged goes, or nobody could write it again. */
static void judge(struct prefix_folder *folder, const struct file_key *key, afmoe_status status)
{
    char name[NAME_BYTES];
    if (status != AFMOE_FORMAT && status != AFMOE_TRUNCATED && status != AFMOE_CORRUPT) return;
    make_name(name, folder, key);
    remove_file(folder, name);
    atomic_fetch_add(&folder->n_failed, 1);
}

/* How many of the tokens a session could go on from with this file. */
static uint64_t count_usable(struct prefix_folder *folder, const struct file_key *key, const afmoe_token *tokens,
                             uint64_t most)
{
    struct mapped_file file;
    afmoe_token *there;
    uint64_t n_there, first_page, n = 0;
    afmoe_status status = open_file(&file, folder, key);
    if (status == AFMOE_OK) {
        status = afmoe__state_tokens(&there, &n_there, &first_page, folder->context, folder->fingerprint, &file, NULL);
        afmoe__file_close(&file);
    }
    if (status == AFMOE_OK) {
        while (n < most && n < n_there && there[n] == tokens[n]) n++;
        if (first_page > afmoe__plan_window_page(&folder->context->plan, n)) n = 0;
        afmoe__free(there);
    }
    judge(folder, key, status);
    return n;
}

/* The first n tokens of a file become the timeline of `session`, or nothing happens. */
static bool read_file(struct prefix_folder *folder, const struct file_key *key, struct session *session,
                      const afmoe_token *tokens, uint64_t n)
{
    struct mapped_file file;
    struct session *spare;
    if (afmoe__session_create(&spare, folder->context, NULL) != AFMOE_OK) return false;
    struct timeline *timeline = &spare->timeline;
    afmoe_status status = open_file(&file, folder, key);
    if (status == AFMOE_OK) {
        status = afmoe__session_fill(spare, folder->fingerprint, &file, NULL);
        afmoe__file_close(&file);
    }
    bool good = status == AFMOE_OK && afmoe__timeline_common_prefix(timeline, tokens, n) == n &&
                afmoe__timeline_restart(timeline, n) == n && /* it may be another file by now */
                timeline_n_dropped(timeline, n) == 0;
    if (good) {
        afmoe__timeline_truncate(timeline, n);
        afmoe__timeline_move(&session->timeline, timeline);
    }
    judge(folder, key, status);
    afmoe__timeline_truncate(timeline, 0); /* nothing is left of what was refused */
    afmoe__session_free(spare);
    return good;
}

static struct found *most_usable(const struct listing *listing)
{
    struct found *best = NULL;
    for (uint64_t i = 0; i < listing->n; i++)
        if (!best || listing->files[i].n_usable > best->n_usable) best = &listing->files[i];
    return best;
}

uint64_t afmoe__prefix_folder_take(struct prefix_folder *folder, struct session *session, const afmoe_token *tokens,
                                   uint64_t n_tokens, uint64_t most)
{
    uint64_t known = session->timeline.n_tokens;
    struct listing listing = {.folder = folder};
    struct found *best;
    if (!folder || n_tokens < FIRST_TOKENS || most <= known) return known;
    listing.first = checksum_of(tokens, FIRST_TOKENS * sizeof *tokens);
    list(&listing, find_first);
    for (uint64_t i = 0; i < listing.n; i++)
        listing.files[i].n_usable = count_usable(folder, &listing.files[i].key, tokens, most);
    while ((best = most_usable(&listing)) && best->n_usable > known) {
        if (read_file(folder, &best->key, session, tokens, best->n_usable)) {
            known = best->n_usable;
            atomic_fetch_add(&folder->n_read, 1);
            touch(folder, &best->key);
        }
        best->n_usable = 0;
    }
    afmoe__free(listing.files);
    return known;
}

/* ---- Leaving ---- */

static bool is_old(const struct timespec *changed)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return changed->tv_sec < now.tv_sec - MAX_WRITING_SECONDS;
}

/* All files of this kind; what the dead have left is removed on the way. */
static void find_all(struct listing *listing, const char *name)
{
    const struct prefix_folder *folder = listing->folder;
    struct found found;
    struct stat info;
    bool is_ours = read_name(&found.key, folder, name);
    if (!is_ours && strncmp(name, REPLACE_FILE_PREFIX, sizeof REPLACE_FILE_PREFIX - 1) != 0) return;
    if (fstatat(folder->descriptor, name, &info, AT_SYMLINK_NOFOLLOW) != 0) return;
    found.n_bytes = (uint64_t)info.st_size;
    found.used = info.st_mtim;
    if (is_ours) add(listing, &found);
    else if (is_old(&info.st_mtim)) remove_file(folder, name);
}

static int by_use(const void *a, const void *b)
{
    const struct timespec *one = &((const struct found *)a)->used, *other = &((const struct found *)b)->used;
    if (one->tv_sec != other->tv_sec) return one->tv_sec < other->tv_sec ? -1 : 1;
    return one->tv_nsec < other->tv_nsec ? -1 : one->tv_nsec > other->tv_nsec;
}

/* Have n_bytes <= max_bytes fit, as far as this process sees: what others write meanwhile, the next one counts. */
static void make_room(const struct prefix_folder *folder, uint64_t n_bytes)
{
    struct listing listing = {.folder = folder};
    uint64_t n_there = 0;
    char name[NAME_BYTES];
    list(&listing, find_all);
    if (listing.n) qsort(listing.files, listing.n, sizeof *listing.files, by_use);
    for (uint64_t i = 0; i < listing.n; i++) n_there += listing.files[i].n_bytes;
    for (uint64_t i = 0; i < listing.n && n_there > folder->max_bytes - n_bytes; i++) {
        make_name(name, folder, &listing.files[i].key);
        remove_file(folder, name);
        n_there -= listing.files[i].n_bytes;
    }
    afmoe__free(listing.files);
}

/* A file of these tokens and this length is there, and used now. */
static bool is_there(const struct prefix_folder *folder, const struct file_key *key, uint64_t n_bytes)
{
    struct stat info;
    char name[NAME_BYTES];
    make_name(name, folder, key);
    if (fstatat(folder->descriptor, name, &info, AT_SYMLINK_NOFOLLOW) != 0) return false;
    if (!S_ISREG(info.st_mode) || (uint64_t)info.st_size != n_bytes) return false;
    touch(folder, key);
    return true;
}

static afmoe_status write_file(const struct prefix_folder *folder, const struct session *session,
                               const struct file_key *key)
{
    char *path = make_path(folder, key);
    if (!path) return AFMOE_NO_MEMORY;
    afmoe_status status = afmoe__session_save(session, folder->fingerprint, path, false, NULL);
    afmoe__free(path);
    return status;
}

void afmoe__prefix_folder_leave(struct prefix_folder *folder, struct session *session)
{
    const struct timeline *timeline = &session->timeline;
    if (!folder || timeline->n_tokens < FIRST_TOKENS) return;
    session->has_logits = false;
    const struct file_key key = {.first = checksum_of(timeline->tokens, FIRST_TOKENS * sizeof *timeline->tokens),
                                 .all = checksum_of(timeline->tokens, timeline->n_tokens * sizeof *timeline->tokens),
                                 .n_tokens = timeline->n_tokens};
    uint64_t n_bytes = afmoe__session_state_bytes(session);
    if (n_bytes > folder->max_bytes || is_there(folder, &key, n_bytes)) return;
    make_room(folder, n_bytes);
    bool good = write_file(folder, session, &key) == AFMOE_OK;
    atomic_fetch_add(good ? &folder->n_written : &folder->n_failed, 1);
}

void afmoe__prefix_folder_counts(struct prefix_folder *folder, afmoe_context_info *out)
{
    if (!folder) return;
    out->n_prefix_files_read = atomic_load(&folder->n_read);
    out->n_prefix_files_written = atomic_load(&folder->n_written);
    out->n_prefix_files_failed = atomic_load(&folder->n_failed);
}

/* ---- Opening ---- */

static afmoe_status make_folder(const char *path, afmoe_error *error)
{
    if (mkdir(path, 0700) == 0 || errno == EEXIST) return AFMOE_OK;
    return afmoe__fail_errno(error, errno == ENOENT || errno == ENOTDIR ? AFMOE_NOT_FOUND : AFMOE_IO, errno,
                             "prefix_folder: cannot make %s", path);
}

static afmoe_status check_owner(const struct prefix_folder *folder, const char *path, afmoe_error *error)
{
    struct stat info;
    if (fstat(folder->descriptor, &info) != 0)
        return afmoe__fail_errno(error, AFMOE_IO, errno, "prefix_folder: cannot look at %s", path);
    if (info.st_uid != geteuid())
        return afmoe__fail(error, AFMOE_INVALID, "prefix_folder: %s belongs to user %lu, this process to %lu", path,
                           (unsigned long)info.st_uid, (unsigned long)geteuid());
    if ((info.st_mode & 077) == 0) return AFMOE_OK;
    return afmoe__fail(error, AFMOE_INVALID, "prefix_folder: %s has mode %04o, which lets others in; allowed is 0700",
                       path, (unsigned)info.st_mode & 07777);
}

/* By making a file and dropping it. */
static afmoe_status check_writable(const struct prefix_folder *folder, afmoe_error *error)
{
    const struct file_key none = {.n_tokens = 0};
    struct replace_file file;
    char *path = make_path(folder, &none);
    if (!path) return afmoe__fail_memory(error, strlen(folder->path) + 1 + NAME_BYTES, "the name of a file");
    afmoe_status status = afmoe__replace_file_begin(&file, path, error);
    if (status == AFMOE_OK) afmoe__replace_file_discard(&file);
    afmoe__free(path);
    return status;
}

static afmoe_status open_folder(struct prefix_folder *folder, const char *path, afmoe_error *error)
{
    afmoe_status status = make_folder(path, error);
    if (status != AFMOE_OK) return status;
    folder->descriptor = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder->descriptor < 0)
        return afmoe__fail_errno(error, AFMOE_IO, errno, "prefix_folder: cannot open %s", path);
    if ((status = check_owner(folder, path, error)) != AFMOE_OK) return status;
    folder->path = realpath(path, NULL);
    if (!folder->path)
        return afmoe__fail_errno(error, errno == ENOMEM ? AFMOE_NO_MEMORY : AFMOE_IO, errno,
                                 "prefix_folder: where is %s?", path);
    return check_writable(folder, error);
}

afmoe_status afmoe__prefix_folder_open(struct prefix_folder **out, struct context *context, const char *path,
                                       uint64_t max_bytes, uint64_t fingerprint, afmoe_error *error)
{
    *out = NULL;
    if (!path) return AFMOE_OK;
    struct prefix_folder *folder = afmoe__alloc_zeroed(1, sizeof *folder);
    if (!folder) return afmoe__fail_memory(error, sizeof *folder, "a folder of prefixes");
    *folder = (struct prefix_folder){.context = context, .descriptor = -1, .max_bytes = max_bytes,
                                     .fingerprint = fingerprint, .kind = afmoe__state_kind(context, fingerprint)};
    afmoe_status status = open_folder(folder, path, error);
    if (status == AFMOE_OK) *out = folder;
    else afmoe__prefix_folder_close(folder);
    return status;
}

void afmoe__prefix_folder_close(struct prefix_folder *folder)
{
    if (!folder) return;
    if (folder->descriptor >= 0) close(folder->descriptor);
    free(folder->path); /* of realpath */
    afmoe__free(folder);
}

#else

afmoe_status afmoe__prefix_folder_open(struct prefix_folder **out, struct context *context, const char *path,
                                       uint64_t max_bytes, uint64_t fingerprint, afmoe_error *error)
{
    (void)context;
    (void)max_bytes;
    (void)fingerprint;
    *out = NULL;
    if (!path) return AFMOE_OK;
    return afmoe__fail(error, AFMOE_UNSUPPORTED, "prefix_folder: this build cannot save and load sessions: it was made "
                                                 "without the option 'state', which needs xxhash.h");
}

void afmoe__prefix_folder_close(struct prefix_folder *folder)
{
    (void)folder;
}

void afmoe__prefix_folder_leave(struct prefix_folder *folder, struct session *session)
{
    (void)folder;
    (void)session;
}

uint64_t afmoe__prefix_folder_take(struct prefix_folder *folder, struct session *session, const afmoe_token *tokens,
                                   uint64_t n_tokens, uint64_t most)
{
    (void)folder;
    (void)tokens;
    (void)n_tokens;
    (void)most;
    return afmoe__session_n_tokens(session);
}

void afmoe__prefix_folder_counts(struct prefix_folder *folder, afmoe_context_info *out)
{
    (void)folder;
    (void)out;
}

#endif
