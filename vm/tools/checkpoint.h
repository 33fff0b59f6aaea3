/* Quantized checkpoints of other programs, imported with their codes and scales: tvm-pack --from. */
#ifndef TVM_VM_CHECKPOINT_H
#define TVM_VM_CHECKPOINT_H

#include "work.h"
#include "types.h"

typedef struct checkpoint_options {
    const char *input;  /* a folder of .safetensors files, or one such file; or a GGUF file */
    const char *output; /* then a folder, which is made if it is not there, or a file */
    const char *from;   /* "auto", or a name that tvm_checkpoint_formats lists */
    const char *to; /* "gptq" or "compressed-tensors": layers are written as these have them; NULL: as ours */
    tvm_dtype scale_type; /* f16 or bf16; kind TVM_KIND_NONE: as they are found, f16 where that is neither */
    tvm_dtype plain;  /* f32, f16 or bf16: weights are written as such floats; kind TVM_KIND_NONE: as codes */
    unsigned threads; /* 0: one a core */
    tvm_work_progress progress;
    tvm_diags *warnings; /* gets warnings of scales that are rounded; NULL: they are not wanted */
    /* Told of each layer, whose type or format is `from`, by how much its weights have changed, of their
     * norm. NULL: it is not wanted. */
    void (*tell)(void *closure, const char *layer, const char *from, double error);
    void *closure;
} checkpoint_options;

/* Writes options->output as tilusvm-weights(5) says: every layer of a known format, and all other tensors as
 * they are. Files appear once all of them are written. It fails with TVM_FORMAT for a malformed tensor, which
 * the message names, with TVM_UNSUPPORTED for an unknown format or an unknown form of one, and with
 * TVM_NOT_FOUND where nothing is quantized. */
tvm_status tvm_checkpoint_import(const checkpoint_options *options, tvm_diags *diags);

/* "gptq, gptq_v2, awq, ..." */
const char *tvm_checkpoint_formats(void);

#endif
