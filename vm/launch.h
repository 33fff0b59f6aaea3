/* What every launch checks and computes from its scalar arguments, on any device. */
#ifndef TVM_VM_LAUNCH_H
#define TVM_VM_LAUNCH_H

#include "program.h"
#include "text.h"

#define TVM_ELEMENTS_MAX (INT64_C(1) << 40)      /* of a tensor, extents of 0 left out */
#define TVM_GRID_MAX     INT32_MAX, 65535, 65535 /* the hardware's: x, y, z */

/* What the expressions of a launch read: scalars[i] is the value of parameter i if it is a scalar. The grid
 * is what tvm_launch_check finds. */
typedef struct tvm_launch_env {
    const tvm_scalar *scalars;
    uint32_t multiprocessors;        /* of the device */
    uint32_t target;                 /* of the device, as tvm_eval_env */
    const tvm_target_traits *traits; /* the same */
    uint32_t grid[3];
} tvm_launch_env;

/* Where the expressions of a launch are evaluated before its grid is known. */
static inline tvm_eval_env tvm_launch_eval_env(const tvm_launch_env *env) {
    return (tvm_eval_env){.slots = env->scalars,
                          .multiprocessors = (int32_t)env->multiprocessors,
                          .target = (int32_t)env->target,
                          .traits = env->traits};
}

/* Sets env->grid. Evaluates grid, assumes and tensor shapes.
 * TVM_ARGUMENT with a message naming kernel, parameter or assume, and the values, when: an assume is false;
 * an extent is negative; a grid extent is below 0 or above the hardware's (2^31-1, 65535, 65535); a row of
 * a sub-byte tensor is not whole bytes; a grid extent is no multiple of the clusters'; a tensor has more
 * than 2^40 elements, or goes over more; a stride is negative; a view that every block makes does not lie
 * inside of what it views. A grid extent of 0 is allowed: nothing runs (launch returns at once). */
tvm_status tvm_launch_check(const tvm_ir_program *program, const tvm_ir_kernel *kernel, tvm_launch_env *env,
                            tvm_diags *diags);

/* What launch-time expressions read. */
typedef struct tvm_launch_reads {
    bool params[TVM_MAX_PARAMS];
    unsigned leaves; /* TVM_LEAF_... */
} tvm_launch_reads;
/* Adds what an expression reads. */
void tvm_launch_reads_find(const tvm_ir_kernel *kernel, uint32_t expr, tvm_launch_reads *reads);
/* Adds the values, "m = 100, target = 90"; false where nothing is read. */
bool tvm_launch_print_values(tvm_text *out, const tvm_ir_program *program, const tvm_ir_kernel *kernel,
                             const tvm_launch_env *env, const tvm_launch_reads *reads);

/* An expression as a program says it, unless env is NULL followed by the values that it reads:
 * "n % 8 == 0 (n = 12)". Cut where it is long; the caller frees it. */
tvm_text tvm_launch_expr_text(const tvm_ir_program *program, const tvm_ir_kernel *kernel, uint32_t expr,
                              const tvm_launch_env *env);

/* Computes the extents and bytes of global tensor `slot`, which is a parameter, or a tensor of the launch or
 * a view, whose extents may read the grid. Without strides the bytes are those of the elements; with strides
 * they reach from the first element to the end of the last one. diags may be NULL. */
tvm_status tvm_launch_shape(const tvm_ir_program *program, const tvm_ir_kernel *kernel, uint32_t slot,
                            const tvm_launch_env *env, int64_t shape[TVM_MAX_RANK], uint64_t *bytes,
                            tvm_diags *diags);

/* Computes the strides of a global tensor's dimensions in its memory, in elements; also those of a view,
 * whose extents then are those of a launch. diags may be NULL. */
tvm_status tvm_launch_strides(const tvm_ir_program *program, const tvm_ir_kernel *kernel, uint32_t slot,
                              const tvm_launch_env *env, int64_t stride[TVM_MAX_RANK], tvm_diags *diags);

/* Returns the extents of a tensor parameter as they are declared, "[m, k / 64]"; "" for a scalar. malloc'ed;
 * NULL when out of memory. */
char *tvm_launch_shape_text(const tvm_ir_program *program, const tvm_ir_kernel *kernel, uint32_t param);

#endif
