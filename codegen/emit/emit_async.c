/* copy-async by cp.async, or element by element where nothing is aligned; commit-group and wait-group. A
 * team, the block or each warp, copies the tile or its part of it. That is cut into bands of columns that lie
 * together in shared memory (one, but for layouts whose rows are in pieces), and each band, in row-major
 * order, into chunks of 16, 8 or 4 bytes of the last dimension; member t takes chunks t, t + members, ... */
#include "emit_async.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis.h"
#include "access.h"
#include "emit_atomic.h"
#include "global_access.h"
#include "kernel.h"
#include "numbers.h"
#include "shared_access.h"
#include "tensor_memory.h"

typedef struct copy {
    emitter *e;
    const tvm_operand *target, *source; /* slot, then indices */
    cache_hint
        hint; /* of stores: what ptxas 12.8 and 13.0 make of a cp.async with a cache policy, beside a source
                 size, a predicate or a uniform shared address, an H200 refuses as an illegal instruction */
    unsigned tile_rank;
    uint32_t tile[TVM_MAX_RANK];
    uint32_t
        parts[TVM_MAX_RANK];   /* that each dimension is cut into, one a team, numbered in row-major order */
    unsigned bits;             /* of an element */
    uint32_t threads, members; /* of the block, of a team */
    uint32_t run;              /* elements of a chunk */
    uint32_t pieces; /* accesses that move it: one, but of elements that no power of two of bytes is whole
                        ones of */
    uint32_t band;   /* elements of a row that a band has */
    uint64_t chunks; /* of a part */
    bool is_store;   /* from `target`, which is shared, to `source` */
    bool adds;       /* to what is there */
    uint32_t extent[TVM_MAX_RANK]; /* of a band in chunks */
} copy;

/* Coordinates, in elements, of the chunk that a thread takes of those from `first` on. */
static void chunk_coordinates(const copy *c, uint64_t first, uint32_t thread,
                              uint32_t coordinate[TVM_MAX_RANK]) {
    uint64_t chunk = first + thread % c->members, part = thread / c->members;
    memset(coordinate, 0, TVM_MAX_RANK * sizeof *coordinate);
    for (unsigned d = c->tile_rank; d-- > 0;) {
        coordinate[d] = (uint32_t)(chunk % c->extent[d]) * (d + 1 == c->tile_rank ? c->run : 1) +
                        (uint32_t)(part % c->parts[d]) * (c->tile[d] / c->parts[d]);
        chunk /= c->extent[d];
        part /= c->parts[d];
    }
    coordinate[c->tile_rank - 1] += (uint32_t)chunk * c->band;
}

/* Elements of a row of a part. */
static uint32_t row_of(const copy *c) {
    return c->tile[c->tile_rank - 1] / c->parts[c->tile_rank - 1];
}

/* The least number of elements that are whole accesses of so many bytes. */
static uint32_t run_of(const copy *c, unsigned access_bytes) {
    return 8 * access_bytes / (unsigned)tvm_gcd(8 * access_bytes, c->bits);
}

static void cut(copy *c, unsigned access_bytes, uint32_t band) {
    unsigned last = c->tile_rank - 1;
    c->run = run_of(c, access_bytes);
    c->pieces = c->run * c->bits / (8 * access_bytes);
    c->band = band;
    c->chunks = row_of(c) / band;
    for (unsigned d = 0; d < c->tile_rank; d++) {
        c->extent[d] = d == last ? band / c->run : c->tile[d] / c->parts[d];
        c->chunks *= c->extent[d];
    }
}

/* One turn of a team over its part. */
typedef struct turn {
    uint64_t first;               /* its first chunk */
    uint32_t delta[TVM_MAX_RANK]; /* of its coordinates from those of the turn whose thread parts it shares */
    uint32_t active;              /* members that have a chunk */
} turn;

static turn turn_from(const copy *c, uint64_t first) {
    uint64_t left = c->chunks - first;
    return (turn){.first = first, .active = left < c->members ? (uint32_t)left : c->members};
}

static reg member_number(const copy *c) {
    reg thread = tvm_thread_id(c->e);
    return c->members == c->threads ? thread : tvm_pure_modulo(c->e, thread, c->members);
}

