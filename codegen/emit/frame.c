#include "frame.h"

#include <stdio.h>

static const char *special(const emitter *e, const char *name, unsigned first, unsigned axis, char text[16]) {
    if (e->body_frame)
        snprintf(text, 16, "%%t%u", first + axis);
    else
        snprintf(text, 16, "%%%s.%c", name, "xyz"[axis < 3 ? axis : 0]);
    return text;
}

const char *tvm_frame_block(const emitter *e, unsigned axis, char text[16]) {
    return special(e, "ctaid", FRAME_BLOCK, axis, text);
}

const char *tvm_frame_grid(const emitter *e, unsigned axis, char text[16]) {
    return special(e, "nctaid", FRAME_GRID, axis, text);
}

const char *tvm_frame_param(const emitter *e, uint32_t row, const char *type, reg out, char text[64]) {
    if (e->body_frame)
        snprintf(text, 64, "ld.shared.%s %s, [%%t%d+%u];", type, out.name, FRAME_ROW,
                 FRAME_PARAMS + (unsigned)e->code->abi.params[row].offset);
    else
        snprintf(text, 64, "ld.param.%s %s, [param_%u];", type, out.name, (unsigned)row);
    return text;
}

/* Other warps of a persistent kernel do not come to the body's barrier. */
const char *tvm_frame_barrier(const emitter *e, uint32_t number, char text[32]) {
    if (e->body_frame)
        snprintf(text, 32, "%u, %u", (unsigned)number, (unsigned)e->code->abi.threads);
    else
        snprintf(text, 32, "%u", (unsigned)number);
    return text;
}

/* ---- waits ---- */

/* fence SEMAPHORE: whose barrier is the caller's. A warp asks again as a whole, as it comes to that barrier.
 */
void tvm_frame_wait_text(const frame_wait *w, tvm_text *out) {
    tvm_text_add(out, "$L%u:\n", (unsigned)w->again);
    tvm_text_add(out, "\tsetp.eq.u32 %s, %%t%d, 0;\n", w->differs.name, FRAME_VALUE);
    tvm_text_add(out, "\t@%s bra $L%u;\n", w->differs.name, (unsigned)w->more);
    tvm_text_add(out, "\tcvt.u64.u32 %s, %%t%d;\n", w->address.name, FRAME_WAIT);
    tvm_text_add(out, "\tadd.s64 %s, %s, %%td%d;\n", w->address.name, w->address.name, FRAME_COUNTERS);
    tvm_text_add(out, "\tmov.b32 %s, %%t%d;\n", w->found.name, FRAME_VALUE);
    tvm_text_add(out, "\t@%s ld.acquire.gpu.global.b32 %s, [%s];\n", w->first.name, w->found.name,
                 w->address.name);
    tvm_text_add(out, "\tsetp.lt.u32 %s, %s, %%t%d;\n", w->differs.name, w->found.name, FRAME_VALUE);
    tvm_text_add(out, "\tvote.sync.any.pred %s, %s, 0xffffffff;\n", w->differs.name, w->differs.name);
    tvm_text_add(out, "\t@%s bra.uni $L%u;\n", w->differs.name, (unsigned)w->again);
    tvm_text_add(out, "\tmov.b32 %%t%d, 0;\n", FRAME_VALUE);
    tvm_text_add(out, "\tsetp.eq.u32 %s, %%t%d, 0;\n", w->differs.name, FRAME_MORE_COUNT);
    tvm_text_add(out, "\t@%s bra $L%u;\n", w->differs.name, (unsigned)w->more);
    tvm_text_add(out, "\tld.param.b64 %s, [param_1];\n", w->waits.name);
    tvm_text_add(out, "\tmul.wide.u32 %s, %%t%d, 8;\n", w->address.name, FRAME_MORE);
    tvm_text_add(out, "\tadd.s64 %s, %s, %s;\n", w->address.name, w->address.name, w->waits.name);
    tvm_text_add(out, "\tld.global.nc.v2.b32 {%%t%d, %%t%d}, [%s];\n", FRAME_WAIT, FRAME_VALUE,
                 w->address.name);
    tvm_text_add(out, "\tadd.u32 %%t%d, %%t%d, 1;\n", FRAME_MORE, FRAME_MORE);
    tvm_text_add(out, "\tsub.u32 %%t%d, %%t%d, 1;\n", FRAME_MORE_COUNT, FRAME_MORE_COUNT);
    tvm_text_add(out, "\tbra $L%u;\n", (unsigned)w->again);
    tvm_text_add(out, "$L%u:\n", (unsigned)w->more);
}

void tvm_frame_stamp(reg first, reg time, frame_time number, tvm_text *out) {
    tvm_text_add(out, "\tmov.u64 %s, %%globaltimer;\n", time.name);
    tvm_text_add(out, "\t@%s st.global.b64 [%%td%d+%d], %s;\n", first.name, FRAME_STAMPS, 8 * (int)number,
                 time.name);
}
