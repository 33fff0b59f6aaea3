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

/* The version of this header, as numbers that the preprocessor compares. */
#define TVM_VERSION_MAJOR  0
#define TVM_VERSION_MINOR  2
#define TVM_VERSION_PATCH  0
#define TVM_VERSION_NUMBER (TVM_VERSION_MAJOR * 10000 + TVM_VERSION_MINOR * 100 + TVM_VERSION_PATCH)

/* Returns the TVM_VERSION_NUMBER of the library that the process is linked with. A library of the same major
 * number that is not older than the header has every function that the header declares. */
unsigned tvm_version(void);

typedef struct tvm_context tvm_context;
typedef struct tvm_program tvm_program; /* a loaded program */
typedef struct tvm_kernel tvm_kernel;   /* one of its kernels or entries */

typedef enum tvm_device_kind { TVM_DEVICE_AUTO, TVM_DEVICE_CPU, TVM_DEVICE_CUDA } tvm_device_kind;

/* How much a context logs of its work; each level includes the levels before it. */
typedef enum tvm_log_level {
    TVM_LOG_DEFAULT, /* the level that the environment variable TILUSVM_LOG names; off when it is not set */
    TVM_LOG_ERROR,   /* calls that fail, with their messages */
    TVM_LOG_WARN,    /* problems that make no call fail */
    TVM_LOG_INFO,    /* the device; translations, runs of ptxas and loads, with their times */
    TVM_LOG_DEBUG,   /* preparations, launches and waits */
    TVM_LOG_OFF
} tvm_log_level;

/* Zero-initialised options select TVM_DEVICE_AUTO, device 0, all cores, the primary CUDA context, the default
 * cache, and the log level that the environment names. */
typedef struct tvm_context_options {
    tvm_device_kind device;
    int ordinal;              /* CUDA device */
    unsigned threads;         /* of the interpreter; 0: one per core */
    void *cuda_context;       /* the CUcontext to run in; NULL: the device's primary context */
    const char *cache_dir;    /* NULL: $XDG_CACHE_HOME/tilusvm, else ~/.cache/tilusvm; "": no cache on disk */
    unsigned multiprocessors; /* the number that kernels see in the interpreter, which so runs a GPU's
                                 schedule; 0: 4 */
    unsigned target;          /* in the interpreter the target that launches see: 80, 89, 90, ...; 0: none of
                                 them. On a GPU the one that code is made for, the GPU's own or a lower one;
                                 0: the best for the GPU */
    tvm_log_level log_level;
    /* Receives the log in place of standard error or TILUSVM_LOG_FILE, at level TVM_LOG_WARN unless log_level
     * or the environment names another. Any thread calls it, several at once; it must not call into the
     * context. */
    void (*log)(void *closure, tvm_log_level level, const char *text);
    void *log_closure;
} tvm_context_options;

/* TVM_DEVICE_AUTO selects the GPU when there is one, else the interpreter. options may be NULL. A failed call
 * may still set *context, so that tvm_message can tell why: the caller frees it in any case. */
tvm_status tvm_context_create(const tvm_context_options *options, tvm_context **context);
void tvm_context_free(tvm_context *context);
/* Tells why the last call of this thread on this context failed, in one or more lines; "" after a success.
 * The text is valid until the thread's next failing call. For a NULL context it is a fixed text. */
const char *tvm_message(const tvm_context *context);
/* Returns a text such as "interpreter, 2 threads" or "NVIDIA H200 (cuda:0, sm_90a)". */
const char *tvm_device_name(const tvm_context *context);
/* Writes what code for the context's device is made of, lines `name: text`: the target, its engines, the
 * types that they multiply, the instructions that are used, those that the target lacks with what is used
 * instead, and where the compilers of PTX were found. *text is malloc'ed; the caller frees it. It runs ptxas
 * for its version, and fails with TVM_NO_MEMORY. */
tvm_status tvm_device_report(tvm_context *context, char **text);
/* The same of a target by name, such as "sm_89", for which no GPU need be there: lines `name: text`, without
 * the compilers, and with the compute capabilities whose GPUs run its machine code. *text is malloc'ed; the
 * caller frees it. TVM_UNSUPPORTED where there is no such target, with the names of all in tvm_message. */
tvm_status tvm_target_report(tvm_context *context, const char *target, char **text);
tvm_device_kind tvm_device(const tvm_context *context); /* CPU or CUDA, never AUTO */

