/* Right kernels, and mistakes in them, each a line that is changed: the prover proves the former, and the
 * sanitizer finds nothing; of each of the latter a launch shows a race or a deadlock, which is not proved
 * absent. */
#ifndef TVM_TESTS_PROVE_SEEDED_H
#define TVM_TESTS_PROVE_SEEDED_H

/* The text `from`, which stands once in the program, becomes `to`. */
typedef struct seeded_mistake {
    const char *what, *from, *to;
} seeded_mistake;

/* Launched with n = 5 and tensors of zeros. */
typedef struct seeded_kernel {
    const char *what, *text;
    const seeded_mistake *mistakes; /* ends with a NULL */
} seeded_kernel;

#define SEEDED_HEAD(WARPS)                                                                                   \
    ".vasm 7\n.kernel k(n: i32, x: global f32[n, 64], y: global f32[n, 64])\n.warps " WARPS                  \
    "\n.grid 1\n.assume n >= 1\n"

/* ---- a tile that is stored and read by others ---- */

static const char seeded_tile[] = SEEDED_HEAD("2") "%s = alloc-shared f32[64]\n"
                                                   "for %i = 0 to n\n"
                                                   "store-shared %s, load-global(x[%i, 0], spatial(64))\n"
                                                   "sync ; stored\n"
                                                   "%v = load-shared %s, flatten(column_spatial(2, 32))\n"
                                                   "sync ; read\n"
                                                   "store-global y[%i, 0], %v\n"
                                                   "end\n.end\n";
static const seeded_mistake seeded_tile_mistakes[] = {
    {"no sync between store and load", "sync ; stored", ""},
    {"no sync before the tile is stored again", "sync ; read", ""},
    {"sync-warp between store and load of other warps", "sync ; stored", "sync-warp"},
    {"sync-warp before the tile is stored again", "sync ; read", "sync-warp"},
    {"a sync in even turns, after the store", "sync ; stored", "if %i % 2 == 0\nsync\nend"},
    {"a sync in even turns, after the load", "sync ; read", "if %i % 2 == 0\nsync\nend"},
    {"a sync in the other branch", "sync ; stored", "if %i < 3\nelse\nsync\nend"},
    {"a sync that a continue goes round", "sync ; read", "if %i == 2\ncontinue\nend\nsync"},
    {"a sync before the store instead of after it", "%s, load-global(x[%i, 0], spatial(64))\nsync ; stored",
     "%s, load-global(x[%i, 0], spatial(64))"},
    {"a sync behind the loop instead of in it", "sync ; read\nstore-global y[%i, 0], %v\nend",
     "store-global y[%i, 0], %v\nend\nsync"},
    {"a loop in front that reads the tile", "for %i = 0 to n\n",
     "store-shared %s, load-global(x[0, 0], spatial(64))\nsync\n%u = load-shared %s, "
     "flatten(column_spatial(2, 32))\nfor %i = 0 to n\n"},
    {0},
};

/* ---- stores on paths that meet again ---- */

static const char seeded_paths[] =
    SEEDED_HEAD("2") "%s = alloc-shared f32[3, 64]\n"
                     "for %i = 0 to n\n"
                     "%v = load-global x[%i, 0], spatial(64)\n"
                     "if n > 3\nstore-shared %s[0, 0], %v\nend ; first\n"
                     "if n > 4\nstore-shared %s[1, 0], %v\nend ; second\n"
                     "if n > 2\nstore-shared %s[2, 0], %v\nend ; third\n"
                     "sync ; stored\n"
                     "%a = load-shared %s[0, 0], flatten(column_spatial(2, 32))\n"
                     "%b = load-shared %s[1, 0], flatten(column_spatial(2, 32))\n"
                     "%c = load-shared %s[2, 0], flatten(column_spatial(2, 32))\n"
                     "sync ; read\n"
                     "store-global y[%i, 0], %a + %b + %c\n"
                     "end\n.end\n";
static const seeded_mistake seeded_paths_mistakes[] = {
    {"a sync where the first is not stored", "sync ; stored", "if n <= 3\nsync\nend"},
    {"a sync where the second is not stored", "sync ; stored", "if n <= 4\nsync\nend"},
    {"a sync where the third is not stored", "sync ; stored", "if n <= 2\nsync\nend"},
    {"a sync before the third store",
     "end ; second\nif n > 2\nstore-shared %s[2, 0], %v\nend ; third\nsync ; stored",
     "end ; second\nsync\nif n > 2\nstore-shared %s[2, 0], %v\nend\n"},
    {"a sync behind the first load",
     "sync ; stored\n%a = load-shared %s[0, 0], flatten(column_spatial(2, 32))\n",
     "%a = load-shared %s[0, 0], flatten(column_spatial(2, 32))\nsync\n"},
    {"a sync before stores that come again, of one path", "sync ; read", "if n <= 4\nsync\nend"},
    {"the second of a path stores what the first has", "store-shared %s[1, 0], %v\nend ; second",
     "store-shared %s[0, 0], load-global(x[%i, 0], flatten(column_spatial(2, 32)))\nend ; second"},
    {"a sync-warp where all were stored", "sync ; stored", "if n > 4\nsync-warp\nelse\nsync\nend"},
    {0},
};

/* ---- places that an assert tells ---- */

