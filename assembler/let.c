/* .let: names of launch-time values. */
#include "let.h"

#include "cursor.h"
#include "directives.h"
#include "expressions.h"
#include "names.h"
#include "report.h"
#include "scalars.h"

static bool launch_value(tvm_asm *as, const tvm_token *token, const tvm_value *value) {
    if (value->kind == TVM_VALUE_POISON) return false;
    if (!tvm_value_is_scalar(value))
        return tvm_asm_error(as, token, "other values are defined with .const", "expected a scalar, found %s",
                             tvm_value_what(value));
    return value->kind != TVM_VALUE_EXPR ||
           tvm_asm_launch_time(as, token, value->as.expr, TVM_LEAF_GRID, "a value of .let");
}

bool tvm_asm_let_value(tvm_asm *as, const tvm_token *token, const tvm_value *let, tvm_value *value) {
    const tvm_source *outer_source = as->text.let_source, *source = as->text.source;
    const tvm_token *outer_token = as->text.let_token;
    uint32_t at = as->text.at;
    if (++as->text.nesting > TVM_ASM_NESTING || as->text.tokens > TVM_ASM_TOKENS)
        return tvm_asm_error(as, token, "does the value depend on itself?", "values of .let nested too deep");
    if (!as->text.let_token) {
        as->text.let_source = as->text.source;
        as->text.let_token = token;
    }
    as->text.source = let->as.let.source;
    as->text.at = let->as.let.at;
    const tvm_token *first = tvm_asm_peek(as);
    bool good = tvm_asm_expression(as, value) && launch_value(as, first, value);
    as->text.source = source;
    as->text.at = at;
    as->text.let_source = outer_source;
    as->text.let_token = outer_token;
    as->text.nesting--;
    return good;
}

/* In a kernel the value is read here, once; elsewhere the parameters are not known, and it is read where it
 * is used. */
static bool one_let(tvm_asm *as) {
    const char *name;
    uint32_t length;
    const tvm_token *token = tvm_asm_peek(as);
    if (!tvm_asm_expect_name(as, "the name of a launch-time value", &name, &length) ||
        !tvm_asm_expect(as, "=", "after the name of the value"))
        return false;
    const tvm_token *at = tvm_asm_peek(as);
    tvm_value value = {.kind = TVM_VALUE_LET, .as.let = {as->text.source, as->text.at}};
    bool good = true;
    if (as->kernel.begun && !as->kernel.is_entry) {
        good = tvm_asm_expression(as, &value) && launch_value(as, at, &value);
    } else {
        tvm_asm_skip_expression(as);
    }
    if (!good) value = tvm_value_poison();
    return tvm_asm_define(as, token, name, length, &value) && good;
}

bool tvm_directive_let(tvm_asm *as, const tvm_token *token) {
    (void)token;
    return tvm_asm_each(as, one_let);
}
