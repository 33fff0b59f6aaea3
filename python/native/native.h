/* The extension tilusvm._native: what of libtilusvm Python sees. It takes arguments apart and hands them to
 * tvm_launchv, which checks them; what is pleasant rather than needed is in Python, in tilusvm/.
 *
 *     errors.c    a status and a message become an exception of tilusvm._errors
 *     devices.c   the contexts: one for the interpreter, one for each GPU, made when first needed
 *     tensors.c   Python objects become tvm_tensor: torch's through its DLPack C functions, buffers,
 * __dlpack__ arguments.c the arguments of a call become an array of tvm_value program.c   bytecode, loaded in
 * each context that it is called in kernel.c    the calls module.c    the module, and functions of the
 * library and its contexts
 *
 * Limited API of Python 3.11: one build serves all later versions. */
#ifndef TVM_PYTHON_NATIVE_H
#define TVM_PYTHON_NATIVE_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>

#include "tvm.h"

enum {
    PY_MOST_PARAMS = 64, /* the library's */
    PY_MOST_RANK = 8,
    PY_MOST_GPUS = 32,
    PY_INTERPRETER = 0, /* a place: the interpreter, or 1 + the number of a GPU */
    PY_PLACES = 1 + PY_MOST_GPUS
};

/* DLPack's exchange API (dlpack.h, DLPACK_MAJOR_VERSION 1): what a type has as __dlpack_c_exchange_api__.
 * Kept to the members that are used; the order is the ABI's. */
typedef struct py_exchange_api {
    struct {
        uint32_t major, minor;
    } version;
    struct py_exchange_api *older;
    void *allocate;
    void *managed_from_object;
    void *managed_to_object;
    /* Fills in a tensor that the object goes on to own; 0, or -1 with a Python exception. May be NULL. */
    int (*tensor_from_object)(void *object, tvm_tensor *tensor);
    int (*current_stream)(int32_t device_type, int32_t device_id, void **stream);
} py_exchange_api;

enum { PY_KNOWN_TYPES = 8 };
typedef struct py_known_type {
    PyObject *type;             /* held */
    const py_exchange_api *api; /* NULL: it has none */
} py_known_type;

/* One a module. */
typedef struct py_state {
    PyTypeObject *program_type, *kernel_type, *graph_type;
    PyObject *make_error;                /* tilusvm._errors.make */
    PyObject *exchange_name;             /* "__dlpack_c_exchange_api__" */
    PyObject *stream_name, *device_name; /* "stream", "device" */
    py_known_type known[PY_KNOWN_TYPES]; /* types seen last */
    unsigned known_next;                 /* the one to be forgotten next */
    tvm_context *contexts[PY_PLACES];    /* NULL until needed */
    tvm_context_options interpreter;     /* options of the interpreter's context */
} py_state;

/* Arguments that do not make a call: missing, twice, unknown. Beside the statuses of the library. */
enum { PY_SIGNATURE = 1000 };

/* ---- errors.c: each sets the exception and returns NULL ---- */

/* What the last call on this context by this thread said. */
PyObject *py_raise(py_state *state, tvm_status status, const tvm_context *context);
PyObject *py_raise_text(py_state *state, tvm_status status, const char *text);
PyObject *py_raise_format(py_state *state, tvm_status status, const char *format, ...);
/* Is an exception set that is no error of what was called, as KeyboardInterrupt and SystemExit? */
bool py_is_interruption(void);
/* The exception that is set becomes the cause of this one; an interruption stays as it is. */
PyObject *py_raise_from(py_state *state, tvm_status status, const char *format, ...);

/* The attribute of an object, or NULL where it has none, or with an exception where asking for it was
 * interrupted; an error of what asks is as having none. */
PyObject *py_attribute(PyObject *object, PyObject *name);
PyObject *py_attribute_named(PyObject *object, const char *name);

/* ---- devices.c ---- */

/* The context of a place; NULL with an exception. */
tvm_context *py_context(py_state *state, unsigned place);
/* "cpu", "cuda", "cuda:1", a number, or an object whose str() is one of these, as a torch.device's; -1 with
 * an exception. */
