/* The interpreter: memory, copies, control, errors, output, host threads, and what a launch checks. */
#include "interp_case.h"
#include "suite_kit.h"

/* ---- global memory ---- */

/* A tile that crosses every edge: outside is zero, and nothing outside is touched. */
START_TEST(load_and_store_clip_to_the_tensor) {
    static const char text[] =
        ".vasm 1\n"
        ".kernel k(m: i32, n: i32, i: i32, j: i32, a: global f32[m, n], b: global f32[16, 16],\n"
        "          c: global f32[m, n])\n"
        ".warps 1\n"
        "    %x = load-global a[i, j], auto(16, 16)\n"
        "    store-global b[0, 0], %x\n"
        "    store-global c[i, j], %x\n"
        ".end\n";
    enum { M = 21, N = 19 };
    static const int starts[][2] = {{0, 0},  {-3, -5},   {10, 12}, {-16, 0},
                                    {0, 19}, {-15, -15}, {20, 18}, {21, 3}};
    float a[M * N], b[256], c[M * N];
    for (size_t s = 0; s < sizeof starts / sizeof *starts; s++) {
        int i0 = starts[s][0], j0 = starts[s][1];
        for (int i = 0; i < M * N; i++) a[i] = (float)(i + 1);
        for (int i = 0; i < M * N; i++) c[i] = -1;
        run(text, VALUES(INT("m", M), INT("n", N), INT("i", i0), INT("j", j0), TENSOR("a", a), TENSOR("b", b),
                         TENSOR("c", c)));
        for (int i = 0; i < 16; i++)
            for (int j = 0; j < 16; j++) {
                bool inside = i + i0 >= 0 && i + i0 < M && j + j0 >= 0 && j + j0 < N;
                ck_assert_float_eq(b[i * 16 + j], inside ? a[(i + i0) * N + j + j0] : 0);
            }
        for (int i = 0; i < M; i++)
            for (int j = 0; j < N; j++) {
                bool covered = i >= i0 && i < i0 + 16 && j >= j0 && j < j0 + 16;
                ck_assert_float_eq(c[i * N + j], covered ? a[i * N + j] : -1);
            }
    }
}
END_TEST

/* Indices beyond any address: still only zeros and nothing written. */
START_TEST(indices_far_outside_are_harmless) {
    static const char text[] = ".vasm 1\n"
                               ".kernel k(i: i64, a: global f32[4, 4], b: global f32[4, 4])\n"
                               ".warps 1\n"
                               "    %x = load-global a[i, i], auto(4, 4)\n"
                               "    store-global b[0, 0], %x\n"
                               "    store-global a[i, 0], %x\n"
                               "    store-global a[0, i], %x\n"
                               ".end\n";
    static const int64_t far[] = {INT64_MAX, INT64_MIN, INT64_MAX - 3, INT64_MIN + 3, (int64_t)1 << 62,
                                  -4,        4};
    for (size_t s = 0; s < sizeof far / sizeof *far; s++) {
        float a[16], b[16];
        for (int i = 0; i < 16; i++) a[i] = b[i] = 1;
        run(text, VALUES(INT("i", far[s]), TENSOR("a", a), TENSOR("b", b)));
        for (int i = 0; i < 16; i++) ck_assert_float_eq(a[i], 1);
        for (int i = 0; i < 16; i++) ck_assert_float_eq(b[i], 0);
    }
}
END_TEST

START_TEST(leading_indices_are_points) {
    static const char text[] = ".vasm 1\n"
                               ".kernel k(p: i32, q: i32, a: global i32[3, 2, 4, 8], b: global i32[4, 8])\n"
                               ".warps 1\n"
                               "    %x = load-global a[p, q, 0, 0], auto(4, 8)\n"
                               "    store-global b[0, 0], %x\n"
                               ".end\n";
    int32_t a[3 * 2 * 32], b[32];
    for (int i = 0; i < 3 * 2 * 32; i++) a[i] = i;
    for (int p = -1; p <= 3; p++)
        for (int q = -1; q <= 2; q++) {
            run(text, VALUES(INT("p", p), INT("q", q), TENSOR("a", a), TENSOR("b", b)));
            for (int i = 0; i < 32; i++)
                ck_assert_int_eq(b[i], p >= 0 && p < 3 && q >= 0 && q < 2 ? (p * 2 + q) * 32 + i : 0);
        }
}
END_TEST

START_TEST(an_empty_tensor_is_all_outside) {
    static const char text[] = ".vasm 1\n"
                               ".kernel k(n: i32, a: global f16[n, n], b: global f16[2, 16])\n"
                               ".warps 1\n"
                               "    %x = load-global a[0, 0], auto(2, 16)\n"
                               "    store-global b[0, 0], %x\n"
                               "    store-global a[0, 0], %x\n"
                               ".end\n";
    uint16_t b[32];
    memset(b, 0xff, sizeof b);
    run(text, VALUES(INT("n", 0), TENSOR("a", NULL), TENSOR("b", b)));
    for (int i = 0; i < 32; i++) ck_assert_uint_eq(b[i], 0);
}
END_TEST

