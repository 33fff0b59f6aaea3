/* Executes the PTX that the code generator writes, for tests where there is no GPU: one block, all threads in
 * step, or the blocks of a cluster, each of which runs until it waits for another (ptx_cluster.h), as the PTX
 * ISA manual defines each instruction. It shares nothing with the code generator. Branches
 * must be taken by all threads of a warp alike; warps that part go on one after the other, each until it
 * waits at a barrier, and together again after that (or in another order: ptx_order.h). Asynchronous
 * copies are done at once; what is approximate is exact; the products of an mma are added in the order of k.
 * A read of shared memory that no barrier orders after another thread's write, what a wgmma that runs beside
 * must not meet (ptx_wgmma.h), and whatever it does not know, ends the test. */
#ifndef TVM_TESTS_PTX_MACHINE_H
#define TVM_TESTS_PTX_MACHINE_H

#include "ptx_arithmetic.h"
#include "ptx_launch_control.h"
#include "ptx_mbarrier.h"
#include "ptx_mma.h"
#include "ptx_order.h"
#include "ptx_state.h"
#include "ptx_tensor.h"
#include "ptx_wgmma.h"
#include "types.h"

/* ---- instructions of a warp ---- */

static inline void ptx_shuffle(ptx_machine *m, const ptx_insn *insn) {
    uint64_t values[1024];
    bool indexed = ptx_is(insn->part[2], "idx");
    bool up = ptx_is(insn->part[2], "up"), down = ptx_is(insn->part[2], "down");
    ptx_must(indexed || up || down || ptx_is(insn->part[2], "bfly"), "ptx: unknown %s", insn->text);
    for (unsigned t = 0; t < m->threads; t++) {
        if (!ptx_runs(m, t)) continue;
        unsigned lane = (unsigned)ptx_operand_value(m, &insn->operand[2], t);
        unsigned from = indexed ? t / 32 * 32 + lane % 32 : t ^ lane;
        if (up) from = t % 32 >= lane ? t - lane : t;
        if (down) from = t % 32 + lane < 32 ? t + lane : t;
        values[t] = ptx_operand_value(m, &insn->operand[1], from);
    }
    for (unsigned t = 0; t < m->threads; t++)
        if (ptx_runs(m, t)) ptx_set(m, insn->operand[0].reg[0], t, values[t]);
}

/* redux of two values. */
static inline uint64_t ptx_reduced(const ptx_insn *insn, uint64_t a, uint64_t b) {
    const char *op = insn->part[2];
    bool is_signed = insn->part[3][0] == 's';
    bool less = is_signed ? (int32_t)a < (int32_t)b : (uint32_t)a < (uint32_t)b;
    if (ptx_is(op, "or")) return a | b;
    if (ptx_is(op, "and")) return a & b;
    if (ptx_is(op, "xor")) return a ^ b;
    if (ptx_is(op, "add")) return a + b;
    if (ptx_is(op, "min")) return less ? a : b;
    ptx_must(ptx_is(op, "max"), "ptx: unknown %s", insn->text);
    return less ? b : a;
}

static inline void ptx_reduce(ptx_machine *m, const ptx_insn *insn) {
    ptx_must(ptx_is(insn->part[1], "sync"), "ptx: unknown %s", insn->text);
    for (unsigned warp = 0; warp < m->threads; warp += 32) {
        if (!ptx_runs(m, warp)) continue;
        uint64_t all = ptx_operand_value(m, &insn->operand[1], warp);
        for (unsigned t = warp + 1; t < warp + 32; t++)
            all = ptx_reduced(insn, all, ptx_operand_value(m, &insn->operand[1], t));
        for (unsigned t = warp; t < warp + 32; t++) ptx_set(m, insn->operand[0].reg[0], t, all);
    }
}

