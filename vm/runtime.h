/* What a context and the code loaded into it are, shared by context.c, code.c, launching and tvm-run. */
#ifndef TVM_VM_RUNTIME_H
#define TVM_VM_RUNTIME_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "device.h"

/* What a thread was last told by a context. */
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
    atomic_bool unheard; /* a failure of a thread that not even `no memory` could be recorded for */
};

struct tvm_kernel {
    struct tvm_program *code;
    const struct tvm_ir_kernel *kernel;
    uint32_t index;
    char (*type_names)[TVM_DTYPE_NAME_MAX]; /* of the parameters */
};

struct tvm_program {
    tvm_context *context;
    tvm_ir_program *program;
    tvm_kernel *functions; /* in the program's order */
    void *device_code;
};

/* Ends a public call: records the message for tvm_message (none for TVM_OK), frees the diagnostics, returns
 * status. */
tvm_status tvm_context_finish(tvm_context *context, tvm_status status, tvm_diags *diags);

/* NULL when there is nothing to say. */
const char *tvm_context_note(const tvm_context *context);
const char *tvm_context_warning(const tvm_context *context);

/* The diagnostics as the lines of a message, malloc'ed; NULL when out of memory. */
char *tvm_message_text(tvm_status status, const tvm_diags *diags);

#endif
