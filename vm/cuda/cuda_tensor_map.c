/* Tensor maps by cuTensorMapEncodeTiled (CUDA Driver API, "Tensor Map Object Management", for the rules that
 * are checked here), and those that launches asked for last. */
#include "config.h"
#ifdef HAVE_CUDA_H

#include "cuda_tensor_map.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "numbers.h"
#include "tensor_memory.h"

enum {
    RANK = TVM_ABI_TENSOR_MAP_RANK,
    KEPT = 64, /* of each map; a power of two */
    MAP_WORDS = TVM_ABI_TENSOR_MAP_BYTES / 8,
    NOWHERE_BYTES = 256
};

/* Coordinates are 32 bits wide, signed; those of a box that begins inside stay so. */
#define EXTENT_MAX (INT32_MAX - TVM_ABI_BOX_EXTENT)
#define STRIDE_MAX ((UINT64_C(1) << 40) - TVM_ABI_BOX_GRANULE)

/* What a map depends on beside the ABI. */
typedef struct map_key {
    uint64_t address;
    uint64_t extents[RANK], strides[RANK]; /* of the tensor, in its own elements */
} map_key;
enum { KEY_WORDS = sizeof(map_key) / 8 };

/* One that is kept. Readers take what they find if the version, which is odd while someone writes, is the
 * same after as before; 0: nothing yet. */
typedef struct kept_map {
    atomic_uint version;
    atomic_uint_least64_t key[KEY_WORDS];
    atomic_uint_least64_t map[MAP_WORDS];
} kept_map;

struct cuda_tensor_maps {
    cuda_device *device;
    const tvm_ir_program *program;
    const tvm_ir_kernel *kernel;
    uint32_t count;
    tvm_abi_map maps[TVM_ABI_TENSOR_MAPS];
    CUdeviceptr nowhere; /* what stands for tensors without elements: zeros, then what is written to them */
    kept_map kept[];     /* KEPT of each map */
};

#if CUDA_VERSION >= 12000

/* ---- opening ---- */

static tvm_status make_nowhere(cuda_tensor_maps *made, tvm_diags *diags) {
    static const uint8_t zeros[NOWHERE_BYTES];
    cuda_device *device = made->device;
    CUresult result = device->driver.memory_alloc(&made->nowhere, sizeof zeros);
    if (result) return tvm_cuda_result(device, result, "cuMemAlloc", diags);
    result = device->driver.memory_write(made->nowhere, zeros, sizeof zeros);
    return tvm_cuda_result(device, result, "cuMemcpyHtoD", diags);
}

tvm_status tvm_cuda_tensor_maps_open(cuda_device *device, const tvm_ir_program *program,
                                     const tvm_ir_kernel *kernel, const tvm_kernel_abi *abi,
                                     cuda_tensor_maps **maps, tvm_diags *diags) {
    *maps = NULL;
    if (!abi->map_count) return TVM_OK;
    if (!device->driver.tensor_map_encode)
        return tvm_diag_add(diags, TVM_UNSUPPORTED, NULL, "a driver for CUDA 12.0 or newer is needed",
                            "kernel '%s': the CUDA driver lacks cuTensorMapEncodeTiled",
                            tvm_string(program, kernel->name));
    cuda_tensor_maps *made = calloc(1, sizeof *made + abi->map_count * sizeof(kept_map[KEPT]));
    if (!made) return tvm_diag_no_memory(diags);
    made->device = device;
    made->program = program;
    made->kernel = kernel;
    made->count = abi->map_count;
    memcpy(made->maps, abi->maps, sizeof made->maps);
    tvm_status status = make_nowhere(made, diags);
    if (!status) {
        *maps = made;
        return TVM_OK;
    }
    tvm_cuda_tensor_maps_close(device, made);
    return status;
}

void tvm_cuda_tensor_maps_close(cuda_device *device, cuda_tensor_maps *maps) {
    if (maps && maps->nowhere) device->driver.memory_free(maps->nowhere);
    free(maps);
}

/* ---- making ---- */

/* CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN16B and 16U6_ALIGN16B, which a cuda.h older than CUDA 12.8 lacks. */
#define SPREAD4 ((CUtensorMapDataType)14)
#define SPREAD6 ((CUtensorMapDataType)15)

static const CUtensorMapDataType data_types[TVM_ABI_ELEMENTS] = {
    [TVM_ABI_BITS8] = CU_TENSOR_MAP_DATA_TYPE_UINT8,
    [TVM_ABI_BITS16] = CU_TENSOR_MAP_DATA_TYPE_UINT16,
    [TVM_ABI_BITS32] = CU_TENSOR_MAP_DATA_TYPE_UINT32,
    [TVM_ABI_BITS64] = CU_TENSOR_MAP_DATA_TYPE_UINT64,
    [TVM_ABI_I32] = CU_TENSOR_MAP_DATA_TYPE_INT32,
    [TVM_ABI_I64] = CU_TENSOR_MAP_DATA_TYPE_INT64,
    [TVM_ABI_F16] = CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
    [TVM_ABI_BF16] = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
    [TVM_ABI_F32] = CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
    [TVM_ABI_F64] = CU_TENSOR_MAP_DATA_TYPE_FLOAT64,
    [TVM_ABI_SPREAD4] = SPREAD4,
    [TVM_ABI_SPREAD6] = SPREAD6};

static const CUtensorMapSwizzle swizzles[TVM_ABI_SWIZZLES] = {
    [TVM_ABI_SWIZZLE_NONE] = CU_TENSOR_MAP_SWIZZLE_NONE,
    [TVM_ABI_SWIZZLE_32] = CU_TENSOR_MAP_SWIZZLE_32B,
    [TVM_ABI_SWIZZLE_64] = CU_TENSOR_MAP_SWIZZLE_64B,
    [TVM_ABI_SWIZZLE_128] = CU_TENSOR_MAP_SWIZZLE_128B};

static CUtensorMapL2promotion promotion_of(const tvm_abi_map *map) {
    return map->promotion == 4   ? CU_TENSOR_MAP_L2_PROMOTION_L2_256B
           : map->promotion == 2 ? CU_TENSOR_MAP_L2_PROMOTION_L2_128B
           : map->promotion == 1 ? CU_TENSOR_MAP_L2_PROMOTION_L2_64B
                                 : CU_TENSOR_MAP_L2_PROMOTION_NONE;
}

/* A tensor in the driver's words: the innermost dimension first, in elements of the map. */
typedef struct encoding {
    cuuint64_t extents[RANK], strides[RANK]; /* strides in bytes, of dimension 1 on, from strides[0] */
    cuuint32_t box[RANK], steps[RANK];
    uint64_t address;
} encoding;

static tvm_status refuse(const cuda_tensor_maps *maps, uint32_t slot, const char *rule, uint64_t value,
                         tvm_diags *diags) {
    return tvm_diag_add(diags, TVM_ARGUMENT, NULL, NULL,
                        "kernel '%s' copies tensor '%s' by a tensor map: %s, not %" PRIu64,
                        tvm_string(maps->program, maps->kernel->name),
                        tvm_string(maps->program, maps->kernel->slots[slot].name), rule, value);
}

/* A tensor without elements: everything that is read is outside, as are the coordinates from 1 on of one with
 * a single element; that one is zero. */
static void encode_nothing(const cuda_tensor_maps *maps, const tvm_abi_map *map, encoding *out) {
    for (unsigned d = 0; d < map->rank; d++) {
        out->extents[d] = 1;
        out->strides[d] = TVM_ABI_SPREAD_GRANULE;
    }
    if (tvm_abi_element_spreads(map->element)) out->extents[0] = TVM_SPREAD_ROW;
    out->address = maps->nowhere + (map->is_written ? NOWHERE_BYTES / 2 : 0);
}

