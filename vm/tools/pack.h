/* Weights quantized and packed: tvm-pack(1). */
#ifndef TVM_VM_PACK_H
#define TVM_VM_PACK_H

#include "work.h"
#include "types.h"

typedef enum pack_codes_given {
    PACK_WEIGHTS,    /* floats, to be quantized */
    PACK_CODES,      /* codes, one to a byte */
    PACK_BIT_STRINGS /* codes, rows of whole bytes */
} pack_codes_given;

typedef struct pack_options {
    const char *input, *output;
    const char *tensor;         /* of a .safetensors file; NULL: the only one */
    const char *layout;         /* .vbc; NULL: rows of compact bit strings */
    const char *kernel;         /* of it; NULL: "pack" */
    const char *scales, *zeros; /* of codes given: FILE.npy or FILE.safetensors:NAME, or NULL */
    tvm_dtype type;             /* kind TVM_KIND_NONE: the layout's */
    uint64_t group;             /* rows that share a scale; 0: all */
    bool own_zeros;             /* a zero point to a group */
    tvm_dtype scale_type;       /* f16 or bf16 */
    bool search;             /* scales of the least squared error; else those that hold the largest weight */
    const char *activations; /* numbers by whose size the rows' errors count, FILE.npy or
                                FILE.safetensors:NAME; NULL: alike */
    bool transpose;          /* the input is [n, k] */
    pack_codes_given given;
    unsigned threads; /* 0: one a core */
    tvm_work_progress progress;
    tvm_diags *warnings; /* gets warnings of scales that underflow; NULL: they are not wanted */
} pack_options;

/* Writes options->output, whole or not at all. */
tvm_status tvm_pack(const pack_options *options, tvm_diags *diags);

/* Turns codes back into weights of options->type f32, f16 or bf16, in a .npy file, or in a .safetensors file
 * (tensor `weight`) where the output's name ends in .safetensors. It reads the options input, output, layout,
 * kernel, type, threads and progress. */
tvm_status tvm_unpack(const pack_options *options, tvm_diags *diags);

#endif
