/* Opening from everything: path, part of a file, memory; mapped, read, locked; stopped, cut short, refused. The same
 * checkpoint gives the same bits whichever way it came. */
#define _GNU_SOURCE
#include "harness.h"

#include "sanitizer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N_TOKENS = 20, MAX_VOCAB = 8192, PIECE = 4 << 20 };

static afmoe_error error;
static char model_path[PATH_BYTES];
static unsigned char *bytes; /* of the model's file */
static uint64_t n_bytes, vocab_size;
static float expected[MAX_VOCAB];

static afmoe_model_options options_of(int32_t load, int32_t lock)
{
    afmoe_model_options options;
    afmoe_model_options_init(&options, sizeof options);
    options.load = load;
    options.lock = lock;
    return options;
}

static void compute(afmoe_model *model, float *logits)
{
    afmoe_token tokens[N_TOKENS];
    make_tokens(tokens, N_TOKENS, vocab_size, 9);
    afmoe_context *context = open_context(model, NULL);
    afmoe_session *session = open_session(context);
    CHECK_STATUS(AFMOE_OK, afmoe_session_append(session, tokens, N_TOKENS, NULL, NULL, &error));
    CHECK_STATUS(AFMOE_OK, afmoe_session_logits(session, logits, vocab_size, NULL, &error));
    afmoe_session_free(session);
    afmoe_context_free(context);
}

/* Takes the model. */
static void check_model(afmoe_model *model)
{
    static float logits[MAX_VOCAB];
    afmoe_token ids[16];
    uint64_t n;
    compute(model, logits);
    assert_memory_equal(logits, expected, vocab_size * sizeof *logits);
    CHECK_STATUS(AFMOE_OK, afmoe_tokenize(model, "a text", 6, NULL, ids, 16, &n, &error));
    assert_true(n > 0);
    afmoe_model_free(model);
}

static int read_model(void **state)
{
    (void)state;
    error = fresh_error();
    text_model_path(model_path);
    FILE *file = fopen(model_path, "rb");
    if (!file) return -1;
    fseek(file, 0, SEEK_END);
    n_bytes = (uint64_t)ftell(file);
    rewind(file);
    bytes = malloc(n_bytes);
    if (!bytes || fread(bytes, 1, n_bytes, file) != n_bytes) return -1;
    fclose(file);
    if (n_bytes <= PIECE) return -1; /* progress is to be seen more than once */
    afmoe_model *model = open_model(model_path);
    vocab_size = info_of(model).vocab_size;
    if (vocab_size > MAX_VOCAB) return -1;
    compute(model, expected);
    afmoe_model_free(model);
    return 0;
}

static int free_model(void **state)
{
    (void)state;
    free(bytes);
    return 0;
}

/* A file without a name that holds `before` bytes of something, the model, and `after` more. */
static int larger_file(uint64_t before, uint64_t after)
{
    const char *root = getenv("TMPDIR");
    char name[PATH_BYTES];
    snprintf(name, sizeof name, "%s/afmoe-test-XXXXXX", root ? root : "/tmp");
    int fd = mkstemp(name);
    assert_true(fd >= 0);
    unlink(name);
    assert_int_equal(pwrite(fd, bytes, n_bytes, (off_t)before), n_bytes);
    assert_int_equal(ftruncate(fd, (off_t)(before + n_bytes + after)), 0);
    return fd;
}

static void check_refused_fd(afmoe_status status, const char *part, int fd, uint64_t offset, uint64_t length,
                             const afmoe_model_options *options)
{
    afmoe_model *model = (afmoe_model *)&error;
    CHECK_STATUS(status, afmoe_model_open_fd(&model, fd, offset, length, options, &error));
    assert_null(model);
    if (!strstr(error.message, part)) print_error("no \"%s\" in: %s\n", part, error.message);
    assert_non_null(strstr(error.message, part));
}

/* ---- Ways to open ---- */

static void test_load_modes(void **state)
{
    (void)state;
    for (int32_t load = AFMOE_LOAD_MAP; load <= AFMOE_LOAD_READ; load++) {
        afmoe_model_options options = options_of(load, 0);
        afmoe_model *model;
        CHECK_STATUS(AFMOE_OK, afmoe_model_open(&model, model_path, &options, &error));
        check_model(model);
    }
}

