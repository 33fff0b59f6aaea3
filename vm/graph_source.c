#include "graph_source.h"

#include <stdlib.h>
#include <string.h>

#include "assembler.h"
#include "graph_impl.h"
#include "launch.h"
#include "view.h"

struct tvm_graph_source {
    tvm_context *context;
    tvm_graph_text *text;
    tvm_program *head;
    tvm_program *programs[1 + TVM_GRAPH_TEXT_PROGRAMS]; /* the text's own kernels first */
};

/* ---- loading ---- */

void tvm_graph_source_free(tvm_graph_source *source) {
    if (!source) return;
    for (size_t i = 0; i < sizeof source->programs / sizeof *source->programs; i++)
        tvm_program_free(source->programs[i]);
    tvm_program_free(source->head);
    tvm_graph_text_free(source->text);
    free(source);
}

tvm_status tvm_graph_source_load(tvm_context *context, tvm_graph_text *text, tvm_ir_program *own,
                                 tvm_graph_source **source, tvm_diags *diags) {
    tvm_graph_source *made = *source = calloc(1, sizeof *made);
    if (!made) {
        tvm_graph_text_free(text);
        tvm_ir_program_free(own);
        return tvm_diag_no_memory(diags);
    }
    made->context = context;
    made->text = text;
    tvm_status status = tvm_context_load(context, own, &made->programs[0], diags);
    for (uint32_t i = 0; !status && i < text->program_count; i++) {
        tvm_ir_program *program = text->programs[i];
        text->programs[i] = NULL;
        status = tvm_context_load(context, program, &made->programs[1 + i], diags);
    }
    tvm_ir_program *head = text->head;
    text->head = NULL;
    if (status)
        tvm_ir_program_free(head);
    else
        status = tvm_context_load(context, head, &made->head, diags);
    if (!status) return TVM_OK;
    tvm_graph_source_free(made);
    *source = NULL;
    return status;
}

tvm_kernel *tvm_graph_source_head(const tvm_graph_source *source) {
    return tvm_kernel_at(source->head, 0);
}

/* ---- making ---- */

typedef struct maker {
    tvm_graph_source *source;
    const tvm_value *values;
    const tvm_ir_program *program; /* the head's */
    const tvm_ir_kernel *kernel;
    tvm_scalar scalars[TVM_MAX_PARAMS];
    tvm_launch_env env;
    tvm_launch_reads reads; /* scalars that are part of an expression: they keep their values */
    tvm_graph *graph;
    tvm_diags *diags;
} maker;

/* The reason of a call of tvm.h that failed, as a diagnostic; of a launch with its place. */
static tvm_status failed(const maker *m, tvm_status status, const tvm_graph_text_launch *launch) {
    const tvm_place place = {.file = launch ? launch->file : NULL, .line = launch ? launch->line : 0};
    return status ? tvm_diag_add(m->diags, status, &place, NULL, "%s", tvm_message(m->source->context))
                  : TVM_OK;
}

/* A scalar parameter of a checked head. */
static tvm_scalar scalar_of(tvm_dtype type, const tvm_value *value) {
    if (type.kind == TVM_KIND_FLOAT)
        return (tvm_scalar){.f = type.bits == 32 ? (double)(float)value->f : value->f};
    return (tvm_scalar){.i = type.kind == TVM_KIND_BOOL ? value->i != 0 : value->i};
}

static void set_scalars(maker *m) {
    for (uint32_t p = 0; p < m->kernel->param_count; p++)
        if (m->kernel->slots[p].kind == TVM_SLOT_SCALAR)
            m->scalars[p] = scalar_of(m->kernel->slots[p].dtype, &m->values[p]);
    m->env = tvm_context_launch_env(m->source->context);
    m->env.scalars = m->scalars;
    for (unsigned axis = 0; axis < 3; axis++) m->env.grid[axis] = 1;
}

/* Is the expression a scalar parameter, and nothing else? */
static bool is_parameter(const tvm_ir_kernel *kernel, uint32_t expr) {
    return kernel->exprs[expr].op == TVM_EXPR_SLOT && kernel->exprs[expr].a < kernel->param_count;
}

