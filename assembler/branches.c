/* .if and .for. */
#include "branches.h"

#include "cursor.h"
#include "directives.h"
#include "expressions.h"
#include "frames.h"
#include "names.h"
#include "report.h"
#include "table.h"

/* ---- .if ---- */

/* The condition of .if and .elif; an error counts as a branch taken, so that nothing of the .if is read.
 * `line`: may a colon follow, and a statement? */
static bool static_condition(tvm_asm *as, bool line, bool *error) {
    bool holds = false;
    bool good = tvm_asm_condition(as, "the condition of .if", &holds);
    if (!good)
        tvm_asm_skip_statement(as);
    else if (!line || !tvm_asm_at(as, ":"))
        good = tvm_asm_expect_end(as);
    *error = !good;
    if (!good) as->text.left_out = true;
    return good && holds;
}

static void enter_branch(tvm_asm *as, tvm_frame *frame, bool holds, bool error) {
    frame->taken = holds || error;
    if (!holds) tvm_asm_skip_to(as, "if", "endif", true);
}

bool tvm_directive_if(tvm_asm *as, const tvm_token *token) {
    bool error, one_line = tvm_asm_is_one_line(as);
    bool holds = static_condition(as, one_line, &error);
    if (one_line) {
        if (error) return false;
        if (!tvm_asm_expect(as, ":", "after the condition")) return false;
        if (!holds) tvm_asm_skip_statement(as);
        return true;
    }
    tvm_frame *frame = tvm_asm_open_frame(as, TVM_FRAME_IF, token);
    if (!frame) return false;
    enter_branch(as, frame, holds, error);
    return true;
}

static bool next_branch(tvm_asm *as, const tvm_token *token, bool is_else) {
    const char *name = is_else ? ".else" : ".elif";
    tvm_frame *frame = tvm_asm_top(as);
    bool good = true;
    if (!frame || frame->kind != TVM_FRAME_IF || frame->source != as->text.source) {
        tvm_asm_error(as, token, NULL, "'%s' without '.if'", name);
        tvm_asm_skip_statement(as);
        return true;
    }
    if (frame->has_else) good = tvm_asm_error(as, token, NULL, "'%s' after '.else'", name);
    good = good && tvm_asm_leave_kernel(as);
    frame->has_else = frame->has_else || is_else;
    if (frame->taken || !good) {
        frame->taken = true;
        tvm_asm_skip_statement(as);
        tvm_asm_skip_to(as, "if", "endif", true);
    } else if (is_else) {
        frame->taken = true;
        if (!tvm_asm_expect_end(as)) tvm_asm_skip_statement(as);
    } else {
        bool error;
        bool holds = static_condition(as, false, &error);
        enter_branch(as, frame, holds, error);
    }
    return true;
}

bool tvm_directive_elif(tvm_asm *as, const tvm_token *token) {
    return next_branch(as, token, false);
}

bool tvm_directive_else(tvm_asm *as, const tvm_token *token) {
    return next_branch(as, token, true);
}

bool tvm_directive_endif(tvm_asm *as, const tvm_token *token) {
    const tvm_frame *frame = tvm_asm_top(as);
    if (!frame || frame->kind != TVM_FRAME_IF || frame->source != as->text.source)
        return tvm_asm_error(as, token, NULL, "'.endif' without '.if'");
    tvm_asm_close_frame(as);
    return tvm_asm_expect_end(as);
}

/* ---- .for ---- */

/* Takes the next value; false when there is none. */
static bool advance(tvm_asm *as, tvm_frame *frame) {
    if (frame->is_list) {
        if (frame->index >= frame->list.as.list.count) return false;
        frame->current = frame->list.as.list.items[frame->index++];
    } else {
        if (frame->step > 0 ? frame->next >= frame->end : frame->next <= frame->end) return false;
        frame->current = tvm_value_integer(frame->next);
        if (__builtin_add_overflow(frame->next, frame->step, &frame->next)) frame->next = frame->end;
    }
    const tvm_token *token = &frame->source->tokens[frame->opener];
    tvm_symbols_enter(&as->statics.names);
    frame->entered = true;
    return tvm_asm_define(as, token, frame->name, frame->name_length, &frame->current) &&
           (frame->current.kind != TVM_VALUE_RECORD || tvm_asm_define_columns(as, token, &frame->current));
}

static void leave_iteration(tvm_asm *as, tvm_frame *frame) {
    if (frame->entered) tvm_symbols_leave(&as->statics.names);
    frame->entered = false;
}

