/* Inside ptx_machine.h: the copy engine (PTX ISA, "cp.async.bulk.tensor"). A copy comes as late as it may:
 * when the phase of its mbarrier ends. Until then its place in shared memory holds nothing that may be read.
 */
#ifndef TVM_TESTS_PTX_BULK_H
#define TVM_TESTS_PTX_BULK_H

#include "ptx_arithmetic.h"
#include "ptx_cluster.h"
#include "ptx_state.h"

/* What stands for a CUtensorMap. All in the order of the tensor's dimensions; extents in elements of the map.
 */
typedef struct ptx_tensor_map {
    uint8_t *address;
    unsigned rank, element_bytes, span; /* span: bytes of the swizzle, 0 without */
    unsigned spread;  /* bits of an element of 4 or 6, of which 16 begin 16 bytes of shared memory; else 0 */
    const char *type; /* what cp.reduce takes an element for */
    uint64_t extents[5], strides[5]; /* strides in bytes */
    uint32_t box[5];
    unsigned order[5]; /* dimensions of the tensor from the map's innermost one on */
} ptx_tensor_map;

static inline uint32_t ptx_box_elements(const ptx_tensor_map *map) {
    uint32_t elements = 1;
    for (unsigned d = 0; d < map->rank; d++) elements *= map->box[d];
    return elements;
}

/* The tensor's element for one of the box, by its number; NULL: it is outside. */
static inline uint8_t *ptx_box_element(const ptx_tensor_map *map, const int32_t *at, uint32_t number) {
    uint64_t offset = 0;
    for (unsigned i = 0; i < map->rank; i++) {
        unsigned d = map->order[i];
        int64_t index = (int64_t)at[d] + number % map->box[d];
        if (index < 0 || (uint64_t)index >= map->extents[d]) return NULL;
        offset +=
            map->spread && i == 0 ? (uint64_t)index * map->spread / 8 : (uint64_t)index * map->strides[d];
        number /= map->box[d];
    }
    return map->address + offset;
}

/* Chunks of 16 bytes change places by bits 7 and up of the address. */
static inline uint64_t ptx_swizzled(const ptx_tensor_map *map, uint64_t address) {
    return map->span ? address ^ (address >> 7 & (map->span / 16 - 1)) << 4 : address;
}

/* The tensor cores' reads of a place must have ended for the thread that starts a copy to it. */
static inline void ptx_engine_waits(const ptx_machine *m, unsigned t, uint64_t address, uint32_t bytes) {
    for (uint64_t i = address; m->tensor && i < address + bytes; i++)
        ptx_must(ptx_tensor_ended(m->tensor, t / 32, m->tensor->shared_read[i]),
                 "ptx: a copy to what the tensor cores may still read");
}

static inline void ptx_engine_claims(ptx_machine *m, uint64_t address, uint32_t bytes, uint16_t writer) {
    for (uint64_t i = address; i < address + bytes; i++) {
        ptx_must(!ptx_may_be_read(m, i), "ptx: a copy to what a wgmma may still read");
        m->shared[i] = 0xa5;
        m->writer[i] = writer;
        m->seen[i] = 0;
        m->proxy[i] = PTX_VISIBLE;
        m->written_at[i] = m->clock;
    }
    if (address + bytes > m->written) m->written = address + bytes;
    if (m->written > m->written_ever) m->written_ever = m->written;
}

/* mbarrier.expect_tx */
static inline void ptx_bulk_expect(ptx_machine *m, const ptx_insn *insn, ptx_mbarrier *b, unsigned t) {
    ptx_must(b->missing > 0, "ptx: bytes are announced to a phase without arrivals to come: %s", insn->text);
    b->bytes += (int64_t)ptx_operand_value(m, &insn->operand[1], t);
}

/* Of what is spread the bytes of the tensor are counted: no section of the PTX ISA says so, but DeepGEMM
 * does (deep_gemm/include/deep_gemm/impls/sm100_fp8_gemm_1d1d.cuh, the bytes that arrive of operands of 4
 * bits). */
static inline uint32_t ptx_bulk_size(const ptx_bulk *copy) {
    if (copy->map && copy->map->spread) return ptx_box_elements(copy->map) * copy->map->spread / 8;
    return copy->map ? ptx_box_elements(copy->map) * copy->map->element_bytes : copy->bytes;
}

/* Bytes of the copies that complete on the mbarrier. */
static inline int64_t ptx_bulk_bytes(const ptx_machine *m, const ptx_mbarrier *b) {
    int64_t bytes = 0;
    for (unsigned i = 0; i < m->bulk_count; i++)
        if (m->bulk[i].barrier == b->address) bytes += ptx_bulk_size(&m->bulk[i]);
    return bytes;
}