/* Limits of what the launches in a context may use; 0 is no limit. */
typedef struct tvm_limits {
    uint64_t scratch_bytes; /* of the tensors that one launch allocates for itself (alloc-global) */
    uint64_t blocks;        /* of one launch */
    uint64_t instructions;  /* that the interpreter executes in one launch, each counted once for its warps */
    unsigned milliseconds;  /* that one launch takes on the interpreter */
    int known_sizes;        /* not 0: a launch refuses a tensor whose size neither the caller gives nor
                               tvm_memory_alloc knows */
    int no_embedded_code; /* not 0: programs that are loaded from now on do not use the machine code of their
                             bytecode files */
    unsigned turns; /* of loops, that one warp makes in one launch; on a GPU what its waits ask counts, too */
    int co_resident; /* not 0: a launch on a GPU whose blocks wait for each other is refused unless all of
                        them run at a time */
} tvm_limits;
/* Replaces the limits of the context, for launches from now on; NULL removes them. A launch that exceeds a
 * limit fails with TVM_LIMIT; on a GPU one that has made all its turns is a fault. The code for a GPU counts
 * turns in programs that are loaded while there is a limit of them; others are then refused. */
tvm_status tvm_set_limits(tvm_context *context, const tvm_limits *limits);
/* Ends all launches that run on the context's interpreter: their callers get TVM_CANCELLED. Another thread
 * than theirs calls it. Launches that begin afterwards run. On a GPU, whose launches cannot be cancelled, it
 * fails with TVM_UNSUPPORTED. */
tvm_status tvm_cancel(tvm_context *context);

/* Turns the sanitizer on or off for launches from now on in a context on the interpreter. It finds races,
 * reads of elements that were never written or whose copy has not completed, barriers that not all threads
 * reach, deadlocks, ... (tvm-memory(7)). Such launches run on one thread, and are slower. A launch that has
 * errors fails with TVM_SANITIZER, and tvm_message gives all of them, as lines or as one JSON document. On a
 * GPU the call fails with TVM_UNSUPPORTED. */
typedef enum tvm_sanitize { TVM_SANITIZE_OFF, TVM_SANITIZE_TEXT, TVM_SANITIZE_JSON } tvm_sanitize;
tvm_status tvm_set_sanitizer(tvm_context *context, tvm_sanitize sanitize);

/* Loads bytecode from a file, or from `size` bytes of memory, which are copied. The caller frees *program
 * with tvm_program_free, after its last launch has finished. */
tvm_status tvm_load_file(tvm_context *context, const char *path, tvm_program **program);
tvm_status tvm_load(tvm_context *context, const void *bytes, size_t size, tvm_program **program);
/* Assembles `length` bytes of program text as tvm-as(1) does. Messages name the file `name`, and .include
 * looks in its folder; NULL stands for "-" and the current folder. Each define is "NAME=VALUE" and gives the
 * .const NAME that VALUE. Zero-initialised options, or NULL, have no name, no defines, and no further folders
 * to include from. */
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
/* Writes the program as bytecode, with its line table and the code that it was loaded with, if any. tvm_load
 * takes these bytes, in another context, too. *bytes is malloc'ed; the caller frees it. It fails with
 * TVM_NO_MEMORY. */
tvm_status tvm_program_bytes(const tvm_program *program, void **bytes, size_t *size);

/* A program has kernels and entries. An entry is a name under which several kernels of one signature, its
 * variants, are launched. Indices count the kernels first, then the entries. tvm_kernel_at returns NULL for
 * an index that there is not. A kernel lives as long as its program. */
size_t tvm_kernel_count(const tvm_program *program);
tvm_status tvm_get_kernel(tvm_program *program, const char *name, tvm_kernel **kernel);
tvm_kernel *tvm_kernel_at(tvm_program *program, size_t index);

/* Looks, without a launch, for races on shared and on global memory and for deadlocks of a kernel; of an
 * entry, of all its variants, of which the worst counts. What is proved holds for the arguments of every
 * launch, as tvm-memory(7) says. *report, unless it is NULL, is three lines for each kernel, as `tvm-as
 * --prove` prints them, malloc'ed; the caller frees it. It takes some 80 ms a kernel at most, and fails for
 * want of memory alone. */
