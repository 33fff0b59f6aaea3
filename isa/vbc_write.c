#include "vbc.h"
#include "fileio.h"
#include "language.h"
#include "vbc_format.h"

#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* ---- bytes ---- */

typedef struct sink {
    uint8_t *bytes;
    size_t size;
    size_t capacity;
    bool failed; /* out of memory: bytes are lost from here on */
} sink;

static void put_bytes(sink *out, const void *bytes, size_t size) {
    if (out->failed || size == 0) return;
    if (out->capacity - out->size < size) {
        size_t wanted = out->capacity * 2 + size + 256;
        uint8_t *moved = realloc(out->bytes, wanted);
        if (moved == NULL) {
            out->failed = true;
            return;
        }
        out->bytes = moved;
        out->capacity = wanted;
    }
    memcpy(out->bytes + out->size, bytes, size);
    out->size += size;
}

static void store_le(uint8_t *to, uint64_t value, unsigned size) {
    for (unsigned i = 0; i < size; i++) to[i] = (uint8_t)(value >> (8 * i));
}

static void put_number(sink *out, uint64_t value, unsigned size) {
    uint8_t bytes[8];
    store_le(bytes, value, size);
    put_bytes(out, bytes, size);
}

static void put_u8(sink *out, uint8_t value) {
    put_number(out, value, 1);
}
static void put_u32(sink *out, uint32_t value) {
    put_number(out, value, 4);
}

static void put_u32s(sink *out, const uint32_t *values, unsigned count) {
    for (unsigned i = 0; i < count; i++) put_u32(out, values[i]);
}

static void put_dtype(sink *out, tvm_dtype type) {
    put_u8(out, type.kind);
    put_u8(out, type.bits);
    put_u8(out, type.exponent);
    put_u8(out, type.mantissa);
}

static void put_string(sink *out, const char *text) {
    size_t length = strlen(text);
    put_u32(out, (uint32_t)length);
    put_bytes(out, text, length);
}

/* ---- numbering by first use ---- */

typedef struct order {
    uint32_t *number; /* of each old index, or TVM_NONE */
    uint32_t *list;   /* the old index of each number */
    uint32_t count;
} order;

static bool order_start(order *o, uint32_t count) {
    *o = (order){malloc((count + (size_t)1) * sizeof *o->number),
                 malloc((count + (size_t)1) * sizeof *o->list), 0};
    if (o->number == NULL || o->list == NULL) return false;
    for (uint32_t i = 0; i < count; i++) o->number[i] = TVM_NONE;
    return true;
}

static void order_end(order *o) {
    free(o->number);
    free(o->list);
    *o = (order){0};
}

/* True the first time. */
static bool order_use(order *o, uint32_t index) {
    if (o->number[index] != TVM_NONE) return false;
    o->number[index] = o->count;
    o->list[o->count++] = index;
    return true;
}

typedef struct kernel_order {
    order slots;
    order exprs;
} kernel_order;

typedef struct writer {
    const tvm_ir_program *program;
    order strings, files, layouts, shared_layouts;
    kernel_order *kernels;
    kernel_order *entries;
    unsigned language; /* the version that the file asks for */
} writer;

static void use_expr(writer *w, const tvm_ir_kernel *kernel, kernel_order *o, uint32_t expr);

static void use_extents(writer *w, const tvm_ir_kernel *kernel, kernel_order *o, const tvm_slot *slot) {
    if (slot->kind != TVM_SLOT_GLOBAL) return;
    for (unsigned d = 0; d < slot->rank; d++) use_expr(w, kernel, o, slot->shape[d]);
    for (unsigned d = 0; d < slot->rank && slot->form == TVM_FORM_STRIDED; d++)
        use_expr(w, kernel, o, slot->stride[d]);
}

/* The extents of a parameter are used once all parameters are. */
static void use_slot(writer *w, const tvm_ir_kernel *kernel, kernel_order *o, uint32_t index) {
    const tvm_slot *slot = &kernel->slots[index];
    if (!order_use(&o->slots, index)) return;
    order_use(&w->strings, slot->name);
    if (slot->kind == TVM_SLOT_REGISTER) order_use(&w->layouts, slot->layout);
    if (tvm_slot_has_places(slot->kind)) order_use(&w->shared_layouts, slot->layout);
    if (index >= kernel->param_count) use_extents(w, kernel, o, slot);
}

/* Operands before the operator, from the left. The limit on the size of an expression bounds the recursion.
 */
