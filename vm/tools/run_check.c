#include "run_check.h"
#include "bind.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ALIGNMENT = 256, INDEX_TEXT = 24 * TVM_MAX_RANK };

/* ---- the library ---- */

/* A file of the current folder is meant before a library of that name in the linker's folders. */
static char *library_path(const char *name, size_t length) {
    char *path = NULL;
    if (asprintf(&path, "./%.*s", (int)length, name) < 0) return NULL;
    if (memchr(name, '/', length) || access(path, F_OK)) memmove(path, path + 2, length + 1);
    return path;
}

tvm_status tvm_run_check_open(const char *reference, tvm_run_check *check, tvm_diags *diags) {
    const char *colon = strrchr(reference, ':');
    if (!colon || colon == reference || !colon[1])
        return tvm_diag_add(diags, TVM_USAGE, NULL, NULL, "--check takes LIBRARY:FUNCTION, not '%.200s'",
                            reference);
    check->library = library_path(reference, (size_t)(colon - reference));
    if (!check->library) return tvm_diag_no_memory(diags);
    check->symbol = colon + 1;
    check->handle = dlopen(check->library, RTLD_NOW | RTLD_LOCAL);
    if (!check->handle) {
        const char *reason = dlerror();
        return tvm_diag_add(diags, TVM_NOT_FOUND, NULL, NULL, "the library '%s' cannot be opened: %s",
                            check->library, reason ? reason : "no reason given");
    }
    void *address = dlsym(check->handle, check->symbol);
    if (!address)
        return tvm_diag_add(diags, TVM_NOT_FOUND, NULL, NULL, "the library '%s' has no function '%s'",
                            check->library, check->symbol);
    check->function = (void (*)(void))(uintptr_t)address;
    return TVM_OK;
}

void tvm_run_check_close(tvm_run_check *check) {
    for (size_t i = 0; i < TVM_MAX_PARAMS; i++) free(check->data[i]);
    if (check->handle) dlclose(check->handle);
    free(check->library);
    *check = (tvm_run_check){0};
}

/* ---- the call ---- */

/* Tensor `index` of the device, in host memory. */
static tvm_status read_tensor(const tvm_run_binding *binding, size_t index, void **data, tvm_diags *diags) {
    size_t bytes = binding->params[index].bytes;
    *data = aligned_alloc(ALIGNMENT, (bytes / ALIGNMENT + 1) * ALIGNMENT);
    if (!*data) return tvm_diag_no_memory(diags);
    tvm_status status = tvm_memory_read(binding->context, *data, binding->values[index].data, bytes);
    return status ? tvm_diag_add(diags, status, NULL, NULL, "%s", tvm_message(binding->context)) : TVM_OK;
}

tvm_status tvm_run_check_copy(tvm_run_check *check, const tvm_run_binding *binding, tvm_diags *diags) {
    tvm_status status = TVM_OK;
    for (size_t i = 0; !status && i < binding->count; i++) {
        if (!binding->params[i].info.is_tensor) continue;
        check->bytes[i] = binding->params[i].bytes;
        status = read_tensor(binding, i, &check->data[i], diags);
    }
    return status;
}

typedef union argument {
    uint8_t truth;
    int32_t i32;
    int64_t i64;
    float f32;
    double f64;
    void *data;
} argument;

static argument argument_of(tvm_arg_kind kind, const tvm_value *value, void *data) {
    switch (kind) {
    case TVM_ARG_TENSOR:
        return (argument){.data = data};
    case TVM_ARG_BOOL:
        return (argument){.truth = value->i != 0};
    case TVM_ARG_I32:
    case TVM_ARG_U32:
        return (argument){.i32 = (int32_t)value->i};
    case TVM_ARG_F32:
        return (argument){.f32 = (float)value->f};
    case TVM_ARG_F64:
        return (argument){.f64 = value->f};
    default:
        return (argument){.i64 = value->i};
    }
}

