#include "run_bind.h"
#include "expr_text.h"
#include "fileio.h"
#include "launch.h"
#include "runtime.h"
#include "safetensors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The reason of a call of tvm.h that failed, as a diagnostic. */
static tvm_status failed(const tvm_run_binding *binding, tvm_status status, tvm_diags *diags) {
    return status ? tvm_diag_add(diags, status, NULL, NULL, "%s", tvm_message(binding->context)) : TVM_OK;
}

char *tvm_run_signature(const tvm_kernel *function) {
    char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    if (!stream) return NULL;
    fprintf(stream, "%s(", tvm_kernel_name(function));
    for (size_t i = 0; i < tvm_param_count(function); i++) {
        tvm_param_info info;
        if (tvm_param(function, i, &info)) continue;
        fprintf(stream, "%s%s: %s%s", i ? ", " : "", info.name, info.is_tensor ? "global " : "", info.type);
        for (unsigned d = 0; d < info.rank; d++) fputs(d ? ", :" : "[:", stream);
        if (info.is_tensor) fputc(']', stream);
    }
    fputc(')', stream);
    if (!fclose(stream)) return text;
    free(text);
    return NULL;
}

/* ---- which argument is which parameter ---- */

static tvm_status unknown_argument(const tvm_run_binding *binding, const tvm_run_arg *arg, tvm_diags *diags) {
    char *signature = tvm_run_signature(binding->function);
    tvm_status status =
        tvm_diag_add(diags, TVM_ARGUMENT, NULL, NULL, "the kernel has no parameter '%s': it is %s", arg->name,
                     signature ? signature : tvm_kernel_name(binding->function));
    free(signature);
    return status;
}

static tvm_status match_names(tvm_run_binding *binding, const tvm_run_args *args, tvm_diags *diags) {
    tvm_status status = TVM_OK;
    for (size_t a = 0; a < args->count; a++) {
        size_t p = 0;
        while (p < binding->count && strcmp(binding->params[p].info.name, args->items[a].name)) p++;
        if (p < binding->count)
            binding->params[p].arg = &args->items[a];
        else
            status = unknown_argument(binding, &args->items[a], diags);
    }
    return status;
}

/* ---- files ---- */

/* What a tensor of an open .safetensors file holds, as if it stood in a .npy file. */
static tvm_status take_tensor(tvm_run_param *param, int descriptor, const char *path,
                              const tvm_safetensor *tensor, tvm_diags *diags) {
    char text[TVM_SAFETENSORS_TEXT_MAX];
    int64_t shape[TVM_MAX_RANK];
    bool fits = tensor->type.kind != TVM_KIND_NONE;
    for (unsigned d = 0; d < tensor->rank; d++) {
        fits = fits && tensor->shape[d] <= INT64_MAX;
        shape[d] = (int64_t)tensor->shape[d];
    }
    tvm_place place = {.file = path};
    if (!fits || !tvm_npy_of(tensor->type, tensor->rank, shape, &param->given))
        return tvm_diag_add(diags, TVM_UNSUPPORTED, &place, NULL,
                            "tensor '%.80s' is %s, which cannot be taken", tensor->name,
                            tvm_safetensor_text(tensor, text));
    param->stored_type = tensor->type;
    if (asprintf(&param->stored, "tensor '%.80s', %s", tensor->name, tvm_safetensor_text(tensor, text)) < 0) {
        param->stored = NULL;
        return tvm_diag_no_memory(diags);
    }
    param->file = malloc(tensor->bytes ? tensor->bytes : 1);
    if (!param->file) return tvm_diag_no_memory(diags);
    return tvm_read_at(descriptor, path, param->file, tensor->bytes, tensor->offset, diags);
}

