/* What tells the user something: print-tensor and printf, through the device's vprintf, and the faults of
 * assert and trap. vprintf's arguments are a struct in local memory: CUDA C++ Programming Guide, "Formatted
 * Output"; PTX interface, "System Calls".
 *
 * print-tensor prints what the interpreter does, row by row: the threads that hold a piece of a row put it
 * into scratch memory, from which the team's first thread prints it, by one call. */
#include "compute.h"

#include <string.h>

#include "barrier.h"
#include "scratch.h"
#include "scratch_need.h"

enum { BLOCK_AXES = 3 };

/* ---- vprintf ---- */

/* `.global NAME`, the text as initialiser of a byte array. */
static void declare_text(emitter *e, const char *name, const tvm_text *format) {
    if (format->failed) {
        e->body.failed = true;
        return;
    }
    tvm_text_add(&e->body, "\t.global .align 1 .b8 %s[%zu] = {", name, format->size + 1);
    for (size_t i = 0; i < format->size; i++)
        tvm_text_add(&e->body, "%u, ", (unsigned)(uint8_t)format->data[i]);
    tvm_text_add(&e->body, "0};\n");
}

/* The text for vprintf: a percent sign in it is doubled. */
static void add_literal(tvm_text *format, const char *text, size_t length) {
    for (size_t i = 0; i < length; i++) tvm_text_add(format, "%s%c", text[i] == '%' ? "%" : "", text[i]);
}

static const char *conversion_of(tvm_dtype type) {
    return type.kind == TVM_KIND_FLOAT ? "%g" : type.kind == TVM_KIND_INT ? "%lld" : "%llu";
}

/* What vprintf is given for it: 64 bits. */
static tvm_dtype shown_type(tvm_dtype type) {
    return type.kind == TVM_KIND_FLOAT ? TVM_F64 : type.kind == TVM_KIND_INT ? TVM_I(64) : TVM_U(64);
}

static reg generic_address(emitter *e, const char *space, const char *name) {
    reg address = tvm_new_rd(e), generic = tvm_new_rd(e);
    tvm_emit(e, "mov.u64 %s, %s;", address.name, name);
    tvm_emit(e, "cvta.%s.u64 %s, %s;", space, generic.name, address.name);
    return generic;
}

/* With the text of that name, and `arguments`. */
static void call_vprintf(emitter *e, const char *text) {
    reg format = generic_address(e, "global", text), arguments = generic_address(e, "local", "arguments");
    tvm_emit(e, "{");
    tvm_emit(e, ".param .b64 first;");
    tvm_emit(e, ".param .b64 second;");
    tvm_emit(e, ".param .b32 result;");
    tvm_emit(e, "st.param.b64 [first], %s;", format.name);
    tvm_emit(e, "st.param.b64 [second], %s;", arguments.name);
    tvm_emit(e, "call (result), vprintf, (first, second);");
    tvm_emit(e, "}");
    e->uses_vprintf = true;
}

/* Past the label in all threads of the team but the first. */
static void first_thread_alone(emitter *e, uint32_t label) {
    reg other = tvm_new_pred(e);
    tvm_emit(e, "setp.ne.b32 %s, %s, 0;", other.name, tvm_thread_id(e).name);
    tvm_emit(e, "@%s bra $L%u;", other.name, (unsigned)label);
}

/* ---- print-tensor ---- */

typedef struct printer {
    uint32_t slot;
    const tvm_layout *layout;
    tvm_dtype type, shown;
    uint32_t columns, pieces; /* of a row */
    uint32_t rows, of_matrix; /* all, and of each matrix */
    uint32_t scratch;
    reg position; /* of the thread's first element, where it varies */
    bool varies;
    reg row, piece; /* of this turn */
} printer;

