/* The arguments of a generated program, by the names of its parameters (generate.h), and what is the same of
 * two results. */
#ifndef TVM_TESTS_GENERATE_ARGUMENTS_H
#define TVM_TESTS_GENERATE_ARGUMENTS_H

#include "interp.h"
#include "launch.h"

enum { GENERATE_SETS = 3 }; /* of scalar arguments */

typedef struct generate_launch {
    const tvm_ir_program *program;
    const tvm_ir_kernel *kernel;
    unsigned set;
    tvm_launch_env env;
    tvm_scalar scalars[TVM_MAX_PARAMS];
    uint64_t bytes[TVM_MAX_PARAMS];
    uint8_t *tensors[TVM_MAX_PARAMS]; /* NULL: a scalar */
} generate_launch;

/* A launch of a kernel of the program with set 0, 1 or 2 of arguments, for an architecture (0: the
 * interpreter); false where its assumptions refuse it. Freed by generate_launch_free in either case. */
bool generate_launch_make(generate_launch *l, const tvm_ir_program *program, uint32_t kernel, unsigned set,
                          uint32_t target, tvm_diags *diags);
/* What the tensors held at first. */
void generate_launch_fill(generate_launch *l);
void generate_launch_free(generate_launch *l);
/* With a sanitizer TVM_SANITIZER for a program whose results are not defined, which proves nothing where
 * machines differ: a shrunk one may read what it no longer writes. The results are the same. */
tvm_status generate_launch_interpret(generate_launch *l, const tvm_interp_kernel *ready,
                                     uint64_t instructions, tvm_sanitize sanitize, tvm_diags *diags);
/* Does a result hold what is expected of parameter p? Otherwise *why says where not. */
bool generate_same(const generate_launch *l, uint32_t p, const uint8_t *expected, const uint8_t *found,
                   tvm_why *why);
/* All tensors of two launches of the same parameters. */
bool generate_launches_same(const generate_launch *expected, const generate_launch *found, tvm_why *why);

#endif
