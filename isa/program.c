#include "program.h"

#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* Room for one more entry; the array, moved or not, or NULL (then the old one stands). */
static void *grown(void *items, uint32_t *capacity, uint32_t count, size_t size) {
    if (count < *capacity) return items;
    uint32_t wanted = *capacity == 0 ? 4 : *capacity * 2;
    if (wanted <= count || wanted > TVM_NONE / 2) return NULL;
    void *moved = realloc(items, wanted * size);
    if (moved != NULL) *capacity = wanted;
    return moved;
}

/* ---- sharing ---- */

typedef struct pool {
    const void *owner;
    uint32_t count;
    uint64_t (*hash)(const void *owner, uint32_t entry);
    bool (*same)(const void *owner, uint32_t entry, const void *key, size_t length);
} pool;

static void index_insert(tvm_index *index, uint64_t hash, uint32_t entry) {
    uint32_t mask = index->capacity - 1;
    uint32_t at = (uint32_t)hash & mask;
    while (index->buckets[at] != 0) at = (at + 1) & mask;
    index->buckets[at] = entry + 1;
}

/* Brings the index up to the pool, which may have grown by other means, with room for one more. */
static bool index_update(tvm_index *index, const pool *entries) {
    if (index->capacity / 2 <= entries->count) {
        uint32_t capacity = index->capacity == 0 ? 16 : index->capacity;
        while (capacity / 2 <= entries->count) {
            if (capacity > TVM_NONE / 4) return false;
            capacity *= 2;
        }
        uint32_t *buckets = calloc(capacity, sizeof *buckets);
        if (buckets == NULL) return false;
        free(index->buckets);
        *index = (tvm_index){buckets, capacity, 0};
    }
    for (; index->count < entries->count; index->count++)
        index_insert(index, entries->hash(entries->owner, index->count), index->count);
    return true;
}

static uint32_t index_find(const tvm_index *index, const pool *entries, uint64_t hash, const void *key,
                           size_t length) {
    uint32_t mask = index->capacity - 1;
    for (uint32_t at = (uint32_t)hash & mask; index->buckets[at] != 0; at = (at + 1) & mask)
        if (entries->same(entries->owner, index->buckets[at] - 1, key, length)) return index->buckets[at] - 1;
    return TVM_NONE;
}

/* ---- strings ---- */

static uint64_t hash_string(const void *owner, uint32_t entry) {
    const char *text = ((const tvm_ir_program *)owner)->strings[entry];
    return XXH3_64bits(text, strlen(text));
}

static bool same_string(const void *owner, uint32_t entry, const void *key, size_t length) {
    const char *text = ((const tvm_ir_program *)owner)->strings[entry];
    return strlen(text) == length && memcmp(text, key, length) == 0;
}

uint32_t tvm_append_string(tvm_ir_program *program, const char *text, size_t length) {
    char **items = grown(program->strings, &program->string_capacity, program->string_count, sizeof *items);
    if (items == NULL) return TVM_NONE;
    program->strings = items;
    char *copy = malloc(length + 1);
    if (copy == NULL) return TVM_NONE;
    if (length > 0) memcpy(copy, text, length);
    copy[length] = '\0';
    items[program->string_count] = copy;
    return program->string_count++;
}

uint32_t tvm_ir_program_string(tvm_ir_program *program, const char *text, size_t length) {
    pool entries = {program, program->string_count, hash_string, same_string};
    if (!index_update(&program->string_index, &entries)) return TVM_NONE;
    uint32_t found = index_find(&program->string_index, &entries, XXH3_64bits(text, length), text, length);
    return found != TVM_NONE ? found : tvm_append_string(program, text, length);
}

/* ---- layouts: plain values whose unused entries are zero, so bytes are compared ---- */

/* What mostly tells layouts apart, as many bytes as the hash takes by its short way. */
enum { LAYOUT_HASHED = 240 };
static_assert(offsetof(tvm_layout, spatial) < LAYOUT_HASHED, "");
static_assert(LAYOUT_HASHED <= sizeof(tvm_layout), "");

static uint64_t hash_layout(const void *owner, uint32_t entry) {
    return XXH3_64bits(&((const tvm_ir_program *)owner)->layouts[entry], LAYOUT_HASHED);
}

static bool same_layout(const void *owner, uint32_t entry, const void *key, size_t length) {
    return memcmp(&((const tvm_ir_program *)owner)->layouts[entry], key, length) == 0;
}