typedef enum tvm_verdict {
    TVM_VERDICT_PROVED,      /* there are none */
    TVM_VERDICT_CONDITIONAL, /* there are none, if what the report says is so */
    TVM_VERDICT_OPEN,        /* not proved: the report says what is missing */
    TVM_VERDICT_FOUND        /* every block that runs, and meets no fault before, has what the report says */
} tvm_verdict;
typedef struct tvm_kernel_proof {
    tvm_verdict races, deadlocks;
    tvm_verdict global; /* races on global memory */
} tvm_kernel_proof;
tvm_status tvm_prove_kernel(tvm_kernel *kernel, tvm_kernel_proof *proof, char **report);

/* The same by the certificates in the bytecode, which a small checker checks: the prover is not asked. Races
 * on shared memory and deadlocks are confirmed, or open; races on global memory are always open. *report: two
 * lines for each kernel. */
tvm_status tvm_check_kernel(tvm_kernel *kernel, tvm_kernel_proof *proof, char **report);

/* Introspection: all strings live as long as the program. */
const char *tvm_kernel_name(const tvm_kernel *kernel);
size_t tvm_param_count(const tvm_kernel *kernel);
typedef struct tvm_param_info {
    const char *name;
    const char *type; /* "i32", "f16", "u3" */
    unsigned bits;    /* of an element, or of the scalar */
    int is_tensor;
    unsigned rank;     /* of a tensor */
    const char *shape; /* of a tensor, as the kernel declares it: "[k / 64, n]"; "" for a scalar, and for an
                        * entry where its variants declare different shapes */
} tvm_param_info;
tvm_status tvm_param(const tvm_kernel *kernel, size_t index, tvm_param_info *info);
/* Returns 1 when the kernel, or a variant of the entry, has an instruction that writes to tensor parameter
 * `index`, else 0. */
int tvm_param_written(const tvm_kernel *kernel, size_t index);

/* What the kernel is translated to on the context's device. tvm_get_kernel_info translates and loads it
 * first, as tvm_prepare does; it fails with TVM_USAGE for an entry. */
typedef struct tvm_kernel_info {
    const char *target;  /* "sm_90a", "interpreter" */
    unsigned threads;    /* of a block */
    size_t shared_bytes; /* shared memory of a block; 0 in the interpreter */
    int registers;       /* that the compiler assigned to a thread; -1 in the interpreter */
    size_t
        local_bytes; /* local memory of a thread: spilled registers, indexed locals; 0 in the interpreter */
} tvm_kernel_info;
tvm_status tvm_get_kernel_info(tvm_kernel *kernel, tvm_kernel_info *info);

/* A tensor of the caller: DLPack's DLTensor, of version 1 or before. In a program that includes
 * <dlpack/dlpack.h> before this header, tvm_tensor is DLTensor itself; in others it is this structure of the
 * same members. tvm_tensor(3) lists the types. */
#ifdef DLPACK_DLPACK_H_
typedef DLTensor tvm_tensor;
#else
typedef struct tvm_tensor_device {
    int32_t device_type; /* tvm_tensor_device_type */
    int32_t device_id;
} tvm_tensor_device;
typedef struct tvm_tensor_dtype {
    uint8_t code; /* tvm_tensor_code */
    uint8_t bits; /* of one lane */
    uint16_t lanes;
} tvm_tensor_dtype;
typedef struct tvm_tensor {
    void *data;
    tvm_tensor_device device;
    int32_t ndim;
    tvm_tensor_dtype dtype;
    int64_t *shape;
    int64_t *strides;     /* in elements; NULL: row-major and contiguous */
    uint64_t byte_offset; /* from data to the first element */
} tvm_tensor;
#endif

/* The numbers of DLPack's DLDeviceType and DLDataTypeCode. */
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

/* One argument; members that are not used are 0. A scalar is in i (integers and bool) or in f (floats). A
 * tensor is in `tensor`, whose type, shape, strides, device and alignment are then checked; or in `data`, an
 * address on the context's device that is 16-byte aligned. `bytes`, when not 0, is the size of the caller's
 * memory at `data`, which is checked against the declared shape. */
typedef struct tvm_value {
    int64_t i;
    double f;
    void *data;
    size_t bytes;
    const tvm_tensor *tensor;
} tvm_value;

/* Computes the extents of tensor parameter `index` for these arguments, of which only the scalars are read,
 * and its size in bytes; `bytes` may be NULL. */