static const char seeded_told[] =
    ".vasm 7\n.kernel k(n: i32, t: global i32[n], x: global f32[n, 64], y: global f32[n, 64])\n.warps 2\n"
    ".grid 1\n.assume n >= 1\n%s = alloc-shared f32[4, 64]\n%k = load-scalar t[0]\n%j = load-scalar t[1]\n"
    "store-shared %s[2, 0], load-global(x[0, 0], spatial(64))\nsync\n"
    "assert %k == 0 && %j == 0\n"
    "store-shared %s[%k, 0], load-global(x[0, 0], spatial(64))\n"
    "%b = load-shared %s[2 + %j, 0], flatten(column_spatial(2, 32))\n"
    "store-global y[0, 0], %b\n.end\n";
static const seeded_mistake seeded_told_mistakes[] = {
    {"the place that is stored to is read", "load-shared %s[2 + %j, 0]", "load-shared %s[%j, 0]"},
    {"the scalar is another one behind", "%j == 0\n", "%j == 0\n%k = %k + 2\n"},
    {"the other scalar is", "%j == 0\n", "%j == 0\n%j = %j - 2\n"},
    {"asserted on a path that is not taken", "assert %k == 0 && %j == 0\n",
     "if n > 9\nassert %k == 0 && %j == 0\nend\n%k = %k + 2\n"},
    {"one of two may be", "assert %k == 0 && %j == 0\n", "assert %k == 2 || %j == 0\n%k = %k + 2\n"},
    {"asserted that it is not", "assert %k == 0 && %j == 0\n", "assert %k != 2 && %j == 0\n%k = 2 - %k\n"},
    {0},
};

/* ---- copies of threads, one stage ahead ---- */

static const char seeded_copies[] =
    SEEDED_HEAD("2") "%s = alloc-shared f32[2, 64]\n"
                     "copy-async %s[0], x[0], tile [64]\n"
                     "commit-group ; first\n"
                     "for %i = 0 to n\n"
                     "copy-async %s[1 - %i % 2], x[%i + 1], tile [64]\n"
                     "commit-group ; next\n"
                     "wait-group 1\n"
                     "sync ; come\n"
                     "%v = load-shared %s[%i % 2], flatten(column_spatial(2, 32))\n"
                     "sync ; read\n"
                     "store-global y[%i, 0], %v\n"
                     "end\nwait-group 0\n.end\n";
static const seeded_mistake seeded_copies_mistakes[] = {
    {"no commit-group", "commit-group ; next", ""},
    {"no commit-group of the first copy", "commit-group ; first", ""},
    {"a commit-group before the copy", "copy-async %s[1 - %i % 2], x[%i + 1], tile [64]\ncommit-group ; next",
     "commit-group\ncopy-async %s[1 - %i % 2], x[%i + 1], tile [64]"},
    {"one more group pending", "wait-group 1", "wait-group 2"},
    {"no wait-group", "wait-group 1\n", ""},
    {"a wait-group in even turns", "wait-group 1", "if %i % 2 == 0\nwait-group 1\nend"},
    {"a wait-group behind the load", "wait-group 1\nsync ; come",
     "sync\n%u = load-shared %s[%i % 2], "
     "flatten(column_spatial(2, 32))\nwait-group 1\nsync"},
    {"no sync after the wait-group", "sync ; come", ""},
    {"a sync before the wait-group", "wait-group 1\nsync ; come", "sync\nwait-group 1"},
    {"sync-warp after the wait-group", "sync ; come", "sync-warp"},
    {"no sync before the next copy", "sync ; read", ""},
    {"sync-warp before the next copy", "sync ; read", "sync-warp"},
    {"a sync before the load instead of after it",
     "sync ; come\n%v = load-shared %s[%i % 2], "
     "flatten(column_spatial(2, 32))\nsync ; read",
     "sync\nsync\n%v = load-shared %s[%i % 2], flatten(column_spatial(2, 32))"},
    {"a copy to the stage that is read", "copy-async %s[1 - %i % 2]", "copy-async %s[%i % 2]"},
    {"a load of the stage that is copied", "load-shared %s[%i % 2]", "load-shared %s[1 - %i % 2]"},
    {"a load of stage 1 in every turn", "load-shared %s[%i % 2]", "load-shared %s[1]"},
    {"the first copy to the other stage", "copy-async %s[0]", "copy-async %s[1]"},
    {"a store where the copy goes", "sync ; come",
     "store-shared %s[1 - %i % 2, 0], "
     "alloc-register(f32[1, 64], spatial(1, 64))\nsync"},
    {"the tensor freed while a copy is under way", "end\nwait-group 0\n",
     "copy-async %s[0], x[0], tile [64]\ncommit-group\nend\nfree-shared %s\n%t = alloc-shared f32[128]\n"},
    {0},
};

/* ---- a ring of the copy engine's tiles ---- */

static const char seeded_ring[] =
    SEEDED_HEAD("3") "%s = alloc-shared f32[2, 64]\n"
                     "%full = alloc-barrier [2]\n"
                     "%empty = alloc-barrier [2], open\n"
                     "role put warps 0 to 1\n"
                     "for %i = 0 to n\n"
                     "wait-barrier %empty[%i % 2]\n"
                     "copy-bulk %s[%i % 2], x[%i], tile [64], barrier %full[%i % 2]\n"
                     "arrive-barrier %full[%i % 2]\n"
                     "end\nend\n"
                     "role get warps 1 to 3\n"
                     "for %j = 0 to n\n"
                     "wait-barrier %full[%j % 2]\n"
                     "%v = load-shared %s[%j % 2], spatial(64)\n"
                     "arrive-barrier %empty[%j % 2]\n"
                     "store-global y[%j], %v\n"
                     "end\nend\n.end\n";
