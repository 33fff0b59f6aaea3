/* tvm-run's arguments: the words NAME=VALUE, before it is known what the kernel takes. */
#ifndef TVM_VM_RUN_ARGS_H
#define TVM_VM_RUN_ARGS_H

#include "diag.h"
#include "tvm.h"
#include "types.h"

typedef enum tvm_run_source {
    TVM_RUN_TEXT,  /* a number, or a text that a parameter of any type refuses */
    TVM_RUN_FILE,  /* @file.npy */
    TVM_RUN_RAND,  /* rand, rand:SEED */
    TVM_RUN_ZEROS, /* zeros, and out:file.npy alone */
    TVM_RUN_IOTA
} tvm_run_source;

typedef struct tvm_run_arg {
    char *word; /* as written, the name's end replaced by NUL: the storage of the texts below */
    const char *name;
    const char *text; /* TVM_RUN_TEXT: the value; TVM_RUN_FILE: the path */
    const char *out;  /* where to write the tensor afterwards; NULL: nowhere */
    tvm_run_source source;
    bool seeded;
    uint64_t seed;
} tvm_run_arg;

/* Zero-initialise; release with tvm_run_args_free. */
typedef struct tvm_run_args {
    tvm_run_arg *items;
    size_t count;
} tvm_run_args;

/* Does the word begin with an identifier and '='? */
bool tvm_run_is_arg(const char *word);
/* TVM_USAGE for a malformed word or a name given twice. */
tvm_status tvm_run_args_add(tvm_run_args *args, const char *word, tvm_diags *diags);
void tvm_run_args_free(tvm_run_args *args);

/* A number for a scalar parameter, exactly: integers in decimal or 0x, within the type; bool also true and
 * false. TVM_ARGUMENT. */
tvm_status tvm_run_number(const tvm_run_arg *arg, tvm_dtype type, tvm_value *value, tvm_diags *diags);

/* Fills the bit string of `elements` elements for TVM_RUN_RAND (floats uniform in [-1, 1); integers, bool and
 * low-bit types uniform over their codes, those of NaN and infinity left out), TVM_RUN_ZEROS and TVM_RUN_IOTA
 * (element i is i: integers modulo their range, floats the nearest). `seed` is used when the argument names
 * none. */
void tvm_run_fill(const tvm_run_arg *arg, tvm_dtype type, uint64_t elements, uint64_t seed, uint8_t *data);

#endif
