/* cmocka with what it needs, and the folders tests read from. */
#ifndef AFMOE_TESTS_TEST_PATHS_H
#define AFMOE_TESTS_TEST_PATHS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <unistd.h>

/* The optional reference folder; NULL, and a line that says so, when there is none. */
static inline const char *shared_folder(const char *test)
{
    const char *folder = getenv("AFMOE_SHARED");
    if (folder && access(folder, R_OK) == 0) return folder;
    printf("skipped: %s (no reference folder)\n", test);
    return NULL;
}

static inline const char *data_folder(void)
{
    const char *folder = getenv("AFMOE_TEST_DATA");
    return folder ? folder : "tests/data";
}

#endif
