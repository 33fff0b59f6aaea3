/* Random kernels that compute indices in every way, with loops, conditions and rings of stages, and access
 * global tensors of whatever extents, shared ones and semaphores at them. The same seed gives the same text.
 * A loop has few turns, whatever the arguments. */
#ifndef TVM_TESTS_RANDOM_PROGRAM_H
#define TVM_TESTS_RANDOM_PROGRAM_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { RANDOM_TEXT = 1 << 16, RANDOM_DEPTH = 3 };

typedef struct random_program {
    uint64_t state;
    char text[RANDOM_TEXT];
    size_t length;
    unsigned loops, variables; /* of i32 that are set: loop variables %i<0>.., %v<0>.. */
    bool stage;                /* %st is set */
    unsigned given;            /* scalars from memory, %g0.. */
    unsigned depth;            /* of control */
    unsigned views;            /* %w0.. */
} random_program;

/* splitmix64 */
static inline uint64_t random_bits(uint64_t *state) {
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static inline unsigned random_below(random_program *p, unsigned n) {
    return (unsigned)(random_bits(&p->state) % n);
}

static inline const char *random_of(random_program *p, const char *const *list, unsigned count) {
    return list[random_below(p, count)];
}
#define RANDOM_OF(p, ...)                                                                                    \
    random_of(p, (const char *const[]){__VA_ARGS__},                                                         \
              sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

__attribute__((format(printf, 2, 3))) static inline void put(random_program *p, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(p->text + p->length, sizeof p->text - p->length, format, arguments);
    va_end(arguments);
    if (n > 0) p->length += (size_t)n;
    if (p->length >= sizeof p->text) p->length = sizeof p->text - 1;
}

static inline void put_expr(random_program *p, char type, unsigned depth);

/* Types: i i32, l i64, d u32, u u64. */
static inline const char *type_name(char type) {
    return type == 'i' ? "i32" : type == 'l' ? "i64" : type == 'd' ? "u32" : "u64";
}

static inline void put_leaf(random_program *p, char type) {
    static const char *const numbers[] = {"0",  "1",  "2",  "3",          "4",  "6",          "7",
                                          "8",  "16", "31", "32",         "40", "60000000",   "1000000007",
                                          "64", "48", "5",  "2147483647", "12", "2147483640", "1073741824"};
    unsigned way = random_below(p, 8);
    if (way < 3)
        put(p, "%s(%s)", type_name(type), random_of(p, numbers, sizeof numbers / sizeof *numbers));
    else if (type == 'l' && way < 6)
        put(p, "c");
    else if (type == 'd' && way < 6)
        put(p, "d");
    else if (type == 'u' && way < 6)
        put(p, "u");
    else if (type != 'i')
        put(p, "%s(%s)", type_name(type), RANDOM_OF(p, "a", "b", "c", "d", "u", "n"));
    else if (way < 5 && p->loops > 0)
        put(p, "%%i%u", random_below(p, p->loops));
    else if (way < 6 && p->variables > 0)
        put(p, "%%v%u", random_below(p, p->variables));
    else if (p->stage && random_below(p, 3) == 0)
        put(p, "%%st");
    else if (p->given && random_below(p, 2) == 0)
        put(p, "%%g%u", random_below(p, p->given));
    else
        put(p, "%s",
            RANDOM_OF(p, "a", "b", "n", "block.x", "i32(c)", "i32(d)", "i32(u)", "grid.x", "-1", "-4"));
}

static inline void put_condition(random_program *p, unsigned depth) {
    char type = "iiiildu"[random_below(p, 7)];
    put_expr(p, type, depth);
    put(p, " %s ", RANDOM_OF(p, "<", "<=", ">", ">=", "==", "!="));
    put_expr(p, type, depth);
}

static inline void put_call(random_program *p, const char *name, char type, unsigned depth) {
    put(p, "%s(", name);
    put_expr(p, type, depth);
    put(p, ", ");
    put_expr(p, type, depth);
    put(p, ")");
}

static inline void put_expr(random_program *p, char type, unsigned depth) {
    unsigned way = depth == 0 ? 0 : random_below(p, 16);
    if (way < 3) {
        put_leaf(p, type);
    } else if (way < 5) {
        put_call(p, RANDOM_OF(p, "min", "max", "cdiv"), type, depth - 1);
    } else if (way == 5) { /* clamped */
        put(p, "min(max(");
        put_expr(p, type, depth - 1);
        put(p, ", %s(%s)), %s(%s))", type_name(type), RANDOM_OF(p, "0", "1", "8"), type_name(type),
            RANDOM_OF(p, "3", "8", "31", "900"));
    } else if (way == 6) {
        put(p, "(");
        put_condition(p, depth - 1);
        put(p, " ? ");
        put_expr(p, type, depth - 1);
        put(p, " : ");
        put_expr(p, type, depth - 1);
        put(p, ")");
    } else if (way == 7) {
        put(p, "%s(", type_name(type));
        put_expr(p, "ildu"[random_below(p, 4)], depth - 1);
        put(p, ")");
    } else if (way == 8) {
        put(p, "(");
        put_expr(p, type, depth - 1);
        put(p, " %s %s)", RANDOM_OF(p, "<<", ">>"), RANDOM_OF(p, "1", "2", "3", "5", "31", "a"));
    } else if (way < 12) { /* by a constant */
        put(p, "(");
        put_expr(p, type, depth - 1);
        put(p, " %s %s(%s))", RANDOM_OF(p, "/", "%", "*", "+", "-", "&"), type_name(type),
            RANDOM_OF(p, "1", "2", "3", "4", "6", "8", "16", "32", "7", "255"));
    } else {
        put(p, "(");
        put_expr(p, type, depth - 1);
        put(p, " %s ", RANDOM_OF(p, "+", "-", "*", "+", "-", "/", "%", "&", "|", "^"));
        put_expr(p, type, depth - 1);
        put(p, ")");
    }
}

/* Now and then where a sum or a product wraps, or a u64 has no place among i64. */
static inline void put_index(random_program *p) {
    if (random_below(p, 8) == 0) {
        put(p, "%s",
            RANDOM_OF(p, "min(cdiv(a, 60000000), 900)", "min(cdiv(b, 1 << 28), 8) + 1", "min(a + 64, 8)",
                      "min(i64(cdiv(d, 60000000)), 900) - 1", "8 + max(i64(u), i64(-4))",
                      "max(i64(u), i64(0))", "min(i64(u), 31)", "min(a * 4, 16)", "i64(u % 6) - 2",
                      "min(max(c, 0) + 8, 24)"));
        return;
    }
    put_expr(p, "iiil"[random_below(p, 4)], 1 + random_below(p, RANDOM_DEPTH));
}

static inline void put_stage(random_program *p) {
    unsigned way = random_below(p, 4);
    if (p->stage && way < 2) {
        put(p, "%%st");
    } else if (way < 3) {
        put(p, "min(max(");
        put_index(p);
        put(p, ", 0), 2)");
    } else {
        put_index(p);
    }
}

/* "i, j" */
static inline void put_two(random_program *p) {
    put_index(p);
    put(p, ", ");
    put_index(p);
}

/* A part of a tensor, now and then with strides of its own, as %w<number>. */
static inline void put_view(random_program *p, const char *of, bool strided) {
    unsigned number = p->views++;
    put(p, "%%w%u = view-global %s[", number, of);
    if (random_below(p, 2))
        put(p, "%s", RANDOM_OF(p, "0, 0", "0, 0", "0, 4", "1, 0", "block.x, 0"));
    else
        put_two(p);
    put(p, "]");
    if (strided || random_below(p, 2))
        put(p, ", [%s, %s]", RANDOM_OF(p, "4", "n", "16", "b", "n - 1"),
            RANDOM_OF(p, "8", "32", "n - 4", "a", "n"));
    if (strided)
        put(p, "%s",
            RANDOM_OF(p, ", strides [1, 1]", ", strides [a, 1]", ", strides row_major", ", strides [8, 1]",
                      ", strides [1, 8]", ", strides [n, 1]"));
    else if (random_below(p, 2))
        put(p, ", order [1, 0]");
    put(p, "\n");
}

/* The name of a tensor of i32 of two dimensions: y, the strided o, what the launch makes, or a view of one,
 * or of a view. */
static inline const char *put_tensor(random_program *p, bool written, char name[8]) {
    const char *of = written ? RANDOM_OF(p, "y", "y", "%h") : RANDOM_OF(p, "y", "o", "o", "%h");
    if (random_below(p, 3)) return of;
    put_view(p, of, of[0] == 'y' && p->depth == 0 && random_below(p, 2));
    snprintf(name, 8, "%%w%u", p->views - 1);
    while (random_below(p, 3) == 0) {
        put_view(p, name, false);
        snprintf(name, 8, "%%w%u", p->views - 1);
    }
    return name;
}

static inline void put_part(random_program *p) {
    char name[8];
    bool store = random_below(p, 3) == 0;
    const char *of = put_tensor(p, store, name);
    put(p, "%s%s[", store ? "store-global " : "%m = load-global ", of);
    put_two(p);
    put(p, "], %s\n", store ? "%m" : "spatial(4, 8).local(1, 4)");
}

/* "i, j" of a tile that the copy engine may take: a column that is known to be a multiple of 16 bytes, and
 * often no row below 0. `turned`: i is the column. */
static inline void put_place(random_program *p, bool turned) {
    for (unsigned d = 0; d < 2; d++) {
        unsigned way = random_below(p, 4);
        if (d) put(p, ", ");
        if (way == 0) {
            put_index(p);
        } else if (way == 1) {
            put(p, "%s", RANDOM_OF(p, "0", "block.x * 32", "4"));
        } else if ((d == 0) == turned) {
            put(p, "(");
            put_expr(p, 'i', 1 + random_below(p, 2));
            put(p, ") %s", RANDOM_OF(p, "* 4", "* 32", "& 60", "* 8"));
        } else {
            put(p, "min(max(");
            put_expr(p, 'i', 1 + random_below(p, 2));
            put(p, ", %s), %s)", RANDOM_OF(p, "0", "0", "1", "-3"), RANDOM_OF(p, "3", "31", "n", "900"));
        }
    }
}

/* By the copy engine, or threads in its place. %sv is %k with its columns as rows. */
static inline void put_bulk(random_program *p) {
    char name[8];
    bool store = random_below(p, 2), turned = random_below(p, 3) == 0;
    const char *way = RANDOM_OF(p, "store-bulk", "reduce-bulk add,"), *of = put_tensor(p, store, name);
    const char *shared = turned ? "%sv" : "%k", *tile = turned ? "[32, 4]" : "[4, 32]";
    put(p, "sync\n%s %s[", store ? way : "copy-bulk", store ? of : shared);
    if (store)
        put_place(p, turned);
    else
        put_stage(p);
    put(p, "], %s[", store ? shared : of);
    if (store)
        put_stage(p);
    else
        put_place(p, turned);
    put(p, "], %s%s", tile,
        store ? "\nwait-bulk 0\nsync\n"
              : ", barrier %b[0]\narrive-barrier %b[0]\nwait-barrier %b[0]\nsync\n");
}

/* Everything that a kernel can do with memory at an index. What a sync orders stands between two of them. */
static inline void put_access(random_program *p) {
    switch (random_below(p, 23)) {
    case 0:
        put(p, "%%t = load-global x[");
        put_index(p);
        put(p, "], spatial(32)\n");
        break;
    case 1:
        put(p, "store-global x[");
        put_index(p);
        put(p, "], %%t\n");
        break;
    case 2:
        put(p, "%%m = load-global y[");
        put_index(p);
        put(p, ", ");
        put_index(p);
        put(p, "], spatial(4, 8).local(1, 4)\n");
        break;
    case 3:
        put(p, "store-global y[");
        put_index(p);
        put(p, ", ");
        put_index(p);
        put(p, "], %%m\n");
        break;
    case 4:
        put(p, "store-global z[(");
        put_index(p);
        put(p, ")%s], %%q\n", RANDOM_OF(p, "", " * 2", " & 62"));
        break;
    case 5:
        put(p, "%%q = load-global z[");
        put_index(p);
        put(p, "], spatial(4).replicated(8).local(8)\n");
        break;
    case 6:
        put(p, "release-semaphore w[");
        put_stage(p);
        put(p, "], 7\n");
        break;
    case 7:
        put(p, "sync\n%%m = load-shared %s[", RANDOM_OF(p, "%s", "%k"));
        put_stage(p);
        put(p, ", %s], spatial(4, 8).local(1, 4)\n", RANDOM_OF(p, "0", "a % 2", "block.x"));
        break;
    case 9:
        put(p, "%%v = gather x[%%m + %s]%s\n", RANDOM_OF(p, "0", "a", "b"),
            RANDOM_OF(p, "", ", mask compare(gt, %m, 20)"));
        put(p, "%%m = add %%m, cast(cast(%%v, u8), i32)\n");
        break;
    case 10: /* no place is stored to twice */
        put(p, "%%u = iota i32[32], axis 0, layout spatial(32), start i32(");
        put_index(p);
        put(p, ")\nscatter x[%%u], %%t%s\nscatter y[", RANDOM_OF(p, "", ", mask compare(ne, %u, 5)"));
        put_index(p);
        put(p, ", %%u], %%u\n");
        break;
    case 13:
        put(p, "atomic %s y[%%m, ", RANDOM_OF(p, "add", "max", "xor"));
        put_index(p);
        put(p, "], %%m%s\n", RANDOM_OF(p, "", ", mask compare(gt, %m, 20)"));
        break;
    case 14:
        put(p, "sync\natomic %s %%s[", RANDOM_OF(p, "sub", "min", "and"));
        put_index(p);
        put(p, ", %s, %s], %%m%s\nsync\n", RANDOM_OF(p, "0", "%m", "a"), RANDOM_OF(p, "0", "%m"),
            RANDOM_OF(p, "", "", ", rank 0", ", rank a", ", rank b & 1"));
        break;
    case 11:
        put(p, "sync\n%%m = gather %%s[");
        put_index(p);
        put(p, ", %%m, %s]\n", RANDOM_OF(p, "%m", "0", "b"));
        break;
    case 12:
        put(p, "%%u = iota i32[32], axis 0, layout spatial(32), start i32(");
        put_index(p);
        put(p, ")\nsync\nscatter %%s[");
        put_stage(p);
        put(p, ", %s, %%u], %%u\nsync\n", RANDOM_OF(p, "0", "a", "%u"));
        break;
    case 8:
        put(p, "sync\nstore-shared %s[", RANDOM_OF(p, "%s", "%k"));
        put_stage(p);
        put(p, "], %%m\nsync\n");
        break;
    case 16:
    case 17:
        put_part(p);
        break;
    case 18:
    case 22:
        put_bulk(p);
        break;
    case 19: /* of the block itself */
        put(p, "sync\nstore-cluster %%s[");
        put_stage(p);
        put(p, "], %s, %%m\nsync\n", RANDOM_OF(p, "0", "0", "0", "a", "b & 1"));
        break;
    case 20:
        put(p, "sync\n%%m = load-cluster %%s[");
        put_stage(p);
        put(p, "], %s, spatial(4, 8).local(1, 4)\n", RANDOM_OF(p, "0", "0", "0", "a", "b & 1"));
        break;
    case 21:
        put(p, "%%m = load-global o[");
        put_two(p);
        put(p, "], spatial(4, 8).local(1, 4)\n");
        break;
    default:
        put(p, "sync\ncopy-async %%s[");
        put_stage(p);
        put(p, "], y[");
        put_index(p);
        put(p, ", ");
        put_index(p);
        put(p, "]\ncommit-group\nwait-group 0\nsync\n");
        break;
    }
}

/* A scalar from memory: of %s, which holds 5, or of y, which holds anything. */
static inline void put_scalar(random_program *p) {
    put(p, "%%g%u = load-scalar ", p->given);
    if (random_below(p, 4)) {
        put(p, "%%s[%s, b & 3, block.x & 31]", RANDOM_OF(p, "0", "1", "2"));
    } else {
        put(p, "y[");
        put_index(p);
        put(p, ", ");
        put_index(p);
        put(p, "]");
    }
    if (random_below(p, 5))
        put(p, ", range %s to %s", RANDOM_OF(p, "0", "0", "1", "a", "-1", "5", "b"),
            RANDOM_OF(p, "n", "n", "8", "6", "n * 3", "b", "1000"));
    put(p, "\n");
    p->given++;
}

static inline void put_body(random_program *p, unsigned depth);

static inline void put_loop(random_program *p, unsigned depth) {
    unsigned turns = 1 + random_below(p, 5);
    put(p, "%%e = ");
    put_expr(p, 'i', 2);
    put(p, "\nfor %%i%u = ", p->loops);
    switch (random_below(p, 4)) {
    case 0: /* between constants */
        put(p, "%u to %u\n", random_below(p, 4), turns + 3);
        break;
    case 1: /* from anywhere on */
        put(p, "%%e to %%e + %u\n", turns);
        break;
    case 2: /* up to anywhere */
        put(p, "max(%%e, min(%%e, 0) - 1) - %u to %%e unroll %u\n", turns, 1 + random_below(p, 2));
        break;
    default: /* by any step */
        put(p, "%u to min(%%e, %u) step %s\n", random_below(p, 9), 8 + turns,
            RANDOM_OF(p, "a", "b", "2", "b & 7", "max(a, 1)", "3", "i32(c)"));
        break;
    }
    p->loops++;
    put_body(p, depth - 1);
    if (p->stage) put(p, "%%st = %%st == 2 ? 0 : %%st + 1\n");
    p->loops--;
    put(p, "end\n");
}

/* A loop whose copies go to stages ahead of it, by a producer warp or not; its body writes to x alone. */
static inline void put_pipeline(random_program *p) {
    char name[8];
    const char *of = put_tensor(p, false, name);
    unsigned turns = 1 + random_below(p, 5);
    put(p, "%%e = ");
    put_expr(p, 'i', 2);
    put(p, "\nfor %%i%u = ", p->loops);
    switch (random_below(p, 4)) {
    case 0:
        put(p, "%u to %u", random_below(p, 4), turns + 3);
        break;
    case 1:
        put(p, "%%e to %%e + %u", turns);
        break;
    case 2:
        put(p, "0 to min(n, %u) step 4", 8 * turns);
        break;
    default:
        put(p, "%u to min(%%e, %u) step %s", random_below(p, 9), 8 + turns, RANDOM_OF(p, "2", "3", "32"));
        break;
    }
    put(p, " pipeline 3\n");
    p->loops++;
    put(p, "copy-async %%r, %s[", of);
    put_place(p, false);
    put(p, "]\n");
    if (random_below(p, 3) == 0) {
        put(p, "copy-async %%r2, x[");
        if (random_below(p, 2))
            put(p, "%%i%u * 32", p->loops - 1);
        else
            put_index(p);
        put(p, "]\n");
        put(p, "%%t = load-shared %%r2, spatial(32)\n");
    }
    put(p, "%%m = load-shared %%r, spatial(4, 8).local(1, 4)\n");
    if (random_below(p, 2)) {
        put(p, "%%y0 = ");
        put_expr(p, 'i', 2);
        put(p, "\n");
    }
    if (random_below(p, 2)) {
        if (random_below(p, 2)) {
            put(p, "if ");
            put_condition(p, 2);
            put(p, "\n%%a2 = add %%m, %%a2\nend\n");
        } else
            put(p, "%%a2 = add %%m, %%a2\n");
    }
    if (random_below(p, 3) == 0) {
        put(p, "scatter z2[(%%m + ");
        put_index(p);
        put(p, ") & 1023], %%m, mask compare(eq, %%m, 7)\n");
    }
    p->loops--;
    put(p, "end\nstore-global y[");
    put_two(p);
    put(p, "], %%a2\n");
}

static inline void put_statement(random_program *p, unsigned depth) {
    unsigned way = random_below(p, depth == 0 ? 6 : 11);
    if (way == 10) {
        put_pipeline(p);
    } else if (way < 4) {
        put_access(p);
    } else if (way < 6) {
        put(p, "%%v%u = ", random_below(p, p->variables));
        put_expr(p, 'i', RANDOM_DEPTH);
        put(p, "\n");
    } else if (way < 8) {
        put_loop(p, depth);
    } else {
        put(p, "if ");
        put_condition(p, 2);
        put(p, "\n");
        put_body(p, depth - 1);
        if (random_below(p, 2)) {
            put(p, "else\n");
            put_body(p, depth - 1);
        }
        put(p, "end\n");
    }
}

static inline void put_body(random_program *p, unsigned depth) {
    p->depth++;
    for (unsigned i = 1 + random_below(p, 3); i > 0; i--) put_statement(p, depth);
    p->depth--;
}

static inline void random_program_make(random_program *p, uint64_t seed) {
    *p = (random_program){.state = seed};
    put(p, ".vasm 5\n.kernel k(a: i32, b: i32, n: i32, c: i64, d: u32, u: u64, x: global f32[%s],\n",
        RANDOM_OF(p, "n", "40", "128", "1000", "cdiv(n, 8) * 8", "n * 3", "i64(n) + 8", "b", "i32(c)"));
    put(p, "    y: global i32[%s, %s], z: global u4[%s], w: global u32[%s],\n", RANDOM_OF(p, "n", "16", "b"),
        RANDOM_OF(p, "8", "40", "n", "cdiv(n, 4) * 4"), RANDOM_OF(p, "64", "n * 2", "32"),
        RANDOM_OF(p, "n", "16", "64"));
    put(p, "    o: global i32[%s, %s] strides [%s], z2: global i32[1024])\n",
        RANDOM_OF(p, "n", "4", "b", "32"), RANDOM_OF(p, "8", "n", "32"),
        RANDOM_OF(p, "n, 1", "a, 1", "40, 1", "1, 1", "1, n", "1, a", "1, 64", "n * 4, 1", "a, b",
                  "1, a * 4"));
    put(p, ".warps 1\n.grid %s\n", RANDOM_OF(p, "1", "2", "cdiv(n, 32)", "min(n, 3)"));
    for (unsigned i = random_below(p, 3); i > 0; i--)
        put(p, ".assume %s\n",
            RANDOM_OF(p, "a > 0", "a % 4 == 0", "b >= 0 && b < 100", "u < 18446744073709551615", "u < 50",
                      "u % 6 == 0", "d > 3", "c <= 1000", "a % 6 == 0", "n % 8 == 0",
                      "u >= 9223372036854775808", "c >= 0", "n % 4 == 0", "a % 4 == 0 && n % 4 == 0",
                      "b % 4 == 0"));
    put(p,
        "%%t = alloc-register f32[32], spatial(32), init 1\n"
        "%%m = alloc-register i32[4, 32], spatial(4, 8).local(1, 4), init 5\n"
        "%%q = alloc-register u4[32], spatial(4).replicated(8).local(8), init 3\n"
        "%%s = alloc-shared i32[3, 4, 32]\n%%k = alloc-shared i32[3, 4, 32], row_major\n"
        "%%sv = view-shared %%k, order [0, 2, 1]\n"
        "%%r = alloc-shared i32[4, 32], row_major\n"
        "%%r2 = alloc-shared f32[32]\n%%a2 = alloc-register i32[4, 32], spatial(4, 8).local(1, 4), init 0\n"
        "%%h = alloc-global i32[8, n]\nfor %%z = 0 to n step 32\nstore-global %%h[0, %%z], %%m\n"
        "store-global %%h[4, %%z], %%m\nend\n%%b = alloc-barrier [1]\n"
        ".for T = 0 to 3\nstore-shared %%s[T], %%m\nstore-shared %%k[T], %%m\n.endfor\nsync\n"
        "%%v0 = 0\n%%v1 = a\n%%v2 = b\n%%e = 0\n");
    p->variables = 3;
    for (unsigned i = random_below(p, 3); i > 0; i--) put_scalar(p);
    if (random_below(p, 2)) {
        put(p, "%%st = %s\n", RANDOM_OF(p, "0", "1", "2"));
        p->stage = true;
    }
    for (unsigned i = 2 + random_below(p, 4); i > 0; i--) put_statement(p, RANDOM_DEPTH);
    put(p, ".end\n");
}

#endif
