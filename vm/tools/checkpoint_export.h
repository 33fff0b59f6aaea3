/* Layers as other programs have them: tvm-pack --to. */
#ifndef TVM_VM_CHECKPOINT_EXPORT_H
#define TVM_VM_CHECKPOINT_EXPORT_H

#include "checkpoint_parts.h"

enum { CK_EXPORTED_PARTS = 5 };

/* A tensor of a layer. */
typedef struct ck_exported {
    ck_part_kind kind;
    const char *suffix;
    tvm_dtype type;
    unsigned rank;
    uint64_t shape[2];
} ck_exported;

/* Can all layers be written so, and as what? Sets c->plan. TVM_UNSUPPORTED names the first that cannot. */
tvm_status ck_plan_export(checkpoint *c, tvm_diags *diags);
/* The tensors of a layer; their number. */
unsigned ck_exported_parts(const checkpoint *c, const ck_layer *layer, ck_exported parts[CK_EXPORTED_PARTS]);
/* The configuration's quantization_config, a json_t that the caller releases. */
void *ck_export_config(const checkpoint *c);

uint64_t ck_export_pieces(const ck_part *part);
size_t ck_export_memory(const ck_part *part);
tvm_status ck_write_exported(const ck_part *part, const tvm_output *output, uint64_t number, uint8_t *memory,
                             tvm_diags *diags);

#endif