uint32_t tvm_append_layout(tvm_ir_program *program, const tvm_layout *layout) {
    if (program->layout_count >= TVM_MAX_LAYOUTS) return TVM_NONE;
    tvm_layout *items =
        grown(program->layouts, &program->layout_capacity, program->layout_count, sizeof *items);
    if (items == NULL) return TVM_NONE;
    program->layouts = items;
    items[program->layout_count] = *layout;
    return program->layout_count++;
}

uint32_t tvm_ir_program_layout(tvm_ir_program *program, const tvm_layout *layout) {
    pool entries = {program, program->layout_count, hash_layout, same_layout};
    if (!index_update(&program->layout_index, &entries)) return TVM_NONE;
    uint32_t found = index_find(&program->layout_index, &entries, XXH3_64bits(layout, LAYOUT_HASHED), layout,
                                sizeof *layout);
    return found != TVM_NONE ? found : tvm_append_layout(program, layout);
}

/* Without the padding at the end. */
enum { SHARED_LAYOUT_BYTES = offsetof(tvm_shared_layout, swizzle_shift) + 1 };

static uint64_t hash_shared_layout(const void *owner, uint32_t entry) {
    return XXH3_64bits(&((const tvm_ir_program *)owner)->shared_layouts[entry], SHARED_LAYOUT_BYTES);
}

static bool same_shared_layout(const void *owner, uint32_t entry, const void *key, size_t length) {
    return memcmp(&((const tvm_ir_program *)owner)->shared_layouts[entry], key, length) == 0;
}

uint32_t tvm_append_shared_layout(tvm_ir_program *program, const tvm_shared_layout *layout) {
    if (program->shared_layout_count >= TVM_MAX_LAYOUTS) return TVM_NONE;
    tvm_shared_layout *items = grown(program->shared_layouts, &program->shared_layout_capacity,
                                     program->shared_layout_count, sizeof *items);
    if (items == NULL) return TVM_NONE;
    program->shared_layouts = items;
    items[program->shared_layout_count] = *layout;
    return program->shared_layout_count++;
}

uint32_t tvm_ir_program_shared_layout(tvm_ir_program *program, const tvm_shared_layout *layout) {
    pool entries = {program, program->shared_layout_count, hash_shared_layout, same_shared_layout};
    if (!index_update(&program->shared_layout_index, &entries)) return TVM_NONE;
    uint32_t found = index_find(&program->shared_layout_index, &entries,
                                XXH3_64bits(layout, SHARED_LAYOUT_BYTES), layout, SHARED_LAYOUT_BYTES);
    return found != TVM_NONE ? found : tvm_append_shared_layout(program, layout);
}

/* ---- expressions ---- */

enum { EXPR_WORDS = 7 };

static void expr_words(const tvm_expr *expr, uint32_t words[EXPR_WORDS]) {
    const tvm_dtype type = expr->type;
    words[0] = expr->op;
    words[1] = (uint32_t)type.kind | (uint32_t)type.bits << 8 | (uint32_t)type.exponent << 16 |
               (uint32_t)type.mantissa << 24;
    words[2] = expr->a;
    words[3] = expr->b;
    words[4] = expr->c;
    memcpy(words + 5, &expr->value, sizeof expr->value);
}

static uint64_t hash_one_expr(const tvm_expr *expr) {
    uint32_t words[EXPR_WORDS];
    expr_words(expr, words);
    return XXH3_64bits(words, sizeof words);
}

static uint64_t hash_expr(const void *owner, uint32_t entry) {
    return hash_one_expr(&((const tvm_ir_kernel *)owner)->exprs[entry]);
}

static bool same_expr(const void *owner, uint32_t entry, const void *key, size_t length) {
    uint32_t a[EXPR_WORDS], b[EXPR_WORDS];
    (void)length;
    expr_words(&((const tvm_ir_kernel *)owner)->exprs[entry], a);
    expr_words(key, b);
    return memcmp(a, b, sizeof a) == 0;
}

uint16_t tvm_expr_tree_size(const tvm_expr *exprs, uint32_t count, const tvm_expr *node) {
    const tvm_expr_info *info = tvm_expr_op_info(node->op);
    uint32_t size = 1;
    for (unsigned i = 0; info != NULL && i < info->arity; i++) {
        if (node->operands[i] >= count) return 0;
        size += exprs[node->operands[i]].size;
    }
    return size > UINT16_MAX ? UINT16_MAX : (uint16_t)size;
}

