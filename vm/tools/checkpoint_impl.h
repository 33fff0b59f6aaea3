/* What an import works on, shared by the checkpoint_*.c. Data flow: files are opened and mapped (files; gguf
 * gives the tensors of such a file their names); config.json is read and every tensor's name is looked up in
 * the table of formats (formats), whose rows make layers of them (integers, floats, bitsandbytes, blocks;
 * codes take the codes out); the type of scales is chosen, and by how much weights change is found (scales);
 * layers are written, piece by piece on all threads (write), and the files beside them (beside). */
#ifndef TVM_VM_CHECKPOINT_IMPL_H
#define TVM_VM_CHECKPOINT_IMPL_H

#include "checkpoint.h"
#include "convert.h"
#include "safetensors.h"

#include <string.h>

/* How a tensor of a GGUF file differs from that of transformers' model. */
typedef struct ck_change {
    uint64_t heads; /* rows are those of so many heads, each moved (ck_row_of_file); 0: they are not */
    float added;    /* to each number */
    bool plain;     /* weights of no linear layer: they are written as floats */
} ck_change;

/* A .safetensors or GGUF file in memory. */
typedef struct ck_file {
    char *path;
    const char *name; /* its last part */
    int descriptor;
    const uint8_t *bytes;
    size_t size;
    tvm_safetensors tensors;
    ck_change *changes; /* of each tensor of a GGUF file; NULL: of another file */
} ck_file;

/* A tensor of one of the files; data NULL: there is none of this name. */
typedef struct ck_tensor {
    const tvm_safetensor *header;
    const uint8_t *data;
    const ck_change *change; /* NULL: of a file that is not GGUF */
    size_t file;
} ck_tensor;

/* What the configuration of a model says. */
typedef struct ck_config {
    char method[32];            /* quant_method, in small letters; "" where there is no configuration */
    char checkpoint_format[32]; /* of GPTQ, likewise */
    char version[32];           /* of AWQ's layout, or of compressed-tensors */
    char linear_class[32];      /* of BitNet */
    uint64_t widths;            /* bit b: there are codes of b bits; 0: not said */
    uint64_t groups;            /* bit b: there are groups of 2^b inputs */
    uint64_t block[2];          /* outputs and inputs of weights that share a scale; 0: not said */
    char path[256];             /* the file; "" */
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
    uint64_t
        pitch; /* bytes from the codes of a column to those of the next, where columns are rows of the file */
    bool dense;  /* codes of such rows are one string of bits; else words of 32 bits have whole codes */
    bool planar; /* GPTQ: bits of a code lie in words of their own */
    const char
        *table; /* "nf4", "fp4": codes of u4 whose values are those of a table; NULL: numbers of the type */
    bool upper_first; /* of the two codes of a byte */
    /* Scales that are codes themselves: values[code] * outer[i / outer_group] + offset, in f32; outer.data
     * NULL: none */
    ck_tensor values, outer;
    uint64_t outer_group;
    float offset;
    bool own_zeros;
    bool has_offsets; /* what code 0 means is stored, in place of a zero point: format->offset */
    const struct ck_blocks *blocks; /* the type of a GGUF file's tensor */
    bool plain;                     /* the weights are written as floats of float_type */
    uint32_t *place_of;             /* of a layer of ours with an order: its row that has input i */
    uint32_t *group_of;             /* of such a layer with an order: the group of each stored row */
    tvm_dtype float_type;
    bool plus_one;   /* GPTQ: zero points are one more than what is stored */
    uint32_t *order; /* row i of W is row order[i] of what is stored; NULL: i */
    uint64_t block_rows,
        block_columns;    /* of W, which share a scale; a multiple of group, or it is one of block_rows */
    tvm_dtype numbers;    /* what the scales are: E8M0 where files say U8 */
    double *input_scales; /* of each group of rows, beside `scales`; NULL: 1 */
    double multiplier;    /* of all values; has_multiplier: written */
    bool has_multiplier;
    tvm_dtype scale_type; /* kind TVM_KIND_NONE until it is chosen */
    double rescale;       /* what scales are divided by before they are rounded: a power of two */
    uint64_t inexact;     /* scales and zero points that rounding changed */
    bool has_constants;   /* there are groups of constant weights: ck_group */
    double lost, norm;    /* sums of the squares of what weights change by, and of weights, where some do */
} ck_layer;

struct checkpoint;

