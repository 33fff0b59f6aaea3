/* What code for a context's device, or for a target by name, is made of: a text for `python -m tilusvm info`.
 */
#include "runtime.h"

#include <stdlib.h>
#include <string.h>

#include "codegen.h"
#include "nvjitlink.h"

/* The names of the capabilities that are used where they are there, or are not used, and what is then done.
 */
static void list(tvm_text *out, const char *line, const tvm_target_traits *traits, bool have, bool used) {
    const char *before = ": ";
    for (unsigned c = 0; c < TVM_CAPABILITY_COUNT; c++) {
        if (tvm_traits_have(traits, c) != have || (have && tvm_capability_is_used(c) != used)) continue;
        tvm_text_add(out, "%s%s%s", *before == ':' ? line : "", before, tvm_capability_name(c));
        if (!have) tvm_text_add(out, " (%s)", tvm_capability_otherwise(c));
        before = ", ";
    }
    if (*before == ',') tvm_text_puts(out, "\n");
}

static void write_target(tvm_text *out, unsigned capability, tvm_target target) {
    char name[16];
    tvm_target_name(target, name);
    tvm_target machine;
    bool known = tvm_target_machine(target, capability, &machine);
    char other[16];
    if (known && tvm_target_same(machine, target))
        tvm_text_add(out, "target: %s\n", name);
    else if (known)
        tvm_text_add(out, "target: %s, as asked for; its PTX is compiled for %s\n", name,
                     tvm_target_name(machine, other));
    else
        tvm_text_add(out,
                     "target: %s, as PTX, which the driver compiles: this version knows no target of compute "
                     "capability %u.%u\n",
                     name, capability / 10, capability % 10);
}

static void write_traits(tvm_text *out, const tvm_target_traits *traits) {
    bool wgmma = tvm_traits_have(traits, TVM_HAS_WGMMA), tensor = tvm_traits_have(traits, TVM_HAS_TCGEN05);
    tvm_text_add(out, "shared memory: %d KiB a block\n", traits->limits[TVM_LIMIT_SHARED_MEMORY] / 1024);
    tvm_text_add(out, "registers: %d a multiprocessor\n", traits->limits[TVM_LIMIT_REGISTERS]);
    tvm_text_add(out, "products: %s%smma.sync%s\n", tensor ? "tcgen05, " : "", wgmma ? "wgmma, " : "",
                 tvm_traits_have(traits, TVM_HAS_MMA_BLOCK_SCALE) ? ", mma.sync with scales of blocks" : "");
    tvm_text_add(out, "copies: %scp.async\n", tvm_traits_have(traits, TVM_HAS_BULK) ? "TMA, " : "");
    tvm_text_add(out, "types: f16, bf16, tf32, f64, i8%s%s; others are converted to these in registers\n",
                 wgmma || tensor || tvm_traits_have(traits, TVM_HAS_MMA_F8_CORES) ? ", f8" : "",
                 tvm_traits_have(traits, TVM_HAS_MMA_F8F6F4) ? ", f6, f4" : "");
    list(out, "uses", traits, true, true);
    list(out, "lacks", traits, false, false);
    list(out, "has, but no code uses yet", traits, true, false);
}

static void write_gpu(tvm_text *out, unsigned capability, tvm_target target) {
    write_target(out, capability, target);
    write_traits(out, tvm_target_traits_of(target));
}

static void write_interpreter(tvm_text *out, unsigned number) {
    tvm_target target;
    char name[16];
    if (number && !tvm_target_for_device((int)number / 10, (int)number % 10, &target, NULL))
        tvm_text_add(out, "target: %u: launches see what %s has\n", number, tvm_target_name(target, name));
    else
        tvm_text_puts(out, "target: none: launches see no capability, and limits of 0\n");
    tvm_text_puts(out, "types: all, each instruction as it is defined\n");
}

/* "/usr/local/cuda/bin/ptxas, Cuda compilation tools, release 13.0, V13.0.88" */
static tvm_status write_compilers(tvm_text *out, tvm_diags *diags) {
    char *library = NULL, *ptxas = NULL, *version = NULL;
    tvm_status status = tvm_nvjitlink_find(&library, NULL);
    if (status != TVM_NO_MEMORY) status = tvm_ptxas_find(&ptxas, NULL);
    if (ptxas) status = tvm_ptxas_version(ptxas, &version, NULL);
    tvm_text_add(out, "nvJitLink: %s\n", library ? library : "not found");
    tvm_text_add(out, "ptxas: %s%s%s\n", ptxas ? ptxas : "not found", ptxas ? ", " : "",
                 version ? version
                 : ptxas ? "which does not run"
                         : "");
    free(library), free(ptxas), free(version);
    return status == TVM_NO_MEMORY ? tvm_diag_no_memory(diags) : TVM_OK;
}

static tvm_status write_report(const tvm_context *context, tvm_text *out, tvm_diags *diags) {
    const tvm_device_ops *ops = context->ops;
    unsigned capability = ops->capability ? ops->capability(context->device) : 0;
    if (capability)
        write_gpu(out, capability, *ops->code_target(context->device));
    else
        write_interpreter(out, ops->target(context->device));
    return write_compilers(out, diags);
}

/* Hands over what was written, unless something failed. */
static tvm_status finish(tvm_context *context, tvm_status status, tvm_text *out, char **text,
                         tvm_diags *diags) {
    if (!status && out->failed) status = tvm_diag_no_memory(diags);
    if (status)
        tvm_text_free(out);
    else
        *text = out->data;
    return tvm_context_finish(context, status, diags);
}

tvm_status tvm_device_report(tvm_context *context, char **text) {
    if (!context || !text) return tvm_context_missing(context, __func__);
    tvm_diags diags = {0};
    tvm_text out = {0};
    *text = NULL;
    tvm_status status = tvm_context_usable(context, &diags);
    if (!status) status = write_report(context, &out, &diags);
    return finish(context, status, &out, text, &diags);
}

/* The compute capabilities whose devices run the target's machine code, by the table: "8.9", "10.0, 10.3". */
static void write_devices(tvm_text *out, tvm_target target) {
    tvm_target known[64];
    size_t count = tvm_target_list(known, 64);
    const char *before = "cubins run on: ";
    for (size_t i = 0; i < count && i < 64; i++) {
        if (!tvm_target_cubin_runs(target, known[i].arch)) continue;
        tvm_text_add(out, "%s%u.%u", before, known[i].arch / 10, known[i].arch % 10);
        before = ", ";
    }
    tvm_text_puts(out, "\n");
}

tvm_status tvm_target_report(tvm_context *context, const char *target, char **text) {
    if (!context || !target || !text) return tvm_context_missing(context, __func__);
    tvm_diags diags = {0};
    tvm_text out = {0};
    tvm_target parsed;
    *text = NULL;
    tvm_status status = tvm_context_usable(context, &diags);
    if (!status) status = tvm_target_parse(target, &parsed, &diags);
    if (!status) {
        tvm_text_add(&out, "target: %s\n", target);
        write_devices(&out, parsed);
        write_traits(&out, tvm_target_traits_of(parsed));
    }
    return finish(context, status, &out, text, &diags);
}
