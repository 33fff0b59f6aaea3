/* Finds and runs ptxas. */
#include "config.h"

#include "ptxas.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "subprocess.h"

#ifndef TVM_CUDA_PREFIX
#define TVM_CUDA_PREFIX ""
#endif

enum { VERSION_LIMIT_MS = 20 * 1000, CUBIN_MAX = 1 << 30, LOOKED_MAX = 1024 };

/* ---- finding ---- */

typedef struct search {
    const char *name; /* of the program */
    char *found;
    char looked[LOOKED_MAX];
    size_t used;
    bool no_memory;
} search;

static void note(search *s, const char *text) {
    int n = snprintf(s->looked + s->used, sizeof s->looked - s->used, "%s%s", s->used ? ", " : "", text);
    if (n > 0) s->used += (size_t)n;
    if (s->used >= sizeof s->looked) s->used = sizeof s->looked - 1;
}

static bool is_program(const char *path) {
    struct stat status;
    return stat(path, &status) == 0 && S_ISREG(status.st_mode) && access(path, X_OK) == 0;
}

/* Looks for <directory, `length` bytes>/<below><name>. */
static void look_in(search *s, const char *directory, size_t length, const char *below) {
    char *path;
    if (s->found || s->no_memory || length == 0) return;
    if (asprintf(&path, "%.*s/%s%s", (int)length, directory, below, s->name) < 0) {
        s->no_memory = true;
        return;
    }
    if (is_program(path)) {
        s->found = path;
        return;
    }
    note(s, path);
    free(path);
}

static void look_in_path(search *s, const char *list) {
    while (list && *list && !s->found) {
        size_t length = strcspn(list, ":");
        look_in(s, list, length, "");
        list += length + (list[length] == ':');
    }
}

static tvm_status not_found(const char *looked, tvm_diags *diags) {
    return tvm_diag_add(diags, TVM_NO_PTXAS, NULL,
                        "install the CUDA toolkit, or set TVM_PTXAS to the path of ptxas",
                        "no ptxas; looked for %s", looked);
}

static void look_everywhere(search *s) {
    const char *home = secure_getenv("CUDA_HOME");
    look_in(s, TVM_CUDA_PREFIX, strlen(TVM_CUDA_PREFIX), "bin/");
    if (home) look_in(s, home, strlen(home), "bin/");
    look_in_path(s, secure_getenv("PATH"));
    look_in(s, "/usr/local/cuda", strlen("/usr/local/cuda"), "bin/");
}

tvm_status tvm_ptxas_find(char **path, tvm_diags *diags) {
    const char *chosen = secure_getenv("TVM_PTXAS");
    *path = NULL;
    if (chosen && *chosen) {
        if (!is_program(chosen)) {
            char looked[LOOKED_MAX];
            snprintf(looked, sizeof looked, "%s (TVM_PTXAS)", chosen);
            return not_found(looked, diags);
        }
        *path = strdup(chosen);
        return *path ? TVM_OK : tvm_diag_no_memory(diags);
    }
    search s = {.name = "ptxas"};
    look_everywhere(&s);
    *path = s.found;
    if (s.no_memory) return tvm_diag_no_memory(diags);
    return s.found ? TVM_OK : not_found(s.looked, diags);
}

tvm_status tvm_nvdisasm_find(const char *ptxas, char **path, tvm_diags *diags) {
    const char *slash = strrchr(ptxas, '/');
    search s = {.name = "nvdisasm"};
    if (slash) look_in(&s, ptxas, (size_t)(slash - ptxas), "");
    look_everywhere(&s);
    *path = s.found;
    if (s.no_memory) return tvm_diag_no_memory(diags);
    if (s.found) return TVM_OK;
    return tvm_diag_add(diags, TVM_NOT_FOUND, NULL,
                        "it comes with the CUDA toolkit: put it beside ptxas, or its folder in PATH",
                        "no nvdisasm, which lists instructions; looked for %s", s.looked);
}

/* ---- running ---- */

static void trim_end(char *text) {
    size_t length = strlen(text);
    while (length > 0 && (text[length - 1] == '\n' || text[length - 1] == ' ')) text[--length] = '\0';
}

/* Turns every failure of argv, which has been run, into a diagnostic. */
static tvm_status outcome(const char *const argv[], unsigned limit_ms, tvm_process_result *result,
                          tvm_diags *diags) {
    trim_end(result->output);
    const char *separator = result->output[0] ? ":\n" : "";
    if (result->error == ENOENT || result->error == EACCES)
        return tvm_diag_add(diags, TVM_NO_PTXAS, NULL,
                            "install the CUDA toolkit, or set TVM_PTXAS to the path of ptxas",
                            "no ptxas; looked for %s: %s", argv[0], strerror(result->error));
    if (result->error)
        return tvm_diag_add(diags, TVM_PTXAS, NULL, NULL, "cannot run %s: %s", argv[0],
                            strerror(result->error));
    if (result->timed_out)
        return tvm_diag_add(diags, TVM_PTXAS, NULL, NULL, "%s did not finish within %g s and was stopped%s%s",
                            argv[0], limit_ms / 1000.0, separator, result->output);
    if (result->signal)
        return tvm_diag_add(diags, TVM_PTXAS, NULL, NULL, "%s was ended by signal %d%s%s", argv[0],
                            result->signal, separator, result->output);
    if (result->exit_code)
        return tvm_diag_add(diags, TVM_PTXAS, NULL, NULL, "%s failed with exit status %d%s%s", argv[0],
                            result->exit_code, separator, result->output);
    return TVM_OK;
}

