/* The parameters of a launch, put where the kernel's ABI has them. Tensor maps are those of ptx_bulk.h. */
#ifndef TVM_TESTS_ABI_KIT_H
#define TVM_TESTS_ABI_KIT_H

#include "check_kit.h"

#include "abi.h"
#include "launch.h"
#include "ptx_bulk.h"

/* The maps of a launch: `places` as rows of the ABI have them, the tensors by the numbers of their slots. */
static inline void abi_maps(const tvm_kernel_abi *abi, const tvm_ir_program *program,
                            const tvm_ir_kernel *kernel, const tvm_launch_env *env, const uint64_t *values,
                            const uint64_t *tensors, ptx_tensor_map maps[TVM_ABI_TENSOR_MAPS]) {
    static const char *const types[TVM_ABI_ELEMENTS] = {
        [TVM_ABI_BITS8] = "none", [TVM_ABI_BITS16] = "none",  [TVM_ABI_BITS32] = "u32",
        [TVM_ABI_BITS64] = "u64", [TVM_ABI_I32] = "s32",      [TVM_ABI_I64] = "s64",
        [TVM_ABI_F16] = "f16",    [TVM_ABI_BF16] = "bf16",    [TVM_ABI_F32] = "f32",
        [TVM_ABI_F64] = "f64",    [TVM_ABI_SPREAD4] = "none", [TVM_ABI_SPREAD6] = "none"};
    for (uint32_t i = 0; i < abi->map_count; i++) {
        const tvm_abi_map *map = &abi->maps[i];
        uint32_t slot = tvm_abi_map_slot(kernel, map), bytes = tvm_abi_element_bytes(map->element);
        int64_t shape[TVM_MAX_RANK];
        uint64_t size, place = map->tensor < kernel->param_count ? values[map->tensor]
                                                                 : tensors[map->tensor - kernel->param_count];
        ck_assert_int_eq(tvm_launch_shape(program, kernel, slot, env, shape, &size, NULL), TVM_OK);
        maps[i] = (ptx_tensor_map){
            .address = (uint8_t *)(uintptr_t)place,
            .rank = map->rank,
            .element_bytes = bytes,
            .spread = tvm_abi_element_spreads(map->element) ? tvm_abi_element_bits(map->element) : 0,
            .type = types[map->element],
            .span = map->swizzle ? 16U << map->swizzle : 0};
        int64_t strides[TVM_MAX_RANK];
        ck_assert_int_eq(tvm_launch_strides(program, kernel, slot, env, strides, NULL), TVM_OK);
        for (unsigned d = 0; d < map->rank; d++) {
            maps[i].extents[d] = (uint64_t)shape[d];
            maps[i].box[d] = map->box[d];
            maps[i].order[d] = tvm_abi_map_dim(map, d);
        }
        unsigned row = maps[i].order[0], bits = kernel->slots[slot].dtype.bits;
        for (unsigned d = 0; d < map->rank; d++) {
            maps[i].strides[d] = (uint64_t)strides[d] * bits / 8;
            if (d != row) ck_assert_uint_eq(maps[i].strides[d] % 16, 0);
        }
        ck_assert_int_eq(strides[row], 1);
        if (maps[i].spread) { /* "cuTensorMapEncodeTiled" on the types 16U4_ALIGN16B and 16U6_ALIGN16B */
            ck_assert_uint_eq(maps[i].spread, bits);
            ck_assert(maps[i].box[row] == 128 && shape[row] % 128 == 0 && place % 32 == 0);
            for (unsigned d = 0; d < map->rank; d++)
                if (d != row) ck_assert_uint_eq(maps[i].strides[d] % 32, 0);
            continue; /* extents are elements, of rows too */
        }
        ck_assert_uint_eq((uint64_t)shape[row] * bits / 8 % bytes, 0);
        maps[i].extents[row] = (uint64_t)shape[row] * bits / 8 / bytes;
        maps[i].strides[row] = bytes;
    }
}

/* rows[i] = what row i of the ABI asks for: values[p] are the bits of parameter p, or the address of its
 * data, tensors[i] the address of tensor i of the launch, maps (NULL: there are none) those of abi_maps. */
static inline void abi_set(const tvm_kernel_abi *abi, const uint64_t *values, const uint64_t *tensors,
                           const tvm_launch_env *env, const ptx_tensor_map *maps, uint64_t *rows,
                           size_t room) {
    ck_assert_uint_le(abi->param_count, room);
    for (uint32_t i = 0; i < abi->param_count; i++) {
        const tvm_abi_param *param = &abi->params[i];
        switch ((tvm_abi_kind)param->kind) {
        case TVM_ABI_INTEGER:
        case TVM_ABI_FLOAT:
        case TVM_ABI_TENSOR:
            rows[i] = values[param->index];
            break;
        case TVM_ABI_SCRATCH:
        case TVM_ABI_SCRATCH_CLEAN:
            rows[i] = tensors[param->index];
            break;
        case TVM_ABI_TENSOR_MAP:
            ck_assert_ptr_nonnull(maps);
            rows[i] = (uint64_t)(uintptr_t)&maps[param->index];
            break;
        case TVM_ABI_MULTIPROCESSORS:
            rows[i] = env->multiprocessors;
            break;
        case TVM_ABI_TARGET:
            rows[i] = env->target;
            break;
        case TVM_ABI_CAPABILITY:
            rows[i] = tvm_traits_have(env->traits, param->index);
            break;
        case TVM_ABI_LIMIT:
            rows[i] = (uint32_t)tvm_traits_limit(env->traits, param->index);
            break;
        case TVM_ABI_TURNS:
            rows[i] = UINT32_MAX;
            break;
        default:
            ck_abort_msg("row %u of the ABI is of a kind that no test knows", i);
        }
    }
}

#endif
