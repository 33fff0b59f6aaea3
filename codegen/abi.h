/* A kernel's ABI: what a launch of its code has to know. The code generator makes it with the code;
 * launching, embedding and caching read it. An entry point's parameters are the rows of the table, in its
 * order, each at its offset: there is no other agreement on where a parameter is. */
#ifndef TVM_CODEGEN_ABI_H
#define TVM_CODEGEN_ABI_H

#include "program.h"

enum {
    TVM_ABI_DEVICE = 3 + TVM_CAPABILITY_COUNT + TVM_LIMIT_COUNT, /* rows of what device and context give */
    TVM_ABI_PARAMS = 2 * TVM_MAX_PARAMS + TVM_MAX_LAUNCH_TENSORS + TVM_ABI_DEVICE, /* rows */
    TVM_ABI_PARAM_BYTES = 4096,     /* PTX ISA, "Kernel Function Parameters": 4352 before PTX 8.1 */
    TVM_ABI_TENSOR_MAP_BYTES = 128, /* CUDA Driver API, CUtensorMap */
    TVM_ABI_TENSOR_MAP_ALIGNMENT = 64,
    TVM_ABI_TENSOR_MAPS = 24,    /* of a kernel: the room for parameters holds them beside all others */
    TVM_ABI_TENSOR_MAP_RANK = 5, /* the most dimensions of one */
    TVM_ABI_BOX_EXTENT = 256,    /* the most of a box in a dimension */
    TVM_ABI_BOX_GRANULE = 16,    /* bytes: a box's rows and a tensor's strides are multiples */
    TVM_ABI_SPREAD_GRANULE = 32  /* the same of a tensor whose elements are spread, and its address */
};

/* What a launch puts there. */
typedef enum tvm_abi_kind {
    TVM_ABI_INTEGER,    /* the value of scalar parameter `index` of the program's kernel; of a bool 0 or 1 */
    TVM_ABI_FLOAT,      /* the same, of type f32 or f64 */
    TVM_ABI_TENSOR,     /* the address of tensor parameter `index` */
    TVM_ABI_TENSOR_MAP, /* the CUtensorMap that maps[index] describes */
    TVM_ABI_SCRATCH, /* the address of tensor `index` of the launch (tvm_launch_tensors), 256-byte aligned */
    TVM_ABI_SCRATCH_CLEAN,   /* the same, of one that is zero between launches */
    TVM_ABI_MULTIPROCESSORS, /* of the device */
    TVM_ABI_TARGET,          /* the architecture that code is made for on the device: 80, 90, ... */
    TVM_ABI_CAPABILITY,      /* does it have capability `index`? 0 or 1 */
    TVM_ABI_LIMIT,           /* its limit `index` */
    TVM_ABI_TURNS,           /* how many turns a thread may make; code that counts them has the row */
    TVM_ABI_KINDS
} tvm_abi_kind;

typedef struct tvm_abi_param {
    uint8_t kind;    /* tvm_abi_kind */
    uint8_t width;   /* bytes; it lies at a multiple of that, a tensor map at one of 64 */
    uint16_t index;  /* of the kinds that have one, else 0 */
    uint32_t offset; /* bytes from the first parameter */
} tvm_abi_param;

/* What an element of a tensor map is to TMA: bits that it moves, or what it adds up. */
typedef enum tvm_abi_element {
    TVM_ABI_BITS8,
    TVM_ABI_BITS16,
    TVM_ABI_BITS32,
    TVM_ABI_BITS64,
    TVM_ABI_I32,
    TVM_ABI_I64,
    TVM_ABI_F16,
    TVM_ABI_BF16,
    TVM_ABI_F32,
    TVM_ABI_F64,
    /* 16 of 4 bits, or 6, in 16 bytes of shared memory, of which they fill the first 8 or 12 */
    TVM_ABI_SPREAD4,
    TVM_ABI_SPREAD6,
    TVM_ABI_ELEMENTS
} tvm_abi_element;
/* In shared memory: 1, 2, 4 or 8. */
unsigned tvm_abi_element_bytes(unsigned element);
/* In the tensor. */
unsigned tvm_abi_element_bits(unsigned element);
/* Is it one of those whose tensors are read in rows of whole 128 elements (TVM_SPREAD_ROW), which begin at
 * multiples of 32 bytes (CUDA Driver API, cuTensorMapEncodeTiled)? */
bool tvm_abi_element_spreads(unsigned element);

/* How 16-byte chunks of a box are exchanged in shared memory: within spans of that many bytes, which a row of
 * the box does not exceed (CUDA Driver API, CUtensorMapSwizzle). */
