/* Which parts of the language generated programs have: rows of the instruction table, operands that may be
 * left out, words that operands are chosen from, operators of expressions, types of elements, strides. */
#ifndef TVM_TESTS_GENERATE_COVERAGE_H
#define TVM_TESTS_GENERATE_COVERAGE_H

#include "program.h"

enum { COVERAGE_OPERANDS = 12, COVERAGE_WORDS = 16 };

/* How many instructions (of types and strides: variables, of operators: nodes) have each part. */
typedef struct generate_coverage {
    uint64_t rows[TVM_OP_COUNT];
    uint64_t operands[TVM_OP_COUNT][COVERAGE_OPERANDS]; /* that may be left out: where they were not */
    uint64_t words[TVM_OP_COUNT][COVERAGE_OPERANDS][COVERAGE_WORDS];
    uint64_t operators[TVM_EXPR_COUNT];
    uint64_t types[TVM_DTYPE_COUNT_MAX];
    uint64_t forms[TVM_FORMS];
} generate_coverage;

/* Counts what the program's first kernel has. */
void generate_cover(generate_coverage *coverage, const tvm_ir_program *program);

/* Calls `see` with the name of each part, "role by", "reduce operation argmax", "type f16", and its count. */
typedef void (*coverage_see)(void *data, const char *part, uint64_t count);
void generate_coverage_each(const generate_coverage *coverage, coverage_see see, void *data);

#endif
