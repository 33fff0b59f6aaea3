/* Builds kernels by hand, for the tests of the program, the verifier and the container. One warp; the layouts
 * are those of the m16n8k16 fragments. */
#ifndef TVM_TESTS_PROGRAM_KIT_H
#define TVM_TESTS_PROGRAM_KIT_H

#include "check_kit.h"
#include <string.h>

#include "program.h"

typedef struct kit {
    tvm_ir_program *program;
    tvm_ir_kernel *kernel;
    tvm_layout a, b, c; /* 16x16, 16x8, 16x8 */
} kit;

static inline tvm_operand S(uint32_t slot) {
    return (tvm_operand){TVM_OPERAND_SLOT, slot};
}
static inline tvm_operand X(uint32_t expr) {
    return (tvm_operand){TVM_OPERAND_EXPR, expr};
}
static inline tvm_operand K(uint32_t constant) {
    return (tvm_operand){TVM_OPERAND_CONST, constant};
}

static inline uint32_t kit_string(kit *t, const char *text) {
    uint32_t string = tvm_ir_program_string(t->program, text, strlen(text));
    ck_assert_uint_ne(string, TVM_NONE);
    return string;
}

static inline void kit_start(kit *t, const char *kernel_name) {
    tvm_why why = {""};
    t->program = tvm_ir_program_new();
    ck_assert_ptr_nonnull(t->program);
    uint32_t kernel = tvm_ir_program_add_kernel(t->program, kit_string(t, kernel_name));
    ck_assert_uint_eq(kernel, 0);
    t->kernel = &t->program->kernels[kernel];
    ck_assert_int_eq(tvm_layout_atom("mma.m16n8k16.A", 14, &t->a, &why), TVM_OK);
    ck_assert_int_eq(tvm_layout_atom("mma.m16n8k16.B", 14, &t->b, &why), TVM_OK);
    ck_assert_int_eq(tvm_layout_atom("mma.m16n8k16.C", 14, &t->c, &why), TVM_OK);
}

static inline void kit_end(kit *t) {
    tvm_ir_program_free(t->program);
}

/* ---- expressions ---- */

static inline uint32_t kit_expr(kit *t, tvm_expr node) {
    uint32_t expr = tvm_ir_kernel_expr(t->kernel, &node);
    ck_assert_uint_ne(expr, TVM_NONE);
    return expr;
}

static inline uint32_t kit_int(kit *t, int64_t value) {
    return kit_expr(t, (tvm_expr){.op = TVM_EXPR_INTEGER, .type = TVM_I(32), .value.i = value});
}

static inline uint32_t kit_long(kit *t, int64_t value) {
    return kit_expr(t, (tvm_expr){.op = TVM_EXPR_INTEGER, .type = TVM_I(64), .value.i = value});
}

static inline uint32_t kit_float(kit *t, double value) {
    return kit_expr(t, (tvm_expr){.op = TVM_EXPR_FLOAT, .type = TVM_F32, .value.f = value});
}

static inline uint32_t kit_slot_expr(kit *t, uint32_t slot) {
    return kit_expr(t, (tvm_expr){.op = TVM_EXPR_SLOT, .type = t->kernel->slots[slot].dtype, .a = slot});
}

static inline uint32_t kit_block(kit *t, unsigned axis) {
    return kit_expr(t, (tvm_expr){.op = TVM_EXPR_BLOCK, .type = TVM_I(32), .a = axis});
}

static inline uint32_t kit_binary(kit *t, unsigned op, tvm_dtype type, uint32_t a, uint32_t b) {
    return kit_expr(t, (tvm_expr){.op = (uint8_t)op, .type = type, .a = a, .b = b});
}

static inline uint32_t kit_cast(kit *t, tvm_dtype type, uint32_t a) {
    return kit_expr(t, (tvm_expr){.op = TVM_EXPR_CAST, .type = type, .a = a});
}

/* ---- slots ---- */

static inline uint32_t kit_slot(kit *t, const tvm_slot *slot) {
    uint32_t index = tvm_ir_kernel_add_slot(t->kernel, slot);
    ck_assert_uint_ne(index, TVM_NONE);
    return index;
}

static inline uint32_t kit_scalar(kit *t, const char *name, tvm_dtype type) {
    tvm_slot slot = {.name = kit_string(t, name), .kind = TVM_SLOT_SCALAR, .dtype = type, .layout = TVM_NONE};
    return kit_slot(t, &slot);
}

static inline uint32_t kit_register(kit *t, const char *name, tvm_dtype type, const tvm_layout *layout) {
    tvm_slot slot = {.name = kit_string(t, name), .kind = TVM_SLOT_REGISTER, .dtype = type};
    slot.layout = tvm_ir_program_layout(t->program, layout);
    ck_assert_uint_ne(slot.layout, TVM_NONE);
    return kit_slot(t, &slot);
}

static inline uint32_t kit_shared(kit *t, const char *name, tvm_dtype type, unsigned rank,
                                  const uint32_t *shape) {
    tvm_why why = {""};
    tvm_shared_layout layout;
    memset(&layout, 0, sizeof layout);
    ck_assert_int_eq(tvm_shared_layout_row_major(rank, shape, &layout, &why), TVM_OK);
    tvm_slot slot = {.name = kit_string(t, name), .kind = TVM_SLOT_SHARED, .dtype = type};
    slot.layout = tvm_ir_program_shared_layout(t->program, &layout);
    ck_assert_uint_ne(slot.layout, TVM_NONE);
    return kit_slot(t, &slot);
}

/* A matrix parameter of extents that are expressions. */
static inline uint32_t kit_global(kit *t, const char *name, tvm_dtype type, uint32_t rows, uint32_t columns) {
    tvm_slot slot = {.name = kit_string(t, name),
                     .kind = TVM_SLOT_GLOBAL,
                     .rank = 2,
                     .dtype = type,
                     .layout = TVM_NONE,
                     .shape = {rows, columns}};
    return kit_slot(t, &slot);
}

/* ---- instructions ---- */

static inline uint32_t kit_insn(kit *t, tvm_opcode op, uint32_t result, const tvm_operand *operands,
                                size_t count) {
    tvm_insn insn = {.op = (uint16_t)op, .result = result, .match = TVM_NONE, .file = TVM_NONE};
    uint32_t index = tvm_ir_kernel_add_insn(t->kernel, &insn, operands, (uint32_t)count);
    ck_assert_uint_ne(index, TVM_NONE);
    return index;
}

/* An optional operand. */
#define LEFT_OUT ((tvm_operand){TVM_OPERAND_NONE, 0})

/* INSN(kit, ADD, result, S(x), X(e)) and, without operands, INSN0(kit, SYNC, TVM_NONE). */
#define INSN(t, op, result, ...)                                                                             \
    kit_insn((t), TVM_OP_##op, (result), (const tvm_operand[]){__VA_ARGS__},                                 \
             sizeof((const tvm_operand[]){__VA_ARGS__}) / sizeof(tvm_operand))
#define INSN0(t, op, result) kit_insn((t), TVM_OP_##op, (result), NULL, 0)

#endif