/* vote.sync.any.pred and .all.pred. */
static inline void ptx_vote(ptx_machine *m, const ptx_insn *insn) {
    bool all = ptx_is(insn->part[2], "all");
    ptx_must(all || ptx_is(insn->part[2], "any"), "ptx: unknown %s", insn->text);
    for (unsigned warp = 0; warp < m->threads; warp += 32) {
        if (!ptx_runs(m, warp)) continue;
        unsigned votes = 0;
        for (unsigned t = warp; t < warp + 32; t++) votes += ptx_operand_value(m, &insn->operand[1], t) != 0;
        for (unsigned t = warp; t < warp + 32; t++)
            ptx_set(m, insn->operand[0].reg[0], t, all ? votes == 32 : votes > 0);
    }
}

/* movmatrix.trans: lane 4r + c has elements (r, 2c) and (r, 2c + 1) of an 8x8 matrix. */
static inline void ptx_movmatrix(ptx_machine *m, const ptx_insn *insn) {
    ck_assert(strstr(insn->text, ".trans.b16") != NULL);
    for (unsigned warp = 0; warp < m->threads; warp += 32) {
        if (!ptx_runs(m, warp)) continue;
        uint16_t matrix[8][8];
        for (unsigned lane = 0; lane < 32; lane++) {
            uint64_t word = ptx_operand_value(m, &insn->operand[1], warp + lane);
            matrix[lane / 4][lane % 4 * 2] = (uint16_t)word;
            matrix[lane / 4][lane % 4 * 2 + 1] = (uint16_t)(word >> 16);
        }
        for (unsigned lane = 0; lane < 32; lane++) {
            uint32_t low = matrix[lane % 4 * 2][lane / 4], high = matrix[lane % 4 * 2 + 1][lane / 4];
            ptx_set(m, insn->operand[0].reg[0], warp + lane, low | high << 16);
        }
    }
}

/* Matrix i of stmatrix: its rows are at the addresses of lanes 8i..8i+7. */
static inline void ptx_stmatrix(ptx_machine *m, const ptx_insn *insn) {
    bool transposed = strstr(insn->text, ".trans") != NULL;
    for (unsigned warp = 0; warp < m->threads; warp += 32)
        for (unsigned i = 0; ptx_runs(m, warp) && i < insn->operand[1].count; i++) {
            uint16_t matrix[8][8];
            for (unsigned lane = 0; lane < 32; lane++) {
                unsigned r = lane / 4, c = lane % 4 * 2;
                uint32_t pair = (uint32_t)ptx_get(m, insn->operand[1].reg[i], warp + lane);
                matrix[transposed ? c : r][transposed ? r : c] = (uint16_t)pair;
                matrix[transposed ? c + 1 : r][transposed ? r : c + 1] = (uint16_t)(pair >> 16);
            }
            for (unsigned row = 0; row < 8; row++) {
                unsigned t = warp + 8 * i + row;
                uint8_t *at = ptx_address(m, insn, &insn->operand[0], true, t, 16);
                ptx_wrote(m, at, t, 16);
                memcpy(at, matrix[row], 16);
            }
        }
}

/* What a row of 16 bytes becomes: of .b8x16.b4x16_p64 and .b8x16.b6x16_p32 it has 16 unsigned elements of 4
 * or 6 bits, and padding; each becomes a byte. */
static inline void ptx_unpack_row(unsigned bits, const uint8_t *at, uint8_t row[16]) {
    for (unsigned i = 0; i < 16; i++) {
        unsigned bit = i * bits, pair = at[bit / 8] | (bits < 8 ? (unsigned)at[bit / 8 + 1] << 8 : 0);
        row[i] = (uint8_t)(pair >> bit % 8 & ((1u << bits) - 1));
    }
}

/* Matrix i of ldmatrix: its rows are at the addresses of lanes 8i..8i+7. PTX ISA, "ldmatrix": .m8n8 of b16,
 * and .m8n16 of elements of 4 and 6 bits, 16 a row, of which a lane gets four as it gets two of b16. */