/* Whatever the function returns is not looked at. */
static tvm_status call_reference(tvm_run_check *check, const tvm_run_binding *binding, tvm_diags *diags) {
    ffi_cif cif;
    ffi_type *types[TVM_MAX_PARAMS];
    argument arguments[TVM_MAX_PARAMS];
    void *addresses[TVM_MAX_PARAMS];
    for (size_t i = 0; i < binding->count; i++) {
        const tvm_run_param *param = &binding->params[i];
        const tvm_slot slot = {.kind = param->info.is_tensor ? TVM_SLOT_GLOBAL : TVM_SLOT_SCALAR,
                               .dtype = param->type};
        tvm_arg_kind kind = tvm_arg_kind_of(&slot);
        types[i] = tvm_ffi_type(kind);
        arguments[i] = argument_of(kind, &binding->values[i], check->data[i]);
        addresses[i] = &arguments[i];
    }
    if (ffi_prep_cif(&cif, FFI_DEFAULT_ABI, (unsigned)binding->count, &ffi_type_void, types) != FFI_OK)
        return tvm_diag_add(diags, TVM_UNSUPPORTED, NULL, NULL, "libffi cannot call '%s'", check->symbol);
    ffi_call(&cif, check->function, NULL, addresses);
    return TVM_OK;
}

/* ---- the comparison ---- */

typedef struct difference {
    uint64_t at;
    double error, found, reference;
} difference;

typedef struct comparison {
    difference absolute, relative; /* the largest; error 0: there is none */
    difference first;              /* that is not right */
    uint64_t unequal, wrong;
} comparison;

static double default_tolerance(tvm_dtype type) {
    return type.kind == TVM_KIND_FLOAT ? ldexp(2, -(int)type.mantissa) : 0;
}

/* Two NaNs agree, and so do equal infinities. */
static double error_of(double found, double reference) {
    if (isnan(found) || isnan(reference)) return isnan(found) && isnan(reference) ? 0 : INFINITY;
    return found == reference ? 0 : fabs(found - reference);
}

static void keep_larger(difference *largest, double error, difference d) {
    if (error <= largest->error) return;
    d.error = error;
    *largest = d;
}

/* The relative error is that of elements whose reference is not 0. */
static void compare(const tvm_run_param *param, const uint8_t *found, const uint8_t *reference,
                    double tolerance, comparison *c) {
    unsigned bits = param->type.bits;
    *c = (comparison){.wrong = 0};
    if (tolerance < 0) tolerance = default_tolerance(param->type);
    for (uint64_t e = 0; e < param->elements; e++) {
        uint64_t x = tvm_bits_get(found, e * bits, bits), r = tvm_bits_get(reference, e * bits, bits);
        if (x == r) continue;
        difference d = {
            .at = e, .found = tvm_decode(param->type, x), .reference = tvm_decode(param->type, r)};
        d.error = error_of(d.found, d.reference);
        if (!d.error && (d.found == d.reference) && param->type.kind != TVM_KIND_FLOAT)
            d.error = 1; /* integers beyond the doubles */
        if (!d.error) continue;
        c->unequal++;
        keep_larger(&c->absolute, d.error, d);
        if (d.reference != 0) keep_larger(&c->relative, d.error / fabs(d.reference), d);
        if (d.error <= tolerance * fmax(1, fabs(d.reference))) continue;
        if (!c->wrong++) c->first = d;
    }
}

/* "[3, 17]" */
static const char *index_text(const int64_t *shape, unsigned rank, uint64_t at, char text[INDEX_TEXT]) {
    uint64_t index[TVM_MAX_RANK];
    for (unsigned d = rank; d-- > 0; at /= (uint64_t)shape[d]) index[d] = at % (uint64_t)shape[d];
    int length = snprintf(text, INDEX_TEXT, "[");
    for (unsigned d = 0; d < rank; d++)
        length += snprintf(text + length, INDEX_TEXT - (size_t)length, "%s%" PRIu64, d ? ", " : "", index[d]);
    snprintf(text + length, INDEX_TEXT - (size_t)length, "]");
    return text;
}