static void plan_printer(emitter *e, printer *p, const tvm_insn *insn) {
    *p = (printer){.slot = tvm_operands(e->k->kernel, insn)[0].value};
    p->layout = tvm_slot_layout(e->k, p->slot);
    p->type = tvm_slot_dtype(e->k, p->slot);
    p->shown = shown_type(p->type);
    const tvm_layout *l = p->layout;
    p->columns = l->shape[l->rank - 1];
    p->pieces = (p->columns + PRINT_PIECE - 1) / PRINT_PIECE;
    p->rows = tvm_layout_elements(l) / p->columns;
    p->of_matrix = l->rank > 1 ? l->shape[l->rank - 2] : 1;
    uint32_t stride = 1;
    for (unsigned d = l->rank; d-- > 0; stride *= l->shape[d]) {
        reg part;
        if (!tvm_thread_coordinate(e, l, d, &part)) continue;
        part = tvm_pure(e, 'r', "mul.lo.u32 $, %s, %u;", part.name, (unsigned)stride);
        p->position = p->varies ? tvm_pure(e, 'r', "add.u32 $, %s, %s;", p->position.name, part.name) : part;
        p->varies = true;
    }
}

/* `%x: f16[16, 64] in block (0, 0, 0)` */
static void declare_header(emitter *e, const printer *p) {
    const char *name = tvm_string(e->k->program, e->k->kernel->slots[p->slot].name);
    char type[TVM_DTYPE_NAME_MAX];
    tvm_text format = {0};
    tvm_text_puts(&format, "%%");
    add_literal(&format, name, strlen(name));
    tvm_text_add(&format, ": %s[", tvm_dtype_name(p->type, type));
    for (unsigned d = 0; d < p->layout->rank; d++)
        tvm_text_add(&format, "%s%u", d ? ", " : "", (unsigned)p->layout->shape[d]);
    tvm_text_puts(&format, "] in block (%u, %u, %u)\n");
    declare_text(e, "header", &format);
    tvm_text_free(&format);
}

/* `[1, 0, :, :]` before a matrix; a piece within a row, and the last one of it. */
static void declare_rows(emitter *e, const printer *p) {
    const char *conversion = conversion_of(p->type);
    tvm_text matrix = {0}, within = {0}, last = {0};
    for (unsigned d = 0; d + 2 < p->layout->rank; d++) tvm_text_puts(&matrix, d ? ", %u" : "[%u");
    tvm_text_puts(&matrix, ", :, :]\n");
    for (uint32_t i = 0; i < PRINT_PIECE; i++) tvm_text_add(&within, "%s ", conversion);
    for (uint32_t i = 0, count = p->columns - (p->pieces - 1) * PRINT_PIECE; i < count; i++)
        tvm_text_add(&last, "%s%s", conversion, i + 1 == count ? "\n" : " ");
    if (p->layout->rank > 2) declare_text(e, "matrix", &matrix);
    if (p->pieces > 1) declare_text(e, "within", &within);
    declare_text(e, "last", &last);
    tvm_text_free(&matrix), tvm_text_free(&within), tvm_text_free(&last);
}

static void print_header(emitter *e) {
    static const char axes[BLOCK_AXES] = {'x', 'y', 'z'};
    uint32_t others = tvm_new_label(e);
    first_thread_alone(e, others);
    for (unsigned i = 0; i < BLOCK_AXES; i++) {
        reg index = tvm_new_r(e);
        tvm_emit(e, "mov.u32 %s, %%ctaid.%c;", index.name, axes[i]);
        tvm_emit(e, "st.local.b32 [arguments+%u], %s;", 4 * i, index.name);
    }
    call_vprintf(e, "header");
    tvm_text_add(&e->body, "$L%u:\n", (unsigned)others);
}

