/* Instructions with output to the user: print-tensor, printf, assert and trap. */
#include "interp_impl.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

INTERP_NO_PLAN(PRINT_TENSOR)

void tvm_interp_print_flush(interp_block *block) {
    if (block->print_size == 0) return;
    interp_run *run = block->run;
    pthread_mutex_lock(&run->mutex);
    fwrite(block->print, 1, block->print_size, run->output);
    fflush(run->output);
    pthread_mutex_unlock(&run->mutex);
    block->print_size = 0;
}

/* Keeps text until the block is done, so that lines of blocks are not mixed; long output is written earlier.
 */
static bool print(interp_block *block, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool print(interp_block *block, const char *format, ...) {
    enum { LONGEST = 256 };
    if (!block->print) block->print = malloc(INTERP_PRINT_BUFFER);
    if (!block->print) return false;
    if (INTERP_PRINT_BUFFER - block->print_size < LONGEST) tvm_interp_print_flush(block);
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(block->print + block->print_size, LONGEST, format, arguments);
    va_end(arguments);
    block->print_size += length < LONGEST ? (size_t)length : (size_t)LONGEST - 1;
    return true;
}

static bool print_element(interp_block *block, tvm_dtype type, const void *tensor, size_t at) {
    uint64_t code = tvm_container_get(type, tensor, at);
    unsigned unused = 64u - type.bits;
    if (type.kind == TVM_KIND_INT) return print(block, "%" PRId64, (int64_t)(code << unused) >> unused);
    if (type.kind != TVM_KIND_FLOAT) return print(block, "%" PRIu64, code);
    return print(block, "%g", tvm_decode(type, code));
}

/* `%x: f16[16, 64] in block (0, 0, 0)` */
static bool print_header(interp_block *block, const char *name, const tvm_layout *layout, tvm_dtype type) {
    const int32_t *at = block->index;
    bool ok = print(block, "%%%.100s: %s[", name, TVM_DTYPE_TEXT(type));
    for (unsigned d = 0; d < layout->rank && ok; d++)
        ok = print(block, "%s%u", d ? ", " : "", layout->shape[d]);
    return ok && print(block, "] in block (%d, %d, %d)\n", at[0], at[1], at[2]);
}

/* `[1, 0, :, :]` before the matrix at leading index (1, 0). */
static bool print_leading(interp_block *block, const tvm_layout *layout, size_t matrix) {
    size_t after = 1;
    for (unsigned d = 1; d + 2 < layout->rank; d++) after *= layout->shape[d];
    bool ok = print(block, "[");
    for (unsigned d = 0; d + 2 < layout->rank && ok; d++) {
        ok = print(block, "%zu, ", matrix / after % layout->shape[d]);
        if (d + 3 < layout->rank) after /= layout->shape[d + 1];
    }
    return ok && print(block, ":, :]\n");
}

tvm_status tvm_interp_PRINT_TENSOR(interp_context *context, const interp_insn *insn) {
    interp_block *block = context->block;
    const tvm_interp_kernel *k = block->kernel;
    uint32_t source = insn->operands[0].value;
    const tvm_slot *slot = interp_slot(k, source);
    const tvm_layout *layout = &k->program->layouts[slot->layout];
    const void *tensor = interp_tensor(block, source);
    size_t columns = layout->shape[layout->rank - 1];
    size_t rows = layout->rank > 1 ? layout->shape[layout->rank - 2] : 1;
    bool ok = print_header(block, interp_slot_name(k, source), layout, slot->dtype);
    for (size_t i = 0; i < k->extents[source] && ok; i++) {
        if (layout->rank > 2 && i % (rows * columns) == 0)
            ok = print_leading(block, layout, i / (rows * columns));
        ok = ok && print_element(block, slot->dtype, tensor, i) &&
             print(block, i % columns == columns - 1 ? "\n" : " ");
    }
    return ok ? TVM_OK : tvm_interp_no_memory(block->run);
}

/* ---- texts ---- */

INTERP_NO_PLAN(ASSERT)
INTERP_NO_PLAN(TRAP)
INTERP_NO_PLAN(PRINTF)

static const char *text_of(const interp_context *context, const tvm_operand *operand) {
    bool given = operand->kind == TVM_OPERAND_STRING;
    return given ? tvm_string(context->block->kernel->program, operand->value) : "";
}

tvm_status tvm_interp_ASSERT(interp_context *context, const interp_insn *insn) {
    tvm_scalar holds;
    tvm_status status = tvm_interp_evaluate(context, insn, insn->operands[0].value, &holds);
    if (status != TVM_OK || holds.i) return status;
    const char *text = text_of(context, &insn->operands[1]);
    return tvm_interp_fail(context, insn, "does not hold%s%.150s", *text ? ": " : "", text);
}

tvm_status tvm_interp_TRAP(interp_context *context, const interp_insn *insn) {
    const char *text = text_of(context, &insn->operands[0]);
    return tvm_interp_fail(context, insn, "%.150s", *text ? text : "the program stops here");
}

/* In pieces that print takes. */
static bool print_text(interp_block *block, const char *text, size_t length) {
    enum { PIECE = 128 };
    bool ok = true;
    for (; length > 0 && ok; length -= length < PIECE ? length : PIECE, text += PIECE)
        ok = print(block, "%.*s", length < PIECE ? (int)length : PIECE, text);
    return ok;
}

static bool print_scalar(interp_block *block, tvm_dtype type, tvm_scalar value) {
    if (type.kind == TVM_KIND_FLOAT) return print(block, "%g", value.f);
    if (type.kind == TVM_KIND_INT) return print(block, "%" PRId64, value.i);
    return print(block, "%" PRIu64, value.u);
}

tvm_status tvm_interp_PRINTF(interp_context *context, const interp_insn *insn) {
    interp_block *block = context->block;
    const char *text = text_of(context, &insn->operands[0]), *place;
    const tvm_operand *values = &insn->operands[2];
    bool ok = true;
    for (; ok && (place = strstr(text, "{}")) != NULL; text = place + 2, values++) {
        tvm_scalar value;
        tvm_status status = tvm_interp_evaluate(context, insn, values->value, &value);
        if (status != TVM_OK) return status;
        ok = print_text(block, text, (size_t)(place - text)) &&
             print_scalar(block, block->kernel->kernel->exprs[values->value].type, value);
    }
    ok = ok && print_text(block, text, strlen(text)) && print(block, "\n");
    return ok ? TVM_OK : tvm_interp_no_memory(block->run);
}
