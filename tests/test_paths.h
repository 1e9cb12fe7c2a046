/* Where tests find their data. */
#ifndef AFMOE_TESTS_TEST_PATHS_H
#define AFMOE_TESTS_TEST_PATHS_H

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

/* Fixtures of the repository: tests/data/NAME. */
static inline const char *data_path(char *out, size_t n, const char *name)
{
    const char *root = getenv("AFMOE_TEST_DATA");
    snprintf(out, n, "%s/%s", root ? root : "tests/data", name);
    return out;
}

/* The optional reference folder: its path, or NULL after printing "skipped: what" when it is not there. */
static inline const char *shared_path(char *out, size_t n, const char *name, const char *what)
{
    struct stat info;
    const char *root = getenv("AFMOE_SHARED");
    snprintf(out, n, "%s/%s", root ? root : "../shared", name);
    if (stat(out, &info) == 0) return out;
    printf("skipped: %s (the optional reference folder is not there)\n", what);
    return NULL;
}

#endif