/* Every type that is not whole bytes: a tile at the corner of a tensor of odd bytes, loaded and stored. */
START_TEST(compact_types_are_copied_bit_by_bit) {
    tvm_dtype types[TVM_DTYPE_COUNT_MAX];
    size_t count = tvm_dtype_list(types, TVM_DTYPE_COUNT_MAX), seen = 0;
    enum { M = 11, N = 24 };
    for (size_t t = 0; t < count; t++) {
        unsigned bits = types[t].bits;
        char name[TVM_DTYPE_NAME_MAX], text[512];
        uint8_t a[M * N], c[M * N];
        if (bits >= 8) continue;
        tvm_dtype_name(types[t], name);
        snprintf(text, sizeof text,
                 ".vasm 1\n"
                 ".kernel k(m: i32, n: i32, i: i32, j: i32, a: global %s[m, n], c: global %s[m, n])\n"
                 ".warps 1\n"
                 "    %%x = load-global a[i, j], spatial(16, 2).local(1, 8)\n"
                 "    store-global c[i, j], %%x\n"
                 ".end\n",
                 name, name);
        for (int i = 0; i < M * N; i++) a[i] = (uint8_t)(i * 37 + 11);
        memset(c, 0xa5, sizeof c);
        run(text,
            VALUES(INT("m", M), INT("n", N), INT("i", 3), INT("j", 16), TENSOR("a", a), TENSOR("c", c)));
        for (size_t i = 0; i < M * N; i++) {
            bool covered = i / N >= 3 && i % N >= 16;
            uint8_t untouched[M * N];
            memset(untouched, 0xa5, sizeof untouched);
            ck_assert_msg(bit_string_get(c, i, bits) == bit_string_get(covered ? a : untouched, i, bits),
                          "%s element %zu", name, i);
        }
        for (size_t i = (M * N * bits + 7) / 8; i < M * N; i++) ck_assert_uint_eq(c[i], 0xa5);
        seen++;
    }
    ck_assert_uint_ge(seen, 7 + 6);
}
END_TEST

START_TEST(a_store_may_not_start_inside_a_byte) {
    static const char text[] =
        ".vasm 1\n"
        ".kernel k(j: i32, a: global u3[2, 16])\n"
        ".warps 1\n"
        "    %x = alloc-register u3[1, 8], spatial(1, 1).replicated(32, 2).local(1, 8)\n"
        "    store-global a[0, j], %x\n"
        ".end\n";
    uint8_t a[12] = {0};
    run(text, VALUES(INT("j", 8), TENSOR("a", a)));
    run(text, VALUES(INT("j", -8), TENSOR("a", a)));
    run_fails(text, "k: block (0,0,0): store-global: a: index 3 of elements of 3 bits is inside a byte",
              VALUES(INT("j", 3), TENSOR("a", a)));
}
END_TEST

/* ---- shared memory ---- */

START_TEST(shared_tiles_go_where_their_indices_say) {
    static const char text[] = ".vasm 1\n"
                               ".kernel k(i: i32, j: i32, a: global f16[8, 16], c: global f16[3, 16, 32])\n"
                               ".warps 1\n"
                               "    %s = alloc-shared f16[3, 16, 32]\n"
                               "    %zero = alloc-register f16[3, 16, 32], auto(3, 16, 32), init 7\n"
                               "    store-shared %s[0, 0, 0], %zero\n"
                               "    sync\n"
                               "    %x = load-global a[0, 0], auto(8, 16)\n"
                               "    store-shared %s[2, i, j], %x\n"
                               "    sync\n"
                               "    %y = load-shared %s[0, 0, 0], auto(3, 16, 32)\n"
                               "    store-global c[0, 0, 0], %y\n"
                               "    free-shared %s\n"
                               ".end\n";
    uint16_t a[128], c[3 * 16 * 32];
    for (int i = 0; i < 128; i++) a[i] = (uint16_t)(i + 1);
    run(text, VALUES(INT("i", 5), INT("j", 9), TENSOR("a", a), TENSOR("c", c)));
    for (int p = 0; p < 3; p++)
        for (int i = 0; i < 16; i++)
            for (int j = 0; j < 32; j++) {
                bool covered = p == 2 && i >= 5 && i < 13 && j >= 9 && j < 25;
                ck_assert_uint_eq(c[(p * 16 + i) * 32 + j], covered ? a[(i - 5) * 16 + j - 9] : f16_code(7));
            }
}
END_TEST