/* A row of the table of formats. */
typedef struct ck_format {
    const char *name;           /* as --from has it */
    const char *codes, *scales; /* how the names of the tensors end that have them */
    /* Is the layer one of this format? Its name, codes and scales are set. */
    bool (*matches)(const ck_layer *layer);
    /* Fills in the layer and checks its tensors. Other tensors than codes and scales are claimed. The codes
     * are more than 0 bytes, so that no extent of theirs is above their number. */
    tvm_status (*plan)(const struct checkpoint *c, ck_layer *layer, tvm_diags *diags);
    /* Codes of rows, as W has them before `order`, rows[0 .. count), columns [column, column + columns) of
     * matrix `index`: to[i * stride + j]. */
    void (*take)(const ck_layer *layer, uint64_t index, const uint64_t *rows, uint64_t count, uint64_t column,
                 uint64_t columns, uint8_t *to, size_t stride);
    double (*scale)(const ck_layer *layer, uint64_t index, uint64_t group, uint64_t column);
    double (*zero)(const ck_layer *layer, uint64_t index, uint64_t group, uint64_t column);
    double (*offset)(const ck_layer *layer, uint64_t index, uint64_t group,
                     uint64_t column); /* has_offsets */
} ck_format;

/* How layers are written. */
typedef enum ck_target { CK_OURS, CK_GPTQ, CK_COMPRESSED } ck_target;
typedef struct ck_plan {
    ck_target target;
    unsigned bits;  /* of all layers; so for those that follow */
    uint64_t group; /* 0: all inputs */
    bool own_zeros, ordered;
    bool
        zero_at_0; /* there are zero points of 0, which GPTQ's first version, that stores one less, has not */
} ck_plan;

typedef struct checkpoint {
    const checkpoint_options *options;
    bool folder;
    ck_file *files;
    size_t file_count;
    ck_tensor *tensors; /* of all files, by name */
    uint8_t
        *claimed; /* of each of them: it is not copied, as a layer has taken it, or it tells of activations */
    size_t tensor_count;
    char **beside; /* names of files of the folder that are copied */
    size_t beside_count;
    ck_config config;
    ck_layer *layers; /* by name, when all are found */
    size_t layer_count;
    ck_plan plan;
} checkpoint;

/* ---- checkpoint_files.c */

/* Opens the input and sorts its tensors; reads the configuration beside it. */
tvm_status ck_open(checkpoint *c, tvm_diags *diags);
void ck_close(checkpoint *c);
/* Tensor `name` + `suffix`; claimed, it is the layer's own. */
ck_tensor ck_find(const checkpoint *c, const char *name, const char *suffix);
ck_tensor ck_claim(const checkpoint *c, const char *name, const char *suffix);

/* ---- checkpoint_gguf.c */

bool ck_is_gguf(const ck_file *file);
/* Reads the head of a GGUF file in memory: its tensors, under transformers' names. */
tvm_status ck_read_gguf(ck_file *file, tvm_diags *diags);
/* The row of the file that is row `row` of the tensor. llama.cpp's converter has, of each head of h rows, row
 * half * h / 2 + i at 2 * i + half. */
uint64_t ck_row_of_file(const ck_tensor *tensor, uint64_t row);

/* ---- checkpoint_beside.c */

/* Finds the files to copy, before anything is written: those that a link in the folder names must lie in it.
 */
tvm_status ck_find_beside(checkpoint *c, tvm_diags *diags);
/* Copies them; config.json says how the model is quantized now. */
tvm_status ck_copy_beside(const checkpoint *c, tvm_diags *diags);
/* A small file of the output's folder, whole or not at all. */
tvm_status ck_write_json(const char *folder, const char *name, void *json, tvm_diags *diags);

/* ---- checkpoint_formats.c */

/* Makes the layers. */
tvm_status ck_find_layers(checkpoint *c, tvm_diags *diags);

/* Is a layer written as codes? */
bool ck_has_codes(const checkpoint *c);

/* Adds an error that names the layer; returns the status. */
tvm_status ck_refuse(const checkpoint *c, const ck_layer *layer, tvm_status status, tvm_diags *diags,
                     const char *format, ...) __attribute__((format(printf, 5, 6)));
static inline bool ck_has_type(const ck_tensor *tensor, tvm_dtype type) {
    return tensor->data && tvm_dtype_same(tensor->header->type, type);
}

/* F16, BF16 or F32. */
bool ck_is_scale(const ck_tensor *tensor);
/* A tensor's extent, counted from its last; 1 beyond its rank. */
uint64_t ck_extent(const ck_tensor *tensor, unsigned from_end);
/* Numbers of a tensor that has a type that is known; else 0. */
uint64_t ck_count(const ck_tensor *tensor);
/* Is the tensor a matrix of `rows` by `columns`, of the type? (TVM_KIND_NONE: that of any scale.) */
tvm_status ck_need(const checkpoint *c, const ck_layer *layer, const char *what, const ck_tensor *tensor,
                   tvm_dtype type, uint64_t rows, uint64_t columns, tvm_diags *diags);
