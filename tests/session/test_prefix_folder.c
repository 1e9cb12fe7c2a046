/* Prefixes on disk: a session of another process begins with what one has left there, to the bits of a fresh one;
 * whatever happens to the files, nobody but context_info tells. */
#define _GNU_SOURCE
#include "timelines.h"

#include "sanitizer.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { REWIND = 70, MAX_FILES = 16, FILE_PATH_BYTES = 2 * PATH_BYTES, NOBODY = 65534 };

static char folder[PATH_BYTES];
static struct bits *expected;

/* ---- The folder ---- */

static int make_folder(void **state)
{
    const char *root = getenv("TMPDIR");
    (void)state;
    snprintf(folder, sizeof folder, "%s/afmoe-prefixes-XXXXXX", root ? root : "/tmp");
    return mkdtemp(folder) ? 0 : 1;
}

static void path_in(char out[FILE_PATH_BYTES], const char *name)
{
    snprintf(out, FILE_PATH_BYTES, "%s/%s", folder, name);
}

struct names {
    char of[MAX_FILES][256];
    uint64_t n;
};

/* Those that end with `end`. */
static struct names list(const char *end)
{
    struct names names = {.n = 0};
    DIR *entries = opendir(folder);
    assert_non_null(entries);
    for (struct dirent *entry; (entry = readdir(entries)) && names.n < MAX_FILES;) {
        const char *name = entry->d_name;
        if (!strcmp(name, ".") || !strcmp(name, "..") || strlen(name) < strlen(end)) continue;
        if (strcmp(name + strlen(name) - strlen(end), end) == 0) strcpy(names.of[names.n++], name);
    }
    closedir(entries);
    return names;
}

static int remove_folder(void **state)
{
    char path[FILE_PATH_BYTES];
    struct names all = list("");
    (void)state;
    for (uint64_t i = 0; i < all.n; i++) {
        path_in(path, all.of[i]);
        unlink(path);
    }
    return rmdir(folder);
}

static void write_file(const char *name, const void *bytes, size_t n)
{
    char path[FILE_PATH_BYTES];
    path_in(path, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    fclose(file);
}

/* All bytes of a file, free() them. */
static unsigned char *read_file(const char *name, size_t *out_n)
{
    char path[FILE_PATH_BYTES];
    path_in(path, name);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    *out_n = (size_t)ftell(file);
    rewind(file);
    unsigned char *bytes = malloc(*out_n);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, *out_n, file), *out_n);
    fclose(file);
    return bytes;
}

/* As if it had been used so long ago. */
static void age(const char *name, time_t seconds)
{
    char path[FILE_PATH_BYTES];
    struct timespec times[2];
    path_in(path, name);
    clock_gettime(CLOCK_REALTIME, &times[0]);
    times[0].tv_sec -= seconds;
    times[1] = times[0];
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

/* ---- Sessions ---- */

static afmoe_context_options with_folder(void)
{
    afmoe_context_options options = exact_options();
    options.rewind_tokens = REWIND;
    options.chunk_tokens = 48;
    options.prefix_folder = folder;
    return options;
}

static afmoe_context *open_with_folder(void)
{
    afmoe_context_options options = with_folder();
    return open_context(tiny, &options);
}

static afmoe_context_info info_of_context(afmoe_context *context)
{
    afmoe_context_info info;
    afmoe_context_info_init(&info, sizeof info);
    CHECK_STATUS(AFMOE_OK, afmoe_context_get_info(context, &info, &error));
    return info;
}

static void assert_counts(afmoe_context *context, uint64_t n_read, uint64_t n_written, uint64_t n_failed)
{
    afmoe_context_info info = info_of_context(context);
    assert_int_equal(info.n_prefix_files_read, n_read);
    assert_int_equal(info.n_prefix_files_written, n_written);
    assert_int_equal(info.n_prefix_files_failed, n_failed);
}

/* A session of these tokens comes and goes. */
static void leave(afmoe_context *context, const afmoe_token *of, uint64_t n)
{
    afmoe_session *session = open_session(context);
    CHECK_STATUS(AFMOE_OK, afmoe_session_append(session, of, n, NULL, NULL, &error));
    afmoe_session_free(session);
}

/* A new session of n tokens reuses n_reused of them, and leaves nothing. */
static void check_new(afmoe_context *context, uint64_t n, uint64_t n_reused)
{
    afmoe_session *session = open_session(context);
    afmoe_append_result result;
    afmoe_append_result_init(&result, sizeof result);
    CHECK_STATUS(AFMOE_OK, afmoe_session_append(session, tokens, n, NULL, &result, &error));
    assert_result(&result, n, n_reused, n - n_reused);
    assert_int_equal(stats_of(session).n_reused, n_reused);
    assert_last(expected, session, n);
    append(session, n, n + 3);
    assert_last(expected, session, n + 3);
    CHECK_STATUS(AFMOE_OK, afmoe_session_rewind(session, 0, NULL, NULL, &error));
    afmoe_session_free(session);
}

/* Runs `what` in a process of its own. */
static void in_child(void (*what)(void))
{
    int how;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(60);
        what();
        _exit(0);
    }
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
}

