#include "abi.h"

#include <stdlib.h>
#include <string.h>

#include "numbers.h"
#include "tensor_memory.h"
#include "view.h"

/* ---- the table ---- */

unsigned tvm_abi_alignment(const tvm_abi_param *param) {
    return param->kind == TVM_ABI_TENSOR_MAP ? TVM_ABI_TENSOR_MAP_ALIGNMENT : param->width;
}

uint32_t tvm_abi_add(tvm_kernel_abi *abi, tvm_abi_kind kind, unsigned width, uint32_t index) {
    tvm_abi_param param = {.kind = (uint8_t)kind, .width = (uint8_t)width, .index = (uint16_t)index};
    param.offset = (uint32_t)tvm_round_up(abi->param_bytes, tvm_abi_alignment(&param));
    if (abi->param_count == TVM_ABI_PARAMS || param.offset + width > TVM_ABI_PARAM_BYTES) return TVM_NONE;
    abi->param_bytes = param.offset + width;
    abi->params[abi->param_count] = param;
    return abi->param_count++;
}

unsigned tvm_abi_element_bytes(unsigned element) {
    static const uint8_t bytes[TVM_ABI_ELEMENTS] = {
        [TVM_ABI_BITS8] = 1, [TVM_ABI_BITS16] = 2, [TVM_ABI_BITS32] = 4,  [TVM_ABI_BITS64] = 8,
        [TVM_ABI_I32] = 4,   [TVM_ABI_I64] = 8,    [TVM_ABI_F16] = 2,     [TVM_ABI_BF16] = 2,
        [TVM_ABI_F32] = 4,   [TVM_ABI_F64] = 8,    [TVM_ABI_SPREAD4] = 1, [TVM_ABI_SPREAD6] = 1};
    return bytes[element];
}

bool tvm_abi_element_spreads(unsigned element) {
    return element == TVM_ABI_SPREAD4 || element == TVM_ABI_SPREAD6;
}

unsigned tvm_abi_element_bits(unsigned element) {
    if (tvm_abi_element_spreads(element)) return element == TVM_ABI_SPREAD4 ? 4 : 6;
    return 8 * tvm_abi_element_bytes(element);
}

static bool same_map(const tvm_abi_map *a, const tvm_abi_map *b) {
    return a->tensor == b->tensor && a->element == b->element && a->rank == b->rank &&
           a->swizzle == b->swizzle && a->promotion == b->promotion && a->is_written == b->is_written &&
           a->row == b->row && a->view == b->view && memcmp(a->box, b->box, sizeof a->box) == 0;
}

uint32_t tvm_abi_add_map(tvm_kernel_abi *abi, const tvm_abi_map *map) {
    for (uint32_t i = 0; i < abi->param_count; i++) {
        const tvm_abi_param *param = &abi->params[i];
        if (param->kind == TVM_ABI_TENSOR_MAP && same_map(&abi->maps[param->index], map)) return i;
    }
    if (abi->map_count == TVM_ABI_TENSOR_MAPS) return TVM_NONE;
    uint32_t row = tvm_abi_add(abi, TVM_ABI_TENSOR_MAP, TVM_ABI_TENSOR_MAP_BYTES, abi->map_count);
    if (row != TVM_NONE) abi->maps[abi->map_count++] = *map;
    return row;
}

static uint32_t memory_slot(const tvm_ir_kernel *kernel, const tvm_abi_map *map) {
    tvm_launch_tensor tensors[TVM_MAX_LAUNCH_TENSORS];
    if (map->tensor < kernel->param_count)
        return kernel->slots[map->tensor].kind == TVM_SLOT_GLOBAL ? map->tensor : TVM_NONE;
    uint32_t made = map->tensor - kernel->param_count;
    return made < tvm_launch_tensors(kernel, tensors) ? tensors[made].slot : TVM_NONE;
}