static tvm_status run(const char *const argv[], const int *passed, size_t passed_count, unsigned limit_ms,
                      tvm_process_result *result, tvm_diags *diags) {
    tvm_status status = tvm_process_run(argv, passed, passed_count, limit_ms, result, diags);
    return status ? status : outcome(argv, limit_ms, result, diags);
}

tvm_status tvm_ptxas_version(const char *path, char **version, tvm_diags *diags) {
    const char *const argv[] = {path, "--version", NULL};
    tvm_process_result result;
    *version = NULL;
    tvm_status status = run(argv, NULL, 0, VERSION_LIMIT_MS, &result, diags);
    if (status == TVM_OK) {
        char *line = strstr(result.output, "release ");
        while (line && line > result.output && line[-1] != '\n') line--;
        if (!line) line = result.output;
        *version = strndup(line, strcspn(line, "\n"));
        if (!*version) status = tvm_diag_no_memory(diags);
    }
    free(result.output);
    return status;
}

/* ---- the resource usage that -v prints ---- */

static tvm_kernel_code *kernel_named(tvm_module *module, const char *name, size_t length) {
    for (size_t k = 0; k < module->kernel_count; k++)
        if (strlen(module->kernels[k].name) == length && memcmp(module->kernels[k].name, name, length) == 0)
            return &module->kernels[k];
    return NULL;
}

/* `ptxas info : (C7511) Potential Performance Loss: ... in the function 'name'`; one without a name is of
 * all. */
static void read_loss(tvm_module *module, const char *line, const char *loss) {
    static const char function[] = "function '";
    const char *name = strstr(loss, function), *number = strchr(line, '(');
    for (size_t k = 0; k < module->kernel_count; k++) {
        tvm_kernel_code *kernel = &module->kernels[k];
        size_t length = strlen(kernel->name);
        const char *at = name ? name + sizeof function - 1 : NULL;
        if (at && (strncmp(at, kernel->name, length) != 0 || at[length] != '\'')) continue;
        const char *text = number && number < loss ? number : loss;
        size_t used = strlen(kernel->loss);
        if (strstr(kernel->loss, text)) continue;
        snprintf(kernel->loss + used, sizeof kernel->loss - used, "%s%s", used ? "; " : "", text);
    }
}

/* One line; *kernel is the one that the lines are about. */
static void read_usage_line(tvm_module *module, const char *line, tvm_kernel_code **kernel) {
    static const char entry[] = "Compiling entry function '", properties[] = "Function properties for ";
    const char *at = strstr(line, entry);
    const char *loss = strstr(line, "Potential Performance Loss");
    int stack, stores, loads, registers;
    if (loss) {
        read_loss(module, line, loss);
    } else if (at) {
        at += sizeof entry - 1;
        *kernel = kernel_named(module, at, strcspn(at, "'"));
    } else if ((at = strstr(line, properties))) {
        at += sizeof properties - 1;
        *kernel = kernel_named(module, at, strcspn(at, " \n"));
    } else if (*kernel && sscanf(line + strcspn(line, "0123456789"),
                                 "%d bytes stack frame, %d bytes spill stores, %d bytes spill loads", &stack,
                                 &stores, &loads) == 3) {
        (*kernel)->stack_bytes = stack;
        (*kernel)->spill_stores = stores;
        (*kernel)->spill_loads = loads;
    } else if (*kernel && (at = strstr(line, "Used ")) && sscanf(at, "Used %d registers", &registers) == 1) {
        (*kernel)->registers = registers;
    }
}

void tvm_ptxas_read_usage(tvm_module *module, const char *output) {
    tvm_kernel_code *kernel = NULL;
    while (*output) {
        char line[512];
        size_t length = strcspn(output, "\n");
        snprintf(line, sizeof line, "%.*s", (int)(length < sizeof line ? length : sizeof line - 1), output);
        read_usage_line(module, line, &kernel);
        output += length + (output[length] == '\n');
    }
}

/* ---- translating ---- */

/* The two files of a run. They are in memory and have no names, so that nothing is left behind, however this
 * process ends; ptxas has them by way of /proc/self/fd. */
enum { PTX, CUBIN, FILES };

typedef char file_name[32];

static void files_close(const int files[FILES]) {
    for (int i = 0; i < FILES; i++)
        if (files[i] >= 0) close(files[i]);
}

