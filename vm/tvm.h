/* Tilus VM: the public interface. See tvm_launch(3) and tilusvm(7).
 *
 *     tvm_context *context;
 *     tvm_program *program;
 *     tvm_kernel *kernel;
 *     if (tvm_context_create(NULL, &context) || tvm_load_file(context, "matmul_u3.vbc", &program) ||
 *         tvm_get_kernel(program, "matmul", &kernel) || tvm_launch(kernel, stream, m, n, k, a, p, s, c))
 *         fprintf(stderr, "%s\n", tvm_message(context));
 */
#ifndef TVM_H
#define TVM_H

#include <stddef.h>
#include <stdint.h>

#include "tvm_status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tvm_context tvm_context;
typedef struct tvm_program tvm_program; /* a loaded program */
typedef struct tvm_kernel tvm_kernel;   /* one of its kernels */

typedef enum tvm_device_kind { TVM_DEVICE_AUTO, TVM_DEVICE_CPU, TVM_DEVICE_CUDA } tvm_device_kind;

/* How much a context tells of its work; each level includes those before it. */
typedef enum tvm_log_level {
    TVM_LOG_DEFAULT, /* what the environment variable TILUSVM_LOG says; off without one */
    TVM_LOG_ERROR,   /* calls that fail, with their messages */
    TVM_LOG_WARN,    /* what is wrong without keeping anything from working */
    TVM_LOG_INFO,    /* the device; translating, ptxas and loading, with their times */
    TVM_LOG_DEBUG,   /* preparing, launching and waiting too */
    TVM_LOG_OFF
} tvm_log_level;

/* Zero-initialised means: auto, device 0, all cores, the primary CUDA context, the default cache, the log as
 * the environment says. */
typedef struct tvm_context_options {
    tvm_device_kind device;
    int ordinal;           /* CUDA device */
    unsigned threads;      /* of the interpreter; 0: one a core */
    void *cuda_context;    /* a CUcontext to run in; NULL: the device's primary context */
    const char *cache_dir; /* NULL: $XDG_CACHE_HOME/tilusvm, else ~/.cache/tilusvm; "": no cache on disk */
    tvm_log_level log_level;
    /* Takes the log instead of standard error or TILUSVM_LOG_FILE, at TVM_LOG_WARN when neither log_level nor
     * the environment says otherwise. Called by any thread, several at once; must not call into the context.
     */
    void (*log)(void *closure, tvm_log_level level, const char *text);
    void *log_closure;
} tvm_context_options;

/* AUTO takes the GPU when there is one, else the interpreter. On failure *context may still be set, so that
 * tvm_message can tell why; free it in any case. options may be NULL. */
tvm_status tvm_context_create(const tvm_context_options *options, tvm_context **context);
void tvm_context_free(tvm_context *context);
/* Why the last call on this context by this thread failed: one or more lines, "" after success. Valid until
 * the next failing call. NULL context: a fixed text. */
const char *tvm_message(const tvm_context *context);
/* "interpreter, 2 threads" or "NVIDIA H200 (cuda:0, sm_90a)". */
const char *tvm_device_name(const tvm_context *context);
tvm_device_kind tvm_device(const tvm_context *context); /* CPU or CUDA, never AUTO */

/* Bytecode from a file or from memory (copied). Free after its last launch has finished. */
tvm_status tvm_load_file(tvm_context *context, const char *path, tvm_program **program);
tvm_status tvm_load(tvm_context *context, const void *bytes, size_t size, tvm_program **program);
void tvm_program_free(tvm_program *program);

size_t tvm_kernel_count(const tvm_program *program);
tvm_status tvm_get_kernel(tvm_program *program, const char *name, tvm_kernel **kernel);
tvm_kernel *tvm_kernel_at(tvm_program *program, size_t index);

/* Introspection. Strings live as long as the program. */
const char *tvm_kernel_name(const tvm_kernel *kernel);
size_t tvm_param_count(const tvm_kernel *kernel);
typedef struct tvm_param_info {
    const char *name;
    const char *type; /* "i32", "f16", "u3" */
    unsigned bits;    /* of an element or scalar */
    int is_tensor;
    unsigned rank; /* of a tensor */
} tvm_param_info;
tvm_status tvm_param(const tvm_kernel *kernel, size_t index, tvm_param_info *info);

/* One argument. Scalars: i for integers and bool, f for floats. Tensors: data is an address on the context's
 * device, 16-byte aligned; bytes, when not 0, is what the caller holds there and is checked against the
 * declared shape. */
typedef struct tvm_value {
    int64_t i;
    double f;
    void *data;
    size_t bytes;
} tvm_value;

/* Extents of tensor parameter `index` for these arguments (tensors' data is not looked at), and its size in
 * bytes. */
tvm_status tvm_param_shape(const tvm_kernel *kernel, size_t index, const tvm_value *values, size_t count,
                           int64_t shape[8], size_t *bytes);

/* Translates and loads now, so that the first launch does not. */
tvm_status tvm_prepare(tvm_kernel *kernel);

/* Launches on a stream (a CUstream; NULL the default one; ignored by the interpreter, which is done when it
 * returns). Asynchronous on a GPU. The arguments follow in the kernel's order: bool and i32 as int, u32 as
 * unsigned, i64 as int64_t, u64 as uint64_t, f32 and f64 as double, tensors as pointers. tvm_launchv takes
 * them from an array. TVM_ARGUMENT when an assume does not hold, a shape is negative, a pointer is misaligned
 * or a tensor too small. */
tvm_status tvm_launch(tvm_kernel *kernel, void *stream, ...);
tvm_status tvm_launchv(tvm_kernel *kernel, void *stream, const tvm_value *values, size_t count);

/* Waits for the stream; reports a fault with the name of the kernel launched last. */
tvm_status tvm_synchronize(tvm_context *context, void *stream);

/* Memory of the context's device (host memory for the interpreter), for tools and tests. 256-byte aligned. */
tvm_status tvm_memory_alloc(tvm_context *context, size_t bytes, void **data);
tvm_status tvm_memory_free(tvm_context *context, void *data);
tvm_status tvm_memory_write(tvm_context *context, void *to, const void *from, size_t bytes);
tvm_status tvm_memory_read(tvm_context *context, void *to, const void *from, size_t bytes);

/* Device time of one launch: the median of `repeats` launches, in microseconds (CUDA events around CUDA-graph
 * replays on a GPU; the wall clock for the interpreter). */
tvm_status tvm_time(tvm_kernel *kernel, const tvm_value *values, size_t count, unsigned repeats,
                    double *microseconds);

/* A timeline of the context from here to tvm_trace_stop (or tvm_context_free), of all threads: translating,
 * ptxas, loading, launches and waiting, and launches on the GPU between events, unless captured into a graph.
 * Written to `path` as Chrome's trace events (JSON), which Perfetto and chrome://tracing show. Launches cost
 * more meanwhile. tvm_trace_stop waits for the launches. TVM_IO; TVM_USAGE when there is a timeline already,
 * or none. */
tvm_status tvm_trace_start(tvm_context *context, const char *path);
tvm_status tvm_trace_stop(tvm_context *context);

#ifdef __cplusplus
}
#endif
#endif
