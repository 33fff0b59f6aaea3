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

/* Rounds of as many turns as roles find out for themselves. */
#define ROUNDS(COPY_COUNT, USE_COUNT)                                                                           \
    "%s = alloc-shared f32[1, 64], row_major\n%full = alloc-barrier [1]\n"                                      \
    "%empty = alloc-barrier [1], arrivals 2, open\nrole copy warps 2 to 3\nfor %w = 0 to n\n" COPY_COUNT        \
    "for %i = 0 to %c\nwait-barrier %empty\ncopy-bulk %s, x[%i, 0], barrier %full\narrive-barrier %full\nend\n" \
    "end\nend\nrole use warps 0 to 2 by 1\nfor %u = 0 to n\n" USE_COUNT                                         \
    "if %u == m\nsync\nend\nfor %j = 0 to %d\nwait-barrier %full\n"                                             \
    "%v = load-shared %s[0, 0], local(1, 2).spatial(1, 32)\narrive-barrier %empty\nend\nend\nend\n"

/* Each thread stores the tile of a turn, as all of them have it. */
#define LOOP(FOR, INDEX, AFTER)                                                                              \
    "%t = alloc-shared f32[256], row_major\n" FOR "store-shared %t[" INDEX                                   \
    "], alloc-register(f32[32], replicated(64).local(32), init 1.0)\nend\n" AFTER

/* Each warp stores the elements below a scalar's multiple by another thread than those from it on. */
#define PARTS(SCALAR, END, BETWEEN)                                                                          \
    "%t = alloc-shared f32[256], row_major\n%w = " SCALAR "\n"                                               \
    "for %i = 0 to min(" END                                                                                 \
    ", 256)\nstore-shared %t[%i], alloc-register(f32[1], replicated(64), init 1.0)\n"                        \
    "end\n" BETWEEN                                                                                          \
    "for %j = %w to 64\nstore-shared %t[%j * 4], alloc-register(f32[4], replicated(16).spatial(4), init 1.0)\nend\n"

static const small_kernel small_kernels[] = {
    {"rows of blocks", ".cluster 2",
     ROWS_OF_BLOCKS "sync-cluster\n" SENDS("cluster.rank") "sync-cluster\n" RESULT, TVM_PROVED, TVM_PROVED},
    {"one row of both blocks", ".cluster 2",
     ROWS_OF_BLOCKS "sync-cluster\n" SENDS("0") "sync-cluster\n" RESULT, TVM_NOT_PROVED, TVM_PROVED},
    {"a row that is read at once", ".cluster 2",
     ROWS_OF_BLOCKS "sync-cluster\n" SENDS("cluster.rank") "sync\n" RESULT, TVM_NOT_PROVED, TVM_PROVED},
    {"a tensor that is not there yet", ".cluster 2",
     ROWS_OF_BLOCKS SENDS("cluster.rank") "sync-cluster\n" RESULT, TVM_NOT_PROVED, TVM_PROVED},
    {"the other block's row, beside a copy of the own one", ".cluster 2",
     ROWS_OF_BLOCKS "sync-cluster\nstore-cluster %s[0, 0], 1 - cluster.rank, %x\n"
                    "store-bulk y[0], %s[0, 0], [64]\nwait-bulk 0\nsync-cluster\n",
     TVM_NOT_PROVED, TVM_PROVED},
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
    {"an element that one of several threads stores", "",
     "%t = alloc-shared i32[4]\nstore-cluster %t[0], 0, alloc-register(i32[4], replicated(64).local(4), init 2)\n"
     "%w = load-cluster %t[0], 0, replicated(64).local(4)\n",
     TVM_NOT_PROVED, TVM_PROVED},
    {"rows of blocks that are out of step", ".cluster 2",
     ROWS_OF_BLOCKS "if cluster.rank == 0\nsync-cluster\nend\n" SENDS("cluster.rank") "sync-cluster\n" RESULT,
     TVM_NOT_PROVED, TVM_NOT_PROVED},
    {"a race behind a role that waits for ever", "",
     "%b = alloc-barrier [1]\nrole a warps 0 to 1\nwait-barrier %b\nend\n%t = alloc-shared f32[96]\n"
     "store-shared %t, alloc-register(f32[96], spatial(96), init 1.0)\n"
     "%u = load-shared %t, flatten(column_spatial(3, 32))\n",
     TVM_NOT_PROVED, TVM_NOT_PROVED},
    {"roles that count alike", "", ROUNDS("%c = %w < m ? m : 3\n", "%d = %u < m ? m : 3\n"), TVM_PROVED,
     TVM_PROVED},
    {"roles that count on", "",
     ROUNDS("%t = %w * 2\nif %w > m\n%t = %t - 1\nend\n%c = %t\n",
            "%q = %u * 2\nif %u > m\n%q = %q - 1\nend\n%d = %q\n"),
     TVM_PROVED, TVM_PROVED},
    {"roles that count differently", "", ROUNDS("%c = %w < m ? m : 3\n", "%d = %u < m ? n : 3\n"), TVM_PROVED,
     TVM_NOT_PROVED},
    {"roles that count on differently", "",
     ROUNDS("%t = %w * 2\nif %w > m\n%t = %t - 1\nend\n%c = %t\n",
            "%q = %u * 2\nif %u > m\n%q = %q - 1\n%q = %q - 1\nend\n%d = %q\n"),
     TVM_PROVED, TVM_NOT_PROVED},
    {"teams that count differently", "",
     ROUNDS("%c = %w < m ? m : 3\n", "%d = %u < m ? m : 3 + role.index\n"), TVM_PROVED, TVM_NOT_PROVED},
    {"a count that memory tells", "",
     ROUNDS("%c = i32(load-scalar(y[%w]))\n", "%d = i32(load-scalar(y[%u]))\n"), TVM_PROVED, TVM_NOT_PROVED},
    {"tiles before and behind a scalar", "", PARTS("min(max(n, 0), 64)", "%w * 4", ""), TVM_PROVED,
     TVM_PROVED},
    {"those of a scalar that has changed", "",
     PARTS("min(max(n, 0), 64)", "%w * 4", "%w = min(max(m, 0), 64)\n"), TVM_NOT_PROVED, TVM_PROVED},
    {"tiles that end behind it", "", PARTS("min(max(n, 0), 64)", "%w * 4 + 1", ""), TVM_NOT_PROVED,
     TVM_PROVED},
    {"a scalar whose multiples wrap", "", PARTS("n", "%w * 4", ""), TVM_NOT_PROVED, TVM_PROVED},
};

/* malloc'ed: the whole program. */
static inline char *small_text(const small_kernel *of) {
    tvm_text text = {0};
    tvm_text_add(
        &text,
        ".vasm 7\n.kernel k(n: i32, m: i32, x: global f32[n, 64], y: global f32[64])\n.warps %d\n%s\n.grid 4\n"
        ".assume n >= 0\n%s.end\n",
        strstr(of->body, "role") ? 3 : 2, of->head, of->body);
    char *copy = strdup(tvm_text_string(&text));
    if (copy == NULL) abort();
    tvm_text_free(&text);
    return copy;
}

#endif
