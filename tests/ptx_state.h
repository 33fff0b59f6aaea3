/* Inside ptx_machine.h: the text of an entry as instructions, and what they act upon: registers, and shared
 * memory with who sees what was written to it. */
#ifndef TVM_TESTS_PTX_STATE_H
#define TVM_TESTS_PTX_STATE_H

#include "check_kit.h"
#include <ctype.h>
#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convert.h"
#include "ptx_types.h"

static const char ptx_endless[] = "no end is in sight";
static const char *const ptx_prefixes[PTX_CLASSES] = {"rd", "fd", "td", "r", "f",
                                                      "p",  "h",  "w",  "t", "local"};
static const unsigned ptx_widths[PTX_CLASSES] = {64, 64, 64, 32, 32, 1, 16, 32, 32, 32};

static inline uint64_t ptx_mask(uint64_t value, unsigned width) {
    return width >= 64 ? value : value & ((UINT64_C(1) << width) - 1);
}

static inline int64_t ptx_signed(uint64_t value, unsigned width) {
    return (int64_t)(value << (64 - width)) >> (64 - width);
}

static inline bool ptx_is(const char *a, const char *b) {
    /* asked of each thread for each row: mostly the first two letters say no */
    return a[0] == b[0] && (a[0] == '\0' || a[1] == b[1]) && strcmp(a, b) == 0;
}

#ifndef ptx_abort /* where a test wants to be told itself */
#define ptx_abort(...) ck_abort_msg(__VA_ARGS__)
#endif
/* As ck_assert_msg, which also notes its place in a file at each call, and is slow for that. */
#define ptx_must(condition, ...)                                                                             \
    do {                                                                                                     \
        if (!(condition)) ptx_abort(__VA_ARGS__);                                                            \
    } while (0)

/* ---- reading the text ---- */

static inline unsigned ptx_class(const char *name, const char **number) {
    for (unsigned c = 0; c < PTX_CLASSES; c++) {
        size_t length = strlen(ptx_prefixes[c]);
        if (strncmp(name, ptx_prefixes[c], length) == 0 &&
            (isdigit((unsigned char)name[length]) || name[length] == '<')) {
            *number = name + length;
            return c;
        }
    }
    ck_abort_msg("ptx: unknown register %s", name);
    return 0;
}

static inline uint32_t ptx_register(const ptx_machine *m, const char *name) {
    const char *number = NULL;
    for (uint32_t i = 0; i < PTX_LOCALS; i++)
        if (strcmp(name, m->locals[i]) == 0) return m->first[PTX_CLASSES - 1] + i;
    ptx_must(name[0] == '%', "ptx: expected a register: %s", name);
    unsigned c = ptx_class(name + 1, &number);
    unsigned long n = strtoul(number, NULL, 10);
    ptx_must(n < m->count[c], "ptx: undeclared register %s", name);
    return m->first[c] + (uint32_t)n;
}

static inline void ptx_read_group(const ptx_machine *m, ptx_operand *o, const char *text) {
    char copy[160], *save = NULL;
    snprintf(copy, sizeof copy, "%.*s", (int)(strlen(text) - 2), text + 1);
    o->kind = PTX_GROUP;
    for (char *name = strtok_r(copy, ", ", &save); name; name = strtok_r(NULL, ", ", &save)) {
        ptx_must(o->count < PTX_VECTOR, "ptx: more registers than expected: %s", text);
        bool number = isdigit((unsigned char)name[0]); /* byte-id and thread-id of scales */
        o->reg[o->count++] = number ? (uint32_t)strtoul(name, NULL, 10) : ptx_register(m, name);
    }
}

