/* Packings: the definition against the text of vasm(5), written out here; packed tensors through the
 * assembler, the container, the interpreter and the generated code, for every type, every code and both
 * directions. */
#include "check_kit.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "assembler.h"
#include "assembler_kit.h"
#include "codegen.h"
#include "interp.h"
#include "ptx_machine.h"
#include "suite_kit.h"
#include "type_kit.h"
#include "vbc.h"
#include "verify.h"

enum { LOCALS = 32, COUNT = 32 * LOCALS, BYTES = COUNT * 8 };

static tvm_dtype lowbit[TVM_DTYPE_COUNT_MAX];
static int lowbit_count;

/* ---- the definition ---- */

/* Where pairs lie in a half, as vasm(5) writes it: for each pair `word[first-last]`, from the code's lowest
 * bit. */
static const char *const places[9] = {
    [3] = "0[0-2];0[3-5];0[6-8];0[9-11];0[12-14];0[15-15] 1[0-1];1[2-4];1[5-7];1[10-12];1[13-15];"
          "2[0-2];2[3-5];2[6-8];2[9-11];2[12-14];2[15-15] 1[8-9];",
    [5] =
        "0[0-4];0[5-9];0[10-14];0[15-15] 1[12-15];1[0-4];1[5-9];2[10-12] 1[10-11];2[0-4];2[5-9];3[10-11] 2[13-15];"
        "3[0-4];3[5-9];3[12-15] 4[0-0];4[1-5];4[6-10];4[11-15];",
    [6] = "0[0-5];0[6-11];0[12-15] 1[0-1];1[2-7];1[10-15];2[0-5];2[6-11];2[12-15] 1[8-9];",
    [7] =
        "0[2-8];0[9-15];1[11-15] 0[0-1];1[0-6];2[0-2] 1[7-10];2[3-9];2[10-15] 3[0-0];3[1-7];3[9-15];4[10-15] 3[8-8];"
        "4[3-9];4[0-2] 5[7-10];5[0-6];5[11-15] 6[0-1];6[2-8];6[9-15];",
};

/* Floats of 4 bits and more: the places of the first of two or four elements, and
 * by how many bits the others lie higher. */
static const char f4_e2m1_places[] = "0[1-3] 0[7-7];0[5-6] 0[8-8] 0[12-12];";
static const char f4_e3m0_places[] = "0[2-4] 0[7-7];0[6-6] 0[5-5] 0[8-9];";
static const char f5_low_places[] =
    "0[0-3] 0[7-7];1[0-3] 1[7-7];2[0-3] 2[7-7];3[0-3] 3[7-7];4[0-3] 4[7-7];1[5-5] 0[4-6] 1[12-12];"
    "4[6-6] 2[4-6] 1[14-14];3[5-6] 4[4-5] 3[12-12];";
static const char f5_e3m1_places[] =
    "0[1-4] 0[7-7];1[1-4] 1[7-7];2[1-4] 2[7-7];3[1-4] 3[7-7];4[1-4] 4[7-7];0[6-6] 1[8-8] 0[8-8] 3[5-5] 1[13-13];"
    "4[5-6] 3[6-6] 4[8-8] 3[8-8];2[5-6] 0[5-5] 2[8-8] 1[14-14];";
static const char f5_e4m0_places[] =
    "0[3-7];1[3-7];2[3-7];3[3-7];4[3-7];1[8-9] 0[8-10];1[10-10] 2[8-10] 4[10-10];3[8-10] 4[8-9];";
static const char f6_low_places[] =
    "0[0-4] 0[7-7];1[0-4] 1[7-7];2[0-4] 2[7-7];0[6-6] 1[5-6] 2[5-6] 0[13-13];";
static const char f6_e4m1_places[] = "0[2-7];1[2-7];2[2-7];0[8-9] 1[8-9] 2[8-9];";
static const char f7_e3m3_places[] =
    "0[0-5] 0[7-7];1[0-5] 1[7-7];2[0-5] 2[7-7];3[0-5] 3[7-7];4[0-5] 4[7-7];5[0-5] 5[7-7];6[0-5] 6[7-7];"
    "1[6-6] 2[6-6] 3[6-6] 4[6-6] 5[6-6] 6[6-6] 0[14-14];";
static const char f7_e4m2_places[] =
    "0[1-7];1[1-7];2[1-7];3[1-7];4[1-7];5[1-7];6[1-7];0[8-8] 1[8-8] 2[8-8] 3[8-8] 4[8-8] 5[8-8] 6[8-8];";
static const char f6_e1m4_places[] =
    "0[2-6] 0[15-15];0[10-14] 0[23-23];1[2-6] 1[15-15];1[10-14] 1[23-23];2[2-6] 2[15-15];2[10-14] 2[23-23];"
    "0[8-9] 1[8-9] 2[8-8] 2[17-17];0[16-17] 1[16-17] 2[16-16] 2[25-25];";
static const char f7_e1m5_places[] =
    "0[1-6] 0[15-15];0[9-14] 0[23-23];1[1-6] 1[15-15];1[9-14] 1[23-23];2[1-6] 2[15-15];2[9-14] 2[23-23];"
    "3[1-6] 3[15-15];3[9-14] 3[23-23];4[1-6] 4[15-15];4[9-14] 4[23-23];5[1-6] 5[15-15];5[9-14] 5[23-23];"
    "6[1-6] 6[15-15];6[9-14] 6[23-23];0[8-8] 1[8-8] 2[8-8] 3[8-8] 4[8-8] 5[8-8] 6[16-16];"
    "0[16-16] 1[16-16] 2[16-16] 3[16-16] 4[16-16] 5[16-16] 6[24-24];";