/* The copies that complete on the mbarrier come. */
static inline void ptx_bulk_come(ptx_machine *m, ptx_mbarrier *b) {
    unsigned kept = 0;
    for (unsigned i = 0; i < m->bulk_count; i++) {
        const ptx_bulk *copy = &m->bulk[i];
        if (copy->barrier != b->address) {
            m->bulk[kept++] = *copy;
            continue;
        }
        const ptx_tensor_map *map = copy->map;
        b->bytes -= ptx_bulk_size(copy);
        if (!map) {
            memmove(m->shared + copy->address, copy->from, copy->bytes);
            continue;
        }
        uint32_t step = map->spread ? 16 : 1, bytes = map->spread ? 2 * map->spread : map->element_bytes;
        for (uint32_t n = 0; n < ptx_box_elements(map); n += step) {
            const uint8_t *from = ptx_box_element(map, copy->at, n);
            for (unsigned k = 0; k < bytes; k++)
                m->shared[ptx_swizzled(map, copy->address + (uint64_t)n * map->element_bytes + k)] =
                    from ? from[k] : 0;
        }
    }
    m->bulk_count = kept;
}

/* Where "tensor" stands among the parts of cp.async.bulk.tensor or cp.reduce.async.bulk.tensor; 0: it is
 * none. */
static inline unsigned ptx_bulk_tensor(const ptx_insn *insn) {
    unsigned at = ptx_is(insn->part[1], "reduce") ? 4 : 3;
    return ptx_is(insn->part[at - 1], "bulk") && ptx_is(insn->part[at], "tensor") ? at : 0;
}

/* A copy of the engine, of so many coordinates: as the map has, and its box at an address in shared memory
 * that it may have. */
static inline void ptx_bulk_check(const ptx_insn *insn, unsigned t, const ptx_tensor_map *map, unsigned rank,
                                  uint64_t address) {
    uint32_t bytes = ptx_box_elements(map) * map->element_bytes;
    ptx_must(map->rank == rank && map->rank == (unsigned)(insn->part[ptx_bulk_tensor(insn) + 1][0] - '0'),
             "ptx: coordinates of another rank than the map's: %s", insn->text);
    ptx_must(address % 128 == 0 && address % (8 * map->span + !map->span) == 0,
             "ptx: thread %u: %llx is misaligned for the box: %s", t, (unsigned long long)address,
             insn->text);
    ptx_must(address >= PTX_SHARED_BASE && address + bytes <= PTX_SHARED,
             "ptx: a box outside of shared memory: %s", insn->text);
}

/* cp.async.bulk.tensor.Nd...shared::cluster.global.tile.mbarrier: [shared], [map, {coordinates}], [mbarrier]
 * to the memory of the block `to`, which has the mbarrier. */
static inline void ptx_bulk_start(ptx_machine *m, const ptx_insn *insn, unsigned t, ptx_mbarrier *b,
                                  ptx_machine *to) {
    const ptx_operand *source = &insn->operand[1];
    uint64_t address = ptx_mask(ptx_get(m, insn->operand[0].reg[0], t) + insn->operand[0].value, 32);
    address = ptx_near(m, address);
    const ptx_tensor_map *map = (const ptx_tensor_map *)(uintptr_t)ptx_get(m, source->reg[0], t);
    uint32_t bytes = ptx_box_elements(map) * map->element_bytes;
    ptx_bulk_check(insn, t, map, source->count - 1, address);
    ck_assert_uint_lt(to->bulk_count, PTX_BULK);
    ptx_bulk *copy = &to->bulk[to->bulk_count++];
    *copy = (ptx_bulk){.map = map, .address = address, .barrier = b->address};
    for (unsigned d = 0; d < map->rank; d++)
        copy->at[map->order[d]] = (int32_t)ptx_get(m, source->reg[1 + d], t);
    ptx_must(!map->spread || copy->at[map->order[0]] % 128 == 0,
             "ptx: a box of elements to spread begins at no multiple of 128: %s", insn->text);
    if (to == m) ptx_engine_waits(m, t, address, bytes);
    ptx_engine_claims(to, address, bytes, (uint16_t)(PTX_ENGINE + (b - to->mbarriers)));
}

/* For thread t, which starts the copy: what threads of its warp have fenced a barrier of the warp tells it.
 */
static inline void ptx_engine_sees(const ptx_machine *m, const ptx_insn *insn, unsigned t, uint64_t address,
                                   uint32_t bytes) {
    for (uint64_t i = address; i < address + bytes; i++)
        ptx_must(m->proxy[i] == PTX_VISIBLE ||
                     (m->proxy[i] == PTX_FENCED && (m->writer[i] - 1U) / 32 == t / 32 &&
                      m->seen[i] >> (t / 32) & 1),
                 "ptx: the copy engine does not see what was written: %s", insn->text);
}

/* cp.async.bulk.shared::cluster.shared::cta.mbarrier: [shared], [shared], bytes, [mbarrier]; to the block
 * that has the mbarrier. Or of global memory: [shared], [global], bytes, [mbarrier] */
