/* Which statement comes next. */
#include "run.h"

#include "branches.h"
#include "cursor.h"
#include "directives.h"
#include "frames.h"
#include "graph.h"
#include "language.h"
#include "macro.h"
#include "report.h"
#include "statement.h"

static void end_of_source(tvm_asm *as) {
    unsigned files = as->text.frame_count;
    while (files && as->text.frames[files - 1].kind != TVM_FRAME_FILE) files--;
    tvm_asm_close_frames(as, files);
    tvm_asm_close_frame(as);
}

static bool within_limits(tvm_asm *as) {
    if (++as->text.statements <= TVM_ASM_STATEMENTS && as->text.tokens <= TVM_ASM_TOKENS) return true;
    tvm_asm_error(as, tvm_asm_peek(as), NULL,
                  "too long: more than %d statements or %d tokens, with those that .for repeats",
                  TVM_ASM_STATEMENTS, TVM_ASM_TOKENS);
    as->report.stopped = true;
    return false;
}

static void one_statement(tvm_asm *as) {
    const tvm_token *token = tvm_asm_peek(as);
    tvm_arena_reset(&as->scratch);
    as->text.nesting = 0; /* after an error it is left where it was */
    if (!within_limits(as)) return;
    if (!as->text.version_seen && !(tvm_asm_at(as, ".") && tvm_asm_is(as, tvm_asm_ahead(as, 1), "vasm"))) {
        as->text.version_seen = true;
        tvm_asm_expected(as, token, NULL, "'.vasm %d' before anything else", TVM_LANGUAGE_VERSION);
    }
    const tvm_macro *macro = tvm_asm_macro_at(as);
    if (tvm_asm_at(as, ".")) {
        tvm_asm_directive(as);
    } else if (macro) {
        tvm_asm_call_macro(as, macro);
    } else if (as->kernel.is_entry) {
        tvm_asm_expected(as, token, "'.case KERNEL if CONDITION'", "a directive");
        tvm_asm_skip_statement(as);
    } else if (as->kernel.is_graph) {
        tvm_asm_graph_statement(as);
    } else if (as->kernel.begun) {
        tvm_asm_statement(as);
    } else {
        tvm_asm_expected(as, token, "instructions stand between .kernel and .end", "a directive");
        tvm_asm_skip_statement(as);
    }
}

void tvm_asm_run(tvm_asm *as) {
    while (!as->report.stopped && as->text.frame_count) {
        if (tvm_asm_at_line_end(as)) {
            if (within_limits(as)) tvm_asm_next_iteration(as, tvm_asm_top(as));
            continue;
        }
        switch (tvm_asm_peek(as)->kind) {
        case TVM_TOKEN_END:
            end_of_source(as);
            break;
        case TVM_TOKEN_NEWLINE:
            tvm_asm_next(as);
            break;
        default:
            one_statement(as);
            break;
        }
    }
}
