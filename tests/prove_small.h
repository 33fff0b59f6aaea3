/* Small kernels of which the prover has to say this and no more: what is proved, and what is not. */
#ifndef TVM_TESTS_PROVE_SMALL_H
#define TVM_TESTS_PROVE_SMALL_H

#include <stdlib.h>
#include <string.h>

#include "prove.h"
#include "text.h"

typedef struct small_kernel {
    const char *what, *head, *body;
    tvm_proof_verdict races, deadlocks;
} small_kernel;

#define ROWS_OF_BLOCKS                                                                                       \
    "%s = alloc-shared f32[2, 64], row_major\n%x = alloc-register f32[1, 64], spatial(1, 64), init 1.0\n"
#define RESULT     "store-global y, squeeze(load-shared(%s[0, 0], spatial(1, 64)), 0)\n"
#define SENDS(ROW) "store-cluster %s[" ROW ", 0], 0, %x\nstore-cluster %s[" ROW ", 0], 1, %x\n"
#define RING(WAIT, LAST, BARRIER)                                                                                   \
    "%s = alloc-shared f32[1, 64], row_major\n%full = alloc-barrier [1]\n"                                          \
    "%empty = alloc-barrier [1], arrivals 2, open\n%met = alloc-barrier [1], arrivals 2\n"                          \
    "role copy warps 2 to 3\nfor %i = 0 to n\nwait-barrier %empty\ncopy-bulk %s, x[%i, 0], barrier %full\n"         \
    "arrive-barrier %full\nend\nend\nrole use warps 0 to 2 by 1\nfor %i = 0 to n\n" WAIT                            \
    "%v = load-shared %s[0, 0], local(1, 2).spatial(1, 32)\narrive-barrier %empty\nend\n" BARRIER                   \
    "if role.index == 0\nstore-shared %s[0, 0], alloc-register(f32[1, 64], local(1, 2).spatial(1, 32))\nend\n" LAST \
    "end\n"

/* Each thread stores the tile of a turn, as all of them have it. */
#define LOOP(FOR, INDEX, AFTER)                                                                              \
    "%t = alloc-shared f32[256], row_major\n" FOR "store-shared %t[" INDEX                                   \
    "], alloc-register(f32[32], replicated(64).local(32), init 1.0)\nend\n" AFTER

static const small_kernel small_kernels[] = {
    {"rows of blocks", ".cluster 2",
     ROWS_OF_BLOCKS "sync-cluster\n" SENDS("cluster.rank") "sync-cluster\n" RESULT, TVM_PROVED, TVM_PROVED},
    {"one row of both blocks", ".cluster 2",
     ROWS_OF_BLOCKS "sync-cluster\n" SENDS("0") "sync-cluster\n" RESULT, TVM_NOT_PROVED, TVM_PROVED},
    {"a row that is read at once", ".cluster 2",
     ROWS_OF_BLOCKS "sync-cluster\n" SENDS("cluster.rank") "sync\n" RESULT, TVM_NOT_PROVED, TVM_PROVED},
    {"a tensor that is not there yet", ".cluster 2",
     ROWS_OF_BLOCKS SENDS("cluster.rank") "sync-cluster\n" RESULT, TVM_NOT_PROVED, TVM_PROVED},
    {"a sync-cluster of one block", ".cluster 2", "if cluster.rank == 0\nsync-cluster\nend\n", TVM_PROVED,
     TVM_NOT_PROVED},
    {"a block that leaves", ".cluster 2", "if cluster.rank == 0\nexit\nend\nsync-cluster\n", TVM_NOT_PROVED,
     TVM_NOT_PROVED},
    {"a cluster that leaves", ".cluster 2", "if block.x / 2 == 1\nexit\nend\nsync-cluster\n", TVM_PROVED,
     TVM_PROVED},
    {"a stage that is used again", "",
     RING("wait-barrier %full\n", "", "arrive-barrier %met\nwait-barrier %met\n"), TVM_PROVED, TVM_PROVED},
    {"one that others still read", "", RING("wait-barrier %full\n", "", ""), TVM_NOT_PROVED, TVM_PROVED},
    {"one that a copy comes to", "",
     RING("wait-barrier %full\n", "wait-barrier %full\n", "arrive-barrier %met\nwait-barrier %met\n"),
     TVM_NOT_PROVED, TVM_NOT_PROVED},
    {"tiles of a loop", "", LOOP("for %i = 0 to n\n", "%i * 32 + 32", ""), TVM_PROVED, TVM_PROVED},
    {"tiles that overlap", "", LOOP("for %i = 0 to n\n", "%i * 16 + 16", ""), TVM_NOT_PROVED, TVM_PROVED},
    {"tiles of a loop that are read behind it", "",
     LOOP("for %i = 0 to n\n", "%i * 32", "%w = load-shared %t[0], spatial(64)\n"), TVM_NOT_PROVED,
     TVM_PROVED},
    {"tiles of a loop that begins again", "",
     "%t = alloc-shared f32[256], row_major\nfor %j = 0 to n\nfor %i = 0 to n\nif n == 3\nbreak\nend\n"
     "store-shared %t[%i * 32], alloc-register(f32[32], replicated(64).local(32), init 1.0)\nend\nend\n",
     TVM_NOT_PROVED, TVM_PROVED},
    {"a semaphore", "", "%a = alloc-global i32[1], clean\nlock-semaphore %a[0], n\n", TVM_PROVED,
     TVM_PROVED_IF},
};

/* malloc'ed: the whole program. */
static inline char *small_text(const small_kernel *of) {
    tvm_text text = {0};
    tvm_text_add(
        &text,
        ".vasm 7\n.kernel k(n: i32, x: global f32[n, 64], y: global f32[64])\n.warps %d\n%s\n.grid 4\n"
        ".assume n >= 0\n%s.end\n",
        strstr(of->body, "role") ? 3 : 2, of->head, of->body);
    char *copy = strdup(tvm_text_string(&text));
    if (copy == NULL) abort();
    tvm_text_free(&text);
    return copy;
}

#endif