static const seeded_mistake seeded_ring_mistakes[] = {
    {"the producer does not wait", "wait-barrier %empty[%i % 2]\n", ""},
    {"the producer waits in even turns", "wait-barrier %empty[%i % 2]",
     "if %i % 2 == 0\nwait-barrier %empty[%i % 2]\nend"},
    {"the producer does not arrive", "arrive-barrier %full[%i % 2]\n", ""},
    {"the producer arrives before the copy",
     "copy-bulk %s[%i % 2], x[%i], tile [64], barrier %full[%i % 2]\n"
     "arrive-barrier %full[%i % 2]",
     "arrive-barrier %full[%i % 2]\ncopy-bulk %s[%i % 2], x[%i], tile [64], barrier %full[%i % 2]"},
    {"the producer arrives twice", "arrive-barrier %full[%i % 2]",
     "arrive-barrier %full[%i % 2]\narrive-barrier %full[%i % 2]"},
    {"the producer arrives at stage 0", "arrive-barrier %full[%i % 2]", "arrive-barrier %full[0]"},
    {"a copy to the other stage", "copy-bulk %s[%i % 2]", "copy-bulk %s[(%i + 1) % 2]"},
    {"a copy for the other stage's mbarrier", "barrier %full[%i % 2]\narrive",
     "barrier %full[(%i + 1) % 2]\narrive"},
    {"a copy of both stages", "copy-bulk %s[%i % 2], x[%i], tile [64]",
     "copy-bulk %s[0], x[%i], tile [2, 64]"},
    {"the consumer does not wait", "wait-barrier %full[%j % 2]\n", ""},
    {"the consumer waits for the other stage", "wait-barrier %full[%j % 2]",
     "wait-barrier %full[(%j + 1) % 2]"},
    {"the consumer waits behind the load",
     "wait-barrier %full[%j % 2]\n%v = load-shared %s[%j % 2], spatial(64)",
     "%v = load-shared %s[%j % 2], spatial(64)\nwait-barrier %full[%j % 2]"},
    {"the consumer waits twice", "wait-barrier %full[%j % 2]",
     "wait-barrier %full[%j % 2]\nwait-barrier %full[%j % 2]"},
    {"the consumer does not arrive", "arrive-barrier %empty[%j % 2]\n", ""},
    {"the consumer arrives in even turns", "arrive-barrier %empty[%j % 2]",
     "if %j % 2 == 0\narrive-barrier %empty[%j % 2]\nend"},
    {"the consumer arrives before the load",
     "%v = load-shared %s[%j % 2], spatial(64)\n"
     "arrive-barrier %empty[%j % 2]",
     "arrive-barrier %empty[%j % 2]\n%v = load-shared %s[%j % 2], spatial(64)"},
    {"the consumer reads the other stage", "load-shared %s[%j % 2]", "load-shared %s[(%j + 1) % 2]"},
    {"the consumer stores where a copy comes", "arrive-barrier %empty[%j % 2]",
     "arrive-barrier %empty[%j % 2]\nstore-shared %s[%j % 2, 0], alloc-register(f32[1, 64], spatial(1, 64))"},
    {"the consumer has one turn less", "for %j = 0 to n", "for %j = 1 to n"},
    {"the producer has one turn less", "for %i = 0 to n", "for %i = 1 to n"},
    {"the producer leaves its loop", "arrive-barrier %full[%i % 2]",
     "arrive-barrier %full[%i % 2]\nif %i == 3\nbreak\nend"},
    {"the stages are closed at first", "alloc-barrier [2], open", "alloc-barrier [2]"},
    {"the tiles are there at first", "%full = alloc-barrier [2]", "%full = alloc-barrier [2], open"},
    {"one arrival more of the consumer", "alloc-barrier [2], open", "alloc-barrier [2], arrivals 2, open"},
    {"one arrival more of the producer", "%full = alloc-barrier [2]",
     "%full = alloc-barrier [2], arrivals 2"},
    {"the roles' mbarriers exchanged",
     "wait-barrier %empty[%i % 2]\ncopy-bulk %s[%i % 2], x[%i], tile [64], "
     "barrier %full[%i % 2]\narrive-barrier %full[%i % 2]",
     "wait-barrier %full[%i % 2]\ncopy-bulk %s[%i % 2], x[%i], tile [64], barrier %empty[%i % 2]\n"
     "arrive-barrier %empty[%i % 2]"},
    {"mbarriers for three stages, tiles for two",
     "alloc-shared f32[2, 64]\n%full = alloc-barrier [2]\n"
     "%empty = alloc-barrier [2], open\nrole put warps 0 to 1\nfor %i = 0 to n\nwait-barrier %empty[%i % 2]\n"
     "copy-bulk %s[%i % 2], x[%i], tile [64], barrier %full[%i % 2]\narrive-barrier %full[%i % 2]\nend\nend\n"
     "role get warps 1 to 3\nfor %j = 0 to n\nwait-barrier %full[%j % 2]\n"
     "%v = load-shared %s[%j % 2], spatial(64)\narrive-barrier %empty[%j % 2]",
     "alloc-shared f32[2, 64]\n%full = alloc-barrier [3]\n"
     "%empty = alloc-barrier [3], open\nrole put warps 0 to 1\nfor %i = 0 to n\nwait-barrier %empty[%i % 3]\n"
     "copy-bulk %s[%i % 2], x[%i], tile [64], barrier %full[%i % 3]\narrive-barrier %full[%i % 3]\nend\nend\n"
     "role get warps 1 to 3\nfor %j = 0 to n\nwait-barrier %full[%j % 3]\n"
     "%v = load-shared %s[%j % 2], spatial(64)\narrive-barrier %empty[%j % 3]"},
    {0},
};