START_TEST(an_index_outside_a_shared_tensor_is_an_error) {
    static const char text[] = ".vasm 1\n"
                               ".kernel mat(i: i32, j: i32)\n"
                               ".warps 1\n"
                               ".grid 1, 1, 1\n"
                               "    %s = alloc-shared f32[4, 8, 8]\n"
                               "    %x = load-shared %s[i, j, 0], auto(4, 8)\n"
                               "    store-shared %s[i, j, 0], %x\n"
                               ".end\n";
    run(text, VALUES(INT("i", 3), INT("j", 4)));
    run_fails(text, "mat: block (0,0,0): load-shared: %s: index 4 is outside dimension 0 of extent 4",
              VALUES(INT("i", 4), INT("j", 0)));
    run_fails(text, "mat: block (0,0,0): load-shared: %s: index -1 is outside dimension 0 of extent 4",
              VALUES(INT("i", -1), INT("j", 0)));
    run_fails(
        text,
        "mat: block (0,0,0): load-shared: %s: 4 elements at index 5 are outside dimension 1 of extent 8",
        VALUES(INT("i", 0), INT("j", 5)));
    outcome out = attempt(text, VALUES(INT("i", 9), INT("j", 0)));
    ck_assert_uint_eq(out.line, 6);
    free(out.output);
}
END_TEST

START_TEST(fresh_shared_memory_is_poison) {
    static const char text[] = ".vasm 1\n"
                               ".kernel k(c: global f32[4, 8])\n"
                               ".warps 1\n"
                               "    %s = alloc-shared f32[4, 8]\n"
                               "    %x = load-shared %s[0, 0], auto(4, 8)\n"
                               "    store-global c[0, 0], %x\n"
                               ".end\n";
    float c[32] = {0};
    run(text, VALUES(TENSOR("c", c)));
    for (int i = 0; i < 32; i++) ck_assert(isnan(c[i]));
}
END_TEST

/* ---- asynchronous copies ---- */

/* After each step, which of three groups (and of the copy that is never committed) have arrived? */
START_TEST(copies_arrive_when_their_group_is_waited_for) {
    static const char text[] = ".vasm 1\n"
                               ".kernel k(a: global i32[4, 32], c: global i32[4, 4, 32])\n"
                               ".warps 1\n"
                               "    %s = alloc-shared i32[4, 32]\n"
                               "    %zero = alloc-register i32[4, 32], auto(4, 32), init 0\n"
                               "    store-shared %s[0, 0], %zero\n"
                               "    .for i = 0 to 3\n"
                               "        copy-async %s[i, 0], a[i, 0], [32]\n"
                               "        commit-group\n"
                               "    .endfor\n"
                               "    copy-async %s[3, 0], a[3, 0], [32]\n"
                               "    .for i = 0 to 4\n"
                               "        wait-group (3 - i)\n"
                               "        sync\n"
                               "        %x${i} = load-shared %s[0, 0], auto(4, 32)\n"
                               "        store-global c[i, 0, 0], %x${i}\n"
                               "    .endfor\n"
                               ".end\n";
    int32_t a[4 * 32], c[4 * 4 * 32];
    for (int i = 0; i < 4 * 32; i++) a[i] = i + 1;
    run(text, VALUES(TENSOR("a", a), TENSOR("c", c)));
    for (int step = 0; step < 4; step++)
        for (int i = 0; i < 4 * 32; i++) ck_assert_int_eq(c[step * 128 + i], i / 32 < step ? a[i] : 0);
}
END_TEST

START_TEST(copies_clip_and_fill_with_zero) {
    static const char text[] = ".vasm 1\n"
                               ".kernel k(m: i32, n: i32, i: i32, j: i32, a: global f16[m, n],\n"
                               "          c: global f16[2, 8, 16])\n"
                               ".warps 1\n"
                               "    %s = alloc-shared f16[2, 8, 16]\n"
                               "    %one = alloc-register f16[2, 8, 16], auto(2, 8, 16), init 1\n"
                               "    store-shared %s[0, 0, 0], %one\n"
                               "    copy-async %s[1, 2, 4], a[i, j], [4, 8]\n"
                               "    commit-group\n"
                               "    wait-group 0\n"
                               "    sync\n"
                               "    %x = load-shared %s[0, 0, 0], auto(2, 8, 16)\n"
                               "    store-global c[0, 0, 0], %x\n"
                               ".end\n";
    enum { M = 5, N = 11 };
    uint16_t a[M * N], c[256];
    for (int i = 0; i < M * N; i++) a[i] = (uint16_t)(i + 1);
    for (int i0 = -5; i0 <= 6; i0++)
        for (int j0 = -9; j0 <= 12; j0 += 3) {
            run(text,
                VALUES(INT("m", M), INT("n", N), INT("i", i0), INT("j", j0), TENSOR("a", a), TENSOR("c", c)));
            for (int e = 0; e < 256; e++) {
                int i = e / 16 % 8 - 2, j = e % 16 - 4;
                bool tile = e >= 128 && i >= 0 && i < 4 && j >= 0 && j < 8;
                bool inside = i + i0 >= 0 && i + i0 < M && j + j0 >= 0 && j + j0 < N;
                ck_assert_uint_eq(c[e], !tile ? f16_code(1) : inside ? a[(i + i0) * N + j + j0] : 0);
            }
        }
}
END_TEST

