/* Kernels that go through patterns of codegen/emit/fences.def round by round, on many blocks at a time, and
 * count the elements that are not those of the round. tests/gpu/litmus.c runs them on a GPU, for 10^8 rounds
 * each; tests/test_litmus.c a few on the interpreter. A round's tile is what an earlier one's was but for its
 * values, so that what is read too early, or written too late, has another value. */
#ifndef TVM_TESTS_LITMUS_ROUNDS_H
#define TVM_TESTS_LITMUS_ROUNDS_H

#include <stdbool.h>
#include <stddef.h>

enum {
    ROUNDS_ROWS = 64, /* of x and u: tiles, all of whose elements are the tile's number */
    ROUNDS_TILE = 128,
    ROUNDS_WIDE = 144, /* of u, whose rows are no multiples of 16 bytes: threads copy them */
    ROUNDS_FLAGS = 4
};

typedef struct rounds_row {
    const char *patterns; /* that it goes through */
    const char *head, *body;
    bool waits; /* a block waits for one of a higher index, but not in the last round */
} rounds_row;

#define ROUNDS_BEGIN                                                                                         \
    ".vasm 7\n.kernel k(blocks: i32, rounds: i32, x: global f32[64, 16, 8], u: global f32[64, 16, 9],\n"     \
    "    y: global f32[blocks, 16, 8], f: global i32[blocks, 4], bad: global i32[blocks, 16, 8])\n"

#define ALONE          ".warps 4\n.grid blocks\n"
#define WARP           ".warps 1\n.grid blocks\n"
#define PAIR           ".warps 4\n.cluster 2\n.grid blocks\n.assume blocks % 2 == 0\n"
#define HALVES         ".warps 8\n.grid blocks\n"
#define BAD(layout)    "%bad = alloc-register i32[16, 8], " layout ", init 0\n"
#define NONE           BAD("auto(16, 8)")
#define NONE_ACROSS    BAD("column_spatial(16, 8)")
#define OUT            "store-global bad[block.x, 0, 0], %bad\n"
#define S              "%s = alloc-shared f32[16, 8], row_major\n"
#define FULL           "%full = alloc-barrier [1]\n"
#define EMPTY          "%empty = alloc-barrier [1], open\n"
#define LOOP           "for %i = 0 to rounds\n"
#define TILE(value)    "alloc-register(f32[16, 8], auto(16, 8), init " value ")"
#define ROUND          TILE("f32(%i)") "\n"
#define COUNT(what, v) "%bad = %bad + cast(" what " != " v ", i32)\n"
#define ACROSS         "load-shared(%s, column_spatial(16, 8))"
#define MINE           "load-shared(%s, auto(16, 8))"
#define STORED         "load-global(y[block.x, 0, 0], auto(16, 8))"
#define OTHER          "1 - cluster.rank"
#define LANDED         "arrive-barrier %full\nwait-barrier %full\n"
#define SENT           "arrive-barrier %full, rank " OTHER "\nwait-barrier %full\n"
#define AGAIN          "arrive-barrier %empty, rank " OTHER "\nend\n"
#define STORE          "store-bulk y[block.x, 0, 0], %s\n"
#define WIDE           "copy-bulk %s, u[%i % 64, 0, 0], [16, 8], barrier %full\n"
#define MMA_C          "spatial(4, 1).local(1, 8).mma.m16n8k16.C"
#define BESIDE         "f[block.x - 1, 0]"

/* Pairs of blocks that pass a tile to and fro; scope: what the exchange says behind its operands. */
#define EXCHANGED(scope)                                                                                            \
    NONE LOOP "if block.x % 2 == 0\nput-global y[block.x, 0, 0], " TILE("f32(%i + 1)") scope                        \
        "\nif %i + 1 < rounds\n"                                                                                    \
        "%back = take-global y[block.x + 1, 0, 0], auto(16, 8)" scope "\n" COUNT(                                   \
            "%back",                                                                                                \
            "f32(%i + 2)") "end\nelse\n%there = take-global y[block.x - 1, 0, 0], auto(16, 8)" scope                \
                           "\n" COUNT(                                                                              \
                               "%there",                                                                            \
                               "f32(%i + 1)") "if %i + 1 < rounds\nput-global y[block.x, 0, 0], %there + 1.0" scope \
                                              "\nend\nend\nend\n" OUT

