/* Which kernel an entry takes on a device that is not there:
 *
 *   entry_choices FILE.vbc ENTRY TARGET MULTIPROCESSORS
 *
 * reads lines of the entry's first integers, and writes each with the kernel's name behind it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tvm.h"

enum { LINE = 256, INTEGERS = 8, PARAMETERS = 64 };

static unsigned parse(char *line, tvm_value values[PARAMETERS]) {
    unsigned count = 0;
    for (char *next = strtok(line, " \n"); next != NULL && count < INTEGERS; next = strtok(NULL, " \n"))
        values[count++].i = strtoll(next, NULL, 10);
    return count;
}

static int answer(tvm_context *context, tvm_kernel *entry) {
    char line[LINE], copy[LINE];
    while (fgets(line, sizeof line, stdin) != NULL) {
        tvm_value values[PARAMETERS] = {{0}};
        const char *name = NULL;
        line[strcspn(line, "\n")] = '\0';
        snprintf(copy, sizeof copy, "%s", line);
        parse(copy, values);
        if (tvm_kernel_variant(entry, values, tvm_param_count(entry), &name) != TVM_OK) {
            fprintf(stderr, "%s: %s\n", line, tvm_message(context));
            return 1;
        }
        printf("%s %s\n", line, name);
    }
    return 0;
}

int main(int argc, char **argv) {
    if (argc != 5) {
        fprintf(stderr, "usage: entry_choices FILE.vbc ENTRY TARGET MULTIPROCESSORS\n");
        return 2;
    }
    tvm_context_options options = {.device = TVM_DEVICE_CPU,
                                   .target = (unsigned)atoi(argv[3]),
                                   .multiprocessors = (unsigned)atoi(argv[4])};
    tvm_context *context = NULL;
    tvm_program *program = NULL;
    tvm_kernel *entry = NULL;
    int result = 1;
    if (tvm_context_create(&options, &context) == TVM_OK &&
        tvm_load_file(context, argv[1], &program) == TVM_OK &&
        tvm_get_kernel(program, argv[2], &entry) == TVM_OK && tvm_param_count(entry) <= PARAMETERS)
        result = answer(context, entry);
    else
        fprintf(stderr, "entry_choices: %s\n", context != NULL ? tvm_message(context) : "no context");
    tvm_program_free(program);
    tvm_context_free(context);
    return result;
}