uint32_t tvm_append_expr(tvm_ir_kernel *kernel, const tvm_expr *expr) {
    if (kernel->expr_count >= TVM_MAX_EXPRS) return TVM_NONE;
    tvm_expr *items = grown(kernel->exprs, &kernel->expr_capacity, kernel->expr_count, sizeof *items);
    if (items == NULL) return TVM_NONE;
    kernel->exprs = items;
    items[kernel->expr_count] = *expr;
    return kernel->expr_count++;
}

uint32_t tvm_ir_kernel_expr(tvm_ir_kernel *kernel, const tvm_expr *expr) {
    tvm_expr node = *expr;
    node.size = tvm_expr_tree_size(kernel->exprs, kernel->expr_count, &node);
    if (node.size == 0 || node.size > TVM_MAX_EXPR_SIZE) return TVM_NONE;
    pool entries = {kernel, kernel->expr_count, hash_expr, same_expr};
    if (!index_update(&kernel->expr_index, &entries)) return TVM_NONE;
    uint32_t found = index_find(&kernel->expr_index, &entries, hash_one_expr(&node), &node, sizeof node);
    return found != TVM_NONE ? found : tvm_append_expr(kernel, &node);
}

/* ---- programs and kernels ---- */

tvm_ir_program *tvm_ir_program_new(void) {
    return calloc(1, sizeof(tvm_ir_program));
}

static void kernel_end(tvm_ir_kernel *kernel) {
    free(kernel->slots);
    free(kernel->assumes);
    free(kernel->exprs);
    free(kernel->expr_index.buckets);
    free(kernel->operands);
    free(kernel->insns);
    free(kernel->certificate);
}

void tvm_ir_program_free(tvm_ir_program *program) {
    if (program == NULL) return;
    for (uint32_t i = 0; i < program->string_count; i++) free(program->strings[i]);
    for (uint32_t i = 0; i < program->kernel_count; i++) kernel_end(&program->kernels[i]);
    for (uint32_t i = 0; i < program->entry_count; i++) {
        kernel_end(&program->entries[i].head);
        free(program->entries[i].cases);
    }
    free(program->strings);
    free(program->layouts);
    free(program->shared_layouts);
    free(program->kernels);
    free(program->entries);
    free(program->string_index.buckets);
    free(program->layout_index.buckets);
    free(program->shared_layout_index.buckets);
    tvm_ir_program_drop_images(program);
    free(program);
}

void tvm_ir_program_drop_images(tvm_ir_program *program) {
    for (uint32_t i = 0; i < program->image_count; i++) {
        free(program->images[i].facts);
        free(program->images[i].code);
    }
    free(program->images);
    program->images = NULL;
    program->image_count = program->image_capacity = 0;
}

uint32_t tvm_ir_program_add_image(tvm_ir_program *program, const tvm_ir_image *image) {
    if (program->image_count >= TVM_MAX_IMAGES) return TVM_NONE;
    tvm_ir_image *items =
        grown(program->images, &program->image_capacity, program->image_count, sizeof *items);
    if (items == NULL) return TVM_NONE;
    program->images = items;
    size_t count = image->fact_count;
    tvm_ir_image copy = *image;
    copy.facts = malloc(count * sizeof *copy.facts + 1);
    copy.code = malloc(image->code_size + 1);
    if (copy.facts == NULL || copy.code == NULL) {
        free(copy.facts);
        free(copy.code);
        return TVM_NONE;
    }
    if (count > 0) memcpy(copy.facts, image->facts, count * sizeof *copy.facts);
    if (image->code_size > 0) memcpy(copy.code, image->code, image->code_size);
    copy.code[image->code_size] = '\0';
    items[program->image_count] = copy;
    return program->image_count++;
}

static tvm_ir_kernel empty_kernel(uint32_t name) {
    return (tvm_ir_kernel){.name = name,
                           .warps = 1,
                           .resident = 1,
                           .cluster = {1, 1, 1},
                           .grid = {TVM_NONE, TVM_NONE, TVM_NONE}};
}

uint32_t tvm_ir_program_add_kernel(tvm_ir_program *program, uint32_t name) {
    if (program->kernel_count >= TVM_MAX_KERNELS) return TVM_NONE;
    tvm_ir_kernel *items =
        grown(program->kernels, &program->kernel_capacity, program->kernel_count, sizeof *items);
    if (items == NULL) return TVM_NONE;
    program->kernels = items;
    items[program->kernel_count] = empty_kernel(name);
    return program->kernel_count++;
}

