/* Roles: where they stand, how many teams there are, what they have of the registers. */
#include "verify_state.h"

enum {
    GROUP = 4, /* warps of a warpgroup, which changes its registers together */
    GROUPS = TVM_MAX_THREADS / 32 / GROUP,
    REGISTERS = 1 << 16, /* of a multiprocessor */
    MOST_OF_A_THREAD = 256
};

typedef struct roles {
    tvm_verify_state *state;
    const tvm_ir_kernel *kernel;
    uint32_t teams;
    const tvm_insn *last;       /* that changes registers */
    uint32_t registers[GROUPS]; /* by warpgroup; 0: as at the beginning */
    bool plain[GROUPS];         /* has a role that says nothing of registers */
} roles;

/* What a thread has at the beginning (CUDA C++ Programming Guide, "Occupancy"): in steps of 8, whole warps.
 */
static uint32_t at_the_beginning(const tvm_ir_kernel *kernel) {
    uint32_t most = REGISTERS / kernel->resident / (32 * kernel->warps) / 8 * 8;
    return most < MOST_OF_A_THREAD ? most : MOST_OF_A_THREAD;
}

static void check_registers(roles *r, const tvm_insn *insn, const tvm_role *role) {
    const tvm_ir_kernel *kernel = r->kernel;
    uint32_t first = role->first / GROUP, last = (role->end - 1) / GROUP, sum = 0;
    bool whole = role->first % GROUP == 0 && role->end % GROUP == 0 && role->by % GROUP == 0;
    for (uint32_t g = first; g <= last; g++) {
        if (role->registers ? r->plain[g] || (r->registers[g] && r->registers[g] != role->registers)
                            : r->registers[g] != 0)
            tvm_verify_error(r->state, insn,
                             "warps %u to %u are a warpgroup, whose roles all have the same registers",
                             GROUP * g, GROUP * g + GROUP);
        if (role->registers)
            r->registers[g] = role->registers;
        else
            r->plain[g] = true;
    }
    if (!role->registers) return;
    r->last = insn;
    if (kernel->warps % GROUP != 0 || (!whole && first != last))
        tvm_verify_error(
            r->state, insn,
            "registers are those of whole warpgroups: expected multiples of %d warps, or less than one",
            GROUP);
    for (uint32_t g = 0; g < kernel->warps / GROUP; g++)
        sum += r->registers[g] ? r->registers[g] : at_the_beginning(kernel);
    if (sum > at_the_beginning(kernel) * (kernel->warps / GROUP))
        tvm_verify_error(r->state, insn,
                         "the warpgroups have %u registers a thread in all, expected at most %u times %u",
                         sum, kernel->warps / GROUP, at_the_beginning(kernel));
}

static void check_role(roles *r, const tvm_insn *insn) {
    tvm_role role = tvm_role_of(r->kernel, insn);
    uint32_t before = r->teams;
    r->teams += tvm_role_teams(&role);
    if (before <= TVM_MAX_TEAMS && r->teams > TVM_MAX_TEAMS)
        tvm_verify_error(r->state, insn, "%u teams in the roles of a kernel, expected at most %d", r->teams,
                         TVM_MAX_TEAMS);
    check_registers(r, insn, &role);
}

void tvm_verify_roles(tvm_verify_state *state) {
    roles r = {.state = state, .kernel = state->kernel};
    unsigned depth = 0;
    bool in_role = false;
    for (uint32_t i = 0; i < r.kernel->insn_count && !tvm_verify_done(state); i++) {
        const tvm_insn *insn = &r.kernel->insns[i];
        tvm_op_class class = tvm_insn_class(insn);
        if (depth == 0 && class != TVM_CLASS_SECTION && r.last)
            tvm_verify_error(state, insn, "only roles may follow one that changes its registers");
        if (in_role && class == TVM_CLASS_EXIT) tvm_verify_error(state, insn, "a role has no exit");
        if (class == TVM_CLASS_SECTION && depth > 0)
            tvm_verify_error(state, insn, "a role stands outside of for, while, if and other roles");
        else if (class == TVM_CLASS_SECTION)
            check_role(&r, insn);
        if (tvm_class_opens(class)) {
            in_role = in_role || class == TVM_CLASS_SECTION;
            depth++;
        }
        if (class == TVM_CLASS_END && --depth == 0) in_role = false;
    }
}