static void use_expr(writer *w, const tvm_ir_kernel *kernel, kernel_order *o, uint32_t expr) {
    const tvm_expr *node = &kernel->exprs[expr];
    if (o->exprs.number[expr] != TVM_NONE) return;
    if (node->op == TVM_EXPR_SLOT) use_slot(w, kernel, o, node->a);
    for (unsigned i = 0; i < tvm_expr_arity(node); i++) use_expr(w, kernel, o, node->operands[i]);
    order_use(&o->exprs, expr);
}

static void use_insn(writer *w, const tvm_ir_kernel *kernel, kernel_order *o, const tvm_insn *insn) {
    const tvm_operand *operands = tvm_operands(kernel, insn);
    for (uint32_t i = 0; i < insn->count; i++) {
        if (operands[i].kind == TVM_OPERAND_SLOT) use_slot(w, kernel, o, operands[i].value);
        if (operands[i].kind == TVM_OPERAND_EXPR) use_expr(w, kernel, o, operands[i].value);
        if (operands[i].kind == TVM_OPERAND_STRING) order_use(&w->strings, operands[i].value);
    }
    if (insn->result != TVM_NONE) use_slot(w, kernel, o, insn->result);
    if (insn->file != TVM_NONE) order_use(&w->files, insn->file);
}

static bool use_kernel(writer *w, const tvm_ir_kernel *kernel, kernel_order *o) {
    if (!order_start(&o->slots, kernel->slot_count) || !order_start(&o->exprs, kernel->expr_count))
        return false;
    order_use(&w->strings, kernel->name);
    for (uint32_t p = 0; p < kernel->param_count; p++) use_slot(w, kernel, o, p);
    for (uint32_t p = 0; p < kernel->param_count; p++) use_extents(w, kernel, o, &kernel->slots[p]);
    for (unsigned d = 0; d < 3; d++)
        if (kernel->grid[d] != TVM_NONE) use_expr(w, kernel, o, kernel->grid[d]);
    for (uint32_t i = 0; i < kernel->assume_count; i++) use_expr(w, kernel, o, kernel->assumes[i]);
    for (uint32_t i = 0; i < kernel->insn_count; i++) use_insn(w, kernel, o, &kernel->insns[i]);
    return true;
}

/* The parameters keep their places: they are the first variant's. */
static bool use_entry(writer *w, const tvm_ir_entry *entry, kernel_order *o) {
    const tvm_ir_kernel *head = &entry->head;
    if (!order_start(&o->slots, head->slot_count) || !order_start(&o->exprs, head->expr_count)) return false;
    order_use(&w->strings, head->name);
    for (uint32_t p = 0; p < head->param_count; p++) use_slot(w, head, o, p);
    for (uint32_t i = 0; i < entry->case_count; i++) {
        if (entry->cases[i].condition != TVM_NONE) use_expr(w, head, o, entry->cases[i].condition);
        if (entry->cases[i].cost != TVM_NONE) use_expr(w, head, o, entry->cases[i].cost);
    }
    return true;
}

static bool writer_start(writer *w, const tvm_ir_program *program) {
    *w = (writer){.program = program};
    w->entries = calloc(program->entry_count + (size_t)1, sizeof *w->entries);
    w->kernels = calloc(program->kernel_count + (size_t)1, sizeof *w->kernels);
    if (w->kernels == NULL || w->entries == NULL || !order_start(&w->strings, program->string_count) ||
        !order_start(&w->files, program->string_count) || !order_start(&w->layouts, program->layout_count) ||
        !order_start(&w->shared_layouts, program->shared_layout_count))
        return false;
    for (uint32_t i = 0; i < program->kernel_count; i++)
        if (!use_kernel(w, &program->kernels[i], &w->kernels[i])) return false;
    for (uint32_t i = 0; i < program->entry_count; i++)
        if (!use_entry(w, &program->entries[i], &w->entries[i])) return false;
    return true;
}

static void writer_end(writer *w) {
    for (uint32_t i = 0; w->kernels != NULL && i < w->program->kernel_count; i++) {
        order_end(&w->kernels[i].slots);
        order_end(&w->kernels[i].exprs);
    }
    for (uint32_t i = 0; w->entries != NULL && i < w->program->entry_count; i++) {
        order_end(&w->entries[i].slots);
        order_end(&w->entries[i].exprs);
    }
    free(w->kernels);
    free(w->entries);
    order_end(&w->strings);
    order_end(&w->files);
    order_end(&w->layouts);
    order_end(&w->shared_layouts);
}

/* ---- sections ---- */

static void write_strings(const writer *w, const order *strings, sink *out) {
    put_u32(out, strings->count);
    for (uint32_t i = 0; i < strings->count; i++) put_string(out, w->program->strings[strings->list[i]]);
}

