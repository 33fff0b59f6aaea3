/* Errors, of which all functions return false, and warnings. */
#ifndef TVM_ASSEMBLER_REPORT_H
#define TVM_ASSEMBLER_REPORT_H

#include "state.h"

/* The place is that of the token (of the current source; NULL: no place). */
bool tvm_asm_error(tvm_asm *as, const tvm_token *token, const char *hint, const char *format, ...)
    __attribute__((format(printf, 4, 5))); /* TVM_SYNTAX */
/* TVM_SYNTAX: "expected FORMAT, found 'for'", what stands at the token. */
bool tvm_asm_expected(tvm_asm *as, const tvm_token *token, const char *hint, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
bool tvm_asm_invalid(tvm_asm *as, const tvm_token *token, const char *hint, const char *format, ...)
    __attribute__((format(printf, 4, 5))); /* TVM_INVALID */
bool tvm_asm_error_in(tvm_asm *as, const tvm_source *source, const tvm_token *token, const char *hint,
                      const char *format, ...) __attribute__((format(printf, 5, 6)));
/* A warning, which no error follows from. */
void tvm_asm_warn(tvm_asm *as, const tvm_source *source, const tvm_token *token, const char *hint,
                  const char *format, ...) __attribute__((format(printf, 5, 6)));
bool tvm_asm_no_memory(tvm_asm *as);

#endif
