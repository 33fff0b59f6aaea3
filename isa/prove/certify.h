/* Searches for certificates of what a proof says, which the checker of isa/check checks. */
#ifndef TVM_ISA_PROVE_CERTIFY_H
#define TVM_ISA_PROVE_CERTIFY_H

#include "program.h"

typedef struct tvm_certificate {
    uint32_t *words; /* malloc'ed, the caller's to free; NULL: there is none, or none is needed */
    uint32_t count;
} tvm_certificate;

/* Of a kernel of a verified program. That none is found is no error. */
tvm_status tvm_certify(const tvm_ir_program *program, uint32_t kernel, tvm_certificate *certificate,
                       tvm_diags *diags);

#endif