/* Is every thread's coordinate of this turn that of `base` plus constants? */
static bool shares_parts(const copy *c, const shared_tile *s, const turn *base, turn *t) {
    if (t->active > base->active) return false;
    for (uint32_t thread = 0; thread < c->threads; thread++) {
        uint32_t here[TVM_MAX_RANK], there[TVM_MAX_RANK];
        if (thread % c->members >= t->active) continue;
        chunk_coordinates(c, t->first, thread, here);
        chunk_coordinates(c, base->first, thread, there);
        for (unsigned d = 0; d < c->tile_rank; d++) {
            if (here[d] < there[d]) return false;
            if (thread == 0)
                t->delta[d] = here[d] - there[d];
            else if (here[d] - there[d] != t->delta[d])
                return false;
        }
        if (tvm_shared_linear(s, here) != tvm_shared_linear(s, there) + tvm_shared_linear(s, t->delta))
            return false;
    }
    return true;
}

/* The thread's coordinates of the chunks that begin at `first`, as registers of the prologue. */
static void turn_parts(const copy *c, const turn *t, global_access *g) {
    emitter *e = c->e;
    thread_part *part = g->tile.part;
    reg chunk = member_number(c), team = tvm_pure_divide(e, tvm_thread_id(e), c->members);
    if (t->first > 0) chunk = tvm_pure(e, 'r', "add.u32 $, %s, %u;", chunk.name, (unsigned)t->first);
    uint64_t below = 1, band = c->chunks / (row_of(c) / c->band);
    uint32_t parts_below = 1;
    for (unsigned d = c->tile_rank; d-- > 0; below *= c->extent[d], parts_below *= c->parts[d]) {
        part[d] = (thread_part){0};
        for (uint32_t thread = 0; thread < c->threads; thread++) {
            uint32_t coordinate[TVM_MAX_RANK];
            if (thread % c->members >= t->active) continue;
            chunk_coordinates(c, t->first, thread, coordinate);
            part[d].divisor = tvm_gcd(part[d].divisor, coordinate[d]);
            if (coordinate[d] != 0) part[d].varies = true;
        }
        if (!part[d].varies) continue;
        reg digit = tvm_pure_divide(e, chunk, (uint32_t)below);
        if (below * c->extent[d] < t->first + t->active) digit = tvm_pure_modulo(e, digit, c->extent[d]);
        g->part[d] = d + 1 == c->tile_rank ? tvm_pure_scale(e, digit, c->run) : digit;
        if (d + 1 == c->tile_rank && band < t->first + t->active) {
            reg column = tvm_pure_scale(e, tvm_pure_divide(e, chunk, (uint32_t)band), c->band);
            g->part[d] = tvm_pure(e, 'r', "add.u32 $, %s, %s;", g->part[d].name, column.name);
        }
        if (c->parts[d] == 1) continue;
        reg origin = tvm_pure_modulo(e, tvm_pure_divide(e, team, parts_below), c->parts[d]);
        origin = tvm_pure_scale(e, origin, c->tile[d] / c->parts[d]);
        g->part[d] = tvm_pure(e, 'r', "add.u32 $, %s, %s;", g->part[d].name, origin.name);
    }
}

static void turn_lanes(const copy *c, const shared_tile *s, const turn *t, const global_access *g,
                       shared_lanes *lanes) {
    emitter *e = c->e;
    memset(lanes, 0, sizeof *lanes);
    for (uint32_t thread = 0; thread < c->threads; thread++) {
        uint32_t coordinate[TVM_MAX_RANK];
        /* Idle threads count as the first one, so that they never stand in the way. */
        chunk_coordinates(c, t->first, thread % c->members < t->active ? thread : 0, coordinate);
        lanes->offset[thread] = tvm_shared_linear(s, coordinate);
    }
    for (unsigned d = 0; d < c->tile_rank; d++) {
        reg at;
        if (!g->tile.part[d].varies || !tvm_shared_part(e, s, d, g->part[d], &at)) continue;
        lanes->value =
            lanes->varies ? tvm_pure(e, 'r', "add.u32 $, %s, %s;", lanes->value.name, at.name) : at;
        lanes->varies = true;
    }
}

/* A base turn and what its threads' parts make of global and shared addresses. */
typedef struct turn_base {
    global_access g;
    shared_lanes lanes;
} turn_base;

static void open_base(copy *c, const shared_tile *s, const turn *t, turn_base *base) {
    memset(&base->g, 0, sizeof base->g);
    turn_parts(c, t, &base->g);
    turn_lanes(c, s, t, &base->g, &base->lanes);
    memcpy(base->g.tile.extent, c->tile, sizeof c->tile);
    base->g.tile.whole_bytes = true;
    tvm_global_open(c->e, &base->g, c->source->value, c->source + 1, c->tile_rank);
}

