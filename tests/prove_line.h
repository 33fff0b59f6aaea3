/* Right kernels, and mistakes in them, as those of prove_seeded.h, whose proofs take long (tvm_prove_long):
 * loops of which it is found first that they run; and blocks that share out a line of units of work, m for
 * each tile, so that a block's part begins and ends inside of tiles; the block that has a tile's last unit
 * takes what the blocks below it have of it. */
#ifndef TVM_TESTS_PROVE_LINE_H
#define TVM_TESTS_PROVE_LINE_H

#include "prove_seeded.h"

/* From a block's last unit to its first. TAKE adds what others have of the tile. */
#define LINE(SUM, TAKE)                                                                                       \
    ".vasm 7\n.kernel k(n: i32, m: i32, y: global f32[n, 64])\n.warps 2\n.grid n + n + 1\n"                   \
    ".assume n >= 1, m >= 1, n <= 1000, m <= 1000\n"                                                          \
    "%p = alloc-global f32[grid.x, 64], clean\n%v = alloc-register f32[1, 64], " SUM ", init 1.0\n"           \
    "%units = max(n * m, 0)\n%share = %units / grid.x\n%extra = %units % grid.x\n"                            \
    "%begin = %share * block.x + min(block.x, %extra)\n%end = %begin + %share + (block.x < %extra ? 1 : 0)\n" \
    "%tile = (%end - 1) / m\n%step = %end - 1 - %tile * m\n%top = %step\n%left = %end - %begin\n"             \
    "while %left > 0\n%run = min(%step + 1, %left)\n%left = %left - %run\n%step = %step - %run\n"             \
    "if %step < 0 || %left == 0\nif %top < m - 1\nput-global %p[block.x, 0], %v\nelse\n"                      \
    "%from = block.x\n%lowest = %left == 0 ? %begin : 0\nwhile %lowest > %tile * m\n%from = %from - 1\n"      \
    "%lowest = %share * %from + min(%from, %extra)\n" TAKE "end\nstore-global y[%tile, 0], %v\nend ; told\n"  \
    "%v = alloc-register f32[1, 64], " SUM ", init 1.0\n%top = m - 1\n%tile = %tile - 1\n%step = m - 1\n"     \
    "end\nend\n.end\n"

static const char line_single[] =
    LINE("spatial(1, 64)", "%v = %v + take-global(%p[%from, 0], spatial(1, 64))\n");
static const seeded_mistake line_single_mistakes[] = {
    {"who has all but the last unit does not put", "if %top < m - 1\n", "if %top < m - 2\n"},
    {"parts as if all had a unit more", "min(%from, %extra)", "%from"},
    {"takes before it counts down",
     "%from = %from - 1\n%lowest = %share * %from + min(%from, %extra)\n"
     "%v = %v + take-global(%p[%from, 0], spatial(1, 64))\n",
     "%v = %v + take-global(%p[%from, 0], spatial(1, 64))\n%from = %from - 1\n"
     "%lowest = %share * %from + min(%from, %extra)\n"},
    {"takes from a block that ends where the tile begins", "while %lowest > %tile * m",
     "while %lowest >= %tile * m"},
    {"takes of the tile before", "while %lowest > %tile * m", "while %lowest > %tile * m - m"},
    {"puts at the block above", "put-global %p[block.x, 0]", "put-global %p[block.x + 1, 0]"},
    {"one block does not put", "put-global %p[block.x, 0], %v\n",
     "if block.x != 2\nput-global %p[block.x, 0], %v\nend\n"},
    {"a block ends before it puts", "if %top < m - 1\nput",
     "if block.x == 2\nexit\nend\nif %top < m - 1\nput"},
    {"takes each part twice", "%v = %v + take-global(%p[%from, 0], spatial(1, 64))\n",
     "%v = %v + take-global(%p[%from, 0], spatial(1, 64))\n%v = %v + take-global(%p[%from, 0], spatial(1, 64))\n"},
    {"the first tile that is done counts as a whole one", "%top = %step\n", "%top = m - 1\n"},
    {0},
};

