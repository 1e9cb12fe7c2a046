/* Saving over an old file while the system fails or the process is killed, at every call: the path always holds the old
 * state or the new one, whole. The linker sends the calls of the library through here (meson.build). */
#define _GNU_SOURCE
#include "timelines.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N_OLD = 40, N_NEW = 130 };

enum fault { FAULT_FAILS, FAULT_KILLED_BEFORE, FAULT_KILLED_AFTER, FAULT_KILLED_WITHIN, N_FAULTS };

static long n_until_fault = -1; /* -1: none */
static enum fault fault;

/* As the objects of the library name them, which are compiled for large files. */
int __real_openat64(int folder, const char *path, int flags, mode_t mode);
ssize_t __real_pwrite64(int descriptor, const void *bytes, size_t n, off_t offset);
int __real_fsync(int descriptor);
int __real_renameat(int from, const char *a, int to, const char *b);
int __wrap_openat64(int folder, const char *path, int flags, mode_t mode);
ssize_t __wrap_pwrite64(int descriptor, const void *bytes, size_t n, off_t offset);
int __wrap_fsync(int descriptor);
int __wrap_renameat(int from, const char *a, int to, const char *b);

/* True: fail now. May not return. */
static bool strikes(void)
{
    if (n_until_fault < 0 || n_until_fault-- > 0) return false;
    if (fault == FAULT_KILLED_BEFORE) raise(SIGKILL);
    errno = ENOSPC;
    return fault == FAULT_FAILS;
}

static void strikes_after(bool here)
{
    if (here && fault == FAULT_KILLED_AFTER) raise(SIGKILL);
}

int __wrap_openat64(int folder, const char *path, int flags, mode_t mode)
{
    bool here = n_until_fault == 0;
    if (strikes()) return -1;
    int result = __real_openat64(folder, path, flags, mode);
    strikes_after(here);
    return result;
}

ssize_t __wrap_pwrite64(int descriptor, const void *bytes, size_t n, off_t offset)
{
    bool here = n_until_fault == 0;
    if (strikes()) return -1;
    if (here && fault == FAULT_KILLED_WITHIN) {
        __real_pwrite64(descriptor, bytes, n / 2, offset);
        raise(SIGKILL);
    }
    if (n > 4096) n = 4096; /* short writes are what a system may do */
    ssize_t result = __real_pwrite64(descriptor, bytes, n, offset);
    strikes_after(here);
    return result;
}

int __wrap_fsync(int descriptor)
{
    bool here = n_until_fault == 0;
    if (strikes()) return -1;
    int result = __real_fsync(descriptor);
    strikes_after(here);
    return result;
}

int __wrap_renameat(int from, const char *a, int to, const char *b)
{
    bool here = n_until_fault == 0;
    if (strikes()) return -1;
    int result = __real_renameat(from, a, to, b);
    strikes_after(here);
    return result;
}

static uint64_t n_entries(const char *path)
{
    uint64_t n = 0;
    DIR *folder = opendir(path);
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder));)
        n += strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..");
    closedir(folder);
    return n;
}

/* The tokens of the state at `path`, which loads and goes on. */
static uint64_t n_saved(const struct bits *expected, const char *path)
{
    afmoe_session *session = session_with(tiny, exact());
    CHECK_STATUS(AFMOE_OK, afmoe_session_load(session, path, &error));
    uint64_t n = n_tokens_of(session);
    assert_last(expected, session, n);
    append(session, n, n + 10);
    assert_last(expected, session, n + 10);
    afmoe_session_free(session);
    return n;
}

static void make_folder(char *out_folder, char *out_path)
{
    const char *root = getenv("TMPDIR");
    snprintf(out_folder, PATH_BYTES, "%s/afmoe-faults-XXXXXX", root ? root : "/tmp");
    assert_non_null(mkdtemp(out_folder));
    snprintf(out_path, PATH_BYTES + 8, "%s/state", out_folder);
}

static void save_old(const char *path)
{
    afmoe_session *session = session_with(tiny, exact());
    append(session, 0, N_OLD);
    CHECK_STATUS(AFMOE_OK, afmoe_session_save(session, path, &error));
    afmoe_session_free(session);
}