typedef enum tvm_abi_swizzle {
    TVM_ABI_SWIZZLE_NONE,
    TVM_ABI_SWIZZLE_32,
    TVM_ABI_SWIZZLE_64,
    TVM_ABI_SWIZZLE_128,
    TVM_ABI_SWIZZLES
} tvm_abi_swizzle;

/* A tensor as TMA sees it: boxes of it go from or to shared memory; what lies outside is
 * read as zero bits and not written. All dimensions are the tensor's, in steps of its strides; an element is
 * one of the tensor's, or several of a row, which is the dimension whose elements are neighbours in memory.
 * Launches make the CUtensorMap of it: not interleaved, zero fill; its innermost dimension is that of rows,
 * then come the others, the tensor's last one first. */
typedef struct tvm_abi_map {
    uint16_t tensor;   /* parameter, or param_count + number of a tensor of the launch (tvm_launch_tensors) */
    uint8_t element;   /* tvm_abi_element */
    uint8_t rank;      /* the tensor's */
    uint8_t swizzle;   /* tvm_abi_swizzle */
    uint8_t promotion; /* a read fetches so many times 64 bytes at once to the L2: 0 (no more than it needs),
                          1, 2, 4 */
    uint8_t is_written; /* 0 or 1: boxes go to the tensor */
    uint16_t view;      /* one more than the slot of a view with strides of its own, which begins where
                           the tensor does and is what the map is of; 0: it is of the tensor */
    uint8_t row;        /* the dimension of rows, counted from the last one: 0 in row-major order */
    uint16_t box[TVM_ABI_TENSOR_MAP_RANK]; /* extents in elements, in the tensor's order of dimensions */
} tvm_abi_map;

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
    uint32_t map_count; /* each is one row's */
    tvm_abi_map maps[TVM_ABI_TENSOR_MAPS];
} tvm_kernel_abi;

/* The tensor's dimension that is dimension d of the CUtensorMap, 0 being the innermost one. */
static inline unsigned tvm_abi_map_dim(const tvm_abi_map *map, unsigned d) {
    unsigned row = map->rank - 1U - map->row, at = map->rank - d;
    return d == 0 ? row : at > row ? at : at - 1;
}

/* Appends a row. Its number; TVM_NONE when the table or the room for parameters is full. */
uint32_t tvm_abi_add(tvm_kernel_abi *abi, tvm_abi_kind kind, unsigned width, uint32_t index);
/* The row of such a tensor map, which is appended where there is none yet. TVM_NONE when the table or the
 * room is full. */
uint32_t tvm_abi_add_map(tvm_kernel_abi *abi, const tvm_abi_map *map);
/* The slot of the global tensor that a map's number stands for; TVM_NONE: the kernel has no such tensor. */
uint32_t tvm_abi_map_slot(const tvm_ir_kernel *kernel, const tvm_abi_map *map);
/* The first row of the kind and index; TVM_NONE: there is none. */
uint32_t tvm_abi_find(const tvm_kernel_abi *abi, tvm_abi_kind kind, uint32_t index);
/* Bytes that a parameter's address is a multiple of. */
unsigned tvm_abi_alignment(const tvm_abi_param *param);
/* The row of parameter `p` of a kernel: kind, width and index. */
tvm_abi_param tvm_abi_declared(const tvm_ir_kernel *kernel, uint32_t p);

/* As 32-bit numbers, in which embedded and cached code keeps the ABI of a program's kernels: a version of
 * this encoding, then of each kernel absence  threads  shared_bytes  cluster[3]  flags  rows  { kind | width
 * << 8 | index << 16 }[rows]  maps, as many as rows are of that kind: { tensor | element << 16 | rank << 24
 * swizzle | promotion << 8 | is_written << 16  box[0] | box[1] << 16  box[2] | box[3] << 16  box[4] } */
enum { TVM_ABI_ENCODING = 2 };
/* Numbers that `count` kernels take; `words` (NULL: they are only counted) has room for them. */
size_t tvm_abi_encode(const tvm_kernel_abi *const *abis, uint32_t count, uint32_t *words);
/* Reads what tvm_abi_encode has written of the program's kernels for a target, its architecture and traits:
 * *abis is malloc'ed and in the program's order (abis NULL: it is only checked). TVM_FORMAT, without a
 * message, when the numbers are no encoding, or say what no code of these kernels can; TVM_NO_MEMORY. */
tvm_status tvm_abi_decode(const uint32_t *words, size_t count, const tvm_ir_program *program, unsigned arch,
                          const tvm_target_traits *traits, tvm_kernel_abi **abis);

#endif