static tvm_status files_make(const tvm_module *module, int files[FILES], tvm_diags *diags) {
    int error = 0;
    files[CUBIN] = -1;
    files[PTX] = tvm_process_memory("module.ptx");
    if (files[PTX] >= 0) files[CUBIN] = tvm_process_memory("module.cubin");
    if (files[CUBIN] < 0) error = errno;
    for (size_t done = 0; done < module->ptx_size && !error;) {
        ssize_t put = write(files[PTX], module->ptx + done, module->ptx_size - done);
        if (put > 0)
            done += (size_t)put;
        else if (errno != EINTR)
            error = errno;
    }
    if (!error) return TVM_OK;
    files_close(files);
    return tvm_diag_add(diags, TVM_IO, NULL, NULL, "cannot make the files for ptxas in memory: %s",
                        strerror(error));
}

/* What ptxas wrote becomes the module's cubin. */
static tvm_status take_cubin(int file, tvm_module *module, const char *path, tvm_diags *diags) {
    struct stat info;
    if (fstat(file, &info) || info.st_size <= 0)
        return tvm_diag_add(diags, TVM_PTXAS, NULL, NULL, "%s ended without an error and wrote nothing",
                            path);
    size_t size = (size_t)info.st_size, done = 0;
    uint8_t *cubin = size <= CUBIN_MAX ? malloc(size) : NULL;
    if (!cubin) return tvm_diag_no_memory(diags);
    while (done < size) {
        ssize_t got = pread(file, cubin + done, size - done, (off_t)done);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) {
            free(cubin);
            return tvm_diag_add(diags, TVM_IO, NULL, NULL, "cannot read what %s wrote", path);
        }
        done += (size_t)got;
    }
    free(module->cubin);
    module->cubin = cubin;
    module->cubin_size = size;
    return TVM_OK;
}

/* Threads for the kernels of a module; a number of its own, as the cubin tells it, though no instruction
 * depends on it. */
#define SPLIT "--split-compile=16"

/* A ptxas that does not know SPLIT is run again without it. */
static tvm_status run_split(const char *argv[], size_t split_at, const int *passed, size_t passed_count,
                            unsigned limit_ms, tvm_process_result *result, tvm_diags *diags) {
    tvm_status status = tvm_process_run(argv, passed, passed_count, limit_ms, result, diags);
    if (status != TVM_OK) return status;
    if (result->exit_code && strstr(result->output, "split-compile")) {
        free(result->output);
        argv[split_at] = NULL;
        return run(argv, passed, passed_count, limit_ms, result, diags);
    }
    return outcome(argv, limit_ms, result, diags);
}

static tvm_status translate_in(const int files[FILES], tvm_module *module, const char *path,
                               unsigned limit_ms, tvm_diags *diags) {
    char name[16], arch[32];
    file_name names[FILES];
    for (int i = 0; i < FILES; i++) snprintf(names[i], sizeof names[i], "/proc/self/fd/%d", files[i]);
    snprintf(arch, sizeof arch, "-arch=%s", tvm_target_name(tvm_module_machine(module), name));
    enum { SPLIT_AT = 6 };
    const char *argv[] = {
        path, "-v", arch, "-o", names[CUBIN], names[PTX], module->kernel_count > 1 ? SPLIT : NULL, NULL};
    tvm_process_result result;
    tvm_status status = run_split(argv, SPLIT_AT, files, FILES, limit_ms, &result, diags);
    if (status == TVM_OK) status = take_cubin(files[CUBIN], module, path, diags);
    if (status == TVM_OK) tvm_ptxas_read_usage(module, result.output);
    free(result.output);
    return status;
}

tvm_status tvm_ptxas_within(tvm_module *module, const char *path, unsigned limit_ms, tvm_diags *diags) {
    char *found = NULL;
    int files[FILES];
    tvm_status status = path ? TVM_OK : tvm_ptxas_find(&found, diags);
    if (status == TVM_OK) status = files_make(module, files, diags);
    if (status == TVM_OK) {
        status = translate_in(files, module, path ? path : found, limit_ms, diags);
        files_close(files);
    }
    free(found);
    return status;
}

/* $TVM_PTXAS_TIMEOUT in milliseconds. */
static tvm_status chosen_limit(unsigned *limit_ms, tvm_diags *diags) {
    enum { LONGEST_S = 24 * 3600 };
    const char *text = secure_getenv("TVM_PTXAS_TIMEOUT");
    *limit_ms = TVM_PTXAS_LIMIT_MS;
    if (!text || !*text) return TVM_OK;
    char *end;
    unsigned long seconds = *text >= '0' && *text <= '9' ? strtoul(text, &end, 10) : 0;
    if (seconds < 1 || seconds > LONGEST_S || *end)
        return tvm_diag_add(diags, TVM_USAGE, NULL, NULL,
                            "TVM_PTXAS_TIMEOUT is '%s': seconds from 1 to %d are expected", text, LONGEST_S);
    *limit_ms = (unsigned)seconds * 1000;
    return TVM_OK;
}

tvm_status tvm_ptxas(tvm_module *module, const char *path, tvm_diags *diags) {
    unsigned limit_ms;
    tvm_status status = chosen_limit(&limit_ms, diags);
    return status ? status : tvm_ptxas_within(module, path, limit_ms, diags);
}