/* How the warps share a copy changes nothing of what is copied. */
START_TEST(copies_by_warps_are_the_same) {
    static const char *const warps[] = {"", ", warps [6, 1]", ", warps [1, 6]", ", warps [2, 3]",
                                        ", warps [3, 2]"};
    uint16_t first[12 * 24], c[12 * 24], a[11 * 35];
    for (unsigned i = 0; i < 11 * 35; i++) a[i] = (uint16_t)(i + 1);
    for (unsigned i = 0; i < sizeof warps / sizeof *warps; i++) {
        char text[512];
        snprintf(
            text, sizeof text,
            ".vasm 1\n.kernel k(a: global f16[11, 35], c: global f16[12, 24])\n.warps 6\n"
            "%%s = alloc-shared f16[2, 12, 24]\ncopy-async %%s[1], a[3, 13]%s\ncommit-group\nwait-group 0\n"
            "sync-warp\nsync\n%%x = load-shared %%s[1], spatial(12, 8).local(1, 3).replicated(2, 2)\n"
            "store-global c, %%x\n.end\n",
            warps[i]);
        memset(c, 0xcc, sizeof c);
        run(text, VALUES(TENSOR("a", a), TENSOR("c", c)));
        if (i == 0) memcpy(first, c, sizeof c);
        ck_assert_mem_eq(c, first, sizeof c);
    }
    ck_assert_uint_eq(first[24 * 7 + 21], a[35 * 10 + 34]);
    ck_assert_uint_eq(first[24 * 8], 0);
}
END_TEST

START_TEST(copies_without_end_are_refused) {
    static const char text[] = ".vasm 1\n"
                               ".kernel k(a: global f32[32])\n"
                               ".warps 1\n"
                               "    %s = alloc-shared f32[32]\n"
                               "    while true\n"
                               "        copy-async %s[0], a[0], [32]\n"
                               "    end\n"
                               ".end\n";
    float a[32] = {0};
    run_fails(text, "k: block (0,0,0): copy-async: more than 65536 copies that nothing has waited for",
              VALUES(TENSOR("a", a)));
}
END_TEST

/* ---- scalars and control ---- */

/* Runs a body that leaves its result in %r, and returns it. */
static int64_t scalar_result(const char *body, int64_t n) {
    char text[2048];
    int64_t c = -1;
    snprintf(text, sizeof text,
             ".vasm 1\n"
             ".kernel k(n: i64, c: global i64[1])\n"
             ".warps 1\n"
             "    %%r = i64(0)\n"
             "%s"
             "    %%x = alloc-register i64[1], replicated(32), init %%r\n"
             "    store-global c[0], %%x\n"
             ".end\n",
             body);
    run(text, VALUES(INT("n", n), TENSOR("c", &c)));
    return c;
}

START_TEST(loops_run_as_often_as_they_say) {
    static const char simple[] = "    for %i = 0 to n\n        %r = %r + i64(%i) + 1\n    end\n";
    ck_assert_int_eq(scalar_result(simple, 10), 55);
    ck_assert_int_eq(scalar_result(simple, 0), 0);
    ck_assert_int_eq(scalar_result(simple, -7), 0);
    static const char stepped[] = "    for %i = 3 to n step 4\n        %r = %r * 100 + %i\n    end\n";
    ck_assert_int_eq(scalar_result(stepped, 12), 30711);
    ck_assert_int_eq(scalar_result(stepped, 11), 307);
    /* The bounds are read once. */
    static const char fixed[] =
        "    %e = n\n    for %i = 0 to %e\n        %e = i64(1)\n        %r = %r + 1\n    end\n";
    ck_assert_int_eq(scalar_result(fixed, 6), 6);
    static const char nested[] = "    for %i = 0 to n\n        for %j = %i to n\n            %r = %r + 1\n"
                                 "        end\n    end\n";
    ck_assert_int_eq(scalar_result(nested, 9), 45);
}
END_TEST

/* The sum of variable and step may not fit in the type: then it is not below the end. */
START_TEST(loops_end_at_the_largest_integer) {
    static const char text[] =
        "    for %i = 9223372036854775000 to 9223372036854775807 step 500\n"
        "        %r = %r + 1\n    end\n"
        "    for %j = 2147483000 to 2147483647 step 500\n        %r = %r + 100\n    end\n";
    ck_assert_int_eq(scalar_result(text, 0), 202);
}
END_TEST