static void test_folder(void **state)
{
    char path[PATH_BYTES];
    float logits[2][256];
    (void)state;
    if (!small_model_path(path, "tiny-bias")) return;
    for (int32_t load = AFMOE_LOAD_MAP; load <= AFMOE_LOAD_READ; load++) {
        afmoe_model_options options = options_of(load, 0);
        afmoe_model *model;
        afmoe_token tokens[N_TOKENS];
        CHECK_STATUS(AFMOE_OK, afmoe_model_open(&model, path, &options, &error));
        make_tokens(tokens, N_TOKENS, info_of(model).vocab_size, 2);
        afmoe_context *context = open_context(model, NULL);
        afmoe_session *session = open_session(context);
        CHECK_STATUS(AFMOE_OK, afmoe_session_append(session, tokens, N_TOKENS, NULL, NULL, &error));
        CHECK_STATUS(AFMOE_OK, afmoe_session_logits(session, logits[load], 256, NULL, &error));
        afmoe_session_free(session);
        afmoe_context_free(context);
        afmoe_model_free(model);
    }
    assert_memory_equal(logits[0], logits[1], 96 * sizeof(float));
}

static void test_inside_a_larger_file(void **state)
{
    static const uint64_t offsets[] = {0, 1, 3, 32, 4095, 4096, 4097, 100003};
    (void)state;
    for (size_t i = 0; i < sizeof offsets / sizeof *offsets; i++) {
        int fd = larger_file(offsets[i], 777);
        for (int32_t load = AFMOE_LOAD_MAP; load <= AFMOE_LOAD_READ; load++) {
            afmoe_model_options options = options_of(load, 0);
            afmoe_model *model;
            int own = dup(fd);
            assert_int_equal(lseek(own, 11, SEEK_SET), 11);
            CHECK_STATUS(AFMOE_OK, afmoe_model_open_fd(&model, own, offsets[i], n_bytes, &options, &error));
            assert_int_equal(lseek(own, 0, SEEK_CUR), 11);
            close(own); /* the model needs it no more */
            check_model(model);
        }
        close(fd);
    }
    /* Up to the end of the file. */
    int fd = larger_file(501, 0);
    afmoe_model *model;
    CHECK_STATUS(AFMOE_OK, afmoe_model_open_fd(&model, fd, 501, UINT64_MAX, NULL, &error));
    close(fd);
    check_model(model);
}

static void test_no_descriptor_left(void **state)
{
    (void)state;
    int fd = larger_file(5, 5), before = dup(fd);
    close(before);
    for (int32_t load = AFMOE_LOAD_MAP; load <= AFMOE_LOAD_READ; load++) {
        afmoe_model_options options = options_of(load, 0);
        afmoe_model *model;
        CHECK_STATUS(AFMOE_OK, afmoe_model_open_fd(&model, fd, 5, n_bytes, &options, &error));
        check_refused_fd(AFMOE_FORMAT, "no GGUF file", fd, 6, n_bytes, &options);
        check_refused_fd(AFMOE_TRUNCATED, "", fd, 5, n_bytes - 1000, &options);
        options.tokenizer_only = 1;
        afmoe_model *text;
        CHECK_STATUS(AFMOE_OK, afmoe_model_open_fd(&text, fd, 5, n_bytes, &options, &error));
        afmoe_model_free(text);
        int now = dup(fd);
        assert_int_equal(now, before);
        close(now);
        afmoe_model_free(model);
    }
    close(fd);
}

struct owner {
    int n_released;
};

static void take_back(void *user_data)
{
    ((struct owner *)user_data)->n_released++;
}

