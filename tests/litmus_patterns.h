/* Kernels whose threads order what they do by a pattern of codegen/emit/fences.def each, and what of it is
 * left out, or put in its place, so that the order is lost. All have the parameters x and y. */
#ifndef TVM_TESTS_LITMUS_PATTERNS_H
#define TVM_TESTS_LITMUS_PATTERNS_H

#include <stdbool.h>
#include <stddef.h>

enum { PATTERN_CHANGES = 6 };

/* A line of the trace that has `find` has `put` in the place of that, or is dropped where it is NULL. */
typedef struct pattern_change {
    const char *find, *put;
} pattern_change;

typedef struct pattern_row {
    const char *name;   /* in fences.def */
    const char *text;   /* behind .vasm 7, .kernel k( */
    int shared;         /* the byte of shared memory that is watched; -1: none */
    const char *global; /* the tensor of which a byte is watched; NULL: none */
    unsigned at;        /* which one */
    bool performed;     /* the axioms alone do not order it */
    pattern_change lost[PATTERN_CHANGES];
} pattern_row;

#define PARAMETERS(shape) "x: global " shape ", y: global " shape ")\n"
#define BLOCK             ".warps 4\n.grid 1\n"
#define BLOCKS            ".warps 4\n.grid 2\n"
#define PAIR              ".warps 4\n.cluster 2\n.grid 2\n"
#define TILE              "%s = alloc-shared f16[32, 64]\n"
#define X                 "load-global(x, auto(32, 64))"
#define OWN(p)            p "[block.x, 0, 0]"

