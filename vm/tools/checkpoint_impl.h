/* What an import works on, shared by checkpoint_bitsandbytes.c, checkpoint_codes.c, checkpoint_files.c,
 * checkpoint_formats.c and checkpoint_write.c. Data flow: files are opened and mapped (files); config.json is
 * read and every tensor's name is looked up in the table of formats, which makes layers of them (formats);
 * these are written, piece by piece on all threads (write). */
#ifndef TVM_VM_CHECKPOINT_IMPL_H
#define TVM_VM_CHECKPOINT_IMPL_H

#include "checkpoint.h"
#include "safetensors.h"

#include <string.h>

/* A .safetensors file in memory. */
typedef struct ck_file {
    char *path;
    const char *name; /* its last part */
    int descriptor;
    const uint8_t *bytes;
    size_t size;
    tvm_safetensors tensors;
} ck_file;

/* A tensor of one of the files; data NULL: there is none of this name. */
typedef struct ck_tensor {
    const tvm_safetensor *header;
    const uint8_t *data;
    size_t file;
} ck_tensor;

/* What the configuration of a model says. */
typedef struct ck_config {
    char method[32];  /* quant_method, in small letters; "" where there is no configuration */
    char version[32]; /* checkpoint_format of GPTQ, version of AWQ; "" */
    unsigned bits;    /* 0: not said */
    char path[256];   /* the file; "" */
} ck_config;

/* A matrix, or a stack of `count` matrices, whose weights are quantized: W [k, n] each. */
typedef struct ck_layer {
    const struct ck_format *format;
    char *name; /* what its tensors begin with */
    size_t file;
    ck_tensor codes, scales, zeros, order_tensor;
    bool stacked; /* its tensors have a first dimension, of `count` */
    uint64_t count, k, n, group;
    tvm_dtype type;
    unsigned bits;
    const char
        *table; /* "nf4", "fp4": codes of u4 whose values are those of a table; NULL: numbers of the type */
    bool upper_first; /* of the two codes of a byte */
    /* Scales that are codes themselves: values[code] * outer[i / outer_group] + offset, in f32; outer.data
     * NULL: none */
    ck_tensor values, outer;
    uint64_t outer_group;
    float offset;
    bool own_zeros;
    bool plus_one;                      /* GPTQ: zero points are one more than what is stored */
    uint32_t *order;                    /* row i of W is row order[i] of what is stored; NULL: i */
    uint64_t block_rows, block_columns; /* of weights that share a scale, where formats have such blocks */
    double multiplier;                  /* of all values; has_multiplier: written */
    bool has_multiplier;
    tvm_dtype scale_type; /* kind TVM_KIND_NONE until it is chosen */
    double rescale;       /* what scales are divided by before they are rounded: a power of two */
    uint64_t inexact;     /* scales that rounding changed, and by how much of themselves at the most */
    double worst;
} ck_layer;

struct checkpoint;

/* A row of the table of formats. */
typedef struct ck_format {
    const char *name;   /* as --from has it */
    const char *suffix; /* of the tensor with the codes */
    /* Is the layer one of this format? Its name and codes are set. */
    bool (*matches)(const struct checkpoint *c, const ck_layer *layer);
    /* Fills in the layer and checks its tensors. */
    tvm_status (*plan)(const struct checkpoint *c, ck_layer *layer, tvm_diags *diags);
    /* Codes of rows, as W has them before `order`, rows[0 .. count), columns [column, column + columns) of
     * matrix `index`: to[i * stride + j]. */
    void (*take)(const ck_layer *layer, uint64_t index, const uint64_t *rows, uint64_t count, uint64_t column,
                 uint64_t columns, uint8_t *to, size_t stride);
    double (*scale)(const ck_layer *layer, uint64_t index, uint64_t group, uint64_t column);
    unsigned (*zero)(const ck_layer *layer, uint64_t index, uint64_t group, uint64_t column);
} ck_format;

typedef struct checkpoint {
    const checkpoint_options *options;
    bool folder;
    ck_file *files;
    size_t file_count;
    ck_tensor *tensors; /* of all files, by name */
    size_t tensor_count;
    ck_config config;
    ck_layer *layers;
    size_t layer_count;
} checkpoint;

/* ---- checkpoint_files.c */

/* Opens the input and sorts its tensors; reads the configuration beside it. */
tvm_status ck_open(checkpoint *c, tvm_diags *diags);
void ck_close(checkpoint *c);
/* Tensor `name` + `suffix`. */
ck_tensor ck_find(const checkpoint *c, const char *name, const char *suffix);

/* ---- checkpoint_formats.c */

/* Makes the layers. */
tvm_status ck_find_layers(checkpoint *c, tvm_diags *diags);
/* Does the tensor belong to a layer, so that it is not copied? */
bool ck_is_consumed(const checkpoint *c, const char *name);

/* Adds an error that names the layer; returns the status. */
tvm_status ck_refuse(const checkpoint *c, const ck_layer *layer, tvm_status status, tvm_diags *diags,
                     const char *format, ...) __attribute__((format(printf, 5, 6)));
static inline bool ck_has_type(const ck_tensor *tensor, tvm_dtype type) {
    return tensor->data && tvm_dtype_same(tensor->header->type, type);
}

/* ---- checkpoint_bitsandbytes.c: a row of the table of formats */

bool ck_is_bitsandbytes(const checkpoint *c, const ck_layer *layer);
tvm_status ck_plan_bitsandbytes(const checkpoint *c, ck_layer *layer, tvm_diags *diags);
double ck_scale_bitsandbytes(const ck_layer *layer, uint64_t index, uint64_t group, uint64_t column);

/* ---- checkpoint_codes.c: ck_format.take of several formats */

static inline uint32_t ck_word_at(const uint8_t *data, uint64_t index) {
    uint32_t word;
    memcpy(&word, data + 4 * index, sizeof word);
    return word;
}

/* `bits` bits of a string that begins at `data`; those of a code lie in one or two bytes. */
static inline unsigned ck_string_at(const uint8_t *data, uint64_t bit, unsigned bits) {
    unsigned shift = bit % 8, value = data[bit / 8];
    if (shift + bits > 8) value |= (unsigned)data[bit / 8 + 1] << 8;
    return value >> shift & ((1u << bits) - 1);
}

/* The place of a column in a word of AWQ's, whose columns are in the order 0 2 4 6 1 3 5 7. */
static inline unsigned ck_awq_shift(uint64_t column) {
    return (unsigned)((column % 2 * 4 + column % 8 / 2) * 4);
}

void ck_take_gptq(const ck_layer *layer, uint64_t index, const uint64_t *rows, uint64_t count,
                  uint64_t column, uint64_t columns, uint8_t *to, size_t stride);
/* Columns begin at a multiple of 8. */
void ck_take_awq(const ck_layer *layer, uint64_t index, const uint64_t *rows, uint64_t count, uint64_t column,
                 uint64_t columns, uint8_t *to, size_t stride);
/* Codes of columns of W, each a row of the file: the codes of a word of 32 bits stand in it, and what is left
 * over of it is not used. */
void ck_take_turned(const ck_layer *layer, uint64_t index, const uint64_t *rows, uint64_t count,
                    uint64_t column, uint64_t columns, uint8_t *to, size_t stride);

/* ---- checkpoint_write.c */

tvm_status ck_write(checkpoint *c, tvm_diags *diags);

#endif
