/* The expressions that an entry's decisions read, prepared for a device: values that depend on the device
 * alone are folded, and each node is a step that is computed at most once per choice, and only for a decision
 * that needs it. */
#ifndef TVM_VM_VARIANTS_VALUES_H
#define TVM_VM_VARIANTS_VALUES_H

#include "launch.h"

enum { TVM_VALUES_MAX = 2048 };

typedef struct tvm_values tvm_values;

/* No test: the expression has to be evaluated as it is, for it has floats, or there are too many. */
#define TVM_NO_TEST UINT32_MAX

/* tests[i] becomes the number of the test that expression roots[i], a bool or an integer, is; leaves: of each
 * expression of the head, as tvm_expr_leaves. Roots of one group, together[i], are mostly asked for together:
 * what they alone need is computed at once. Groups are numbered from 0, in ascending order. *values stays
 * NULL where no test is made. Release with free. False: out of memory. */
bool tvm_values_make(const tvm_ir_kernel *head, const tvm_launch_env *env, const uint8_t *leaves,
                     const uint32_t *roots, const uint32_t *together, uint32_t count, uint32_t *tests,
                     tvm_values **values);

/* The values that are known so far for one set of arguments. */
typedef struct tvm_values_run {
    uint64_t known, failed; /* segments */
    int64_t values[TVM_VALUES_MAX];
} tvm_values_run;

void tvm_values_begin(const tvm_values *values, const tvm_scalar *scalars, tvm_values_run *run);
/* The value of the test's expression. False: a step divides by zero, which may be one that the expression
 * does not evaluate. */
bool tvm_values_find(const tvm_values *values, tvm_values_run *run, uint32_t number, int64_t *value);
/* Which of a run's values is the test's, once one of its group has been found; false: it is computed from
 * two.
 */
bool tvm_values_place(const tvm_values *values, uint32_t number, uint16_t *place);

#endif