tvm_status tvm_param_shape(const tvm_kernel *kernel, size_t index, const tvm_value *values, size_t count,
                           int64_t shape[8], size_t *bytes);

/* Names the kernel that a launch with these arguments runs: the kernel itself, or the variant that the entry
 * chooses. Only the scalars are read. It fails with TVM_ARGUMENT when no variant serves the arguments; the
 * message names the nearest that does. */
tvm_status tvm_kernel_variant(const tvm_kernel *kernel, const tvm_value *values, size_t count,
                              const char **name);

/* Translates and loads the kernel now, so that its first launch does not. For an entry it does so for every
 * variant that this device may run, several at a time. */
tvm_status tvm_prepare(tvm_kernel *kernel);
/* Tells where the code of the program's first prepared kernel comes from (each kernel is prepared by itself):
 * "cubin for sm_90a, from the cache, by nvJitLink 13.0", "PTX for sm_80, compiled by the driver",
 * "interpreted"; "" before any kernel is prepared. The string lives as long as the program. */
const char *tvm_code_origin(const tvm_program *program);

/* Prepares the kernel, and allocates the memory that its launches with these scalars need on this stream for
 * tensors of alloc-global, so that the launches allocate nothing. Without this call the first launch
 * allocates the memory, also while the stream is being captured into a CUDA graph; the allocation is no part
 * of the graph. Of the values only the scalars are read. The memory belongs to the stream until the context
 * is freed: two streams never share it. A captured launch uses the memory of the stream it was captured on,
 * so its graph must not run while other launches use that memory. */
tvm_status tvm_reserve(tvm_kernel *kernel, void *stream, const tvm_value *values, size_t count);

/* Launches the kernel on a stream (a CUstream; NULL is the default stream). A launch on a GPU is
 * asynchronous; the interpreter ignores the stream and has finished when the call returns. The arguments
 * follow in the kernel's order: bool and i32 as int, u32 as unsigned, i64 as int64_t, u64 as uint64_t, f32
 * and f64 as double, tensors as pointers. tvm_launchv takes them from an array. Either fails with
 * TVM_ARGUMENT when an assume does not hold, an extent is negative, a pointer is misaligned, a tensor is too
 * small, or no variant of an entry serves the arguments. */
tvm_status tvm_launch(tvm_kernel *kernel, void *stream, ...);
tvm_status tvm_launchv(tvm_kernel *kernel, void *stream, const tvm_value *values, size_t count);

/* Makes a plain C function of a kernel, which returns a tvm_status as an int:
 *
 *     int function(parameters...)                  with stream_parameter: int function(void *stream, ...)
 *
 * The parameters are the kernel's, by their C types: bool as bool, i32 as int32_t, u32 as uint32_t, i64 as
 * int64_t, u64 as uint64_t, f32 as float, f64 as double, tensors as void *. The caller casts the function to
 * this type; any number of threads may call it at once. It is valid until tvm_unbind, or until the program is
 * freed. NULL options select the default stream. */
typedef void (*tvm_function)(void);
typedef struct tvm_bind_options {
    void *stream;         /* of every launch */
    int stream_parameter; /* when not 0, the first argument of each call is the stream instead */
} tvm_bind_options;
tvm_status tvm_bind(tvm_kernel *kernel, tvm_function *function);
tvm_status tvm_bind_with(tvm_kernel *kernel, const tvm_bind_options *options, tvm_function *function);
/* Frees a function of tvm_bind; it fails with TVM_NOT_FOUND when the function is none of this kernel. */
tvm_status tvm_unbind(tvm_kernel *kernel, tvm_function function);

/* Waits until the stream's launches have finished; reports a fault with the name of the kernel that was
 * launched last. */
tvm_status tvm_synchronize(tvm_context *context, void *stream);

/* Allocate, free, write and read memory of the context's device (host memory for the interpreter), for tools
 * and tests. Allocations are 256-byte aligned. */
tvm_status tvm_memory_alloc(tvm_context *context, size_t bytes, void **data);
tvm_status tvm_memory_free(tvm_context *context, void *data);
tvm_status tvm_memory_write(tvm_context *context, void *to, const void *from, size_t bytes);
tvm_status tvm_memory_read(tvm_context *context, void *to, const void *from, size_t bytes);