int py_place_of(py_state *state, PyObject *device);
/* Runs a launch on the interpreter so that Ctrl-C ends it: TVM_CANCELLED with KeyboardInterrupt set. *message
 * is set to a malloc'ed copy of what the library says, or NULL. */
tvm_status py_interpret(tvm_context *context, tvm_kernel *kernel, const tvm_value *values, size_t count,
                        char **message);

/* ---- tensors.c ---- */

/* Where a tensor of a call is kept while it lasts. */
typedef struct py_tensor {
    tvm_tensor tensor;
    enum { PY_BORROWED, PY_BUFFER, PY_CAPSULE } kind;
    union {
        struct {
            Py_buffer view;
            int64_t shape[PY_MOST_RANK], strides[PY_MOST_RANK];
        } buffer;
        PyObject *capsule; /* its destructor frees the tensor */
    } owner;
} py_tensor;

typedef enum py_param_kind { PY_TENSOR, PY_BOOL, PY_INT, PY_UINT64, PY_FLOAT } py_param_kind;
typedef struct py_param {
    PyObject *name; /* interned */
    tvm_param_info info;
    py_param_kind kind;
    bool written; /* by the kernel */
    bool is_bf16;
} py_param;

struct py_kernel;
/* *api is set to the type's exchange API where it has one. -1 with an exception. */
int py_tensor_take(struct py_kernel *kernel, const py_param *param, PyObject *object, PyObject *stream,
                   py_tensor *tensor, const py_exchange_api **api);
void py_tensor_release(py_tensor *tensor);
void py_forget_types(py_state *state);

/* ---- program.c, kernel.c ---- */

typedef struct py_program {
    PyObject_HEAD py_state *state;
    PyObject *module;
    PyObject *bytes;
    tvm_program *on[PY_PLACES]; /* NULL until called there */
} py_program;

typedef struct py_kernel {
    PyObject_HEAD py_state *state;
    py_program *program;
    size_t index;
    unsigned count; /* of parameters */
    const char *name;
    py_param *params;
    tvm_kernel *on[PY_PLACES]; /* NULL until called there */
} py_kernel;

extern PyType_Spec py_program_spec, py_kernel_spec;

/* The program in a place; NULL with an exception. */
tvm_program *py_program_on(py_program *program, unsigned place);
/* The kernel in a place; NULL with an exception. */
static inline tvm_kernel *py_kernel_on(py_kernel *kernel, unsigned place) {
    if (kernel->on[place]) return kernel->on[place];
    tvm_program *program = py_program_on(kernel->program, place);
    return program ? kernel->on[place] = tvm_kernel_at(program, kernel->index) : NULL;
}

/* ---- arguments.c ---- */

typedef enum py_arguments_rule {
    PY_ALL_ARGUMENTS, /* as a launch takes them */
    PY_SCALARS        /* tensors may be left out: they are not looked at */
} py_arguments_rule;

/* The arguments of a call, on the caller's stack: not cleared. */
typedef struct py_arguments {
    unsigned count, held;
    unsigned place;
    void *stream;
    tvm_value values[PY_MOST_PARAMS];
    py_tensor tensors[PY_MOST_PARAMS];
} py_arguments;

/* From a tuple and a dictionary (or NULL), which may also have stream= and device=. The place is that of the
 * first tensor, or of device=; the stream that of stream=, or the current one of the tensors' library. -1
 * with an exception, and nothing held. */
int py_arguments_take(py_kernel *kernel, PyObject *tuple, PyObject *dict, py_arguments_rule rule,
                      py_arguments *out);
void py_arguments_release(py_arguments *arguments);

/* ---- module.c ---- */

/* Folders and definitions of a text: the texts live as long as the lists. */
typedef struct py_text_options {
    tvm_assemble_options options;
    PyObject *defines, *folders;
} py_text_options;
/* -1 with an exception. Released by py_text_options_free in any case. */
int py_text_options_take(const char *name, PyObject *defines, PyObject *folders, py_text_options *out);
void py_text_options_free(py_text_options *options);

/* ---- graph.c ---- */

extern PyType_Spec py_graph_spec;

/* ---- quantize.c: a function of the module ---- */

PyObject *py_quantize(PyObject *module, PyObject *args);

#endif
