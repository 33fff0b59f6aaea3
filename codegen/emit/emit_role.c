/* Roles: the code of a section stands in a branch that its warps alone take, and is emitted for a team of its
 * own; teams of one role run the same code, with a barrier and scratch memory each. */
#include "analysis.h"
#include "kernel.h"
#include "emit_drain.h"
#include "emit.h"
#include "hoist.h"
#include "scratch.h"
#include "target.h"
#include "wgmma_wait.h"

enum {
    GROUP = 4, /* warps of a warpgroup */
    MOST_OF_A_THREAD = 256
};

/* Registers of a thread at kernel entry, with the .maxntid and .minnctapersm that the entry has. */
static uint32_t at_entry(const emitter *e) {
    uint32_t registers = (uint32_t)tvm_target_traits_of(e->k->target)->limits[TVM_LIMIT_REGISTERS];
    uint32_t most = registers / e->k->kernel->resident / (32 * e->k->kernel->warps) / 8 * 8;
    return most < MOST_OF_A_THREAD ? most : MOST_OF_A_THREAD;
}

/* setmaxnreg, where it pays and the role's warpgroups have not done it for another role. */
static const char *find_change(const emitter *e, const tvm_insn *insn, const tvm_role *role) {
    if (role->registers == 0 || !tvm_target_moves_registers(e->k->target, e->k->kernel)) return NULL;
    for (const tvm_insn *at = e->k->kernel->insns; at < insn; at++) {
        if (tvm_insn_class(at) != TVM_CLASS_SECTION) continue;
        tvm_role other = tvm_role_of(e->k->kernel, at);
        if (other.first / GROUP <= (role->end - 1) / GROUP && role->first / GROUP <= (other.end - 1) / GROUP)
            return NULL;
    }
    if (role->registers == at_entry(e)) return NULL;
    return role->registers < at_entry(e) ? "setmaxnreg.dec.sync.aligned.u32"
                                         : "setmaxnreg.inc.sync.aligned.u32";
}

/* The number of the warp in its block, which is the same for all of its threads, as ptxas can see. */
static reg warp_number(emitter *e) {
    reg thread = tvm_pure(e, 'r', "mov.u32 $, %%tid.x;");
    reg warp = tvm_pure(e, 'r', "shr.u32 $, %s, 5;", thread.name);
    return tvm_pure(e, 'r', "shfl.sync.idx.b32 $, %s, 0, 31, -1;", warp.name);
}

static reg after(emitter *e, reg warp, uint32_t first) {
    return first ? tvm_pure(e, 'r', "sub.u32 $, %s, %u;", warp.name, first) : warp;
}

/* Warps outside of [first, end) go on behind the label. */
static void keep_out(emitter *e, uint32_t first, uint32_t end, uint32_t label) {
    if (end - first == e->k->kernel->warps) return;
    reg outside =
        tvm_pure(e, 'p', "setp.ge.u32 $, %s, %u;", after(e, warp_number(e), first).name, end - first);
    tvm_emit(e, "@%s bra.uni $L%u;", outside.name, label);
}

/* Of a role that is less than a warpgroup, the other warps of the group change their registers, too. */
static void change_registers(emitter *e, const tvm_role *role, const char *change) {
    uint32_t first = role->first / GROUP * GROUP, end = (role->end + GROUP - 1) / GROUP * GROUP;
    uint32_t label = tvm_new_label(e);
    keep_out(e, first, end, label);
    tvm_emit(e, "%s %u;", change, (unsigned)role->registers);
    tvm_text_add(&e->body, "$L%u:\n", label);
}

/* Do all instructions after the role's belong to other warps? */
static bool is_last(const emitter *e, const tvm_insn *insn, const tvm_role *role) {
    const tvm_ir_kernel *kernel = e->k->kernel;
    for (uint32_t i = insn->match + 1; i < kernel->insn_count; i = kernel->insns[i].match + 1) {
        if (tvm_insn_class(&kernel->insns[i]) != TVM_CLASS_SECTION) return false;
        tvm_role other = tvm_role_of(kernel, &kernel->insns[i]);
        if (other.first < role->end && role->first < other.end) return false;
    }
    return true;
}

/* What the emitter knows of who runs the code. */
static void set_team(emitter *e, const tvm_insn *insn, const tvm_role *role) {
    uint32_t number = 0, barrier = 1;
    for (const tvm_insn *at = e->k->kernel->insns; at < insn; at++) {
        if (tvm_insn_class(at) != TVM_CLASS_SECTION) continue;
        tvm_role other = tvm_role_of(e->k->kernel, at);
        barrier += tvm_role_teams(&other);
        number++;
    }
    e->team = tvm_role_team(role, 0);
    e->teams = tvm_role_teams(role);
    e->barrier = barrier;
    e->shared = e->k->role_shared[number];
    if (e->teams > 1) e->team_index = tvm_pure_divide(e, after(e, warp_number(e), role->first), role->by);
}

static void set_index(emitter *e, const tvm_insn *insn) {
    const char *index = e->slots[insn->result].reg;
    if (e->teams > 1) {
        tvm_emit(e, "mov.b32 %s, %s;", index, e->team_index.name);
        tvm_fact_forget(e->k, insn->result);
    } else {
        tvm_emit(e, "mov.b32 %s, 0;", index);
        tvm_fact_set_constant(e->k, insn->result, 0);
    }
}

static void explain(emitter *e, const tvm_role *role, const char *change) {
    if (change)
        tvm_explain(e, "branch, setmaxnreg", 0, 1, -1, "");
    else if (role->registers && !tvm_target_moves_registers(e->k->target, e->k->kernel))
        tvm_explain(e, "branch", 0, 1, -1, "setmaxnreg: only wgmma and sums in tensor memory need it");
    else
        tvm_explain(e, "branch", 0, 1, -1, "");
}

tvm_status tvm_emit_ROLE(emitter *e, const tvm_insn *insn) {
    const tvm_role role = tvm_role_of(e->k->kernel, insn);
    const char *change = find_change(e, insn, &role);
    const tvm_team team = e->team;
    const shared_need shared = e->shared;
    uint32_t number = (uint32_t)(insn - e->k->kernel->insns), behind = tvm_new_label(e);
    bool whole = role.first % GROUP == 0 && role.end % GROUP == 0;
    explain(e, &role, change);
    if (change) e->module->sets_registers = true;
    if (change && !whole) change_registers(e, &role, change);
    keep_out(e, role.first, role.end, behind);
    if (change && whole) tvm_emit(e, "%s %u;", change, (unsigned)role.registers);
    tvm_enter_section(e);
    set_team(e, insn, &role);
    set_index(e, insn);
    tvm_scratch_join(e);
    tvm_status status = tvm_emit_range(e, number + 1, insn->match);
    tvm_wgmma_drain(e);
    tvm_leave_section(e);
    if (is_last(e, insn, &role)) tvm_emit_block_exit(e, "ret");
    tvm_text_add(&e->body, "$L%u:\n", behind);
    tvm_fact_forget_assigned(e->k, number, insn->match);
    tvm_scratch_join(e);
    e->team = team;
    e->teams = 1;
    e->barrier = 0;
    e->shared = shared;
    e->position = insn->match + 1;
    return status;
}