/* Measures the device time of one launch, in microseconds: the median of `repeats` launches, 0 for a number
 * that suits the device. On a GPU CUDA events are around replays of a CUDA graph; on the interpreter the wall
 * clock is read. */
tvm_status tvm_time(tvm_kernel *kernel, const tvm_value *values, size_t count, unsigned repeats,
                    double *microseconds);

/* How tvm_quantize chooses scales. MSE searches for those whose codes have the least squared error; ABSMAX
 * takes the least that hold the largest weight of a group. */
typedef enum tvm_scales { TVM_SCALES_MSE, TVM_SCALES_ABSMAX } tvm_scales;
typedef struct tvm_quantize_options {
    const char *type;  /* of the codes: "u1" to "u8", "i2" to "i8", "f3_e1m1" to "f8_e7m0" */
    tvm_scales scales; /* zero-initialised: TVM_SCALES_MSE */
    const float
        *importance; /* MSE's weights of the k rows' errors: mean squares of the inputs; NULL: equal */
    size_t importance_length; /* k; 0 without importance */
    unsigned threads;         /* 0: one per core */
} tvm_quantize_options;
/* Quantizes a matrix of weights [k, n], as tvm-pack(1) does; tvm_quantize(3) says how. All tensors are in
 * host memory, and none is kept. weights is f32, f16 or bf16, row-major or the transpose of a row-major [n,
 * k], as w.t() of torch's Linear is. The results go to memory of the caller, row-major: packed  u8 [k, b]: a
 * row is a compact bit string; b is the least number of bytes that hold n whole codes and end with a whole
 * code scales  f16 or bf16 [k / g, n]: the shape says how many rows, g, share a scale zeros   a zero point
 * for each scale, in the type and shape of scales; NULL: none A code's value is (code - zero) * scale with
 * zeros; without them it is (code - 2^(bits-1)) * scale for an unsigned type, and code * scale for others.
 * The call fails with TVM_ARGUMENT where a tensor is not as it should be, and the message names it; with
 * TVM_FORMAT where a weight is not finite or a scale is beyond the range of its type. Any number of threads
 * may call it at once. */
tvm_status tvm_quantize(tvm_context *context, const tvm_quantize_options *options, const tvm_tensor *weights,
                        const tvm_tensor *packed, const tvm_tensor *scales, const tvm_tensor *zeros);

/* A graph: launches of kernels and the tensors that they pass on, which then run as one. It is made of names.
 * Tensors come first, then launches in an order in which they may run; what waits for what follows from the
 * tensors that kernels read and write. tvm_graph_finish checks the whole and gives the temporaries memory. On
 * a GPU a replay is one launch of a CUDA graph; on the interpreter the launches run in their order.
 * tvm_graph(3) has the rules. All functions may be called by several threads at once, tvm_graph_free but for
 * the last. Names and descriptions are copied; programs must outlive the graph. They fail with TVM_USAGE
 * where a name is taken or unknown, or the graph is finished, or not yet; messages begin with the graph's
 * name. */
typedef struct tvm_graph tvm_graph;

typedef enum tvm_graph_role {
    TVM_GRAPH_INPUT,    /* of the caller: launches only read it */
    TVM_GRAPH_OUTPUT,   /* of the caller: launches write it before any reads it */
    TVM_GRAPH_STATE,    /* of the caller: launches read what it holds, and may write it, as a cache */
    TVM_GRAPH_TEMPORARY /* of the graph, which plans its memory: launches write it before any reads it */
} tvm_graph_role;

tvm_status tvm_graph_create(tvm_context *context, const char *name, tvm_graph **graph);
/* NULL is fine. The caller waits for its launches first. */
void tvm_graph_free(tvm_graph *graph);
/* Declares a tensor: shape, type, strides, and, unless it is a temporary, where it lies; `data` may be NULL
 * until tvm_graph_set_tensor. The device of a temporary is not looked at. */
tvm_status tvm_graph_add_tensor(tvm_graph *graph, const char *name, tvm_graph_role role,
                                const tvm_tensor *tensor);
/* Declares a part of a tensor by the name `whole`: what begins byte_offset bytes after its first element, a
 * multiple of 16, and ends within it. The part's device and data are not looked at. */
