/* An nvJitLink without a compiler, for tests: the cubin is "\177ELF", the options and the PTX. Built twice:
 * with the plain names of CUDA 12.3 and later, and, with FAKE_SUFFIX, with those of the first headers alone
 * and without nvJitLinkVersion. FAKE_NVJITLINK_FAIL, read at each call, names what fails: create, option (all
 * but -arch is unknown), add, complete, size or cubin; or alone: create fails, and from then on there is no
 * ptxas. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef FAKE_SUFFIX
#define JOIN2(a, b) a##b
#define JOIN(a, b)  JOIN2(a, b)
#define NAME(name)  JOIN(__nvJitLink##name, FAKE_SUFFIX)
#else
#define NAME(name) nvJitLink##name
#endif

typedef struct link {
    char *cubin;
    size_t size;
    int completed;
} link;

int NAME(Create)(link **handle, uint32_t count, const char **options);
int NAME(Destroy)(link **handle);
int NAME(AddData)(link *handle, int kind, const void *data, size_t size, const char *name);
int NAME(Complete)(link *handle);
int NAME(GetLinkedCubinSize)(link *handle, size_t *size);
int NAME(GetLinkedCubin)(link *handle, void *cubin);
int NAME(GetErrorLogSize)(link *handle, size_t *size);
int NAME(GetErrorLog)(link *handle, char *log);
int NAME(GetInfoLogSize)(link *handle, size_t *size);
int NAME(GetInfoLog)(link *handle, char *log);

static const char error_log[] = "ptxas module.ptx, line 7; error   : no such thing\n";
static const char info_log[] =
    "ptxas info    : Compiling entry function 'first' for 'sm_90a'\n"
    "ptxas info    : Function properties for first\n"
    "ptxas         .     16 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads\n"
    "ptxas info    : Used 92 registers, used 1 barriers\n"
    "info    : Function properties for 'first':\n"
    "info    : used 93 registers, used 1 barriers, 0 stack, 1024 bytes smem\n";

static int fails(const char *what) {
    const char *chosen = getenv("FAKE_NVJITLINK_FAIL");
    return chosen && strcmp(chosen, what) == 0;
}

static int append(link *handle, const void *bytes, size_t size) {
    char *moved = realloc(handle->cubin, handle->size + size);
    if (!moved) return 6;
    handle->cubin = moved;
    memcpy(moved + handle->size, bytes, size);
    handle->size += size;
    return 0;
}

int NAME(Create)(link **handle, uint32_t count, const char **options) {
    if (fails("alone")) setenv("TVM_PTXAS", "/nowhere/ptxas", 1);
    if (fails("create") || fails("alone")) return 16;
    if (fails("option") && count > 1) return 1;
    link *made = calloc(1, sizeof *made);
    if (!made) return 6;
    int failed = append(made, "\177ELF", 4);
    for (uint32_t i = 0; i < count; i++) failed |= append(made, options[i], strlen(options[i]));
    *handle = made;
    return failed;
}

int NAME(Destroy)(link **handle) {
    free((*handle)->cubin);
    free(*handle);
    *handle = NULL;
    return 0;
}

int NAME(AddData)(link *handle, int kind, const void *data, size_t size, const char *name) {
    if (fails("add") || kind != 2 || !name) return 4;
    return append(handle, data, size);
}

int NAME(Complete)(link *handle) {
    handle->completed = 1;
    return fails("complete") ? 4 : 0;
}

int NAME(GetLinkedCubinSize)(link *handle, size_t *size) {
    *size = fails("size") ? 0 : handle->size;
    return handle->completed ? 0 : 6;
}

int NAME(GetLinkedCubin)(link *handle, void *cubin) {
    if (fails("cubin")) return 6;
    memcpy(cubin, handle->cubin, handle->size);
    return 0;
}

int NAME(GetErrorLogSize)(link *handle, size_t *size) {
    (void)handle;
    *size = sizeof error_log;
    return 0;
}

int NAME(GetErrorLog)(link *handle, char *log) {
    (void)handle;
    memcpy(log, error_log, sizeof error_log);
    return 0;
}

int NAME(GetInfoLogSize)(link *handle, size_t *size) {
    (void)handle;
    *size = sizeof info_log;
    return 0;
}

int NAME(GetInfoLog)(link *handle, char *log) {
    (void)handle;
    memcpy(log, info_log, sizeof info_log);
    return 0;
}

#ifndef FAKE_SUFFIX
int nvJitLinkVersion(unsigned *major, unsigned *minor);

int nvJitLinkVersion(unsigned *major, unsigned *minor) {
    *major = 99;
    *minor = 1;
    return 0;
}
#endif