START_TEST(break_continue_and_while) {
    static const char text[] = "    %i = i64(0)\n"
                               "    while true\n"
                               "        %i = %i + 1\n"
                               "        if %i > n\n"
                               "            break\n"
                               "        end\n"
                               "        if %i % 2 == 0\n"
                               "            continue\n"
                               "        end\n"
                               "        for %j = 0 to 10\n"
                               "            if %j == 3\n"
                               "                break\n"
                               "            end\n"
                               "            if %j == 1\n"
                               "                continue\n"
                               "            end\n"
                               "            %r = %r + %i\n"
                               "        end\n"
                               "    end\n";
    ck_assert_int_eq(scalar_result(text, 7), 2 * (1 + 3 + 5 + 7));
    static const char zero[] = "    while %r * %r < n\n        %r = %r + 1\n    end\n";
    ck_assert_int_eq(scalar_result(zero, 50), 8);
    ck_assert_int_eq(scalar_result(zero, 0), 0);
}
END_TEST

START_TEST(if_takes_one_branch) {
    static const char text[] = "    if n < 10\n        %r = i64(1)\n    elif n < 20\n        %r = i64(2)\n"
                               "        if n == 15\n            %r = i64(5)\n        end\n"
                               "    else\n        %r = i64(3)\n    end\n    %r = %r * 10\n";
    ck_assert_int_eq(scalar_result(text, 9), 10);
    ck_assert_int_eq(scalar_result(text, 10), 20);
    ck_assert_int_eq(scalar_result(text, 15), 50);
    ck_assert_int_eq(scalar_result(text, 20), 30);
}
END_TEST

START_TEST(exit_ends_the_block_alone) {
    static const char text[] = ".vasm 1\n"
                               ".kernel k(c: global i32[8])\n"
                               ".warps 1\n"
                               ".grid 8\n"
                               "    if block.x % 3 == 1\n"
                               "        exit\n"
                               "    end\n"
                               "    %x = alloc-register i32[1], replicated(32), init block.x + 1\n"
                               "    store-global c[block.x], %x\n"
                               ".end\n";
    int32_t c[8] = {0};
    run(text, VALUES(TENSOR("c", c)));
    for (int i = 0; i < 8; i++) ck_assert_int_eq(c[i], i % 3 == 1 ? 0 : i + 1);
}
END_TEST

START_TEST(errors_of_scalars_name_the_block) {
    static const char text[] =
        ".vasm 1\n"
        ".kernel div(n: i32, c: global i32[4, 3, 2])\n"
        ".warps 1\n"
        ".grid 4, 3, 2\n"
        "    %x = alloc-register i32[1], replicated(32), init 12 / (block.x + block.y * n)\n"
        "    store-global c[block.x, block.y, block.z], %x\n"
        ".end\n";
    int32_t c[24] = {0};
    outcome out = attempt(text, VALUES(INT("n", -2), TENSOR("c", c)));
    ck_assert_int_eq(out.status, TVM_FAULT);
    ck_assert_ptr_eq(strstr(out.message, "div: block (0,0,0): alloc-register: "), out.message);
    ck_assert_uint_eq(out.line, 5);
    free(out.output);
    static const char step[] =
        ".vasm 1\n.kernel k(n: i32)\n.warps 1\n    for %i = 0 to 4 step n\n    end\n.end\n";
    run_fails(step, "k: block (0,0,0): for: the step is 0: it must be positive", VALUES(INT("n", 0)));
    run_fails(step, "k: block (0,0,0): for: the step is -2: it must be positive", VALUES(INT("n", -2)));
}
END_TEST

/* ---- blocks over host threads ---- */

static const char grid_text[] = ".vasm 1\n"
                                ".kernel k(x: i32, y: i32, z: i32, c: global i32[z, y, x])\n"
                                ".warps 1\n"
                                ".grid x, y, z\n"
                                "    %r = alloc-register i32[1], replicated(32), "
                                "init block.x + grid.x * (block.y + grid.y * block.z) + 1\n"
                                "    store-global c[block.z, block.y, block.x], %r\n"
                                ".end\n";

START_TEST(every_block_runs_once_on_any_number_of_threads) {
    tvm_ir_program *program = assemble(grid_text);
    static const unsigned threads[] = {0, 1, 2, 3, 7, 300};
    for (size_t t = 0; t < sizeof threads / sizeof *threads; t++) {
        int32_t c[13 * 5 * 3] = {0};
        outcome out =
            launch(program, NULL, threads[t], VALUES(INT("x", 13), INT("y", 5), INT("z", 3), TENSOR("c", c)));
        ck_assert_int_eq(out.status, TVM_OK);
        for (int i = 0; i < 13 * 5 * 3; i++) ck_assert_int_eq(c[i], i + 1);
        free(out.output);
    }
    tvm_ir_program_free(program);
}
END_TEST