static void report_tensor(FILE *report, const tvm_run_param *param, const int64_t *shape,
                          const comparison *c) {
    char at[INDEX_TEXT];
    unsigned rank = param->info.rank;
    fprintf(report,
            "%s: %" PRIu64 " of %" PRIu64 " elements differ; largest absolute error %.6g at %s: %.9g, "
            "reference %.9g",
            param->info.name, c->unequal, param->elements, c->absolute.error,
            index_text(shape, rank, c->absolute.at, at), c->absolute.found, c->absolute.reference);
    if (c->relative.error > 0)
        fprintf(report, "; largest relative error %.6g at %s: %.9g, reference %.9g", c->relative.error,
                index_text(shape, rank, c->relative.at, at), c->relative.found, c->relative.reference);
    fputc('\n', report);
}

static tvm_status refuse(const tvm_run_check *check, const tvm_run_param *param, const int64_t *shape,
                         const comparison *c, double tolerance, tvm_diags *diags) {
    char at[INDEX_TEXT];
    return tvm_diag_add(diags, TVM_INVALID, NULL, NULL,
                        "tensor '%s' differs from that of '%s' beyond the tolerance %g in %" PRIu64
                        " of %" PRIu64 " elements, first at %s: %.9g, reference %.9g",
                        param->info.name, check->symbol,
                        tolerance < 0 ? default_tolerance(param->type) : tolerance, c->wrong, param->elements,
                        index_text(shape, param->info.rank, c->first.at, at), c->first.found,
                        c->first.reference);
}

/* Brings a tensor with strides into the order in which it stands in a file; *data is malloc'ed. */
static tvm_status put_in_order(const tvm_run_param *param, const void *memory, void **data,
                               tvm_diags *diags) {
    int64_t step[TVM_MAX_RANK];
    *data = malloc(param->expected.bytes + 1);
    if (!*data) return tvm_diag_no_memory(diags);
    tvm_npy_steps(&param->expected, step);
    tvm_npy_arrange(&param->expected, step, *data, param->stride, memory);
    return TVM_OK;
}

static tvm_status compare_tensor(const tvm_run_check *check, const tvm_run_binding *binding, size_t index,
                                 double tolerance, FILE *report, bool *equal, tvm_diags *diags) {
    const tvm_run_param *param = &binding->params[index];
    int64_t shape[TVM_MAX_RANK];
    void *found = NULL, *ordered = NULL, *reference = NULL;
    comparison c;
    if (param->bytes != check->bytes[index])
        return tvm_diag_add(diags, TVM_INVALID, NULL, NULL, "tensor '%s' has %zu bytes, that of '%s' %zu",
                            param->info.name, param->bytes, check->symbol, check->bytes[index]);
    tvm_status status =
        tvm_param_shape(binding->function, index, binding->values, binding->count, shape, NULL);
    if (status) return tvm_diag_add(diags, status, NULL, NULL, "%s", tvm_message(binding->context));
    status = read_tensor(binding, index, &found, diags);
    if (!status && param->strided) status = put_in_order(param, found, &ordered, diags);
    if (!status && param->strided) status = put_in_order(param, check->data[index], &reference, diags);
    if (!status) {
        compare(param, ordered ? ordered : found, reference ? reference : check->data[index], tolerance, &c);
        *equal = *equal && !c.unequal;
        if (c.unequal && report) report_tensor(report, param, shape, &c);
        if (c.wrong) status = refuse(check, param, shape, &c, tolerance, diags);
    }
    free(found);
    free(ordered);
    free(reference);
    return status;
}

tvm_status tvm_run_check_against(const tvm_run_check *check, const tvm_run_binding *binding, double tolerance,
                                 FILE *report, tvm_diags *diags) {
    bool equal = true;
    tvm_status status = TVM_OK;
    for (size_t i = 0; i < binding->count; i++) {
        if (!binding->params[i].info.is_tensor || !check->data[i]) continue;
        tvm_status one = compare_tensor(check, binding, i, tolerance, report, &equal, diags);
        if (one) status = one;
    }
    if (!status && equal && report)
        fprintf(report, "%s: all tensors are equal to those of %s\n", tvm_kernel_name(binding->function),
                check->symbol);
    return status;
}

tvm_status tvm_run_check_compare(tvm_run_check *check, const tvm_run_binding *binding, double tolerance,
                                 FILE *report, tvm_diags *diags) {
    tvm_status status = call_reference(check, binding, diags);
    return status ? status : tvm_run_check_against(check, binding, tolerance, report, diags);
}