/* Can chunks of this many bytes be copied by cp.async? */
static bool chunk_fits(copy *c, shared_access *s, unsigned chunk_bytes, turn_base *base, char why[160]) {
    unsigned last = c->tile_rank - 1;
    why[0] = '\0';
    uint32_t run = run_of(c, chunk_bytes);
    if (c->bits > 8 * chunk_bytes || row_of(c) % run != 0) {
        snprintf(why, 160, "the tile's rows are no multiple of %u bytes",
                 c->bits > 8 * chunk_bytes ? chunk_bytes : run * c->bits / 8);
        return false;
    }
    if (!s->tile.linear) {
        snprintf(why, 160, "a dimension of the shared layout has several modes");
        return false;
    }
    uint64_t neighbours = tvm_shared_contiguous(&s->tile), row = row_of(c);
    bool in_bands = neighbours >= run && row % neighbours == 0;
    cut(c, chunk_bytes, (uint32_t)(in_bands ? neighbours : row));
    if (c->run > tvm_shared_run(&s->tile) || c->run > neighbours) {
        snprintf(why, 160, "%u bytes of a row are not contiguous in shared memory", c->run * c->bits / 8);
        return false;
    }
    turn t = turn_from(c, 0);
    open_base(c, &s->tile, &t, base);
    uint64_t shared_align = tvm_gcd(c->run, s->tile.constant), rows[TVM_MAX_RANK];
    shared_align = tvm_gcd(shared_align, s->tile.dynamic_divisor);
    for (unsigned d = 0; d < c->tile_rank; d++) {
        rows[d] = c->tile[d] > 1;
        if (c->tile[d] > 1) shared_align = tvm_gcd(shared_align, tvm_shared_strides(&s->tile, d));
    }
    if (shared_align % c->run != 0) {
        snprintf(why, 160, "shared addresses are no multiples of %u bytes", chunk_bytes);
        return false;
    }
    /* The last coordinate is a multiple of the chunk; the others, constants of later turns included, are any
     * number. */
    rows[last] = c->run;
    for (unsigned d = 0; d < last; d++)
        if (c->tile[d] > 1) {
            base->g.tile.part[d].varies = true;
            base->g.tile.part[d].divisor = 1;
        }
    base->g.tile.part[last].divisor = c->run;
    unsigned align = tvm_global_alignment(&base->g.tile, rows);
    if (align < 8 * chunk_bytes) {
        snprintf(why, 160, "global addresses are known to be multiples of %u bytes only", align / 8);
        return false;
    }
    if (c->run > 1 && !tvm_global_has_rows(&base->g.tile)) {
        snprintf(why, 160, "neighbours of a row are apart in global memory");
        return false;
    }
    unsigned end = base->g.tile.rank - 1;
    if (!base->g.tile.proven[end] && tvm_gcd(base->g.tile.granule[end], c->run) != c->run) {
        snprintf(why, 160, "a chunk may cross the tensor's edge");
        return false;
    }
    return true;
}

/* Where the member has a chunk that lies inside; without a name: always. */
static reg store_guard(copy *c, turn_base *base, const turn *t) {
    emitter *e = c->e;
    reg inside = {""};
    tvm_global_predicate(&base->g, t->delta, &inside);
    if (t->active == c->members) return inside;
    reg has = tvm_pure(e, 'p', "setp.lt.u32 $, %s, %u;", member_number(c).name, t->active);
    return tvm_both(e, inside, has);
}

static void store_chunk(copy *c, turn_base *base, const turn *t, unsigned chunk_bytes, reg shared,
                        uint32_t plus, reg global, int64_t ahead) {
    emitter *e = c->e;
    reg units[4];
    char operands[64], guard[20] = "";
    uint32_t count = chunk_bytes / 4;
    reg has = store_guard(c, base, t);
    if (has.name[0]) snprintf(guard, sizeof guard, "@%s ", has.name);
    for (uint32_t i = 0; i < count; i++) units[i] = tvm_new_r(e);
    for (uint32_t i = 0; c->adds && i < count; i++) tvm_emit(e, "mov.b32 %s, 0;", units[i].name);
    tvm_access_operands(units, count, operands);
    const char *type = tvm_access_type(8 * chunk_bytes);
    tvm_emit(e, "%sld.shared.%s %s, [%s+%u];", guard, type, operands, shared.name, plus);
    if (c->adds)
        tvm_emit_global_add(e, tvm_slot_dtype(e->k, c->source->value), global, ahead, has, units,
                            8 * chunk_bytes);
    else
        tvm_emit(e, "%sst.global%s.%s [%s+%" PRId64 "], %s%s;", guard, c->hint.level2, type, global.name,
                 ahead, operands, c->hint.policy);
}

