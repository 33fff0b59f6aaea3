/* Inside the code generator: what the instructions that compute share. */
#ifndef TVM_CODEGEN_COMPUTE_H
#define TVM_CODEGEN_COMPUTE_H

#include "emit.h"

/* An instruction can be carried out in several ways, best first: the first that is not refused is taken.
 * `refuse` returns why not, "" where the candidate is for other types altogether, or NULL; `emit` returns
 * false when memory ran out. `work` is the family's own description. */
typedef struct candidate {
    const char *name;
    const char *(*refuse)(const emitter *e, const void *work);
    bool (*emit)(emitter *e, void *work);
} candidate;

/* Emits the first candidate that fits and explains it; the last one must always fit. `detail` (may be NULL)
 * is added to the name in the explanation. */
tvm_status tvm_select_candidate(emitter *e, const candidate *candidates, size_t count, void *work,
                                const char *detail);

/* Lines emitted into the body since it had `from` bytes: instructions, near enough. */
unsigned tvm_body_lines(const emitter *e, size_t from);

/* A fresh register of the class that tvm_read_element gives elements of this type. */
reg tvm_new_element(emitter *e, tvm_dtype type);
/* "b16", "b32", "b64", "f32" or "f64": the type of a move or select between registers of that class. */
const char *tvm_element_suffix(tvm_dtype type);
/* "s32", "u32", "s64", "u64", "f32" or "f64": the arithmetic type elements are computed in; f16 and bf16 are
 * not computed in a register of their own here, but give "f32". */
const char *tvm_arithmetic_suffix(tvm_dtype type);

/* The test of setp: a NaN differs from everything. */
const char *tvm_test_name(tvm_compare test, tvm_dtype type);

/* Two 16-bit registers as the halves of a word. */
reg tvm_pack_pair(emitter *e, reg low, reg high);
/* An f16 or bf16 register as f32, exact but for the payload of a NaN; and back, rounded to nearest even. */
reg tvm_half_to_f32(emitter *e, tvm_dtype type, reg half);
reg tvm_half_to_f32_in(emitter *e, tvm_dtype type, reg half, reg value);
reg tvm_f32_to_half(emitter *e, tvm_dtype type, reg value);
/* A .b32 register holding a constant. */
reg tvm_constant_word(emitter *e, uint32_t value);
/* Sign-extends a code of a signed integer type under 32 bits; other types are returned as they are. */
reg tvm_extend_code(emitter *e, tvm_dtype type, reg value);
/* The code of a converted element as tvm_emit_convert gives it, except that bits above the type's width are
 * anything. */
reg tvm_convert_loose(emitter *e, tvm_dtype to, tvm_dtype from, reg value, bool lowbit);

#endif
