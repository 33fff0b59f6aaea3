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

/* The version of this header, for comparisons by the preprocessor. */
#define TVM_VERSION_MAJOR  0
#define TVM_VERSION_MINOR  2
#define TVM_VERSION_PATCH  0
#define TVM_VERSION_NUMBER (TVM_VERSION_MAJOR * 10000 + TVM_VERSION_MINOR * 100 + TVM_VERSION_PATCH)

/* The TVM_VERSION_NUMBER of the library that the process has: one with an equal major number and no lower
 * version than the header's has all that the header declares. */
unsigned tvm_version(void);

typedef struct tvm_context tvm_context;
typedef struct tvm_program tvm_program; /* a loaded program */
typedef struct tvm_kernel tvm_kernel;   /* one of its kernels or entries */

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
    int ordinal;              /* CUDA device */
    unsigned threads;         /* of the interpreter; 0: one a core */
    void *cuda_context;       /* a CUcontext to run in; NULL: the device's primary context */
    const char *cache_dir;    /* NULL: $XDG_CACHE_HOME/tilusvm, else ~/.cache/tilusvm; "": no cache on disk */
    unsigned multiprocessors; /* that kernels see in the interpreter, to run a GPU's schedule there; 0: 4 */
    unsigned target;          /* that launches see in the interpreter: 80, 89, 90, ...; 0: none of them */
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

/* What programs may take that are launched in a context; 0 is no limit. */
typedef struct tvm_limits {
    uint64_t scratch_bytes; /* of the tensors that a launch makes for itself (alloc-global) */
    uint64_t blocks;        /* of a launch */
    uint64_t instructions;  /* that the interpreter executes in a launch, each counted once for its warps */
    unsigned milliseconds;  /* that a launch takes on the interpreter */
    int known_sizes; /* not 0: a tensor is refused whose size neither the caller gives nor tvm_memory_alloc
                        knows */
    int no_embedded_code; /* not 0: machine code in bytecode files is not used, of programs loaded from now on
                           */
} tvm_limits;
/* Replaces the context's limits, for what is launched from now on; NULL: none. A launch beyond them is
 * TVM_LIMIT. */
tvm_status tvm_set_limits(tvm_context *context, const tvm_limits *limits);
/* Ends all launches that run on the context's interpreter, whose callers get TVM_CANCELLED; launches that
 * begin afterwards are not concerned. Called by another thread than theirs. TVM_UNSUPPORTED on a GPU, whose
 * launches cannot be called back. */
tvm_status tvm_cancel(tvm_context *context);

/* Checks what is launched from now on in a context on the interpreter: races, reads of what was never written
 * or has not been copied yet, barriers that not all reach, deadlocks, ... (tvm-memory(7)). Such launches run
 * on one thread, and slower. One that has errors is TVM_SANITIZER, and tvm_message tells all of them: as
 * lines, or as one JSON document. TVM_UNSUPPORTED on a GPU. */
typedef enum tvm_sanitize { TVM_SANITIZE_OFF, TVM_SANITIZE_TEXT, TVM_SANITIZE_JSON } tvm_sanitize;
tvm_status tvm_set_sanitizer(tvm_context *context, tvm_sanitize sanitize);

/* Bytecode from a file or from memory (copied). Free after its last launch has finished. */
tvm_status tvm_load_file(tvm_context *context, const char *path, tvm_program **program);
tvm_status tvm_load(tvm_context *context, const void *bytes, size_t size, tvm_program **program);
/* Program text, assembled as tvm-as does it. name is the file that messages name and against whose folder
 * .include is resolved; NULL: "-" and the current folder. Each define is "NAME=VALUE", the VALUE of the
 * .const NAME. Zero-initialised, or NULL options, means: no name, no defines, no further folders to include
 * from. */
typedef struct tvm_assemble_options {
    const char *name;
    const char *const *defines;
    size_t define_count;
    const char *const *include_dirs;
    size_t include_dir_count;
} tvm_assemble_options;
tvm_status tvm_assemble(tvm_context *context, const char *text, size_t length,
                        const tvm_assemble_options *options, tvm_program **program);
void tvm_program_free(tvm_program *program);
/* The program as bytecode, with its line table and, where it came with it, its code: what tvm_load takes, in
 * another context, too. *bytes is malloc'ed, the caller frees it. TVM_NO_MEMORY. */