/* A number of a tensor, read as one of the type. */
double ck_number(const ck_tensor *tensor, tvm_dtype type, uint64_t index);
/* Groups of rows as they are scaled, from the number of groups. */
tvm_status ck_set_group(const checkpoint *c, ck_layer *layer, uint64_t groups, tvm_diags *diags);
/* Rows in the order of their groups, which order_tensor has: order, unless they stand so. */
tvm_status ck_set_order(const checkpoint *c, ck_layer *layer, tvm_diags *diags);
/* From the scales' shape [n, ..] which weights share one, and so the group: all, those of a column, groups of
 * a column, or blocks. The scales' type is not looked at. */
tvm_status ck_set_blocks(const checkpoint *c, ck_layer *layer, tvm_diags *diags);
/* ck_format.scale of such a layer, and where scales are [groups, n]. */
double ck_scale_of_block(const ck_layer *layer, uint64_t index, uint64_t group, uint64_t column);
double ck_scale_of_group(const ck_layer *layer, uint64_t index, uint64_t group, uint64_t column);
bool ck_any_zero_off_middle(const ck_layer *layer);

/* ---- checkpoint_integers.c, checkpoint_floats.c, checkpoint_bitnet.c, checkpoint_bitsandbytes.c,
 * checkpoint_mlx.c, checkpoint_blocks.c: columns of the table of formats */

bool ck_is_gptq(const ck_layer *layer);
tvm_status ck_plan_gptq(const checkpoint *c, ck_layer *layer, tvm_diags *diags);
double ck_zero_gptq(const ck_layer *layer, uint64_t index, uint64_t group, uint64_t column);
bool ck_is_awq(const ck_layer *layer);
tvm_status ck_plan_awq(const checkpoint *c, ck_layer *layer, tvm_diags *diags);
double ck_zero_awq(const ck_layer *layer, uint64_t index, uint64_t group, uint64_t column);
bool ck_is_compressed(const ck_layer *layer);
tvm_status ck_plan_compressed(const checkpoint *c, ck_layer *layer, tvm_diags *diags);
double ck_zero_compressed(const ck_layer *layer, uint64_t index, uint64_t group, uint64_t column);
bool ck_is_int8(const ck_layer *layer);
tvm_status ck_plan_int8(const checkpoint *c, ck_layer *layer, tvm_diags *diags);

bool ck_is_fp8(const ck_layer *layer);
tvm_status ck_plan_fp8(const checkpoint *c, ck_layer *layer, tvm_diags *diags);
bool ck_is_mxfp8(const ck_layer *layer);
bool ck_is_mxfp4_blocks(const ck_layer *layer);
tvm_status ck_plan_mxfp4_blocks(const checkpoint *c, ck_layer *layer, tvm_diags *diags);
bool ck_is_mxfp4(const ck_layer *layer);
tvm_status ck_plan_mxfp4(const checkpoint *c, ck_layer *layer, tvm_diags *diags);
bool ck_is_nvfp4(const ck_layer *layer);
tvm_status ck_plan_nvfp4(const checkpoint *c, ck_layer *layer, tvm_diags *diags);

bool ck_is_bitnet(const ck_layer *layer);
tvm_status ck_plan_bitnet(const checkpoint *c, ck_layer *layer, tvm_diags *diags);
void ck_take_bitnet(const ck_layer *layer, uint64_t index, const uint64_t *rows, uint64_t count,
                    uint64_t column, uint64_t columns, uint8_t *to, size_t stride);
double ck_scale_bitnet(const ck_layer *layer, uint64_t index, uint64_t group, uint64_t column);

/* The value that a code of a table, nf4 or fp4, stands for. */
double ck_table_value(const char *table, unsigned code);
bool ck_is_bitsandbytes(const ck_layer *layer);
tvm_status ck_plan_bitsandbytes(const checkpoint *c, ck_layer *layer, tvm_diags *diags);
double ck_scale_bitsandbytes(const ck_layer *layer, uint64_t index, uint64_t group, uint64_t column);
bool ck_is_bitsandbytes_int8(const ck_layer *layer);
tvm_status ck_plan_bitsandbytes_int8(const checkpoint *c, ck_layer *layer, tvm_diags *diags);
double ck_scale_bitsandbytes_int8(const ck_layer *layer, uint64_t index, uint64_t group, uint64_t column);