static void emit_chunk(copy *c, shared_access *s, const turn *t, turn_base *base, unsigned chunk_bytes) {
    emitter *e = c->e;
    uint32_t plus;
    char guard[20] = "";
    if (t->active < c->members) {
        reg p = tvm_pure(e, 'p', "setp.lt.u32 $, %s, %u;", member_number(c).name, t->active);
        snprintf(guard, sizeof guard, "@%s ", p.name);
    }
    reg to = tvm_shared_address(s, &base->lanes, tvm_shared_linear(&s->tile, t->delta), &plus);
    int64_t ahead;
    reg from = tvm_global_near_pointer(&base->g, t->delta, &ahead),
        inside; /* LDGSTS has 12 bits for a constant */
    const char *cache = chunk_bytes == 16 ? "cg" : "ca";
    if (c->is_store) {
        for (uint32_t i = 0; i < c->pieces; i++)
            store_chunk(c, base, t, chunk_bytes, to, plus + i * chunk_bytes, from, ahead + i * chunk_bytes);
        return;
    }
    char size_operand[24] = "";
    if (tvm_global_predicate(&base->g, t->delta, &inside)) {
        reg size = tvm_new_r(e);
        tvm_emit(e, "selp.b32 %s, %u, 0, %s;", size.name, chunk_bytes, inside.name);
        snprintf(size_operand, sizeof size_operand, ", %s", size.name);
    }
    for (uint32_t i = 0; i < c->pieces; i++)
        tvm_emit(e, "%scp.async.%s.shared.global [%s+%u], [%s+%" PRId64 "], %u%s;", guard, cache, to.name,
                 plus + i * chunk_bytes, from.name, ahead + i * chunk_bytes, chunk_bytes, size_operand);
}

static unsigned chunk_conflicts(const copy *c, const shared_tile *s, const turn_base *base,
                                unsigned chunk_bytes) {
    uint32_t address[32];
    for (unsigned lane = 0; lane < 32; lane++)
        address[lane] =
            tvm_shared_bytes_of(s, tvm_shared_swizzle(s->layout, base->lanes.offset[lane] + s->constant));
    unsigned lanes = c->chunks < 32 ? (unsigned)c->chunks : 32;
    return tvm_shared_conflicts(address, lanes, 8 * chunk_bytes);
}

static tvm_status copy_chunks(copy *c, shared_access *s, turn_base *base, unsigned chunk_bytes,
                              const char *refused) {
    emitter *e = c->e;
    uint64_t turns = (c->chunks + c->members - 1) / c->members;
    turn first = {0};
    for (uint64_t i = 0; i < turns; i++) {
        turn t = turn_from(c, i * c->members);
        if (i == 0 || !shares_parts(c, &s->tile, &first, &t)) {
            memset(t.delta, 0, sizeof t.delta);
            open_base(c, &s->tile, &t, base);
            first = t;
        }
        emit_chunk(c, s, &t, base, chunk_bytes);
    }
    char name[48];
    bool guarded = tvm_global_is_guarded(&base->g.tile);
    if (c->is_store)
        snprintf(name, sizeof name, "ld.shared and %s.global %u%s", c->adds ? "red" : "st", chunk_bytes,
                 guarded || s->guarded ? " guarded" : "");
    else
        snprintf(name, sizeof name, "cp.async.%s %u%s", chunk_bytes == 16 ? "cg" : "ca", chunk_bytes,
                 guarded || s->guarded ? " guarded" : "");
    turn t = turn_from(c, 0);
    open_base(c, &s->tile, &t, base);
    tvm_explain(e, name, 8 * chunk_bytes, (unsigned)turns * c->pieces,
                (int)chunk_conflicts(c, &s->tile, base, chunk_bytes), refused);
    return TVM_OK;
}

/* ---- element by element ---- */

