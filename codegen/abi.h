/* A kernel's ABI: what a launch of its code has to know. The code generator makes it with the code;
 * launching, embedding and caching read it. An entry point's parameters are the rows of the table, in its
 * order, each at its offset: there is no other agreement on where a parameter is. */
#ifndef TVM_CODEGEN_ABI_H
#define TVM_CODEGEN_ABI_H

#include "program.h"

enum {
    TVM_ABI_PARAMS = 2 * TVM_MAX_PARAMS + TVM_MAX_LAUNCH_TENSORS + 2, /* rows */
    TVM_ABI_PARAM_BYTES = 4096,     /* PTX ISA, "Kernel Function Parameters": 4352 before PTX 8.1 */
    TVM_ABI_TENSOR_MAP_BYTES = 128, /* CUDA Driver API, CUtensorMap */
    TVM_ABI_TENSOR_MAP_ALIGNMENT = 64
};

/* What a launch puts there. */
typedef enum tvm_abi_kind {
    TVM_ABI_INTEGER,    /* the value of scalar parameter `index` of the program's kernel; of a bool 0 or 1 */
    TVM_ABI_FLOAT,      /* the same, of type f32 or f64 */
    TVM_ABI_TENSOR,     /* the address of tensor parameter `index` */
    TVM_ABI_TENSOR_MAP, /* the CUtensorMap of tensor parameter `index` */
    TVM_ABI_SCRATCH, /* the address of tensor `index` of the launch (tvm_launch_tensors), 256-byte aligned */
    TVM_ABI_SCRATCH_CLEAN,   /* the same, of one that is zero between launches */
    TVM_ABI_MULTIPROCESSORS, /* of the device */
    TVM_ABI_TARGET,          /* the architecture that code is made for on the device: 80, 90, ... */
    TVM_ABI_KINDS
} tvm_abi_kind;

typedef struct tvm_abi_param {
    uint8_t kind;    /* tvm_abi_kind */
    uint8_t width;   /* bytes; it lies at a multiple of that, a tensor map at one of 64 */
    uint16_t index;  /* of the kinds that have one, else 0 */
    uint32_t offset; /* bytes from the first parameter */
} tvm_abi_param;

/* Why a module has no code for a kernel. */
typedef enum tvm_abi_absence {
    TVM_ABI_PRESENT,
    TVM_ABI_OTHER_TARGET, /* an assume excludes the target */
    TVM_ABI_TOO_BIG,      /* it needs more shared memory than a block of the target has */
    TVM_ABI_ABSENCES
} tvm_abi_absence;

enum {
    /* The launch may begin before the one before it on the stream has ended: the code waits. */
    TVM_ABI_WAITS_FOR_DEPENDENCY = 1,
    TVM_ABI_LAUNCHES_DEPENDENTS = 2,
    TVM_ABI_FLAGS = 3 /* all */
};

typedef struct tvm_kernel_abi {
    uint32_t absence;      /* tvm_abi_absence; not PRESENT: what follows but shared_bytes is zero */
    uint32_t threads;      /* of a block */
    uint32_t shared_bytes; /* dynamic shared memory of a block; of one that is TOO_BIG what it needs */
    uint32_t cluster[3];   /* blocks of a cluster, by axis: the grid's extents are multiples */
    uint32_t flags;
    uint32_t param_count, param_bytes;
    tvm_abi_param params[TVM_ABI_PARAMS];
} tvm_kernel_abi;

/* Appends a row. Its number; TVM_NONE when the table or the room for parameters is full. */
uint32_t tvm_abi_add(tvm_kernel_abi *abi, tvm_abi_kind kind, unsigned width, uint32_t index);
/* The first row of the kind; TVM_NONE: there is none. */
uint32_t tvm_abi_find(const tvm_kernel_abi *abi, tvm_abi_kind kind);
/* Bytes that a parameter's address is a multiple of. */
unsigned tvm_abi_alignment(const tvm_abi_param *param);
/* The row of parameter `p` of a kernel: kind, width and index. */
tvm_abi_param tvm_abi_declared(const tvm_ir_kernel *kernel, uint32_t p);

/* As 32-bit numbers, in which embedded and cached code keeps the ABI of a program's kernels: a version of
 * this encoding, then of each kernel absence  threads  shared_bytes  cluster[3]  flags  rows  { kind | width
 * << 8 | index << 16 }[rows] */
enum { TVM_ABI_ENCODING = 1 };
/* Numbers that `count` kernels take; `words` (NULL: they are only counted) has room for them. */
size_t tvm_abi_encode(const tvm_kernel_abi *const *abis, uint32_t count, uint32_t *words);
/* Reads what tvm_abi_encode has written of the program's kernels for a target's architecture: *abis is
 * malloc'ed and in the program's order (abis NULL: it is only checked). TVM_FORMAT, without a message, when
 * the numbers are no encoding, or say what no code of these kernels can; TVM_NO_MEMORY. */
tvm_status tvm_abi_decode(const uint32_t *words, size_t count, const tvm_ir_program *program, unsigned arch,
                          tvm_kernel_abi **abis);

#endif
