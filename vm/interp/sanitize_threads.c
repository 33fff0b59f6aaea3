/* The threads that access each element of a tile: threads that hold it in registers, and warps that copy a
 * part of the tile, or multiply it. */
#include "sanitize_impl.h"

#include <stdlib.h>

#include "mma.h"

/* ---- layouts ---- */

/* Offsets of the threads that hold what thread 0 holds: sums of the replication digits. */
static void find_holders(const tvm_layout *layout, san_layout *out) {
    uint32_t place[TVM_MAX_MODES], step = 1;
    uint32_t most = 0;
    for (unsigned s = layout->spatials; s-- > 0;) {
        int32_t digit = layout->spatial[s];
        place[s] = digit < 0 ? step : 0;
        step *= digit < 0 ? (uint32_t)-digit : layout->mode_size[digit];
    }
    uint32_t copies = tvm_layout_replication(layout);
    for (uint32_t i = 0; i < copies; i++) {
        uint32_t rest = i, thread = 0;
        for (unsigned s = layout->spatials; s-- > 0;) {
            if (layout->spatial[s] >= 0) continue;
            thread += rest % (uint32_t)-layout->spatial[s] * place[s];
            rest /= (uint32_t)-layout->spatial[s];
        }
        out->holders[thread / 64] |= UINT64_C(1) << (thread % 64);
        if (thread > most) most = thread;
    }
    out->replicated = copies > 1;
    out->in_warp = most < 32;
}

static const san_layout *find_layout(sanitizer *s, uint32_t number) {
    san_layout *out = &s->layouts[number];
    const tvm_layout *layout = &s->kernel->program->layouts[number];
    if (out->codes) return out;
    uint32_t threads = tvm_layout_threads(layout), locals = tvm_layout_locals(layout);
    uint32_t *table = malloc((size_t)threads * locals * sizeof *table);
    out->codes = malloc(tvm_layout_elements(layout) * sizeof *out->codes);
    if (!table || !out->codes) {
        free(table);
        free(out->codes);
        out->codes = NULL;
        return NULL;
    }
    find_holders(layout, out);
    tvm_layout_table(layout, table);
    for (uint32_t t = threads; t-- > 0;)
        for (uint32_t l = 0; l < locals; l++)
            out->codes[table[(size_t)t * locals + l]] = (uint16_t)(t | (out->replicated ? SAN_HOLDERS : 0));
    free(table);
    return out;
}

tvm_status tvm_sanitize_thread(interp_context *context, uint32_t slot, uint64_t element, uint32_t *thread) {
    sanitizer *s = context->block->run->sanitizer;
    const san_layout *layout = find_layout(s, interp_slot(s->kernel, slot)->layout);
    if (!layout) return tvm_interp_no_memory(s->run);
    *thread = 32 * context->team.first + (layout->codes[element] & SAN_THREAD);
    return TVM_OK;
}

/* ---- parts of tiles ---- */

static const san_part *find_part(const sanitizer *s, uint32_t insn, uint32_t operand) {
    for (uint32_t p = 0; p < s->part_count; p++)
        if (s->parts[p].insn == insn && s->parts[p].operand == operand) return &s->parts[p];
    return NULL;
}

/* Takes the codes; NULL: out of memory. */
static const san_part *add_part(sanitizer *s, uint32_t insn, uint32_t operand, uint16_t *codes) {
    san_part *parts = realloc(s->parts, (s->part_count + 1) * sizeof *parts);
    if (!parts) {
        free(codes);
        return NULL;
    }
    s->parts = parts;
    parts[s->part_count] = (san_part){insn, operand, codes};
    return &parts[s->part_count++];
}

