#include "tensor.h"
#include "text.h"

#include <inttypes.h>
#include <string.h>

/* ---- types ---- */

/* A row a type that DLPack has a code of its own for. */
static const struct {
    tvm_dtype type;
    uint8_t code;
} own_codes[] = {
    {{TVM_KIND_BOOL, 8, 0, 0}, TVM_TENSOR_BOOL},     {{TVM_KIND_FLOAT, 16, 5, 10}, TVM_TENSOR_FLOAT},
    {{TVM_KIND_FLOAT, 16, 8, 7}, TVM_TENSOR_BFLOAT}, {{TVM_KIND_FLOAT, 32, 8, 10}, TVM_TENSOR_FLOAT},
    {{TVM_KIND_FLOAT, 32, 8, 23}, TVM_TENSOR_FLOAT}, {{TVM_KIND_FLOAT, 64, 11, 52}, TVM_TENSOR_FLOAT},
    {{TVM_KIND_FLOAT, 8, 4, 3}, TVM_TENSOR_F8_E4M3}, {{TVM_KIND_FLOAT, 8, 5, 2}, TVM_TENSOR_F8_E5M2},
    {{TVM_KIND_FLOAT, 6, 2, 3}, TVM_TENSOR_F6_E2M3}, {{TVM_KIND_FLOAT, 6, 3, 2}, TVM_TENSOR_F6_E3M2},
    {{TVM_KIND_FLOAT, 4, 2, 1}, TVM_TENSOR_F4_E2M1}, {{TVM_KIND_FLOAT, 8, 8, 0}, TVM_TENSOR_E8M0},
};

static bool same_type(tvm_dtype type, unsigned code, unsigned bits) {
    if (bits != type.bits) return false;
    if (type.kind == TVM_KIND_INT) return code == TVM_TENSOR_INT;
    if (type.kind == TVM_KIND_UINT) return code == TVM_TENSOR_UINT;
    for (size_t i = 0; i < sizeof own_codes / sizeof *own_codes; i++)
        if (tvm_dtype_same(own_codes[i].type, type)) return code == own_codes[i].code;
    return false;
}

/* Low-precision types and e8m0 may also be held as the bytes of their bit string. */
static bool holds(tvm_dtype type, unsigned code, unsigned bits) {
    bool bytes = tvm_dtype_is_lowbit(type) || tvm_dtype_same(type, TVM_E8M0);
    return same_type(type, code, bits) || (bytes && code == TVM_TENSOR_UINT && bits == 8);
}

tvm_tensor_dtype tvm_tensor_type(tvm_dtype type) {
    unsigned code = type.kind == TVM_KIND_INT ? TVM_TENSOR_INT : TVM_TENSOR_UINT;
    if (type.bits < 8) return (tvm_tensor_dtype){TVM_TENSOR_UINT, 8, 1};
    for (size_t i = 0; i < sizeof own_codes / sizeof *own_codes; i++)
        if (tvm_dtype_same(own_codes[i].type, type)) code = own_codes[i].code;
    return (tvm_tensor_dtype){(uint8_t)code, type.bits, 1};
}

/* ---- texts ---- */

static void add_shape(tvm_text *to, const int64_t *shape, unsigned rank) {
    tvm_text_add(to, "[");
    for (unsigned d = 0; d < rank; d++) tvm_text_add(to, "%s%" PRId64, d ? ", " : "", shape[d]);
    tvm_text_add(to, "]");
}

static const char *code_name(unsigned code) {
    switch (code) {
    case TVM_TENSOR_INT:
        return "int";
    case TVM_TENSOR_UINT:
        return "uint";
    case TVM_TENSOR_FLOAT:
        return "float";
    case TVM_TENSOR_BFLOAT:
        return "bfloat";
    case TVM_TENSOR_BOOL:
        return "bool";
    case TVM_TENSOR_F8_E4M3:
        return "float8_e4m3fn";
    case TVM_TENSOR_F8_E5M2:
        return "float8_e5m2";
    case TVM_TENSOR_E8M0:
        return "float8_e8m0fnu";
    case TVM_TENSOR_F6_E2M3:
        return "float6_e2m3fn";
    case TVM_TENSOR_F6_E3M2:
        return "float6_e3m2fn";
    case TVM_TENSOR_F4_E2M1:
        return "float4_e2m1fn";
    default:
        return NULL;
    }
}