tvm_status tvm_graph_add_part(tvm_graph *graph, const char *name, const char *whole, const tvm_tensor *part);
/* Declares a scalar of a kernel's type ("i32", "f32"), which tvm_graph_set_scalar can change later. */
tvm_status tvm_graph_add_scalar(tvm_graph *graph, const char *name, const char *type, const tvm_value *value);
/* An argument: the name of a tensor or scalar of the graph; or NULL and a scalar's value (of a tensor without
 * elements nothing). */
typedef struct tvm_graph_argument {
    const char *name;
    tvm_value value;
} tvm_graph_argument;
/* Adds a launch of a kernel or entry of the graph's context. `after` names earlier launches that it has to
 * follow though no tensor says so. It fails with TVM_ARGUMENT where an argument is none for its parameter, an
 * input is written, or what no earlier launch writes is read. */
tvm_status tvm_graph_add_launch(tvm_graph *graph, const char *name, tvm_kernel *kernel,
                                const tvm_graph_argument *arguments, size_t count, const char *const *after,
                                size_t after_count);
/* Makes a graph of a text (tvm-run(1) runs such files, vasm(5) has the syntax), up to tvm_graph_finish: more
 * can be added. It has the programs that the text names, and frees them with itself. `arguments` are the
 * parameters by name: of each scalar its value, and of tensors what is known of them, `tensor` or `data`;
 * others wait for tvm_graph_set_tensor. Names of temporaries and parts begin with '%'. A scalar that no
 * expression of the text reads, but launches take as it is, can be set later. The text and options are those
 * of tvm_assemble. It fails as tvm_assemble and the functions above do. */
tvm_status tvm_graph_assemble(tvm_context *context, const char *text, size_t length,
                              const tvm_assemble_options *options, const tvm_graph_argument *arguments,
                              size_t count, tvm_graph **graph);
/* What a graph does with a tensor of that name, be it the caller's, a temporary or a part. */
tvm_status tvm_graph_get_role(tvm_graph *graph, const char *name, tvm_graph_role *role);
/* A GPU runs the graph as one persistent kernel, whose blocks take the blocks of the launches one after the
 * other; before tvm_graph_finish. Then tvm_graph_launch, too, fails with TVM_UNSUPPORTED where a kernel
 * cannot be a part of one, and with TVM_LIMIT where blocks that wait for each other would not run at a time;
 * tvm_graph(3) says which. */
tvm_status tvm_graph_set_persistent(tvm_graph *graph);
/* Finishes the graph: derives what waits for what, checks every launch's arguments, plans and allocates the
 * temporaries' memory, and prepares the kernels. TVM_ARGUMENT where a tensor is not used, or an output not
 * written; else as tvm_launch and tvm_prepare. After a failure the graph can only be freed. */
tvm_status tvm_graph_finish(tvm_graph *graph);
/* Moves an input, output or state of a finished graph to other memory, for launches from now on. Type, shape
 * and strides are those it was declared with, else TVM_ARGUMENT. */
tvm_status tvm_graph_set_tensor(tvm_graph *graph, const char *name, const tvm_tensor *tensor);
tvm_status tvm_graph_set_scalar(tvm_graph *graph, const char *name, const tvm_value *value);
/* Runs a finished graph on a stream, as tvm_launch does a kernel. Where tensors or scalars have changed since
 * the last launch the arguments are checked as tvm_launch checks them: TVM_ARGUMENT, also where two launches
 * touch the same memory, one writes, and none waits for the other; nothing runs then. A launch waits for
 * earlier launches of the same graph, on whatever stream. */
tvm_status tvm_graph_launch(tvm_graph *graph, void *stream);
/* Describes a finished graph: memory, and for each launch what it runs and waits for, a line each. *text is
 * malloc'ed; the caller frees it. */
tvm_status tvm_graph_report(tvm_graph *graph, char **text);

/* Writes a timeline of the context to `path`, from here to tvm_trace_stop (or tvm_context_free), as Chrome's
 * trace events (JSON), which Perfetto and chrome://tracing show. It has the translations, runs of ptxas,
 * loads, launches and waits of all threads, and each launch on the GPU, of a kernel or a tvm_graph, between
 * two events, unless it was captured. Launches cost more meanwhile. tvm_trace_stop waits for the launches.
 * They fail with TVM_IO when the file cannot be written; with TVM_USAGE when a timeline is being written
 * already, or none is. */
tvm_status tvm_trace_start(tvm_context *context, const char *path);
tvm_status tvm_trace_stop(tvm_context *context);

#ifdef __cplusplus
}
#endif
#endif