/* Which scalars are read by more than launches that take them as they are. */
static void find_reads(maker *m) {
    const tvm_ir_kernel *kernel = m->kernel;
    const tvm_graph_text *text = m->source->text;
    for (uint32_t s = 0; s < kernel->slot_count; s++)
        for (unsigned d = 0; kernel->slots[s].kind == TVM_SLOT_GLOBAL && d < kernel->slots[s].rank; d++) {
            tvm_launch_reads_find(kernel, kernel->slots[s].shape[d], &m->reads);
            if (kernel->slots[s].form == TVM_FORM_STRIDED)
                tvm_launch_reads_find(kernel, kernel->slots[s].stride[d], &m->reads);
        }
    for (uint32_t i = 0; i < kernel->assume_count; i++)
        tvm_launch_reads_find(kernel, kernel->assumes[i], &m->reads);
    for (uint32_t i = 0; i < kernel->insn_count; i++)
        for (uint32_t o = 0; o < kernel->insns[i].count; o++)
            if (tvm_operands(kernel, &kernel->insns[i])[o].kind == TVM_OPERAND_EXPR)
                tvm_launch_reads_find(kernel, tvm_operands(kernel, &kernel->insns[i])[o].value, &m->reads);
    for (uint32_t i = 0; i < text->launch_count; i++)
        for (uint32_t a = 0; a < text->launches[i].argument_count; a++) {
            const tvm_graph_text_argument *argument = &text->launches[i].arguments[a];
            if (argument->slot == TVM_NONE && !is_parameter(kernel, argument->expr))
                tvm_launch_reads_find(kernel, argument->expr, &m->reads);
        }
}

static bool can_change(const maker *m, uint32_t param) {
    return m->kernel->slots[param].kind == TVM_SLOT_SCALAR && !m->reads.params[param];
}

/* The name in the graph, malloc'ed: of a variable with its `%`, as the text has it. */
static char *name_of(const maker *m, uint32_t slot) {
    char *name = NULL;
    const char *text = tvm_string(m->program, m->kernel->slots[slot].name);
    if (asprintf(&name, "%s%s", slot < m->kernel->param_count ? "" : "%", text) >= 0) return name;
    tvm_diag_no_memory(m->diags);
    return NULL;
}

typedef struct described {
    tvm_tensor tensor;
    int64_t shape[TVM_MAX_RANK], stride[TVM_MAX_RANK];
} described;

/* Is a tensor of the strides row-major and contiguous? */
static bool is_contiguous(unsigned rank, const int64_t *shape, const int64_t *stride) {
    int64_t step = 1;
    for (unsigned d = rank; d-- > 0; step *= shape[d] ? shape[d] : 1)
        if (shape[d] != 1 && stride[d] != step) return false;
    return true;
}

/* The head's tensor with the sizes of now. Elements that are narrower than a byte are its bytes. */
static tvm_status describe(const maker *m, uint32_t slot, described *out) {
    const tvm_slot *of = &m->kernel->slots[slot];
    uint64_t bytes;
    *out = (described){0};
    tvm_status status = tvm_launch_shape(m->program, m->kernel, slot, &m->env, out->shape, &bytes, m->diags);
    if (!status) status = tvm_launch_strides(m->program, m->kernel, slot, &m->env, out->stride, m->diags);
    if (status) return status;
    bool contiguous = is_contiguous(of->rank, out->shape, out->stride);
    out->tensor = (tvm_tensor){.ndim = of->rank, .dtype = tvm_tensor_type(of->dtype), .shape = out->shape};
    if (out->tensor.dtype.bits != of->dtype.bits && !contiguous)
        return tvm_diag_add(
            m->diags, TVM_UNSUPPORTED, NULL, NULL,
            "graph '%s': '%%%s' is a part of a tensor of %s that has other elements in between",
            tvm_kernel_name(tvm_graph_source_head(m->source)), tvm_string(m->program, of->name),
            TVM_DTYPE_TEXT(of->dtype));
    if (out->tensor.dtype.bits != of->dtype.bits && of->rank)
        out->shape[of->rank - 1] = out->shape[of->rank - 1] * of->dtype.bits / 8;
    if (!contiguous) out->tensor.strides = out->stride;
    return TVM_OK;
}

