/* Searches for certificates of what a proof says, which the checker of isa/check checks. */
#ifndef TVM_ISA_PROVE_CERTIFY_H
#define TVM_ISA_PROVE_CERTIFY_H

#include "check.h"
#include "text.h"

typedef struct tvm_certificate {
    uint32_t *words; /* malloc'ed, the caller's to free; NULL: there is none, or none is needed */
    uint32_t count;
} tvm_certificate;

/* Of a kernel of a verified program. That none is found is no error. */
tvm_status tvm_certify(const tvm_ir_program *program, uint32_t kernel, tvm_certificate *certificate,
                       tvm_diags *diags);

/* *program as a container has it, whose numbers of scalars certificates name, and with a certificate of each
 * kernel of which one is found. On an error it is as it was. */
tvm_status tvm_certify_program(tvm_ir_program **program, tvm_diags *diags);

/* Adds two lines, `KERNEL: races: confirmed` and the same of deadlocks, with the place and the reason where
 * it is not confirmed. */
void tvm_checked_add(tvm_text *text, const tvm_ir_program *program, uint32_t kernel,
                     const tvm_checked *checked);

#endif
