/* The data-driven cases on both devices: each checks its expected outputs itself; here the two are compared,
 * too. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "case_file.h"
#include "codegen.h"
#include "suite.h"
#include "vbc.h"

static double tolerance_of(const case_file *c, const char *name) {
    for (size_t i = 0; i < c->out_count; i++)
        if (strcmp(c->outs[i].name, name) == 0) return c->outs[i].tolerance;
    return 0;
}

static bool compare_outputs(const case_file *c, suite *s, const gpu_test *test, const case_output *cpu,
                            const case_output *gpu) {
    tvm_program *code = NULL;
    tvm_kernel *function = NULL;
    bool good = tvm_load(s->cpu, test->bytecode, test->size, &code) == TVM_OK &&
                tvm_get_kernel(code, c->kernel, &function) == TVM_OK;
    for (size_t i = 0; good && i < tvm_param_count(function); i++) {
        tvm_param_info info;
        gpu_arg arg = {.tensor = true};
        if (cpu->bytes[i] == NULL || gpu->bytes[i] == NULL) continue;
        good = tvm_param(function, i, &info) == TVM_OK &&
               tvm_dtype_parse(info.type, strlen(info.type), &arg.type);
        arg.count = good ? cpu->sizes[i] * 8 / arg.type.bits : 0;
        arg.tolerance = tolerance_of(c, info.name);
        good = good && gpu_same(c->name, info.name, &arg, cpu->bytes[i], gpu->bytes[i]);
    }
    tvm_program_free(code);
    return good;
}

static bool run_case(suite *s, const gpu_test *test) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s.case", s->cases, test->name);
    case_file *c = case_read(path);
    if (c == NULL) return false;
    case_output cpu = {0}, gpu = {0};
    bool good = case_launch(c, s->cpu, test->bytecode, test->size, &cpu) &&
                case_launch(c, s->gpu, test->bytecode, test->size, &gpu) &&
                compare_outputs(c, s, test, &cpu, &gpu);
    case_output_free(&cpu);
    case_output_free(&gpu);
    case_free(c);
    return good;
}

/* Has the GPU what every kernel of the program is made of? */
static bool is_for_gpu(const suite *s, const tvm_ir_program *program) {
    const tvm_target_traits *traits = tvm_target_traits_for(s->target);
    for (uint32_t k = 0; k < program->kernel_count; k++) {
        const tvm_ir_kernel *kernel = &program->kernels[k];
        if (tvm_cluster_blocks(kernel) > 1 && !tvm_traits_have(traits, TVM_HAS_CLUSTERS)) return false;
        if (tvm_has_tensor_memory(kernel) && !tvm_traits_have(traits, TVM_HAS_TCGEN05)) return false;
    }
    return true;
}

static void add_case(suite *s, gpu_group *group, const char *path) {
    case_file *c = case_read(path);
    if (c == NULL || (c->errors == NULL && c->kernel != NULL)) {
        gpu_test *test = gpu_add(group, c != NULL ? c->name : path, NULL, NULL, NULL, 0);
        tvm_diags diags = {0};
        tvm_ir_program *program = NULL;
        bool good = c != NULL && case_assemble(c, s->cases, &program, &diags) == TVM_OK &&
                    tvm_vbc_write(program, true, &test->bytecode, &test->size, &diags) == TVM_OK;
        if (!good) tvm_diags_print(&diags, stdout, test->name, false);
        /* What only the interpreter finds would be undefined on a GPU. */
        bool is_skipped = (c != NULL && c->traps) || (good && !is_for_gpu(s, program));
        test->run = is_skipped ? NULL : run_case;
        tvm_diags_free(&diags);
        tvm_ir_program_free(program);
    }
    case_free(c);
}

void gpu_add_cases(suite *s, gpu_group *group) {
    char **paths = case_list(s->cases);
    if (paths == NULL) printf("no cases in %s\n", s->cases);
    for (char **path = paths; path != NULL && *path != NULL; path++) {
        add_case(s, group, *path);
        free(*path);
    }
    free(paths);
}
