/* Runs a fuzz target over kept inputs, without a fuzzing engine: replay FOLDER... */
#include "fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

static int n_inputs;

static void run_file(const char *folder, const char *name)
{
    char path[4096], chunk[4096];
    size_t n;
    struct buffer bytes = {0};
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    REQUIRE(file);
    while ((n = fread(chunk, 1, sizeof chunk, file)) > 0) buffer_put(&bytes, chunk, n);
    fclose(file);
    fprintf(stderr, "%s\n", name); /* the last one is the culprit after a crash */
    LLVMFuzzerTestOneInput(bytes.data, (size_t)bytes.n);
    buffer_free(&bytes);
    n_inputs++;
}

int main(int argc, char **argv)
{
    LLVMFuzzerTestOneInput(NULL, 0);
    for (int i = 1; i < argc; i++) {
        DIR *folder = opendir(argv[i]);
        REQUIRE(folder);
        for (struct dirent *entry; (entry = readdir(folder));) {
            if (entry->d_name[0] != '.') run_file(argv[i], entry->d_name);
        }
        closedir(folder);
    }
    printf("%d inputs\n", n_inputs);
    return n_inputs > 0 ? 0 : 1; /* an empty corpus tests nothing */
}