uint32_t tvm_abi_map_slot(const tvm_ir_kernel *kernel, const tvm_abi_map *map) {
    uint32_t memory = memory_slot(kernel, map), view = map->view - 1U;
    if (memory == TVM_NONE || map->view == 0) return memory;
    const tvm_slot *slot = view < kernel->slot_count ? &kernel->slots[view] : NULL;
    bool fits = slot && slot->kind == TVM_SLOT_GLOBAL && slot->at_launch && slot->form != TVM_FORM_PART &&
                tvm_view_root(kernel, view) == memory;
    return fits ? view : TVM_NONE;
}

uint32_t tvm_abi_find(const tvm_kernel_abi *abi, tvm_abi_kind kind, uint32_t index) {
    for (uint32_t i = 0; i < abi->param_count; i++)
        if (abi->params[i].kind == kind && abi->params[i].index == index) return i;
    return TVM_NONE;
}

tvm_abi_param tvm_abi_declared(const tvm_ir_kernel *kernel, uint32_t p) {
    const tvm_slot *slot = &kernel->slots[p];
    bool tensor = slot->kind == TVM_SLOT_GLOBAL, is_float = slot->dtype.kind == TVM_KIND_FLOAT;
    return (tvm_abi_param){
        .kind = tensor     ? TVM_ABI_TENSOR
                : is_float ? TVM_ABI_FLOAT
                           : TVM_ABI_INTEGER,
        .width = tensor || slot->dtype.bits == 64 ? 8 : 4,
        .index = (uint16_t)p,
    };
}

/* ---- as numbers ---- */

enum {
    HEAD = 8, /* numbers of a kernel before its rows */
    MAP = 5   /* of a tensor map */
};

static void encode_map(const tvm_abi_map *map, uint32_t words[MAP]) {
    words[0] = map->tensor | (uint32_t)map->element << 16 | (uint32_t)map->rank << 24;
    words[1] = map->swizzle | (uint32_t)map->promotion << 8 | (uint32_t)map->is_written << 16 |
               (uint32_t)map->row << 24;
    words[2] = map->box[0] | (uint32_t)map->box[1] << 16;
    words[3] = map->box[2] | (uint32_t)map->box[3] << 16;
    words[4] = map->box[4] | (uint32_t)map->view << 16;
}

static tvm_abi_map decode_map(const uint32_t words[MAP]) {
    return (tvm_abi_map){.tensor = (uint16_t)words[0],
                         .element = (uint8_t)(words[0] >> 16),
                         .rank = (uint8_t)(words[0] >> 24),
                         .swizzle = (uint8_t)words[1],
                         .promotion = (uint8_t)(words[1] >> 8),
                         .is_written = (uint8_t)(words[1] >> 16),
                         .view = (uint16_t)(words[4] >> 16),
                         .row = (uint8_t)(words[1] >> 24),
                         .box = {(uint16_t)words[2], (uint16_t)(words[2] >> 16), (uint16_t)words[3],
                                 (uint16_t)(words[3] >> 16), (uint16_t)words[4]}};
}

static size_t encode(const tvm_kernel_abi *abi, uint32_t *words) {
    size_t rows = HEAD + (size_t)abi->param_count;
    if (!words) return rows + (size_t)MAP * abi->map_count;
    const uint32_t head[HEAD] = {abi->absence,    abi->threads,    abi->shared_bytes, abi->cluster[0],
                                 abi->cluster[1], abi->cluster[2], abi->flags,        abi->param_count};
    memcpy(words, head, sizeof head);
    for (uint32_t i = 0; i < abi->param_count; i++) {
        const tvm_abi_param *param = &abi->params[i];
        words[HEAD + i] = param->kind | (uint32_t)param->width << 8 | (uint32_t)param->index << 16;
    }
    for (uint32_t m = 0; m < abi->map_count; m++) encode_map(&abi->maps[m], words + rows + (size_t)MAP * m);
    return rows + (size_t)MAP * abi->map_count;
}