static const char f7_low6_places[] =
    "1[6-11] 1[15-15];5[13-18] 5[22-22];6[16-21] 6[25-25];3[15-20] 3[24-24];0[12-17] 0[21-21];4[15-20] 4[24-24];"
    "3[6-7] 2[8-8] 3[9-11] 2[15-15];4[12-14] 5[9-11] 4[21-21];1[13-14] 3[14-14] 1[16-18] 3[21-21];"
    "4[6-7] 1[21-21] 4[9-11] 1[28-28];1[19-20] 2[19-22] 2[26-26];3[12-13] 2[11-14] 2[18-18];"
    "6[6-8] 2[9-9] 6[10-11] 6[15-15];5[19-21] 2[17-17] 5[23-24] 5[28-28];0[6-7] 2[16-16] 0[9-11] 2[23-23];"
    "6[12-14] 0[18-20] 0[24-24];";
static const char f6_e5m0_places[] =
    "2[7-11] 2[15-15];1[12-16] 1[20-20];0[7-9] 0[16-17] 0[15-15];1[7-11] 2[22-22];"
    "1[19-19] 0[19-20] 1[22-22] 0[22-22] 0[26-26];2[20-21] 2[16-18] 2[28-28];0[21-21] 0[11-14] 0[18-18];"
    "1[17-18] 2[13-14] 1[21-21] 2[19-19];";
static const char f7_e6m0_places[] =
    "4[7-12] 4[15-15];5[17-22] 5[25-25];3[13-18] 3[21-21];2[16-21] 2[24-24];1[13-18] 1[21-21];0[18-23] 0[26-26];"
    "6[17-22] 6[25-25];4[13-14] 4[17-21];5[7-7] 0[8-9] 5[10-10] 0[11-11] 5[12-12] 5[15-15];"
    "6[13-14] 2[9-9] 6[16-16] 2[11-12] 2[15-15];0[12-13] 1[19-20] 0[16-16] 1[22-22] 1[25-25];3[7-12] 2[29-29];"
    "1[7-8] 4[16-16] 1[10-12] 4[22-22];5[8-8] 3[19-20] 5[11-11] 3[22-22] 5[13-13] 5[16-16];"
    "2[22-23] 0[14-15] 2[26-26] 0[17-17] 2[30-30];6[7-8] 5[14-14] 6[10-12] 6[15-15];";
static const char f8_e7m0_places[] = "1[7-13] 1[15-15];0[7-13] 0[15-15];0[16-22] 0[30-30];1[16-22] 1[30-30];";
static const char f8_e1m6_places[] = "0[0-6] 0[15-15];0[8-14] 0[23-23];";
static const char f8_e2m5_places[] =
    "0[5-11] 0[15-15];1[5-11] 1[15-15];0[13-14] 1[20-20] 0[16-19] 1[28-28];1[13-14] 0[20-20] 1[16-19] 0[28-28];";
static const char f8_low6_places[] =
    "0[6-12] 0[15-15];1[6-12] 1[15-15];0[14-14] 1[21-21] 0[16-20] 1[29-29];1[14-14] 0[21-21] 1[16-20] 0[29-29];";
static const char f8_bytes_places[] = "0[0-7];";
static const char f4_e1m2_places[] = "0[0-2] 0[7-7];0[4-6] 0[11-11];";
static const struct {
    const char *type;
    unsigned words, step[4], group;
    const char *places;
} float_places[] = {
    {"f4_e1m2", 1, {0, 16, 8, 24}, 4, f4_e1m2_places},  {"f4_e2m1", 1, {0, 16, 8, 24}, 4, f4_e2m1_places},
    {"f4_e3m0", 1, {0, 16, 8, 24}, 4, f4_e3m0_places},  {"f5_e1m3", 5, {0, 8, 16, 24}, 4, f5_low_places},
    {"f5_e2m2", 5, {0, 16, 8, 24}, 4, f5_low_places},   {"f5_e3m1", 5, {0, 16, 8, 24}, 4, f5_e3m1_places},
    {"f5_e4m0", 5, {0, 8, 16, 24}, 4, f5_e4m0_places},  {"f6_e1m4", 3, {0, 16}, 2, f6_e1m4_places},
    {"f6_e2m3", 3, {0, 8, 16, 24}, 4, f6_low_places},   {"f6_e3m2", 3, {0, 16, 8, 24}, 4, f6_low_places},
    {"f6_e4m1", 3, {0, 8, 16, 24}, 4, f6_e4m1_places},  {"f6_e5m0", 3, {0, 16}, 2, f6_e5m0_places},
    {"f7_e1m5", 7, {0, 16}, 2, f7_e1m5_places},         {"f7_e2m4", 7, {0, 16}, 2, f7_low6_places},
    {"f7_e3m3", 7, {0, 8, 16, 24}, 4, f7_e3m3_places},  {"f7_e4m2", 7, {0, 8, 16, 24}, 4, f7_e4m2_places},
    {"f7_e5m1", 7, {0, 16}, 2, f7_low6_places},         {"f8_e1m6", 1, {0, 16}, 2, f8_e1m6_places},
    {"f8_e2m5", 2, {0, 16}, 2, f8_e2m5_places},         {"f8_e3m4", 2, {0, 16}, 2, f8_low6_places},
    {"f8_e4m3", 1, {0, 8, 16, 24}, 4, f8_bytes_places}, {"f8_e5m2", 1, {0, 8, 16, 24}, 4, f8_bytes_places},
    {"f7_e6m0", 7, {0, 16}, 2, f7_e6m0_places},         {"f8_e6m1", 2, {0, 16}, 2, f8_low6_places},
    {"f8_e7m0", 2, {0, 16}, 2, f8_e7m0_places},
};
enum { FLOAT_PLACES = sizeof float_places / sizeof *float_places };