/* ---- a ring of stores, for two teams ---- */

static const char seeded_teams[] = SEEDED_HEAD("3") "%s = alloc-shared f32[32]\n"
                                                    "%full = alloc-barrier [1]\n"
                                                    "%empty = alloc-barrier [1], arrivals 2, open\n"
                                                    "role put warps 0 to 1\n"
                                                    "for %i = 0 to n\n"
                                                    "wait-barrier %empty\n"
                                                    "store-shared %s, alloc-register(f32[32], spatial(32))\n"
                                                    "arrive-barrier %full\n"
                                                    "end\nend\n"
                                                    "role get warps 1 to 3 by 1\n"
                                                    "for %j = 0 to n\n"
                                                    "wait-barrier %full\n"
                                                    "%v = load-shared %s, spatial(32)\n"
                                                    "arrive-barrier %empty\n"
                                                    "store-global y[%j, 32 * role.index], %v\n"
                                                    "end\nend\n.end\n";
static const seeded_mistake seeded_teams_mistakes[] = {
    {"one arrival for two teams", "arrivals 2, open", "arrivals 1, open"},
    {"three arrivals of two teams", "arrivals 2, open", "arrivals 3, open"},
    {"one of the teams arrives", "arrive-barrier %empty", "if role.index == 0\narrive-barrier %empty\nend"},
    {"one of the teams arrives twice", "arrive-barrier %empty",
     "arrive-barrier %empty\nif role.index == 0\narrive-barrier %empty\nend"},
    {"one of the teams waits", "wait-barrier %full", "if role.index == 0\nwait-barrier %full\nend"},
    {"one of the teams has more turns", "for %j = 0 to n", "for %j = 0 to n + role.index"},
    {"one of the teams reads after its arrival", "arrive-barrier %empty",
     "arrive-barrier %empty\nif role.index == 1\n%u = load-shared %s, spatial(32)\nend"},
    {"both teams store", "%v = load-shared",
     "store-shared %s, alloc-register(f32[32], spatial(32))\nsync\n"
     "%v = load-shared"},
    {"the producer stores before it waits",
     "wait-barrier %empty\nstore-shared %s, alloc-register(f32[32], "
     "spatial(32))",
     "store-shared %s, alloc-register(f32[32], spatial(32))\nwait-barrier %empty"},
    {"the producer stores after its arrival",
     "store-shared %s, alloc-register(f32[32], spatial(32))\n"
     "arrive-barrier %full",
     "arrive-barrier %full\nstore-shared %s, alloc-register(f32[32], spatial(32))"},
    {"the producer is two teams", "warps 0 to 1\n", "warps 0 to 2 by 1\n"},
    {0},
};

/* ---- teams that meet ---- */

static const char seeded_meeting[] =
    SEEDED_HEAD("2") "%s = alloc-shared f32[2, 32], row_major\n"
                     "%met = alloc-barrier [1], arrivals 2\n"
                     "role all warps 0 to 2 by 1\n"
                     "store-shared %s[role.index, 0], alloc-register(f32[1, 32], spatial(1, 32))\n"
                     "arrive-barrier %met\n"
                     "wait-barrier %met\n"
                     "%v = load-shared %s[1 - role.index, 0], spatial(1, 32)\n"
                     "store-global y[role.index, 0], %v\n"
                     "end\n.end\n";
static const seeded_mistake seeded_meeting_mistakes[] = {
    {"nobody waits", "wait-barrier %met\n", ""},
    {"nobody arrives", "arrive-barrier %met\n", ""},
    {"the wait comes first", "arrive-barrier %met\nwait-barrier %met",
     "wait-barrier %met\narrive-barrier %met"},
    {"one of both arrives", "arrive-barrier %met", "if role.index == 0\narrive-barrier %met\nend"},
    {"one of both waits", "wait-barrier %met", "if role.index == 0\nwait-barrier %met\nend"},
    {"one arrival is enough", "arrivals 2", "arrivals 1"},
    {"a third arrival", "arrivals 2", "arrivals 3"},
    {"a phase that has ended at first", "arrivals 2", "arrivals 2, open"},
    {"both store one row", "store-shared %s[role.index, 0]", "store-shared %s[0, 0]"},
    {"a sync of each team for the meeting", "arrive-barrier %met\nwait-barrier %met", "sync"},
    {"a store behind the arrival", "wait-barrier %met",
     "store-shared %s[role.index, 0], alloc-register(f32[1, 32], spatial(1, 32))\nwait-barrier %met"},
    {"a store behind the meeting", "store-global y",
     "store-shared %s[role.index, 0], alloc-register(f32[1, 32], spatial(1, 32))\nstore-global y"},
    {0},
};

/* ---- tiles that are stored by the copy engine ---- */

