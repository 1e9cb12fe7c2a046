/* A host of the installed library, as test_install.py and tests/abi/subproject build it: C11 and C++17 alike. Prints
 * the version, so that the caller can compare it; a file that is not there is NOT_FOUND, with a message. */
#include <afmoe.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    afmoe_model *model = NULL;
    afmoe_error error;

    afmoe_error_init(&error, sizeof error);
    if (argc != 2 || afmoe_model_open(&model, argv[1], NULL, &error) != AFMOE_NOT_FOUND || model || !error.message[0]) {
        fprintf(stderr, "%d %s\n", (int)error.code, error.message);
        return 1;
    }
    printf("%s %u\n", afmoe_version_string(), (unsigned)afmoe_version());
    return 0;
}