static void write_layouts(const writer *w, sink *out) {
    put_u32(out, w->layouts.count);
    for (uint32_t i = 0; i < w->layouts.count; i++) {
        const tvm_layout *layout = &w->program->layouts[w->layouts.list[i]];
        put_u8(out, layout->rank);
        put_u8(out, layout->modes);
        put_u8(out, layout->spatials);
        put_u8(out, layout->locals);
        put_u32s(out, layout->shape, layout->rank);
        put_u32s(out, layout->mode_size, layout->modes);
        put_bytes(out, layout->mode_dim, layout->modes);
        for (unsigned s = 0; s < layout->spatials; s++) put_u32(out, (uint32_t)layout->spatial[s]);
        put_bytes(out, layout->local, layout->locals);
    }
}

static void write_shared_layouts(const writer *w, sink *out) {
    put_u32(out, w->shared_layouts.count);
    for (uint32_t i = 0; i < w->shared_layouts.count; i++) {
        const tvm_shared_layout *layout = &w->program->shared_layouts[w->shared_layouts.list[i]];
        put_u8(out, layout->rank);
        put_u8(out, layout->modes);
        put_u8(out, layout->swizzle_base);
        put_u8(out, layout->swizzle_bits);
        put_u8(out, layout->swizzle_shift);
        put_u32s(out, layout->shape, layout->rank);
        put_u32s(out, layout->mode_size, layout->modes);
        put_u32s(out, layout->mode_stride, layout->modes);
        put_bytes(out, layout->mode_dim, layout->modes);
    }
}

static void write_slot(const writer *w, const kernel_order *o, const tvm_slot *slot, sink *out) {
    put_u32(out, w->strings.number[slot->name]);
    put_u8(out, slot->kind);
    put_u8(out, slot->kind == TVM_SLOT_GLOBAL ? (uint8_t)(slot->rank | slot->form << VBC_FORM_SHIFT) : 0);
    put_dtype(out, slot->dtype);
    if (slot->kind == TVM_SLOT_REGISTER) put_u8(out, slot->packing);
    if (slot->kind == TVM_SLOT_REGISTER) put_u32(out, w->layouts.number[slot->layout]);
    if (tvm_slot_has_places(slot->kind)) put_u32(out, w->shared_layouts.number[slot->layout]);
    if (slot->kind == TVM_SLOT_GLOBAL)
        for (unsigned d = 0; d < slot->rank; d++) put_u32(out, o->exprs.number[slot->shape[d]]);
    if (slot->kind == TVM_SLOT_GLOBAL && slot->form == TVM_FORM_STRIDED)
        for (unsigned d = 0; d < slot->rank; d++) put_u32(out, o->exprs.number[slot->stride[d]]);
}

static void write_expr(const kernel_order *o, const tvm_expr *node, sink *out) {
    put_u8(out, node->op);
    put_dtype(out, node->type);
    switch (node->op) {
    case TVM_EXPR_INTEGER:
    case TVM_EXPR_FLOAT: {
        uint64_t bits;
        memcpy(&bits, &node->value, sizeof bits);
        put_number(out, bits, 8);
        break;
    }
    case TVM_EXPR_SLOT:
        put_u32(out, o->slots.number[node->a]);
        break;
    case TVM_EXPR_BLOCK:
    case TVM_EXPR_GRID:
    case TVM_EXPR_HAS:
    case TVM_EXPR_LIMIT:
        put_u32(out, node->a);
        break;
    default:
        for (unsigned i = 0; i < tvm_expr_arity(node); i++) put_u32(out, o->exprs.number[node->operands[i]]);
    }
}

static void write_insn(const writer *w, const kernel_order *o, const tvm_ir_kernel *kernel,
                       const tvm_insn *insn, sink *out) {
    uint32_t count = tvm_language_operands(w->program, kernel, insn, w->language);
    put_number(out, insn->op, 2);
    put_number(out, count, 2);
    put_u32(out, insn->result == TVM_NONE ? TVM_NONE : o->slots.number[insn->result]);
    for (uint32_t i = 0; i < count; i++) {
        tvm_operand operand = tvm_operands(kernel, insn)[i];
        if (operand.kind == TVM_OPERAND_SLOT) operand.value = o->slots.number[operand.value];
        if (operand.kind == TVM_OPERAND_EXPR) operand.value = o->exprs.number[operand.value];
        if (operand.kind == TVM_OPERAND_STRING) operand.value = w->strings.number[operand.value];
        put_u8(out, (uint8_t)operand.kind);
        put_u32(out, operand.value);
    }
}

