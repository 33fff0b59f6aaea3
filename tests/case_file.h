/* Data-driven cases: one file holds a program and what must come of it. The format is described in
 * tests/cases.txt. */
#ifndef TVM_TESTS_CASE_FILE_H
#define TVM_TESTS_CASE_FILE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "assembler.h"
#include "program.h"
#include "tvm.h"

enum { CASE_MAX_ITEMS = 32 };

typedef struct case_item { /* an argument or an expected output */
    char *name;
    char *text; /* "3", "zeros", "ramp 0 1", "values 1 2 3" */
    double tolerance;
} case_item;

typedef struct case_file {
    char *name; /* of the file, without folder and ending */
    char *program;
    char *bytecode; /* in place of the program: a file of the same folder, or NULL */
    char *kernel;   /* NULL: nothing is launched */
    char *before;   /* a kernel that is launched first, with arguments of the same names; or NULL */
    char *errors;   /* lines that the refusal of the program must contain, or NULL */
    char *refusal;  /* lines that the refusal of the launch must contain, or NULL */
    bool traps;     /* the refusal comes while the kernel runs, and of the interpreter alone, */
    bool traps_gpu; /* or of a GPU, too */
    char
        *prints; /* lines that the kernel must print, or NULL; prints_gpu: on a GPU, where the form differs */
    char *prints_gpu;
    char *sanitizer; /* lines that the sanitizer must say of the launch, and no others; or NULL */
    char *warnings;  /* lines of tvm-as -W race, and no others */
    char *defines[CASE_MAX_ITEMS];
    size_t define_count;
    case_item args[CASE_MAX_ITEMS], outs[CASE_MAX_ITEMS];
    size_t arg_count, out_count;
} case_file;

/* NULL with a message on stderr when the file cannot be read or is not a case. */
case_file *case_read(const char *path);
void case_free(case_file *c);

/* Assembles the case's program, named case.vasm in messages, with its definitions and the include files of
 * the folder. */
tvm_status case_assemble(const case_file *c, const char *folder, tvm_ir_program **program, tvm_diags *diags);

/* What the case says of an argument; NULL: nothing. */
const char *case_argument(const case_file *c, const char *name);
/* Fills count elements with what `text` says: codes, by way of double where values are given. */
bool case_fill(tvm_dtype type, uint8_t *bytes, size_t count, const char *text);
/* Compares count elements with an expected output; false with the differences on stderr. */
bool case_compare(const case_file *c, const case_item *out, tvm_dtype type, const uint8_t *bytes,
                  size_t count);

/* Sorted paths of the .case files of a folder, NULL-terminated; free each and the array. */
char **case_list(const char *folder);

/* Does every line of `expected` stand in `text`? Else false, and the missing line is printed to stderr. */
bool case_lines_found(const char *expected, const char *text, const char *name);

/* Lines of a text that begin so. */
size_t case_count_lines(const char *text, const char *begin);

/* Runs the case's launch on a context, bytecode given, and compares its outputs (or the refusal). False with
 * the reason on stderr. outputs, if not NULL, receives the malloc'ed bytes of each tensor parameter in order
 * (for comparing devices), with sizes. */
typedef struct case_output {
    uint8_t *bytes[CASE_MAX_ITEMS];
    size_t sizes[CASE_MAX_ITEMS];
    char *message; /* of a launch that failed, malloc'ed; NULL: it did not */
} case_output;
bool case_launch(const case_file *c, tvm_context *context, const uint8_t *bytecode, size_t size,
                 case_output *output);
void case_output_free(case_output *output);

#endif