/* Reads the places of pair `pair` into the bits of a half, word * 16 + bit; false when the block has no such
 * pair. */
static bool read_places(unsigned w, unsigned pair, unsigned bits[8]) {
    if (!places[w]) { /* two pairs of the lower byte, two of the upper one */
        for (unsigned b = 0; b < w; b++)
            bits[b] = (pair % 4 < 2 ? 0 : 8) + pair / 4 * 2 * w + pair % 2 * w + b;
        return pair < 16 / w;
    }
    const char *at = places[w];
    for (unsigned i = 0; i < pair && *at; i++) at = strchr(at, ';') + 1;
    if (!*at) return false;
    for (unsigned found = 0; *at != ';';) {
        unsigned word, first, last;
        int length;
        ck_assert_int_eq(sscanf(at, " %u[%u-%u]%n", &word, &first, &last, &length), 3);
        for (unsigned b = first; b <= last; b++) {
            ck_assert_uint_lt(found, w);
            bits[found++] = word * 16 + b;
        }
        at += length;
    }
    return true;
}

/* f3, also as vasm(5) has it. */
static void check_nibbles(tvm_dtype type) {
    ck_assert_uint_eq(tvm_packing_block(TVM_PACKING_PAIR, type), 32);
    for (uint32_t e = 0; e < 96; e++)
        for (unsigned b = 0; b < 3; b++) {
            uint32_t i = e % 32, want = e / 32 * 96;
            want += i < 24 ? i / 8 * 32 + i % 8 * 4 + b : 32 * b + 4 * (i - 24) + 3;
            ck_assert_uint_eq(tvm_packing_bit(TVM_PACKING_PAIR, type, e, b), want);
        }
}

static bool check_floats(tvm_dtype type) {
    char name[TVM_DTYPE_NAME_MAX];
    unsigned f = 0;
    tvm_dtype_name(type, name);
    while (f < FLOAT_PLACES && strcmp(name, float_places[f].type) != 0) f++;
    if (f == FLOAT_PLACES) return false;
    unsigned group = float_places[f].group, words = float_places[f].words;
    uint32_t element = 0;
    for (const char *at = float_places[f].places; *at; at++, element += group)
        for (unsigned bit = 0; *at != ';';) {
            unsigned word, first, last;
            int length;
            ck_assert_int_eq(sscanf(at, " %u[%u-%u]%n", &word, &first, &last, &length), 3);
            at += length;
            for (unsigned b = first; b <= last; b++, bit++)
                for (unsigned i = 0; i < group; i++) {
                    uint32_t want = word * 32 + (b + float_places[f].step[i]) % 32;
                    ck_assert_uint_eq(tvm_packing_bit(TVM_PACKING_PAIR, type, element + i, bit), want);
                    ck_assert_uint_eq(
                        tvm_packing_bit(TVM_PACKING_PAIR, type, 32 * words / type.bits + element + i, bit),
                        words * 32 + want);
                }
        }
    ck_assert_uint_eq(element, 32 * words / type.bits);
    ck_assert_uint_eq(tvm_packing_block(TVM_PACKING_PAIR, type), element);
    return true;
}

START_TEST(packing_is_that_of_the_manual) {
    tvm_dtype type = lowbit[_i];
    uint32_t sign = 1u << (type.bits - 1);
    ck_assert_uint_eq(tvm_packing_complement(TVM_PACKING_PAIR, type), type.kind == TVM_KIND_INT ? sign : 0);
    ck_assert_uint_eq(tvm_packing_complement(TVM_PACKING_LINEAR, type), 0);
    ck_assert(type.kind != TVM_KIND_FLOAT || type.bits == 3 || check_floats(type));
    if (type.kind == TVM_KIND_FLOAT && type.bits > 3) return;
    if (type.kind == TVM_KIND_FLOAT && type.bits == 3) {
        check_nibbles(type);
        return;
    }
    unsigned bits[8], pairs = 0, words = places[type.bits] ? (type.bits == 6 ? 3 : type.bits) : 1;
    while (read_places(type.bits, pairs, bits)) pairs++;
    ck_assert_uint_eq(tvm_packing_block(TVM_PACKING_PAIR, type), 2 * pairs);
    ck_assert_uint_eq(words * 32, 2 * pairs * type.bits);
    for (unsigned pair = 0; pair < 3 * pairs; pair++) {
        ck_assert(read_places(type.bits, pair % pairs, bits));
        for (unsigned half = 0; half < 2; half++)
            for (unsigned b = 0; b < type.bits; b++) {
                uint32_t want = (pair / pairs * words + bits[b] / 16) * 32 + half * 16 + bits[b] % 16;
                ck_assert_uint_eq(tvm_packing_bit(TVM_PACKING_PAIR, type, 2 * pair + half, b), want);
            }
    }
}
END_TEST