static inline void ptx_read_memory(const ptx_machine *m, ptx_operand *o, const char *text) {
    char name[64] = "", offset[32] = "0", *group = strchr(text, '{');
    o->kind = PTX_MEMORY;
    if (group) { /* [map, {coordinates}] */
        snprintf(offset, sizeof offset, "%.*s", (int)strcspn(text + 1, ","), text + 1);
        snprintf(name, sizeof name, "%.*s", (int)strcspn(group, "]"), group);
        o->count = 1;
        ptx_read_group(m, o, name);
        o->kind = PTX_MEMORY;
        o->reg[0] = ptx_register(m, offset);
        return;
    }
    if (sscanf(text, "[param_%31[0-9]]", offset) == 1) {
        o->reg[0] = UINT32_MAX;
    } else {
        ptx_must(sscanf(text, "[%31[^]+]+%31[^]]", name, offset) >= 1, "ptx: %s", text);
        o->reg[0] = ptx_register(m, name);
    }
    o->value = strtoull(offset, NULL, 0);
}

static inline ptx_operand ptx_read_operand(const ptx_machine *m, const char *text) {
    ptx_operand o = {.kind = PTX_IMMEDIATE};
    if (text[0] == '{')
        ptx_read_group(m, &o, text);
    else if (text[0] == '[')
        ptx_read_memory(m, &o, text);
    else if (text[0] == '$')
        o = (ptx_operand){.kind = PTX_LABEL, .value = strtoull(text + 2, NULL, 10)};
    else if (strcmp(text, "tvm_smem") == 0)
        o.kind = PTX_SHARED_WINDOW;
    else if (strncmp(text, "%tid.", 5) == 0)
        o = (ptx_operand){.kind = PTX_TID, .value = (uint64_t)(text[5] - 'x')};
    else if (strcmp(text, "%laneid") == 0)
        o.kind = PTX_LANE;
    else if (strncmp(text, "%ctaid.", 7) == 0)
        o = (ptx_operand){.kind = PTX_CTAID, .value = (uint64_t)(text[7] - 'x')};
    else if (strncmp(text, "%cluster_ctaid.", 15) == 0)
        o = (ptx_operand){.kind = PTX_CLUSTER_CTAID, .value = (uint64_t)(text[15] - 'x')};
    else if (strcmp(text, "%cluster_ctarank") == 0)
        o.kind = PTX_CLUSTER_RANK;
    else if (strncmp(text, "_|", 2) == 0)
        o = (ptx_operand){.kind = PTX_REG, .reg = {ptx_register(m, text + 2)}, .count = 1};
    else if (strncmp(text, "param_", 6) == 0)
        o = (ptx_operand){.kind = PTX_PARAM, .value = strtoull(text + 6, NULL, 10)};
    else if (strcmp(text, "%smid") == 0)
        o.value = 0;
    else if (strncmp(text, "%nctaid.", 8) == 0)
        o = (ptx_operand){.kind = PTX_NCTAID, .value = (uint64_t)(text[8] - 'x')};
    else if (text[0] == '%' || islower((unsigned char)text[0]))
        o = (ptx_operand){.kind = PTX_REG, .reg = {ptx_register(m, text)}, .count = 1};
    else if (text[0] == '0' && (text[1] == 'f' || text[1] == 'd'))
        o.value = strtoull(text + 2, NULL, 16);
    else
        o.value = strtoull(text, NULL, 0);
    return o;
}

static inline void ptx_read_operands(const ptx_machine *m, ptx_insn *insn, char *at) {
    while (*at) {
        at += strspn(at, " ,");
        if (!*at) break;
        size_t length = *at == '{'   ? strcspn(at, "}") + 1
                        : *at == '[' ? strcspn(at, "]") + 1
                                     : strcspn(at, ",");
        char text[160];
        snprintf(text, sizeof text, "%.*s", (int)length, at);
        ptx_must(insn->operands < PTX_OPERANDS, "ptx: more operands than expected: %s", insn->text);
        insn->operand[insn->operands++] = ptx_read_operand(m, text);
        at += length;
    }
}

/* `{%w0, %w1, ...}`, of any number of registers, as sums; what follows it. */
static inline char *ptx_read_sums(const ptx_machine *m, ptx_insn *insn, char *at) {
    char *save = NULL, *end = strchr(at, '}');
    ck_assert(end != NULL);
    *end = '\0';
    insn->sums = calloc(PTX_SUMS, sizeof *insn->sums);
    ck_assert_ptr_nonnull(insn->sums);
    for (char *name = strtok_r(strchr(at, '{') + 1, ", ", &save); name; name = strtok_r(NULL, ", ", &save)) {
        ptx_must(insn->sum_count < PTX_SUMS, "ptx: more sums than expected: %s", insn->text);
        insn->sums[insn->sum_count++] = ptx_register(m, name);
    }
    return end + 1;
}

