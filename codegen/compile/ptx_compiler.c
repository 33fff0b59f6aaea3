#include "config.h"

#include "ptx_compiler.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nvjitlink.h"
#include "ptxas.h"

static tvm_status choose(tvm_ptx_compiler *compiler, tvm_ptx_compiler_kind kind, char *path) {
    *compiler = (tvm_ptx_compiler){.kind = kind, .path = path};
    return TVM_OK;
}

static bool is_set(const char *name) {
    const char *value = secure_getenv(name);
    return value && *value;
}

tvm_status tvm_ptx_compiler_find(tvm_ptx_compiler *compiler, tvm_diags *warnings, tvm_diags *diags) {
    char *path = NULL;
    *compiler = (tvm_ptx_compiler){0};
    tvm_status status = TVM_OK;
    if (is_set("TVM_PTXAS")) {
        status = tvm_ptxas_find(&path, warnings);
        if (!status) return choose(compiler, TVM_PTX_BY_PTXAS, path);
        return status == TVM_NO_PTXAS ? TVM_OK : tvm_diag_no_memory(diags);
    }
    status = tvm_nvjitlink_find(&path, warnings);
    if (!status) return choose(compiler, TVM_PTX_BY_NVJITLINK, path);
    if (status == TVM_NO_PTXAS) status = tvm_ptxas_find(&path, NULL);
    if (!status) return choose(compiler, TVM_PTX_BY_PTXAS, path);
    return status == TVM_NO_PTXAS ? TVM_OK : tvm_diag_no_memory(diags);
}

tvm_status tvm_ptx_compiler_ptxas(const char *path, tvm_ptx_compiler *compiler, tvm_diags *diags) {
    char *copy = strdup(path);
    *compiler = (tvm_ptx_compiler){0};
    return copy ? choose(compiler, TVM_PTX_BY_PTXAS, copy) : tvm_diag_no_memory(diags);
}

void tvm_ptx_compiler_free(tvm_ptx_compiler *compiler) {
    free(compiler->path);
    free(compiler->version);
    *compiler = (tvm_ptx_compiler){0};
}

tvm_status tvm_ptx_compiler_ask(tvm_ptx_compiler *compiler, tvm_diags *diags) {
    if (compiler->kind != TVM_PTX_BY_PTXAS || compiler->version) return TVM_OK;
    return tvm_ptxas_version(compiler->path, &compiler->version, diags);
}

/* "ptxas release 13.0, V13.0.88" of what ptxas says of itself. */
static void name_ptxas(tvm_module *module, const char *version) {
    const char *release = version ? strstr(version, "release ") : NULL;
    snprintf(module->made_by, sizeof module->made_by, "ptxas%s%s", release ? " " : "",
             release ? release : "");
}

static tvm_status compile_with_ptxas(tvm_module *module, const char *path, const char *version,
                                     tvm_diags *diags) {
    tvm_status status = tvm_ptxas(module, path, diags);
    if (!status) name_ptxas(module, version);
    return status;
}

/* nvJitLink compiles for linking, which is what setmaxnreg does not go with (ptxas' C7508). */
static tvm_status compile_registers(tvm_module *module, const char *path, tvm_diags *diags) {
    char *ptxas = NULL;
    tvm_status status = tvm_ptxas_find(&ptxas, NULL);
    if (status == TVM_OK) {
        module->made_by_why = "as nvJitLink ignores setmaxnreg";
        status = compile_with_ptxas(module, ptxas, NULL, diags);
    } else if (status == TVM_NO_PTXAS) {
        module->made_by_why = "which ignores setmaxnreg: there is no ptxas";
        status = tvm_nvjitlink(module, path, diags);
    }
    free(ptxas);
    return status;
}

/* nvJitLink, else a ptxas if one is found; the message is the last one's. */
static tvm_status compile_with_library(tvm_module *module, const char *path, tvm_diags *diags) {
    tvm_diags refused = {0};
    char *ptxas = NULL;
    if (module->sets_registers) return compile_registers(module, path, diags);
    tvm_status status = tvm_nvjitlink(module, path, &refused);
    if (status == TVM_PTXAS && !tvm_ptxas_find(&ptxas, NULL))
        status = compile_with_ptxas(module, ptxas, NULL, diags);
    else
        for (size_t i = 0; i < refused.count; i++)
            tvm_diag_add(diags, refused.items[i].status, NULL, refused.items[i].hint, "%s",
                         refused.items[i].message);
    free(ptxas);
    tvm_diags_free(&refused);
    return status;
}

tvm_status tvm_ptx_compile(const tvm_ptx_compiler *compiler, tvm_module *module, tvm_diags *diags) {
    switch (compiler->kind) {
    case TVM_PTX_BY_NVJITLINK:
        return compile_with_library(module, compiler->path, diags);
    case TVM_PTX_BY_PTXAS:
        return compile_with_ptxas(module, compiler->path, compiler->version, diags);
    case TVM_PTX_BY_DRIVER:
        break;
    }
    return compile_with_ptxas(module, NULL, NULL, diags); /* whose search tells what is missing */
}