/* "uint8[64, 48]", "uint4x2[64, 64]" */
static tvm_text tensor_text(const tvm_tensor *tensor) {
    tvm_text t = {0};
    const char *name = code_name(tensor->dtype.code);
    if (name && tensor->dtype.code > TVM_TENSOR_BOOL)
        tvm_text_add(&t, "%s", name);
    else if (name)
        tvm_text_add(&t, "%s%u", name, tensor->dtype.bits);
    else
        tvm_text_add(&t, "type code %u, bits %u", tensor->dtype.code, tensor->dtype.bits);
    if (tensor->dtype.lanes != 1) tvm_text_add(&t, "x%u", tensor->dtype.lanes);
    if (tensor->ndim < 0 || tensor->ndim > TVM_MAX_RANK)
        tvm_text_add(&t, " of rank %" PRId32, tensor->ndim);
    else if (tensor->ndim && !tensor->shape)
        tvm_text_add(&t, " of rank %" PRId32 " without a shape", tensor->ndim);
    else
        add_shape(&t, tensor->shape, (unsigned)tensor->ndim);
    return t;
}

/* "u3[64, 128]" with, where there is one, " or uint8[64, 48]" */
static tvm_text declared_text(const tvm_kernel *function, uint32_t param, const int64_t *shape) {
    const tvm_slot *slot = &function->kernel->slots[param];
    tvm_text t = {0};
    tvm_text_add(&t, "%s", function->type_names[param]);
    add_shape(&t, shape, slot->rank);
    if (!tvm_dtype_is_lowbit(slot->dtype) || !slot->rank || tvm_dtype_same(slot->dtype, TVM_U(8))) return t;
    int64_t bytes[TVM_MAX_RANK];
    memcpy(bytes, shape, slot->rank * sizeof *shape);
    bytes[slot->rank - 1] = bytes[slot->rank - 1] * slot->dtype.bits / 8;
    tvm_text_add(&t, " or uint8");
    add_shape(&t, bytes, slot->rank);
    return t;
}

static const char *device_text(int32_t type, int32_t id, char out[32]) {
    switch (type) {
    case TVM_TENSOR_CPU:
        return "the CPU";
    case TVM_TENSOR_CUDA:
        snprintf(out, 32, "cuda:%" PRId32, id);
        return out;
    case TVM_TENSOR_CUDA_HOST:
        return "the CPU (pinned)";
    case TVM_TENSOR_CUDA_MANAGED:
        return "the CPU and GPUs (managed)";
    default:
        snprintf(out, 32, "a device of type %" PRId32, type);
        return out;
    }
}

/* ---- checks ---- */

/* The last extent counts in bits, of all lanes. */
static bool has_shape(const tvm_tensor *tensor, const tvm_slot *slot, const int64_t *shape) {
    uint64_t found_bits = (uint64_t)tensor->dtype.bits * tensor->dtype.lanes;
    if (tensor->ndim != slot->rank || (slot->rank && !tensor->shape)) return false;
    if (!slot->rank) return found_bits == slot->dtype.bits;
    unsigned last = slot->rank - 1u;
    for (unsigned d = 0; d < last; d++)
        if (tensor->shape[d] != shape[d]) return false;
    uint64_t bits;
    return tensor->shape[last] >= 0 && found_bits &&
           !__builtin_mul_overflow((uint64_t)tensor->shape[last], found_bits, &bits) &&
           bits == (uint64_t)shape[last] * slot->dtype.bits;
}

/* One dimension with all elements, which says nothing of their order: that of what a program lays out itself,
 * which the variants of an entry may declare differently. */