static void test_memory(void **state)
{
    (void)state;
    unsigned char *copy = malloc(n_bytes + 64);
    assert_non_null(copy);
    for (uint64_t shift = 0; shift < 4; shift++) {
        for (int32_t load = AFMOE_LOAD_MAP; load <= AFMOE_LOAD_READ; load++) {
            afmoe_model_options options = options_of(load, 0);
            struct owner owner = {0};
            afmoe_model *model;
            memcpy(copy + shift, bytes, n_bytes);
            CHECK_STATUS(AFMOE_OK, afmoe_model_open_memory(&model, copy + shift, n_bytes, take_back, &owner, &options,
                                                           &error));
            if (load == AFMOE_LOAD_READ) memset(copy, 0xFF, n_bytes); /* does not matter any more */
            afmoe_model_retain(model);
            check_model(model);
            afmoe_context *context = open_context(model, NULL);
            afmoe_session *session = open_session(context);
            afmoe_model_free(model);
            afmoe_context_free(context);
            assert_int_equal(owner.n_released, 0); /* the session keeps all */
            afmoe_session_free(session);
            assert_int_equal(owner.n_released, 1);
        }
    }
    afmoe_model *model;
    CHECK_STATUS(AFMOE_OK, afmoe_model_open_memory(&model, bytes, n_bytes, NULL, NULL, NULL, &error));
    check_model(model);
    free(copy);
}

static void test_memory_refused(void **state)
{
    static const char safetensors[] = "\x02\0\0\0\0\0\0\0{}", nothing[] = "";
    struct owner owner = {0};
    (void)state;
    const struct {
        afmoe_status status;
        const void *data;
        uint64_t n;
        const char *part;
    } cases[] = {
        {AFMOE_INVALID, NULL, 0, "data is NULL"},
        {AFMOE_INVALID, NULL, 100, "data is NULL"},
        {AFMOE_FORMAT, nothing, 0, "no GGUF file"},
        {AFMOE_FORMAT, "GGU", 3, "no GGUF file"},
        {AFMOE_TRUNCATED, bytes, 4, ""},
        {AFMOE_TRUNCATED, bytes, 1000, ""},
        {AFMOE_TRUNCATED, bytes, n_bytes - 100, "tensor"},
        {AFMOE_UNSUPPORTED, safetensors, 10, "path of its folder"},
    };
    for (int32_t load = AFMOE_LOAD_MAP; load <= AFMOE_LOAD_READ; load++) {
        afmoe_model_options options = options_of(load, 0);
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            afmoe_model *model = (afmoe_model *)&owner;
            CHECK_STATUS(cases[i].status, afmoe_model_open_memory(&model, cases[i].data, cases[i].n, take_back, &owner,
                                                                  &options, &error));
            assert_null(model);
            assert_non_null(strstr(error.message, cases[i].part));
        }
    }
    afmoe_model *model;
    afmoe_model_options locked = options_of(AFMOE_LOAD_MAP, 1);
    CHECK_STATUS(AFMOE_UNSUPPORTED,
                 afmoe_model_open_memory(&model, bytes, n_bytes, take_back, &owner, &locked, &error));
    CHECK_STATUS(AFMOE_INVALID, afmoe_model_open_memory(NULL, bytes, n_bytes, take_back, &owner, NULL, &error));
    assert_int_equal(owner.n_released, 0);
}

static void test_tokenizer_alone(void **state)
{
    afmoe_token ids[16];
    uint64_t n;
    char path[PATH_BYTES], json_path[PATH_BYTES + 32];
    (void)state;
    for (int32_t load = AFMOE_LOAD_MAP; load <= AFMOE_LOAD_READ; load++) {
        afmoe_model_options options = options_of(load, 1); /* nothing is locked: there are no weights */
        afmoe_model *model;
        options.tokenizer_only = 1;
        CHECK_STATUS(AFMOE_OK, afmoe_model_open(&model, model_path, &options, &error));
        CHECK_STATUS(AFMOE_OK, afmoe_tokenize(model, "a text", 6, NULL, ids, 16, &n, &error));
        afmoe_model_free(model);
    }
    if (!small_model_path(path, "tokenizer")) return;
    snprintf(json_path, sizeof json_path, "%s/pico-tokenizer.json", path);
    for (int32_t load = AFMOE_LOAD_MAP; load <= AFMOE_LOAD_READ; load++) {
        afmoe_model_options options = options_of(load, 0);
        afmoe_model *model;
        options.tokenizer_only = 1;
        int fd = open(json_path, O_RDONLY);
        CHECK_STATUS(AFMOE_OK, afmoe_model_open_fd(&model, fd, 0, UINT64_MAX, &options, &error));
        close(fd);
        CHECK_STATUS(AFMOE_OK, afmoe_tokenize(model, "a text", 6, NULL, ids, 16, &n, &error));
        afmoe_model_free(model);
        options.max_json_bytes = 100;
        CHECK_STATUS(AFMOE_LIMIT, afmoe_model_open(&model, json_path, &options, &error));
    }
}