uint32_t tvm_ir_program_add_entry(tvm_ir_program *program, uint32_t name) {
    if (program->entry_count >= TVM_MAX_ENTRIES) return TVM_NONE;
    tvm_ir_entry *items =
        grown(program->entries, &program->entry_capacity, program->entry_count, sizeof *items);
    if (items == NULL) return TVM_NONE;
    program->entries = items;
    items[program->entry_count] = (tvm_ir_entry){.head = empty_kernel(name)};
    return program->entry_count++;
}

/* The head of an entry takes the parameters of its first variant. */
static bool take_signature(tvm_ir_kernel *head, const tvm_ir_kernel *kernel) {
    for (uint32_t p = 0; p < kernel->param_count && p < kernel->slot_count; p++) {
        tvm_slot slot = kernel->slots[p];
        for (unsigned d = 0; d < TVM_MAX_RANK; d++) slot.shape[d] = slot.stride[d] = TVM_NONE;
        slot.form = TVM_FORM_ROW_MAJOR;
        if (tvm_ir_kernel_add_slot(head, &slot) == TVM_NONE) return false;
        head->param_count++;
    }
    return true;
}

uint32_t tvm_ir_entry_add_case(tvm_ir_program *program, tvm_ir_entry *entry, const tvm_ir_case *made) {
    if (entry->case_count >= TVM_MAX_CASES) return TVM_NONE;
    tvm_ir_case *items = grown(entry->cases, &entry->case_capacity, entry->case_count, sizeof *items);
    if (items == NULL) return TVM_NONE;
    entry->cases = items;
    if (entry->head.slot_count == 0 && made->kernel < program->kernel_count &&
        !take_signature(&entry->head, &program->kernels[made->kernel]))
        return TVM_NONE;
    items[entry->case_count] = *made;
    return entry->case_count++;
}

uint32_t tvm_ir_kernel_add_slot(tvm_ir_kernel *kernel, const tvm_slot *slot) {
    if (kernel->slot_count >= TVM_MAX_SLOTS) return TVM_NONE;
    tvm_slot *items = grown(kernel->slots, &kernel->slot_capacity, kernel->slot_count, sizeof *items);
    if (items == NULL) return TVM_NONE;
    kernel->slots = items;
    items[kernel->slot_count] = *slot;
    return kernel->slot_count++;
}

uint32_t tvm_ir_kernel_add_assume(tvm_ir_kernel *kernel, uint32_t expr) {
    if (kernel->assume_count >= TVM_MAX_EXPRS) return TVM_NONE;
    uint32_t *items = grown(kernel->assumes, &kernel->assume_capacity, kernel->assume_count, sizeof *items);
    if (items == NULL) return TVM_NONE;
    kernel->assumes = items;
    items[kernel->assume_count] = expr;
    return kernel->assume_count++;
}

static bool append_operands(tvm_ir_kernel *kernel, const tvm_operand *operands, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        tvm_operand *items =
            grown(kernel->operands, &kernel->operand_capacity, kernel->operand_count, sizeof *items);
        if (items == NULL) return false;
        kernel->operands = items;
        items[kernel->operand_count++] = operands[i];
    }
    return true;
}

uint32_t tvm_ir_kernel_add_insn(tvm_ir_kernel *kernel, const tvm_insn *insn, const tvm_operand *operands,
                                uint32_t count) {
    if (kernel->insn_count >= TVM_MAX_INSNS) return TVM_NONE;
    tvm_insn *items = grown(kernel->insns, &kernel->insn_capacity, kernel->insn_count, sizeof *items);
    if (items == NULL) return TVM_NONE;
    kernel->insns = items;
    uint32_t first = kernel->operand_count;
    if (!append_operands(kernel, operands, count)) {
        kernel->operand_count = first;
        return TVM_NONE;
    }
    tvm_insn *copy = &items[kernel->insn_count];
    *copy = *insn;
    copy->first = first;
    copy->count = count;
    copy->match = TVM_NONE;
    return kernel->insn_count++;
}

/* ---- reading ---- */