static void write_kernel(const writer *w, const tvm_ir_kernel *kernel, const kernel_order *o, sink *out) {
    put_u32(out, w->strings.number[kernel->name]);
    put_u32(out, kernel->warps);
    put_u32(out, kernel->resident);
    if (w->language >= TVM_LANGUAGE_OF_CLUSTERS) put_u32s(out, kernel->cluster, 3);
    for (unsigned d = 0; d < 3; d++)
        put_u32(out, kernel->grid[d] == TVM_NONE ? TVM_NONE : o->exprs.number[kernel->grid[d]]);
    const uint32_t counts[] = {kernel->param_count, o->slots.count, o->exprs.count, kernel->assume_count,
                               kernel->insn_count};
    put_u32s(out, counts, sizeof counts / sizeof counts[0]);
    for (uint32_t i = 0; i < o->slots.count; i++) write_slot(w, o, &kernel->slots[o->slots.list[i]], out);
    for (uint32_t i = 0; i < o->exprs.count; i++) write_expr(o, &kernel->exprs[o->exprs.list[i]], out);
    for (uint32_t i = 0; i < kernel->assume_count; i++) put_u32(out, o->exprs.number[kernel->assumes[i]]);
    for (uint32_t i = 0; i < kernel->insn_count; i++) write_insn(w, o, kernel, &kernel->insns[i], out);
}

static void write_kernels(const writer *w, sink *out) {
    put_u32(out, w->program->kernel_count);
    for (uint32_t i = 0; i < w->program->kernel_count; i++)
        write_kernel(w, &w->program->kernels[i], &w->kernels[i], out);
}

/* An expression of a case, which it need not have. */
static void put_choice(const kernel_order *o, uint32_t expr, sink *out) {
    put_u32(out, expr == TVM_NONE ? TVM_NONE : o->exprs.number[expr]);
}

static void write_entries(const writer *w, sink *out) {
    put_u32(out, w->program->entry_count);
    for (uint32_t e = 0; e < w->program->entry_count; e++) {
        const tvm_ir_entry *entry = &w->program->entries[e];
        const kernel_order *o = &w->entries[e];
        put_u32(out, w->strings.number[entry->head.name]);
        put_u32(out, o->exprs.count);
        put_u32(out, entry->case_count);
        for (uint32_t i = 0; i < o->exprs.count; i++)
            write_expr(o, &entry->head.exprs[o->exprs.list[i]], out);
        for (uint32_t i = 0; i < entry->case_count; i++) {
            put_choice(o, entry->cases[i].condition, out);
            put_u32(out, entry->cases[i].kernel);
            if (w->language >= TVM_LANGUAGE_OF_COSTS) put_choice(o, entry->cases[i].cost, out);
        }
    }
}

static void write_lines(const writer *w, sink *out) {
    write_strings(w, &w->files, out);
    for (uint32_t k = 0; k < w->program->kernel_count; k++) {
        const tvm_ir_kernel *kernel = &w->program->kernels[k];
        for (uint32_t i = 0; i < kernel->insn_count; i++) {
            uint32_t file = kernel->insns[i].file;
            put_u32(out, file == TVM_NONE ? TVM_NONE : w->files.number[file]);
            put_u32(out, kernel->insns[i].line);
        }
    }
}

static void write_image(const tvm_ir_image *image, sink *out) {
    put_u32(out, image->codegen);
    put_number(out, image->hash[0], 8);
    put_number(out, image->hash[1], 8);
    put_u8(out, image->ptx ? VBC_IMAGE_PTX : VBC_IMAGE_CUBIN);
    put_string(out, image->target);
    put_string(out, image->made_by);
    put_u32(out, image->fact_count);
    for (uint32_t i = 0; i < image->fact_count; i++) put_u32(out, image->facts[i]);
    put_number(out, image->code_size, 8);
    put_bytes(out, image->code, image->code_size);
}

static void write_images(const writer *w, sink *out) {
    put_u32(out, VBC_IMAGES_VERSION);
    put_u32(out, w->program->image_count);
    for (uint32_t i = 0; i < w->program->image_count; i++) write_image(&w->program->images[i], out);
}

static void write_certificates(const writer *w, sink *out) {
    put_u32(out, VBC_CERTIFICATES_VERSION);
    for (uint32_t k = 0; k < w->program->kernel_count; k++) {
        const tvm_ir_kernel *kernel = &w->program->kernels[k];
        put_u32(out, kernel->certificate_count);
        for (uint32_t i = 0; i < kernel->certificate_count; i++) put_u32(out, kernel->certificate[i]);
    }
}

