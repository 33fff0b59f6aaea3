/* print-tensor through the device's vprintf: one line an element, `%x[1, 2] = 3.5 in block (0, 0, 0)`, by the
 * lowest thread that holds it. Its arguments are a struct in local memory: CUDA C++ Programming Guide,
 * "Formatted Output"; PTX interface, "System Calls". */
#include "compute.h"

#include <string.h>

enum { BLOCK_AXES = 3 };

/* What the lines of one instruction share. */
typedef struct printer {
    uint32_t slot;
    const tvm_layout *layout;
    tvm_dtype type, shown;               /* elements, and what they are converted to: f64, i64 or u64 */
    unsigned value_offset, block_offset; /* in the arguments: index, value of 64 bits, block's index */
    reg coordinates[TVM_MAX_RANK];
    bool has_coordinate[TVM_MAX_RANK];
    reg format, arguments; /* generic addresses */
} printer;

static void plan_printer(emitter *e, printer *p, const tvm_insn *insn) {
    *p = (printer){.slot = tvm_operands(e->kernel, insn)[0].value};
    p->layout = tvm_slot_layout(e, p->slot);
    p->type = tvm_slot_dtype(e, p->slot);
    p->shown = p->type.kind == TVM_KIND_FLOAT ? TVM_F64
               : p->type.kind == TVM_KIND_INT ? TVM_I(64)
                                              : TVM_U(64);
    p->value_offset = (4u * p->layout->rank + 7u) & ~7u;
    p->block_offset = p->value_offset + 8;
    for (unsigned d = 0; d < p->layout->rank; d++)
        p->has_coordinate[d] = tvm_thread_coordinate(e, p->layout, d, &p->coordinates[d]);
}

/* The format as initialiser of a byte array; a percent sign in the name is doubled. */
static void declare_format(emitter *e, const printer *p) {
    const char *name = tvm_string(e->program, e->kernel->slots[p->slot].name);
    const char *value = p->type.kind == TVM_KIND_FLOAT ? "%g"
                        : p->type.kind == TVM_KIND_INT ? "%lld"
                                                       : "%llu";
    tvm_text format = {0};
    tvm_text_add(&format, "%%%%");
    for (; *name; name++) tvm_text_add(&format, "%s%c", *name == '%' ? "%" : "", *name);
    for (unsigned d = 0; d < p->layout->rank; d++) tvm_text_add(&format, "%s%%u", d ? ", " : "[");
    tvm_text_add(&format, "] = %s in block (%%u, %%u, %%u)\n", value);
    if (format.failed) {
        e->body.failed = true;
    } else {
        tvm_text_add(&e->body, "\t.global .align 1 .b8 format[%zu] = {", format.size + 1);
        for (size_t i = 0; i < format.size; i++)
            tvm_text_add(&e->body, "%u, ", (unsigned)(uint8_t)format.data[i]);
        tvm_text_add(&e->body, "0};\n");
    }
    tvm_text_free(&format);
}

static reg generic_address(emitter *e, const char *space, const char *name) {
    reg address = tvm_new_rd(e), generic = tvm_new_rd(e);
    tvm_emit(e, "mov.u64 %s, %s;", address.name, name);
    tvm_emit(e, "cvta.%s.u64 %s, %s;", space, generic.name, address.name);
    return generic;
}

/* Branches to the label in threads that hold nothing but copies. */
static void skip_replicas(emitter *e, const tvm_layout *layout, uint32_t label) {
    uint32_t below = 1;
    reg thread = tvm_thread_id(e);
    for (unsigned i = layout->spatials; i-- > 0;) {
        int32_t entry = layout->spatial[i];
        uint32_t size = entry < 0 ? (uint32_t)-entry : layout->mode_size[entry];
        if (entry < 0) {
            reg quotient = tvm_pure(e, 'r', "div.u32 $, %s, %u;", thread.name, (unsigned)below);
            reg digit = tvm_pure(e, 'r', "rem.u32 $, %s, %u;", quotient.name, (unsigned)size);
            reg copy = tvm_new_pred(e);
            tvm_emit(e, "setp.ne.b32 %s, %s, 0;", copy.name, digit.name);
            tvm_emit(e, "@%s bra $L%u;", copy.name, (unsigned)label);
        }
        below *= size;
    }
}

static void store_block_index(emitter *e, unsigned at) {
    static const char axes[BLOCK_AXES] = {'x', 'y', 'z'};
    for (unsigned i = 0; i < BLOCK_AXES; i++) {
        reg index = tvm_new_r(e);
        tvm_emit(e, "mov.u32 %s, %%ctaid.%c;", index.name, axes[i]);
        tvm_emit(e, "st.local.b32 [arguments+%u], %s;", at + 4 * i, index.name);
    }
}

static void store_index(emitter *e, const printer *p, unsigned d, uint32_t local_part) {
    if (!p->has_coordinate[d]) {
        tvm_emit(e, "st.local.b32 [arguments+%u], %u;", 4 * d, (unsigned)local_part);
        return;
    }
    reg index = tvm_new_r(e);
    tvm_emit(e, "add.u32 %s, %s, %u;", index.name, p->coordinates[d].name, (unsigned)local_part);
    tvm_emit(e, "st.local.b32 [arguments+%u], %s;", 4 * d, index.name);
}

static void print_element(emitter *e, const printer *p, uint32_t local) {
    uint32_t index[TVM_MAX_RANK];
    tvm_layout_map(p->layout, 0, local, index);
    for (unsigned d = 0; d < p->layout->rank; d++) store_index(e, p, d, index[d]);
    reg value = tvm_emit_convert(e, p->shown, p->type, tvm_read_element(e, p->slot, local, false), false);
    tvm_emit(e, "st.local.%s [arguments+%u], %s;", tvm_element_suffix(p->shown), p->value_offset, value.name);
    tvm_emit(e, "{");
    tvm_emit(e, ".param .b64 first;");
    tvm_emit(e, ".param .b64 second;");
    tvm_emit(e, ".param .b32 result;");
    tvm_emit(e, "st.param.b64 [first], %s;", p->format.name);
    tvm_emit(e, "st.param.b64 [second], %s;", p->arguments.name);
    tvm_emit(e, "call (result), vprintf, (first, second);");
    tvm_emit(e, "}");
}

tvm_status tvm_emit_PRINT_TENSOR(emitter *e, const tvm_insn *insn) {
    printer p;
    uint32_t end = tvm_new_label(e);
    plan_printer(e, &p, insn);
    uint32_t locals = tvm_layout_locals(p.layout);
    tvm_emit(e, "{");
    declare_format(e, &p);
    tvm_emit(e, ".local .align 8 .b8 arguments[%u];", p.block_offset + 4 * BLOCK_AXES + 4);
    skip_replicas(e, p.layout, end);
    p.format = generic_address(e, "global", "format");
    p.arguments = generic_address(e, "local", "arguments");
    store_block_index(e, p.block_offset);
    for (uint32_t l = 0; l < locals; l++) print_element(e, &p, l);
    tvm_emit(e, "}");
    tvm_text_add(&e->body, "$L%u:\n", (unsigned)end);
    e->uses_vprintf = true;
    tvm_explain(e, "vprintf", 0, locals, -1, "");
    return TVM_OK;
}