static const char seeded_stores[] =
    SEEDED_HEAD("2") "%s = alloc-shared f32[1, 64]\n"
                     "for %i = 0 to n\n"
                     "store-shared %s[0, 0], alloc-register(f32[1, 64], spatial(1, 64))\n"
                     "sync ; stored\n"
                     "store-bulk y[%i], %s[0], tile [64]\n"
                     "wait-bulk 0, read\n"
                     "end\nwait-bulk 0\n.end\n";
static const seeded_mistake seeded_stores_mistakes[] = {
    {"no sync before store-bulk", "sync ; stored", ""},
    {"sync-warp before store-bulk", "sync ; stored", "sync-warp"},
    {"a sync behind store-bulk", "sync ; stored\nstore-bulk y[%i], %s[0], tile [64]",
     "store-bulk y[%i], %s[0], tile [64]\nsync"},
    {"no wait-bulk", "wait-bulk 0, read\n", ""},
    {"one store-bulk pending", "wait-bulk 0, read", "wait-bulk 1, read"},
    {"a wait-bulk in even turns", "wait-bulk 0, read", "if %i % 2 == 0\nwait-bulk 0, read\nend"},
    {"a wait-bulk before store-bulk", "store-bulk y[%i], %s[0], tile [64]\nwait-bulk 0, read",
     "wait-bulk 0, read\nstore-bulk y[%i], %s[0], tile [64]"},
    {"a wait-group for the wait-bulk", "wait-bulk 0, read", "wait-group 0\nsync"},
    {"the tensor freed while it is read", "wait-bulk 0, read\nend\nwait-bulk 0\n",
     "wait-bulk 0, read\nend\nstore-bulk y[0], %s[0], tile [64]\nfree-shared %s\n%t = alloc-shared f32[64]\n"
     "store-shared %t, alloc-register(f32[64], spatial(64))\nwait-bulk 0\n"},
    {0},
};

/* ---- a team's own mbarrier ---- */

static const char seeded_own[] = SEEDED_HEAD("2") "%s = alloc-shared f32[1, 64]\n"
                                                  "%b = alloc-barrier [1]\n"
                                                  "for %i = 0 to n\n"
                                                  "copy-bulk %s[0], x[%i], tile [64], barrier %b\n"
                                                  "arrive-barrier %b\n"
                                                  "wait-barrier %b\n"
                                                  "%v = load-shared %s[0], spatial(64)\n"
                                                  "sync\n"
                                                  "store-global y[%i], %v\n"
                                                  "end\n.end\n";
static const seeded_mistake seeded_own_mistakes[] = {
    {"no wait", "wait-barrier %b\n", ""},
    {"no arrival", "arrive-barrier %b\n", ""},
    {"a copy behind the arrival", "copy-bulk %s[0], x[%i], tile [64], barrier %b\narrive-barrier %b",
     "arrive-barrier %b\ncopy-bulk %s[0], x[%i], tile [64], barrier %b"},
    {"a load before the wait", "wait-barrier %b\n%v = load-shared %s[0], spatial(64)",
     "%v = load-shared %s[0], spatial(64)\nwait-barrier %b"},
    {"a wait in even turns", "wait-barrier %b", "if %i % 2 == 0\nwait-barrier %b\nend"},
    {"no sync before the next copy", "sync\n", ""},
    {"sync-warp before the next copy", "sync\n", "sync-warp\n"},
    {"two arrivals", "%b = alloc-barrier [1]", "%b = alloc-barrier [1], arrivals 2"},
    {"a store before the wait", "wait-barrier %b",
     "store-shared %s[0, 0], alloc-register(f32[1, 64], "
     "spatial(1, 64))\nwait-barrier %b"},
    {"a second copy to the same place", "arrive-barrier %b",
     "copy-bulk %s[0], x[0], tile [64], barrier %b\n"
     "arrive-barrier %b"},
    {"a last copy that nobody waits for", "end\n.end",
     "copy-bulk %s[0], x[0], tile [64], barrier %b\narrive-barrier %b\nend\n.end"},
    {0},
};

/* ---- roles, and the block before and after them ---- */

static const char seeded_roles[] =
    SEEDED_HEAD("2") "%s = alloc-shared f32[64]\n%t = alloc-shared f32[2, 32], row_major\n"
                     "store-shared %s, load-global(x[0, 0], spatial(64))\n"
                     "sync ; before\n"
                     "role a warps 0 to 1\n"
                     "store-shared %t[0, 0], alloc-register(f32[1, 32], spatial(1, 32))\n"
                     "%u = load-shared %s[32], spatial(32)\n"
                     "end\n"
                     "role b warps 1 to 2\n"
                     "store-shared %t[1, 0], alloc-register(f32[1, 32], spatial(1, 32))\n"
                     "%v = load-shared %s[0], spatial(32)\n"
                     "end\n"
                     "sync ; after\n"
                     "store-global y[0, 0], load-shared(%t[0, 0], column_spatial(2, 32))\n.end\n";
static const seeded_mistake seeded_roles_mistakes[] = {
    {"no sync before the roles", "sync ; before", ""},
    {"no sync after the roles", "sync ; after", ""},
    {"sync-warp before the roles", "sync ; before", "sync-warp"},
    {"sync-warp after the roles", "sync ; after", "sync-warp"},
    {"a sync in one role for that before them", "sync ; before\nrole a warps 0 to 1",
     "role a warps 0 to 1\nsync"},
    {"both roles store one row", "store-shared %t[1, 0]", "store-shared %t[0, 0]"},
    {"a role stores what the other one reads", "%u = load-shared %s[32], spatial(32)",
     "store-shared %s[0], alloc-register(f32[32], spatial(32))"},
    {"a role reads what the other one stores", "%v = load-shared %s[0], spatial(32)",
     "%v = load-shared %t[0, 0], spatial(1, 32)"},
    {0},
};