static inline ptx_op ptx_op_of(const char *name) {
#define PTX_NAME(name) #name,
    static const char *const names[PTX_OP_COUNT] = {"", PTX_OPS(PTX_NAME)};
#undef PTX_NAME
    for (unsigned op = 1; op < PTX_OP_COUNT; op++)
        if (strcmp(names[op], name) == 0) return (ptx_op)op;
    return PTX_OP_OTHER;
}

static inline void ptx_read_insn(ptx_machine *m, char *line) {
    if (m->insn_count == m->insn_capacity) {
        m->insn_capacity = m->insn_capacity ? 2 * m->insn_capacity : 1024;
        m->insns = realloc(m->insns, m->insn_capacity * sizeof *m->insns);
        ck_assert_ptr_nonnull(m->insns);
    }
    ptx_insn *insn = &m->insns[m->insn_count++];
    *insn = (ptx_insn){.guard = UINT32_MAX, .label = UINT32_MAX};
    snprintf(insn->text, sizeof insn->text, "%s", line);
    if (line[0] == '$') {
        insn->label = (uint32_t)strtoul(line + 2, NULL, 10);
        return;
    }
    char *end = strrchr(line, ';'), *save = NULL;
    ptx_must(end != NULL, "ptx: %s", line);
    *end = '\0';
    if (line[0] == '@') {
        char *blank = strchr(line, ' ');
        *blank = '\0';
        insn->guard_not = line[1] == '!';
        insn->guard = ptx_register(m, line + 1 + insn->guard_not);
        line = blank + 1;
    }
    size_t length = strcspn(line, " ");
    char opcode[160];
    snprintf(opcode, sizeof opcode, "%.*s", (int)length, line);
    for (char *part = strtok_r(opcode, ".", &save); part; part = strtok_r(NULL, ".", &save))
        snprintf(insn->part[insn->parts++], sizeof insn->part[0], "%s", part);
    insn->op = ptx_op_of(insn->part[0]);
    if (insn->parts > 0) insn->width = (unsigned)strtoul(insn->part[insn->parts - 1] + 1, NULL, 10);
    char *operands = line + length;
    bool loads = ptx_is(insn->part[0], "tcgen05") && ptx_is(insn->part[1], "ld"),
         stores = ptx_is(insn->part[0], "tcgen05") && ptx_is(insn->part[1], "st");
    if (loads || (ptx_is(insn->part[0], "wgmma") && ptx_is(insn->part[1], "mma_async")))
        operands = ptx_read_sums(m, insn, operands);
    if (stores) {
        char *group = strchr(operands, '{');
        ptx_must(group != NULL, "ptx: %s", insn->text);
        ptx_read_sums(m, insn, group);
        *group = '\0';
    }
    ptx_read_operands(m, insn, operands);
}

static inline void ptx_read_registers(ptx_machine *m, const char *line) {
    const char *number = NULL;
    unsigned c = ptx_class(strchr(line, '%') + 1, &number);
    m->count[c] = (uint32_t)strtoul(number + 1, NULL, 10);
}

/* `{ .reg .b32 l, h; statement; statement; }`, or .b128, a scope of its own; its registers keep no value
 * beyond it. */
