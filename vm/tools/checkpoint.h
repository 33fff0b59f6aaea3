/* Quantized checkpoints of other programs, imported with their codes and scales: tvm-pack --from. */
#ifndef TVM_VM_CHECKPOINT_H
#define TVM_VM_CHECKPOINT_H

#include "work.h"
#include "types.h"

typedef struct checkpoint_options {
    const char *input;    /* a folder of .safetensors files, or one such file */
    const char *output;   /* then a folder, which is made if it is not there, or a file */
    const char *from;     /* "auto", or a name that tvm_checkpoint_formats lists */
    tvm_dtype scale_type; /* f16 or bf16; kind TVM_KIND_NONE: as they are found, f16 where that is neither */
    unsigned threads;     /* 0: one a core */
    tvm_work_progress progress;
    tvm_diags *warnings; /* gets warnings of scales that are rounded; NULL: they are not wanted */
} checkpoint_options;

/* Writes options->output as tilusvm-weights(5) says: every layer of a known format, and all other tensors as
 * they are. Files appear once all of them are written. It fails with TVM_FORMAT for a malformed tensor, which
 * the message names, with TVM_UNSUPPORTED for an unknown format or an unknown form of one, and with
 * TVM_NOT_FOUND where nothing is quantized. */
tvm_status tvm_checkpoint_import(const checkpoint_options *options, tvm_diags *diags);

/* "gptq, gptq_v2, awq, ..." */
const char *tvm_checkpoint_formats(void);

#endif