static inline void ptx_ldmatrix(ptx_machine *m, const ptx_insn *insn) {
    bool transposed = strstr(insn->text, ".trans") != NULL, narrow = strstr(insn->text, ".m8n16.") != NULL;
    unsigned bits = !narrow ? 8 : strstr(insn->text, ".b8x16.b4x16_p64 ") ? 4 : 6;
    ptx_must(narrow ? !transposed && (bits == 4 || strstr(insn->text, ".b8x16.b6x16_p32 "))
                    : strstr(insn->text, ".m8n8.") && strstr(insn->text, ".b16 "),
             "ptx: unknown %s", insn->text);
    for (unsigned warp = 0; warp < m->threads; warp += 32)
        for (unsigned i = 0; ptx_runs(m, warp) && i < insn->operand[0].count; i++) {
            uint16_t matrix[8][8];
            for (unsigned row = 0; row < 8; row++) {
                unsigned t = warp + 8 * i + row;
                uint8_t bytes[16];
                const uint8_t *at = ptx_address(m, insn, &insn->operand[1], true, t, 16);
                ptx_reads(m, insn, at, t, 16);
                ptx_unpack_row(bits, at, bytes);
                memcpy(matrix[row], bytes, 16);
            }
            for (unsigned lane = 0; lane < 32; lane++) {
                unsigned r = lane / 4, c = lane % 4 * 2;
                uint32_t low = transposed ? matrix[c][r] : matrix[r][c],
                         high = transposed ? matrix[c + 1][r] : matrix[r][c + 1];
                ptx_set(m, insn->operand[0].reg[i], warp + lane, low | high << 16);
            }
        }
}

/* ---- atomic operations ---- */

/* atom and red: {order, scope, space, operation, [noftz, vector,] type}, one thread after the other. */
static inline void ptx_atomic(ptx_machine *m, const ptx_insn *insn, unsigned t) {
    bool is_atom = ptx_is(insn->part[0], "atom"), shared = ptx_is(insn->part[3], "shared");
    bool far = ptx_is(insn->part[3], "shared::cluster");
    const char *op = insn->part[4], *type = insn->part[insn->parts - 1];
    const ptx_operand *memory = &insn->operand[is_atom], *data = &insn->operand[is_atom + 1];
    unsigned bytes = (unsigned)strtoul(type + strcspn(type, "0123456789"), NULL, 10) / 8;
    if (strstr(type, "x2")) bytes = 4;
    unsigned count = data->kind == PTX_GROUP ? data->count : 1;
    if (m->fault[0]) return;
    ptx_machine *owner = m;
    uint8_t *at = far ? ptx_far(m, insn, memory, t, (size_t)bytes * count, &owner)
                      : ptx_address(m, insn, memory, shared, t, (size_t)bytes * count);
    if (!shared && !far && !ptx_allowed(m, insn, at, (size_t)bytes * count, t)) return;
    for (unsigned i = 0; i < count; i++) {
        uint64_t old = 0, v[2] = {0};
        v[0] = data->kind == PTX_GROUP ? ptx_get(m, data->reg[i], t) : ptx_operand_value(m, data, t);
        if (ptx_is(op, "cas")) v[1] = ptx_operand_value(m, &insn->operand[3], t);
        memcpy(&old, at + i * bytes, bytes);
        uint64_t made = ptx_atomic_word(insn, op, type, old, v);
        memcpy(at + i * bytes, &made, bytes);
        if (is_atom) ptx_set(m, insn->operand[0].reg[0], t, old);
    }
    if (shared) ptx_wrote(m, at, t, (size_t)bytes * count);
    if (far) ptx_far_wrote(owner, at, (size_t)bytes * count);
}

/* ---- execution ---- */

/* Bytes that come to the L2 cache must be some that the kernel may read. */
static inline void ptx_prefetch(ptx_machine *m, const ptx_insn *insn) {
    const ptx_operand *source = &insn->operand[0];
    for (unsigned t = 0; t < m->threads; t++)
        if (ptx_active(m, insn, t))
            ptx_allowed(m, insn, (const uint8_t *)(uintptr_t)(ptx_get(m, source->reg[0], t) + source->value),
                        1, t);
}