static inline void ptx_read_scope(ptx_machine *m, char *line) {
    static const char head[] = "{ .reg .b32 ", wide[] = "{ .reg .b128 ";
    char *save = NULL, *names = NULL;
    unsigned count = 0;
    bool is_wide = strncmp(line, wide, sizeof wide - 1) == 0;
    ck_assert_msg(is_wide || strncmp(line, head, sizeof head - 1) == 0, "ptx: %s", line);
    char *declared = strtok_r(line + (is_wide ? sizeof wide : sizeof head) - 1, ";", &save);
    for (char *name = strtok_r(declared, ", ", &names); name; name = strtok_r(NULL, ", ", &names)) {
        ck_assert_uint_lt(count, PTX_LOCALS);
        snprintf(m->locals[count++], sizeof m->locals[0], "%s", name);
    }
    for (char *at = strtok_r(NULL, ";", &save); at; at = strtok_r(NULL, ";", &save)) {
        char statement[160];
        at += strspn(at, " ");
        if (*at == '}') break;
        snprintf(statement, sizeof statement, "%s;", at);
        ptx_read_insn(m, statement);
    }
    memset(m->locals, 0, sizeof m->locals);
}

/* The last may have less than four warps. */
static inline unsigned ptx_warpgroups(const ptx_machine *m) {
    return (m->threads + PTX_GROUP_THREADS - 1) / PTX_GROUP_THREADS;
}

static inline size_t ptx_registers(const ptx_machine *m) {
    return m->first[PTX_CLASSES - 1] + (size_t)m->count[PTX_CLASSES - 1];
}

/* Of each register its width; of one that there is none of, too, as ptx_machine.regs has it. */
static inline void ptx_set_widths(ptx_machine *m) {
    size_t all = ptx_registers(m);
    m->widths = malloc(all + 1);
    ck_assert_ptr_nonnull(m->widths);
    for (size_t number = 0; number <= all; number++) {
        unsigned c = PTX_CLASSES - 1;
        while (c > 0 && (number < m->first[c] || m->count[c] == 0)) c--;
        m->widths[number] = (uint8_t)ptx_widths[c];
    }
}

/* Reads the body of an entry and gives its registers memory, which they keep until ptx_free. */
static inline ptx_machine ptx_load(const char *ptx, const char *kernel, unsigned threads) {
    ptx_machine m = {
        .threads = threads, .resident = 1, .grid = {1, 1, 1}, .count[PTX_CLASSES - 1] = PTX_LOCALS};
    char entry[128];
    snprintf(entry, sizeof entry, ".entry %s(", kernel);
    const char *at = strstr(ptx, entry);
    ck_assert_msg(at != NULL, "ptx: no %s", entry);
    const char *body = strstr(at, "\n{\n") + 3, *resident = strstr(at, ".minnctapersm ");
    if (resident && resident < body) m.resident = (unsigned)strtoul(strchr(resident, ' '), NULL, 10);
    at = body;
    bool placed = false;
    while (strncmp(at, "}\n", 2) != 0) {
        char line[4096];
        size_t length = strcspn(at, "\n");
        ptx_must(length < sizeof line, "ptx: a long line: %.80s", at);
        snprintf(line, sizeof line, "%.*s", (int)length, at);
        at += length + 1;
        char *text = line + strspn(line, " \t");
        if (strncmp(text, ".reg", 4) == 0) {
            ptx_read_registers(&m, text);
            continue;
        }
        for (unsigned c = 1; c < PTX_CLASSES && !placed; c++) m.first[c] = m.first[c - 1] + m.count[c - 1];
        placed = true;
        if (*text == '{')
            ptx_read_scope(&m, text);
        else if (*text)
            ptx_read_insn(&m, text);
    }
    ptx_set_widths(&m);
    size_t all = ptx_registers(&m);
    m.regs = malloc((all + 1) * threads * sizeof *m.regs);
    m.shared = malloc(PTX_SHARED);
    m.writer = calloc(PTX_SHARED, sizeof *m.writer);
    m.seen = malloc(PTX_SHARED * sizeof *m.seen);
    m.written_at = calloc(PTX_SHARED, sizeof *m.written_at);
    m.proxy = calloc(PTX_SHARED, sizeof *m.proxy);
    ck_assert(m.regs && m.shared && m.writer && m.seen && m.written_at && m.proxy);
    for (unsigned g = 0; g < ptx_warpgroups(&m); g++) {
        m.warpgroups[g].flight = calloc(all + 1, sizeof *m.warpgroups[g].flight);
        m.warpgroups[g].read_last = calloc(PTX_SHARED, sizeof *m.warpgroups[g].read_last);
        ck_assert(m.warpgroups[g].flight && m.warpgroups[g].read_last);
    }
    memset(m.regs, 0xa5, (all + 1) * threads * sizeof *m.regs);
    memset(m.shared, 0xa5, PTX_SHARED);
    memset(m.seen, 0xff, PTX_SHARED * sizeof *m.seen);
    return m;
}

