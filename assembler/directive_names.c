/* The names of directives. */
#include "directive_names.h"

#include <string.h>

static const char *const names[] = {
#define TVM_DIRECTIVE(name, where) #name,
#include "directive_names.def"
#undef TVM_DIRECTIVE
};

const char *tvm_asm_directive_name(size_t index) {
    return index < sizeof names / sizeof *names ? names[index] : NULL;
}

bool tvm_asm_is_directive(const char *name, size_t length) {
    const char *known;
    for (size_t i = 0; (known = tvm_asm_directive_name(i)); i++)
        if (strlen(known) == length && memcmp(known, name, length) == 0) return true;
    return false;
}