START_TEST(packing_uses_every_bit_once) {
    tvm_dtype type = lowbit[_i];
    for (unsigned packing = 0; packing < TVM_PACKING_COUNT; packing++) {
        uint8_t used[LOCALS * 8] = {0};
        for (uint32_t e = 0; e < LOCALS; e++)
            for (unsigned b = 0; b < type.bits; b++) {
                uint32_t bit = tvm_packing_bit((tvm_packing)packing, type, e, b);
                ck_assert_uint_lt(bit, LOCALS * (uint32_t)type.bits);
                ck_assert_uint_eq(used[bit]++, 0);
            }
    }
}
END_TEST

START_TEST(runs_are_the_bits) {
    tvm_dtype type = lowbit[_i];
    for (unsigned packing = 0; packing < TVM_PACKING_COUNT; packing++)
        for (uint32_t e = 0; e < 2 * LOCALS; e++) {
            tvm_packing_run runs[TVM_PACKING_RUNS];
            unsigned count = tvm_packing_runs((tvm_packing)packing, type, e, runs), b = 0;
            for (unsigned r = 0; r < count; r++) {
                ck_assert_uint_eq(runs[r].at, b);
                ck_assert_uint_eq(runs[r].bit / 32, (runs[r].bit + runs[r].count - 1) / 32);
                for (unsigned i = 0; i < runs[r].count; i++, b++)
                    ck_assert_uint_eq(runs[r].bit + i, tvm_packing_bit((tvm_packing)packing, type, e, b));
            }
            ck_assert_uint_eq(b, type.bits);
        }
}
END_TEST

START_TEST(pictures_show_the_words) {
    tvm_diags diags = {0};
    char *picture = NULL;
    ck_assert_int_eq(tvm_print_packing(&(tvm_picture_request){.expression = "u3"}, &picture, &diags), TVM_OK);
    ck_assert_ptr_nonnull(strstr(picture, "u3, packing linear: elements 0 to 31 of a thread"));
    ck_assert_ptr_nonnull(strstr(picture, "word 0  31-24  10.1  10.0   9.2   9.1   9.0   8.2   8.1   8.0\n"
                                          "        23-16   7.2   7.1   7.0   6.2   6.1   6.0   5.2   5.1\n"
                                          "        15-8    5.0   4.2   4.1"));
    ck_assert_ptr_nonnull(strstr(picture, "u3, packing pair"));
    ck_assert_ptr_nonnull(strstr(picture, "word 0  31-24  11.0   9.2   9.1   9.0   7.2   7.1   7.0   5.2\n"
                                          "        23-16   5.1   5.0   3.2   3.1   3.0   1.2   1.1   1.0\n"
                                          "        15-8   10.0   8.2   8.1"));
    ck_assert_ptr_nonnull(strstr(picture, "word 2"));
    ck_assert_ptr_null(strstr(picture, "word 3"));
    for (char *line = strtok(picture, "\n"); line; line = strtok(NULL, "\n"))
        ck_assert_uint_le(strlen(line), 80);
    free(picture);
    ck_assert_int_eq(tvm_print_packing(&(tvm_picture_request){.expression = "f16"}, &picture, &diags),
                     TVM_INVALID);
    ck_assert_ptr_null(picture);
    ck_assert_int_eq(tvm_print_packing(&(tvm_picture_request){.expression = "nonsense"}, &picture, &diags),
                     TVM_INVALID);
    tvm_diags_free(&diags);
}
END_TEST

/* ---- programs ---- */

static tvm_status try_assemble(const char *text, tvm_ir_program **program, tvm_diags *diags) {
    *program = NULL;
    return tvm_assemble_text(text, strlen(text), "test", NULL, program, diags);
}

static const uint32_t one_block[3] = {1, 1, 1};

static void interpret(const tvm_ir_program *program, const char *kernel, void *x, void *y) {
    tvm_diags diags = {0};
    tvm_interp_kernel *prepared = NULL;
    tvm_interp_options options = {.threads = 1};
    tvm_interp_arg args[2] = {{.data = x}, {.data = y}};
    ck_assert_int_eq(tvm_interp_prepare(program, tvm_find_kernel(program, kernel), &prepared, &diags),
                     TVM_OK);
    ck_assert_int_eq(tvm_interp_run(prepared, args, one_block, &options, &diags), TVM_OK);
    tvm_interp_free(prepared);
    tvm_diags_free(&diags);
}

static void execute(const tvm_module *module, const char *kernel, void *x, void *y) {
    ptx_machine m = ptx_load(module->ptx, kernel, 32);
    m.params[0] = (uint64_t)(uintptr_t)x;
    m.params[1] = (uint64_t)(uintptr_t)y;
    ptx_run(&m);
    ptx_free(&m);
}

static tvm_module *translate_for(const tvm_ir_program *program, unsigned arch) {
    tvm_diags diags = {0};
    tvm_module *module = NULL;
    ck_assert_int_eq(tvm_translate(program, (tvm_target){arch, arch >= 90 ? 'a' : '\0'}, &module, &diags),
                     TVM_OK);
    tvm_diags_free(&diags);
    return module;
}

static tvm_module *translate(const tvm_ir_program *program) {
    return translate_for(program, 90);
}

/* One kernel from packed T in bytes to each type U, and one from each U to packed T. */
static const char *const others[] = {"f16", "bf16", "f32",     "i32",     "u16",
                                     "i8",  "u8",   "f8_e4m3", "f6_e3m2", "u3"};
enum { OTHERS = sizeof others / sizeof *others };