/* ---- threads of a warp ---- */

static const char seeded_warp[] = SEEDED_HEAD("1") "%s = alloc-shared f32[32]\n"
                                                   "for %i = 0 to n\n"
                                                   "store-shared %s, load-global(x[%i, 0], spatial(32))\n"
                                                   "sync-warp ; stored\n"
                                                   "%v = load-shared %s, flatten(column_spatial(4, 8))\n"
                                                   "sync-warp ; read\n"
                                                   "store-global y[%i, 0], %v\n"
                                                   "end\n.end\n";
static const seeded_mistake seeded_warp_mistakes[] = {
    {"no sync-warp between store and load", "sync-warp ; stored", ""},
    {"no sync-warp before the tile is stored again", "sync-warp ; read", ""},
    {"a sync-warp in even turns", "sync-warp ; stored", "if %i % 2 == 0\nsync-warp\nend"},
    {"a sync-warp of a block of two warps",
     ".warps 1\n.grid 1\n.assume n >= 1\n%s = alloc-shared f32[32]\nfor %i = 0 to n\n"
     "store-shared %s, load-global(x[%i, 0], spatial(32))\nsync-warp ; stored\n"
     "%v = load-shared %s, flatten(column_spatial(4, 8))",
     ".warps 2\n.grid 1\n.assume n >= 1\n%s = alloc-shared f32[64]\nfor %i = 0 to n\n"
     "store-shared %s, load-global(x[%i, 0], spatial(64))\nsync-warp\n"
     "%v = load-shared %s, flatten(column_spatial(8, 8))"},
    {0},
};

/* ---- atomic operations ---- */

static const char seeded_atomic[] = SEEDED_HEAD("2") "%s = alloc-shared i32[64]\n"
                                                     "store-shared %s, alloc-register(i32[64], spatial(64))\n"
                                                     "sync ; cleared\n"
                                                     "%at = iota i32[64], 0, layout spatial(64)\n"
                                                     "atomic add %s[63 - %at], %at\n"
                                                     "sync ; added\n"
                                                     "%v = load-shared %s, spatial(64)\n"
                                                     "store-global y[0, 0], cast(%v, f32)\n.end\n";
static const seeded_mistake seeded_atomic_mistakes[] = {
    {"no sync before the additions", "sync ; cleared", ""},
    {"no sync after the additions", "sync ; added", ""},
    {"sync-warp before the additions", "sync ; cleared", "sync-warp"},
    {"sync-warp after the additions", "sync ; added", "sync-warp"},
    {"a store beside the additions", "sync ; added",
     "store-shared %s, alloc-register(i32[64], spatial(64))\nsync"},
    {"a load beside the additions", "sync ; cleared", "sync\n%u = load-shared %s, spatial(64)"},
    {0},
};

/* ---- blocks of a cluster ---- */

static const char seeded_cluster[] =
    ".vasm 7\n.kernel k(n: i32, x: global f32[n, 64], y: global f32[n, 64])\n.warps 2\n.cluster 2\n.grid 2\n"
    ".assume n >= 1\n"
    "%s = alloc-shared f32[2, 64], row_major\n%t = alloc-register f32[1, 64], spatial(1, 64)\n"
    "sync-cluster ; made\n"
    "store-cluster %s[cluster.rank, 0], 0, %t\n"
    "store-cluster %s[cluster.rank, 0], 1, %t\n"
    "sync-cluster ; sent\n"
    "%v = load-shared %s[0, 0], spatial(1, 64)\n"
    "%w = load-shared %s[1, 0], spatial(1, 64)\n"
    "store-global y[block.x, 0], add(%v, %w)\n.end\n";
static const seeded_mistake seeded_cluster_mistakes[] = {
    {"no sync-cluster before the others store", "sync-cluster ; made\n",
     "store-shared %s[1 - cluster.rank, 0], %t\n"},
    {"no sync-cluster before the load", "sync-cluster ; sent", ""},
    {"a sync before the load", "sync-cluster ; sent", "sync"},
    {"a sync-cluster of one block", "sync-cluster ; sent", "if cluster.rank == 0\nsync-cluster\nend"},
    {"a sync-cluster in a loop of other turns", "sync-cluster ; sent",
     "for %i = 0 to 1 + cluster.rank\nsync-cluster\nend"},
    {"a block that leaves before", "sync-cluster ; sent", "if cluster.rank == 0\nexit\nend\nsync-cluster"},
    {"both blocks store one row", "store-cluster %s[cluster.rank, 0], 0", "store-cluster %s[0, 0], 0"},
    {"a row of the block that is stored to", "store-cluster %s[cluster.rank, 0], 1",
     "store-cluster %s[1, 0], 1"},
    {"a load of another block's row before it is sent", "sync-cluster ; sent",
     "%u = load-cluster %s[0, 0], 1 - cluster.rank, spatial(1, 64)\nsync-cluster"},
    {"a store while others read", "%w = load-shared",
     "store-cluster %s[0, 0], 1 - cluster.rank, %t\n%w = load-shared"},
    {0},
};