bool tvm_is_identifier(const char *text, size_t length) {
    for (size_t i = 0; i < length; i++) {
        char c = text[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
        if (!letter && (i == 0 || c < '0' || c > '9')) return false;
    }
    return length > 0;
}

const char *tvm_string(const tvm_ir_program *program, uint32_t string) {
    return string < program->string_count ? program->strings[string] : "";
}

const tvm_ir_kernel *tvm_find_kernel(const tvm_ir_program *program, const char *name) {
    for (uint32_t i = 0; i < program->kernel_count; i++)
        if (strcmp(tvm_string(program, program->kernels[i].name), name) == 0) return &program->kernels[i];
    return NULL;
}

const tvm_ir_entry *tvm_find_entry(const tvm_ir_program *program, const char *name) {
    for (uint32_t i = 0; i < program->entry_count; i++)
        if (strcmp(tvm_string(program, program->entries[i].head.name), name) == 0)
            return &program->entries[i];
    return NULL;
}

uint32_t tvm_entry_operands(const tvm_ir_program *program, const tvm_ir_kernel *kernel,
                            const tvm_operand_desc *desc, const tvm_operand *operand) {
    if (operand->kind == TVM_OPERAND_NONE) return 1;
    if (desc->kind == 'm' && kernel->slots[operand->value].kind != TVM_SLOT_SHARED) return 1;
    if (desc->indexed) return 1 + tvm_slot_rank(program, &kernel->slots[operand->value]);
    return tvm_is_list(desc->kind) || desc->kind == 'V' ? 1 + operand->value : desc->kind == 'I' ? 2 : 1;
}

uint32_t tvm_operands_left_out(const tvm_ir_program *program, const tvm_ir_kernel *kernel, unsigned op,
                               const tvm_operand *operands, uint32_t count) {
    const char *cursor = tvm_op(op)->operands;
    tvm_operand_desc desc;
    uint32_t at = 0, left_out = 0;
    while (tvm_operand_next(&cursor, &desc)) {
        if (!desc.stored) continue;
        if (at < count)
            at += tvm_entry_operands(program, kernel, &desc, &operands[at]);
        else
            left_out += desc.optional;
    }
    return left_out;
}

const tvm_operand *tvm_insn_interval(const tvm_ir_program *program, const tvm_ir_kernel *kernel,
                                     const tvm_insn *insn) {
    const char *cursor = tvm_op(insn->op)->operands;
    const tvm_operand *operands = tvm_operands(kernel, insn);
    tvm_operand_desc desc;
    uint32_t at = 0;
    while (at < insn->count && tvm_operand_next(&cursor, &desc)) {
        if (!desc.stored) continue;
        if (desc.kind == 'I') return operands[at].kind == TVM_OPERAND_NONE ? NULL : &operands[at];
        at += tvm_entry_operands(program, kernel, &desc, &operands[at]);
    }
    return NULL;
}

unsigned tvm_slot_rank(const tvm_ir_program *program, const tvm_slot *slot) {
    switch (slot->kind) {
    case TVM_SLOT_REGISTER:
        return program->layouts[slot->layout].rank;
    case TVM_SLOT_SHARED:
    case TVM_SLOT_BARRIER:
    case TVM_SLOT_TENSOR:
        return program->shared_layouts[slot->layout].rank;
    case TVM_SLOT_GLOBAL:
        return slot->rank;
    default:
        return 0;
    }
}

const uint32_t *tvm_slot_shape(const tvm_ir_program *program, const tvm_slot *slot) {
    switch (slot->kind) {
    case TVM_SLOT_REGISTER:
        return program->layouts[slot->layout].shape;
    case TVM_SLOT_SHARED:
    case TVM_SLOT_BARRIER:
    case TVM_SLOT_TENSOR:
        return program->shared_layouts[slot->layout].shape;
    default:
        return NULL;
    }
}

bool tvm_kernel_waits(const tvm_ir_kernel *kernel) {
    for (uint32_t i = 0; i < kernel->insn_count; i++)
        if (tvm_op(kernel->insns[i].op)->effects & TVM_EFFECT_WAIT) return true;
    return false;
}

bool tvm_cancels_blocks(const tvm_ir_kernel *kernel) {
    for (uint32_t i = 0; i < kernel->insn_count; i++)
        if (kernel->insns[i].op == TVM_OP_CANCEL_BLOCK) return true;
    return false;
}

bool tvm_has_tensor_memory(const tvm_ir_kernel *kernel) {
    for (uint32_t s = kernel->param_count; s < kernel->slot_count; s++)
        if (kernel->slots[s].kind == TVM_SLOT_TENSOR) return true;
    return false;
}

uint32_t tvm_launch_tensors(const tvm_ir_kernel *kernel, tvm_launch_tensor tensors[TVM_MAX_LAUNCH_TENSORS]) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < kernel->insn_count && count < TVM_MAX_LAUNCH_TENSORS; i++) {
        const tvm_insn *insn = &kernel->insns[i];
        if (insn->op != TVM_OP_ALLOC_GLOBAL) continue;
        bool clean = tvm_operands(kernel, insn)->kind == TVM_OPERAND_CONST;
        tensors[count++] = (tvm_launch_tensor){insn->result, i, clean};
    }
    return count;
}
