/* The mistakes of ptxas: their kernels are compiled, and the listings judged. */
#include "ptxas_mistakes.h"

#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen.h"
#include "ptxas.h"
#include "subprocess.h"

enum { LISTING_MS = 60 * 1000 };

#define TVM_SEEN(pattern, least, most) {pattern, least, most},
#define TVM_PTXAS_MISTAKE(id, name, target, first, last, what, wrong, right, body)                           \
    {name, target, first, last, what, {wrong}, {right}, body},
static const tvm_ptxas_mistake mistakes[] = {
#include "ptxas_mistakes.def"
};

const tvm_ptxas_mistake *tvm_ptxas_mistakes(size_t *count) {
    *count = sizeof mistakes / sizeof *mistakes;
    return mistakes;
}

char *tvm_ptxas_mistake_ptx(const tvm_ptxas_mistake *mistake) {
    char *ptx;
    int size = asprintf(&ptx,
                        ".version 8.4\n"
                        ".target %s\n"
                        ".address_size 64\n"
                        ".visible .entry k(.param .b64 a, .param .b64 b, .param .b32 n)\n"
                        ".maxntid 128, 1, 1\n"
                        "{\n"
                        ".reg .pred %%p<4>;\n"
                        ".reg .b32 %%r<8>;\n"
                        ".reg .b64 %%rd<4>;\n"
                        ".reg .b32 %%w<8>;\n"
                        ".reg .f32 %%f<8>;\n"
                        ".shared .align 16 .b8 tile[1024];\n"
                        "ld.param.b64 %%rd0, [a];\n"
                        "ld.param.b64 %%rd1, [b];\n"
                        "ld.param.b32 %%r0, [n];\n"
                        "mov.u32 %%r1, %%tid.x;\n"
                        "%s"
                        "ret;\n"
                        "}\n",
                        mistake->target, mistake->body);
    return size < 0 ? NULL : ptx;
}

/* ---- judging ---- */

/* How often the pattern is found; false: no memory. */
static bool count_sign(const char *pattern, const char *listing, unsigned *count) {
    regex_t compiled;
    regmatch_t match;
    *count = 0;
    if (regcomp(&compiled, pattern, 0)) return false;
    for (int error = 0; !error && *listing; listing += match.rm_eo) {
        error = regexec(&compiled, listing, 1, &match, 0);
        if (error || match.rm_eo == 0) break;
        ++*count;
    }
    regfree(&compiled);
    return true;
}

static bool shows(const tvm_listing_sign signs[TVM_LISTING_SIGNS], const char *listing, bool *all) {
    *all = true;
    for (unsigned i = 0; i < TVM_LISTING_SIGNS && signs[i].pattern && *all; i++) {
        unsigned count;
        if (!count_sign(signs[i].pattern, listing, &count)) return false;
        *all = signs[i].least <= count && count <= signs[i].most;
    }
    return true;
}

tvm_status tvm_ptxas_judge_listing(const tvm_ptxas_mistake *mistake, const char *listing,
                                   tvm_ptxas_finding *finding, tvm_diags *diags) {
    bool wrong, right = false;
    *finding = TVM_PTXAS_UNCLEAR;
    if (!shows(mistake->wrong, listing, &wrong) || (!wrong && !shows(mistake->right, listing, &right)))
        return tvm_diag_no_memory(diags);
    if (wrong || right) *finding = wrong ? TVM_PTXAS_WRONG : TVM_PTXAS_RIGHT;
    return TVM_OK;
}

/* ---- compiling ---- */

static tvm_status list(const tvm_module *module, const char *nvdisasm, tvm_process_result *result,
                       tvm_diags *diags) {
    const char *argv[] = {nvdisasm, "-c", NULL, NULL};
    tvm_status status =
        tvm_process_run_on(argv, 2, module->cubin, module->cubin_size, LISTING_MS, result, diags);
    if (status) return status;
    if (!result->error && !result->timed_out && !result->signal && !result->exit_code) return TVM_OK;
    return tvm_diag_add(diags, TVM_UNSUPPORTED, NULL, NULL, "%s cannot list what ptxas made: %.200s",
                        nvdisasm, result->error ? strerror(result->error) : result->output);
}

tvm_status tvm_ptxas_judge(const tvm_ptxas_mistake *mistake, const char *ptxas, const char *nvdisasm,
                           tvm_ptxas_finding *finding, tvm_diags *diags) {
    tvm_kernel_code kernel = {.name = "k"};
    tvm_process_result listing = {0};
    tvm_module module = {.kernels = &kernel, .kernel_count = 1};
    *finding = TVM_PTXAS_UNCLEAR;
    tvm_status status = tvm_target_parse(mistake->target, &module.target, diags);
    if (status) return status;
    module.ptx = tvm_ptxas_mistake_ptx(mistake);
    if (!module.ptx) return tvm_diag_no_memory(diags);
    module.ptx_size = strlen(module.ptx);
    status = tvm_ptxas(&module, ptxas, diags);
    if (!status) status = list(&module, nvdisasm, &listing, diags);
    if (!status) status = tvm_ptxas_judge_listing(mistake, listing.output, finding, diags);
    free(listing.output);
    free(module.cubin);
    free(module.ptx);
    return status;
}