static inline void ptx_free(ptx_machine *m) {
    for (size_t i = 0; i < m->insn_count; i++) free(m->insns[i].sums);
    free(m->regs);
    free(m->widths);
    for (unsigned g = 0; g < ptx_warpgroups(m); g++) {
        free(m->warpgroups[g].flight);
        free(m->warpgroups[g].read_last);
    }
    free(m->shared);
    free(m->writer);
    free(m->seen);
    free(m->written_at);
    free(m->proxy);
    free(m->asyncs);
    free(m->insns);
    if (m->tensor) free(m->tensor->shared_read), free(m->tensor->loading);
    free(m->tensor);
}

/* ---- numbers ---- */

static inline uint64_t ptx_from_float(float value) {
    return isnan(value) ? 0x7fffffff : tvm_f32_bits(value);
}

/* ---- registers and memory ---- */

static inline unsigned ptx_width(const ptx_machine *m, uint32_t number) {
    return m->widths[number];
}

static inline uint64_t ptx_get(const ptx_machine *m, uint32_t number, unsigned t) {
    return ptx_mask(m->regs[(size_t)number * m->threads + t], ptx_width(m, number));
}

static inline void ptx_set(ptx_machine *m, uint32_t number, unsigned t, uint64_t value) {
    m->regs[(size_t)number * m->threads + t] = ptx_mask(value, ptx_width(m, number));
}

/* What an address in the shared memory of a block of a cluster has above its own bits: 1 + the rank, that of
 * the first block, too; on a GPU the rank. */
static inline uint64_t ptx_far_bits(const ptx_machine *m, uint64_t rank) {
    return m->peer_count ? (rank + 1) << PTX_FAR_SHIFT : 0;
}

/* Of an address in the block's own shared memory: without them. */
static inline uint64_t ptx_near(const ptx_machine *m, uint64_t address) {
    uint64_t far = ptx_far_bits(m, m->rank);
    return far && address >> PTX_FAR_SHIFT == far >> PTX_FAR_SHIFT ? address - far : address;
}

static inline uint64_t ptx_operand_value(const ptx_machine *m, const ptx_operand *o, unsigned t) {
    switch (o->kind) {
    case PTX_REG:
        return ptx_get(m, o->reg[0], t);
    case PTX_TID:
        return o->value == 0 ? t : 0;
    case PTX_LANE:
        return t % 32;
    case PTX_CTAID:
        return m->block[o->value];
    case PTX_NCTAID:
        return m->grid[o->value];
    case PTX_CLUSTER_CTAID:
        return m->place[o->value];
    case PTX_CLUSTER_RANK:
        return m->rank;
    case PTX_SHARED_WINDOW:
        return PTX_SHARED_BASE | ptx_far_bits(m, m->rank);
    case PTX_PARAM:
        return m->params[o->value];
    case PTX_GROUP: {
        unsigned width = ptx_width(m, o->reg[0]);
        return ptx_get(m, o->reg[0], t) | ptx_get(m, o->reg[1], t) << width;
    }
    default:
        return o->value;
    }
}

/* All warps of the block. */
static inline uint32_t ptx_block_warps(const ptx_machine *m) {
    return UINT32_MAX >> (32 - m->threads / 32);
}

static inline bool ptx_runs(const ptx_machine *m, unsigned t) {
    return m->running >> (t / 32) & 1;
}

static inline bool ptx_active(const ptx_machine *m, const ptx_insn *insn, unsigned t) {
    if (!ptx_runs(m, t)) return false;
    return insn->guard == UINT32_MAX || (ptx_get(m, insn->guard, t) != 0) != insn->guard_not;
}