static inline void ptx_step_threads(ptx_machine *m, const ptx_insn *insn) {
    bool memory = insn->op == PTX_OP_ld || insn->op == PTX_OP_st, copy = insn->op == PTX_OP_cp;
    bool far = memory && ptx_is(insn->part[1], "shared::cluster");
    bool atomic = insn->op == PTX_OP_atom || insn->op == PTX_OP_red;
    ptx_must(!copy || insn->guard == UINT32_MAX || !strstr(insn->text, "cache_hint"),
             "ptx: an H200 refuses a cp.async with a cache policy under a predicate: %s", insn->text);
    for (unsigned t = 0; t < m->threads; t++) {
        uint64_t v[5] = {0};
        if (!ptx_active(m, insn, t)) continue;
        if (atomic) {
            ptx_atomic(m, insn, t);
        } else if (far) {
            ptx_far_load_store(m, insn, t);
        } else if (memory) {
            ptx_load_store(m, insn, t);
        } else if (copy) {
            ptx_cp_async(m, insn, t);
        } else {
            for (unsigned i = 1; i < insn->operands; i++)
                v[i - 1] = ptx_operand_value(m, &insn->operand[i], t);
            uint64_t value = insn->op == PTX_OP_mapa ? ptx_mapa(m, insn, v[0], v[1]) : ptx_value(insn, v);
            const ptx_operand *to = &insn->operand[0];
            unsigned width = ptx_width(m, to->reg[0]);
            for (unsigned i = 0; i < to->count; i++)
                ptx_set(m, to->reg[i], t, i ? value >> (i * width) : value);
        }
    }
}

static inline size_t ptx_label(const ptx_machine *m, const ptx_insn *insn) {
    for (size_t i = 0; i < m->insn_count; i++)
        if (m->insns[i].label == insn->operand[0].value) return i;
    ck_abort_msg("ptx: no label: %s", insn->text);
    return 0;
}

/* The warps that take a branch. */
static inline uint32_t ptx_takers(const ptx_machine *m, const ptx_insn *insn) {
    uint32_t takers = 0;
    for (unsigned t = 0; t < m->threads; t++) {
        if (!ptx_runs(m, t)) continue;
        bool taken = ptx_active(m, insn, t);
        ptx_must(t % 32 == 0 || taken == (takers >> (t / 32) & 1), "ptx: threads part at %s", insn->text);
        if (taken) takers |= UINT32_C(1) << (t / 32);
    }
    return takers;
}

/* The running part goes on with the warps that stay, or with all that jump; the others become a part of their
 * own. */
static inline void ptx_jump(ptx_machine *m, ptx_part *part, const ptx_insn *insn) {
    uint32_t takers = ptx_takers(m, insn);
    if (takers == 0) return;
    size_t label = ptx_label(m, insn);
    if (takers == part->warps) {
        part->at = label;
        return;
    }
    ck_assert_uint_lt(m->part_count, sizeof m->parts / sizeof *m->parts);
    m->parts[m->part_count++] = (ptx_part){.warps = takers, .at = label, .asked = UINT64_MAX};
    part->warps &= ~takers;
    m->running = part->warps;
}

static inline bool ptx_traps(const ptx_machine *m, const ptx_insn *insn) {
    for (unsigned t = 0; t < m->threads; t++)
        if (ptx_active(m, insn, t)) return true;
    return false;
}

/* ---- warps that part ---- */

static inline void ptx_part_end(ptx_machine *m, unsigned p) {
    m->parts[p] = m->parts[--m->part_count];
}

/* The warps of the running part for which the operand has the value that it has for the first of them. */
static inline uint32_t ptx_alike(const ptx_machine *m, const ptx_operand *o, uint64_t *value) {
    uint32_t alike = 0;
    for (unsigned t = 0; t < m->threads; t += 32) {
        if (!ptx_runs(m, t)) continue;
        if (!alike) *value = ptx_operand_value(m, o, t);
        if (ptx_operand_value(m, o, t) == *value) alike |= UINT32_C(1) << (t / 32);
    }
    return alike;
}

