#include "config.h"

#include "nvjitlink.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ptxas.h"

#ifndef TVM_CUDA_PREFIX
#define TVM_CUDA_PREFIX ""
#endif

/* ---- finding: by name and folder, since opening it to know costs milliseconds that a cache hit saves ----
 */

static const char *const file_names[] = {"libnvJitLink.so.13", "libnvJitLink.so.12", "libnvJitLink.so"};

static const char *const system_folders[] = {"/usr/local/cuda/lib64", "/usr/local/cuda/lib", "/usr/lib64",
#if defined __x86_64__
                                             "/usr/lib/x86_64-linux-gnu",
#elif defined __aarch64__
                                             "/usr/lib/aarch64-linux-gnu",
#endif
                                             "/usr/lib"};

typedef struct search {
    char *found;
    bool no_memory;
} search;

static bool is_file(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode);
}

/* Looks in <folder, `length` bytes>/<below>. */
static void look_in(search *s, const char *folder, size_t length, const char *below) {
    for (size_t i = 0; length && i < sizeof file_names / sizeof *file_names; i++) {
        char *path;
        if (s->found || s->no_memory) return;
        if (asprintf(&path, "%.*s/%s%s", (int)length, folder, below, file_names[i]) < 0)
            s->no_memory = true;
        else if (is_file(path))
            s->found = path;
        else
            free(path);
    }
}

static void look_in_toolkit(search *s, const char *prefix) {
    if (!prefix) return;
    look_in(s, prefix, strlen(prefix), "lib64/");
    look_in(s, prefix, strlen(prefix), "lib/");
}

static void look_everywhere(search *s) {
    look_in_toolkit(s, TVM_CUDA_PREFIX);
    look_in_toolkit(s, secure_getenv("CUDA_HOME"));
    for (const char *list = secure_getenv("LD_LIBRARY_PATH"); list && *list && !s->found;) {
        size_t length = strcspn(list, ":");
        look_in(s, list, length, "");
        list += length + (list[length] == ':');
    }
    for (size_t i = 0; i < sizeof system_folders / sizeof *system_folders; i++)
        look_in(s, system_folders[i], strlen(system_folders[i]), "");
}

tvm_status tvm_nvjitlink_find(char **path, tvm_diags *diags) {
    const char *chosen = secure_getenv("TVM_NVJITLINK");
    search s = {0};
    *path = NULL;
    if (chosen && strcmp(chosen, "none") == 0) return TVM_NO_PTXAS;
    if (chosen && *chosen) {
        if (!is_file(chosen))
            return tvm_diag_add(diags, TVM_NO_PTXAS, NULL, NULL,
                                "no nvJitLink; looked for %s (TVM_NVJITLINK)", chosen);
        s.found = strdup(chosen);
        s.no_memory = !s.found;
    } else {
        look_everywhere(&s);
    }
    if (s.no_memory) return tvm_diag_no_memory(diags);
    *path = s.found;
    return s.found ? TVM_OK : TVM_NO_PTXAS;
}

/* ---- the library: nvJitLink API of CUDA 12.0 and later ---- */

enum { SUCCESS = 0, UNRECOGNIZED_OPTION = 1, INPUT_PTX = 2, LOG_MAX = 64 << 10 };

typedef struct nvJitLink *link_handle;

typedef struct library {
    int (*create)(link_handle *handle, uint32_t count, const char **options);
    int (*destroy)(link_handle *handle);
    int (*add)(link_handle handle, int kind, const void *data, size_t size, const char *name);
    int (*complete)(link_handle handle);
    int (*cubin_size)(link_handle handle, size_t *size);
    int (*cubin)(link_handle handle, void *cubin);
    int (*error_size)(link_handle handle, size_t *size);
    int (*error)(link_handle handle, char *log);
    int (*info_size)(link_handle handle, size_t *size);
    int (*info)(link_handle handle, char *log);
    int (*version)(unsigned *major, unsigned *minor); /* NULL before 12.3 */
} library;

/* A function, plain or as the toolkit's header names it, __nvJitLinkCreate_12_0; false when it is missing. */
static bool resolve(void *handle, const char *name, const char *suffix, void *function) {
    char symbol[96];
    snprintf(symbol, sizeof symbol, "%snvJitLink%s%s", *suffix ? "__" : "", name, suffix);
    void *found = dlsym(handle, symbol);
    memcpy(function, &found, sizeof found); /* ISO C has no conversion of object to function pointers */
    return found != NULL;
}

static bool resolve_all(void *handle, const char *suffix, library *lib) {
    return resolve(handle, "Create", suffix, &lib->create) &&
           resolve(handle, "Destroy", suffix, &lib->destroy) &&
           resolve(handle, "AddData", suffix, &lib->add) &&
           resolve(handle, "Complete", suffix, &lib->complete) &&
           resolve(handle, "GetLinkedCubinSize", suffix, &lib->cubin_size) &&
           resolve(handle, "GetLinkedCubin", suffix, &lib->cubin) &&
           resolve(handle, "GetErrorLogSize", suffix, &lib->error_size) &&
           resolve(handle, "GetErrorLog", suffix, &lib->error) &&
           resolve(handle, "GetInfoLogSize", suffix, &lib->info_size) &&
           resolve(handle, "GetInfoLog", suffix, &lib->info);
}