/* The elements of the turn's piece, from the threads that hold them. */
static void gather_piece(emitter *e, const printer *p) {
    reg first = tvm_new_r(e), base = tvm_scratch_base(e);
    reg start = word_op(e, "mul.lo.u32", p->row, p->columns),
        within = word_op(e, "mul.lo.u32", p->piece, PRINT_PIECE);
    reg left = tvm_new_r(e), count = tvm_new_r(e);
    tvm_emit(e, "add.u32 %s, %s, %s;", first.name, start.name, within.name);
    tvm_emit(e, "sub.u32 %s, %u, %s;", left.name, (unsigned)p->columns, within.name);
    tvm_emit(e, "min.u32 %s, %s, %u;", count.name, left.name, (unsigned)PRINT_PIECE);
    for (uint32_t l = 0, locals = tvm_layout_locals(p->layout); l < locals; l++) {
        uint32_t at = tvm_layout_element(p->layout, 0, l);
        reg place = tvm_new_r(e), from = tvm_new_r(e), address = tvm_new_r(e), inside = tvm_new_pred(e);
        if (p->varies)
            tvm_emit(e, "add.u32 %s, %s, %u;", place.name, p->position.name, (unsigned)at);
        else
            tvm_emit(e, "mov.b32 %s, %u;", place.name, (unsigned)at);
        tvm_emit(e, "sub.u32 %s, %s, %s;", from.name, place.name, first.name);
        tvm_emit(e, "setp.lt.u32 %s, %s, %s;", inside.name, from.name, count.name);
        reg value = tvm_emit_convert(e, p->shown, p->type, tvm_read_element(e, p->slot, l, false), false);
        tvm_emit(e, "mad.lo.u32 %s, %s, %u, %s;", address.name, from.name, (unsigned)PRINT_VALUE_BYTES,
                 base.name);
        tvm_emit(e, "@%s st.shared.%s [%s+%u], %s;", inside.name, tvm_element_suffix(p->shown), address.name,
                 (unsigned)p->scratch, value.name);
    }
}

/* Before the first piece of a matrix. */
static void print_matrix(emitter *e, const printer *p) {
    uint32_t after = 1, others = tvm_new_label(e);
    const tvm_layout *l = p->layout;
    reg within = tvm_new_pred(e), matrix = word_op(e, "div.u32", p->row, p->of_matrix);
    reg rest = word_op(e, "rem.u32", p->row, p->of_matrix), either = tvm_new_r(e);
    tvm_emit(e, "or.b32 %s, %s, %s;", either.name, rest.name, p->piece.name);
    tvm_emit(e, "setp.ne.b32 %s, %s, 0;", within.name, either.name);
    tvm_emit(e, "@%s bra $L%u;", within.name, (unsigned)others);
    for (unsigned d = l->rank - 2u; d-- > 0; after *= l->shape[d]) {
        reg index = word_op(e, "rem.u32", word_op(e, "div.u32", matrix, after), l->shape[d]);
        tvm_emit(e, "st.local.b32 [arguments+%u], %s;", 4 * d, index.name);
    }
    call_vprintf(e, "matrix");
    tvm_text_add(&e->body, "$L%u:\n", (unsigned)others);
}

static void print_piece(emitter *e, const printer *p) {
    uint32_t last = tvm_new_label(e), done = tvm_new_label(e);
    if (p->layout->rank > 2) print_matrix(e, p);
    for (unsigned i = 0; i < PRINT_PIECE && i < p->columns; i++) {
        reg value = tvm_new_rd(e);
        tvm_emit(e, "ld.shared.b64 %s, [%s+%u];", value.name, tvm_scratch_base(e).name,
                 (unsigned)(p->scratch + PRINT_VALUE_BYTES * i));
        tvm_emit(e, "st.local.b64 [arguments+%u], %s;", (unsigned)(PRINT_VALUE_BYTES * i), value.name);
    }
    if (p->pieces > 1) {
        reg ends = tvm_new_pred(e);
        tvm_emit(e, "setp.eq.u32 %s, %s, %u;", ends.name, p->piece.name, (unsigned)(p->pieces - 1));
        tvm_emit(e, "@%s bra $L%u;", ends.name, (unsigned)last);
        call_vprintf(e, "within");
        tvm_emit(e, "bra $L%u;", (unsigned)done);
    }
    tvm_text_add(&e->body, "$L%u:\n", (unsigned)last);
    call_vprintf(e, "last");
    tvm_text_add(&e->body, "$L%u:\n", (unsigned)done);
}