static inline void ptx_bulk_move(ptx_machine *m, const ptx_insn *insn, unsigned t, const ptx_mbarrier *b,
                                 ptx_machine *owner) {
    const ptx_operand *target = &insn->operand[0], *source = &insn->operand[1];
    uint64_t to = ptx_mask(ptx_get(m, target->reg[0], t) + target->value, 32);
    ptx_must(ptx_owner(m, insn, &to) == owner, "ptx: an mbarrier of another block than the memory: %s",
             insn->text);
    bool is_global = ptx_is(insn->part[4], "global");
    uint64_t from = ptx_mask(ptx_get(m, source->reg[0], t) + source->value, is_global ? 64 : 32);
    if (!is_global) from = ptx_near(m, from);
    uint32_t bytes = (uint32_t)ptx_operand_value(m, &insn->operand[2], t);
    ptx_must((to | from | bytes) % 16 == 0 && bytes > 0, "ptx: a copy of no whole 16 bytes: %s", insn->text);
    ptx_must(to >= PTX_SHARED_BASE && to + bytes <= PTX_SHARED &&
                 (is_global || (from >= PTX_SHARED_BASE && from + bytes <= PTX_SHARED)),
             "ptx: a copy outside of shared memory: %s", insn->text);
    if (!is_global) ptx_engine_sees(m, insn, t, from, bytes);
    ptx_bulk copy = {.address = to, .bytes = bytes, .barrier = b->address};
    copy.from = is_global ? (const uint8_t *)(uintptr_t)from : m->shared + from;
    if (is_global && !ptx_allowed(m, insn, copy.from, bytes, t)) return;
    ck_assert_uint_lt(owner->bulk_count, PTX_BULK);
    owner->bulk[owner->bulk_count++] = copy;
    if (owner == m) ptx_engine_waits(m, t, to, bytes);
    ptx_engine_claims(owner, to, bytes, (uint16_t)(PTX_ENGINE + (b - owner->mbarriers)));
}

/* cp.async.bulk.tensor.Nd.global.shared::cta.tile.bulk_group: [map, {coordinates}], [shared]; or cp.reduce
 * and .add before .tile. What the copy engine reads must be visible to it and to the thread. */
static inline void ptx_bulk_store_start(ptx_machine *m, const ptx_insn *insn, unsigned t) {
    const ptx_operand *target = &insn->operand[0], *source = &insn->operand[1];
    uint64_t address = ptx_near(m, ptx_mask(ptx_get(m, source->reg[0], t) + source->value, 32));
    const ptx_tensor_map *map = (const ptx_tensor_map *)(uintptr_t)ptx_get(m, target->reg[0], t);
    uint32_t bytes = ptx_box_elements(map) * map->element_bytes;
    ptx_bulk_check(insn, t, map, target->count - 1, address);
    ptx_engine_sees(m, insn, t, address, bytes);
    ck_assert_uint_lt(m->store_count, PTX_BULK);
    ptx_bulk_store *store = &m->stores[m->store_count++];
    *store = (ptx_bulk_store){.map = map, .address = address, .thread = t, .group = m->store_groups[t]};
    if (ptx_is(insn->part[1], "reduce")) {
        ptx_must(ptx_is(insn->part[8], "add") && !strstr(map->type, "none"), "ptx: unknown %s", insn->text);
        store->adds = insn;
    }
    for (unsigned d = 0; d < map->rank; d++)
        store->at[map->order[d]] = (int32_t)ptx_get(m, target->reg[1 + d], t);
}

static inline void ptx_bulk_store_do(ptx_machine *m, const ptx_bulk_store *store) {
    const ptx_tensor_map *map = store->map;
    for (uint32_t n = 0; n < ptx_box_elements(map); n++) {
        uint8_t *to = ptx_box_element(map, store->at, n);
        uint64_t old = 0, value[2] = {0};
        for (unsigned k = 0; to && k < map->element_bytes; k++)
            value[0] |=
                (uint64_t)m->shared[ptx_swizzled(map, store->address + (uint64_t)n * map->element_bytes + k)]
                << 8 * k;
        if (to) memcpy(&old, to, map->element_bytes);
        if (store->adds) value[0] = ptx_atomic_word(store->adds, "add", map->type, old, value);
        if (to) memcpy(to, value, map->element_bytes);
    }
}

/* All but the latest groups of the thread are done, as late as they may be. */
static inline void ptx_bulk_store_wait(ptx_machine *m, unsigned t, uint32_t pending) {
    unsigned kept = 0;
    for (unsigned i = 0; i < m->store_count; i++) {
        const ptx_bulk_store *store = &m->stores[i];
        if (store->thread == t && store->group + pending < m->store_groups[t])
            ptx_bulk_store_do(m, store);
        else
            m->stores[kept++] = *store;
    }
    m->store_count = kept;
}

/* cp.async.bulk.commit_group, cp.async.bulk.wait_group */
static inline void ptx_bulk_group(ptx_machine *m, const ptx_insn *insn) {
    bool waits = ptx_is(insn->part[3], "wait_group");
    for (unsigned t = 0; t < m->threads; t++) {
        if (!ptx_active(m, insn, t)) continue;
        if (waits)
            ptx_bulk_store_wait(m, t, (uint32_t)ptx_operand_value(m, &insn->operand[0], t));
        else
            m->store_groups[t]++;
    }
}

#endif
