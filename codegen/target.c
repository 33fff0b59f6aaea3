/* Targets by name, and which target a device takes. */
#include "target.h"

#include <stdio.h>
#include <string.h>

const tvm_target_record *tvm_target_record_of(tvm_target target) {
    for (size_t i = 0; i < tvm_target_record_count; i++)
        if (tvm_target_same(tvm_target_records[i].target, target)) return &tvm_target_records[i];
    return &tvm_target_records[0];
}

const tvm_target_record *tvm_target_first_with(tvm_capability capability) {
    size_t i = 0;
    while (i + 1 < tvm_target_record_count && !tvm_traits_have(&tvm_target_records[i].traits, capability))
        i++;
    return &tvm_target_records[i];
}

bool tvm_target_same(tvm_target a, tvm_target b) {
    return a.arch == b.arch && a.feature == b.feature;
}

const tvm_target_traits *tvm_target_traits_of(tvm_target target) {
    return &tvm_target_record_of(target)->traits;
}

bool tvm_target_has(tvm_target target, tvm_capability capability) {
    return tvm_traits_have(tvm_target_traits_of(target), capability);
}

bool tvm_target_moves_registers(tvm_target target, const tvm_ir_kernel *kernel) {
    return tvm_target_has(target, TVM_HAS_SETMAXNREG) &&
           (tvm_target_has(target, TVM_HAS_WGMMA) || tvm_has_tensor_memory(kernel));
}

const char *tvm_target_name(tvm_target target, char name[16]) {
    if (target.feature)
        snprintf(name, 16, "sm_%u%c", target.arch % 10000, target.feature);
    else
        snprintf(name, 16, "sm_%u", target.arch % 10000);
    return name;
}

size_t tvm_target_list(tvm_target *targets, size_t capacity) {
    size_t count = 0;
    for (size_t i = 0; i < tvm_target_record_count; i++) {
        bool last = i + 1 == tvm_target_record_count;
        if (!last && tvm_target_records[i + 1].target.arch == tvm_target_records[i].target.arch) continue;
        if (count < capacity) targets[count] = tvm_target_records[i].target;
        count++;
    }
    return count;
}

/* "sm_80, sm_86, ..., sm_90, sm_90a, ...": all that tvm_target_parse takes. */
static void list_targets(char *out, size_t size) {
    size_t used = 0;
    out[0] = '\0';
    for (size_t i = 0; i < tvm_target_record_count && used < size; i++) {
        char name[16];
        tvm_target_name(tvm_target_records[i].target, name);
        int n = snprintf(out + used, size - used, "%s%s", i ? ", " : "", name);
        used += n > 0 ? (size_t)n : 0;
    }
}

tvm_status tvm_target_parse(const char *text, tvm_target *target, tvm_diags *diags) {
    for (size_t i = 0; i < tvm_target_record_count; i++) {
        char name[16];
        if (strcmp(text, tvm_target_name(tvm_target_records[i].target, name)) != 0) continue;
        *target = tvm_target_records[i].target;
        return TVM_OK;
    }
    char known[256];
    list_targets(known, sizeof known);
    return tvm_diag_add(diags, TVM_UNSUPPORTED, NULL, NULL, "unknown target '%.40s'; known are %s", text,
                        known);
}

/* The latest record that a device takes. `older` is the device's capability, or a lower one, whose devices
 * are to take it, too. */
static const tvm_target_record *record_for(unsigned capability, unsigned older) {
    const tvm_target_record *best = NULL;
    for (size_t i = 0; i < tvm_target_record_count; i++) {
        tvm_target target = tvm_target_records[i].target;
        if (tvm_target_ptx_runs(target, capability) && tvm_target_ptx_runs(target, older))
            best = &tvm_target_records[i];
    }
    return best;
}

tvm_status tvm_target_for_device(int major, int minor, tvm_target *target, tvm_diags *diags) {
    bool exists = major >= 0 && minor >= 0 && minor <= 9;
    unsigned capability = exists ? (unsigned)(major * 10 + minor) : 0;
    const tvm_target_record *best = record_for(capability, capability);
    if (!best)
        return tvm_diag_add(diags, TVM_UNSUPPORTED, NULL, NULL,
                            "a device of compute capability %d.%d is not supported", major, minor);
    *target = best->target;
    return TVM_OK;
}

tvm_status tvm_target_asked(unsigned asked, unsigned capability, tvm_target *target, tvm_diags *diags) {
    const tvm_target_record *best = asked <= capability ? record_for(capability, asked) : NULL;
    if (!best)
        return tvm_diag_add(diags, TVM_UNSUPPORTED, NULL,
                            "ask for the device's own compute capability or a lower one, 80 or more",
                            "a device of compute capability %u.%u runs no code for target %u",
                            capability / 10, capability % 10, asked);
    *target = best->target;
    return TVM_OK;
}

const tvm_target_traits *tvm_target_traits_for(unsigned capability) {
    const tvm_target_record *best = record_for(capability, capability);
    return best ? &best->traits : NULL;
}

bool tvm_target_machine(tvm_target target, unsigned capability, tvm_target *machine) {
    *machine = target;
    if (tvm_target_cubin_runs(target, capability)) return true;
    *machine = (tvm_target){capability, '\0'};
    return tvm_target_ptx_runs(target, capability) &&
           tvm_target_same(tvm_target_record_of(*machine)->target, *machine);
}

/* The first record of the architecture; NULL where none is known. */
static const tvm_target_record *record_of_arch(unsigned arch) {
    for (size_t i = 0; i < tvm_target_record_count; i++)
        if (tvm_target_records[i].target.arch == arch) return &tvm_target_records[i];
    return NULL;
}

bool tvm_target_ptx_runs(tvm_target target, unsigned capability) {
    if (target.arch == capability) return true;
    if (target.arch > capability) return false;
    return !target.feature ||
           (capability <= tvm_target_record_of(target)->last && record_of_arch(capability) != NULL);
}

bool tvm_target_cubin_runs(tvm_target target, unsigned capability) {
    const tvm_target_record *own = record_of_arch(target.arch), *other = record_of_arch(capability);
    if (target.arch == capability) return true;
    return target.arch / 10 == capability / 10 && tvm_target_ptx_runs(target, capability) &&
           !(own && own->is_tegra) && !(other && other->is_tegra);
}

bool tvm_target_is_later(tvm_target a, tvm_target b) {
    return tvm_target_record_of(a) > tvm_target_record_of(b);
}

unsigned tvm_target_shared_bytes(tvm_target target) {
    return (unsigned)tvm_target_traits_of(target)->limits[TVM_LIMIT_SHARED_MEMORY];
}
