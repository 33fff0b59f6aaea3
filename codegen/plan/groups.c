#include "groups.h"

#include <stdlib.h>

static const group_entry *entry_of(const kernel_state *k, const tvm_insn *insn) {
    return &k->groups->entries[insn - k->kernel->insns];
}

void tvm_groups_free(kernel_state *k) {
    if (!k->groups) return;
    free(k->groups->passed);
    free(k->groups);
    k->groups = NULL;
}

const tvm_insn *tvm_group_next(const kernel_state *k, const tvm_insn *insn) {
    uint32_t next = entry_of(k, insn)->next;
    return next == TVM_NONE ? NULL : &k->kernel->insns[next];
}

const char *tvm_group_done(const kernel_state *k, const tvm_insn *insn) {
    return entry_of(k, insn)->done;
}

const char *tvm_group_refused(const kernel_state *k, const tvm_insn *insn, const char **pattern_name) {
    const group_entry *of = entry_of(k, insn);
    if (!of->why) return NULL;
    *pattern_name = of->refused;
    return of->why;
}
