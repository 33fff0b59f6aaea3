/* Which of the mistakes of ptxas_mistakes.def a ptxas makes: each row's kernel is compiled, and the listing
 * of its instructions judged. */
#ifndef TVM_CODEGEN_PTXAS_MISTAKES_H
#define TVM_CODEGEN_PTXAS_MISTAKES_H

#include <stddef.h>

#include "diag.h"

typedef enum tvm_ptxas_finding {
    TVM_PTXAS_UNCLEAR, /* the listing is neither of those that are known */
    TVM_PTXAS_WRONG,
    TVM_PTXAS_RIGHT
} tvm_ptxas_finding;

/* A basic regular expression (POSIX), and how often it is found in a listing, each time behind the time
 * before. */
typedef struct tvm_listing_sign {
    const char *pattern;
    unsigned least, most;
} tvm_listing_sign;

enum { TVM_LISTING_SIGNS = 2 };

typedef struct tvm_ptxas_mistake {
    const char *name, *target, *first, *last, *what;
    tvm_listing_sign wrong[TVM_LISTING_SIGNS], right[TVM_LISTING_SIGNS]; /* pattern NULL: no more */
    const char *body;
} tvm_ptxas_mistake;

const tvm_ptxas_mistake *tvm_ptxas_mistakes(size_t *count);

/* The whole PTX of a mistake's kernel, malloc'ed; NULL: no memory. */
char *tvm_ptxas_mistake_ptx(const tvm_ptxas_mistake *mistake);

/* What the listing of the kernel shows. TVM_NO_MEMORY. */
tvm_status tvm_ptxas_judge_listing(const tvm_ptxas_mistake *mistake, const char *listing,
                                   tvm_ptxas_finding *finding, tvm_diags *diags);

/* Compiles by `ptxas`, lists by `nvdisasm`, and judges. An error: one of them failed; nothing can be told. */
tvm_status tvm_ptxas_judge(const tvm_ptxas_mistake *mistake, const char *ptxas, const char *nvdisasm,
                           tvm_ptxas_finding *finding, tvm_diags *diags);

#endif