/* Lets the kernel access that memory, and no other that it was not let. */
static inline void ptx_allow(ptx_machine *m, const uint8_t *bytes, uint64_t size) {
    ck_assert_uint_lt(m->memories, PTX_TENSORS);
    m->memory[m->memories++] = (ptx_memory){bytes, size};
}

static inline bool ptx_allowed(ptx_machine *m, const ptx_insn *insn, const uint8_t *at, size_t bytes,
                               unsigned t) {
    for (unsigned i = 0; i < m->memories; i++) {
        const uint8_t *first = m->memory[i].bytes, *end = first + m->memory[i].size;
        if (at >= first && at < end && (size_t)(end - at) >= bytes) return true;
    }
    if (m->memories > 0)
        snprintf(m->fault, sizeof m->fault, "thread %u accesses memory outside of every tensor: %s", t,
                 insn->text);
    return m->memories == 0;
}

static inline uint8_t *ptx_address(ptx_machine *m, const ptx_insn *insn, const ptx_operand *o, bool shared,
                                   unsigned t, size_t bytes) {
    uint64_t address = ptx_mask(ptx_get(m, o->reg[0], t) + o->value, ptx_width(m, o->reg[0]));
    ptx_must(address % bytes == 0, "ptx: misaligned address in thread %u: %s", t, insn->text);
    if (!shared) return (uint8_t *)(uintptr_t)address;
    address = ptx_near(m, address);
    ptx_must(address >= PTX_SHARED_BASE && address + bytes <= PTX_SHARED,
             "ptx: thread %u: %llx is outside of shared memory: %s", t, (unsigned long long)address,
             insn->text);
    return m->shared + address;
}

/* wgmma reads by the async proxy: it sees what the threads wrote after a fence.proxy.async of theirs and then
 * a barrier. */
typedef enum ptx_proxy { PTX_VISIBLE, PTX_WRITTEN, PTX_FENCED } ptx_proxy;

/* By a wgmma that has not been waited for. */
static inline bool ptx_may_be_read(const ptx_machine *m, size_t byte) {
    for (unsigned g = 0; g < ptx_warpgroups(m); g++)
        if (m->warpgroups[g].read_last[byte] > m->warpgroups[g].done) return true;
    return false;
}

static inline void ptx_wrote(ptx_machine *m, const uint8_t *at, unsigned t, size_t bytes) {
    size_t first = (size_t)(at - m->shared);
    m->clock++;
    for (size_t i = first; i < first + bytes; i++) {
        m->written_at[i] = m->clock;
        ptx_must(!ptx_may_be_read(m, i), "ptx: thread %u writes shared memory that a wgmma may still read",
                 t);
        ptx_must(!m->tensor || ptx_tensor_ended(m->tensor, t / 32, m->tensor->shared_read[i]),
                 "ptx: thread %u writes shared memory that the tensor cores may still read", t);
        m->writer[i] = (uint16_t)(t + 1);
        m->seen[i] = 0;
        m->proxy[i] = PTX_WRITTEN;
    }
    if (first + bytes > m->written) m->written = first + bytes;
    if (m->written > m->written_ever) m->written_ever = m->written;
}

static inline void ptx_proxy_move(ptx_machine *m, ptx_proxy from, ptx_proxy to) {
    for (size_t i = 0; i < m->written_ever; i++)
        if (m->proxy[i] == from) m->proxy[i] = (uint8_t)to;
}

static inline void ptx_reads(const ptx_machine *m, const ptx_insn *insn, const uint8_t *at, unsigned t,
                             size_t bytes) {
    size_t first = (size_t)(at - m->shared);
    for (size_t i = first; i < first + bytes; i++) {
        ptx_must(m->writer[i] == t + 1 || m->seen[i] >> (t / 32) & 1,
                 "ptx: thread %u reads what thread %u wrote, with no barrier in between: %s", t,
                 m->writer[i] - 1U, insn->text);
    }
}

