/* ptxas in tests. What it says of a PTX text is the same each time, so texts that it took without a spill and
 * without a loss are kept by their hash, and are not given to it again:
 *
 *   $srcdir/tests/ptxas_verdicts.txt  comes with the source: a line a text, its hash and what it is, and a
 * line `ptxas VERSION`, of which alone it holds. `make update-ptxas-verdicts` writes it.
 *   $TVM_TEST_VERDICTS                the texts of this build's runs, in the same form; without the variable
 *                                     tests/ptxas_verdicts.new
 *
 * TVM_TEST_PTXAS has the digits with which the hashes of those texts begin that the first file does not
 * answer for: they are given to ptxas again. Without the variable these are all texts with TVM_TEST_ALL, else
 * none. tests/run_all names the digit of the commit that it tests, so that commits check the file in turn.
 * Texts that ptxas refuses, or takes with a spill or a loss, are given to it each time. */
#ifndef TVM_TESTS_PTXAS_KIT_H
#define TVM_TESTS_PTXAS_KIT_H

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "codegen.h"
#include "extent_kit.h"
#include "ptxas_mistakes_kit.h"

typedef struct ptxas_verdict {
    bool known;         /* false: there is no ptxas, and no verdict is kept */
    const char *kernel; /* the first that spills or that ptxas tells a loss of; NULL: none */
    const char *loss;   /* its loss, or "" */
    int stored, loaded; /* bytes of its spills */
} ptxas_verdict;

enum { PTXAS_HASH_MAX = 40, PTXAS_LINE_MAX = 400 };

/* Is there a line `start`...? */
static inline bool ptxas_listed(const char *path, const char *start) {
    char line[PTXAS_LINE_MAX];
    bool found = false;
    FILE *file = fopen(path, "r");
    if (file == NULL) return false;
    while (!found && fgets(line, sizeof line, file) != NULL) found = strncmp(line, start, strlen(start)) == 0;
    fclose(file);
    return found;
}

static inline const char *ptxas_new_verdicts(void) {
    const char *path = getenv("TVM_TEST_VERDICTS");
    return path != NULL ? path : "tests/ptxas_verdicts.new";
}

/* Is the text given to ptxas whatever the file says that comes with the source? */
static inline bool ptxas_asked_anew(const char *hash) {
    const char *digits = getenv("TVM_TEST_PTXAS");
    return digits != NULL ? strchr(digits, hash[0]) != NULL : test_all();
}

static inline bool ptxas_kept(const char *hash, const char *version) {
    char path[4200], first[PTXAS_LINE_MAX];
    const char *top = getenv("srcdir");
    if (ptxas_listed(ptxas_new_verdicts(), hash)) return true;
    snprintf(path, sizeof path, "%s/tests/ptxas_verdicts.txt", top != NULL ? top : ".");
    snprintf(first, sizeof first, "ptxas %s\n", version);
    return !ptxas_asked_anew(hash) && ptxas_listed(path, first) && ptxas_listed(path, hash);
}

/* Adds a line to the texts of this build's runs, with the first line of `rest`, unless one begins like it: in
 * one write, so that lines of suites that run at once stay whole. */
static inline void ptxas_note(const char *start, const char *rest) {
    char line[PTXAS_LINE_MAX];
    if (ptxas_listed(ptxas_new_verdicts(), start)) return;
    int length = snprintf(line, sizeof line - 1, "%s %.*s", start, (int)strcspn(rest, "\n"), rest);
    if (length > PTXAS_LINE_MAX - 2) length = PTXAS_LINE_MAX - 2;
    line[length++] = '\n';
    int file = open(ptxas_new_verdicts(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (file < 0) return; /* then it is given to ptxas again */
    if (write(file, line, (size_t)length) != length) fprintf(stderr, "a verdict of ptxas is not kept\n");
    close(file);
}

static inline void ptxas_hash(const tvm_module *module, const char *version, char hash[PTXAS_HASH_MAX]) {
    XXH64_hash_t seed = XXH3_64bits(version, strlen(version));
    XXH128_hash_t h = XXH3_128bits_withSeed(module->ptx, module->ptx_size, seed);
    snprintf(hash, PTXAS_HASH_MAX, "%016llx%016llx", (unsigned long long)h.high64,
             (unsigned long long)h.low64);
}

/* The first kernel that spills or that ptxas tells a loss of. */
static inline ptxas_verdict ptxas_usage(const tvm_module *module) {
    for (size_t k = 0; k < module->kernel_count; k++) {
        const tvm_kernel_code *code = &module->kernels[k];
        if (code->abi.threads == 0) continue; /* assumes another target */
        if (code->spill_stores != 0 || code->spill_loads != 0 || code->loss[0] != '\0')
            return (ptxas_verdict){true, code->name, code->loss, code->spill_stores, code->spill_loads};
    }
    return (ptxas_verdict){.known = true, .loss = ""};
}

/* TVM_PTXAS where the module's PTX has the occasion of a mistake that ptxas is known to make. */
static inline tvm_status ptxas_may_err(const tvm_module *module, const char *what, tvm_diags *diags) {
    const char *line = "", *name = scan_occasion(module->ptx, &line);
    if (name == NULL) return TVM_OK;
    return tvm_diag_add(diags, TVM_PTXAS, NULL, NULL, "%s: ptxas may compile wrong (%s): %.*s", what, name,
                        (int)strcspn(line, "\n"), line);
}

/* What the ptxas that a user would get says of the module; `what` names it in the lists. The verdict points
 * into the module. An error: what tvm_ptxas says, or ptxas_may_err. */
static inline tvm_status ptxas_judge(tvm_module *module, const char *what, ptxas_verdict *verdict,
                                     tvm_diags *diags) {
    char *path = NULL, *version = NULL, hash[PTXAS_HASH_MAX];
    *verdict = (ptxas_verdict){.loss = ""};
    tvm_status status = ptxas_may_err(module, what, diags);
    if (status != TVM_OK || tvm_ptxas_find(&path, NULL) != TVM_OK) return status;
    status = tvm_ptxas_version(path, &version, diags);
    if (status == TVM_OK) {
        ptxas_hash(module, version, hash);
        verdict->known = true;
        if (!ptxas_kept(hash, version)) {
            status = tvm_ptxas(module, path, diags);
            *verdict = ptxas_usage(module);
        }
        if (status == TVM_OK && verdict->kernel == NULL) {
            const char *file = *what == '/' ? strrchr(what, '/') + 1 : what; /* its path is this machine's */
            ptxas_note("ptxas", version);
            ptxas_note(hash, file);
        }
    }
    free(version);
    free(path);
    return status;
}

#endif