static tvm_status read_tensor(tvm_run_param *param, const char *path, const char *name, tvm_diags *diags) {
    int descriptor;
    tvm_safetensors tensors;
    const tvm_safetensor *tensor;
    tvm_status status = tvm_file_open(path, &descriptor, diags);
    if (status) return status;
    status = tvm_safetensors_read(descriptor, path, &tensors, diags);
    if (!status) status = tvm_safetensors_need(&tensors, path, name, &tensor, diags);
    if (!status) status = take_tensor(param, descriptor, path, tensor, diags);
    tvm_safetensors_free(&tensors);
    close(descriptor);
    return status;
}

/* FILE.npy, or FILE:TENSOR where no file has the whole for its name. */
static tvm_status read_file(tvm_run_param *param, tvm_diags *diags) {
    size_t size;
    const char *path = param->arg->text, *colon = strchr(path, ':');
    if (colon && colon > path && colon[1] && access(path, F_OK)) {
        char *file = strndup(path, (size_t)(colon - path));
        tvm_status status = file ? read_tensor(param, file, colon + 1, diags) : tvm_diag_no_memory(diags);
        free(file);
        return status;
    }
    tvm_status status = tvm_file_read_extent(path, SIZE_MAX / 4, tvm_npy_extent, &param->file, &size, diags);
    return status ? status : tvm_npy_parse(param->file, size, path, &param->given, diags);
}

/* What is given: numbers of scalars, headers of files. */
static tvm_status read_given(tvm_run_binding *binding, tvm_diags *diags) {
    tvm_status status = TVM_OK;
    for (size_t i = 0; i < binding->count; i++) {
        tvm_run_param *param = &binding->params[i];
        tvm_status one = TVM_OK;
        if (!param->arg) continue;
        if (!param->info.is_tensor) {
            one = tvm_run_number(param->arg, param->type, &binding->values[i], diags);
            param->known = one == TVM_OK;
        } else if (param->arg->source == TVM_RUN_FILE) {
            one = read_file(param, diags);
        } else if (param->arg->source == TVM_RUN_TEXT) {
            one = tvm_diag_add(
                diags, TVM_ARGUMENT, NULL,
                "a tensor is @FILE.npy, @FILE:TENSOR, rand, rand:SEED, zeros, iota or out:FILE.npy",
                "argument '%s' takes a tensor of %s, not '%s'", param->info.name, param->info.type,
                param->arg->text);
        }
        if (one) status = one;
    }
    return status;
}

/* ---- scalars that follow from the shape of a file ---- */

/* The extent that dimension `dim` of the file gives the tensor; false when it is no whole number of elements.
 */
static bool file_extent(const tvm_run_param *param, unsigned dim, int64_t *extent) {
    uint64_t value = param->given.shape[dim];
    if (value > INT64_MAX / 8) return false;
    if (param->type.bits < 8 && dim + 1 == param->given.rank) {
        if (value * 8 % param->type.bits) return false;
        value = value * 8 / param->type.bits;
    }
    *extent = (int64_t)value;
    return true;
}

static tvm_status infer_scalar(tvm_run_binding *binding, uint32_t scalar, const tvm_run_param *tensor,
                               int64_t extent, tvm_diags *diags) {
    tvm_run_param *param = &binding->params[scalar];
    if (!param->known) {
        param->known = true;
        param->from = tensor->info.name;
        binding->values[scalar].i = extent;
        return TVM_OK;
    }
    if (!param->from || binding->values[scalar].i == extent)
        return TVM_OK; /* given ones are checked with the shapes */
    return tvm_diag_add(diags, TVM_ARGUMENT, NULL, NULL,
                        "parameter '%s' is not given, and the files disagree: '%s' makes it %" PRId64
                        ", '%s' makes it %" PRId64,
                        param->info.name, param->from, binding->values[scalar].i, tensor->info.name, extent);
}

/* Of an entry those of its first variant: which one runs depends on what is looked for. */
static const tvm_ir_kernel *declared_shapes(const tvm_kernel *function) {
    const tvm_ir_entry *entry = function->entry;
    return entry ? &function->code->program->kernels[entry->cases[0].kernel] : function->kernel;
}