static tvm_status add_parameter(const maker *m, uint32_t param) {
    const tvm_slot *slot = &m->kernel->slots[param];
    const tvm_value *value = &m->values[param];
    const tvm_tensor *given = value->tensor;
    described tensor;
    tvm_status status = describe(m, param, &tensor);
    if (status) return status;
    if (given) {
        status = tvm_tensor_check(tvm_graph_source_head(m->source), param, tensor.shape,
                                  tensor.tensor.strides, given, m->diags);
        if (status) return status;
    }
    tensor.tensor.data = value->data;
    tensor.tensor.device.device_type =
        tvm_device(m->source->context) == TVM_DEVICE_CUDA ? TVM_TENSOR_CUDA : TVM_TENSOR_CPU;
    if (tensor.tensor.device.device_type == TVM_TENSOR_CUDA)
        tensor.tensor.device.device_id = m->source->context->ops->ordinal(m->source->context->device);
    return failed(m,
                  tvm_graph_add_tensor(m->graph, tvm_string(m->program, slot->name),
                                       (tvm_graph_role)m->source->text->roles[param],
                                       given ? given : &tensor.tensor),
                  NULL);
}

static tvm_status evaluate(const maker *m, uint32_t expr, tvm_scalar *value) {
    const tvm_eval_env env = tvm_launch_eval_env(&m->env);
    tvm_why why;
    if (tvm_expr_eval(m->kernel, expr, &env, value, &why) == TVM_OK) return TVM_OK;
    tvm_text text = tvm_launch_expr_text(m->program, m->kernel, expr, &m->env);
    tvm_status status =
        tvm_diag_add(m->diags, TVM_ARGUMENT, NULL, NULL, "graph '%s': %s: %s",
                     tvm_kernel_name(tvm_graph_source_head(m->source)), tvm_text_string(&text), why.text);
    tvm_text_free(&text);
    return status;
}

/* Bytes from the first element of what a view-global views to its own. */
static tvm_status part_offset(const maker *m, const tvm_insn *insn, const tvm_view *view, uint64_t *offset) {
    int64_t stride[TVM_MAX_RANK], bits = 0;
    tvm_status status = tvm_launch_strides(m->program, m->kernel, view->base, &m->env, stride, m->diags);
    for (unsigned d = 0; !status && d < view->base_rank; d++) {
        tvm_scalar index;
        status = evaluate(m, view->index[d].value, &index);
        if (!status) bits += index.i * stride[d] * m->kernel->slots[insn->result].dtype.bits;
    }
    *offset = (uint64_t)bits / 8;
    return status;
}

/* What alloc-global and view-global make. */
static tvm_status add_made(const maker *m, const tvm_insn *insn) {
    bool is_part = tvm_op(insn->op)->class == TVM_CLASS_COMPUTE;
    described tensor;
    tvm_status status = describe(m, insn->result, &tensor);
    char *name = status ? NULL : name_of(m, insn->result), *whole = NULL;
    if (!status && !name) status = TVM_NO_MEMORY;
    if (!status && is_part) {
        tvm_view view;
        tvm_view_read(m->kernel, insn, &view);
        whole = name_of(m, view.base);
        status = whole ? part_offset(m, insn, &view, &tensor.tensor.byte_offset) : TVM_NO_MEMORY;
        if (!status) status = failed(m, tvm_graph_add_part(m->graph, name, whole, &tensor.tensor), NULL);
    } else if (!status) {
        status = failed(m, tvm_graph_add_tensor(m->graph, name, TVM_GRAPH_TEMPORARY, &tensor.tensor), NULL);
    }
    free(name);
    free(whole);
    return status;
}

static tvm_status add_scalar(const maker *m, uint32_t param) {
    const tvm_kernel *head = tvm_graph_source_head(m->source);
    return failed(m,
                  tvm_graph_add_scalar(m->graph, tvm_string(m->program, m->kernel->slots[param].name),
                                       head->type_names[param], &m->values[param]),
                  NULL);
}

