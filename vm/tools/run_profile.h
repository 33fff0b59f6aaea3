/* tvm-run --profile: what a launch does, counted by the interpreter, with its time on a GPU and the roofline
 * ceilings that bound it. */
#ifndef TVM_VM_TOOLS_RUN_PROFILE_H
#define TVM_VM_TOOLS_RUN_PROFILE_H

#include "run_bind.h"

/* Of instructions whose executions are counted. */
typedef enum tvm_run_pipe {
    TVM_RUN_TENSOR_16, /* mma of f16 and bf16: multiplications and additions */
    TVM_RUN_TENSOR_8,  /* of types of 8 bits and less */
    TVM_RUN_TENSOR_32, /* of tf32, f32 and f64 */
    TVM_RUN_FLOAT,     /* elements of float tensors that other instructions compute */
    TVM_RUN_INTEGER,   /* of other tensors */
    TVM_RUN_PIPES
} tvm_run_pipe;

typedef struct tvm_run_profile {
    const char *kernel, *device;
    uint64_t instructions, blocks, turns;
    uint64_t global_read, global_written, shared_read, shared_written;
    uint64_t tensor_bytes;              /* of the tensors that it is given */
    uint64_t operations[TVM_RUN_PIPES]; /* by pipe */
    /* shared memory passes of all warps, where the kernel was translated for a target; "": it was not */
    uint64_t passes, conflicts;
    char target[16];
    /* on a GPU; NAN on the interpreter */
    double microseconds, bytes_per_second, operations_per_second; /* the latter two: the roofline ceilings */
    bool walls_measured;                                          /* measured now, not taken from the cache */
} tvm_run_profile;

/* Counts one more launch with the binding's arguments, on the interpreter, from the contents that the
 * arguments name, and measures on a GPU. The tensors of the binding have other contents afterwards. Bank
 * conflicts are those of the device's target, on the interpreter of the one that was asked for. */
tvm_status tvm_run_profile_take(tvm_run_binding *binding, const tvm_run_args *args, tvm_run_profile *profile,
                                tvm_diags *diags);
/* The least bytes that memory must move: each touched one, and no tensor's more than once. */
uint64_t tvm_run_profile_bytes(const tvm_run_profile *profile);
/* Operations of the tensor pipes, those of 8 bits counted half and those of 32 bits twice, as the pipes'
 * rates are. */
double tvm_run_profile_operations(const tvm_run_profile *profile);
void tvm_run_profile_print(const tvm_run_profile *profile, FILE *out);
tvm_status tvm_run_profile_svg(const tvm_run_profile *profile, const char *path, tvm_diags *diags);

/* run_walls.c: the rates that kernels of their own reach on a GPU: reads of memory, and a large product of
 * f16. Measured once: they are kept in the cache. */
tvm_status tvm_run_walls(tvm_context *context, double *bytes_per_second, double *operations_per_second,
                         bool *measured, tvm_diags *diags);

/* A launch as the command line has it, for another process. */
typedef struct tvm_run_ncu_launch {
    const char *file, *function; /* a program; of its kernels and entries */
    const char *kernel;          /* that the GPU sees */
    int ordinal;
    const char *const *words; /* NAME=VALUE, and options of a program's text */
    size_t word_count;
} tvm_run_ncu_launch;
/* run_ncu.c: prints counters, named NAME,NAME,... (NULL: the usual ones). TVM_NOT_FOUND, TVM_UNSUPPORTED with
 * ncu's reason. */
tvm_status tvm_run_ncu(const tvm_run_ncu_launch *launch, const char *counters, FILE *out, tvm_diags *diags);

#endif