/* Six blocks take tiles by a ticket and add to a sum of floats: on four multiprocessors, one after the other,
 * whatever the threads. */
static const char turns_text[] =
    ".vasm 3\n"
    ".kernel k(tiles: i32, next: global i32[1], c: global i32[tiles], s: global f32[1])\n"
    ".warps 2\n.grid 6\n.layout ONE = replicated(64)\n"
    "    %shared = alloc-shared i32[1]\n"
    "    %taken = atomic-fetch add next[0], alloc-register(i32[1], ONE, init 1)\n"
    "    store-shared %shared[0], %taken\n    sync\n    %i = load-scalar %shared[0]\n    sync\n"
    "    while %i < tiles\n"
    "        store-global c[%i], alloc-register(i32[1], ONE, init block.x)\n"
    "        atomic add s[0], alloc-register(f32[1], ONE, init 1.0 / (f32(%i) + 3.0))\n"
    "        %taken = atomic-fetch add next[0], alloc-register(i32[1], ONE, init 1)\n"
    "        store-shared %shared[0], %taken\n        sync\n        %i = load-scalar %shared[0]\n        sync\n"
    "    end\n"
    ".end\n";

START_TEST(blocks_take_turns_on_any_number_of_threads) {
    enum { TILES = 23, LANES = TVM_INTERP_MULTIPROCESSORS };
    tvm_ir_program *program = assemble(turns_text);
    float sum = 0;
    for (int i = 0; i < TILES; i++) sum += 1.0F / ((float)i + 3.0F);
    for (unsigned threads = 0; threads < 8; threads++) {
        int32_t next = 0, c[TILES] = {0};
        float s = 0;
        outcome out =
            launch(program, NULL, threads,
                   VALUES(INT("tiles", TILES), TENSOR("next", &next), TENSOR("c", c), TENSOR("s", &s)));
        ck_assert_msg(out.status == TVM_OK, "%s", out.message);
        for (int i = 0; i < TILES; i++) ck_assert_int_eq(c[i], i % LANES);
        ck_assert_float_eq(s, sum);
        ck_assert_int_eq(next, TILES + 6);
        free(out.output);
    }
    tvm_ir_program_free(program);
}
END_TEST

/* One that fails between two turns ends the launch of those that wait for theirs. */
START_TEST(an_error_stops_blocks_that_take_turns) {
    static const char text[] = ".vasm 3\n.kernel k(next: global i32[1])\n.warps 1\n.grid 4\n"
                               "    %one = alloc-register i32[1], replicated(32), init 1\n"
                               "    %a = atomic-fetch add next[0], %one\n"
                               "    if block.x == 2\n        %z = 1 / (block.x - 2)\n    end\n"
                               "    %b = atomic-fetch add next[0], %one\n.end\n";
    tvm_ir_program *program = assemble(text);
    for (unsigned threads = 1; threads < 5; threads++) {
        int32_t next = 0;
        outcome out = launch(program, NULL, threads, VALUES(TENSOR("next", &next)));
        ck_assert_int_eq(out.status, TVM_FAULT);
        ck_assert_ptr_nonnull(strstr(out.message, "block (2,0,0)"));
        free(out.output);
    }
    tvm_ir_program_free(program);
}
END_TEST

START_TEST(an_empty_grid_runs_nothing) {
    tvm_ir_program *program = assemble(grid_text);
    outcome out = launch(program, NULL, 2, VALUES(INT("x", 13), INT("y", 0), INT("z", 3), TENSOR("c", NULL)));
    ck_assert_int_eq(out.status, TVM_OK);
    free(out.output);
    tvm_ir_program_free(program);
}
END_TEST

/* One block fails, the others loop for ever: the launch ends with that block's error. */
START_TEST(an_error_stops_the_other_threads) {
    static const char text[] = ".vasm 1\n"
                               ".kernel k(n: i32)\n"
                               ".warps 1\n"
                               ".grid 4\n"
                               "    while block.x != 3\n"
                               "        %x = 1\n"
                               "    end\n"
                               "    %y = 1 / n\n"
                               ".end\n";
    tvm_ir_program *program = assemble(text);
    outcome out = launch(program, NULL, 4, VALUES(INT("n", 0)));
    ck_assert_int_eq(out.status, TVM_FAULT);
    ck_assert_uint_eq(out.diagnostics, 1);
    ck_assert_ptr_eq(strstr(out.message, "k: block (3,0,0): let: "), out.message);
    free(out.output);
    tvm_ir_program_free(program);
}
END_TEST