tvm_status tvm_program_bytes(const tvm_program *program, void **bytes, size_t *size);

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
    unsigned rank;     /* of a tensor */
    const char *shape; /* of a tensor, as declared: "[k / 64, n]"; else "" */
} tvm_param_info;
tvm_status tvm_param(const tvm_kernel *kernel, size_t index, tvm_param_info *info);
/* 1 when the kernel, or a variant of the entry, has an instruction that writes to tensor parameter `index`;
 * else 0. */
int tvm_param_written(const tvm_kernel *kernel, size_t index);

/* What the kernel became on the context's device. Translates and loads it, as tvm_prepare does. */
typedef struct tvm_kernel_info {
    const char *target;  /* "sm_90a", "interpreter" */
    unsigned threads;    /* of a block */
    size_t shared_bytes; /* shared memory of a block; 0 in the interpreter */
    int registers;       /* of a thread, as the compiler assigned them; -1 in the interpreter */
    size_t local_bytes;  /* of a thread: spilled registers, indexed locals; 0 in the interpreter */
} tvm_kernel_info;
tvm_status tvm_get_kernel_info(tvm_kernel *kernel, tvm_kernel_info *info);

/* What a caller knows of a tensor: DLPack's DLTensor, of version 1 or before. A program that includes
 * <dlpack/dlpack.h> before this header passes its DLTensors as they are; others have the same here. See
 * tvm_tensor(3) for types. */
#ifdef DLPACK_DLPACK_H_
typedef DLTensor tvm_tensor;
#else
typedef struct tvm_tensor_device {
    int32_t device_type; /* tvm_tensor_device_type */
    int32_t device_id;
} tvm_tensor_device;
typedef struct tvm_tensor_dtype {
    uint8_t code; /* tvm_tensor_code */
    uint8_t bits; /* of one of the lanes */
    uint16_t lanes;
} tvm_tensor_dtype;
typedef struct tvm_tensor {
    void *data;
    tvm_tensor_device device;
    int32_t ndim;
    tvm_tensor_dtype dtype;
    int64_t *shape;
    int64_t *strides;     /* in elements; NULL: row-major and contiguous */
    uint64_t byte_offset; /* of the first element from data */
} tvm_tensor;
#endif

/* DLPack's numbers. */
typedef enum tvm_tensor_device_type {
    TVM_TENSOR_CPU = 1,
    TVM_TENSOR_CUDA = 2,
    TVM_TENSOR_CUDA_HOST = 3,
    TVM_TENSOR_CUDA_MANAGED = 13
} tvm_tensor_device_type;
typedef enum tvm_tensor_code {
    TVM_TENSOR_INT = 0,
    TVM_TENSOR_UINT = 1,
    TVM_TENSOR_FLOAT = 2,
    TVM_TENSOR_BFLOAT = 4,
    TVM_TENSOR_BOOL = 6,
    TVM_TENSOR_F8_E4M3 = 10,
    TVM_TENSOR_F8_E5M2 = 12,
    TVM_TENSOR_E8M0 = 14,
    TVM_TENSOR_F6_E2M3 = 15,
    TVM_TENSOR_F6_E3M2 = 16,
    TVM_TENSOR_F4_E2M1 = 17
} tvm_tensor_code;

/* One argument. Scalars: i for integers and bool, f for floats. Tensors: either tensor, which is then checked
 * against type, shape, device and alignment and must be contiguous; or data, an address on the context's
 * device, 16-byte aligned, with bytes, when not 0, what the caller holds there, which is checked against the
 * declared shape. */
