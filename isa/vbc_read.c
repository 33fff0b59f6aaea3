#include "vbc.h"
#include "fileio.h"
#include "language.h"
#include "vbc_format.h"
#include "verify.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

typedef struct section_info {
    const char *tag;
    bool required;
} section_info;

#define VBC_SECTION_ROW(id, tag, required, since) {tag, required},
static const section_info section_table[VBC_SECTION_COUNT] = {VBC_SECTIONS(VBC_SECTION_ROW)};
#undef VBC_SECTION_ROW

typedef struct section {
    size_t offset, size;
    bool present;
} section;

/* How many operands a row's instructions have at most in the file's version of the language, and how many
 * came later. */
typedef struct row_extent {
    bool known;
    uint16_t most, later;
} row_extent;

typedef struct reader {
    const uint8_t *bytes;
    size_t size;
    const char *name;
    tvm_diags *diags;
    section sections[VBC_SECTION_COUNT];
    tvm_ir_program *program;
    tvm_status status;
    size_t header_size;
    unsigned language; /* that the file says it needs */
    /* where in which section it reads */
    unsigned current;
    size_t at, end;
    row_extent rows[TVM_OP_COUNT]; /* of those that were met */
} reader;

static tvm_status refuse(reader *r, tvm_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Reports the first error alone: what follows would be its consequence. */
static tvm_status refuse(reader *r, tvm_status status, const char *format, ...) {
    if (r->status != TVM_OK) return r->status;
    const tvm_place place = {.file = r->name};
    va_list arguments;
    va_start(arguments, format);
    r->status = tvm_diag_addv(r->diags, status, &place, NULL, format, arguments);
    va_end(arguments);
    return r->status;
}

/* ---- numbers ---- */

static inline uint64_t load_le(const uint8_t *from, unsigned size) {
    uint64_t value = 0;
    for (unsigned i = 0; i < size; i++) value |= (uint64_t)from[i] << (8 * i);
    return value;
}

/* The entry is not all there. */
__attribute__((cold, noinline)) static const uint8_t *take_none(reader *r, size_t size) {
    if (r->status == TVM_OK && r->end - r->at < size)
        refuse(r, TVM_FORMAT, "section %s ends at offset %zu inside of an entry that begins at %zu",
               section_table[r->current].tag, r->end, r->at);
    return NULL;
}

/* `size` bytes of the section, or NULL: from the first failure on nothing more is read. */
static inline const uint8_t *take(reader *r, size_t size) {
    if (r->status != TVM_OK || r->end - r->at < size) return take_none(r, size);
    const uint8_t *bytes = r->bytes + r->at;
    r->at += size;
    return bytes;
}

static inline uint64_t take_number(reader *r, unsigned size) {
    const uint8_t *bytes = take(r, size);
    return bytes != NULL ? load_le(bytes, size) : 0;
}

static uint8_t take_u8(reader *r) {
    return (uint8_t)take_number(r, 1);
}
static uint32_t take_u32(reader *r) {
    return (uint32_t)take_number(r, 4);
}

static void take_u32s(reader *r, uint32_t *values, unsigned count) {
    for (unsigned i = 0; i < count; i++) values[i] = take_u32(r);
}

static void take_u8s(reader *r, uint8_t *values, unsigned count) {
    for (unsigned i = 0; i < count; i++) values[i] = take_u8(r);
}

static tvm_dtype take_dtype(reader *r) {
    tvm_dtype type;
    type.kind = take_u8(r);
    type.bits = take_u8(r);
    type.exponent = take_u8(r);
    type.mantissa = take_u8(r);
    return type;
}

/* A count of entries, each of which takes at least `least` bytes of the section. */
static uint32_t take_count(reader *r, size_t least, uint32_t limit, const char *what) {
    size_t offset = r->at;
    uint32_t count = take_u32(r);
    const char *tag = section_table[r->current].tag;
    if (count > limit)
        refuse(r, TVM_FORMAT, "section %s, offset %zu: %" PRIu32 " %s, expected at most %" PRIu32, tag,
               offset, count, what, limit);
    else if (count > (r->end - r->at) / least)
        refuse(r, TVM_FORMAT, "section %s, offset %zu: %" PRIu32 " %s do not fit the section", tag, offset,
               count, what);
    return r->status == TVM_OK ? count : 0;
}

/* A small number at most `limit`. */
static uint8_t take_small(reader *r, unsigned limit, const char *what) {
    size_t offset = r->at;
    uint8_t value = take_u8(r);
    if (value > limit)
        refuse(r, TVM_FORMAT, "section %s, offset %zu: %s is %u, expected at most %u",
               section_table[r->current].tag, offset, what, value, limit);
    return r->status == TVM_OK ? value : 0;
}

static bool keep(reader *r, uint32_t index) {
    if (index == TVM_NONE && r->status == TVM_OK) r->status = tvm_diag_no_memory(r->diags);
    return r->status == TVM_OK;
}

/* ---- sections ---- */

static bool read_string(reader *r) {
    size_t offset = r->at;
    uint32_t length = take_u32(r);
    const uint8_t *text = take(r, length);
    if (text == NULL) return false;
    if (length > 0 && memchr(text, 0, length) != NULL) {
        refuse(r, TVM_FORMAT, "section %s, offset %zu: a string contains a NUL",
               section_table[r->current].tag, offset);
        return false;
    }
    return keep(r, tvm_append_string(r->program, (const char *)text, length));
}

static void read_strings(reader *r) {
    uint32_t count = take_count(r, 4, TVM_NONE / 4, "strings");
    for (uint32_t i = 0; i < count && read_string(r); i++) continue;
}

static void read_layouts(reader *r) {
    uint32_t count = take_count(r, 8, TVM_MAX_LAYOUTS, "layouts");
    for (uint32_t i = 0; i < count && r->status == TVM_OK; i++) {
        tvm_layout layout = {0};
        layout.rank = take_small(r, TVM_MAX_RANK, "the rank");
        layout.modes = take_small(r, TVM_MAX_MODES, "the number of modes");
        layout.spatials = take_small(r, TVM_MAX_MODES, "the number of spatial digits");
        layout.locals = take_small(r, TVM_MAX_MODES, "the number of local digits");
        take_u32s(r, layout.shape, layout.rank);
        take_u32s(r, layout.mode_size, layout.modes);
        take_u8s(r, layout.mode_dim, layout.modes);
        for (unsigned s = 0; s < layout.spatials; s++) layout.spatial[s] = (int32_t)take_u32(r);
        take_u8s(r, layout.local, layout.locals);
        if (r->status == TVM_OK) keep(r, tvm_append_layout(r->program, &layout));
    }
}

static void read_shared_layouts(reader *r) {
    uint32_t count = take_count(r, 9, TVM_MAX_LAYOUTS, "shared layouts");
    for (uint32_t i = 0; i < count && r->status == TVM_OK; i++) {
        tvm_shared_layout layout;
        memset(&layout, 0, sizeof layout);
        layout.rank = take_small(r, TVM_MAX_RANK, "the rank");
        layout.modes = take_small(r, TVM_MAX_MODES, "the number of modes");
        layout.swizzle_base = take_u8(r);
        layout.swizzle_bits = take_u8(r);
        layout.swizzle_shift = take_u8(r);
        take_u32s(r, layout.shape, layout.rank);
        take_u32s(r, layout.mode_size, layout.modes);
        take_u32s(r, layout.mode_stride, layout.modes);
        take_u8s(r, layout.mode_dim, layout.modes);
        if (r->status == TVM_OK) keep(r, tvm_append_shared_layout(r->program, &layout));
    }
}

static void read_slot(reader *r, tvm_ir_kernel *kernel) {
    tvm_slot slot = {.layout = TVM_NONE};
    slot.name = take_u32(r);
    slot.kind = take_small(r, TVM_SLOT_KINDS - 1, "the kind of a variable");
    uint8_t most = TVM_MAX_RANK | (TVM_FORMS - 1) << VBC_FORM_SHIFT;
    slot.rank = take_small(r, slot.kind == TVM_SLOT_GLOBAL ? most : 0, "the rank of a variable");
    slot.form = slot.rank >> VBC_FORM_SHIFT;
    slot.rank &= (1 << VBC_FORM_SHIFT) - 1;
    if (slot.rank > TVM_MAX_RANK) slot.rank = 0; /* which the verifier refuses */
    slot.dtype = take_dtype(r);
    if (slot.kind == TVM_SLOT_REGISTER)
        slot.packing = take_small(r, TVM_PACKING_COUNT - 1, "the packing of a variable");
    if (slot.kind == TVM_SLOT_REGISTER || tvm_slot_has_places(slot.kind)) slot.layout = take_u32(r);
    take_u32s(r, slot.shape, slot.rank);
    if (slot.form == TVM_FORM_STRIDED) take_u32s(r, slot.stride, slot.rank);
    if (r->status == TVM_OK) keep(r, tvm_ir_kernel_add_slot(kernel, &slot));
}

static void read_expr(reader *r, tvm_ir_kernel *kernel) {
    tvm_expr node = {0};
    node.op = take_small(r, TVM_EXPR_COUNT - 1, "the operator of an expression");
    node.type = take_dtype(r);
    if (node.op == TVM_EXPR_INTEGER || node.op == TVM_EXPR_FLOAT) {
        uint64_t bits = take_number(r, 8);
        memcpy(&node.value, &bits, sizeof bits);
    } else if (node.op == TVM_EXPR_SLOT || node.op == TVM_EXPR_BLOCK || node.op == TVM_EXPR_GRID ||
               node.op == TVM_EXPR_HAS || node.op == TVM_EXPR_LIMIT) {
        take_u32s(r, node.operands, 1);
    } else {
        take_u32s(r, node.operands, tvm_expr_arity(&node));
    }
    if (r->status == TVM_OK) keep(r, tvm_append_expr(kernel, &node));
}

/* Each a byte, its kind, and four. */
static void take_operands(reader *r, tvm_operand *operands, uint32_t count) {
    enum { SIZE = 5 };
    size_t offset = r->at;
    const uint8_t *bytes = take(r, (size_t)count * SIZE);
    for (uint32_t i = 0; bytes != NULL && i < count; i++) {
        operands[i].kind = bytes[i * SIZE];
        operands[i].value = (uint32_t)load_le(bytes + i * SIZE + 1, 4);
        if (operands[i].kind > TVM_OPERAND_STRING)
            refuse(r, TVM_FORMAT, "section %s, offset %zu: the kind of an operand is %u, expected at most %u",
                   section_table[r->current].tag, offset + i * SIZE, operands[i].kind, TVM_OPERAND_STRING);
    }
}

static row_extent extent_of(reader *r, unsigned op, const tvm_op_info *info) {
    row_extent *row = &r->rows[op];
    if (!row->known) {
        row->later = (uint16_t)tvm_language_later_operands(info, r->language);
        row->most = (uint16_t)(tvm_op_operands_max(info) - row->later);
        row->known = true;
    }
    return *row;
}

_Static_assert(TVM_INSN_OPERANDS <= UINT16_MAX, "a row's operands are counted in 16 bits");

static void read_insn(reader *r, tvm_ir_kernel *kernel) {
    size_t offset = r->at;
    tvm_operand operands[TVM_INSN_OPERANDS];
    tvm_insn insn = {.match = TVM_NONE, .file = TVM_NONE};
    insn.op = (uint16_t)take_number(r, 2);
    uint32_t count = (uint32_t)take_number(r, 2);
    insn.result = take_u32(r);
    const tvm_op_info *info = tvm_op(insn.op);
    if (info == NULL) {
        refuse(
            r, TVM_FORMAT,
            "section %s, offset %zu: opcode %u does not exist in version %u of the language, which the file asks for",
            section_table[r->current].tag, offset, insn.op, r->language);
        return;
    }
    const row_extent row = extent_of(r, insn.op, info);
    if (count > row.most) {
        refuse(r, TVM_FORMAT, "section %s, offset %zu: %s with %" PRIu32 " operands, expected at most %u",
               section_table[r->current].tag, offset, info->mnemonic, count, row.most);
        return;
    }
    take_operands(r, operands, count);
    for (unsigned i = 0; i < row.later; i++) operands[count++] = (tvm_operand){TVM_OPERAND_NONE, 0};
    if (r->status == TVM_OK) keep(r, tvm_ir_kernel_add_insn(kernel, &insn, operands, count));
}

static void read_kernel(reader *r) {
    uint32_t name = take_u32(r);
    if (r->status != TVM_OK || !keep(r, tvm_ir_program_add_kernel(r->program, name))) return;
    tvm_ir_kernel *kernel = &r->program->kernels[r->program->kernel_count - 1];
    kernel->warps = take_u32(r);
    kernel->resident = take_u32(r);
    if (r->language >= TVM_LANGUAGE_OF_CLUSTERS) take_u32s(r, kernel->cluster, 3);
    take_u32s(r, kernel->grid, 3);
    kernel->param_count = take_count(r, 1, TVM_MAX_PARAMS, "parameters");
    uint32_t slots = take_count(r, 10, TVM_MAX_SLOTS, "variables");
    uint32_t exprs = take_count(r, 9, TVM_MAX_EXPRS, "expressions");
    uint32_t assumes = take_count(r, 4, TVM_MAX_EXPRS, "assumptions");
    uint32_t insns = take_count(r, 8, TVM_MAX_INSNS, "instructions");
    for (uint32_t i = 0; i < slots && r->status == TVM_OK; i++) read_slot(r, kernel);
    for (uint32_t i = 0; i < exprs && r->status == TVM_OK; i++) read_expr(r, kernel);
    for (uint32_t i = 0; i < assumes && r->status == TVM_OK; i++) {
        uint32_t expr = take_u32(r);
        if (r->status == TVM_OK) keep(r, tvm_ir_kernel_add_assume(kernel, expr));
    }
    for (uint32_t i = 0; i < insns && r->status == TVM_OK; i++) read_insn(r, kernel);
}

static void read_kernels(reader *r) {
    uint32_t count = take_count(r, 40, TVM_MAX_KERNELS, "kernels");
    for (uint32_t i = 0; i < count && r->status == TVM_OK; i++) read_kernel(r);
}

static void read_entry_table(reader *r) {
    uint32_t name = take_u32(r);
    if (r->status != TVM_OK || !keep(r, tvm_ir_program_add_entry(r->program, name))) return;
    tvm_ir_entry *entry = &r->program->entries[r->program->entry_count - 1];
    entry->shapes_may_differ = r->language < TVM_LANGUAGE_OF_SHAPES;
    uint32_t exprs = take_count(r, 5, TVM_MAX_EXPRS, "expressions");
    bool costs = r->language >= TVM_LANGUAGE_OF_COSTS;
    uint32_t cases = take_count(r, costs ? 12 : 8, TVM_MAX_CASES, "cases");
    for (uint32_t i = 0; i < exprs && r->status == TVM_OK; i++) read_expr(r, &entry->head);
    for (uint32_t i = 0; i < cases && r->status == TVM_OK; i++) {
        tvm_ir_case made;
        made.condition = take_u32(r);
        made.kernel = take_u32(r);
        made.cost = costs ? take_u32(r) : TVM_NONE;
        if (r->status == TVM_OK) keep(r, tvm_ir_entry_add_case(r->program, entry, &made));
    }
}

static void read_entries(reader *r) {
    uint32_t count = take_count(r, 12, TVM_MAX_ENTRIES, "entries");
    for (uint32_t i = 0; i < count && r->status == TVM_OK; i++) read_entry_table(r);
}

static void read_lines(reader *r) {
    uint32_t first = r->program->string_count;
    read_strings(r);
    uint32_t files = r->program->string_count - first;
    for (uint32_t k = 0; k < r->program->kernel_count; k++) {
        tvm_ir_kernel *kernel = &r->program->kernels[k];
        for (uint32_t i = 0; i < kernel->insn_count && r->status == TVM_OK; i++) {
            size_t offset = r->at;
            uint32_t file = take_u32(r);
            uint32_t line = take_u32(r);
            if (file != TVM_NONE && file >= files)
                refuse(r, TVM_FORMAT, "section LINE, offset %zu: file %" PRIu32 ", expected below %" PRIu32,
                       offset, file, files);
            kernel->insns[i].file = file == TVM_NONE ? TVM_NONE : first + file;
            kernel->insns[i].line = line;
        }
    }
}

/* A short text of printable ASCII: it is shown to the user. */
static void take_text(reader *r, char *text, size_t capacity, const char *what) {
    size_t offset = r->at;
    uint32_t length = take_u32(r);
    const uint8_t *bytes = length < capacity ? take(r, length) : NULL;
    bool good = length < capacity;
    for (uint32_t i = 0; bytes != NULL && i < length; i++) good = good && bytes[i] >= 0x20 && bytes[i] < 0x7f;
    if (!good)
        refuse(r, TVM_FORMAT,
               "section %s, offset %zu: %s is not a text of less than %zu printable characters",
               section_table[r->current].tag, offset, what, capacity);
    if (bytes == NULL || !good) return;
    memcpy(text, bytes, length);
    text[length] = '\0';
}

/* How many facts follow; in the first version of the section as many for each kernel. */
static uint32_t take_fact_count(reader *r, uint32_t version) {
    enum { V1_WORDS = 64 };
    if (version > 1) return take_count(r, 4, TVM_MAX_IMAGE_FACTS, "facts of an image");
    uint32_t kernels = take_count(r, 1, TVM_MAX_KERNELS, "kernels of an image");
    return kernels * take_count(r, 1, V1_WORDS, "numbers of a kernel");
}

static void read_image(reader *r, uint32_t version) {
    tvm_ir_image image = {0};
    image.codegen = take_u32(r);
    image.hash[0] = take_number(r, 8);
    image.hash[1] = take_number(r, 8);
    image.ptx = take_small(r, VBC_IMAGE_CUBIN, "the kind of an image") == VBC_IMAGE_PTX;
    take_text(r, image.target, sizeof image.target, "the target of an image");
    take_text(r, image.made_by, sizeof image.made_by, "the maker of an image");
    image.fact_count = take_fact_count(r, version);
    image.facts = malloc(image.fact_count * sizeof *image.facts + 1);
    if (image.facts == NULL && r->status == TVM_OK) r->status = tvm_diag_no_memory(r->diags);
    if (r->status == TVM_OK) take_u32s(r, image.facts, image.fact_count);
    uint64_t size = take_number(r, 8);
    const uint8_t *code = take(r, size);
    if (code != NULL) {
        tvm_ir_image borrowed = image;
        borrowed.code_size = size;
        borrowed.code = (uint8_t *)(uintptr_t)code; /* which is copied */
        keep(r, tvm_ir_program_add_image(r->program, &borrowed));
    }
    free(image.facts);
}

static void read_images(reader *r) {
    uint32_t version = take_u32(r);
    if (r->status == TVM_OK && (version < 1 || version > VBC_IMAGES_VERSION))
        refuse(r, TVM_VERSION, "section %s: version %" PRIu32 ": this program reads versions up to %d",
               section_table[r->current].tag, version, VBC_IMAGES_VERSION);
    uint32_t count = take_count(r, VBC_IMAGE_MIN, TVM_MAX_IMAGES, "images");
    for (uint32_t i = 0; i < count && r->status == TVM_OK; i++) read_image(r, version);
}

static void read_certificate(reader *r, tvm_ir_kernel *kernel) {
    uint32_t count = take_count(r, 4, TVM_MAX_CERTIFICATE, "words");
    if (count == 0) return;
    kernel->certificate = malloc(count * sizeof *kernel->certificate);
    if (kernel->certificate == NULL) {
        r->status = tvm_diag_no_memory(r->diags);
        return;
    }
    kernel->certificate_count = count;
    take_u32s(r, kernel->certificate, count);
}

/* Whether they confirm anything is not asked here. */
static void read_certificates(reader *r) {
    uint32_t version = take_u32(r);
    if (r->status == TVM_OK && version != VBC_CERTIFICATES_VERSION)
        refuse(r, TVM_VERSION, "section %s: version %" PRIu32 ": this program reads version %d",
               section_table[r->current].tag, version, VBC_CERTIFICATES_VERSION);
    for (uint32_t k = 0; k < r->program->kernel_count && r->status == TVM_OK; k++)
        read_certificate(r, &r->program->kernels[k]);
}

static void (*const section_readers[VBC_SECTION_COUNT])(reader *r) = {
    [VBC_STRINGS] = read_strings, [VBC_LAYOUTS] = read_layouts,           [VBC_SHARED] = read_shared_layouts,
    [VBC_KERNELS] = read_kernels, [VBC_ENTRIES] = read_entries,           [VBC_LINES] = read_lines,
    [VBC_IMAGES] = read_images,   [VBC_CERTIFICATES] = read_certificates,
};

static tvm_status read_section(reader *r, unsigned index) {
    const section *s = &r->sections[index];
    if (!s->present) return TVM_OK;
    r->current = index;
    r->at = s->offset;
    r->end = s->offset + s->size;
    section_readers[index](r);
    if (r->status == TVM_OK && r->at != r->end)
        refuse(r, TVM_FORMAT, "section %s: %zu bytes too many at offset %zu", section_table[index].tag,
               r->end - r->at, r->at);
    return r->status;
}

/* ---- header and table ---- */

static tvm_status read_header(reader *r, uint32_t *sections) {
    if (!tvm_vbc_begins(r->bytes, r->size))
        return refuse(r, TVM_FORMAT, "not a bytecode file: it does not begin with the magic number of .vbc");
    uint32_t version = r->size >= 12 ? (uint32_t)load_le(r->bytes + 8, 4) : TVM_VBC_VERSION;
    r->header_size = version == 2 ? VBC_HEADER_SIZE_2 : VBC_HEADER_SIZE;
    if (version < TVM_VBC_OLDEST || version > TVM_VBC_VERSION)
        return refuse(r, TVM_VERSION, "bytecode version %" PRIu32 ": this program reads versions %d to %d",
                      version, TVM_VBC_OLDEST, TVM_VBC_VERSION);
    if (r->size < r->header_size)
        return refuse(r, TVM_FORMAT, "the file is truncated: %zu bytes, the header has %zu", r->size,
                      r->header_size);
    r->language = version == 2 ? 1 : (unsigned)load_le(r->bytes + 24, 4);
    if (r->language < 1 || r->language > TVM_LANGUAGE_VERSION)
        return refuse(r, TVM_VERSION,
                      "the program needs version %u of the language: this one knows versions 1 to %d",
                      r->language, TVM_LANGUAGE_VERSION);
    if (version != 2 && load_le(r->bytes + 28, 4) != 0)
        return refuse(r, TVM_FORMAT, "offset 28: the reserved field is not 0");
    *sections = (uint32_t)load_le(r->bytes + 12, 4);
    uint64_t total = load_le(r->bytes + 16, 8);
    if (total > r->size)
        return refuse(r, TVM_FORMAT, "the file is truncated: %zu bytes of %" PRIu64, r->size, total);
    if (total < r->size)
        return refuse(r, TVM_FORMAT, "more bytes follow the end of the program at offset %" PRIu64, total);
    if (*sections > VBC_MAX_SECTIONS || r->header_size + (size_t)*sections * VBC_ENTRY_SIZE > r->size)
        return refuse(r, TVM_FORMAT, "offset 12: a table of %" PRIu32 " sections does not fit the file",
                      *sections);
    return TVM_OK;
}

static int find_section(const uint8_t *tag) {
    for (int i = 0; i < VBC_SECTION_COUNT; i++)
        if (memcmp(tag, section_table[i].tag, VBC_TAG_SIZE) == 0) return i;
    return -1;
}

/* A tag as text: what is not printable becomes '?'. */
static void tag_text(const uint8_t *tag, char text[VBC_TAG_SIZE + 1]) {
    for (int i = 0; i < VBC_TAG_SIZE; i++) text[i] = (char)(tag[i] > 0x20 && tag[i] < 0x7f ? tag[i] : '?');
    text[VBC_TAG_SIZE] = '\0';
}

/* `next`: where the section has to begin, then where it ends. */
static tvm_status read_entry(reader *r, size_t at, uint64_t *next) {
    const uint8_t *entry = r->bytes + at;
    char tag[VBC_TAG_SIZE + 1];
    tag_text(entry, tag);
    uint64_t offset = load_le(entry + 8, 8), size = load_le(entry + 16, 8);
    int index = find_section(entry);
    if (index < 0)
        return refuse(r, TVM_FORMAT,
                      "offset %zu: no section '%s' in version %u of the language, which the file asks for",
                      at, tag, r->language);
    if (load_le(entry + 4, 4) != 0)
        return refuse(r, TVM_FORMAT, "offset %zu: section %s: the reserved field is not 0", at, tag);
    if (r->sections[index].present) return refuse(r, TVM_FORMAT, "offset %zu: a second section %s", at, tag);
    if (offset > r->size || size > r->size - offset)
        return refuse(r, TVM_FORMAT,
                      "offset %zu: section %s, %" PRIu64 " bytes at %" PRIu64 ", lies outside of the file",
                      at, tag, size, offset);
    if (offset != *next)
        return refuse(r, TVM_FORMAT, "offset %zu: section %s begins at %" PRIu64 ", %s %" PRIu64, at, tag,
                      offset, offset < *next ? "overlapping what ends at" : "leaving a gap after", *next);
    uint64_t checksum = XXH3_64bits(r->bytes + offset, size);
    if (checksum != load_le(entry + 24, 8))
        return refuse(r, TVM_FORMAT, "section %s at offset %" PRIu64 " is corrupted: its checksum is wrong",
                      tag, offset);
    r->sections[index] = (section){(size_t)offset, (size_t)size, true};
    *next = offset + size;
    return TVM_OK;
}

static tvm_status read_table(reader *r) {
    uint32_t count = 0;
    if (read_header(r, &count) != TVM_OK) return r->status;
    uint64_t next = r->header_size + (uint64_t)count * VBC_ENTRY_SIZE;
    for (uint32_t i = 0; i < count; i++)
        if (read_entry(r, r->header_size + (size_t)i * VBC_ENTRY_SIZE, &next) != TVM_OK) return r->status;
    if (next != r->size)
        return refuse(r, TVM_FORMAT, "%" PRIu64 " bytes at offset %" PRIu64 " belong to no section",
                      (uint64_t)r->size - next, next);
    for (int i = 0; i < VBC_SECTION_COUNT; i++)
        if (section_table[i].required && !r->sections[i].present)
            return refuse(r, TVM_FORMAT, "section %s is missing", section_table[i].tag);
    return TVM_OK;
}

/* ---- the whole ---- */

/* Diagnostics of the verifier that know no source file are about this one. */
static void name_diagnostics(tvm_diags *diags, size_t first, const char *name) {
    for (size_t i = first; name != NULL && i < diags->count; i++)
        if (diags->items[i].file == NULL) diags->items[i].file = strdup(name);
}

/* What uses more than it says would be taken for older than it is. */
static tvm_status check_language(reader *r) {
    unsigned needed = tvm_language_needed(r->program);
    if (needed <= r->language) return TVM_OK;
    return refuse(r, TVM_FORMAT,
                  "the program needs version %u of the language, but the file asks for version %u", needed,
                  r->language);
}

static tvm_status read_program(reader *r) {
    if (read_table(r) != TVM_OK) return r->status;
    r->program = tvm_ir_program_new();
    if (r->program == NULL) return tvm_diag_no_memory(r->diags);
    for (unsigned i = 0; i < VBC_SECTION_COUNT; i++)
        if (read_section(r, i) != TVM_OK) return r->status;
    size_t before = r->diags != NULL ? r->diags->count : 0;
    tvm_status status = tvm_verify(r->program, r->diags);
    if (status != TVM_OK && r->diags != NULL) name_diagnostics(r->diags, before, r->name);
    return status == TVM_OK ? check_language(r) : status;
}

tvm_status tvm_vbc_read(const uint8_t *bytes, size_t size, const char *name, tvm_ir_program **program,
                        tvm_diags *diags) {
    reader r = {.bytes = bytes, .size = size, .name = name, .diags = diags};
    tvm_status status = read_program(&r);
    if (status != TVM_OK) {
        tvm_ir_program_free(r.program);
        return status;
    }
    *program = r.program;
    return TVM_OK;
}

bool tvm_vbc_begins(const uint8_t *bytes, size_t size) {
    return size >= VBC_MAGIC_SIZE && memcmp(bytes, VBC_MAGIC, VBC_MAGIC_SIZE) == 0;
}

/* As the header says it. */
uint64_t tvm_vbc_extent(const uint8_t *bytes, size_t size) {
    if (size < VBC_HEADER_SIZE_2) return VBC_HEADER_SIZE_2;
    return tvm_vbc_begins(bytes, size) ? load_le(bytes + 16, 8) : 0;
}

tvm_status tvm_vbc_read_file(const char *path, tvm_ir_program **program, tvm_diags *diags) {
    uint8_t *bytes;
    size_t size;
    tvm_status status = tvm_file_read_extent(path, TVM_VBC_FILE_MAX, tvm_vbc_extent, &bytes, &size, diags);
    if (status != TVM_OK) return status;
    status = tvm_vbc_read(bytes, size, strcmp(path, "-") == 0 ? "<stdin>" : path, program, diags);
    free(bytes);
    return status;
}