static char *conversions(const char *type, unsigned bits) {
    size_t size = 0;
    char *text = NULL;
    FILE *out = open_memstream(&text, &size);
    ck_assert_ptr_nonnull(out);
    fprintf(out, ".vasm 1\n.layout L = spatial(32).local(%d)\n.layout B = spatial(32).local(%u)\n", LOCALS,
            LOCALS * bits / 8);
    for (unsigned i = 0; i <= OTHERS; i++) {
        const char *other = i < OTHERS ? others[i] : type;
        const char *name = i < OTHERS ? other : "same";
        fprintf(
            out,
            ".kernel to_%s(x: global u8[%u], y: global %s[%d])\n.warps 1\n.grid 1\n%%b = load-global x, B\n"
            "%%q = view %%b, %s, L, packing pair\n%%v = cast-lowbit %%q, %s\nstore-global y, %%v\n.end\n",
            name, COUNT * bits / 8, other, COUNT, type, other);
        fprintf(
            out,
            ".kernel from_%s(x: global %s[%d], y: global u8[%u])\n.warps 1\n.grid 1\n%%v = load-global x, L\n"
            "%%q = cast-lowbit %%v, %s, packing pair\n%%b = view %%q, u8, B\nstore-global y, %%b\n.end\n",
            name, other, COUNT, COUNT * bits / 8, type);
    }
    fclose(out);
    return text;
}

static void pack(tvm_dtype type, const uint8_t *codes, uint8_t *string) {
    memset(string, 0, BYTES);
    for (uint32_t i = 0; i < COUNT; i++)
        for (unsigned b = 0; b < type.bits; b++) {
            uint32_t bit =
                i / LOCALS * LOCALS * type.bits + tvm_packing_bit(TVM_PACKING_PAIR, type, i % LOCALS, b);
            unsigned code = codes[i] ^ (type.kind == TVM_KIND_INT ? 1u << (type.bits - 1) : 0);
            if (code >> b & 1) string[bit / 8] |= (uint8_t)(1u << bit % 8);
        }
}

/* Every code comes to lie at every place of a block. */
static uint8_t code_of(tvm_dtype type, uint32_t i) {
    return (uint8_t)((i + i / LOCALS * 8 + i / 256 * 3) & ((1u << type.bits) - 1));
}

/* The sign and payload of a NaN of 32 bits and more are not specified. */
static bool is_any_nan(tvm_dtype type, uint64_t found, uint64_t want) {
    return type.kind == TVM_KIND_FLOAT && type.bits >= 32 && isnan(tvm_decode(type, found)) &&
           isnan(tvm_decode(type, want));
}

static void check_to(const tvm_ir_program *program, const tvm_module *module, const char *kernel,
                     tvm_dtype from, tvm_dtype to) {
    static uint8_t codes[COUNT], x[BYTES] __attribute__((aligned(16))), y[BYTES] __attribute__((aligned(16)));
    for (uint32_t i = 0; i < COUNT; i++) codes[i] = code_of(from, i);
    pack(from, codes, x);
    for (unsigned side = 0; side < 2; side++) {
        memset(y, 0x5a, sizeof y);
        if (side == 0)
            interpret(program, kernel, x, y);
        else
            execute(module, kernel, x, y);
        for (uint32_t i = 0; i < COUNT; i++) {
            uint64_t found = tvm_bits_get(y, (uint64_t)i * to.bits, to.bits),
                     want = tvm_cast(to, from, codes[i], true);
            ck_assert_msg(found == want || (side == 1 && is_any_nan(to, found, want)),
                          "%s %s: code %x at %u gives %llx, expected %llx", side ? "PTX" : "interpreter",
                          kernel, codes[i], i % LOCALS, (unsigned long long)found, (unsigned long long)want);
        }
    }
}

static void check_from(const tvm_ir_program *program, const tvm_module *module, const char *kernel,
                       tvm_dtype from, tvm_dtype to) {
    static uint8_t x[BYTES] __attribute__((aligned(16))), y[BYTES] __attribute__((aligned(16))), codes[COUNT],
        want[BYTES];
    memset(x, 0, sizeof x);
    for (uint32_t i = 0; i < COUNT; i++) {
        uint64_t code = from.bits <= 8
                            ? code_of(from, i)
                            : tvm_encode(from, tvm_decode(to, code_of(to, i)) * (i % 3 ? 1 : 1.25));
        tvm_bits_set(x, (uint64_t)i * from.bits, from.bits, code);
        codes[i] = (uint8_t)tvm_cast(to, from, code, true);
    }
    pack(to, codes, want);
    for (unsigned side = 0; side < 2; side++) {
        memset(y, 0x5a, sizeof y);
        if (side == 0)
            interpret(program, kernel, x, y);
        else
            execute(module, kernel, x, y);
        ck_assert_msg(memcmp(y, want, COUNT * to.bits / 8) == 0, "%s %s", side ? "PTX" : "interpreter",
                      kernel);
    }
}

static void check_conversions(tvm_dtype type, unsigned arch) {
    char name[TVM_DTYPE_NAME_MAX], kernel[32];
    char *text = conversions(tvm_dtype_name(type, name), type.bits);
    tvm_ir_program *program = assemble(text);
    tvm_module *module = translate_for(program, arch);
    for (unsigned i = 0; i <= OTHERS; i++) {
        tvm_dtype other = type;
        if (i < OTHERS) ck_assert(tvm_dtype_parse(others[i], strlen(others[i]), &other));
        snprintf(kernel, sizeof kernel, "to_%s", i < OTHERS ? others[i] : "same");
        check_to(program, module, kernel, type, other);
        snprintf(kernel, sizeof kernel, "from_%s", i < OTHERS ? others[i] : "same");
        check_from(program, module, kernel, other, type);
    }
    tvm_module_free(module);
    tvm_ir_program_free(program);
    free(text);
}