/* An element, or a run of narrower ones that is whole bytes, and where it goes. */
typedef struct element_move {
    reg units[4], from, inside; /* inside.name[0] == 0: always */
    reg shared;                 /* the address there; name[0] == 0: not computed yet */
    reg part[TVM_MAX_RANK];     /* of the thread's coordinates; name[0] == 0: 0 */
    char load_guard[20], store_guard[20];
    unsigned bits; /* of an access */
} element_move;

/* One access at both places, `at` bytes behind the beginning. */
static void move_piece(copy *c, shared_access *s, element_move *m, uint32_t at) {
    static const uint32_t none[TVM_MAX_RANK] = {0};
    emitter *e = c->e;
    char operands[64], ahead[16] = "";
    uint32_t count = m->bits == 64 ? 2 : 1, plus = e->k->slots[s->tile.slot].shared_offset + at;
    const char *type = tvm_access_type(m->bits);
    if (at > 0) snprintf(ahead, sizeof ahead, "+%u", at);
    for (uint32_t i = 0; i < count; i++) tvm_emit(e, "mov.b32 %s, 0;", m->units[i].name);
    tvm_access_operands(m->units, count, operands);
    if (!c->is_store)
        tvm_emit(e, "%sld.global.%s %s, [%s%s];", m->load_guard, type, operands, m->from.name, ahead);
    if (!m->shared.name[0]) m->shared = tvm_shared_address_of_coordinates(s, m->part, none);
    if (!c->is_store) {
        tvm_emit(e, "%sst.shared.%s [%s+%u], %s;", m->store_guard, type, m->shared.name, plus, operands);
        return;
    }
    tvm_emit(e, "%sld.shared.%s %s, [%s+%u];", m->load_guard, type, operands, m->shared.name, plus);
    if (c->adds)
        tvm_emit_global_add(e, tvm_slot_dtype(e->k, c->source->value), m->from, 0, m->inside, m->units,
                            m->bits);
    else
        tvm_emit(e, "%sst.global.%s [%s%s], %s;", m->load_guard, type, m->from.name, ahead, operands);
}

static void copy_element(copy *c, shared_access *s, const turn *t, turn_base *base) {
    emitter *e = c->e;
    static const uint32_t none[TVM_MAX_RANK] = {0};
    reg active = {""};
    element_move m = {.bits = c->bits < 8 ? 8 : c->bits};
    m.units[0] = tvm_new_r(e);
    m.units[1] = tvm_new_r(e);
    if (t->active < c->members) {
        active = tvm_pure(e, 'p', "setp.lt.u32 $, %s, %u;", member_number(c).name, t->active);
        snprintf(m.store_guard, sizeof m.store_guard, "@%s ", active.name);
        snprintf(m.load_guard, sizeof m.load_guard, "@%s ", active.name);
    }
    for (unsigned d = 0; d < c->tile_rank; d++)
        if (base->g.tile.part[d].varies) m.part[d] = base->g.part[d];
    m.from = tvm_global_pointer(&base->g, none);
    m.inside = active;
    if (tvm_global_predicate(&base->g, none, &m.inside)) {
        m.inside = tvm_both(e, m.inside, active);
        snprintf(m.load_guard, sizeof m.load_guard, "@%s ", m.inside.name);
    }
    for (uint32_t i = 0; i < c->pieces; i++) move_piece(c, s, &m, i);
}

static tvm_status copy_elements(copy *c, shared_access *s, turn_base *base, const char *refused) {
    unsigned bytes = c->bits < 8 ? 1 : c->bits / 8;
    cut(c, bytes, row_of(c));
    uint64_t turns = (c->chunks + c->members - 1) / c->members;
    for (uint64_t i = 0; i < turns; i++) {
        turn t = turn_from(c, i * c->members);
        open_base(c, &s->tile, &t, base);
        copy_element(c, s, &t, base);
    }
    tvm_explain(c->e,
                c->adds       ? "ld.shared and red.global by element"
                : c->is_store ? "ld.shared and st.global by element"
                              : "ld.global and st.shared by element",
                8 * bytes, 2 * (unsigned)turns * c->pieces, -1, refused);
    return TVM_OK;
}

