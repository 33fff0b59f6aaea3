/* Elements that come to the L2 cache and no further: an instruction for each line of it that a class's
 * elements are in, for all that is known of where lines begin. PTX ISA, "prefetch". (cp.async.bulk.prefetch,
 * one for a run of any length, takes the copy engine as long as copies do: bench/REJECTED.) */
#include "emit.h"
#include "global_transfer.h"

enum { LINE = 128 }; /* bytes */

tvm_status tvm_transfer_prefetch(emitter *e, transfer *t, unsigned align) {
    access_plan plan = {0};
    uint32_t count = 0;
    int64_t line = 0;
    tvm_status status = tvm_transfer_plan(e, t, align, &plan);
    if (status == TVM_OK) tvm_transfer_keep_owners(e, t);
    for (uint32_t i = 0; i < plan.count && status == TVM_OK; i++) {
        const access *a = &plan.accesses[i];
        bool is_same_class = i > 0 && a->class_id == plan.accesses[i - 1].class_id;
        if (is_same_class && a->offset / 8 / LINE == line) continue;
        reg pointer, predicate;
        bool guarded = tvm_transfer_class(e, t, a->class_id, &pointer, &predicate);
        tvm_emit(e, "%s%s%sprefetch.global.L2 [%s+%lld];", guarded ? "@" : "", guarded ? predicate.name : "",
                 guarded ? " " : "", pointer.name, (long long)(a->offset / 8));
        line = a->offset / 8 / LINE;
        count++;
    }
    if (status == TVM_OK) tvm_explain(e, "prefetch.global.L2", 0, count, -1, "");
    tvm_access_plan_free(&plan);
    return status;
}