static void every_failing_call(void **state)
{
    char folder[PATH_BYTES], path[PATH_BYTES + 8];
    struct bits *expected = whole(tiny, exact());
    afmoe_session *session = session_with(tiny, exact());
    uint64_t n_failures = 0;
    (void)state;
    append(session, 0, N_NEW);
    make_folder(folder, path);
    fault = FAULT_FAILS;
    for (long n = 0;; n++) {
        save_old(path);
        n_until_fault = n;
        afmoe_status status = afmoe_session_save(session, path, &error);
        bool failed = n_until_fault < 0;
        n_until_fault = -1;
        assert_int_equal(n_entries(folder), 1); /* no temporary file is left */
        uint64_t there = n_saved(expected, path);
        if (!failed) {
            assert_int_equal(status, AFMOE_OK);
            assert_int_equal(there, N_NEW);
            break;
        }
        n_failures++;
        assert_int_equal(status, AFMOE_IO);
        assert_non_null(strstr(error.message, strerror(ENOSPC)));
        /* But for the folder's fsync, which comes last, and whose message says so. */
        assert_int_equal(there, strstr(error.message, "is written") ? N_NEW : N_OLD);
        assert_last(expected, session, N_NEW);
    }
    assert_true(n_failures > 20);
    unlink(path);
    rmdir(folder);
    afmoe_session_free(session);
    free(expected);
}

/* In a child: saves and is killed at call n. */
static bool killed_while_saving(const char *path, long n)
{
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        afmoe_session *session = session_with(tiny, exact());
        append(session, 0, N_NEW);
        n_until_fault = n;
        CHECK_STATUS(AFMOE_OK, afmoe_session_save(session, path, &error));
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) ? WTERMSIG(status) == SIGKILL : WEXITSTATUS(status) == 0);
    return WIFSIGNALED(status);
}

/* How many of the calls above one saving makes. */
static long count_calls(const char *path)
{
    afmoe_session *session = session_with(tiny, exact());
    append(session, 0, N_NEW);
    n_until_fault = LONG_MAX;
    CHECK_STATUS(AFMOE_OK, afmoe_session_save(session, path, &error));
    long n = LONG_MAX - n_until_fault;
    n_until_fault = -1;
    afmoe_session_free(session);
    return n;
}

/* The dead leave their temporary file. */
static uint64_t clean_folder(const char *path)
{
    char name[PATH_BYTES + 300];
    uint64_t n = 0;
    DIR *folder = opendir(path);
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder));) {
        if (strncmp(entry->d_name, ".afmoe-", 7) != 0) continue;
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        n += unlink(name) == 0;
    }
    closedir(folder);
    return n;
}

static void killed_at_every_call(void **state)
{
    char folder[PATH_BYTES], path[PATH_BYTES + 8];
    struct bits *expected = whole(tiny, exact());
    uint64_t n_old = 0, n_new = 0;
    (void)state;
    make_folder(folder, path);
    long n_calls = count_calls(path);
    for (int f = FAULT_KILLED_BEFORE; f < N_FAULTS; f++) {
        fault = f;
        for (long n = 0; n < n_calls; n++) {
            save_old(path);
            bool killed = killed_while_saving(path, n);
            if (f != FAULT_KILLED_WITHIN) assert_true(killed); /* only writes can be cut */
            uint64_t there = n_saved(expected, path);
            assert_true(there == (killed ? N_OLD : N_NEW) || there == N_NEW);
            n_old += there == N_OLD;
            n_new += there == N_NEW;
            assert_true(clean_folder(folder) == (there == N_OLD && (n > 0 || f == FAULT_KILLED_AFTER)));
        }
    }
    assert_true(n_calls > 20 && n_old > 60 && n_new > 0);
    unlink(path);
    assert_int_equal(rmdir(folder), 0);
    free(expected);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_failing_call), cmocka_unit_test(killed_at_every_call)};
    return cmocka_run_group_tests_name("state_faults", tests, open_tiny, close_tiny);
}