static const rounds_row rounds_rows[] = {
    {"TEAM_BARRIER", ALONE,
     NONE_ACROSS S LOOP "store-shared %s, " ROUND "sync\n" COUNT(ACROSS, "f32(%i)") "sync\nend\n" OUT, false},
    {"WARP_BARRIER", WARP,
     BAD("column_spatial(8, 4).local(2, 2)") S LOOP "store-shared %s, " ROUND "sync-warp\n" COUNT(
         "load-shared(%s, column_spatial(8, 4).local(2, 2))", "f32(%i)") "sync-warp\nend\n" OUT,
     false},
    {"BLOCK_MBARRIER", HALVES,
     S FULL EMPTY "role give warps 0 to 4\n" LOOP "wait-barrier %empty\nstore-shared %s, " ROUND
                  "arrive-barrier %full\nend\nend\nrole take warps 4 to 8\n" NONE_ACROSS LOOP
                  "wait-barrier %full\n" COUNT(ACROSS, "f32(%i)") "arrive-barrier %empty\nend\n" OUT "end\n",
     false},
    {"NAMED_BARRIER", HALVES,
     S "%met = alloc-barrier [2], arrivals 2\nrole give warps 0 to 4\n" LOOP "store-shared %s, " ROUND
       "sync-barrier %met[0]\nsync-barrier %met[1]\nend\nend\nrole take warps 4 to 8\n" NONE_ACROSS LOOP
       "sync-barrier %met[0]\n" COUNT(ACROSS, "f32(%i)") "sync-barrier %met[1]\nend\n" OUT "end\n",
     false},
    {"COPY_GROUP", ALONE,
     NONE_ACROSS S LOOP "copy-async %s, x[%i % 64, 0, 0]\ncommit-group\nwait-group 0\nsync\n" COUNT(
         ACROSS, "f32(%i % 64)") "sync\nend\n" OUT,
     false},
    {"COPY_ARRIVAL", ALONE,
     NONE_ACROSS S FULL LOOP WIDE LANDED COUNT(ACROSS, "f32(%i % 64)") "sync\nend\n" OUT, false},
    {"BULK_LANDED BULK_OVER_READ", ALONE,
     NONE S FULL LOOP
     "copy-bulk %s, x[%i % 64, 0, 0], barrier %full\n" LANDED COUNT(MINE, "f32(%i % 64)") "sync\nend\n" OUT,
     false},
    {"TO_ENGINE BULK_STORE_READ BULK_STORED", ALONE,
     NONE S LOOP "store-shared %s, " TILE(
         "f32(%i) + 0.5") "\nsync\n" STORE "wait-bulk 0, read\nstore-shared %s, " ROUND
                          "wait-bulk 0\n" COUNT(STORED, "f32(%i) + 0.5") "sync\n" STORE "wait-bulk 0\n" COUNT(
                              STORED, "f32(%i)") "sync\nend\n" OUT,
     false},
    {"TO_ENGINE_WARP", WARP,
     NONE S LOOP "store-shared %s, " ROUND "sync-warp\n" STORE
                 "wait-bulk 0\n" COUNT(STORED, "f32(%i)") "sync\nend\n" OUT,
     false},
    {"ENGINE_OVER_THREADS", ALONE,
     NONE S LOOP
     "store-global y[block.x, 0, 0], " ROUND "store-shared %s, " ROUND "sync\n"
     "reduce-bulk add, y[block.x, 0, 0], %s\nwait-bulk 0\n" COUNT(STORED, "f32(%i) * 2.0") "sync\nend\n" OUT,
     false},
    {"GLOBAL_TO_ENGINE", ALONE,
     NONE S FULL LOOP
     "store-global y[block.x, 0, 0], " ROUND "sync\n"
     "copy-bulk %s, y[block.x, 0, 0], barrier %full\n" LANDED COUNT(MINE, "f32(%i)") "sync\nend\n" OUT,
     false},
    {"COPIED_TO_ENGINE", ALONE,
     NONE S FULL LOOP WIDE LANDED STORE "wait-bulk 0\n" COUNT(STORED, "f32(%i % 64)") "sync\nend\n" OUT,
     false},
    {"CLUSTER_BARRIER", PAIR,
     NONE S LOOP "store-shared %s, " ROUND "sync-cluster\n" COUNT("load-cluster(%s, " OTHER ", auto(16, 8))",
                                                                  "f32(%i)") "sync-cluster\nend\n" OUT,
     false},
    {"FAR_ARRIVAL", PAIR,
     NONE S FULL EMPTY "sync-cluster\n" LOOP "wait-barrier %empty\nstore-cluster %s, " OTHER
                       ", " ROUND SENT COUNT(MINE, "f32(%i)") AGAIN OUT,
     false},
    {"FAR_ARRIVAL", PAIR, /* tiles that are no runs of bytes */
     NONE S FULL EMPTY
     "%in = alloc-shared f32[16, 9], row_major\nsync-cluster\n" LOOP
     "wait-barrier %empty\nstore-shared %s, " ROUND "sync\ncopy-cluster %in, " OTHER
     ", %s, [16, 8], barrier %full\n" SENT COUNT("load-shared(%in[0, 0], auto(16, 8))", "f32(%i)") AGAIN OUT,
     false},
    {"FAR_COPY FAR_ARRIVAL_OF_READS", PAIR,
     NONE S FULL EMPTY "%in = alloc-shared f32[16, 8], row_major\nsync-cluster\n" LOOP
                       "wait-barrier %empty\nstore-shared %s, " ROUND "sync\ncopy-cluster %in, " OTHER
                       ", %s, barrier %full\n" SENT COUNT("load-shared(%in, auto(16, 8))", "f32(%i)")
                           AGAIN OUT,
     false},
    {"TO_ENGINE_FAR", PAIR,
     NONE S "sync-cluster\n" LOOP "store-cluster %s, " OTHER ", " ROUND "sync-cluster\n" STORE
            "wait-bulk 0\n" COUNT(STORED, "f32(%i)") "sync-cluster\nend\n" OUT,
     false},
    {"MULTICAST", PAIR,
     NONE S FULL "sync-cluster\n" LOOP
                 "copy-bulk %s, x[%i % 64, 0, 0], barrier %full, multicast all\n" LANDED COUNT(
                     MINE, "f32(%i % 64)") "sync-cluster\nend\n" OUT,
     false},
    {"PRODUCT", ALONE,
     "%a = alloc-shared f16[64, 64]\n%b = alloc-shared f16[64, 64]\n"
     "%sums = alloc-register i32[64, 64], " MMA_C ", init 0\n"
     "store-shared %a, alloc-register(f16[64, 64], auto(64, 64), init 1.0)\n" LOOP
     "store-shared %b, cast(alloc-register(f32[64, 64], auto(64, 64), init f32(%i % 8)), f16)\nsync\n"
     "%c = mma %a, %b, alloc-register(f32[64, 64], " MMA_C ", init 0.0), k 64\n"
     "%sums = %sums + cast(%c != f32(%i % 8) * 64.0, i32)\nsync\nend\n"
     "store-global bad[block.x, 0, 0], alloc-register(i32[16, 8], auto(16, 8), "
     "init scalar(sum(sum(%sums, 1), 0)))\n",
     false},
    {"SEMAPHORE", ALONE,
     NONE LOOP "if block.x % 2 == 0\nstore-global y[block.x, 0, 0], " ROUND
               "release-semaphore f[block.x, 0], %i + 1\n"
               "if %i + 1 < rounds\nlock-semaphore f[block.x, 1], %i + 1\nend\nelse\n"
               "lock-semaphore " BESIDE
               ", %i + 1\n" COUNT("load-global(y[block.x - 1, 0, 0], auto(16, 8))",
                                  "f32(%i)") "release-semaphore f[block.x - 1, 1], %i + 1\nend\nend\n" OUT,
     true},
    {"EXCHANGE", ALONE, EXCHANGED(""), true},
    {"EXCHANGE_PEERS", ALONE, EXCHANGED(", scope sys"), true},
    {"ATOMIC_ORDER", ALONE,
     NONE
     "%one = alloc-register i32[1], replicated(128).local(1), init 1\n"
     "%zero = alloc-register i32[1], replicated(128).local(1), init 0\n" LOOP "if block.x % 2 == 0\n"
     "store-global y[block.x, 0, 0], " ROUND "sync\natomic add f[block.x, 0], %one, order release\n"
     "if %i + 1 < rounds\nlock-semaphore f[block.x, 1], %i + 1\nend\nelse\n%seen = 0\nwhile %seen < %i + 1\n"
     "%old = atomic-fetch add " BESIDE ", %zero, order acquire\n%seen = scalar(%old)\nend\nsync\n" COUNT(
         "load-global(y[block.x - 1, 0, 0], auto(16, 8))",
         "f32(%i)") "release-semaphore f[block.x - 1, 1], %i + 1\nend\nend\n" OUT,
     true},
};
enum { ROUNDS = sizeof rounds_rows / sizeof *rounds_rows };
#define ROUNDS_END ".end\n"

#endif