static void leave_200(void)
{
    afmoe_context_options options = with_folder();
    options.n_threads = 1; /* TSan forbids threads in a child */
    afmoe_context *context = open_context(tiny, &options);
    leave(context, tokens, 200);
    assert_int_equal(info_of_context(context).n_prefix_files_written, 1);
    afmoe_context_free(context);
}

/* ---- Hits ---- */

static void another_process_begins_with_it(void **state)
{
    static const struct {
        uint64_t n, n_reused; /* of 200, with windows from 200 - REWIND on */
    } cases[] = {{250, 200}, {201, 200}, {200, 199}, {199, 198}, {140, 139}, {70, 69}, {69, 0}, {63, 0}};
    char path[FILE_PATH_BYTES];
    struct stat info;
    (void)state;
    in_child(leave_200);
    afmoe_context *context = open_with_folder();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check_new(context, cases[i].n, cases[i].n_reused);
    assert_counts(context, 6, 0, 0);
    struct names all = list("");
    assert_int_equal(all.n, 1);
    path_in(path, all.of[0]);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 07777, 0600);
    leave(context, tokens, 200); /* there already */
    assert_counts(context, 7, 0, 0);
    leave(context, tokens, 250);
    leave(context, tokens, 63);
    assert_counts(context, 8, 1, 0);
    check_new(context, 280, 250); /* the longest */
    afmoe_context_free(context);
}

/* Where other tokens begin nothing is used, and values asked for are computed. */
static void only_what_fits_is_used(void **state)
{
    static const uint64_t position = 150;
    afmoe_token other[N_TOKENS];
    float logits[VOCAB];
    afmoe_append_options asked;
    afmoe_append_result result;
    (void)state;
    afmoe_context *context = open_with_folder();
    memcpy(other, tokens, sizeof other);
    other[160] = (other[160] + 1) % VOCAB;
    leave(context, other, 200);
    check_new(context, 250, 160); /* as far as they agree, within rewind_tokens of the end */
    other[100] = (other[100] + 1) % VOCAB;
    leave(context, other, 210);
    check_new(context, 250, 160);
    leave(context, tokens, 200);
    afmoe_append_options_init(&asked, sizeof asked);
    afmoe_append_result_init(&result, sizeof result);
    asked.positions = &position;
    asked.n_positions = 1;
    asked.out_logits = logits;
    asked.logits_capacity = VOCAB;
    afmoe_session *session = open_session(context);
    CHECK_STATUS(AFMOE_OK, afmoe_session_append(session, tokens, 220, &asked, &result, &error));
    assert_result(&result, 220, 150, 70);
    assert_memory_equal(logits, expected->logits[position], sizeof logits);
    assert_last(expected, session, 220);
    afmoe_session_free(session);
    afmoe_context_free(context);
}

/* What memory has is used unless the disk has more; under the cap of the context a file may not find room. */
static void beside_the_store_in_memory(void **state)
{
    uint64_t layers = info_of(tiny).n_layers, page = bytes_of_page(tiny);
    afmoe_context_options options = with_folder();
    (void)state;
    options.prefix_bytes = 100 * page;
    afmoe_context *context = open_context(tiny, &options);
    leave(context, tokens, 150);
    check_new(context, 250, 150);
    assert_counts(context, 0, 1, 0);
    in_child(leave_200);
    check_new(context, 250, 200);
    assert_counts(context, 1, 1, 0);
    check_new(context, 190, 189); /* from the disk again: what was read is a session's own */
    check_new(context, 140, 139);
    assert_counts(context, 2, 1, 0);
    afmoe_context_free(context);

    options.prefix_bytes = 0;
    options.max_page_bytes = 4 * layers * page;
    context = open_context(tiny, &options);
    afmoe_session *large = open_session(context);
    CHECK_STATUS(AFMOE_OK, afmoe_session_append(large, tokens + 7, 250, NULL, NULL, &error));
    afmoe_append_result result;
    afmoe_append_result_init(&result, sizeof result);
    afmoe_session *session = open_session(context);
    CHECK_STATUS(AFMOE_CONTEXT_FULL, afmoe_session_append(session, tokens, 250, NULL, &result, &error));
    assert_result(&result, 0, 0, 0);
    assert_int_equal(n_tokens_of(session), 0);
    assert_int_equal(stats_of(session).page_bytes, 0);
    CHECK_STATUS(AFMOE_OK, afmoe_session_rewind(large, 0, NULL, NULL, &error));
    append(session, 0, 250);
    assert_int_equal(stats_of(session).n_reused, 200);
    assert_last(expected, session, 250);
    afmoe_session_free(session);
    afmoe_session_free(large);
    afmoe_context_free(context);
}