/* bar.red.and.pred and .or.pred of the warps, which are all that meet at the barrier: what their threads
 * vote. */
static inline void ptx_count_votes(ptx_machine *m, const ptx_insn *insn, uint32_t warps, uint64_t count) {
    bool all = ptx_is(insn->part[2], "and"), out = all;
    uint64_t threads = 0;
    ptx_must(all || ptx_is(insn->part[2], "or"), "ptx: unknown %s", insn->text);
    for (unsigned t = 0; t < m->threads; t++) {
        if (!(warps >> (t / 32) & 1)) continue;
        bool vote = ptx_operand_value(m, &insn->operand[insn->operands - 1], t);
        out = all ? out && vote : out || vote;
        threads++;
    }
    ptx_must(threads == count, "ptx: some of those that vote come later: %s", insn->text);
    for (unsigned t = 0; t < m->threads; t++)
        if (warps >> (t / 32) & 1) ptx_set(m, insn->operand[0].reg[0], t, out);
}

/* bar.sync a, b, bar.red and bar.arrive a, b of the running part: those that wait at barrier a go on together
 * once b threads have come. Warps at another barrier part from it. */
static inline void ptx_arrive(ptx_machine *m, ptx_part *part, const ptx_insn *insn) {
    uint64_t barrier = 0;
    bool votes = ptx_is(insn->part[1], "red"); /* its result comes first, its predicate last */
    uint32_t alike = ptx_alike(m, &insn->operand[votes], &barrier);
    ptx_must(barrier < PTX_NAMED, "ptx: there is no such barrier: %s", insn->text);
    if (alike != part->warps) {
        ck_assert_uint_lt(m->part_count, sizeof m->parts / sizeof *m->parts);
        m->parts[m->part_count++] =
            (ptx_part){.warps = part->warps & ~alike, .at = part->at - 1, .asked = UINT64_MAX};
        m->running = part->warps = alike;
    }
    bool counts = insn->operands > (votes ? 3 : 1);
    uint64_t threads = 0, count = counts ? insn->operand[1 + votes].value : m->threads;
    bool waits = votes || ptx_is(insn->part[1], "sync");
    if (votes) ptx_count_votes(m, insn, alike, count);
    if (waits) {
        *part = (ptx_part){.warps = alike,
                           .at = part->at,
                           .waits = true,
                           .barrier = barrier,
                           .count = count,
                           .asked = UINT64_MAX};
    } else {
        ptx_must(ptx_is(insn->part[1], "arrive") && !(m->arrived[barrier] & alike), "ptx: arrives twice: %s",
                 insn->text);
        m->arrived[barrier] |= alike;
    }
    uint32_t together = 0;
    for (unsigned p = 0; p < m->part_count; p++) {
        if (!m->parts[p].waits || m->parts[p].barrier != barrier) continue;
        ptx_must(m->parts[p].count == count, "ptx: warps wait for different numbers of threads: %s",
                 insn->text);
        together |= m->parts[p].warps;
    }
    for (uint32_t left = together; left; left &= left - 1) threads += 32;
    for (uint32_t left = m->arrived[barrier]; left; left &= left - 1) threads += 32;
    ptx_must(threads <= count, "ptx: more threads than a barrier is for: %s", insn->text);
    if (threads < count) return;
    ptx_pass(m, m->arrived[barrier], together);
    m->arrived[barrier] = 0;
    m->running = together;
    ptx_barrier(m, false);
    for (unsigned p = 0; p < m->part_count; p++)
        if (m->parts[p].warps & together) m->parts[p].waits = false;
}

/* Parts that go on at the same place go on together; in an order of their own those alone that have to. */
static inline void ptx_join(ptx_machine *m) {
    for (unsigned p = 0; p < m->part_count; p++)
        for (unsigned q = m->part_count; q-- > p + 1;) {
            if (m->parts[p].waits || m->parts[q].waits || m->parts[p].at != m->parts[q].at) continue;
            if (m->order && !(m->parts[p].gathers && m->parts[q].gathers)) continue;
            m->parts[p].asked = UINT64_MAX;
            m->parts[p].gathers = false;
            m->parts[p].warps |= m->parts[q].warps;
            ptx_part_end(m, q);
        }
}

