/* Kernels that are proved and mutated, each with what it is launched with: those of the cases, those of the
 * shipped programs, with sizes that they accept, and small ones, with tensors of zeros. */
#ifndef TVM_TESTS_PROVE_SUBJECT_H
#define TVM_TESTS_PROVE_SUBJECT_H

#include "case_file.h"
#include "prove_kit.h"
#include "shipped_launch.h"

typedef struct prove_subject {
    const char *name; /* of the case, or the program */
    const tvm_ir_program *program;
    uint32_t kernel;
    tvm_scalar scalars[TVM_MAX_PARAMS];
    const case_file *c; /* NULL: of no case */
    bool is_shipped;
    const size_of *size; /* of a shipped program's; NULL: none serves it */
} prove_subject;

static inline const char *prove_subject_kernel(const prove_subject *s) {
    return tvm_string(s->program, s->program->kernels[s->kernel].name);
}

/* ---- arguments ---- */

static inline void prove_fill_case(const void *closure, const tvm_ir_kernel *kernel, uint32_t p,
                                   uint8_t *bytes, size_t elements) {
    const prove_subject *s = closure;
    const char *text = case_argument(s->c, tvm_string(s->program, kernel->slots[p].name));
    if (text != NULL) case_fill(kernel->slots[p].dtype, bytes, elements, text);
}

static inline void prove_fill_shipped(const void *closure, const tvm_ir_kernel *kernel, uint32_t p,
                                      uint8_t *bytes, size_t elements) {
    const prove_subject *s = closure;
    const tvm_dtype type = kernel->slots[p].dtype;
    tvm_param_info info = {.name = tvm_string(s->program, kernel->slots[p].name),
                           .type = type.kind == TVM_KIND_INT && type.bits == 32 ? "i32" : ""};
    shipped_sequences(&info, s->size, (int32_t *)(void *)bytes, elements, false);
}

static inline void prove_case_scalars(prove_subject *s) {
    const tvm_ir_kernel *kernel = &s->program->kernels[s->kernel];
    for (uint32_t p = 0; p < kernel->param_count; p++) {
        const char *text = case_argument(s->c, tvm_string(s->program, kernel->slots[p].name));
        if (kernel->slots[p].kind != TVM_SLOT_SCALAR || text == NULL) continue;
        if (kernel->slots[p].dtype.kind == TVM_KIND_FLOAT)
            s->scalars[p].f = strtod(text, NULL);
        else
            s->scalars[p].i = strtoll(text, NULL, 0);
    }
}

static inline void prove_shipped_scalars(prove_subject *s) {
    const tvm_ir_kernel *kernel = &s->program->kernels[s->kernel];
    for (uint32_t p = 0; p < kernel->param_count; p++) {
        int value = shipped_scalar(tvm_string(s->program, kernel->slots[p].name), s->size);
        if (kernel->slots[p].dtype.kind == TVM_KIND_FLOAT)
            s->scalars[p].f = 1;
        else
            s->scalars[p].i = kernel->slots[p].dtype.kind == TVM_KIND_BOOL ? 1 : value;
    }
}

/* Of a small kernel, whose parameters that are scalars are numbers of turns. */
static inline void prove_small_scalars(prove_subject *s) {
    for (uint32_t p = 0; p < s->program->kernels[s->kernel].param_count; p++) s->scalars[p].i = 5;
}

typedef void prove_fill_function(const void *closure, const tvm_ir_kernel *kernel, uint32_t p, uint8_t *bytes,
                                 size_t elements);

/* Its closure is the subject; NULL: all are zeros. */
static inline prove_fill_function *prove_fill(const prove_subject *s) {
    return s->c != NULL ? prove_fill_case : s->is_shipped ? prove_fill_shipped : NULL;
}

/* ---- launches ---- */

/* Of a mutant of the subject, or of itself; see prove_run. Of a shipped program's grid a corner. */
static inline bool prove_run_subject(const prove_subject *s, const tvm_ir_program *program, uint32_t kernel,
                                     char **reports) {
    prove_launch l = {.program = program,
                      .kernel = kernel,
                      .fill = s->c != NULL    ? prove_fill_case
                              : s->is_shipped ? prove_fill_shipped
                                              : NULL,
                      .closure = s,
                      .most_blocks = s->is_shipped ? 2 : 0};
    *reports = NULL;
    if (s->is_shipped && s->size == NULL) return false;
    memcpy(l.scalars, s->scalars, sizeof l.scalars);
    return prove_run(&l, reports);
}

/* The first sizes that the kernel accepts. */
static inline void prove_find_size(prove_subject *s) {
    s->is_shipped = true;
    for (size_t i = 0; i < SHIPPED_SIZES; i++) {
        char *reports = NULL;
        s->size = &shipped_sizes[i];
        prove_shipped_scalars(s);
        bool ran = prove_run_subject(s, s->program, s->kernel, &reports);
        free(reports);
        if (ran) return;
    }
    s->size = NULL;
}

#endif
