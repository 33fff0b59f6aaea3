/* The interpreter: the definition of every instruction. */
#ifndef TVM_VM_INTERP_H
#define TVM_VM_INTERP_H

#include <stdatomic.h>

#include "program.h"
#include "tvm.h"

/* One argument of a kernel: the value of a scalar, or the host address of a tensor. */
typedef struct tvm_interp_arg {
    tvm_scalar scalar;
    void *data;
} tvm_interp_arg;

/* A kernel made ready once (tables of layouts, views, reductions), run many times, by several threads at
 * once. */
typedef struct tvm_interp_kernel tvm_interp_kernel;
tvm_status tvm_interp_prepare(const tvm_ir_program *program, const tvm_ir_kernel *kernel,
                              tvm_interp_kernel **out, tvm_diags *diags);
void tvm_interp_free(tvm_interp_kernel *kernel);

enum { TVM_INTERP_MULTIPROCESSORS = 4 };

/* The accesses that launches with the sanitizer leave for later launches that may begin before they have
 * ended: one entry per launch, the latest first. */
typedef struct tvm_sanitize_past tvm_sanitize_past;
void tvm_sanitize_past_free(tvm_sanitize_past *past);

typedef struct tvm_interp_options {
    unsigned threads;                  /* blocks run on this many host threads; 0: one per core */
    uint32_t multiprocessors;          /* of the device that launches see; 0: TVM_INTERP_MULTIPROCESSORS */
    uint32_t target;                   /* that launches see */
    const tvm_target_traits *traits;   /* of it; NULL: it has none */
    uint64_t instructions;             /* that may be executed, each counted once for its team; 0: no limit */
    unsigned milliseconds;             /* that the launch may take; 0: no limit */
    uint32_t turns;                    /* that a warp may make in loops; 0: no limit */
    const atomic_uint *cancelled;      /* the launch ends when this number changes; NULL: it never does */
    uint64_t first_block, block_count; /* some of the grid's blocks, whole clusters in their order, of a
                                          kernel without alloc-global and waits for other blocks; 0: all */
    tvm_sanitize sanitize; /* not TVM_SANITIZE_OFF: the launch runs on one thread, and is TVM_SANITIZER when
                              it has errors that a GPU would not report */
    tvm_sanitize_past **past; /* of the sanitizer: launches that have come before, to which this one is added;
                                 NULL: nothing is known of them */
    void *stream;             /* of the launch: what orders it after those of the past */
    struct tvm_launch_counts *counts; /* added to; NULL: nothing is counted */
    FILE *output; /* of print-tensor; NULL: stdout. Lines of one block are not mixed with those of another. */
} tvm_interp_options;

/* Runs all blocks of the grid. The launch has been checked (tvm_launch_check). A run-time error (division by
 * zero, an index outside a shared tensor, a deadlock, ...) stops the launch and is reported with kernel,
 * block, file and line. TVM_LIMIT and TVM_CANCELLED where the options end it. */
tvm_status tvm_interp_run(const tvm_interp_kernel *kernel, const tvm_interp_arg *args, const uint32_t grid[3],
                          const tvm_interp_options *options, tvm_diags *diags);

#endif