/* ---- Refused descriptors ---- */

static void test_bad_descriptors(void **state)
{
    int pipe_ends[2];
    (void)state;
    int fd = larger_file(0, 0), folder = open("/tmp", O_RDONLY | O_DIRECTORY), null = open("/dev/null", O_RDONLY);
    assert_int_equal(pipe(pipe_ends), 0);
    int closed = dup(fd);
    close(closed);
    for (int32_t load = AFMOE_LOAD_MAP; load <= AFMOE_LOAD_READ; load++) {
        afmoe_model_options options = options_of(load, 0);
        check_refused_fd(AFMOE_INVALID, "fd is -1", -1, 0, UINT64_MAX, &options);
        check_refused_fd(AFMOE_IO, "errno 9", closed, 0, UINT64_MAX, &options);
        check_refused_fd(AFMOE_FORMAT, "not a regular file", pipe_ends[0], 0, UINT64_MAX, &options);
        check_refused_fd(AFMOE_FORMAT, "not a regular file", folder, 0, UINT64_MAX, &options);
        check_refused_fd(AFMOE_FORMAT, "not a regular file", null, 0, UINT64_MAX, &options);
        check_refused_fd(AFMOE_TRUNCATED, "the file has", fd, n_bytes + 1, UINT64_MAX, &options);
        check_refused_fd(AFMOE_TRUNCATED, "the file has", fd, UINT64_MAX, UINT64_MAX, &options);
        check_refused_fd(AFMOE_TRUNCATED, "the file has", fd, UINT64_MAX, 1, &options);
        check_refused_fd(AFMOE_TRUNCATED, "the file has", fd, 1, n_bytes, &options);
        check_refused_fd(AFMOE_TRUNCATED, "the file has", fd, 16, UINT64_MAX - 15, &options);
        check_refused_fd(AFMOE_TRUNCATED, "the file has", fd, 0, UINT64_MAX - 1, &options);
        check_refused_fd(AFMOE_FORMAT, "no GGUF file", fd, n_bytes, UINT64_MAX, &options);
        check_refused_fd(AFMOE_FORMAT, "no GGUF file", fd, 0, 0, &options);
        int write_only = open("/tmp", O_WRONLY | O_TMPFILE, 0600);
        if (write_only >= 0) { /* not every file system can */
            assert_int_equal(ftruncate(write_only, 1000), 0);
            check_refused_fd(AFMOE_IO, "errno", write_only, 0, UINT64_MAX, &options);
            close(write_only);
        }
    }
    afmoe_model_options odd = options_of(2, 0);
    check_refused_fd(AFMOE_INVALID, "load is 2", fd, 0, UINT64_MAX, &odd);
    odd = options_of(-1, 0);
    check_refused_fd(AFMOE_INVALID, "load is -1", fd, 0, UINT64_MAX, &odd);
    odd = options_of(0, 2);
    check_refused_fd(AFMOE_INVALID, "lock is 2", fd, 0, UINT64_MAX, &odd);
    CHECK_STATUS(AFMOE_INVALID, afmoe_model_open_fd(NULL, fd, 0, UINT64_MAX, NULL, &error));
    close(pipe_ends[0]);
    close(pipe_ends[1]);
    close(folder);
    close(null);
    close(fd);
}

/* ---- Progress and cancel ---- */

struct watcher {
    uint64_t n_calls, last, stop_at; /* stop_at: bytes; UINT64_MAX: never */
    int fd;                          /* to cut short; -1: none */
    afmoe_cancel *cancel;            /* to set; NULL: none */
};