/* A scalar that can change goes by its name. */
static tvm_status set_argument(const maker *m, const tvm_graph_text_argument *from, tvm_dtype type,
                               tvm_graph_argument *argument, char **name) {
    tvm_scalar value;
    bool by_name = from->slot != TVM_NONE;
    uint32_t slot = from->slot;
    *name = NULL;
    *argument = (tvm_graph_argument){0};
    if (!by_name && is_parameter(m->kernel, from->expr)) {
        slot = m->kernel->exprs[from->expr].a;
        by_name = can_change(m, slot);
    }
    if (by_name) {
        argument->name = *name = name_of(m, slot);
        return *name ? TVM_OK : TVM_NO_MEMORY;
    }
    tvm_status status = evaluate(m, from->expr, &value);
    if (type.kind == TVM_KIND_FLOAT)
        argument->value.f = status ? 0 : value.f;
    else
        argument->value.i = status ? 0 : value.i;
    return status;
}

static tvm_status add_launch(const maker *m, const tvm_graph_text_launch *launch) {
    tvm_kernel *kernel = tvm_kernel_at(m->source->programs[launch->program], launch->function);
    tvm_graph_argument arguments[TVM_MAX_PARAMS];
    char *names[TVM_MAX_PARAMS] = {NULL};
    const char *after[TVM_GRAPH_TEXT_AFTER];
    tvm_status status = TVM_OK;
    for (uint32_t a = 0; !status && a < launch->argument_count; a++)
        status =
            set_argument(m, &launch->arguments[a], kernel->kernel->slots[a].dtype, &arguments[a], &names[a]);
    for (uint32_t i = 0; i < launch->after_count; i++)
        after[i] = m->source->text->launches[launch->after[i]].name;
    if (!status)
        status = failed(m,
                        tvm_graph_add_launch(m->graph, launch->name, kernel, arguments,
                                             launch->argument_count, after, launch->after_count),
                        launch);
    for (uint32_t a = 0; a < launch->argument_count; a++) free(names[a]);
    return status;
}

static tvm_status add_all(const maker *m) {
    const tvm_graph_text *text = m->source->text;
    tvm_status status = TVM_OK;
    bool is_taken[TVM_MAX_PARAMS] = {false};
    for (uint32_t i = 0; i < text->launch_count; i++)
        for (uint32_t a = 0; a < text->launches[i].argument_count; a++) {
            const tvm_graph_text_argument *argument = &text->launches[i].arguments[a];
            if (argument->slot == TVM_NONE && is_parameter(m->kernel, argument->expr))
                is_taken[m->kernel->exprs[argument->expr].a] = true;
        }
    for (uint32_t p = 0; !status && p < m->kernel->param_count; p++) {
        if (m->kernel->slots[p].kind == TVM_SLOT_GLOBAL)
            status = add_parameter(m, p);
        else if (is_taken[p] && can_change(m, p))
            status = add_scalar(m, p);
    }
    for (uint32_t i = 0; !status && i < m->kernel->insn_count; i++)
        status = add_made(m, &m->kernel->insns[i]);
    for (uint32_t i = 0; !status && i < text->launch_count; i++) status = add_launch(m, &text->launches[i]);
    return status;
}

static void free_source(void *source) {
    tvm_graph_source_free(source);
}

tvm_status tvm_graph_source_make(tvm_graph_source *source, const tvm_value *values, tvm_graph **graph,
                                 tvm_diags *diags) {
    tvm_kernel *head = tvm_graph_source_head(source);
    const tvm_kernel *variant;
    maker m = {.source = source,
               .values = values,
               .program = source->head->program,
               .kernel = head->kernel,
               .diags = diags};
    *graph = NULL;
    tvm_status status = failed(&m, tvm_kernel_check(head, values, m.kernel->param_count, &variant), NULL);
    if (status) return status;
    set_scalars(&m);
    find_reads(&m);
    status = failed(&m, tvm_graph_create(source->context, tvm_kernel_name(head), &m.graph), NULL);
    if (!status) status = add_all(&m);
    if (status) {
        tvm_graph_free(m.graph);
        return status;
    }
    tvm_graph_keep(m.graph, source, free_source);
    *graph = m.graph;
    return TVM_OK;
}