size_t tvm_abi_encode(const tvm_kernel_abi *const *abis, uint32_t count, uint32_t *words) {
    size_t used = 1;
    if (words) words[0] = TVM_ABI_ENCODING;
    for (uint32_t k = 0; k < count; k++) used += encode(abis[k], words ? words + used : NULL);
    return used;
}

/* The next kernel's, of which no more than the form has been checked; false: it has none. */
static bool decode(const uint32_t **words, const uint32_t *end, tvm_kernel_abi *abi) {
    const uint32_t *at = *words;
    if (end - at < HEAD || at[HEAD - 1] > TVM_ABI_PARAMS || end - at - HEAD < (ptrdiff_t)at[HEAD - 1])
        return false;
    *abi = (tvm_kernel_abi){.absence = at[0],
                            .threads = at[1],
                            .shared_bytes = at[2],
                            .cluster = {at[3], at[4], at[5]},
                            .flags = at[6]};
    for (uint32_t i = 0; i < at[HEAD - 1]; i++) {
        uint32_t row = at[HEAD + i], kind = row & 0xff, width = row >> 8 & 0xff;
        bool sized =
            kind == TVM_ABI_TENSOR_MAP ? width == TVM_ABI_TENSOR_MAP_BYTES : width == 4 || width == 8;
        if (kind >= TVM_ABI_KINDS || !sized) return false;
        if (kind == TVM_ABI_TENSOR_MAP && row >> 16 != abi->map_count++) return false;
        if (tvm_abi_add(abi, (tvm_abi_kind)kind, width, row >> 16) == TVM_NONE) return false;
    }
    at += HEAD + at[HEAD - 1];
    if (abi->map_count > TVM_ABI_TENSOR_MAPS || end - at < (ptrdiff_t)MAP * abi->map_count) return false;
    for (uint32_t m = 0; m < abi->map_count; m++, at += MAP) abi->maps[m] = decode_map(at);
    *words = at;
    return true;
}

/* CUDA Driver API, cuTensorMapEncodeTiled, of the types 16U4_ALIGN16B and 16U6_ALIGN16B. */
static bool spread_fits(const tvm_abi_map *map, unsigned bits, unsigned row) {
    bool swizzle = map->swizzle == TVM_ABI_SWIZZLE_NONE || map->swizzle == TVM_ABI_SWIZZLE_128;
    return bits == tvm_abi_element_bits(map->element) && row == TVM_SPREAD_ROW && !map->is_written && swizzle;
}

/* Can a launch make the map, whatever the tensor's extents are? */
static bool map_fits(const tvm_abi_map *map, const tvm_ir_kernel *kernel) {
    uint32_t slot = tvm_abi_map_slot(kernel, map);
    bool named = map->element < TVM_ABI_ELEMENTS && map->swizzle < TVM_ABI_SWIZZLES && map->is_written <= 1 &&
                 (map->promotion <= 2 || map->promotion == 4);
    if (slot == TVM_NONE || !named || map->rank == 0 || map->rank > TVM_ABI_TENSOR_MAP_RANK) return false;
    if (map->row >= (kernel->slots[slot].form == TVM_FORM_STRIDED ? map->rank : 1)) return false;
    unsigned bytes = tvm_abi_element_bytes(map->element), row = map->box[tvm_abi_map_dim(map, 0)] * bytes;
    if (map->rank != kernel->slots[slot].rank ||
        tvm_abi_element_bits(map->element) % kernel->slots[slot].dtype.bits != 0)
        return false;
    if (tvm_abi_element_spreads(map->element) && !spread_fits(map, kernel->slots[slot].dtype.bits, row))
        return false;
    for (unsigned d = 0; d < TVM_ABI_TENSOR_MAP_RANK; d++)
        if (d < map->rank ? map->box[d] == 0 || map->box[d] > TVM_ABI_BOX_EXTENT : map->box[d] != 0)
            return false;
    return row % TVM_ABI_BOX_GRANULE == 0 && (!map->swizzle || row <= 16U << map->swizzle);
}