static const pattern_row patterns[] = {
    {.name = "TEAM_BARRIER",
     .text = PARAMETERS("f32[16, 8]") BLOCK "%s = alloc-shared f32[16, 8], row_major\n"
                                            "store-shared %s, load-global(x, spatial(16, 8))\nsync\n"
                                            "store-global y, load-shared(%s, column_spatial(16, 8))\n",
     .shared = 32,
     .lost = {{"bar.sync", NULL}, {"bar.sync 0", "bar.arrive 0"}}},
    {.name = "WARP_BARRIER",
     .text = PARAMETERS("f32[4, 8]") ".warps 1\n.grid 1\n%s = alloc-shared f32[4, 8], row_major\n"
                                     "store-shared %s, load-global(x, spatial(4, 8))\nsync-warp\n"
                                     "store-global y, load-shared(%s, column_spatial(4, 8))\n",
     .shared = 32,
     .lost = {{"bar.warp", NULL}}},
    {.name = "NAMED_BARRIER",
     .text =
         PARAMETERS("f32[4, 8]") ".warps 2\n.grid 1\n%s = alloc-shared f32[4, 8], row_major\n"
                                 "%met = alloc-barrier [1], arrivals 2\nrole give warps 0 to 1\n"
                                 "store-shared %s, load-global(x, spatial(4, 8))\nsync-barrier %met\nend\n"
                                 "role take warps 1 to 2\nsync-barrier %met\n"
                                 "store-global y, load-shared(%s, column_spatial(4, 8))\nend\n",
     .shared = 32,
     .lost = {{"bar.sync", NULL}}},
    {.name = "BLOCK_MBARRIER",
     .text =
         PARAMETERS("f32[4, 8]") ".warps 2\n.grid 1\n%s = alloc-shared f32[4, 8], row_major\n"
                                 "%full = alloc-barrier [1]\nrole give warps 0 to 1\n"
                                 "store-shared %s, load-global(x, spatial(4, 8))\narrive-barrier %full\nend\n"
                                 "role take warps 1 to 2\nwait-barrier %full\n"
                                 "store-global y, load-shared(%s, column_spatial(4, 8))\nend\n",
     .shared = 32,
     .lost = {{"bar.warp", NULL},
              {"mbarrier.arrive", NULL},
              {"mbarrier.arrive", "mbarrier.arrive.relaxed"},
              {"mbarrier.try_wait", NULL},
              {"mbarrier.try_wait", "mbarrier.try_wait.relaxed"}}},
    {.name = "COPY_GROUP",
     .text = PARAMETERS("f16[32, 64]") BLOCK TILE
     "copy-async %s, x\ncommit-group\nwait-group 0\nsync\n"
     "store-global y, load-shared(%s, column_spatial(16, 8).local(2, 8))\n",
     .shared = 128,
     .lost = {{"cp.async.wait_group", NULL},
              {"cp.async.wait_group 0", "cp.async.wait_group 1"},
              {"bar.sync", NULL}}},
    {.name = "COPY_ARRIVAL",
     .text = "x: global f16[32, 66], y: global f16[32, 64])\n" BLOCK TILE "%full = alloc-barrier [1]\n"
             "copy-bulk %s, x, barrier %full\narrive-barrier %full\nwait-barrier %full\n"
             "store-global y, load-shared(%s, column_spatial(16, 8).local(2, 8))\n",
     .shared = 136,
     .lost = {{"cp.async.mbarrier.arrive", NULL}, {"mbarrier.try_wait", NULL}}},
    {.name = "CLUSTER_BARRIER",
     .text = PARAMETERS("f16[2, 32, 64]") PAIR TILE "store-shared %s, load-global(" OWN(
         "x") ", auto(32, 64))\nsync-cluster\n"
              "store-global " OWN("y") ", load-cluster(%s, 1 - cluster.rank, auto(32, 64))\n",
     .shared = 0,
     .lost = {{"barrier.cluster.wait", NULL}, {"arrive.release", "arrive.relaxed"}}},
    {.name = "FAR_ARRIVAL", /* what threads store there; and elements of copy-cluster that are no runs */
     .text = PARAMETERS("f16[2, 32, 64]") PAIR TILE
     "%full = alloc-barrier [1]\nsync-cluster\n"
     "store-cluster %s, 1 - cluster.rank, load-global(" OWN(
         "x") ", auto(32, 64))\n"
              "arrive-barrier %full, rank 1 - cluster.rank\nwait-barrier %full\n"
              "store-global " OWN("y") ", load-shared(%s, auto(32, 64))\n",
     .shared = 72,
     .lost = {{"release.cluster.shared", "release.cta.shared"},
              {"acquire.cluster.shared", "acquire.cta.shared"},
              {"bar.warp", NULL}}},
    {.name = "FAR_ARRIVAL",
     .text = PARAMETERS("f16[2, 32, 32]") PAIR
     "%s = alloc-shared f16[32, 32], row_major\n"
     "%in = alloc-shared f16[32, 33], row_major\n%full = alloc-barrier [1]\n"
     "store-shared %s, load-global(" OWN(
         "x") ", auto(32, 32))\nsync-cluster\n"
              "copy-cluster %in, 1 - cluster.rank, %s, [32, 32], barrier %full\n"
              "arrive-barrier %full, rank 1 - cluster.rank\nwait-barrier %full\n"
              "store-global " OWN("y") ", load-shared(%in[0, 0], auto(32, 32))\n",
     .shared = 2048,
     .lost = {{"release.cluster.shared", "release.cta.shared"},
              {"acquire.cluster.shared", "acquire.cta.shared"}}},
    {.name = "FAR_ARRIVAL_OF_READS",
     .text = PARAMETERS(
         "f16[2, 32, 64]") ".warps 1\n.cluster 2\n.grid 2\n" TILE "%in = alloc-shared f16[32, 64]\n"
                           "%full = alloc-barrier [1]\n%empty = alloc-barrier [1]\n"
                           "store-shared %s, load-global(" OWN(
                               "x") ", auto(32, 64))\nsync-cluster\n"
                                    "copy-cluster %in, 1 - cluster.rank, %s, barrier %full\n"
                                    "arrive-barrier %full, rank 1 - cluster.rank\nwait-barrier %full\n"
                                    "store-global " OWN(
                                        "y") ", load-shared(%in, auto(32, 64))\n"
                                             "arrive-barrier %empty, rank 1 - cluster.rank\nwait-barrier %empty\n"
                                             "copy-cluster %in, 1 - cluster.rank, %s, barrier %full\n"
                                             "arrive-barrier %full, rank 1 - cluster.rank\nwait-barrier %full\n",
     .shared = 4096,
     .performed = true,
     .lost = {{"mbarrier.arrive", NULL}}},
    {.name = "TO_ENGINE",
     .text =
         PARAMETERS("f16[32, 64]") BLOCK TILE "store-shared %s, " X "\nsync\nstore-bulk y, %s\nwait-bulk 0\n",
     .shared = 0,
     .lost = {{"fence.proxy", NULL}, {"shared::cta", "global"}, {"bar.sync", NULL}}},
    {.name = "TO_ENGINE_WARP",
     .text = PARAMETERS("f16[32, 64]") ".warps 1\n.grid 1\n" TILE "store-shared %s, " X
                                       "\nsync-warp\nstore-bulk y, %s\nwait-bulk 0\n",
     .shared = 0,
     .lost = {{"fence.proxy", NULL}, {"bar.warp", NULL}}},
    {.name = "TO_ENGINE_FAR",
     .text = PARAMETERS("f16[2, 32, 64]") PAIR TILE
     "sync-cluster\n"
     "store-cluster %s, 1 - cluster.rank, load-global(" OWN("x") ", auto(32, 64))\nsync-cluster\n"
                                                                 "store-bulk " OWN("y") ", %s\nwait-bulk 0\n",
     .shared = 0,
     .lost = {{"fence.proxy", NULL},
              {"async.shared::cluster", "async.shared::cta"},
              {"barrier.cluster.wait", NULL}}},
    {.name = "COPIED_TO_ENGINE",
     .text =
         "x: global f16[32, 66], y: global f16[32, 64])\n" BLOCK TILE "%full = alloc-barrier [1]\n"
         "copy-bulk %s, x, barrier %full\narrive-barrier %full\nwait-barrier %full\nstore-bulk y, %s\nwait-bulk 0\n",
     .shared = 0,
     .lost = {{"fence.proxy", NULL}, {"mbarrier.try_wait", NULL}}},
    {.name = "GLOBAL_TO_ENGINE",
     .text = PARAMETERS("f16[32, 64]") BLOCK TILE
     "%full = alloc-barrier [1]\n"
     "store-global x, alloc-register(f16[32, 64], auto(32, 64), init 2.0)\nsync\n"
     "copy-bulk %s, x, barrier %full\narrive-barrier %full\nwait-barrier %full\n"
     "store-global y, load-shared(%s, auto(32, 64))\n",
     .shared = -1,
     .global = "x",
     .lost = {{"fence.proxy.async.global", NULL}, {"async.global", "async.shared::cta"}, {"bar.sync", NULL}}},
    {.name = "ENGINE_OVER_THREADS",
     .text = PARAMETERS("f32[32, 32]") BLOCK
     "%s = alloc-shared f32[32, 32]\n"
     "store-global y, load-global(x, auto(32, 32))\nstore-shared %s, load-global(x, auto(32, 32))\nsync\n"
     "reduce-bulk add, y, %s\nwait-bulk 0\n",
     .shared = -1,
     .global = "y",
     .lost = {{"fence.proxy.async.global", NULL}, {"bar.sync", NULL}}},
    {.name = "BULK_LANDED",
     .text = PARAMETERS("f16[32, 64]") BLOCK TILE
     "%full = alloc-barrier [1]\n"
     "copy-bulk %s, x, barrier %full\narrive-barrier %full\nwait-barrier %full\n"
     "store-global y, load-shared(%s, auto(32, 64))\n",
     .shared = 0,
     .lost = {{"mbarrier.try_wait", NULL}}},
    {.name = "MULTICAST",
     .text = PARAMETERS("f16[32, 64]") PAIR TILE
     "%full = alloc-barrier [1]\nsync-cluster\n"
     "copy-bulk %s, x, barrier %full, multicast all\narrive-barrier %full\nwait-barrier %full\n"
     "store-global y, load-shared(%s, auto(32, 64))\n",
     .shared = 0,
     .lost = {{"mbarrier.try_wait", NULL}}},
    {.name = "FAR_COPY",
     .text = PARAMETERS("f16[2, 32, 64]") PAIR TILE
     "%in = alloc-shared f16[32, 64]\n%full = alloc-barrier [1]\n"
     "sync-cluster\nstore-shared %s, load-global(" OWN(
         "x") ", auto(32, 64))\nsync\n"
              "copy-cluster %in, 1 - cluster.rank, %s, barrier %full\n"
              "arrive-barrier %full, rank 1 - cluster.rank\nwait-barrier %full\n"
              "store-global " OWN("y") ", load-shared(%in, auto(32, 64))\n",
     .shared = 0,
     .lost = {{"fence.proxy", NULL}, {"bar.sync", NULL}}},
    {.name = "BULK_OVER_READ",
     .text = PARAMETERS("f16[2, 32, 64]") BLOCK TILE
     "%full = alloc-barrier [1]\n"
     "for %i = 0 to 2\ncopy-bulk %s, x[%i, 0, 0], barrier %full\narrive-barrier %full\nwait-barrier %full\n"
     "store-global y[%i, 0, 0], load-shared(%s, auto(32, 64))\nsync\nend\n",
     .shared = 0,
     .performed = true,
     .lost = {{"bar.sync", NULL}}},
    {.name = "BULK_STORE_READ",
     .text = PARAMETERS("f16[32, 64]") BLOCK TILE
     "store-shared %s, " X "\nsync\nstore-bulk y, %s\nwait-bulk 0, read\n"
     "store-shared %s, " X "\nsync\nstore-bulk y, %s\nwait-bulk 0\n",
     .shared = 0,
     .lost = {{"wait_group.read", NULL}}},
    {.name = "BULK_STORED",
     .text =
         PARAMETERS("f16[32, 64]") BLOCK TILE "store-shared %s, " X "\nsync\nstore-bulk y, %s\nwait-bulk 0\n"
                                              "store-global x, load-global(y, auto(32, 64))\n",
     .shared = -1,
     .global = "y",
     .lost = {{"wait_group 0", "wait_group.read 0"}, {"bar.sync", NULL}}},
    {.name = "PRODUCT",
     .text = PARAMETERS("f16[64, 64]") BLOCK
     "%a = alloc-shared f16[64, 64]\n%b = alloc-shared f16[64, 64]\n"
     "store-shared %a, load-global(x, auto(64, 64))\nstore-shared %b, load-global(x, auto(64, 64))\nsync\n"
     "%c = mma %a, %b, alloc-register(f32[64, 64], spatial(4, 1).local(1, 8).mma.m16n8k16.C, init 0.0), k 64\nsync\n"
     "store-shared %b, load-global(y, auto(64, 64))\nstore-global y, cast(%c, f16)\n",
     .shared = 8192,
     .lost = {{"wgmma.wait_group", NULL}, {"fence.proxy", NULL}}},
    {.name = "SEMAPHORE",
     .text = "x: global i32[128], y: global i32[129])\n" BLOCKS
             "if block.x == 0\nstore-global x, alloc-register(i32[128], spatial(128), init 5)\n"
             "release-semaphore y[128], 1\nelse\nlock-semaphore y[128], 1\n"
             "store-global y[0], load-global(x, spatial(128))\nend\n",
     .shared = -1,
     .global = "x",
     .at = 20,
     .lost = {{"st.release", "st.relaxed"},
              {"ld.acquire", "ld.relaxed"},
              {"release.gpu", "release.cta"},
              {"acquire.gpu", "acquire.cta"},
              {"bar.sync", NULL}}},
    {.name = "EXCHANGE",
     .text = PARAMETERS("f32[128]") BLOCKS
     "if block.x == 0\nput-global y, alloc-register(f32[128], spatial(128), init 5.0)\n"
     "else\nstore-global x, take-global(y, spatial(128))\nend\n",
     .shared = -1,
     .global = "y",
     .at = 20,
     .lost = {{"relaxed.gpu", "relaxed.cta"}, {"st.relaxed.gpu", "st"}}},
    {.name = "EXCHANGE_PEERS",
     .text = PARAMETERS("f32[128]") BLOCKS
     "if block.x == 0\nput-global y, alloc-register(f32[128], spatial(128), init 5.0), scope sys\n"
     "else\nstore-global x, take-global(y, spatial(128), scope sys)\nend\n",
     .shared = -1,
     .global = "y",
     .at = 20,
     .lost = {{"relaxed.sys", "relaxed.cta"}, {"st.relaxed.sys", "st"}}},
    {.name = "ATOMIC_ORDER",
     .text = "x: global i32[128], y: global i32[129])\n" BLOCKS
             "%one = alloc-register i32[1], replicated(128).local(1), init 1\n"
             "if block.x == 0\nstore-global x, alloc-register(i32[128], spatial(128), init 5)\nsync\n"
             "atomic add y[128], %one, order release\nelse\n"
             "%n = atomic-fetch add y[128], %one, order acquire\nsync\n"
             "store-global y[0], load-global(x, spatial(128))\nend\n",
     .shared = -1,
     .global = "x",
     .at = 20,
     .lost = {{"red.release", "red.relaxed"},
              {"atom.acquire", "atom.relaxed"},
              {"release.gpu", "release.cta"},
              {"bar.sync", NULL}}},
};

#endif