/* "f32[m, n]", as the kernel declares it. */
static tvm_text declared_text(const tvm_run_binding *binding, size_t index) {
    const tvm_kernel *function = binding->function;
    const tvm_ir_kernel *kernel = declared_shapes(function);
    const tvm_slot *slot = &kernel->slots[index];
    tvm_text text = {0};
    tvm_text_add(&text, "%s[", binding->params[index].info.type);
    for (unsigned d = 0; d < slot->rank; d++) {
        if (d) tvm_text_puts(&text, ", ");
        tvm_print_expr(&text, function->code->program, kernel, slot->shape[d], false);
    }
    tvm_text_puts(&text, "]");
    return text;
}

static tvm_status check_rank(const tvm_run_binding *binding, size_t index, tvm_diags *diags) {
    const tvm_run_param *param = &binding->params[index];
    const tvm_place place = {.file = param->arg->text};
    char given[TVM_NPY_TEXT_MAX];
    if (param->given.rank == param->info.rank) return TVM_OK;
    tvm_text declared = declared_text(binding, index);
    tvm_status status = tvm_diag_add(
        diags, TVM_ARGUMENT, &place, NULL, "argument '%s' has %u dimension%s, %s, and the file %u: %s",
        param->info.name, param->info.rank, param->info.rank == 1 ? "" : "s", tvm_text_string(&declared),
        param->given.rank, param->stored ? param->stored : tvm_npy_text(&param->given, given));
    tvm_text_free(&declared);
    return status;
}

/* Takes the extents of a file for the scalar parameters that stand alone as a dimension of the tensor. */
static tvm_status infer_from(tvm_run_binding *binding, size_t index, tvm_diags *diags) {
    const tvm_run_param *tensor = &binding->params[index];
    const tvm_ir_kernel *kernel = declared_shapes(binding->function);
    const tvm_slot *slot = &kernel->slots[index];
    tvm_status status = check_rank(binding, index, diags);
    for (unsigned d = 0; !status && d < slot->rank; d++) {
        const tvm_expr *expr = &kernel->exprs[slot->shape[d]];
        while (expr->op == TVM_EXPR_CAST && tvm_dtype_is_integer(expr->type)) expr = &kernel->exprs[expr->a];
        int64_t extent;
        if (expr->op == TVM_EXPR_SLOT && tvm_dtype_is_integer(expr->type) && expr->a < binding->count &&
            file_extent(tensor, d, &extent))
            status = infer_scalar(binding, expr->a, tensor, extent, diags);
    }
    return status;
}

static tvm_status infer_scalars(tvm_run_binding *binding, tvm_diags *diags) {
    tvm_status status = TVM_OK;
    for (size_t i = 0; !status && i < binding->count; i++)
        if (binding->params[i].file) status = infer_from(binding, i, diags);
    if (status) return status;
    for (size_t i = 0; i < binding->count; i++) {
        const tvm_run_param *param = &binding->params[i];
        if (param->arg || param->known) continue;
        status = tvm_diag_add(diags, TVM_ARGUMENT, NULL, NULL,
                              "parameter '%s' of kernel '%s', a %s%s, is not given", param->info.name,
                              tvm_kernel_name(binding->function),
                              param->info.is_tensor ? "tensor of " : "number of type ", param->info.type);
    }
    return status;
}

/* ---- shapes ---- */

/* "[16, 64]" */
static const char *shape_text(unsigned rank, const int64_t *shape, char text[TVM_NPY_TEXT_MAX]) {
    int at = snprintf(text, TVM_NPY_TEXT_MAX, "[");
    for (unsigned i = 0; i < rank; i++)
        at += snprintf(text + at, (size_t)(TVM_NPY_TEXT_MAX - at), "%s%" PRId64, i ? ", " : "", shape[i]);
    snprintf(text + at, (size_t)(TVM_NPY_TEXT_MAX - at), "]");
    return text;
}

/* Types of .safetensors files say more than those of .npy files: bytes are a bit string, any other type is
 * itself. */
