/* What the cases with costs are worth for some arguments, for whoever asks why a kernel was chosen. */
#include "variants_impl.h"

static void print_case(const tvm_variants *t, uint32_t i, const tvm_launch_env *env, bool taken,
                       tvm_text *out) {
    const tvm_ir_case *made = &t->entry->cases[i];
    const tvm_eval_env known = tvm_launch_eval_env(env);
    tvm_scalar holds = {.i = 1}, cost;
    bool fits;
    if (made->condition != TVM_NONE &&
        (tvm_expr_eval(&t->entry->head, made->condition, &known, &holds, NULL) || !holds.i))
        return;
    tvm_text_add(out, "case %u: %s", i + 1, tvm_string(t->program, t->program->kernels[made->kernel].name));
    if (made->cost == TVM_NONE)
        tvm_text_puts(out, ", no cost");
    else if (tvm_expr_eval(&t->entry->head, made->cost, &known, &cost, NULL))
        tvm_text_puts(out, ", a cost that has no value");
    else
        tvm_text_add(out, ", cost %lld", (long long)cost.i);
    if (tvm_room_for(&t->room, made->kernel, &fits, NULL) == TVM_OK && !fits)
        tvm_text_puts(out, ", needs more shared memory than a block has");
    tvm_text_puts(out, taken ? ", taken\n" : "\n");
}

tvm_status tvm_variants_costs(const tvm_variants *variants, const tvm_launch_env *env, tvm_text *out,
                              tvm_diags *diags) {
    const tvm_ir_entry *entry = variants->entry;
    uint32_t chosen;
    tvm_status status = tvm_variants_choose(variants, env, &chosen, diags);
    for (uint32_t i = 0; !status && i < entry->case_count; i++) {
        if (i > chosen && (entry->cases[i].cost == TVM_NONE || entry->cases[chosen].cost == TVM_NONE))
            break; /* what follows was not looked at */
        if (entry->cases[i].cost != TVM_NONE || i == chosen) print_case(variants, i, env, i == chosen, out);
    }
    return status;
}