static tvm_status encode(const cuda_tensor_maps *maps, const tvm_abi_map *map, const map_key *key,
                         encoding *out, tvm_diags *diags) {
    uint32_t slot = tvm_abi_map_slot(maps->kernel, map);
    unsigned bits = maps->kernel->slots[slot].dtype.bits, of_map = tvm_abi_element_bits(map->element);
    bool empty = false, spreads = tvm_abi_element_spreads(map->element);
    unsigned granule = spreads ? TVM_ABI_SPREAD_GRANULE : TVM_ABI_BOX_GRANULE;
    *out = (encoding){.address = key->address};
    for (unsigned i = 0; i < map->rank; i++) {
        unsigned d = tvm_abi_map_dim(map, i);
        uint64_t stride = key->strides[d] * bits / 8; /* of rows that are whole bytes */
        out->box[i] = map->box[d];
        out->steps[i] = 1;
        out->extents[i] = key->extents[d];
        if (i == 0) {
            if (key->extents[d] * bits % of_map != 0)
                return refuse(maps, slot, "the bits of a row are whole elements of the map",
                              key->extents[d] * bits, diags);
            if (spreads && key->extents[d] % TVM_SPREAD_ROW != 0)
                return refuse(maps, slot, "a row is a multiple of 128 elements", key->extents[d], diags);
            out->extents[i] = key->extents[d] * bits / of_map;
            if (key->extents[d] > 1 && key->strides[d] != 1)
                return refuse(maps, slot, "the stride of a row's elements is 1", key->strides[d], diags);
        }
        empty = empty || key->extents[d] == 0;
        if (out->extents[i] > EXTENT_MAX)
            return refuse(maps, slot, "an extent is at most 2^31 - 257", out->extents[i], diags);
        if (i > 0 && !empty && (stride % granule != 0 || stride > STRIDE_MAX))
            return refuse(maps, slot,
                          spreads ? "the bytes of its rows are a multiple of 32 below 2^40"
                                  : "the bytes of its rows are a multiple of 16 below 2^40",
                          stride, diags);
        if (i > 0) out->strides[i - 1] = stride;
    }
    if (spreads && !empty && key->address % granule != 0)
        return refuse(maps, slot, "its address is a multiple of 32", key->address, diags);
    if (empty) encode_nothing(maps, map, out);
    return TVM_OK;
}