static int32_t watch(void *user_data, uint64_t done, uint64_t total)
{
    struct watcher *w = user_data;
    assert_int_equal(total, n_bytes);
    assert_true(done > w->last && done <= total);
    assert_true(done - w->last <= PIECE);
    w->last = done;
    w->n_calls++;
    if (w->fd >= 0) assert_int_equal(ftruncate(w->fd, (off_t)done + 1000), 0);
    if (w->cancel) afmoe_cancel_set(w->cancel);
    return done >= w->stop_at;
}

static void test_progress(void **state)
{
    (void)state;
    for (int32_t load = AFMOE_LOAD_MAP; load <= AFMOE_LOAD_READ; load++) {
        struct watcher w = {.stop_at = UINT64_MAX, .fd = -1};
        afmoe_model_options options = options_of(load, 0);
        afmoe_model *model;
        options.progress = watch;
        options.progress_data = &w;
        CHECK_STATUS(AFMOE_OK, afmoe_model_open(&model, model_path, &options, &error));
        assert_int_equal(w.last, load == AFMOE_LOAD_READ ? n_bytes : 0);
        assert_int_equal(w.n_calls, load == AFMOE_LOAD_READ ? (n_bytes + PIECE - 1) / PIECE : 0);
        afmoe_model_free(model);
    }
}

static void test_stopped(void **state)
{
    afmoe_model_options options = options_of(AFMOE_LOAD_READ, 0);
    struct watcher w = {.stop_at = 1, .fd = -1};
    struct owner owner = {0};
    afmoe_model *model;
    (void)state;
    options.progress = watch;
    options.progress_data = &w;
    CHECK_STATUS(AFMOE_CANCELLED, afmoe_model_open(&model, model_path, &options, &error));
    assert_null(model);
    assert_int_equal(w.n_calls, 1);
    w = (struct watcher){.stop_at = n_bytes, .fd = -1}; /* in the last call */
    CHECK_STATUS(AFMOE_CANCELLED,
                 afmoe_model_open_memory(&model, bytes, n_bytes, take_back, &owner, &options, &error));
    assert_int_equal(w.last, n_bytes);
    assert_int_equal(owner.n_released, 0);
}

static void test_cancelled(void **state)
{
    afmoe_cancel *cancel;
    afmoe_model *model;
    (void)state;
    CHECK_STATUS(AFMOE_OK, afmoe_cancel_create(&cancel, &error));
    afmoe_model_options options = options_of(AFMOE_LOAD_READ, 0);
    struct watcher w = {.stop_at = UINT64_MAX, .fd = -1, .cancel = cancel};
    options.cancel = cancel;
    options.progress = watch;
    options.progress_data = &w;
    CHECK_STATUS(AFMOE_CANCELLED, afmoe_model_open(&model, model_path, &options, &error));
    assert_null(model);
    assert_int_equal(w.n_calls, 1);
    options = options_of(AFMOE_LOAD_MAP, 0); /* still set: mapping stops as well */
    options.cancel = cancel;
    CHECK_STATUS(AFMOE_CANCELLED, afmoe_model_open(&model, model_path, &options, &error));
    afmoe_cancel_clear(cancel);
    CHECK_STATUS(AFMOE_OK, afmoe_model_open(&model, model_path, &options, &error));
    afmoe_model_free(model);
    afmoe_cancel_free(cancel);
}

/* The file becomes shorter while it is read. */
static void test_cut_short(void **state)
{
    (void)state;
    int fd = larger_file(0, 0);
    struct watcher w = {.stop_at = UINT64_MAX, .fd = fd};
    afmoe_model_options options = options_of(AFMOE_LOAD_READ, 0);
    options.progress = watch;
    options.progress_data = &w;
    check_refused_fd(AFMOE_TRUNCATED, "ends at byte", fd, 0, n_bytes, &options);
    assert_int_equal(w.n_calls, 1);
    close(fd);
}

/* Once read, the file may go. */
static void test_changed_after_reading(void **state)
{
    (void)state;
    int fd = larger_file(9, 0);
    afmoe_model_options options = options_of(AFMOE_LOAD_READ, 0);
    afmoe_model *model;
    CHECK_STATUS(AFMOE_OK, afmoe_model_open_fd(&model, fd, 9, n_bytes, &options, &error));
    assert_int_equal(ftruncate(fd, 0), 0);
    close(fd);
    check_model(model);
}