/* Sessions of a child of fork are the parent's: what they hold is not written there. */
static afmoe_session *of_parent;

static void free_of_parent(void)
{
    afmoe_session_free(of_parent);
}

static void children_write_nothing(void **state)
{
    (void)state;
    afmoe_context *context = open_with_folder();
    of_parent = open_session(context);
    append(of_parent, 0, 100);
    in_child(free_of_parent);
    assert_int_equal(list("").n, 0);
    afmoe_session_free(of_parent);
    assert_int_equal(list(".state").n, 1);
    afmoe_context_free(context);
}

/* ---- Damage ---- */

/* Bytes of the one file there, changed; the session begins at the start, the file goes, and is written again. */
static void check_damage(afmoe_context *context, const unsigned char *bytes, size_t n, const char *name)
{
    uint64_t n_failed = info_of_context(context).n_prefix_files_failed;
    write_file(name, bytes, n);
    check_new(context, 220, 0);
    assert_int_equal(info_of_context(context).n_prefix_files_failed, n_failed + 1);
    assert_int_equal(list("").n, 0);
}

static void damaged_files_are_no_files(void **state)
{
    size_t n;
    (void)state;
    afmoe_context *context = open_with_folder();
    leave(context, tokens, 200);
    struct names all = list(".state");
    assert_int_equal(all.n, 1);
    unsigned char *bytes = read_file(all.of[0], &n);
    for (size_t i = 0; i < 40; i++) { /* all over the file, the header and its end among them */
        size_t at = i < 8 ? i * 24 : i == 39 ? n - 1 : i * (n / 40);
        bytes[at] ^= (unsigned char)(1 << i % 8);
        bool other_kind = at >= 8 && at < 12; /* a version, told as UNSUPPORTED */
        if (!other_kind) check_damage(context, bytes, n, all.of[0]);
        bytes[at] ^= (unsigned char)(1 << i % 8);
    }
    for (size_t i = 0; i < 20; i++) check_damage(context, bytes, i * (n / 20), all.of[0]);
    leave(context, tokens, 200);
    check_new(context, 220, 200);
    size_t n_again;
    unsigned char *again = read_file(all.of[0], &n_again);
    assert_int_equal(n, n_again);
    assert_memory_equal(bytes, again, n);
    free(bytes);
    free(again);
    afmoe_context_free(context);
}

/* In a child: no file may be longer than this. */
static void write_too_much(void)
{
    afmoe_context_options options = with_folder();
    const struct rlimit limit = {1000, 1000};
    options.n_threads = 1;
    afmoe_context *context = open_context(tiny, &options);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    leave(context, tokens, 200);
    assert_counts(context, 0, 0, 1);
    check_new(context, 250, 0);
    afmoe_context_free(context);
}

static void a_full_disk_is_no_failure(void **state)
{
    (void)state;
    in_child(write_too_much);
    assert_int_equal(list("").n, 0); /* no half of a file either */
}

static void a_folder_that_goes_is_no_failure(void **state)
{
    (void)state;
    afmoe_context *context = open_with_folder();
    leave(context, tokens, 200);
    assert_int_equal(remove_folder(NULL), 0);
    check_new(context, 220, 0);
    leave(context, tokens, 200);
    assert_counts(context, 0, 1, 1);
    afmoe_context_free(context);
    assert_int_equal(mkdir(folder, 0700), 0);
}

/* ---- Budget and strangers ---- */

static uint64_t bytes_of_200(void)
{
    size_t n;
    afmoe_context *context = open_with_folder();
    leave(context, tokens, 200);
    struct names all = list(".state");
    assert_int_equal(all.n, 1);
    free(read_file(all.of[0], &n));
    afmoe_context_free(context);
    assert_int_equal(remove_folder(NULL), 0);
    assert_int_equal(mkdir(folder, 0700), 0);
    return n;
}