/* Of a copy whose parts are the warps': by element of its tile. */
static const san_part *copy_part(sanitizer *s, const sanitize_access *access, uint32_t insn) {
    const san_part *part = find_part(s, insn, 0);
    size_t count = 1;
    if (part) return part;
    for (unsigned d = 0; d < access->tile_rank; d++) count *= (size_t)access->tile[d];
    uint16_t *codes = malloc(count * sizeof *codes);
    for (size_t e = 0; codes && e < count; e++) {
        size_t rest = e, step = 1, warp = 0;
        for (unsigned d = access->tile_rank; d-- > 0;) {
            size_t along = access->parts[1 + d].value, extent = (size_t)access->tile[d];
            warp += rest % extent / (extent / along) * step;
            step *= along;
            rest /= extent;
        }
        codes[e] = (uint16_t)(32 * warp | SAN_WARP);
    }
    return codes ? add_part(s, insn, 0, codes) : NULL;
}

/* The warps that need each element of a tile that mma reads, by the layout of its fragments. */
static bool mma_codes(const sanitizer *s, uint32_t insn, uint32_t operand, uint16_t **out) {
    const tvm_ir_kernel *kernel = s->kernel->kernel;
    const tvm_ir_program *program = s->kernel->program;
    const tvm_insn *source = &kernel->insns[insn];
    tvm_mma mma;
    tvm_layout fragments, tile;
    *out = NULL;
    tvm_mma_read(program, kernel, tvm_operands(kernel, source), source->count, &mma);
    const tvm_layout *c = &program->layouts[kernel->slots[mma.c].layout];
    const tvm_mma_source *from = operand == 0 ? &mma.a : &mma.b;
    if (tvm_mma_fragments(mma.atoms, c, operand == 0, from->rank, from->shape, &fragments, NULL) != TVM_OK ||
        tvm_mma_tile_layout(&mma, operand == 0, &fragments, &tile, NULL) != TVM_OK)
        return true; /* then all warps read the tile */
    uint32_t threads = tvm_layout_threads(&tile), locals = tvm_layout_locals(&tile);
    uint32_t *table = malloc((size_t)threads * locals * sizeof *table);
    uint16_t *codes = *out = calloc(tvm_layout_elements(&tile), sizeof *codes);
    for (uint32_t t = 0; table && codes && t < threads; t++) {
        if (t == 0) tvm_layout_table(&tile, table);
        for (uint32_t l = 0; l < locals; l++) {
            uint16_t *code = &codes[table[(size_t)t * locals + l]];
            if (!*code) *code = (uint16_t)((t & ~31u) | SAN_WARP);
            if ((*code & SAN_THREAD) / 32 != t / 32) *code = (uint16_t)((*code & SAN_THREAD) | SAN_MANY);
        }
    }
    bool made = table && codes;
    free(table);
    return made;
}

static const san_part *mma_part(sanitizer *s, uint32_t insn, uint32_t operand) {
    uint16_t *codes;
    const san_part *part = find_part(s, insn, operand);
    if (part) return part;
    if (mma_codes(s, insn, operand, &codes)) return add_part(s, insn, operand, codes);
    free(codes);
    return NULL;
}

/* ---- an access ---- */

static uint16_t team_code(tvm_team team) {
    return (uint16_t)(32 * team.first | (team.warps == 1 ? SAN_WARP : SAN_MANY));
}

bool tvm_san_threads(sanitizer *s, const interp_context *context, const sanitize_access *access,
                     uint32_t insn, sanitize_walk *walk) {
    walk->code = team_code(context->team);
    walk->base = (uint16_t)(32 * context->team.first);
    walk->layout = TVM_NONE;
    if (access->parts || access->actor == SANITIZE_MMA) {
        const san_part *part =
            access->parts ? copy_part(s, access, insn) : mma_part(s, insn, access->operand);
        if (part) walk->codes = part->codes;
        return part != NULL;
    }
    if (access->tensor == TVM_NONE) return true;
    walk->layout = interp_slot(s->kernel, access->tensor)->layout;
    const san_layout *layout = find_layout(s, walk->layout);
    walk->codes = layout ? layout->codes : NULL;
    return layout != NULL;
}