/* Any lane may be the one. */
static inline void ptx_elect(ptx_machine *m, const ptx_insn *insn) {
    for (unsigned t = 0; t < m->threads; t++)
        if (ptx_runs(m, t)) ptx_set(m, insn->operand[0].reg[0], t, t % 32 == 11);
}

/* All warps of a warpgroup together; what is added was there at the beginning, or another has given it back
 * by then. */
static inline void ptx_set_registers(ptx_machine *m, const ptx_insn *insn) {
    uint32_t start = 65536 / (m->resident * m->threads) / 8 * 8, wanted = (uint32_t)insn->operand[0].value;
    for (unsigned g = 0; g < ptx_warpgroups(m); g++) {
        if (!ptx_group_runs(m, g)) continue;
        uint32_t *has = &m->registers[g];
        if (*has == 0) *has = start < 256 ? start : 256;
        ptx_must((m->running >> (4 * g) & 15) == 15 && wanted % 8 == 0 && wanted >= 24 && wanted <= 256 &&
                     (ptx_is(insn->part[1], "inc") ? wanted >= *has : wanted <= *has),
                 "ptx: unknown %s", insn->text);
        *has = wanted;
    }
}

static inline void ptx_step_warps(ptx_machine *m, const ptx_insn *insn) {
    const char *op = insn->part[0];
    if (ptx_is(op, "shfl"))
        ptx_shuffle(m, insn);
    else if (ptx_is(op, "redux"))
        ptx_reduce(m, insn);
    else if (ptx_is(op, "vote"))
        ptx_vote(m, insn);
    else if (ptx_is(op, "movmatrix"))
        ptx_movmatrix(m, insn);
    else if (ptx_is(op, "ldmatrix"))
        ptx_ldmatrix(m, insn);
    else if (ptx_is(op, "stmatrix"))
        ptx_stmatrix(m, insn);
    else if (ptx_is(op, "mma"))
        ptx_mma(m, insn);
    else if (ptx_is(op, "setmaxnreg"))
        ptx_set_registers(m, insn);
    else if (ptx_is(op, "wgmma"))
        ptx_wgmma(m, insn);
    else if (ptx_is(op, "tcgen05"))
        ptx_tcgen05(m, insn);
    else if (ptx_is(op, "clusterlaunchcontrol") || (ptx_is(op, "mov") && ptx_is(insn->part[1], "b128")))
        ptx_launch_control(m, insn);
    else if (ptx_is(op, "fence"))
        ptx_fence(m, insn);
    else if (ptx_is(op, "elect"))
        ptx_elect(m, insn);
    else if (ptx_is(op, "prefetch"))
        ptx_prefetch(m, insn);
    else if (ptx_is(op, "cp") && ptx_is(insn->part[2], "bulk") && strstr(insn->part[3], "_group"))
        ptx_bulk_group(m, insn);
    else if (ptx_is(op, "cp") &&
             (ptx_bulk_tensor(insn) || ptx_is(insn->part[2], "bulk") || ptx_is(insn->part[2], "mbarrier")))
        ptx_mbarrier_copy(m, insn);
    else
        ptx_step_threads(m, insn);
}

static inline bool ptx_does_nothing(const ptx_insn *insn) {
    const char *op = insn->part[0];
    return insn->label != UINT32_MAX || ptx_is(op, "griddepcontrol") || ptx_is(op, "nanosleep") ||
           (ptx_is(op, "prefetch") && ptx_is(insn->part[1], "tensormap")) ||
           (ptx_is(op, "cp") && insn->parts < 5 && !ptx_is(insn->part[2], "bulk")); /* groups */
}

