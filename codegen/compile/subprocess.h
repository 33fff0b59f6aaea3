/* Runs a program to its end with a time limit and captures what it prints. */
#ifndef TVM_CODEGEN_SUBPROCESS_H
#define TVM_CODEGEN_SUBPROCESS_H

#include "diag.h"

enum { TVM_PROCESS_OUTPUT_MAX = 64 << 10 }; /* bytes; what comes after them is dropped */

typedef struct tvm_process_result {
    char
        *output; /* standard output and error as they came, NUL-terminated, cut off at the limit; malloc'ed */
    int error;   /* errno of starting it, or 0: then the others hold */
    bool timed_out;
    int signal;    /* that ended it, or 0 */
    int exit_code; /* when no signal did */
} tvm_process_result;

/* A file in memory, read and written from its beginning, without a name: descriptor, closed by the caller, or
 * -1 with errno. Its number is above those of the standard streams, which a program that is run has for
 * itself, so that it can be passed where the caller's own are closed. */
int tvm_process_memory(const char *what);

/* argv[0] is the path of the program. Standard input is empty. The program has the descriptors of `passed`,
 * `passed_count` of them, under the numbers that they have here. On timeout the program and its descendants
 * that stayed in its process group are killed. TVM_OK also when the program could not be started
 * (result->error) or failed; TVM_NO_MEMORY, TVM_IO when it could not be attempted. The caller frees
 * result->output. */
tvm_status tvm_process_run(const char *const argv[], const int *passed, size_t passed_count,
                           unsigned limit_ms, tvm_process_result *result, tvm_diags *diags);

/* The same of a program that reads a file, which is in memory and has these bytes: argv[at] becomes its path.
 */
tvm_status tvm_process_run_on(const char *argv[], size_t at, const void *bytes, size_t size,
                              unsigned limit_ms, tvm_process_result *result, tvm_diags *diags);

#endif
