/* Tokens one after the other. */
#ifndef TVM_ASSEMBLER_CURSOR_H
#define TVM_ASSEMBLER_CURSOR_H

#include "state.h"

const tvm_token *tvm_asm_peek(const tvm_asm *as);
const tvm_token *tvm_asm_ahead(const tvm_asm *as, uint32_t distance);
const tvm_token *tvm_asm_next(tvm_asm *as);                                   /* never moves past the end */
bool tvm_asm_is(const tvm_asm *as, const tvm_token *token, const char *text); /* a sign or an unpasted name */
bool tvm_asm_at(const tvm_asm *as, const char *text);
bool tvm_asm_accept(tvm_asm *as, const char *text);
bool tvm_asm_expect(tvm_asm *as, const char *text, const char *where); /* error: expected 'text' where */
bool tvm_asm_at_end(const tvm_asm *as);                                /* of the statement */
bool tvm_asm_expect_end(tvm_asm *as);
void tvm_asm_skip_statement(tvm_asm *as);
/* Is `%name` at the cursor? (a sign % and a name that follows without a blank) */
bool tvm_asm_at_local(const tvm_asm *as);
/* Past `name = expression` and the like: to the comma, closing parenthesis or end of the statement that ends
 * it. */
void tvm_asm_skip_expression(tvm_asm *as);

/* The contents of a string token, escapes resolved, in scratch memory. */
bool tvm_asm_string(tvm_asm *as, const tvm_token *token, tvm_value *value);

/* `one, one, ...`: calls `one` at each item, and expects the end of the statement. */
bool tvm_asm_each(tvm_asm *as, bool (*one)(tvm_asm *as));

#endif