/* Scales of 8 bits, in packing linear: all codes, as pairs, on targets with and without a converter. */
START_TEST(conversions_of_scales_are_exact) {
    static const char *const types[] = {"f8_e4m3", "f8_e5m2", "e8m0"}, *const halves[] = {"f16", "bf16"};
    static uint8_t x[256] __attribute__((aligned(16)));
    static uint16_t y[256] __attribute__((aligned(16)));
    char text[512];
    tvm_dtype from, to;
    snprintf(text, sizeof text,
             ".vasm 3\n.kernel k(x: global %s[256], y: global %s[256])\n.warps 1\n.grid 1\n"
             "%%v = %s(load-global(x, spatial(32).local(8)), %s)\nstore-global y, %%v\n.end\n",
             types[_i / 2], halves[_i % 2], _i / 2 == 2 ? "cast" : "cast-lowbit", halves[_i % 2]);
    ck_assert(tvm_dtype_parse(types[_i / 2], strlen(types[_i / 2]), &from));
    ck_assert(tvm_dtype_parse(halves[_i % 2], strlen(halves[_i % 2]), &to));
    tvm_ir_program *program = assemble(text);
    for (unsigned i = 0; i < 256; i++) x[i] = (uint8_t)i;
    for (unsigned arch = 80; arch <= 90; arch += 10) {
        tvm_module *module = translate_for(program, arch);
        memset(y, 0x5a, sizeof y);
        execute(module, "k", x, y);
        for (unsigned i = 0; i < 256; i++)
            ck_assert_msg(y[i] == tvm_cast(to, from, i, true), "sm_%u: %s %x is %s %x, expected %x", arch,
                          types[_i / 2], i, halves[_i % 2], y[i], (unsigned)tvm_cast(to, from, i, true));
        tvm_module_free(module);
    }
    tvm_ir_program_free(program);
}
END_TEST

START_TEST(conversions_of_packed_tensors_are_exact) {
    check_conversions(lowbit[_i], 80);
    check_conversions(lowbit[_i], 90);
}
END_TEST

static void check_folding(const char *type_name, const char *half, const char *operation, bool wanted,
                          bool used_again, unsigned arch) {
    static uint8_t codes[COUNT], x[BYTES] __attribute__((aligned(16))),
        y[2][BYTES] __attribute__((aligned(16)));
    tvm_dtype type;
    char text[1024];
    ck_assert(tvm_dtype_parse(type_name, strlen(type_name), &type));
    snprintf(
        text, sizeof text,
        ".vasm 1\n.layout L = spatial(32).local(%d)\n.kernel k(x: global u8[%u], y: global %s[%d])\n.warps 1\n"
        ".grid 1\n%%b = load-global x, spatial(32).local(%u)\n%%q = view %%b, %s, L, packing pair\n"
        "%%c = cast-lowbit %%q, %s\n%%r = %s\n%%c = cast-lowbit %%q, %s\n%%s = %s\n%%r = mul %%r, 0.5\n"
        "%%r = fma %%s, 0.5, %%r\n%sstore-global y, %%r\n.end\n",
        LOCALS, COUNT * type.bits / 8, half, COUNT, LOCALS * type.bits / 8u, type_name, half, operation, half,
        operation, used_again ? "%r = add %r, %c\n" : "");
    for (uint32_t e = 0; e < COUNT; e++) codes[e] = code_of(type, e);
    pack(type, codes, x);
    tvm_ir_program *program = assemble(text);
    tvm_module *module = translate_for(program, arch);
    unsigned folded = 0;
    for (size_t s = 0; s < module->kernels[0].selection_count; s++)
        folded += strcmp(module->kernels[0].selections[s].candidate, "in the conversion before") == 0;
    ck_assert_msg(folded == (wanted && !used_again ? 2 : 0), "%s", text);
    interpret(program, "k", x, y[0]);
    execute(module, "k", x, y[1]);
    for (uint32_t e = 0; e < COUNT; e++)
        ck_assert_msg(memcmp(y[0] + 2 * e, y[1] + 2 * e, 2) == 0,
                      "%selement %u, code %x: %02x%02x, expected %02x%02x", text, e, codes[e],
                      y[1][2 * e + 1], y[1][2 * e], y[0][2 * e + 1], y[0][2 * e]);
    tvm_module_free(module);
    tvm_ir_program_free(program);
}

/* A constant added, subtracted or multiplied right after is part of the conversion, where it is exact; not
 * where the codes are used again. A name that is assigned twice is two tensors. */