static void read_operands(emitter *e, const thread_copy *operands, copy *c) {
    const tvm_operand *warps = operands->warps;
    bool is_cut = warps && warps->kind != TVM_OPERAND_NONE;
    c->e = e;
    c->is_store = operands->is_store;
    c->adds = operands->adds;
    c->target = c->is_store ? operands->source : operands->target;
    c->source = c->is_store ? operands->target : operands->source;
    c->tile_rank = operands->tile->value;
    for (unsigned d = 0; d < c->tile_rank; d++) c->tile[d] = operands->tile[1 + d].value;
    c->bits = tvm_slot_dtype(e->k, c->target->value).bits;
    c->threads = c->members = tvm_team_threads(e->team);
    if (c->is_store) c->hint = tvm_cache_hint(e, operands->evict);
    for (unsigned d = 0; d < c->tile_rank; d++) c->parts[d] = is_cut ? warps[1 + d].value : 1;
    if (is_cut) c->members = 32;
}

/* Elements of 4 or 6 bits to bytes. */
static bool spreads(const emitter *e, const thread_copy *operands) {
    const tvm_slot *slots = e->k->kernel->slots;
    return tvm_tensor_spreads(slots[operands->target->value].dtype, slots[operands->source->value].dtype);
}

tvm_status tvm_emit_thread_copy(emitter *e, const thread_copy *operands, bool *is_async) {
    copy c = {0};
    shared_access s;
    char refused[600], why[160];
    size_t used = (size_t)snprintf(refused, sizeof refused, "%.190s", operands->refused);
    if (!operands->is_store && spreads(e, operands))
        return tvm_emit_error(e, TVM_UNSUPPORTED, "TMA alone spreads elements over bytes", "'%s': %s",
                              tvm_string(e->k->program, e->k->kernel->slots[operands->source->value].name),
                              *refused ? refused : "a copy by threads leaves elements as they are");
    read_operands(e, operands, &c);
    turn_base *base = calloc(1, sizeof *base);
    if (!base) return tvm_diag_no_memory(e->k->diags);
    tvm_shared_access_open(e, &s, c.target->value, c.target + 1, c.tile_rank, c.tile, c.threads);
    s.guarded = tvm_shared_guard(e, c.target->value, c.target + 1, c.tile_rank, c.tile);
    uint32_t column = c.source[e->k->kernel->slots[c.source->value].rank].value;
    if (tvm_emit_byte_guard(e, column, c.bits)) s.guarded = true;
    tvm_status status = TVM_OK;
    unsigned chunk_bytes = 16;
    for (; chunk_bytes >= 4; chunk_bytes /= 2) {
        if (chunk_fits(&c, &s, chunk_bytes, base, why)) break;
        int n = snprintf(refused + used, sizeof refused - used, "%scp.async %u: %s", used ? "; " : "",
                         chunk_bytes, why);
        if (n > 0) used = used + (size_t)n < sizeof refused ? used + (size_t)n : sizeof refused - 1;
    }
    *is_async = chunk_bytes >= 4 && !operands->is_store;
    if (chunk_bytes >= 4)
        status = copy_chunks(&c, &s, base, chunk_bytes, refused);
    else
        status = copy_elements(&c, &s, base, refused);
    free(base);
    return status;
}

tvm_status tvm_emit_COPY_ASYNC(emitter *e, const tvm_insn *insn) {
    const tvm_operand *target = tvm_operands(e->k->kernel, insn);
    const tvm_operand *source = target + 1 + tvm_slot_shared_layout(e->k, target->value)->rank;
    const tvm_operand *tile = source + 1 + e->k->kernel->slots[source->value].rank;
    const tvm_operand *evict = tile + 1 + tile->value;
    char why[200] = "";
    if (e->left.copies && tvm_target_has(e->k->target, TVM_HAS_BULK))
        snprintf(why, sizeof why, "no producer warp with TMA: %.140s", e->left.copies);
    const thread_copy operands = {
        .target = target, .source = source, .tile = tile, .evict = evict, .warps = evict + 1, .refused = why};
    bool is_async;
    return tvm_emit_thread_copy(e, &operands, &is_async);
}

/* fence COPY_GROUP */
tvm_status tvm_emit_COMMIT_GROUP(emitter *e, const tvm_insn *insn) {
    (void)insn;
    tvm_emit(e, "cp.async.commit_group;");
    return TVM_OK;
}

tvm_status tvm_emit_WAIT_GROUP(emitter *e, const tvm_insn *insn) {
    tvm_emit(e, "cp.async.wait_group %u;", tvm_operands(e->k->kernel, insn)[0].value);
    return TVM_OK;
}