static tvm_status make(const cuda_tensor_maps *maps, const tvm_abi_map *map, const map_key *key,
                       CUtensorMap *out, tvm_diags *diags) {
    encoding e;
    tvm_status status = encode(maps, map, key, &e, diags);
    if (status) return status;
    CUresult result = maps->device->driver.tensor_map_encode(
        out, data_types[map->element], map->rank, (void *)(uintptr_t)e.address, e.extents, e.strides, e.box,
        e.steps, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzles[map->swizzle], promotion_of(map),
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return tvm_cuda_result(maps->device, result, "cuTensorMapEncodeTiled", diags);
}

/* ---- keeping ---- */

static kept_map *place_of(cuda_tensor_maps *maps, uint32_t map, const map_key *key) {
    uint64_t mixed = key->address >> 4;
    for (unsigned d = 0; d < RANK; d++) mixed = (mixed * 31 + key->extents[d]) * 31 + key->strides[d];
    return &maps->kept[map * KEPT + (mixed * UINT64_C(0x9e3779b97f4a7c15) >> (64 - 6))];
}
_Static_assert(KEPT == 1 << 6, "the hash has six bits");
_Static_assert(sizeof(map_key) <= TVM_ABI_TENSOR_MAP_BYTES, "words for a map are enough for a key");

static void load_words(const atomic_uint_least64_t *from, uint64_t *to, unsigned count) {
    for (unsigned i = 0; i < count; i++) to[i] = atomic_load_explicit(&from[i], memory_order_acquire);
}

static void store_words(atomic_uint_least64_t *to, const uint64_t *from, unsigned count) {
    for (unsigned i = 0; i < count; i++) atomic_store_explicit(&to[i], from[i], memory_order_release);
}

/* The loads between the two of the version are not moved past the second one, being acquiring ones. */
static bool find(const kept_map *kept, const map_key *key, void *out) {
    unsigned version = atomic_load_explicit(&kept->version, memory_order_acquire);
    uint64_t words[MAP_WORDS];
    if (version == 0 || version % 2) return false;
    load_words(kept->key, words, KEY_WORDS);
    if (memcmp(words, key, sizeof *key) != 0) return false;
    load_words(kept->map, words, MAP_WORDS);
    if (atomic_load_explicit(&kept->version, memory_order_relaxed) != version) return false;
    memcpy(out, words, TVM_ABI_TENSOR_MAP_BYTES);
    return true;
}

/* Unless someone else is about to. */
static void keep(kept_map *kept, const map_key *key, const CUtensorMap *made) {
    unsigned version = atomic_load_explicit(&kept->version, memory_order_relaxed);
    uint64_t words[MAP_WORDS];
    if (version % 2 || !atomic_compare_exchange_strong(&kept->version, &version, version + 1)) return;
    memcpy(words, key, sizeof *key);
    store_words(kept->key, words, KEY_WORDS);
    memcpy(words, made, sizeof words);
    store_words(kept->map, words, MAP_WORDS);
    atomic_store_explicit(&kept->version, version + 2 ? version + 2 : 2, memory_order_release);
}

static tvm_status find_key(const tvm_ir_kernel *kernel, const tvm_abi_map *map, uint64_t address,
                           const tvm_launch_shapes *shapes, map_key *key, tvm_diags *diags) {
    uint32_t slot = tvm_abi_map_slot(kernel, map);
    int64_t shape[TVM_MAX_RANK], stride[TVM_MAX_RANK];
    uint64_t bytes, step = 1;
    bool strided = kernel->slots[slot].form == TVM_FORM_STRIDED;
    *key = (map_key){.address = address};
    tvm_status status =
        map->view ? tvm_launch_shape(shapes->program, kernel, slot, &shapes->env, shape, &bytes, diags)
                  : tvm_launch_shapes_find(shapes, slot, shape, &bytes, diags);
    if (!status && strided)
        status = tvm_launch_strides(shapes->program, kernel, slot, &shapes->env, stride, diags);
    for (unsigned d = map->rank; d-- > 0 && !status;) {
        key->extents[d] = (uint64_t)shape[d];
        key->strides[d] = strided ? (uint64_t)stride[d] : step;
        step *= key->extents[d];
    }
    return status;
}

tvm_status tvm_cuda_tensor_map_get(cuda_tensor_maps *maps, uint32_t map, uint64_t address,
                                   const tvm_launch_shapes *shapes, void *out, tvm_diags *diags) {
    map_key key;
    CUtensorMap made;
    tvm_status status = find_key(maps->kernel, &maps->maps[map], address, shapes, &key, diags);
    if (status) return status;
    kept_map *kept = place_of(maps, map, &key);
    if (find(kept, &key, out)) return TVM_OK;
    status = make(maps, &maps->maps[map], &key, &made, diags);
    if (status) return status;
    memcpy(out, &made, TVM_ABI_TENSOR_MAP_BYTES);
    keep(kept, &key, &made);
    return TVM_OK;
}

#else /* a cuda.h that knows no tensor maps */

tvm_status tvm_cuda_tensor_maps_open(cuda_device *device, const tvm_ir_program *program,
                                     const tvm_ir_kernel *kernel, const tvm_kernel_abi *abi,
                                     cuda_tensor_maps **maps, tvm_diags *diags) {
    (void)device;
    *maps = NULL;
    if (!abi->map_count) return TVM_OK;
    return tvm_diag_add(diags, TVM_UNSUPPORTED, NULL, "build with the cuda.h of CUDA 12.0 or newer",
                        "kernel '%s': this build makes no tensor maps", tvm_string(program, kernel->name));
}

void tvm_cuda_tensor_maps_close(cuda_device *device, cuda_tensor_maps *maps) {
    (void)device, (void)maps;
}

tvm_status tvm_cuda_tensor_map_get(cuda_tensor_maps *maps, uint32_t map, uint64_t address,
                                   const tvm_launch_shapes *shapes, void *out, tvm_diags *diags) {
    (void)maps, (void)map, (void)address, (void)shapes, (void)out;
    return tvm_diag_add(diags, TVM_UNSUPPORTED, NULL, NULL, "this build makes no tensor maps");
}

#endif
#endif /* HAVE_CUDA_H */
