/* Plans of memory accesses. */
#include "access_plan.h"

#include <stdlib.h>

typedef struct item {
    uint32_t class_id, local;
    int64_t bit; /* in memory, from the class's base */
} item;

static int compare_items(const void *a, const void *b) {
    const item *x = a, *y = b;
    if (x->class_id != y->class_id) return x->class_id < y->class_id ? -1 : 1;
    if (x->bit != y->bit) return x->bit < y->bit ? -1 : 1;
    return x->local < y->local ? -1 : x->local > y->local;
}

typedef struct builder {
    access_plan *plan;
    const item *items;
    unsigned bits, align, max;
} builder;

static int64_t floor_to(int64_t value, int64_t step) {
    int64_t rest = value % step;
    return value - (rest < 0 ? rest + step : rest);
}

static void add_field(access_plan *plan, uint32_t unit, uint32_t word, unsigned unit_bit, unsigned word_bit,
                      unsigned length) {
    if (plan->field_count > plan->unit_field[unit]) {
        field *last = &plan->fields[plan->field_count - 1];
        if (last->word == word && last->unit_bit + last->length == unit_bit &&
            last->word_bit + last->length == word_bit) {
            last->length = (uint8_t)(last->length + length);
            return;
        }
    }
    plan->fields[plan->field_count++] = (field){word, (uint8_t)unit_bit, (uint8_t)word_bit, (uint8_t)length};
}

/* The part of an element that lies in the unit of bits [first, last): at most two words. */
static void add_element(const builder *b, uint32_t unit, int64_t first, int64_t last, const item *element) {
    int64_t from = element->bit > first ? element->bit : first;
    int64_t to = element->bit + b->bits < last ? element->bit + b->bits : last;
    uint64_t in_register = (uint64_t)element->local * b->bits + (uint64_t)(from - element->bit);
    while (from < to) {
        unsigned word_bit = (unsigned)(in_register % 32);
        int64_t length = to - from < 32 - (int64_t)word_bit ? to - from : 32 - (int64_t)word_bit;
        add_field(b->plan, unit, (uint32_t)(in_register / 32), (unsigned)(from - first), word_bit,
                  (unsigned)length);
        from += length;
        in_register += (uint64_t)length;
    }
}

/* One access over bits [first, first + width) of the run of items [begin, end). */
static void add_access(const builder *b, int64_t first, unsigned width, uint32_t begin, uint32_t end) {
    access_plan *plan = b->plan;
    uint32_t units = width > 32 ? width / 32 : 1;
    access *a = &plan->accesses[plan->count++];
    *a = (access){b->items[begin].class_id, first, width, plan->unit_count, units};
    if (width > plan->widest) plan->widest = width;
    unsigned unit_bits = width < 32 ? width : 32;
    for (uint32_t u = 0; u < units; u++) {
        int64_t low = first + (int64_t)u * unit_bits, high = low + unit_bits;
        plan->unit_field[plan->unit_count] = plan->field_count;
        int64_t skip = (low - b->items[begin].bit) / (int64_t)b->bits;
        uint32_t i = begin + (skip > 0 ? (uint32_t)skip : 0);
        for (; i < end && b->items[i].bit < high; i++)
            add_element(b, plan->unit_count, low, high, &b->items[i]);
        plan->unit_count++;
    }
}

/* Cuts a contiguous run into aligned accesses of powers of two, the widest first where they fit. */
static void add_run(const builder *b, uint32_t begin, uint32_t end) {
    int64_t at = floor_to(b->items[begin].bit, 8);
    int64_t stop = floor_to(b->items[end - 1].bit + b->bits + 7, 8);
    while (at < stop) {
        unsigned width = b->max < b->align ? b->max : b->align;
        while (width > 8 && (floor_to(at, width) != at || at + width > stop)) width /= 2;
        add_access(b, at, width, begin, end);
        at += width;
    }
}

static bool plan_allocate(access_plan *plan, uint32_t locals, unsigned bits) {
    /* At worst every byte is an access, with a field for each element in it and one more a word border. */
    size_t bytes = (size_t)locals * (bits / 8 + 2) + 1;
    plan->accesses = calloc(bytes, sizeof *plan->accesses);
    plan->unit_field = calloc(bytes + 1, sizeof *plan->unit_field);
    plan->fields = calloc(2 * bytes + 2 * (size_t)locals, sizeof *plan->fields);
    return plan->accesses && plan->unit_field && plan->fields;
}

tvm_status tvm_access_plan_make(kernel_state *k, uint32_t locals, unsigned bits, const int64_t *offset,
                                const uint32_t *class_id, unsigned align_bits, unsigned max_bits,
                                access_plan *plan) {
    *plan = (access_plan){0};
    item *items = calloc(locals ? locals : 1, sizeof *items);
    if (!items || !plan_allocate(plan, locals, bits)) {
        free(items);
        tvm_access_plan_free(plan);
        return tvm_diag_no_memory(k->diags);
    }
    for (uint32_t i = 0; i < locals; i++) items[i] = (item){class_id[i], i, offset[i] * (int64_t)bits};
    qsort(items, locals, sizeof *items, compare_items);
    builder b = {plan, items, bits, align_bits, max_bits};
    for (uint32_t begin = 0, end; begin < locals; begin = end) {
        for (end = begin + 1; end < locals && items[end].class_id == items[begin].class_id &&
                              items[end].bit == items[end - 1].bit + bits;)
            end++;
        add_run(&b, begin, end);
    }
    plan->unit_field[plan->unit_count] = plan->field_count;
    free(items);
    return TVM_OK;
}

void tvm_access_plan_free(access_plan *plan) {
    free(plan->accesses);
    free(plan->fields);
    free(plan->unit_field);
    *plan = (access_plan){0};
}