/* ---- places that a counter hands out ---- */

static const char seeded_tickets[] =
    SEEDED_HEAD("2") "%c = alloc-shared i32[1]\n"
                     "%d = alloc-shared i32[1]\n"
                     "%s = alloc-shared f32[256]\n"
                     "%zeros = alloc-register i32[64], spatial(64), init 0\n"
                     "%v = alloc-register f32[64], spatial(64), init 1.0\n"
                     "store-shared %c, alloc-register(i32[1], init 0)\n"
                     "store-shared %d, alloc-register(i32[1], init 0)\n"
                     "store-shared %s, alloc-register(f32[256], init 0.0)\n"
                     "sync ; cleared\n"
                     "%is = iota(i32[64], 0, layout spatial(64)) < n * 8\n"
                     "%p = atomic-fetch add %c[%zeros], %zeros + 1, mask %is, scope cta\n"
                     "%first = %is && %p < 250\n"
                     "scatter %s[%p], %v, mask %first\n"
                     "%q = atomic-fetch add %c[%zeros], %zeros + 2, mask %is, scope cta\n"
                     "%second = %q < 250 && %is\n"
                     "scatter %s[%q], %v, mask %second\n"
                     "sync ; all\n"
                     "store-global y[0, 0], load-shared(%s[0], flatten(column_spatial(2, 32)))\n.end\n";
static const seeded_mistake seeded_tickets_mistakes[] = {
    {"adds nothing", "%zeros + 1,", "%zeros,"},
    {"no mask, where others are told 0", "%v, mask %second", "%v"},
    {"a mask that lets others through", "%q < 250 && %is", "%q < 250 || %is"},
    {"the places of who exchanges", "add %c[%zeros], %zeros + 1", "exch %c[%zeros], %zeros + 1"},
    {"a counter beyond the tensor", "add %c[%zeros], %zeros + 1", "add %c[%zeros + 1], %zeros + 1"},
    {"another counter", "add %c[%zeros], %zeros + 2", "add %d[%zeros], %zeros + 2"},
    {"places that are moved", "%s[%q]", "%s[%q - 1]"},
    {"no sync before the first number", "sync ; cleared", ""},
    {"no sync behind the last scatter", "sync ; all", ""},
    {0},
};

/* ---- tiles that blocks hand on ---- */

#define SEEDED_GRID(GRID)                                                                                    \
    ".vasm 7\n.kernel k(n: i32, x: global f32[n, 64], y: global f32[n, 64])\n.warps 2\n.grid " GRID          \
    "\n.assume n >= 1\n"

static const char seeded_chain[] =
    SEEDED_GRID("4, n") "%p = alloc-global f32[grid.y, grid.x, 64], clean\n"
                        "%v = alloc-register f32[64], spatial(64), init 1.0\n"
                        "if block.x > 0\n"
                        "%v = %v + take-global(%p[block.y, block.x - 1, 0], spatial(64))\n"
                        "end ; taken\n"
                        "if block.x < 3\n"
                        "put-global %p[block.y, block.x, 0], %v\n"
                        "else\n"
                        "store-global y[block.y, 0], %v\n"
                        "end\n.end\n";
static const seeded_mistake seeded_chain_mistakes[] = {
    {"a block less that puts", "block.x < 3", "block.x < 2"},
    {"a block more that takes", ".grid 4", ".grid 5"},
    {"what the block above puts", "block.x - 1, 0", "block.x + 1, 0"},
    {"what the block itself puts", "block.x - 1, 0", "block.x, 0"},
    {"what one block puts for all", "%p[block.y, block.x - 1", "%p[0, block.x - 1"},
    {"a place that all blocks put at", "%p[block.y, block.x, 0]", "%p[block.y, 0, 0]"},
    {"one block of each row puts", "block.x < 3", "block.x < 3 && block.y != 2"},
    {"a block ends before it puts", "end ; taken", "end\nif block.x == 2\nexit\nend"},
    {"a loop around the put, of no turns", "put-global %p[block.y, block.x, 0], %v\n",
     "for %i = 0 to n - 5\nput-global %p[block.y, block.x, 0], %v\nend\n"},
    {"a tile that is taken twice", "end ; taken",
     "%v = %v + take-global(%p[block.y, block.x - 1, 0], spatial(64))\nend"},
    {"half of the tile is put", "put-global %p[block.y, block.x, 0], %v\n",
     "put-global %p[block.y, block.x, 0], alloc-register(f32[32], replicated(2).spatial(32), init 1.0)\n"},
    {0},
};

static const char seeded_sum[] = SEEDED_GRID("4") "%p = alloc-global f32[grid.x, 64], clean\n"
                                                  "%v = alloc-register f32[64], spatial(64), init 1.0\n"
                                                  "if block.x < 3\n"
                                                  "put-global %p[block.x, 0], %v\n"
                                                  "else\n"
                                                  "%from = block.x\n"
                                                  "while %from > 0\n"
                                                  "%from = %from - 1\n"
                                                  "%v = %v + take-global(%p[%from, 0], spatial(64))\n"
                                                  "end\n"
                                                  "store-global y[0, 0], %v\n"
                                                  "end\n.end\n";
