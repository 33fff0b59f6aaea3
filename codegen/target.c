/* The targets: names, what a device takes, shared memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen.h"

/* CUDA C++ Programming Guide, "Technical Specifications per Compute Capability": the shared memory one block
 * may have, opted in. feature is the best one that the architecture has. */
static const struct target_row {
    unsigned arch;
    char feature;
    unsigned shared_kib;
} rows[] = {
    {80, '\0', 163}, {86, '\0', 99},  {87, '\0', 163}, {89, '\0', 99},
    {90, 'a', 227},  {100, 'a', 227}, {103, 'a', 227}, {120, 'a', 99},
};

enum { ROWS = sizeof rows / sizeof *rows };

static const struct target_row *find_row(unsigned arch) {
    for (size_t i = 0; i < ROWS; i++)
        if (rows[i].arch == arch) return &rows[i];
    return NULL;
}

const char *tvm_target_name(tvm_target target, char name[16]) {
    if (target.feature)
        snprintf(name, 16, "sm_%u%c", target.arch % 10000, target.feature);
    else
        snprintf(name, 16, "sm_%u", target.arch % 10000);
    return name;
}

/* "sm_80, sm_86, ..., sm_90, sm_90a, ...": all that tvm_target_parse takes. */
static void list_targets(char *out, size_t size) {
    size_t used = 0;
    out[0] = '\0';
    for (size_t i = 0; i < 2 * ROWS && used < size; i++) {
        const struct target_row *row = &rows[i / 2];
        char name[16];
        if (i % 2 && !row->feature) continue;
        tvm_target_name((tvm_target){row->arch, i % 2 ? row->feature : '\0'}, name);
        int n = snprintf(out + used, size - used, "%s%s", i ? ", " : "", name);
        used += n > 0 ? (size_t)n : 0;
    }
}

size_t tvm_target_list(tvm_target *targets, size_t capacity) {
    size_t count = sizeof rows / sizeof *rows;
    for (size_t i = 0; i < count && i < capacity; i++)
        targets[i] = (tvm_target){rows[i].arch, rows[i].feature};
    return count;
}

tvm_status tvm_target_parse(const char *text, tvm_target *target, tvm_diags *diags) {
    for (size_t i = 0; i < ROWS; i++) {
        tvm_target plain = {rows[i].arch, '\0'}, best = {rows[i].arch, rows[i].feature};
        char name[16];
        if (strcmp(text, tvm_target_name(best, name)) == 0) {
            *target = best;
            return TVM_OK;
        }
        if (strcmp(text, tvm_target_name(plain, name)) == 0) {
            *target = plain;
            return TVM_OK;
        }
    }
    char known[160];
    list_targets(known, sizeof known);
    return tvm_diag_add(diags, TVM_UNSUPPORTED, NULL, NULL, "unknown target '%.40s'; known are %s", text,
                        known);
}

tvm_status tvm_target_for_device(int major, int minor, tvm_target *target, tvm_diags *diags) {
    const struct target_row *best = NULL;
    int capability = major * 10 + minor;
    for (size_t i = 0; i < ROWS; i++)
        if ((int)rows[i].arch <= capability) best = &rows[i];
    if (!best || minor < 0 || minor > 9)
        return tvm_diag_add(diags, TVM_UNSUPPORTED, NULL, NULL,
                            "a device of compute capability %d.%d is not supported", major, minor);
    /* Architecture-specific code runs on exactly that architecture. */
    *target = (tvm_target){best->arch, (int)best->arch == capability ? best->feature : '\0'};
    return TVM_OK;
}

bool tvm_target_cubin_runs(tvm_target target, unsigned capability) {
    if (target.feature) return target.arch == capability;
    return target.arch / 10 == capability / 10 && target.arch <= capability;
}

bool tvm_target_ptx_runs(tvm_target target, unsigned capability) {
    return target.feature ? target.arch == capability : target.arch <= capability;
}

unsigned tvm_target_shared_bytes(tvm_target target) {
    const struct target_row *row = find_row(target.arch);
    return (row ? row->shared_kib : 48) * 1024;
}