static bool tensor_fits(const tvm_run_param *param) {
    if (!tvm_npy_fits(&param->given, &param->expected, param->type)) return false;
    bool bytes = tvm_dtype_same(param->stored_type, TVM_U(8)) && tvm_dtype_is_lowbit(param->type);
    return bytes || tvm_dtype_same(param->stored_type, param->type);
}

/* NumPy's bools are 0 and 1; a file can hold anything. */
static tvm_status check_bools(const tvm_run_param *param, tvm_diags *diags) {
    tvm_place place = {.file = param->arg->text};
    for (size_t i = 0; i < param->given.bytes; i++)
        if (param->file[param->given.offset + i] > 1)
            return tvm_diag_add(diags, TVM_FORMAT, &place, NULL, "element %zu is %u, which is no bool", i,
                                param->file[param->given.offset + i]);
    return TVM_OK;
}

/* Where the elements of a file lie in the tensor's memory. Tensors with strides have elements of whole bytes.
 */
static tvm_status find_strides(tvm_run_binding *binding, size_t index, tvm_diags *diags) {
    tvm_run_param *param = &binding->params[index];
    param->strided = binding->function->kernel->slots[index].form == TVM_FORM_STRIDED;
    tvm_npy_steps(&param->expected, param->stride);
    if (!param->strided) return TVM_OK;
    return failed(
        binding, tvm_kernel_strides(binding->function, index, binding->values, binding->count, param->stride),
        diags);
}

static tvm_status check_tensor(tvm_run_binding *binding, size_t index, tvm_diags *diags) {
    tvm_run_param *param = &binding->params[index];
    int64_t shape[TVM_MAX_RANK];
    char declared[TVM_NPY_TEXT_MAX], expected[TVM_NPY_TEXT_MAX], given[TVM_NPY_TEXT_MAX];
    tvm_status status = failed(
        binding,
        tvm_param_shape(binding->function, index, binding->values, binding->count, shape, &param->bytes),
        diags);
    if (status) return status;
    if (!tvm_npy_of(param->type, param->info.rank, shape, &param->expected))
        return tvm_diag_add(diags, TVM_ARGUMENT, NULL, NULL, "tensor '%s' of %s%s cannot stand in memory",
                            param->info.name, param->info.type,
                            shape_text(param->info.rank, shape, declared));
    param->elements = param->expected.bytes ? 1 : 0;
    for (unsigned d = 0; d < param->info.rank; d++) param->elements *= (uint64_t)shape[d];
    status = find_strides(binding, index, diags);
    if (status) return status;
    if (!param->file) return TVM_OK;
    if (param->stored ? tensor_fits(param) : tvm_npy_fits(&param->given, &param->expected, param->type))
        return param->type.kind == TVM_KIND_BOOL ? check_bools(param, diags) : TVM_OK;
    tvm_place place = {.file = param->arg->text};
    if (param->stored)
        return tvm_diag_add(diags, TVM_ARGUMENT, &place, NULL,
                            "the file's %s, does not fit argument '%s' of kernel '%s', which is %s%s",
                            param->stored, param->info.name, tvm_kernel_name(binding->function),
                            param->info.type, shape_text(param->info.rank, shape, declared));
    return tvm_diag_add(
        diags, TVM_ARGUMENT, &place, NULL,
        "the file holds %s, but argument '%s' of kernel '%s' is %s%s, which stands in a file as %s",
        tvm_npy_text(&param->given, given), param->info.name, tvm_kernel_name(binding->function),
        param->info.type, shape_text(param->info.rank, shape, declared),
        tvm_npy_text(&param->expected, expected));
}

/* Assumes and grid before any memory is taken. */
static tvm_status check_scalars(tvm_run_binding *binding, tvm_diags *diags) {
    return failed(binding,
                  tvm_kernel_check(binding->function, binding->values, binding->count, &binding->variant),
                  diags);
}