/* One instruction of a part that does not wait; false: it has ended. */
static inline bool ptx_step(ptx_machine *m, ptx_part *part) {
    if (part->at == m->insn_count) return false;
    const ptx_insn *insn = &m->insns[part->at++];
    const char *op = insn->part[0];
    m->running = part->warps;
    bool of_groups = ptx_is(op, "wgmma") || ptx_is(op, "setmaxnreg");
    if ((of_groups && !ptx_whole_groups_run(m)) || ptx_must_gather(m, insn)) {
        part->at--;
        part->gathers = true;
        return true;
    }
    if (m->watch) m->watch(m->watcher, m, insn);
    if (ptx_is(op, "barrier")) { /* who waits has arrived just before */
        ptx_must(ptx_is(insn->part[1], "cluster") && m->peer_count > 0, "ptx: unknown %s", insn->text);
        part->waits = part->meets = ptx_is(insn->part[2], "wait");
        part->barrier = UINT64_MAX;
        return true;
    }
    bool barrier = ptx_is(op, "bar"), of_warp = barrier && ptx_is(insn->part[1], "warp");
    if (of_warp) ptx_barrier(m, true);
    if (barrier && !of_warp) ptx_arrive(m, part, insn);
    ptx_wgmma_watch(m, insn);
    ptx_tensor_watch(m, insn);
    if (m->order && ptx_is(op, "cp")) ptx_async_step(m, insn);
    if (barrier || ptx_does_nothing(insn)) return true;
    if (ptx_is(op, "ret") || ptx_is(op, "exit")) return false;
    if (ptx_is(op, "trap"))
        m->trapped = ptx_traps(m, insn);
    else if (ptx_is(op, "bra"))
        ptx_jump(m, part, insn);
    else if (ptx_is(op, "mbarrier"))
        part->asked = ptx_mbarrier_step(m, insn) ? m->events : UINT64_MAX;
    else
        ptx_step_warps(m, insn);
    return true;
}

/* Can the part go on? Not while it waits, for the rest of a warpgroup, too, or knows that the mbarrier that
 * it asks has not changed. */
static inline bool ptx_can_go_on(const ptx_machine *m, const ptx_part *part) {
    return !part->waits && !part->gathers && part->asked != m->events;
}

/* The loaded entry with params set, from its beginning. */
static inline void ptx_start(ptx_machine *m) {
    m->parts[0] = (ptx_part){.warps = ptx_block_warps(m), .asked = UINT64_MAX};
    m->part_count = 1;
    m->running = m->parts[0].warps;
    m->async_count = 0;
    memset(m->async_groups, 0, sizeof m->async_groups);
    m->mbarrier_count = 0;
    m->bulk_count = m->store_count = 0;
    memset(m->store_groups, 0, sizeof m->store_groups);
    memset(m->arrived, 0, sizeof m->arrived);
    memset(m->registers, 0, sizeof m->registers);
    ptx_tensor_begin(m);
    ptx_barrier(m, false);
    ptx_wgmma_begin(m);
    m->steps = m->latest = 0;
    m->ended = m->asked = m->none_left = false;
    if (m->order) ptx_part_warps(m);
}

/* The next part in turn that can go on; part_count: none can. */
static inline unsigned ptx_next_part(ptx_machine *m) {
    if (m->order) return ptx_drawn_part(m, ptx_can_go_on);
    for (unsigned turns = 0; turns < m->part_count; turns++) {
        unsigned p = (m->latest + 1 + turns) % m->part_count;
        if (ptx_can_go_on(m, &m->parts[p])) return p;
    }
    return m->part_count;
}

/* Runs until it returns, traps or faults, nothing can go on before another block does, or another block's
 * turn comes. Parts take turns at barriers: what one team has stored, others may overwrite before it goes on.
 */