/* Would a launch find what the row asks for? */
static bool row_fits(const tvm_kernel_abi *abi, const tvm_abi_param *param, const tvm_ir_kernel *kernel) {
    tvm_launch_tensor tensors[TVM_MAX_LAUNCH_TENSORS];
    bool clean = param->kind == TVM_ABI_SCRATCH_CLEAN;
    switch ((tvm_abi_kind)param->kind) {
    case TVM_ABI_INTEGER:
    case TVM_ABI_FLOAT:
    case TVM_ABI_TENSOR: {
        if (param->index >= kernel->param_count) return false;
        tvm_abi_param declared = tvm_abi_declared(kernel, param->index);
        return param->kind == declared.kind && param->width == declared.width;
    }
    case TVM_ABI_TENSOR_MAP:
        return map_fits(&abi->maps[param->index], kernel);
    case TVM_ABI_SCRATCH:
    case TVM_ABI_SCRATCH_CLEAN:
        return param->width == 8 && param->index < tvm_launch_tensors(kernel, tensors) &&
               tensors[param->index].clean == clean;
    case TVM_ABI_MULTIPROCESSORS:
    case TVM_ABI_TARGET:
    case TVM_ABI_TURNS:
        return param->width == 4 && param->index == 0;
    case TVM_ABI_CAPABILITY:
        return param->width == 4 && param->index < TVM_CAPABILITY_COUNT;
    case TVM_ABI_LIMIT:
        return param->width == 4 && param->index < TVM_LIMIT_COUNT;
    default:
        return false;
    }
}

/* The kernel's warps, and those that the code generator adds: a producer's, or its whole warpgroup's. */
static bool are_threads(uint32_t threads, const tvm_ir_kernel *kernel) {
    uint32_t more = threads - 32 * kernel->warps;
    return threads <= TVM_MAX_THREADS && (more == 0 || more == 32 || more == 128);
}

static bool fits(const tvm_kernel_abi *abi, const tvm_ir_kernel *kernel, unsigned arch,
                 const tvm_target_traits *traits) {
    bool is_for = tvm_kernel_is_for(kernel, arch, traits);
    if (abi->absence >= TVM_ABI_ABSENCES || (abi->absence == TVM_ABI_OTHER_TARGET) == is_for) return false;
    if (abi->absence != TVM_ABI_PRESENT) return abi->threads == 0 && abi->param_count == 0;
    if (!are_threads(abi->threads, kernel) || abi->shared_bytes > TVM_MAX_SHARED_BYTES ||
        abi->flags & ~(uint32_t)TVM_ABI_FLAGS)
        return false;
    for (unsigned d = 0; d < 3; d++)
        if (abi->cluster[d] != kernel->cluster[d]) return false;
    for (uint32_t i = 0; i < abi->param_count; i++)
        if (!row_fits(abi, &abi->params[i], kernel)) return false;
    return true;
}

tvm_status tvm_abi_decode(const uint32_t *words, size_t count, const tvm_ir_program *program, unsigned arch,
                          const tvm_target_traits *traits, tvm_kernel_abi **abis) {
    const uint32_t *at = words + 1, *end = words + count;
    tvm_kernel_abi one, *read = NULL;
    if (abis) *abis = NULL;
    if (count == 0 || words[0] != TVM_ABI_ENCODING) return TVM_FORMAT;
    if (abis) read = calloc(program->kernel_count + (size_t)1, sizeof *read);
    if (abis && !read) return TVM_NO_MEMORY;
    bool good = true;
    for (uint32_t k = 0; good && k < program->kernel_count; k++) {
        tvm_kernel_abi *abi = read ? &read[k] : &one;
        good = decode(&at, end, abi) && fits(abi, &program->kernels[k], arch, traits);
    }
    if (good && at == end) {
        if (abis) *abis = read;
        return TVM_OK;
    }
    free(read);
    return TVM_FORMAT;
}