tvm_status tvm_run_bind(tvm_context *context, tvm_kernel *function, const tvm_run_args *args,
                        tvm_run_binding *binding, tvm_diags *diags) {
    *binding =
        (tvm_run_binding){.context = context, .function = function, .count = tvm_param_count(function)};
    tvm_status status = TVM_OK;
    for (size_t i = 0; !status && i < binding->count; i++) {
        status = failed(binding, tvm_param(function, i, &binding->params[i].info), diags);
        binding->params[i].type = function->kernel->slots[i].dtype;
    }
    if (!status) status = match_names(binding, args, diags);
    if (!status) status = read_given(binding, diags);
    if (!status) status = infer_scalars(binding, diags);
    for (size_t i = 0; !status && i < binding->count; i++)
        if (binding->params[i].info.is_tensor) status = check_tensor(binding, i, diags);
    return status ? status : check_scalars(binding, diags);
}

/* ---- tensors ---- */

static tvm_status upload(tvm_run_binding *binding, size_t index, tvm_diags *diags) {
    tvm_run_param *param = &binding->params[index];
    tvm_value *value = &binding->values[index];
    size_t bytes = param->bytes, dense = param->expected.bytes;
    tvm_status status = failed(binding, tvm_memory_alloc(binding->context, bytes, &value->data), diags);
    if (status) return status;
    value->bytes = bytes;
    bool apart = param->strided || (param->file && param->given.fortran);
    uint8_t *made = param->file ? NULL : malloc(dense ? dense : 1),
            *arranged = apart ? calloc(1, bytes + 1) : NULL;
    const uint8_t *from = param->file ? param->file + param->given.offset : made;
    if (!from || (apart && !arranged)) {
        free(made);
        free(arranged);
        return tvm_diag_no_memory(diags);
    }
    if (made) tvm_run_fill(param->arg, param->type, param->elements, index, made);
    if (apart) {
        int64_t step[TVM_MAX_RANK];
        tvm_npy_steps(made ? &param->expected : &param->given, step);
        tvm_npy_arrange(&param->expected, param->stride, arranged, step, from);
        from = arranged;
    }
    status = failed(binding, tvm_memory_write(binding->context, value->data, from, bytes), diags);
    free(made);
    free(arranged);
    free(param->file);
    param->file = NULL;
    return status;
}

tvm_status tvm_run_upload(tvm_run_binding *binding, tvm_diags *diags) {
    tvm_status status = TVM_OK;
    for (size_t i = 0; !status && i < binding->count; i++)
        if (binding->params[i].info.is_tensor) status = upload(binding, i, diags);
    return status;
}

tvm_status tvm_run_download(const tvm_run_binding *binding, tvm_diags *diags) {
    tvm_status status = TVM_OK;
    for (size_t i = 0; !status && i < binding->count; i++) {
        const tvm_run_param *param = &binding->params[i];
        if (!param->arg || !param->arg->out) continue;
        size_t dense = param->expected.bytes;
        uint8_t *data = malloc(param->bytes + 1), *arranged = param->strided ? malloc(dense + 1) : NULL;
        if (!data || (param->strided && !arranged))
            status = tvm_diag_no_memory(diags);
        else
            status =
                failed(binding,
                       tvm_memory_read(binding->context, data, binding->values[i].data, param->bytes), diags);
        if (!status && arranged) {
            int64_t step[TVM_MAX_RANK];
            tvm_npy_steps(&param->expected, step);
            tvm_npy_arrange(&param->expected, step, arranged, param->stride, data);
        }
        if (!status)
            status = tvm_npy_write(param->arg->out, &param->expected, arranged ? arranged : data, diags);
        free(arranged);
        free(data);
    }
    return status;
}

void tvm_run_unbind(tvm_run_binding *binding) {
    for (size_t i = 0; i < binding->count; i++) {
        free(binding->params[i].file);
        free(binding->params[i].stored);
        if (binding->values[i].data) tvm_memory_free(binding->context, binding->values[i].data);
    }
    *binding = (tvm_run_binding){0};
}
