/* The structures of a context and of the code loaded into it, shared by context.c, code.c, launching and
 * tvm-run. */
#ifndef TVM_VM_RUNTIME_H
#define TVM_VM_RUNTIME_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "device.h"
#include "launch_plan.h"
#include "launch_limits.h"
#include "variants.h"

/* The last message that a context gave to a thread. */
typedef struct tvm_message_record {
    struct tvm_message_record *next, **link; /* in the context's list */
    tvm_context *context;
    bool failed; /* the text is kept after a success, since the caller may still hold it */
    char *text;
} tvm_message_record;

struct tvm_context {
    const tvm_device_ops *ops; /* NULL when creation failed */
    void *device;
    char *note; /* why TVM_DEVICE_AUTO did not take a GPU; NULL otherwise */
    pthread_key_t key;
    pthread_mutex_t lock; /* of the list */
    tvm_message_record *messages;
    tvm_observer observer;
    tvm_limits_state limits;
    atomic_bool unheard; /* a failure of a thread that not even `no memory` could be recorded for */
};

/* A kernel or an entry. */
struct tvm_kernel {
    struct tvm_program *code;
    const struct tvm_ir_kernel *kernel;     /* of an entry its head */
    const struct tvm_ir_entry *entry;       /* NULL: a kernel */
    tvm_variants *variants;                 /* of an entry */
    uint32_t index;                         /* of a kernel, in the program */
    char (*type_names)[TVM_DTYPE_NAME_MAX]; /* of the parameters */
    char **shapes;                          /* of the parameters, as declared; NULL: not asked for */
    uint8_t *args;                          /* tvm_arg_kind of the parameters */
    tvm_launch_plan *plan;
    tvm_launch_tensor tensors[TVM_MAX_LAUNCH_TENSORS];
    uint32_t tensor_count;
};

struct tvm_program {
    tvm_context *context;
    tvm_ir_program *program;
    tvm_kernel *functions; /* kernels, then entries, each in the program's order */
    size_t function_count;
    void *device_code;
    tvm_room room;        /* for its kernels on the device, of programs with entries */
    pthread_mutex_t lock; /* of the bindings, and the texts of shapes */
    struct tvm_binding *bindings;
};

/* Ends a public call: records the message for tvm_message (none for TVM_OK), frees the diagnostics, returns
 * status. */
tvm_status tvm_context_finish(tvm_context *context, tvm_status status, tvm_diags *diags);
/* TVM_USAGE for a call of `function` without an argument that it needs; without a context nothing is told. */
tvm_status tvm_context_missing(tvm_context *context, const char *function);

/* TVM_USAGE for calls on a context whose creation failed. */
tvm_status tvm_context_usable(const tvm_context *context, tvm_diags *diags);
/* Makes a loaded program of a verified one, whose ownership it takes, also when it fails. */
tvm_status tvm_context_load(tvm_context *context, tvm_ir_program *program, tvm_program **code,
                            tvm_diags *diags);

/* tvm_launch with the addresses of the arguments, each of the C type of its tvm_arg_kind. */
tvm_status tvm_launch_addresses(tvm_kernel *function, void *stream, void *const *addresses);
/* Frees the functions bound to a program's kernels. */
void tvm_bindings_free(struct tvm_binding *bindings);
/* The environment that launches on this context's device have; its scalars are NULL. */
tvm_launch_env tvm_context_launch_env(const tvm_context *context);

/* Checks scalars, assumes, grid and shapes as a launch does, but not the tensors' data; *variant is the
 * kernel that the launch would run. */
tvm_status tvm_kernel_check(const tvm_kernel *function, const tvm_value *values, size_t count,
                            const tvm_kernel **variant);
/* Of an entry whose cases have costs, the lines of tvm_variants_costs for these arguments; else none. */
tvm_status tvm_kernel_costs(const tvm_kernel *function, const tvm_value *values, size_t count, tvm_text *out);
/* Gives the strides of a tensor parameter, in elements, as tvm_param_shape gives its extents. */
tvm_status tvm_kernel_strides(const tvm_kernel *function, size_t index, const tvm_value *values, size_t count,
                              int64_t stride[TVM_MAX_RANK]);

/* As tvm_time, with several sets of arguments, at most 64, which have equal scalars and which the launches
 * use one after the other: sets that together exceed the L2 cache are read from memory. */
tvm_status tvm_time_sets(tvm_kernel *function, const tvm_value *const *sets, unsigned set_count, size_t count,
                         unsigned repeats, double *microseconds);
/* As tvm_launchv on the interpreter, which counts what the launch does. */
tvm_status tvm_launch_counted(tvm_kernel *function, const tvm_value *values, size_t count,
                              tvm_launch_counts *counts);

/* What the instructions of a kernel, or of an entry's variants, do with the memory of a parameter. */
enum {
    TVM_PARAM_READ = 1,
    TVM_PARAM_WRITTEN = 2,
    TVM_PARAM_READ_FIRST = 4,    /* by an instruction that stands before all that write it */
    TVM_PARAM_READ_EARLY = 8,    /* by one that may come before wait-dependency, not through a settled view */
    TVM_PARAM_WRITTEN_EARLY = 16 /* by one that may come before it */
};
unsigned tvm_param_accesses(const tvm_kernel *function, uint32_t param);

/* NULL when there is nothing to say. */
const char *tvm_context_note(const tvm_context *context);
const char *tvm_context_warning(const tvm_context *context);

/* The diagnostics as the lines of a message, malloc'ed; NULL when out of memory. */
char *tvm_message_text(tvm_status status, const tvm_diags *diags);

#endif
