/* Random kernels with one pipelined loop whose copies the copy engine may do, started by a warp of its own;
 * sources are tensors with strides, views and scalars from memory. random_program.h has all other kinds. */
#ifndef TVM_TESTS_RANDOM_RING_H
#define TVM_TESTS_RANDOM_RING_H

#include "random_program.h"

/* A statement of a kernel whose copies a producer warp may start: it waits for nothing, and writes neither o
 * nor g. */
static inline void put_quiet(random_program *p, unsigned depth) {
    switch (random_below(p, depth ? 8 : 6)) {
    case 0:
        put(p, "%%m = load-global o[");
        put_two(p);
        put(p, "], spatial(4, 8).local(1, 4)\n");
        break;
    case 1:
        put(p, "store-global y[");
        put_two(p);
        put(p, "], %%a2\n");
        break;
    case 2:
        put(p, "atomic add y[%%m, ");
        put_index(p);
        put(p, "], %%m\n");
        break;
    case 3:
        put(p, "%%a2 = add %%m, %%a2\n");
        break;
    case 4:
    case 5:
        put(p, "%%y%u = ", random_below(p, 2));
        put_expr(p, 'i', RANDOM_DEPTH);
        put(p, "\n");
        break;
    default:
        put(p, "if ");
        put_condition(p, 2);
        put(p, "\n");
        for (unsigned i = 1 + random_below(p, 2); i > 0; i--) put_quiet(p, depth - 1);
        if (random_below(p, 2)) {
            put(p, "else\n");
            put_quiet(p, depth - 1);
        }
        put(p, "end\n");
    }
}

/* Copies that the copy engine may do, and what is done with them; %s<i> is the loop's variable. */
static inline void put_ring(random_program *p) {
    unsigned i = p->loops;
    put(p, "for %%i%u = ", i);
    switch (random_below(p, 4)) {
    case 0:
        put(p, "%u to %u", random_below(p, 4), random_below(p, 9));
        break;
    case 1:
        put(p, "0 to n step %s", RANDOM_OF(p, "4", "8", "32"));
        break;
    case 2:
        put(p, "max(a, 0) to min(max(a, 0), 1000) + %u", random_below(p, 8));
        break;
    default:
        put(p, "%u to min(b, %u) step %s", random_below(p, 9), 1 + random_below(p, 40),
            RANDOM_OF(p, "1", "2", "7"));
        break;
    }
    put(p, " pipeline %u\n", 2 + random_below(p, 3));
    p->loops++;
    if (random_below(p, 2)) {
        put(p, "%%p = load-scalar g[%%i%u%s], range %s to %s\n", i, RANDOM_OF(p, "", " & 15", " % 16"),
            RANDOM_OF(p, "0", "0", "-1"), RANDOM_OF(p, "8", "n", "31", "b"));
        put(p, "copy-async %%r, %s[%s]\n", RANDOM_OF(p, "o", "%w0", "%w1"),
            RANDOM_OF(p, "%p, 0", "0, %p * 4", "%p, %p * 4"));
    } else {
        put(p, "copy-async %%r, %s[", RANDOM_OF(p, "o", "%w0", "%w1"));
        if (random_below(p, 2))
            put(p, "%s", RANDOM_OF(p, "0, %i0 * 32", "%i0, 0", "%i0 * 4, 0", "%i0, %i0 * 4"));
        else
            put_place(p, false);
        put(p, "]\n");
    }
    if (random_below(p, 2)) {
        put(p, "copy-async %%r2, x[");
        if (random_below(p, 2))
            put(p, "%%i%u * %s", i, RANDOM_OF(p, "4", "32"));
        else
            put_index(p);
        put(p, "]\n%%t = %%t + load-shared(%%r2, spatial(32))\n");
    }
    put(p, "%%m = load-shared %%r, spatial(4, 8).local(1, 4)\n");
    for (unsigned n = random_below(p, 3); n > 0; n--) put_quiet(p, 2);
    put(p, "%%a2 = add %%m, %%a2\n");
    p->loops--;
    put(p, "end\n");
}

/* A kernel around one such loop. */
static inline void random_ring_make(random_program *p, uint64_t seed) {
    *p = (random_program){.state = seed};
    put(p, ".vasm 5\n.kernel k(a: i32, b: i32, n: i32, c: i64, d: u32, u: u64, x: global f32[%s],\n",
        RANDOM_OF(p, "n", "40", "n * 4", "i64(n) + 8", "i32(c)"));
    put(p, "    y: global i32[%s, %s], g: global i32[%s],\n", RANDOM_OF(p, "n", "16", "b"),
        RANDOM_OF(p, "8", "40", "n"), RANDOM_OF(p, "n", "16"));
    put(p, "    o: global i32[%s, %s]%s)\n", RANDOM_OF(p, "n", "4", "b", "64"),
        RANDOM_OF(p, "8", "n", "64", "40"),
        RANDOM_OF(p, "", "", " strides [n, 1]", " strides [a, 1]", " strides [b * 4, 1]", " strides [1, a]",
                  " strides [0, 1]"));
    put(p, ".warps 1\n.grid %s\n", RANDOM_OF(p, "1", "2", "cdiv(n, 32)"));
    for (unsigned i = random_below(p, 4); i > 0; i--)
        put(p, ".assume %s\n",
            RANDOM_OF(p, "a > 0", "a % 4 == 0", "b >= 0 && b < 100", "n % 4 == 0", "n % 8 == 0", "c >= 0",
                      "n >= 32", "b % 4 == 0", "c % 4 == 0"));
    put(p,
        "%%t = alloc-register f32[32], spatial(32), init 1\n"
        "%%m = alloc-register i32[4, 32], spatial(4, 8).local(1, 4), init 5\n"
        "%%a2 = alloc-register i32[4, 32], spatial(4, 8).local(1, 4), init 0\n"
        "%%r = alloc-shared i32[4, 32], row_major\n%%r2 = alloc-shared f32[32]\n%%v0 = b\n%%y0 = 0\n%%y1 = n\n");
    p->variables = 1;
    put_view(p, "o", false);
    put_view(p, RANDOM_OF(p, "o", "%w0", "%w0"), false);
    for (unsigned i = random_below(p, 3); i > 0; i--) put_quiet(p, 2);
    unsigned way = random_below(p, 4);
    if (way == 0) {
        put(p, "if ");
        put_condition(p, 2);
        put(p, "\n");
    } else if (way == 1) {
        put(p, "for %%i0 = block.x to %s\n", RANDOM_OF(p, "3", "min(b, 4)", "cdiv(n, 32)"));
        p->loops++;
        put_quiet(p, 2);
    }
    put_ring(p);
    if (way < 2) {
        put_quiet(p, 2);
        put(p, "end\n");
    }
    p->loops = 0;
    put(p, "store-global y[");
    put_two(p);
    put(p, "], %%a2\nsync\nstore-global x[");
    put_index(p);
    put(p, "], %%t\n.end\n");
}

/* Of either kind: every fourth is such a loop. */
static inline void random_kernel_make(random_program *p, uint64_t seed) {
    if (seed % 4)
        random_program_make(p, seed);
    else
        random_ring_make(p, seed);
}

#endif
