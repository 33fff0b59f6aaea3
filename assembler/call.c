/* Calls of functions in expressions. */
#include "call.h"

#include <inttypes.h>

#include "report.h"

bool tvm_asm_arguments(tvm_asm *as, const tvm_call *call, uint32_t least, uint32_t most) {
    if (call->count >= least && call->count <= most) return true;
    const char *quantity =
        call->count < least ? (least == most ? "" : "at least ") : (least == most ? "" : "at most ");
    uint32_t expected = call->count < least ? least : most;
    return tvm_asm_error(as, call->token, NULL, "%.*s takes %s%u argument%s, not %u", (int)call->length,
                         call->name, quantity, expected, expected == 1 ? "" : "s", call->count);
}

bool tvm_asm_argument_integer(tvm_asm *as, const tvm_call *call, uint32_t index, int64_t least, int64_t most,
                              int64_t *value) {
    const tvm_value *argument = &call->args[index];
    if (argument->kind != TVM_VALUE_INTEGER)
        return tvm_asm_error(as, call->token, NULL, "argument %u of %.*s is a static integer, not %s",
                             index + 1, (int)call->length, call->name, tvm_value_what(argument));
    *value = argument->as.i;
    if (*value >= least && *value <= most) return true;
    return tvm_asm_invalid(as, call->token, NULL,
                           "argument %u of %.*s is from %" PRId64 " to %" PRId64 ", not %" PRId64, index + 1,
                           (int)call->length, call->name, least, most, *value);
}