static void budget_is_kept(void **state)
{
    afmoe_token others[3][200];
    uint64_t one = bytes_of_200();
    afmoe_context_options options = with_folder();
    (void)state;
    for (uint32_t i = 0; i < 3; i++) make_tokens(others[i], 200, VOCAB, 50 + i);
    options.prefix_folder_bytes = 2 * one + one / 2;
    afmoe_context *context = open_context(tiny, &options);
    leave(context, tokens, 200);
    struct names first = list(".state");
    leave(context, others[0], 200);
    struct names two = list(".state");
    assert_int_equal(two.n, 2);
    age(two.of[0], 100);
    age(two.of[1], 100);
    age(first.of[0], 200);
    check_new(context, 220, 200);   /* makes it the one used last */
    leave(context, others[1], 200); /* others[0] goes */
    assert_int_equal(list(".state").n, 2);
    check_new(context, 220, 200);
    assert_counts(context, 2, 3, 0);
    leave(context, tokens, 280); /* two files are more than there may be: one goes, the one used longest ago */
    uint64_t n_left = list(".state").n;
    assert_true(n_left == 1 || n_left == 2);
    afmoe_context_free(context);

    options.prefix_folder_bytes = one - 1; /* nothing of that length fits, and nothing is removed for it */
    context = open_context(tiny, &options);
    leave(context, others[2], 200);
    assert_counts(context, 0, 0, 0);
    assert_int_equal(list(".state").n, n_left);
    afmoe_context_free(context);
}

/* Files of another kind, other names, other content under a right name. */
static void strangers_are_left_alone(void **state)
{
    size_t n;
    char right[256];
    afmoe_context_options options = with_folder();
    (void)state;
    options.cells = AFMOE_CELLS_F16;
    afmoe_context *context = open_context(tiny, &options);
    leave(context, tokens, 200);
    afmoe_context_free(context);
    struct names f16 = list(".state");
    assert_int_equal(f16.n, 1);
    write_file("notes.txt", "mine", 4);
    write_file("0123456789abcdef-0123456789abcdef-0123456789abcdef-200.state", "", 0);
    write_file(".afmoe-1-new.tmp", "x", 1);
    write_file(".afmoe-1-old.tmp", "x", 1);
    age(".afmoe-1-old.tmp", 4000);
    options = with_folder();
    options.prefix_folder_bytes = bytes_of_page(tiny) * 1000;
    context = open_context(tiny, &options);
    check_new(context, 220, 0);
    leave(context, tokens, 200);
    check_new(context, 220, 200);
    assert_counts(context, 1, 1, 0);
    struct names states = list(".state");
    assert_int_equal(states.n, 3);
    for (uint64_t i = 0; i < states.n; i++)
        if (strcmp(states.of[i], f16.of[0]) != 0 && states.of[i][0] != '0') strcpy(right, states.of[i]);
    assert_int_equal(list("").n, 5); /* the old half is gone */
    unsigned char *bytes = read_file(f16.of[0], &n);
    write_file(right, bytes, n); /* a state of other cells */
    check_new(context, 220, 0);
    assert_counts(context, 1, 1, 0);
    assert_int_equal(list("").n, 5);
    afmoe_context_free(context);
    free(bytes);
}

/* Whoever makes a name for other tokens fools nobody. */
static void names_are_not_believed(void **state)
{
    afmoe_token other[200];
    size_t n;
    (void)state;
    afmoe_context *context = open_with_folder();
    leave(context, tokens, 200);
    struct names names = list(".state");
    make_tokens(other, 200, VOCAB, 99);
    unsigned char *bytes = read_file(names.of[0], &n);
    assert_int_equal(remove_folder(NULL), 0);
    assert_int_equal(mkdir(folder, 0700), 0);
    afmoe_context_free(context);
    context = open_with_folder();
    leave(context, other, 200);
    struct names others = list(".state");
    write_file(others.of[0], bytes, n);
    afmoe_session *session = open_session(context);
    CHECK_STATUS(AFMOE_OK, afmoe_session_append(session, other, 200, NULL, NULL, &error));
    assert_int_equal(stats_of(session).n_reused, 0);
    afmoe_session_free(session);
    afmoe_context_free(context);
    free(bytes);
}

/* ---- Opening ---- */