/* Two at a time, where there are two. */
static const char line_double[] = LINE(
    "replicated(2).spatial(1, 32).local(1, 2)",
    "if %lowest > %tile * m\n%from = %from - 1\n%lowest = %share * %from + min(%from, %extra)\n"
    "%two = take-global %p[%from, 0], local(2, 1).replicated(2).spatial(1, 32).local(1, 2)\n"
    "%v = %v + view(reduce(sum, reshape(%two, [2, 1, 64]), 0), f32, replicated(2).spatial(1, 32).local(1, 2))\n"
    "continue\nend\n"
    "%v = %v + take-global(%p[%from, 0], replicated(2).spatial(1, 32).local(1, 2))\n");
static const seeded_mistake line_double_mistakes[] = {
    {"takes the one of two again", "continue\n", ""},
    {"two that begin at the upper one", "%two = take-global %p[%from, 0]",
     "%two = take-global %p[%from + 1, 0]"},
    {0},
};

/* The sync of what a loop does, which does at least one turn. */
static const char line_turns[] =
    ".vasm 7\n.kernel k(n: i32, x: global f32[n, 64], y: global f32[n, 64])\n.warps 2\n.grid 1\n.assume n >= 1\n"
    "%s = alloc-shared f32[64]\n%left = n\nwhile %left > 0\n%run = min(%left, 2)\n"
    "for %i = 0 to %run\nsync ; turn\nend\n"
    "store-shared %s, load-global(x[%left - 1, 0], spatial(64))\nsync ; stored\n"
    "store-global y[%left - 1, 0], load-shared(%s, flatten(column_spatial(2, 32)))\n%left = %left - 1\nend\n.end\n";
static const seeded_mistake line_turns_mistakes[] = {
    {"turns of which there may be none", "min(%left, 2)", "min(%left, 2) - 1"},
    {"turns of which there are none in the end", "min(%left, 2)", "min(%left - 1, 2)"},
    {"a sync in the second turn alone", "sync ; turn", "if %i == 1\nsync\nend"},
    {"turns from 1 on", "for %i = 0", "for %i = 1"},
    {"a sync of half of the turns", "sync ; turn", "if %left % 2 == 0\nsync\nend"},
    {"a break before the sync", "sync ; turn", "if %left == 2\nbreak\nend\nsync"},
    {0},
};

/* A loop that an assert lets run. */
static const char line_told[] =
    ".vasm 7\n.kernel k(n: i32, t: global i32[n], x: global f32[n, 64], y: global f32[n, 64])\n.warps 2\n"
    ".grid 1\n.assume n >= 1\n%s = alloc-shared f32[64]\n%k = load-scalar t[0]\n"
    "assert %k >= 0 && %k < 100\n%turns = %k + 1\n"
    "store-shared %s[0], load-global(x[0, 0], spatial(64))\n"
    "for %j = 0 to %turns\nsync\nend\n"
    "store-global y[0, 0], load-shared(%s[0], flatten(column_spatial(2, 32)))\n.end\n";
static const seeded_mistake line_told_mistakes[] = {
    {"there may be none", "%turns = %k + 1", "%turns = %k"},
    {"asserted of less", "assert %k >= 0 && %k < 100\n%turns = %k + 1",
     "assert %k >= -1 && %k < 100\n%turns = %k * 2"},
    {"asserted on a path that is not taken", "assert %k >= 0 && %k < 100\n%turns = %k + 1",
     "if n > 9\nassert %k >= 1 && %k < 100\nend\n%turns = %k"},
    {"assigned anew behind it", "%turns = %k + 1", "%k = %k - 1\n%turns = %k + 1"},
    {0},
};

static const seeded_kernel long_kernels[] = {
    {"turns of which there is one at least", line_turns, line_turns_mistakes},
    {"turns that an assert tells", line_told, line_told_mistakes},
    {"parts of a line of work, one at a time", line_single, line_single_mistakes},
    {"parts of a line of work, two at a time", line_double, line_double_mistakes},
};
enum { LONG_KERNELS = sizeof long_kernels / sizeof *long_kernels };

#endif