static const seeded_mistake seeded_sum_mistakes[] = {
    {"two blocks take", "block.x < 3", "block.x < 2"},
    {"a block more that takes", ".grid 4", ".grid 5"},
    {"a block does not put", "put-global %p[block.x, 0], %v\n",
     "if block.x != 1\nput-global %p[block.x, 0], %v\nend\n"},
    {"takes one place too high", "%p[%from, 0]", "%p[%from + 1, 0]"},
    {"takes before it counts down", "%from = %from - 1\n%v = %v + take-global(%p[%from, 0], spatial(64))\n",
     "%v = %v + take-global(%p[%from, 0], spatial(64))\n%from = %from - 1\n"},
    {"begins above itself", "%from = block.x\n", "%from = n\n"},
    {"takes each tile twice", "%v = %v + take-global(%p[%from, 0], spatial(64))\n",
     "%v = %v + take-global(%p[%from, 0], spatial(64))\n%v = %v + take-global(%p[%from, 0], spatial(64))\n"},
    {"begins again when it has come down", "%from = %from - 1\n", "%from = %from == 1 ? 2 : %from - 1\n"},
    {0},
};

/* ---- blocks that wait for a count of others ---- */

static const char seeded_census[] = SEEDED_GRID(
    "n, 2") "%c = alloc-global f32[grid.x, 64]\n"
            "%told = alloc-global i32[1], clean\n"
            "%done = alloc-global i32[1], clean\n"
            "%one = alloc-register i32[1], layout replicated(64), init 1\n"
            "if block.y == 0\n"
            "store-global %c[block.x, 0], load-global(x[block.x, 0], spatial(1, 64))\n"
            "sync\n"
            "atomic add %told[0], %one, order release\n"
            "else\n"
            "lock-semaphore %told[0], grid.x\n"
            "store-global y[block.x, 0], load-global(%c[grid.x - 1 - block.x, 0], spatial(1, 64))\n"
            "%last = scalar(atomic-fetch(add, %done[0], %one, order acq_rel))\n"
            "if %last == grid.x - 1\n"
            "release-semaphore %told[0], 0\n"
            "release-semaphore %done[0], 0\n"
            "end\n"
            "end\n.end\n";
static const seeded_mistake seeded_census_mistakes[] = {
    {"waits for one more", "%told[0], grid.x\n", "%told[0], grid.x + 1\n"},
    {"waits for one less", "%told[0], grid.x\n", "%told[0], grid.x - 1\n"},
    {"a block does not count itself", "atomic add %told[0], %one, order release\n",
     "if block.x != 1\natomic add %told[0], %one, order release\nend\n"},
    {"a block counts itself twice", "atomic add %told[0], %one, order release\n",
     "atomic add %told[0], %one, order release\nif block.x == 1\natomic add %told[0], %one, order release\nend\n"},
    {"a block ends before it counts itself", "sync\natomic", "if block.x == 2\nexit\nend\nsync\natomic"},
    {"a block counts two", "init 1\n", "init 2\n"},
    {"counts at another place", "atomic add %told[0]", "atomic add %done[0]"},
    {"a block counts where there is no element", "atomic add %told[0]", "atomic add %told[block.x]"},
    {"the first who has waited releases", "%last == grid.x - 1", "%last == 0"},
    {"who has waited releases", "if %last == grid.x - 1\n", "if %last >= 0\n"},
    {"two sides wait, and one of them releases", "n, 2", "n, 3"},
    {"who counts itself waits, too", "atomic add %told[0]",
     "lock-semaphore %told[0], grid.x\natomic add %told[0]"},
    {"counts up to a number", "if block.y == 0\n", "if block.y == 0 && block.x < 4\n"},
    {0},
};

#define SEEDED(NAME, WHAT)                                                                                   \
    { WHAT, seeded_##NAME, seeded_##NAME##_mistakes }

static const seeded_kernel seeded_kernels[] = {
    SEEDED(tile, "a tile that is stored and read by others"),
    SEEDED(paths, "stores on paths that meet again"),
    SEEDED(told, "places that an assert tells"),
    SEEDED(copies, "copies of threads, one stage ahead"),
    SEEDED(ring, "a ring of the copy engine's tiles"),
    SEEDED(teams, "a ring of stores, for two teams"),
    SEEDED(meeting, "teams that meet"),
    SEEDED(stores, "tiles that are stored by the copy engine"),
    SEEDED(own, "a team's own mbarrier"),
    SEEDED(roles, "roles, and the block before and after them"),
    SEEDED(warp, "threads of a warp"),
    SEEDED(atomic, "atomic operations"),
    SEEDED(cluster, "blocks of a cluster"),
    SEEDED(tickets, "places that a counter hands out"),
    SEEDED(chain, "sums that go from block to block"),
    SEEDED(sum, "sums that one block takes from all others"),
    SEEDED(census, "blocks that wait for a count of others"),
};
enum { SEEDED_KERNELS = sizeof seeded_kernels / sizeof *seeded_kernels };

/* malloc'ed: the program with the mistake; NULL: what is changed does not stand there once. */
static inline char *seeded_text(const seeded_kernel *of, const seeded_mistake *mistake) {
    const char *at = strstr(of->text, mistake->from);
    if (at == NULL || strstr(at + 1, mistake->from) != NULL) return NULL;
    size_t size = strlen(of->text) + strlen(mistake->to) + 1;
    char *text = malloc(size);
    if (text == NULL) abort();
    snprintf(text, size, "%.*s%s%s", (int)(at - of->text), of->text, mistake->to, at + strlen(mistake->from));
    return text;
}

#endif