bool ck_is_ours(const ck_layer *layer);
tvm_status ck_plan_ours(const checkpoint *c, ck_layer *layer, tvm_diags *diags);
void ck_take_ours(const ck_layer *layer, uint64_t index, const uint64_t *rows, uint64_t count,
                  uint64_t column, uint64_t columns, uint8_t *to, size_t stride);
double ck_scale_ours(const ck_layer *layer, uint64_t index, uint64_t group, uint64_t column);
double ck_zero_ours(const ck_layer *layer, uint64_t index, uint64_t group, uint64_t column);
bool ck_is_mlx(const ck_layer *layer);
tvm_status ck_plan_mlx(const checkpoint *c, ck_layer *layer, tvm_diags *diags);
double ck_offset_mlx(const ck_layer *layer, uint64_t index, uint64_t group, uint64_t column);
bool ck_is_blocks(const ck_layer *layer);
tvm_status ck_plan_blocks(const checkpoint *c, ck_layer *layer, tvm_diags *diags);
void ck_take_blocks(const ck_layer *layer, uint64_t index, const uint64_t *rows, uint64_t count,
                    uint64_t column, uint64_t columns, uint8_t *to, size_t stride);
double ck_scale_blocks(const ck_layer *layer, uint64_t index, uint64_t group, uint64_t column);
double ck_offset_blocks(const ck_layer *layer, uint64_t index, uint64_t group, uint64_t column);
/* The type of a GGUF file's layer; NULL: it is another's. */
const char *ck_blocks_name(const ck_layer *layer);

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

/* A plane of GPTQ's planar layout: `width` bits of 32 codes lie in as many words, from the lowest up. A
 * code's planes are the powers of two that its width is made of, the widest lowest and first. */
typedef struct ck_plane {
    unsigned width, lowest;
} ck_plane;

/* The next plane of codes of `bits` bits, after the bits below plane->lowest; false when there is none. */
static inline bool ck_next_plane(unsigned bits, ck_plane *plane) {
    plane->lowest += plane->width;
    plane->width = 8;
    while (plane->width > bits - plane->lowest) plane->width /= 2;
    return plane->lowest < bits;
}

/* The word, of those of all blocks of 32 codes, that has the plane of code `index`, and where in it. */
static inline uint64_t ck_plane_word(unsigned bits, ck_plane plane, uint64_t index, unsigned *shift) {
    *shift = (unsigned)(index * plane.width % 32);
    return index / 32 * bits + plane.lowest + index % 32 * plane.width / 32;
}

void ck_take_gptq(const ck_layer *layer, uint64_t index, const uint64_t *rows, uint64_t count,
                  uint64_t column, uint64_t columns, uint8_t *to, size_t stride);
/* Columns begin at a multiple of 8. */
void ck_take_awq(const ck_layer *layer, uint64_t index, const uint64_t *rows, uint64_t count, uint64_t column,
                 uint64_t columns, uint8_t *to, size_t stride);
/* Codes of columns of W, each a row of the file. */
void ck_take_turned(const ck_layer *layer, uint64_t index, const uint64_t *rows, uint64_t count,
                    uint64_t column, uint64_t columns, uint8_t *to, size_t stride);

/* ---- checkpoint_scales.c */

/* What the weights of a group of a column are, exactly: (level - zero) * scale, or level * scale + offset of
 * a layer that has offsets, with the level of each code. */
typedef struct ck_group {
    double scale, zero, offset;
    bool constant; /* zero is beyond what f16 holds: the weights are written as the offset, all of them */
} ck_group;

ck_group ck_group_at(const ck_layer *layer, uint64_t index, uint64_t group, uint64_t column);
double ck_level(const ck_layer *layer, unsigned code);
double ck_value(const ck_layer *layer, const ck_group *group, double level);
/* f8_e4m3 or e8m0, as scales of 8 bits are. */
bool ck_is_narrow(tvm_dtype type);
/* Rounded to f16, bf16 or such a type: the value, and its code. */
double ck_rounded(tvm_dtype type, double value, uint16_t *code);
/* The group's scale and zero point as they are written. */
void ck_written(const ck_layer *layer, const ck_group *group, uint16_t *scale, uint16_t *zero);

/* Fills in what a layer says of scales, floats and errors. */
tvm_status ck_choose_scales(checkpoint *c, tvm_diags *diags);
/* By how much the layer's weights change, of their norm (Frobenius). */
double ck_error_of(const ck_layer *layer);
/* Tells options->tell the errors of layers, and warns of those that are not 0. */
void ck_tell_errors(const checkpoint *c);

/* ---- checkpoint_write.c */

tvm_status ck_write(checkpoint *c, tvm_diags *diags);

#endif