static void check_refused(afmoe_status expected_status, const char *path)
{
    afmoe_context *context;
    afmoe_context_options options = with_folder();
    options.n_threads = 1;
    options.prefix_folder = path;
    CHECK_STATUS(expected_status, afmoe_context_create(&context, tiny, &options, &error));
    assert_null(context);
    assert_non_null(strstr(error.message, path));
}

static void refuse_read_only(void)
{
    if (geteuid() == 0 && (chown(folder, NOBODY, NOBODY) != 0 || seteuid(NOBODY) != 0)) _exit(1);
    assert_int_equal(chmod(folder, 0500), 0);
    check_refused(AFMOE_IO, folder);
    assert_int_equal(chmod(folder, 0700), 0);
}

static void refuse_the_folder_of_another(void)
{
    if (geteuid() == 0) check_refused(AFMOE_INVALID, folder); /* it is NOBODY's now */
}

static void folders_that_will_not_do(void **state)
{
    static const mode_t open_modes[] = {0755, 0770, 0701, 0702, 0777, 01777};
    char path[FILE_PATH_BYTES], below[FILE_PATH_BYTES + 8];
    struct stat info;
    (void)state;
    for (size_t i = 0; i < sizeof open_modes / sizeof *open_modes; i++) {
        assert_int_equal(chmod(folder, open_modes[i]), 0);
        check_refused(AFMOE_INVALID, folder);
    }
    assert_int_equal(chmod(folder, 0700), 0);
    write_file("file", "x", 1);
    path_in(path, "file");
    check_refused(AFMOE_IO, path);
    snprintf(below, sizeof below, "%s/below", path);
    check_refused(AFMOE_NOT_FOUND, below);
    path_in(path, "missing/below");
    check_refused(AFMOE_NOT_FOUND, path);
    check_refused(AFMOE_NOT_FOUND, "");
    assert_int_equal(list("").n, 1);
    if (geteuid() == 0 && getenv("TMPDIR")) {
        print_message("skipped: other users may not reach TMPDIR\n");
    } else {
        in_child(refuse_read_only);
        in_child(refuse_the_folder_of_another);
        if (geteuid() == 0) assert_int_equal(chown(folder, 0, 0), 0);
    }
    path_in(path, "made");
    afmoe_context_options options = with_folder();
    options.prefix_folder = path;
    afmoe_context *context = open_context(tiny, &options);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 07777, 0700);
    afmoe_context_free(context);
    assert_int_equal(rmdir(path), 0);
}

/* ---- Many at once ---- */

/* Two threads on a context of the process. How many files they read. */
static uint64_t visit_folder(uint32_t seed)
{
    afmoe_context_options options = with_folder();
    options.n_threads = 1;
    options.prefix_folder_bytes = 300000; /* files go all the time */
    afmoe_context *context = open_context(tiny, &options);
    visit_together(context, expected, 2, seed);
    uint64_t n_read = info_of_context(context).n_prefix_files_read;
    afmoe_context_free(context);
    return n_read;
}

static void processes_share_the_folder(void **state)
{
    int how;
    (void)state;
    pid_t child = UNDER_TSAN ? 0 : fork();
    assert_true(child >= 0);
    if (!UNDER_TSAN && child == 0) {
        alarm(120);
        visit_folder(100);
        _exit(0);
    }
    assert_true(visit_folder(200) > 0);
    if (UNDER_TSAN) return;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
}

static int open_all(void **state)
{
    if (open_tiny(state) != 0) return 1;
    expected = whole(tiny, exact());
    return 0;
}

static int close_all(void **state)
{
    free(expected);
    return close_tiny(state);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)

int main(void)
{
    pid_t parent = getpid();
    const struct CMUnitTest tests[] = {
        IN_FOLDER(another_process_begins_with_it), IN_FOLDER(only_what_fits_is_used),
        IN_FOLDER(beside_the_store_in_memory),     IN_FOLDER(children_write_nothing),
        IN_FOLDER(damaged_files_are_no_files),     IN_FOLDER(a_full_disk_is_no_failure),
        IN_FOLDER(a_folder_that_goes_is_no_failure), IN_FOLDER(budget_is_kept),
        IN_FOLDER(strangers_are_left_alone),       IN_FOLDER(names_are_not_believed),
        IN_FOLDER(folders_that_will_not_do),       IN_FOLDER(processes_share_the_folder)};
    int n_failed = cmocka_run_group_tests_name("prefix_folder", tests, open_all, close_all);
    if (getpid() != parent) _exit(1); /* a check failed in a child */
    return n_failed;
}