START_TEST(constants_are_folded_exactly) {
    static const struct {
        const char *type, *half, *operation;
        bool folded;
    } cases[] = {
        {"u4", "f16", "sub %c, 8", true},
        {"u4", "bf16", "sub %c, 8.0", true},
        {"u1", "f16", "sub %c, 1", true},
        {"u2", "bf16", "add %c, -2", true},
        {"u3", "f16", "add -4, %c", true},
        {"i5", "f16", "sub %c, -3", true},
        {"u6", "bf16", "sub %c, 32", true},
        {"u7", "bf16", "sub %c, 64", true},
        {"u8", "f16", "sub %c, 128", true},
        {"u8", "bf16", "sub %c, 128", true},
        {"i8", "bf16", "sub %c, 128", false},
        {"i7", "f16", "sub %c, 512", true},
        {"u8", "bf16", "sub %c, 100", false},
        {"u8", "f16", "sub %c, 600", false},
        {"u4", "f16", "sub %c, 0.5", false},
        {"u4", "f16", "sub 8, %c", false},
        {"u4", "bf16", "sub %c, 4000", false},
        {"u5", "f16", "mul %c, 8", false},
        {"i8", "f16", "sub %c, 0", true},
        {"u4", "f16", "sub %c, %c", false},
        {"f6_e3m2", "f16", "mul %c, 0.000244140625", true}, /* 2^-12: none is left */
        {"f6_e3m2", "f16", "mul %c, 0.3", true},
        {"f6_e3m2", "bf16", "mul 0.3, %c", true},
        {"f6_e3m2", "f16", "mul %c, 60000", false}, /* times 2^12 is more than f16 has */
        {"f6_e3m2", "f16", "sub %c, 2", false},
        {"f6_e2m3", "f16", "mul %c, 0.015625", true},
        {"f5_e1m3", "f16", "mul 0.0078125, %c", true},
        {"f5_e4m0", "f16", "mul %c, -3", true},
        {"f5_e3m1", "f16", "mul %c, 0.00000006", true},
        {"f6_e5m0", "f16", "mul %c, 0.25", true},
        {"f7_e3m3", "f16", "mul %c, 2047", true},
        {"f7_e5m1", "f16", "mul %c, 0.25", false}, /* infinite before it is multiplied */
        {"f7_e5m1", "bf16", "mul %c, 0.25", true},
        {"f7_e6m0", "f16", "mul %c, 0.25", false},
        {"f8_e6m1", "bf16", "mul %c, 0.25", true},
        /* 2^-112, 2^-96, 2^-64: none is left */
        {"f6_e5m0", "bf16", "mul %c, 1.925929944387236e-34", true},
        {"f7_e6m0", "bf16", "mul %c, 1.262177448353619e-29", true},
        {"f8_e7m0", "bf16", "mul %c, 5.421010862427522e-20", true},
        {"f8_e1m6", "f16", "mul %c, 0.0000019073486328125", true}, /* 2^-19 */
        {"f7_e1m5", "f16", "mul %c, 0.3", true},
        {"f6_e1m4", "bf16", "mul %c, 0.5", true},
        {"f8_e3m4", "f16", "mul %c, 0.7", true},
        {"f8_e4m3", "f16", "mul %c, 0.5", false}, /* NaN */
        {"f4_e2m1", "f16", "mul %c, 0.00006103515625", true},
        {"f3_e1m1", "f16", "mul %c, 0.5", false},
    };
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++)
        for (unsigned variant = 0; variant < 4; variant++) {
            unsigned arch = variant / 2 ? 80 : 90;
            /* 2^4 of bytes converted by e4m3, 2^12 without the converter: more than f16 has */
            bool fits = strcmp(cases[i].operation, "mul %c, 2047") != 0 || arch == 90;
            check_folding(cases[i].type, cases[i].half, cases[i].operation, cases[i].folded && fits,
                          variant % 2, arch);
        }
}
END_TEST

START_TEST(every_zero_point_is_folded_exactly) {
    static const char *const types[] = {"u1", "u2", "i2", "u4", "i4", "u8", "i8"};
    for (unsigned i = 0; i < sizeof types / sizeof *types; i++)
        for (int zero = -20; zero <= 20; zero++) {
            char operation[32];
            snprintf(operation, sizeof operation, "sub %%c, %d", zero);
            check_folding(types[i], "f16", operation, true, false, 90);
        }
}
END_TEST

/* Between two packed types of one width, and from a packed one to a packed one of another. */
START_TEST(views_keep_the_bits) {
    static const char text[] =
        ".vasm 1\n.layout L = spatial(32).local(32)\n.layout B = spatial(32).local(24)\n"
        ".kernel k(x: global u8[768], y: global u8[768])\n.warps 1\n.grid 1\n"
        "%b = load-global x, B\n%p = view %b, u6, L, packing pair\n%q = view %p, f6_e3m2, L, packing pair\n"
        "%r = view %q, i3, spatial(32).local(64), packing pair\n%s = view %r, f6_e2m3, L\n%c = view %s, u8, B\n"
        "store-global y, %c\n.end\n";
    static uint8_t x[768] __attribute__((aligned(16))), y[2][768] __attribute__((aligned(16)));
    for (unsigned i = 0; i < sizeof x; i++) x[i] = (uint8_t)(i * 167 + i / 7);
    tvm_ir_program *program = assemble(text);
    tvm_module *module = translate(program);
    interpret(program, "k", x, y[0]);
    execute(module, "k", x, y[1]);
    ck_assert_mem_eq(y[0], x, sizeof x);
    ck_assert_mem_eq(y[1], x, sizeof x);
    tvm_module_free(module);
    tvm_ir_program_free(program);
}
END_TEST

START_TEST(text_and_container_keep_the_packing) {
    char name[TVM_DTYPE_NAME_MAX], *again = NULL;
    char *text = conversions(tvm_dtype_name(lowbit[_i], name), lowbit[_i].bits);
    tvm_ir_program *program = assemble(text), *read = NULL;
    uint8_t *bytes[2];
    size_t size[2];
    ck_assert_int_eq(tvm_vbc_write(program, false, &bytes[0], &size[0], NULL), TVM_OK);
    ck_assert_int_eq(tvm_vbc_read(bytes[0], size[0], "test", &read, NULL), TVM_OK);
    ck_assert_int_eq(tvm_disassemble(read, &again, NULL), TVM_OK);
    ck_assert_ptr_nonnull(strstr(again, ", packing pair\n"));
    ck_assert_ptr_null(strstr(again, "linear"));
    tvm_ir_program_free(read);
    read = assemble(again);
    ck_assert_int_eq(tvm_vbc_write(read, false, &bytes[1], &size[1], NULL), TVM_OK);
    ck_assert_uint_eq(size[0], size[1]);
    ck_assert_mem_eq(bytes[0], bytes[1], size[0]);
    tvm_ir_program_free(read);
    tvm_ir_program_free(program);
    free(bytes[0]);
    free(bytes[1]);
    free(again);
    free(text);
}
END_TEST