static bool for_range(tvm_asm *as, tvm_frame *frame, const tvm_value *start, const tvm_token *token) {
    if (start->kind == TVM_VALUE_POISON) return false;
    if (start->kind != TVM_VALUE_INTEGER)
        return tvm_asm_error(as, token, NULL, ".for goes over integers `a to b` or a list, not over %s",
                             tvm_value_what(start));
    frame->next = start->as.i;
    frame->step = 1;
    if (!tvm_asm_expect(as, "to", "after the start of .for") ||
        !tvm_asm_static_integer(as, INT64_MIN, INT64_MAX, "the end of .for", &frame->end))
        return false;
    const tvm_token *step = tvm_asm_ahead(as, 1);
    if (tvm_asm_accept(as, "step") &&
        !tvm_asm_static_integer(as, INT64_MIN, INT64_MAX, "the step of .for", &frame->step))
        return false;
    return frame->step != 0 || tvm_asm_invalid(as, step, NULL, "the step of .for is 0");
}

static bool for_header(tvm_asm *as, tvm_frame *frame) {
    const char *name;
    tvm_value value;
    const tvm_token *token = tvm_asm_peek(as);
    if (!tvm_asm_expect_name(as, "the name that .for defines", &name, &frame->name_length)) return false;
    frame->name = tvm_arena_text(&as->keep, name, frame->name_length);
    if (!frame->name) return tvm_asm_no_memory(as);
    if (!tvm_asm_check_name(as, token, name, frame->name_length)) return false;
    bool in = tvm_asm_accept(as, "in");
    if (!in && !tvm_asm_expect(as, "=", "after the name of .for")) return false;
    token = tvm_asm_peek(as);
    if (!tvm_asm_static(as, "what .for goes over", &value)) return false;
    if (value.kind == TVM_VALUE_TABLE && !tvm_asm_rows(as, value.as.record.table, &value)) return false;
    if (in && value.kind != TVM_VALUE_LIST && value.kind != TVM_VALUE_POISON)
        return tvm_asm_error(as, token, NULL, "'in' goes over a list or a table, not over %s",
                             tvm_value_what(&value));
    frame->is_list = value.kind == TVM_VALUE_LIST;
    frame->list = tvm_value_copy(&as->keep, &value);
    if (frame->is_list && frame->list.kind == TVM_VALUE_POISON) return tvm_asm_no_memory(as);
    if (!frame->is_list && !for_range(as, frame, &value, token)) return false;
    return true;
}

/* A .for that is not executed, or not any more: to behind its .endfor, or its line. */
static bool leave_for(tvm_asm *as, bool at_end) {
    uint32_t line_end = tvm_asm_top(as)->line_end;
    if (!at_end && !line_end) {
        tvm_asm_skip_to(as, "for", "endfor", false);
        if (tvm_asm_peek(as)->kind == TVM_TOKEN_END)
            return true; /* reported there: the frame is still open */
        tvm_asm_next(as);
        tvm_asm_next(as);
    }
    if (line_end) as->text.at = line_end;
    leave_iteration(as, tvm_asm_top(as));
    as->text.frame_count--;
    return tvm_asm_expect_end(as);
}

bool tvm_directive_for(tvm_asm *as, const tvm_token *token) {
    /* The frame is pushed when complete: errors in the header are not in an iteration. */
    tvm_frame frame = {.kind = TVM_FRAME_FOR, .source = as->text.source};
    if (tvm_asm_is_one_line(as)) {
        frame.line_end = as->text.at;
        while (as->text.source->tokens[frame.line_end].kind != TVM_TOKEN_NEWLINE) frame.line_end++;
    }
    bool good = for_header(as, &frame);
    if (good)
        good = frame.line_end ? tvm_asm_expect(as, ":", "after what .for goes over") : tvm_asm_expect_end(as);
    if (!good) as->text.left_out = true;
    if (!good && as->text.source->tokens[as->text.at - 1].kind != TVM_TOKEN_NEWLINE)
        tvm_asm_skip_statement(as);
    tvm_frame *pushed = tvm_asm_open_frame(as, TVM_FRAME_FOR, token);
    if (!pushed) return false;
    frame.opener = pushed->opener;
    frame.resume = as->text.at;
    *pushed = frame;
    return (good && advance(as, pushed)) || leave_for(as, false);
}

bool tvm_asm_next_iteration(tvm_asm *as, tvm_frame *frame) {
    tvm_asm_leave_kernel(as);
    leave_iteration(as, frame);
    if (!advance(as, frame)) return leave_for(as, true);
    as->text.at = frame->resume;
    return true;
}

bool tvm_asm_at_line_end(const tvm_asm *as) {
    const tvm_frame *frame = &as->text.frames[as->text.frame_count - 1];
    return frame->kind == TVM_FRAME_FOR && frame->line_end && frame->source == as->text.source &&
           as->text.at >= frame->line_end;
}

bool tvm_directive_endfor(tvm_asm *as, const tvm_token *token) {
    tvm_frame *frame = tvm_asm_innermost(as, TVM_FRAME_FOR);
    if (!frame) return tvm_asm_error(as, token, NULL, "'.endfor' without '.for'");
    return tvm_asm_next_iteration(as, frame);
}