/* A turn for each piece of each row. */
static void print_rows(emitter *e, printer *p) {
    uint32_t head = tvm_new_label(e), others = tvm_new_label(e);
    reg turn = tvm_new_r(e), goes_on = tvm_new_pred(e);
    tvm_emit(e, "mov.b32 %s, 0;", turn.name);
    tvm_text_add(&e->body, "$L%u:\n", (unsigned)head);
    p->row = word_op(e, "div.u32", turn, p->pieces);
    p->piece = word_op(e, "rem.u32", turn, p->pieces);
    gather_piece(e, p);
    tvm_scratch_publish(e);
    first_thread_alone(e, others);
    print_piece(e, p);
    tvm_text_add(&e->body, "$L%u:\n", (unsigned)others);
    tvm_emit_thread_barrier(e);
    tvm_emit(e, "add.u32 %s, %s, 1;", turn.name, turn.name);
    tvm_emit(e, "setp.lt.u32 %s, %s, %u;", goes_on.name, turn.name, (unsigned)(p->rows * p->pieces));
    tvm_emit(e, "@%s bra $L%u;", goes_on.name, (unsigned)head);
}

tvm_status tvm_emit_PRINT_TENSOR(emitter *e, const tvm_insn *insn) {
    printer p;
    plan_printer(e, &p, insn);
    tvm_scratch_base(e);
    p.scratch = tvm_scratch_begin(e, PRINT_PIECE * PRINT_VALUE_BYTES);
    tvm_emit(e, "{");
    declare_header(e, &p);
    declare_rows(e, &p);
    tvm_emit(e, ".local .align 8 .b8 arguments[%u];", (unsigned)(PRINT_PIECE * PRINT_VALUE_BYTES));
    print_header(e);
    print_rows(e, &p);
    tvm_emit(e, "}");
    tvm_explain(e, "vprintf", 0, p.rows * p.pieces + 1, -1, "");
    return TVM_OK;
}

/* ---- printf ---- */

/* The text with a conversion in place of each {}, and the end of the line. */
static void declare_line(emitter *e, const tvm_insn *insn) {
    const tvm_operand *operands = tvm_operands(e->k->kernel, insn);
    const char *text = tvm_string(e->k->program, operands[0].value), *place;
    tvm_text format = {0};
    for (unsigned i = 2; (place = strstr(text, "{}")) != NULL; text = place + 2, i++) {
        add_literal(&format, text, (size_t)(place - text));
        tvm_text_puts(&format, conversion_of(node_of(e->k, operands[i].value)->type));
    }
    add_literal(&format, text, strlen(text));
    tvm_text_puts(&format, "\n");
    declare_text(e, "format", &format);
    tvm_text_free(&format);
}

tvm_status tvm_emit_PRINTF(emitter *e, const tvm_insn *insn) {
    const tvm_operand *operands = tvm_operands(e->k->kernel, insn);
    unsigned count = operands[1].value;
    uint32_t end = tvm_new_label(e);
    reg values[TVM_MAX_RANK];
    for (unsigned i = 0; i < count; i++)
        values[i] = tvm_emit_expr_as(e, operands[2 + i].value,
                                     shown_type(node_of(e->k, operands[2 + i].value)->type), false);
    tvm_emit(e, "{");
    declare_line(e, insn);
    tvm_emit(e, ".local .align 8 .b8 arguments[%u];", 8 * count + 8);
    first_thread_alone(e, end);
    for (unsigned i = 0; i < count; i++)
        tvm_emit(e, "st.local.%s [arguments+%u], %s;",
                 tvm_element_suffix(shown_type(node_of(e->k, operands[2 + i].value)->type)), 8 * i,
                 values[i].name);
    call_vprintf(e, "format");
    tvm_emit(e, "}");
    tvm_text_add(&e->body, "$L%u:\n", (unsigned)end);
    tvm_explain(e, "vprintf", 0, 1, -1, "");
    return TVM_OK;
}

/* ---- faults ---- */

tvm_status tvm_emit_ASSERT(emitter *e, const tvm_insn *insn) {
    tvm_emit_trap(e, tvm_emit_condition(e, tvm_operands(e->k->kernel, insn)[0].value), false);
    tvm_explain(e, "trap", 0, 1, -1, "");
    return TVM_OK;
}

tvm_status tvm_emit_TRAP(emitter *e, const tvm_insn *insn) {
    (void)insn;
    tvm_emit(e, "trap;");
    tvm_explain(e, "trap", 0, 1, -1, "");
    return TVM_OK;
}