/* ---- what is refused ---- */

static const struct {
    const char *code, *message;
} refused[] = {
    {"%b = load-global x, spatial(32).local(4)\n%q = view %b, u2, spatial(32).local(16), packing pear",
     "expected a packing (linear pair), found 'pear'"},
    {"%b = load-global x, spatial(32).local(4)\n%q = view %b, u16, spatial(32).local(2), packing pair",
     "type u16 has no packing pair"},
    {"%b = load-global x, spatial(32).local(3)\n%q = view %b, u3, spatial(32).local(8), packing pair",
     "a thread holds 8 elements, expected a multiple of 32"},
    {"%b = load-global x, spatial(32).local(2)\n%q = view %b, u4, spatial(32).local(4), packing pair",
     "a thread holds 4 elements, expected a multiple of 8"},
    {"%b = load-global x, spatial(32).local(4)\n%q = view %b, u8, spatial(32).local(4), packing pair\n"
     "store-global x, %q",
     "'%q' has packing pair, which only view, cast-lowbit and print-tensor take"},
    {"%b = load-global x, spatial(32).local(4)\n%q = view %b, u8, spatial(32).local(4), packing pair\n%s = add %q, 1",
     "'%q' has packing pair"},
    {"%b = load-global x, spatial(32).local(4)\n%q = view %b, u8, spatial(32).local(4), packing pair\n"
     "%s = cast %q, i32",
     "'%q' has packing pair"},
    {"%b = load-global x, spatial(32).local(4)\n%b = cast-lowbit %b, u8, packing pair",
     "'%b' has packing linear, this gives pair"},
    {"%b = load-global x, spatial(32).local(4), packing pair", "expected"},
};
enum { REFUSED = sizeof refused / sizeof *refused };

START_TEST(bad_packings_are_refused) {
    char text[1024];
    tvm_diags diags = {0};
    tvm_ir_program *program = NULL;
    size_t size = 0;
    char *printed = NULL;
    snprintf(text, sizeof text, ".vasm 1\n.kernel k(x: global u8[4096])\n.warps 1\n.grid 1\n%s\n.end\n",
             refused[_i].code);
    ck_assert_int_ne(try_assemble(text, &program, &diags), TVM_OK);
    FILE *out = open_memstream(&printed, &size);
    tvm_diags_print(&diags, out, "test", false);
    fclose(out);
    ck_assert_msg(strstr(printed, refused[_i].message) != NULL, "%s\ngives\n%s", text, printed);
    free(printed);
    tvm_diags_free(&diags);
}
END_TEST

/* Packings in a program that no assembler made. */
START_TEST(the_verifier_checks_packings) {
    static const char text[] =
        ".vasm 1\n.kernel k(x: global u8[4096], i: i32)\n.warps 1\n.grid 1\n"
        "%b = load-global x, spatial(32).local(4)\n%q = view %b, u8, spatial(32).local(4), packing pair\n"
        "%s = alloc-shared u8[64]\n.end\n";
    for (unsigned slot = 0; slot < 5; slot++)
        for (unsigned packing = 0; packing < 3; packing++) {
            tvm_ir_program *program = assemble(text);
            tvm_ir_kernel *kernel = &program->kernels[0];
            const char *name = tvm_string(program, kernel->slots[slot].name);
            bool register_q = strstr(name, "q") != NULL;
            kernel->slots[slot].packing = (uint8_t)packing;
            bool good = packing == 0 || (packing == 1 && register_q);
            ck_assert_msg((tvm_verify(program, NULL) == TVM_OK) == good, "slot %s, packing %u", name,
                          packing);
            tvm_ir_program_free(program);
        }
}
END_TEST

static Suite *packing_suite(void) {
    Suite *suite = suite_create("packing");
    TCase *definition = tcase_create("definition"), *programs = tcase_create("programs");
    tcase_add_loop_test(definition, packing_is_that_of_the_manual, 0, lowbit_count);
    tcase_add_loop_test(definition, packing_uses_every_bit_once, 0, lowbit_count);
    tcase_add_loop_test(definition, runs_are_the_bits, 0, lowbit_count);
    tcase_add_test(definition, pictures_show_the_words);
    suite_add_tcase(suite, definition);
    tcase_add_loop_test(programs, conversions_of_packed_tensors_are_exact, 0, lowbit_count);
    tcase_add_loop_test(programs, conversions_of_scales_are_exact, 0, 6);
    tcase_add_loop_test(programs, text_and_container_keep_the_packing, 0, lowbit_count);
    tcase_add_test(programs, views_keep_the_bits);
    tcase_add_test(programs, constants_are_folded_exactly);
    tcase_add_test(programs, every_zero_point_is_folded_exactly);
    tcase_add_loop_test(programs, bad_packings_are_refused, 0, REFUSED);
    tcase_add_test(programs, the_verifier_checks_packings);
    suite_add_tcase(suite, programs);
    return suite;
}

int main(void) {
    lowbit_count = lowbit_types(lowbit);
    return run_suite(packing_suite());
}
