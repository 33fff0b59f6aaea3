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
typedef struct tvm_kernel tvm_kernel;   /* one of its kernels or entries */

typedef enum tvm_device_kind { TVM_DEVICE_AUTO, TVM_DEVICE_CPU, TVM_DEVICE_CUDA } tvm_device_kind;

/* Zero-initialised means: auto, device 0, all cores, the primary CUDA context, the default cache. */
typedef struct tvm_context_options {
    tvm_device_kind device;
    int ordinal;              /* CUDA device */
    unsigned threads;         /* of the interpreter; 0: one a core */
    void *cuda_context;       /* a CUcontext to run in; NULL: the device's primary context */
    const char *cache_dir;    /* NULL: $XDG_CACHE_HOME/tilusvm, else ~/.cache/tilusvm; "": no cache on disk */
    unsigned multiprocessors; /* that kernels see in the interpreter, to run a GPU's schedule there; 0: 4 */
    unsigned target;          /* that launches see in the interpreter: 80, 89, 90, ...; 0: none of them */
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

/* Kernels and entries: names under which several kernels of one signature, its variants, are launched. The
 * kernels come first. */
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

/* The name of the kernel that a launch with these arguments runs: the kernel's own, or that of the variant
 * that an entry chooses (tensors' data is not looked at). TVM_ARGUMENT when no variant serves them; the
 * message names the nearest that does. */
tvm_status tvm_kernel_variant(const tvm_kernel *kernel, const tvm_value *values, size_t count,
                              const char **name);

/* Translates and loads now, so that the first launch does not; of an entry every variant that this device may
 * run. */
tvm_status tvm_prepare(tvm_kernel *kernel);

/* Launches on a stream (a CUstream; NULL the default one; ignored by the interpreter, which is done when it
 * returns). Asynchronous on a GPU. The arguments follow in the kernel's order: bool and i32 as int, u32 as
 * unsigned, i64 as int64_t, u64 as uint64_t, f32 and f64 as double, tensors as pointers. tvm_launchv takes
 * them from an array. TVM_ARGUMENT when an assume does not hold, a shape is negative, a pointer is misaligned
 * or a tensor too small, or no variant of an entry serves the arguments. */
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

#ifdef __cplusplus
}
#endif
#endif
