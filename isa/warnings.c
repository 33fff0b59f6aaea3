#include "warnings.h"

#include <string.h>

#include "warn_race.h"
#include "warn_reduce.h"

typedef struct kind {
    const char *name;
    bool is_usual;
    tvm_status (*find)(const tvm_ir_program *program, tvm_diags *diags);
} kind;

static const kind kinds[] = {
    {"race", false, tvm_warn_races},
    {"reduce", true, tvm_warn_reductions},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

unsigned tvm_warnings_usual(void) {
    unsigned set = 0;
    for (unsigned i = 0; i < KINDS; i++) set |= (unsigned)kinds[i].is_usual << i;
    return set;
}

unsigned tvm_warnings_all(void) {
    return (1U << KINDS) - 1;
}

bool tvm_warnings_choose(unsigned *set, const char *word) {
    bool off = strncmp(word, "no-", 3) == 0;
    for (unsigned i = 0; i < KINDS; i++) {
        if (strcmp(word + (off ? 3 : 0), kinds[i].name) != 0) continue;
        *set = off ? *set & ~(1U << i) : *set | 1U << i;
        return true;
    }
    return false;
}

tvm_status tvm_warnings_find(const tvm_ir_program *program, unsigned set, tvm_diags *diags) {
    tvm_status status = TVM_OK;
    for (unsigned i = 0; i < KINDS && status == TVM_OK; i++)
        if (set >> i & 1) status = kinds[i].find(program, diags);
    return status;
}