/* ---- print-tensor ---- */

START_TEST(print_shows_rows_and_leading_indices) {
    static const char text[] = ".vasm 1\n"
                               ".kernel k(a: global f16[2, 2, 3], b: global i4[8])\n"
                               ".warps 1\n"
                               "    %x = load-global a[0, 0, 0], replicated(32, 3).local(2, 2, 3)\n"
                               "    print-tensor %x\n"
                               "    %small = load-global b[0], replicated(32).local(8)\n"
                               "    print-tensor %small\n"
                               "    %mask = compare gt %x, 1\n"
                               "    %flat = reduce max %x, 0\n"
                               "    print-tensor %flat\n"
                               ".end\n";
    uint16_t a[12];
    for (int i = 0; i < 12; i++) a[i] = f16_code(i * 0.5L - 1);
    uint8_t b[4] = {0x10, 0x87, 0xf9, 0x2e};
    outcome out = attempt(text, VALUES(TENSOR("a", a), TENSOR("b", b)));
    ck_assert_int_eq(out.status, TVM_OK);
    ck_assert_str_eq(out.output, "%x: f16[2, 2, 3] in block (0, 0, 0)\n"
                                 "[0, :, :]\n"
                                 "-1 -0.5 0\n"
                                 "0.5 1 1.5\n"
                                 "[1, :, :]\n"
                                 "2 2.5 3\n"
                                 "3.5 4 4.5\n"
                                 "%small: i4[8] in block (0, 0, 0)\n"
                                 "0 1 7 -8 -7 -1 -2 2\n"
                                 "%flat: f16[1, 2, 3] in block (0, 0, 0)\n"
                                 "[0, :, :]\n"
                                 "2 2.5 3\n"
                                 "3.5 4 4.5\n");
    free(out.output);
}
END_TEST

/* Blocks that run side by side do not mix their lines. */
START_TEST(prints_of_a_block_stay_together) {
    static const char text[] = ".vasm 1\n"
                               ".kernel k(n: i32)\n"
                               ".warps 1\n"
                               ".grid n\n"
                               "    for %i = 0 to 20\n"
                               "        %x = alloc-register i32[1], replicated(32), init %i\n"
                               "        print-tensor %x\n"
                               "    end\n"
                               ".end\n";
    enum { BLOCKS = 40 };
    tvm_ir_program *program = assemble(text);
    outcome out = launch(program, NULL, 4, VALUES(INT("n", BLOCKS)));
    ck_assert_int_eq(out.status, TVM_OK);
    bool seen[BLOCKS] = {false};
    const char *at = out.output;
    for (int b = 0; b < BLOCKS; b++) {
        int first = -1;
        for (int i = 0; i < 20; i++) {
            int block, shown, length = 0;
            ck_assert_int_eq(sscanf(at, "%%x: i32[1] in block (%d, 0, 0)\n%d\n%n", &block, &shown, &length),
                             2);
            if (i == 0) first = block;
            ck_assert_int_eq(block, first);
            ck_assert_int_eq(shown, i);
            at += length;
        }
        ck_assert(!seen[first]);
        seen[first] = true;
    }
    ck_assert_str_eq(at, "");
    free(out.output);
    tvm_ir_program_free(program);
}
END_TEST

/* ---- what a launch checks ---- */

static void check_fails(const char *text, const char *message, const binding *values, size_t count) {
    outcome out = attempt(text, values, count);
    ck_assert_int_eq(out.status, TVM_ARGUMENT);
    ck_assert_str_eq(out.message, message);
    free(out.output);
}

START_TEST(launches_that_break_an_assumption_are_refused) {
    static const char text[] = ".vasm 1\n"
                               ".kernel mm(n: i32, k: i64, x: f32)\n"
                               ".warps 1\n"
                               ".grid cdiv(n, 8), 70000 / k\n"
                               ".assume n % 8 == 0 && (n + 1) * 2 > 0, x > 0.5\n"
                               ".end\n";
    run(text, VALUES(INT("n", 16), INT("k", 2), REAL("x", 1)));
    outcome out = attempt(text, VALUES(INT("n", 12), INT("k", 2), REAL("x", 1)));
    ck_assert_int_eq(out.status, TVM_ARGUMENT);
    ck_assert_ptr_eq(strstr(out.message, "kernel 'mm' assumes n % 8 == 0 && (n + 1) * 2 > 0 (n = 12)"),
                     out.message);
    free(out.output);
    check_fails(text, "kernel 'mm' assumes x > 0.5 (x = 0.25)",
                VALUES(INT("n", 8), INT("k", 2), REAL("x", 0.25)));
    check_fails(text, "kernel 'mm': grid.y is 70000, expected 0 to 65535: 70000 / k (k = 1)",
                VALUES(INT("n", 8), INT("k", 1), REAL("x", 1)));
    check_fails(text, "kernel 'mm': grid.y is -1, expected 0 to 65535: 70000 / k (k = -70000)",
                VALUES(INT("n", 8), INT("k", -70000), REAL("x", 1)));
    out = attempt(text, VALUES(INT("n", 8), INT("k", 0), REAL("x", 1)));
    ck_assert_int_eq(out.status, TVM_ARGUMENT);
    ck_assert_ptr_eq(strstr(out.message, "kernel 'mm': grid.y, 70000 / k (k = 0): "), out.message);
    free(out.output);
}
END_TEST

