#include "warnings.h"

#include <string.h>

#include "language.h"
#include "prove.h"
#include "warn_race.h"
#include "warn_reduce.h"

typedef struct kind {
    const char *name;
    unsigned since; /* version of the language from which on it is on; 0: it is off */
    tvm_status (*find)(const tvm_ir_program *program, tvm_diags *diags);
} kind;

static const kind kinds[] = {
    {"prove", TVM_LANGUAGE_VERSION, tvm_warn_refuted},
    {"race", 0, tvm_warn_races},
    {"reduce", 1, tvm_warn_reductions},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

bool tvm_warnings_choose(tvm_warnings *chosen, const char *word) {
    bool off = strncmp(word, "no-", 3) == 0;
    for (unsigned i = 0; i < KINDS; i++) {
        if (strcmp(word + (off ? 3 : 0), kinds[i].name) != 0) continue;
        const unsigned bit = 1U << i;
        chosen->on = off ? chosen->on & ~bit : chosen->on | bit;
        chosen->off = off ? chosen->off | bit : chosen->off & ~bit;
        return true;
    }
    return false;
}

tvm_status tvm_warnings_find(const tvm_ir_program *program, const tvm_warnings *chosen, unsigned version,
                             tvm_diags *diags) {
    tvm_status status = TVM_OK;
    for (unsigned i = 0; i < KINDS && status == TVM_OK; i++) {
        bool usual = kinds[i].since && version >= kinds[i].since;
        if (chosen->on >> i & 1 || (usual && !(chosen->off >> i & 1))) status = kinds[i].find(program, diags);
    }
    return status;
}