/* The library is not closed: it keeps threads and state of its own that do not bear being unloaded, and
 * opening it once more then costs nothing. */
static tvm_status open_library(const char *path, library *lib, tvm_diags *diags) {
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!handle)
        return tvm_diag_add(diags, TVM_PTXAS, NULL, NULL, "nvJitLink cannot be opened: %s", dlerror());
    bool found = resolve_all(handle, "", lib);
    for (unsigned major = 12; !found && major <= 19; major++)
        for (unsigned minor = 0; !found && minor <= 9; minor++) {
            char suffix[16];
            snprintf(suffix, sizeof suffix, "_%u_%u", major, minor);
            found = resolve_all(handle, suffix, lib);
        }
    resolve(handle, "Version", "", &lib->version);
    dlclose(handle);
    if (found) return TVM_OK;
    return tvm_diag_add(diags, TVM_PTXAS, NULL, NULL, "'%s' has not the functions of nvJitLink", path);
}

/* ---- compiling ---- */

/* What the library has to say, malloc'ed and without the line end; NULL when that is nothing. */
static char *read_log(link_handle handle, int (*size_of)(link_handle, size_t *),
                      int (*read)(link_handle, char *)) {
    size_t size = 0;
    if (size_of(handle, &size) != SUCCESS || size == 0) return NULL;
    char *text = calloc(1, size + 1);
    if (text && read(handle, text) != SUCCESS) text[0] = '\0';
    size_t length = text ? strlen(text) : 0;
    if (length > LOG_MAX) length = LOG_MAX;
    while (length && (text[length - 1] == '\n' || text[length - 1] == ' ')) length--;
    if (text) text[length] = '\0';
    return text;
}

static tvm_status failed(const library *lib, link_handle handle, const char *doing, int result,
                         tvm_diags *diags) {
    char *log = handle ? read_log(handle, lib->error_size, lib->error) : NULL;
    bool said = log && *log;
    tvm_status status = tvm_diag_add(diags, TVM_PTXAS, NULL, NULL, "nvJitLink%s failed with error %d%s%s",
                                     doing, result, said ? ":\n" : "", said ? log : "");
    free(log);
    return status;
}

static tvm_status take_cubin(const library *lib, link_handle handle, tvm_module *module, tvm_diags *diags) {
    size_t size = 0;
    int result = lib->cubin_size(handle, &size);
    if (result != SUCCESS) return failed(lib, handle, "GetLinkedCubinSize", result, diags);
    if (size == 0) return tvm_diag_add(diags, TVM_PTXAS, NULL, NULL, "nvJitLink gave an empty cubin");
    uint8_t *cubin = malloc(size);
    if (!cubin) return tvm_diag_no_memory(diags);
    result = lib->cubin(handle, cubin);
    if (result != SUCCESS) {
        free(cubin);
        return failed(lib, handle, "GetLinkedCubin", result, diags);
    }
    free(module->cubin);
    module->cubin = cubin;
    module->cubin_size = size;
    return TVM_OK;
}

static void take_usage(const library *lib, link_handle handle, tvm_module *module) {
    char *log = read_log(handle, lib->info_size, lib->info);
    if (log) tvm_ptxas_read_usage(module, log);
    free(log);
}

static tvm_status compile(const library *lib, link_handle handle, tvm_module *module, tvm_diags *diags) {
    int result = lib->add(handle, INPUT_PTX, module->ptx, module->ptx_size, "module.ptx");
    if (result != SUCCESS) return failed(lib, handle, "AddData", result, diags);
    result = lib->complete(handle);
    if (result != SUCCESS) return failed(lib, handle, "Complete", result, diags);
    tvm_status status = take_cubin(lib, handle, module, diags);
    if (status == TVM_OK) take_usage(lib, handle, module);
    return status;
}

tvm_status tvm_nvjitlink(tvm_module *module, const char *path, tvm_diags *diags) {
    library lib;
    char target[16], arch[32];
    unsigned major = 0, minor = 0;
    link_handle handle = NULL;
    tvm_status status = open_library(path, &lib, diags);
    if (status != TVM_OK) return status;
    snprintf(arch, sizeof arch, "-arch=%s", tvm_target_name(tvm_module_machine(module), target));
    const char *options[] = {arch, "-verbose", "-Xptxas=-v"};
    int result = lib.create(&handle, 3, options);
    if (result == UNRECOGNIZED_OPTION) result = lib.create(&handle, 1, options); /* no usage then */
    if (result != SUCCESS) return failed(&lib, NULL, "Create", result, diags);
    status = compile(&lib, handle, module, diags);
    lib.destroy(&handle);
    if (status != TVM_OK) return status;
    if (lib.version && lib.version(&major, &minor) == SUCCESS)
        snprintf(module->made_by, sizeof module->made_by, "nvJitLink %u.%u", major, minor);
    else
        snprintf(module->made_by, sizeof module->made_by, "nvJitLink");
    return TVM_OK;
}