static inline void ptx_go_on(ptx_machine *m) {
    unsigned slices = ptx_slices(m);
    while (m->part_count > 0) {
        unsigned p = ptx_next_part(m);
        if (p == m->part_count || slices-- == 0) return;
        m->latest = p;
        bool goes_on = true;
        unsigned left = m->order ? 1 + ptx_draw(m, PTX_SLICE) : UINT_MAX;
        while (goes_on && left-- > 0 && ptx_can_go_on(m, &m->parts[p]) && !m->fault[0] && !m->trapped) {
            ptx_must(++m->steps < PTX_STEPS_MAX, "ptx: %s", ptx_endless);
            if (m->steps == m->steps_most) strcpy(m->fault, ptx_endless);
            goes_on = ptx_step(m, &m->parts[p]);
            if (m->part_count > 1 && ptx_is(m->insns[m->parts[p].at - 1].part[0], "bar")) break;
        }
        if (m->fault[0] || m->trapped) return;
        if (!goes_on)
            ptx_part_end(m, p);
        else
            ptx_join(m);
    }
    m->running = ptx_block_warps(m);
    ptx_wgmma_end(m);
    ptx_tensor_end(m);
    ptx_must(m->store_count == 0 && m->bulk_count == 0, "ptx: a block ends before its copies");
    m->ended = true;
}

static inline bool ptx_is_over(const ptx_machine *m) {
    return m->ended || m->trapped || m->fault[0];
}

/* Where nothing else can go on, those that have asked in vain ask again; false: nobody does. Only code that
 * counts what it asks comes to an end so. */
static inline bool ptx_ask_again(ptx_machine *m) {
    bool any = false;
    for (unsigned p = 0; p < m->part_count && m->asks_again; p++) {
        if (m->parts[p].asked == UINT64_MAX) continue;
        m->parts[p].asked = UINT64_MAX;
        any = true;
    }
    return any;
}

static inline void ptx_must_go_on(const ptx_machine *m) {
    ptx_must(m->part_count == 0, "ptx: warps wait for others that never come: %s",
             m->insns[m->parts[0].at - 1].text);
}

/* One block. */
static inline void ptx_run(ptx_machine *m) {
    ptx_start(m);
    do ptx_go_on(m);
    while (!ptx_is_over(m) && ptx_ask_again(m));
    if (!ptx_is_over(m)) ptx_must_go_on(m);
}

/* All blocks of a cluster have come to barrier.cluster: they go on, and each sees all. */
static inline bool ptx_meet(ptx_machine *m) {
    for (unsigned r = 0; r < m->peer_count; r++)
        if (!m->peers[r]->ended && !ptx_all_meet(m->peers[r])) return false;
    for (unsigned r = 0; r < m->peer_count; r++) {
        ptx_machine *peer = m->peers[r];
        peer->running = ptx_block_warps(peer);
        if (!peer->ended) ptx_barrier(peer, false);
        for (unsigned p = 0; p < peer->part_count; p++) peer->parts[p].waits = peer->parts[p].meets = false;
    }
    for (unsigned r = 0; r < m->peer_count; r++)
        if ((r ^ 1) < m->peer_count && m->peers[r]->tensor && m->peers[r ^ 1]->tensor)
            ptx_tensor_pass_far(m->peers[r]->tensor, m->peers[r ^ 1]->tensor);
    return true;
}

/* The blocks of a cluster, m's peers, each of which goes on until it waits for another. Ends with the first
 * that traps or makes a fault. */
static inline void ptx_run_cluster(ptx_machine *m) {
    unsigned left = m->peer_count;
    for (unsigned r = 0; r < m->peer_count; r++) ptx_start(m->peers[r]);
    while (left > 0) {
        unsigned steps = 0;
        left = 0;
        for (unsigned r = 0; r < m->peer_count; r++) {
            ptx_machine *peer = m->peers[r];
            unsigned before = peer->steps;
            if (peer->ended) continue;
            ptx_go_on(peer);
            if (peer->trapped || peer->fault[0]) return;
            steps += peer->steps - before;
            left += !peer->ended;
        }
        if (!left || steps || ptx_meet(m)) continue;
        bool again = false;
        for (unsigned r = 0; r < m->peer_count; r++) again = ptx_ask_again(m->peers[r]) || again;
        if (again) continue;
        for (unsigned r = 0; r < m->peer_count; r++) ptx_must_go_on(m->peers[r]);
    }
}

#endif