static bool is_flat(const tvm_tensor *tensor, const tvm_slot *slot, const int64_t *shape) {
    uint64_t found, bits = slot->dtype.bits;
    if (tensor->ndim != 1 || !tensor->shape || tensor->shape[0] < 0 || slot->rank < 2) return false;
    for (unsigned d = 0; d < slot->rank; d++)
        if (__builtin_mul_overflow(bits, (uint64_t)shape[d], &bits)) return false;
    return !__builtin_mul_overflow((uint64_t)tensor->shape[0],
                                   (uint64_t)tensor->dtype.bits * tensor->dtype.lanes, &found) &&
           found == bits;
}

static bool on_device(const tvm_context *context, int32_t type, int32_t id) {
    if (context->ops->kind == TVM_DEVICE_CPU)
        return type == TVM_TENSOR_CPU || type == TVM_TENSOR_CUDA_HOST || type == TVM_TENSOR_CUDA_MANAGED;
    return type == TVM_TENSOR_CUDA_MANAGED ||
           (type == TVM_TENSOR_CUDA && id == context->ops->ordinal(context->device));
}

static tvm_status check_device(const tvm_kernel *function, const char *name, const tvm_tensor *tensor,
                               tvm_diags *diags) {
    const tvm_context *context = function->code->context;
    int32_t type = (int32_t)tensor->device.device_type, id = tensor->device.device_id;
    char found[32], expected[32];
    if (on_device(context, type, id)) return TVM_OK;
    bool cpu = context->ops->kind == TVM_DEVICE_CPU;
    return tvm_diag_add(diags, TVM_ARGUMENT, NULL, NULL,
                        "kernel '%s': tensor '%s' is to be on %s, but is on %s", tvm_kernel_name(function),
                        name,
                        device_text(cpu ? TVM_TENSOR_CPU : TVM_TENSOR_CUDA,
                                    (int32_t)context->ops->ordinal(context->device), expected),
                        device_text(type, id, found));
}

/* Strides of extents of 1 say nothing, and none do when there is no element. declared: the parameter's, or
 * NULL. What is left out is row-major. */
static tvm_status check_strides(const tvm_kernel *function, const char *name, const tvm_tensor *tensor,
                                const int64_t *declared, tvm_diags *diags) {
    int64_t contiguous = 1;
    for (int32_t d = 0; d < tensor->ndim; d++)
        if (!tensor->shape[d]) return TVM_OK;
    for (int32_t d = tensor->ndim; d-- > 0;) {
        int64_t expected = declared ? declared[d] : contiguous;
        int64_t found = tensor->strides ? tensor->strides[d] : contiguous;
        if (tensor->shape[d] != 1 && found != expected)
            return tvm_diag_add(diags, TVM_ARGUMENT, NULL, NULL,
                                "kernel '%s': tensor '%s' is to be %s: stride %" PRId32 " is to be %" PRId64
                                ", but is %" PRId64,
                                tvm_kernel_name(function), name,
                                declared ? "laid out as its parameter says" : "contiguous", d, expected,
                                found);
        contiguous *= tensor->shape[d]; /* bounded: the shape is the declared one */
    }
    return TVM_OK;
}

tvm_status tvm_tensor_check(const tvm_kernel *function, uint32_t param, const int64_t shape[TVM_MAX_RANK],
                            const int64_t *stride, const tvm_tensor *tensor, tvm_diags *diags) {
    const tvm_slot *slot = &function->kernel->slots[param];
    const char *name = tvm_string(function->code->program, slot->name);
    bool flat = !stride && is_flat(tensor, slot, shape);
    if (!holds(slot->dtype, tensor->dtype.code, tensor->dtype.bits) ||
        (!flat && !has_shape(tensor, slot, shape))) {
        tvm_text expected = declared_text(function, param, shape), found = tensor_text(tensor);
        tvm_diag_add(diags, TVM_ARGUMENT, NULL, NULL, "kernel '%s': tensor '%s' is to be %s, but is %s",
                     tvm_kernel_name(function), name, tvm_text_string(&expected), tvm_text_string(&found));
        tvm_text_free(&expected);
        tvm_text_free(&found);
        return TVM_ARGUMENT;
    }
    tvm_status status = check_strides(function, name, tensor, stride, diags);
    return status ? status : check_device(function, name, tensor, diags);
}