START_TEST(shapes_are_computed_and_checked) {
    static const char text[] = ".vasm 1\n"
                               ".kernel mm(m: i64, n: i64, a: global u3[m, n], b: global f16[n, 2])\n"
                               ".warps 1\n"
                               ".end\n";
    check_fails(text, "kernel 'mm': a row of a, 12 elements of u3, is not whole bytes: n (n = 12)",
                VALUES(INT("m", 1), INT("n", 12), TENSOR("a", NULL), TENSOR("b", NULL)));
    check_fails(text, "kernel 'mm': extent 0 of a is negative: m (m = -1)",
                VALUES(INT("m", -1), INT("n", 8), TENSOR("a", NULL), TENSOR("b", NULL)));
    check_fails(text, "kernel 'mm': a has more than 2^40 elements",
                VALUES(INT("m", INT64_C(1) << 38), INT("n", 8), TENSOR("a", NULL), TENSOR("b", NULL)));
    check_fails(text, "kernel 'mm': extent 0 of a is above 2^40: m (m = 4611686018427387904)",
                VALUES(INT("m", INT64_C(1) << 62), INT("n", 8), TENSOR("a", NULL), TENSOR("b", NULL)));
    tvm_ir_program *program = assemble(text);
    tvm_scalar scalars[4] = {{.i = 5}, {.i = 16}};
    const tvm_launch_env env = {.scalars = scalars, .multiprocessors = 1};
    int64_t shape[TVM_MAX_RANK];
    uint64_t bytes;
    ck_assert_int_eq(tvm_launch_shape(program, &program->kernels[0], 2, &env, shape, &bytes, NULL), TVM_OK);
    ck_assert_int_eq(shape[0], 5);
    ck_assert_int_eq(shape[1], 16);
    ck_assert_uint_eq(bytes, 30);
    ck_assert_int_eq(tvm_launch_shape(program, &program->kernels[0], 3, &env, shape, &bytes, NULL), TVM_OK);
    ck_assert_uint_eq(bytes, 64);
    tvm_ir_program_free(program);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("interp");
    TCase *tests = tcase_create("interp");
    tcase_add_test(tests, load_and_store_clip_to_the_tensor);
    tcase_add_test(tests, indices_far_outside_are_harmless);
    tcase_add_test(tests, leading_indices_are_points);
    tcase_add_test(tests, an_empty_tensor_is_all_outside);
    tcase_add_test(tests, compact_types_are_copied_bit_by_bit);
    tcase_add_test(tests, a_store_may_not_start_inside_a_byte);
    tcase_add_test(tests, shared_tiles_go_where_their_indices_say);
    tcase_add_test(tests, an_index_outside_a_shared_tensor_is_an_error);
    tcase_add_test(tests, fresh_shared_memory_is_poison);
    tcase_add_test(tests, copies_arrive_when_their_group_is_waited_for);
    tcase_add_test(tests, copies_clip_and_fill_with_zero);
    tcase_add_test(tests, copies_by_warps_are_the_same);
    tcase_add_test(tests, copies_without_end_are_refused);
    tcase_add_test(tests, loops_run_as_often_as_they_say);
    tcase_add_test(tests, loops_end_at_the_largest_integer);
    tcase_add_test(tests, break_continue_and_while);
    tcase_add_test(tests, if_takes_one_branch);
    tcase_add_test(tests, exit_ends_the_block_alone);
    tcase_add_test(tests, errors_of_scalars_name_the_block);
    tcase_add_test(tests, every_block_runs_once_on_any_number_of_threads);
    tcase_add_test(tests, an_empty_grid_runs_nothing);
    tcase_add_test(tests, an_error_stops_the_other_threads);
    tcase_add_test(tests, blocks_take_turns_on_any_number_of_threads);
    tcase_add_test(tests, an_error_stops_blocks_that_take_turns);
    tcase_add_test(tests, print_shows_rows_and_leading_indices);
    tcase_add_test(tests, prints_of_a_block_stay_together);
    tcase_add_test(tests, launches_that_break_an_assumption_are_refused);
    tcase_add_test(tests, shapes_are_computed_and_checked);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
