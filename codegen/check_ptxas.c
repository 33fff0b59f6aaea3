/* tvm-cc --check-ptxas: which mistakes the ptxas at hand makes. */
#include "check_ptxas.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen.h"
#include "ptxas.h"
#include "ptxas_mistakes.h"

typedef enum verdict { HAS_IT, RIGHT, UNCLEAR, NOT_JUDGED, VERDICTS } verdict;

static void print_verdict(const tvm_ptxas_mistake *mistake, verdict given, const tvm_diags *why) {
    static const char *const words[VERDICTS] = {"has it", "right", "cannot tell", "not judged"};
    printf("%-11s  %-19s  %-6s  %s (seen in %s", words[given], mistake->name, mistake->target, mistake->what,
           mistake->first);
    if (strcmp(mistake->first, mistake->last)) printf(" to %s", mistake->last);
    puts(")");
    if (why->count > 0) printf("%-11s  %s\n", "", why->items[0].message);
}

/* Why nothing can be told stands below the mistake. */
static tvm_status judge(const tvm_ptxas_mistake *mistake, const char *ptxas, const char *nvdisasm,
                        verdict *given) {
    static const verdict of[] = {
        [TVM_PTXAS_WRONG] = HAS_IT, [TVM_PTXAS_RIGHT] = RIGHT, [TVM_PTXAS_UNCLEAR] = UNCLEAR};
    tvm_ptxas_finding finding = TVM_PTXAS_UNCLEAR;
    tvm_diags why = {0};
    tvm_status status = mistake->body ? tvm_ptxas_judge(mistake, ptxas, nvdisasm, &finding, &why) : TVM_OK;
    *given = mistake->body ? of[finding] : NOT_JUDGED;
    if (status != TVM_NO_MEMORY) print_verdict(mistake, *given, &why);
    tvm_diags_free(&why);
    return status == TVM_NO_MEMORY ? status : TVM_OK;
}

static tvm_status judge_all(const char *ptxas, const char *nvdisasm, tvm_diags *diags) {
    unsigned counts[VERDICTS] = {0};
    size_t count;
    const tvm_ptxas_mistake *mistakes = tvm_ptxas_mistakes(&count);
    for (size_t i = 0; i < count; i++) {
        verdict given;
        if (judge(&mistakes[i], ptxas, nvdisasm, &given)) return tvm_diag_no_memory(diags);
        counts[given]++;
    }
    printf("of %zu mistakes it has %u, and not %u; %u cannot be told, %u are not judged\n", count,
           counts[HAS_IT], counts[RIGHT], counts[UNCLEAR], counts[NOT_JUDGED]);
    if (counts[UNCLEAR] == 0) return TVM_OK;
    return tvm_diag_add(
        diags, TVM_UNSUPPORTED, NULL,
        "read what nvdisasm -c lists of the kernel, and give the row of ptxas_mistakes.def a sign of it",
        "whether this ptxas makes %u of the mistakes cannot be told", counts[UNCLEAR]);
}

tvm_status tvm_check_ptxas(const char *path, tvm_diags *diags) {
    char *found = NULL, *nvdisasm = NULL, *version = NULL;
    tvm_status status = path ? TVM_OK : tvm_ptxas_find(&found, diags);
    if (!path) path = found;
    if (!status) status = tvm_ptxas_version(path, &version, diags);
    if (!status) status = tvm_nvdisasm_find(path, &nvdisasm, diags);
    if (!status) {
        printf("%s: %s\n", path, version);
        status = judge_all(path, nvdisasm, diags);
    }
    free(nvdisasm);
    free(version);
    free(found);
    return status;
}