static void write_section(const writer *w, unsigned section, sink *out) {
    switch (section) {
    case VBC_STRINGS:
        write_strings(w, &w->strings, out);
        break;
    case VBC_LAYOUTS:
        write_layouts(w, out);
        break;
    case VBC_SHARED:
        write_shared_layouts(w, out);
        break;
    case VBC_KERNELS:
        write_kernels(w, out);
        break;
    case VBC_ENTRIES:
        write_entries(w, out);
        break;
    case VBC_LINES:
        write_lines(w, out);
        break;
    case VBC_CERTIFICATES:
        write_certificates(w, out);
        break;
    default:
        write_images(w, out);
        break;
    }
}

/* ---- the container ---- */

#define VBC_TAG(id, tag, required, since) tag,
static const char *const tags[VBC_SECTION_COUNT] = {VBC_SECTIONS(VBC_TAG)};
#undef VBC_TAG
#define VBC_SINCE(id, tag, required, since) since,
static const unsigned sections_since[VBC_SECTION_COUNT] = {VBC_SECTIONS(VBC_SINCE)};
#undef VBC_SINCE

static bool has_certificates(const tvm_ir_program *program) {
    for (uint32_t k = 0; k < program->kernel_count; k++)
        if (program->kernels[k].certificate_count) return true;
    return false;
}

static bool has_section(const writer *w, unsigned section, unsigned parts) {
    if (section == VBC_ENTRIES) return w->program->entry_count > 0;
    if (section == VBC_LINES) return (parts & TVM_VBC_LINES) != 0;
    if (section == VBC_CERTIFICATES)
        return (parts & TVM_VBC_CERTIFICATES) != 0 && has_certificates(w->program);
    if (section == VBC_IMAGES) return (parts & TVM_VBC_IMAGES) != 0 && w->program->image_count > 0;
    return true;
}

static void write_container(writer *w, unsigned parts, sink *out) {
    static const uint8_t blank[VBC_ENTRY_SIZE] = {0};
    unsigned count = 0;
    w->language = tvm_language_needed(w->program);
    for (unsigned s = 0; s < VBC_SECTION_COUNT; s++) {
        if (!has_section(w, s, parts)) continue;
        if (sections_since[s] > w->language) w->language = sections_since[s];
        count++;
    }
    put_bytes(out, VBC_MAGIC, VBC_MAGIC_SIZE);
    put_u32(out, TVM_VBC_VERSION);
    put_u32(out, count);
    put_number(out, 0, 8);
    put_u32(out, w->language);
    put_u32(out, 0);
    for (unsigned i = 0; i < count; i++) put_bytes(out, blank, VBC_ENTRY_SIZE);
    for (unsigned s = 0, i = 0; s < VBC_SECTION_COUNT; s++) {
        if (!has_section(w, s, parts)) continue;
        size_t offset = out->size;
        write_section(w, s, out);
        if (out->failed) return;
        uint8_t *entry = out->bytes + VBC_HEADER_SIZE + (size_t)i++ * VBC_ENTRY_SIZE;
        memcpy(entry, tags[s], VBC_TAG_SIZE);
        store_le(entry + 8, offset, 8);
        store_le(entry + 16, out->size - offset, 8);
        store_le(entry + 24, XXH3_64bits(out->bytes + offset, out->size - offset), 8);
    }
    store_le(out->bytes + 16, out->size, 8);
}

tvm_status tvm_vbc_write(const tvm_ir_program *program, unsigned parts, uint8_t **bytes, size_t *size,
                         tvm_diags *diags) {
    writer w;
    sink out = {0};
    bool ready = writer_start(&w, program);
    if (ready) write_container(&w, parts, &out);
    writer_end(&w);
    if (!ready || out.failed) {
        free(out.bytes);
        return tvm_diag_no_memory(diags);
    }
    *bytes = out.bytes;
    *size = out.size;
    return TVM_OK;
}

tvm_status tvm_vbc_write_file(const tvm_ir_program *program, const char *path, unsigned parts,
                              tvm_diags *diags) {
    uint8_t *bytes;
    size_t size;
    tvm_status status = tvm_vbc_write(program, parts, &bytes, &size, diags);
    if (status != TVM_OK) return status;
    status = tvm_file_write(path, bytes, size, diags);
    free(bytes);
    return status;
}

tvm_status tvm_vbc_hash(const tvm_ir_program *program, uint64_t hash[2], tvm_diags *diags) {
    uint8_t *bytes;
    size_t size;
    tvm_status status = tvm_vbc_write(program, 0, &bytes, &size, diags);
    if (status != TVM_OK) return status;
    XXH128_hash_t digest = XXH3_128bits(bytes, size);
    free(bytes);
    hash[0] = digest.low64;
    hash[1] = digest.high64;
    return TVM_OK;
}
