/* What the blocks of a cluster do together: PTX ISA, "barrier.cluster", "mapa". */
#include "emit_cluster.h"

#include "analysis.h"
#include "barrier.h"

/* Is the last operand, a rank or the axes of a multicast, given? */
static bool last_given(const tvm_ir_kernel *kernel, const tvm_insn *insn) {
    return tvm_operands(kernel, insn)[insn->count - 1].kind != TVM_OPERAND_NONE;
}

bool tvm_cluster_access(const tvm_ir_kernel *kernel, const tvm_insn *insn) {
    if (insn->op == TVM_OP_LOAD_CLUSTER || insn->op == TVM_OP_STORE_CLUSTER) return true;
    return (insn->op == TVM_OP_ATOMIC || insn->op == TVM_OP_ATOMIC_FETCH) && last_given(kernel, insn);
}

/* Does the instruction reach into other blocks' shared memory? */
static bool reaches(const emitter *e, const tvm_insn *insn) {
    if (tvm_cluster_access(e->k->kernel, insn) || insn->op == TVM_OP_COPY_CLUSTER) return true;
    return (insn->op == TVM_OP_ARRIVE_BARRIER || insn->op == TVM_OP_COPY_BULK) &&
           last_given(e->k->kernel, insn);
}

/* May another block still reach into the memory of one that has come to its end? Not where all meet behind
 * the last instruction that does. */
static bool may_reach_at_end(const emitter *e) {
    unsigned depth = 0;
    for (uint32_t i = e->k->kernel->insn_count; i-- > 0;) {
        const tvm_insn *insn = &e->k->kernel->insns[i];
        tvm_op_class class = tvm_insn_class(insn);
        if (reaches(e, insn)) return true;
        if (insn->op == TVM_OP_SYNC_CLUSTER && depth == 0) return false;
        if (class == TVM_CLASS_END) depth++;
        if (class == TVM_CLASS_LOOP || class == TVM_CLASS_BRANCH || class == TVM_CLASS_SECTION) depth--;
    }
    return false;
}

/* fence CLUSTER_BARRIER */
void tvm_emit_cluster_meet(emitter *e) {
    tvm_emit(e, "barrier.cluster.arrive.release.aligned;");
    tvm_emit(e, "barrier.cluster.wait.acquire.aligned;");
}

/* A block's shared memory lives as long as others may reach for it. */
void tvm_emit_cluster_end(emitter *e) {
    if (tvm_cluster_blocks(e->k->kernel) > 1 && may_reach_at_end(e)) tvm_emit_cluster_meet(e);
}

tvm_status tvm_emit_SYNC_CLUSTER(emitter *e, const tvm_insn *insn) {
    (void)insn;
    if (tvm_cluster_blocks(e->k->kernel) == 1) {
        tvm_emit_barrier(e);
        tvm_explain(e, "bar.sync", 0, 1, -1, "barrier.cluster: the cluster is one block");
        return TVM_OK;
    }
    tvm_emit_proxy_fence(e);
    tvm_emit_cluster_meet(e);
    e->scratch_read = 0;
    tvm_explain(e, "barrier.cluster", 0, 1, -1, "");
    return TVM_OK;
}

bool tvm_emit_cluster_guard(emitter *e, uint32_t rank) {
    uint32_t most = tvm_cluster_blocks(e->k->kernel) - 1;
    if (tvm_fact_at_most(e->k, rank, most)) return false;
    reg at = tvm_emit_expr(e, rank), p = tvm_new_pred(e);
    tvm_emit(e, "setp.gt.%s %s, %s, %u;", node_of(e->k, rank)->type.bits == 64 ? "u64" : "u32", p.name,
             at.name, most);
    tvm_emit_trap(e, p, true);
    return true;
}

reg tvm_emit_cluster_address(emitter *e, reg address, uint32_t rank) {
    reg block = tvm_emit_expr(e, rank), out = tvm_new_r(e);
    if (node_of(e->k, rank)->type.bits == 64) {
        reg low = tvm_new_r(e);
        tvm_emit(e, "cvt.u32.u64 %s, %s;", low.name, block.name);
        block = low;
    }
    tvm_emit(e, "mapa.shared::cluster.u32 %s, %s, %s;", out.name, address.name, block.name);
    return out;
}