/* The warp that wrote a byte last, as a mask: none where nothing did, or the copy engine. */
static inline uint32_t ptx_writing_warp(const ptx_machine *m, size_t byte) {
    unsigned writer = m->writer[byte];
    return writer && writer < PTX_ENGINE ? UINT32_C(1) << ((writer - 1) / 32) : 0;
}

/* What the warps of `from` wrote, or saw, those of `to` see. */
static inline void ptx_pass(ptx_machine *m, uint32_t from, uint32_t to) {
    if (m->tensor) ptx_tensor_pass(m->tensor, from, to);
    uint32_t *const seen = m->seen;
    uint8_t *const proxy = m->proxy;
    for (size_t i = 0, end = m->written; i < end; i++) {
        if (!((ptx_writing_warp(m, i) | seen[i]) & from)) continue;
        seen[i] |= to;
        if (proxy[i] == PTX_FENCED) proxy[i] = PTX_VISIBLE;
    }
    for (unsigned i = 0; i < m->mbarrier_count; i++) {
        ptx_mbarrier *b = &m->mbarriers[i];
        if ((b->seen | UINT32_C(1) << (b->maker / 32)) & from) b->seen |= to;
    }
}

/* A thread sees what it wrote itself; what the others of its warp wrote after bar.warp.sync; what the warps
 * that it waits for at a barrier wrote, or saw, after that. */
static inline void ptx_barrier(ptx_machine *m, bool of_warp) {
    if (of_warp) {
        for (size_t i = 0; i < m->written; i++) m->seen[i] |= ptx_writing_warp(m, i) & m->running;
        return;
    }
    ptx_pass(m, m->running, m->running);
    if (m->running != ptx_block_warps(m)) return;
    m->written = 0;
    ptx_proxy_move(m, PTX_FENCED, PTX_VISIBLE);
}

static inline unsigned ptx_bits(const ptx_insn *insn) {
    return insn->width;
}

/* What other blocks wait for is stored once: a second store might come after they have taken it. */
static inline void ptx_stores_alone(const ptx_machine *m, const ptx_insn *insn, const ptx_operand *o,
                                    unsigned t) {
    for (unsigned other = 0; other < t; other++)
        ptx_must(!ptx_active(m, insn, other) || ptx_get(m, o->reg[0], other) != ptx_get(m, o->reg[0], t),
                 "ptx: threads %u and %u store to the same place: %s", other, t, insn->text);
}

static inline void ptx_load_store(ptx_machine *m, const ptx_insn *insn, unsigned t) {
    bool load = insn->part[0][0] == 'l', shared = strcmp(insn->part[1], "shared") == 0;
    if (m->fault[0]) return;
    const ptx_operand *memory = &insn->operand[load ? 1 : 0], *data = &insn->operand[load ? 0 : 1];
    unsigned bytes = ptx_bits(insn) / 8;
    if (strcmp(insn->part[1], "param") == 0) {
        ptx_set(m, data->reg[0], t, m->params[memory->value]);
        return;
    }
    unsigned count = data->kind == PTX_GROUP ? data->count : 1;
    uint8_t *at = ptx_address(m, insn, memory, shared, t, (size_t)bytes * count);
    if (!shared && !ptx_allowed(m, insn, at, (size_t)bytes * count, t)) return;
    if (!load && strcmp(insn->part[1], "relaxed") == 0) ptx_stores_alone(m, insn, memory, t);
    if (shared && load) ptx_reads(m, insn, at, t, (size_t)bytes * count);
    if (shared && !load) ptx_wrote(m, at, t, (size_t)bytes * count);
    for (unsigned i = 0; i < count; i++) {
        uint64_t value = data->kind == PTX_IMMEDIATE ? data->value : 0;
        if (load) memcpy(&value, at + i * bytes, bytes);
        if (load && insn->part[insn->parts - 1][0] == 's') value = (uint64_t)ptx_signed(value, 8 * bytes);
        if (load)
            ptx_set(m, data->reg[i], t, value);
        else {
            if (data->kind != PTX_IMMEDIATE) value = ptx_get(m, data->reg[i], t);
            memcpy(at + i * bytes, &value, bytes);
        }
    }
}

#endif