typedef struct tvm_value {
    int64_t i;
    double f;
    void *data;
    size_t bytes;
    const tvm_tensor *tensor;
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
 * run, several at a time. */
tvm_status tvm_prepare(tvm_kernel *kernel);
/* Where the program's code comes from, once one of its kernels has been prepared, which each is by itself; of
 * the first of them: "cubin for sm_90a, from the cache, by nvJitLink 13.0", "PTX for sm_80, compiled by the
 * driver"; "interpreted"; "" before. Lives as long as the program. */
const char *tvm_code_origin(const tvm_program *program);

/* Prepares, and makes the memory that launches of this kernel with these scalars need on this stream (tensors
 * of alloc-global), so that they allocate nothing; without it the first launch does, also while the stream is
 * being captured into a CUDA graph, which the allocation is no part of. Tensors' data is not looked at. Such
 * memory belongs to the stream until the context is freed: streams never share it. A captured launch uses
 * that of the stream it was captured on, so that its graph must not run while other launches that use it do.
 */
tvm_status tvm_reserve(tvm_kernel *kernel, void *stream, const tvm_value *values, size_t count);

/* Launches on a stream (a CUstream; NULL the default one; ignored by the interpreter, which is done when it
 * returns). Asynchronous on a GPU. The arguments follow in the kernel's order: bool and i32 as int, u32 as
 * unsigned, i64 as int64_t, u64 as uint64_t, f32 and f64 as double, tensors as pointers. tvm_launchv takes
 * them from an array. TVM_ARGUMENT when an assume does not hold, a shape is negative, a pointer is misaligned
 * or a tensor too small, or no variant of an entry serves the arguments. */
tvm_status tvm_launch(tvm_kernel *kernel, void *stream, ...);
tvm_status tvm_launchv(tvm_kernel *kernel, void *stream, const tvm_value *values, size_t count);

/* A kernel as a plain C function that returns a tvm_status:
 *
 *     int function(parameters...)                  with stream_parameter: int function(void *stream, ...)
 *
 * The parameters are the kernel's, by their C types: bool as bool, i32 as int32_t, u32 as uint32_t, i64 as
 * int64_t, u64 as uint64_t, f32 as float, f64 as double, tensors as void *. Cast the function to its own
 * type; any number of threads may call it at once. It is valid until tvm_unbind, or until the program is
 * freed. options may be NULL: the default stream. */
typedef void (*tvm_function)(void);
typedef struct tvm_bind_options {
    void *stream;         /* of every launch */
    int stream_parameter; /* when not 0, the first argument of each call is the stream instead */
} tvm_bind_options;
tvm_status tvm_bind(tvm_kernel *kernel, tvm_function *function);
tvm_status tvm_bind_with(tvm_kernel *kernel, const tvm_bind_options *options, tvm_function *function);
/* TVM_NOT_FOUND when the kernel has no such function. */
tvm_status tvm_unbind(tvm_kernel *kernel, tvm_function function);

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

/* How tvm_quantize chooses scales: those whose codes have the least squared error, by a search, or the least
 * that hold the largest weight. */
typedef enum tvm_scales { TVM_SCALES_MSE, TVM_SCALES_ABSMAX } tvm_scales;
typedef struct tvm_quantize_options {
    const char *type;         /* of the codes: "u1" to "u8", "i2" to "i8", "f3_e1m1" to "f8_e7m0" */
    tvm_scales scales;        /* zero-initialised: TVM_SCALES_MSE */
    const float *importance;  /* of the k rows' errors, by MSE: mean squares of the inputs; NULL: equal */
    size_t importance_length; /* k; 0 without importance */
    unsigned threads;         /* 0: one a core */
} tvm_quantize_options;
/* Quantizes a matrix of weights [k, n], as tvm-pack(1) does, tvm_quantize(3) says how: weights is f32, f16 or
 * bf16, row-major or the transpose of a row-major [n, k], as w.t() of torch's Linear is. The results are in
 * memory of the caller, row-major: packed, u8 [k, b], rows of compact bit strings, b the least number of
 * bytes that hold n whole codes and end with a whole code; scales, f16 or bf16 [k / g, n], whose shape says
 * how many rows, g, share a scale; zeros, of the type and shape of scales, with a zero point to each, or
 * NULL: (code - 2^(bits-1)) * scale is the value of an unsigned code, code * scale that of others. All
 * tensors are in the host's memory, and not kept. TVM_ARGUMENT, naming the tensor, where one is not as it
 * should be; TVM_FORMAT where a weight is not finite or a scale beyond its type. Any number of threads may
 * call it at once. */
tvm_status tvm_quantize(tvm_context *context, const tvm_quantize_options *options, const tvm_tensor *weights,
                        const tvm_tensor *packed, const tvm_tensor *scales, const tvm_tensor *zeros);

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