/* ---- tvm_graph_assemble ---- */

/* The caller's arguments, by the names of the head's parameters. */
static tvm_status take_named(const tvm_graph_source *source, const tvm_graph_argument *arguments,
                             size_t count, tvm_value values[TVM_MAX_PARAMS], tvm_diags *diags) {
    const tvm_kernel *head = tvm_graph_source_head(source);
    const tvm_ir_kernel *kernel = head->kernel;
    bool given[TVM_MAX_PARAMS] = {false};
    memset(values, 0, TVM_MAX_PARAMS * sizeof *values);
    for (size_t a = 0; a < count; a++) {
        const char *name = arguments[a].name ? arguments[a].name : "";
        uint32_t p = 0;
        while (p < kernel->param_count &&
               strcmp(tvm_string(head->code->program, kernel->slots[p].name), name))
            p++;
        if (p == kernel->param_count || given[p])
            return tvm_diag_add(diags, TVM_USAGE, NULL, NULL, "graph '%s': %s '%s'", tvm_kernel_name(head),
                                p == kernel->param_count ? "there is no parameter" : "two arguments are for",
                                name);
        if (kernel->slots[p].kind == TVM_SLOT_SCALAR &&
            tvm_graph_is_other_kind(kernel->slots[p].dtype.kind == TVM_KIND_FLOAT, &arguments[a].value))
            return tvm_diag_add(diags, TVM_ARGUMENT, NULL, NULL, "graph '%s': scalar '%s' is %s",
                                tvm_kernel_name(head), name, head->type_names[p]);
        given[p] = true;
        values[p] = arguments[a].value;
    }
    for (uint32_t p = 0; p < kernel->param_count; p++)
        if (!given[p] && kernel->slots[p].kind == TVM_SLOT_SCALAR)
            return tvm_diag_add(diags, TVM_ARGUMENT, NULL, NULL, "graph '%s': scalar '%s' is not given",
                                tvm_kernel_name(head),
                                tvm_string(head->code->program, kernel->slots[p].name));
    return TVM_OK;
}

static tvm_status assemble(tvm_context *context, const char *text, size_t length,
                           const tvm_assemble_options *options, tvm_graph_source **source, tvm_diags *diags) {
    tvm_graph_text *read = NULL;
    tvm_ir_program *own = NULL;
    tvm_assembler_options how = {.defines = options->defines,
                                 .define_count = options->define_count,
                                 .include_dirs = options->include_dirs,
                                 .include_dir_count = options->include_dir_count,
                                 .graph = &read};
    tvm_status status = tvm_assemble_text(text ? text : "", length, options->name, &how, &own, diags);
    if (status) return status;
    if (read) return tvm_graph_source_load(context, read, own, source, diags);
    tvm_ir_program_free(own);
    const tvm_place place = {.file = options->name ? options->name : "-"};
    return tvm_diag_add(diags, TVM_ARGUMENT, &place, NULL, "the text has no .graph");
}

tvm_status tvm_graph_assemble(tvm_context *context, const char *text, size_t length,
                              const tvm_assemble_options *options, const tvm_graph_argument *arguments,
                              size_t count, tvm_graph **graph) {
    static const tvm_assemble_options defaults = {0};
    if (!context || (!text && length) || (!arguments && count) || !graph)
        return tvm_context_missing(context, __func__);
    *graph = NULL;
    tvm_diags diags = {0};
    tvm_graph_source *source = NULL;
    tvm_value values[TVM_MAX_PARAMS];
    tvm_status status = tvm_context_usable(context, &diags);
    if (!status) status = assemble(context, text, length, options ? options : &defaults, &source, &diags);
    if (!status) status = take_named(source, arguments, count, values, &diags);
    if (!status) status = tvm_graph_source_make(source, values, graph, &diags);
    if (status) tvm_graph_source_free(source);
    return tvm_context_finish(context, status, &diags);
}