/* ---- Locking ---- */

static uint64_t locked_kib(void)
{
    unsigned long long kib = 0;
    char line[128];
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "VmLck: %llu", &kib) == 1) break;
    if (file) fclose(file);
    return kib;
}

/* In a child: a user without privileges with less allowed than the model takes. The exit status says what failed. */
static int open_with_limit(uint64_t limit, int fd, int32_t load)
{
    const struct rlimit allowed = {limit, limit};
    afmoe_model_options options = options_of(load, 1);
    afmoe_model *model;
    if (setrlimit(RLIMIT_MEMLOCK, &allowed) != 0) return 77;
    if (geteuid() == 0 && setresuid(65534, 65534, 65534) != 0) return 77; /* root may lock what it likes */
    afmoe_status status = afmoe_model_open_fd(&model, fd, 3, n_bytes, &options, &error);
    if (status != AFMOE_IO) {
        print_error("%s: %s\n", afmoe_status_name(status), error.message);
        return 1;
    }
    char number[60];
    snprintf(number, sizeof number, "RLIMIT_MEMLOCK is %llu bytes", (unsigned long long)limit);
    if (!strstr(error.message, number) || !strstr(error.message, "errno")) {
        print_error("no \"%s\" or errno in: %s\n", number, error.message);
        return 2;
    }
    return locked_kib() == 0 ? 0 : 3;
}

static void check_limit(uint64_t limit, int32_t load)
{
    int fd = larger_file(3, 0), status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) _exit(open_with_limit(limit, fd, load));
    assert_int_equal(waitpid(child, &status, 0), child);
    close(fd);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77)
        printf("skipped: locking with a limit of %llu bytes (the limit cannot be set)\n", (unsigned long long)limit);
    else
        assert_int_equal(WEXITSTATUS(status), 0);
}

/* Sanitizers make mlock do nothing, as their shadow memory must not be locked. */
#define MLOCK_WORKS !UNDER_SANITIZER

static void check_locked(const char *path, int32_t load)
{
    afmoe_model_options options = options_of(load, 1);
    uint64_t before = locked_kib();
    afmoe_model *model;
    CHECK_STATUS(AFMOE_OK, afmoe_model_open(&model, path, &options, &error));
    assert_true(locked_kib() - before >= info_of(model).weight_bytes / 1024);
    afmoe_model_free(model);
    assert_int_equal(locked_kib(), before);
}

static void test_lock(void **state)
{
    struct rlimit limit;
    char path[PATH_BYTES];
    (void)state;
    if (!MLOCK_WORKS) {
        printf("skipped: sanitizer locking (mlock does nothing under this sanitizer)\n");
        return;
    }
    assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &limit), 0);
    for (int32_t load = AFMOE_LOAD_MAP; load <= AFMOE_LOAD_READ; load++) {
        if (limit.rlim_cur < 1 << 20)
            printf("skipped: locking (RLIMIT_MEMLOCK is %llu bytes)\n", (unsigned long long)limit.rlim_cur);
        else if (small_model_path(path, "tiny-bias"))
            check_locked(path, load);
        check_limit(0, load);
        check_limit(5 << 20, load); /* after the first piece */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_load_modes),         cmocka_unit_test(test_folder),
        cmocka_unit_test(test_inside_a_larger_file), cmocka_unit_test(test_no_descriptor_left),
        cmocka_unit_test(test_memory),             cmocka_unit_test(test_memory_refused),
        cmocka_unit_test(test_tokenizer_alone),    cmocka_unit_test(test_bad_descriptors),
        cmocka_unit_test(test_progress),           cmocka_unit_test(test_stopped),
        cmocka_unit_test(test_cancelled),          cmocka_unit_test(test_cut_short),
        cmocka_unit_test(test_changed_after_reading), cmocka_unit_test(test_lock),
    };
    return cmocka_run_group_tests_name("open", tests, read_model, free_model);
}
