/* The container: round trips, and files that are not what they should be. */
#include "check_kit.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "language.h"
#include "program.h"
#include "program_kit.h"
#include "suite_kit.h"
#include "vbc.h"
#include "verify.h"

enum { HEADER = 32, ENTRY = 32, STRS = 0, LAYT = 1, SHRD = 2, KRNL = 3, ENTR = 4, LINE = 5, SECTIONS = 6 };

/* ---- programs ---- */

static uint32_t head_expr(tvm_ir_entry *entry, tvm_expr node) {
    uint32_t expr = tvm_ir_kernel_expr(&entry->head, &node);
    ck_assert_uint_ne(expr, TVM_NONE);
    return expr;
}

/* Two cases: n < 100, then always. */
static void build_entry(tvm_ir_program *program, bool noise) {
    uint32_t name = tvm_ir_program_string(program, "any", 3);
    uint32_t index = tvm_ir_program_add_entry(program, name);
    ck_assert_uint_eq(index, 0);
    tvm_ir_entry *entry = &program->entries[index];
    if (noise) head_expr(entry, (tvm_expr){.op = TVM_EXPR_TARGET, .type = TVM_I(32)});
    uint32_t n = head_expr(entry, (tvm_expr){.op = TVM_EXPR_SLOT, .type = TVM_I(32), .a = 1});
    uint32_t limit = head_expr(entry, (tvm_expr){.op = TVM_EXPR_INTEGER, .type = TVM_I(32), .value.i = 100});
    tvm_ir_case first = {
        head_expr(entry, (tvm_expr){.op = TVM_EXPR_LT, .type = TVM_BOOL, .a = n, .b = limit}), 0, TVM_NONE};
    const tvm_ir_case second = {TVM_NONE, 0, TVM_NONE};
    ck_assert_uint_eq(tvm_ir_entry_add_case(program, entry, &first), 0);
    ck_assert_uint_eq(tvm_ir_entry_add_case(program, entry, &second), 1);
}

/* A matmul of one tile with every section in use. `noise` adds what nothing uses, in places that shift all
 * indices. */
static void build_matmul(kit *t, bool noise, int64_t step) {
    kit_start(t, "matmul");
    if (noise) {
        tvm_layout layout;
        ck_assert_int_eq(tvm_layout_spatial(1, (const uint32_t[]){32}, &layout, NULL), TVM_OK);
        kit_string(t, "unused");
        tvm_ir_program_layout(t->program, &layout);
        kit_float(t, 99);
    }
    uint32_t m = kit_scalar(t, "m", TVM_I(32)), n = kit_scalar(t, "n", TVM_I(32)),
             k = kit_scalar(t, "k", TVM_I(32));
    uint32_t em = kit_slot_expr(t, m), en = kit_slot_expr(t, n), ek = kit_slot_expr(t, k);
    uint32_t a = kit_global(t, "a", TVM_F16, em, ek), b = kit_global(t, "b", TVM_F16, ek, en);
    uint32_t c = kit_global(t, "c", TVM_F32, em, en);
    t->kernel->param_count = 6;
    if (noise) kit_scalar(t, "never", TVM_F64);
    uint32_t sixteen = kit_int(t, 16), zero = kit_int(t, 0);
    t->kernel->grid[0] = kit_binary(t, TVM_EXPR_CDIV, TVM_I(32), en, kit_int(t, 8));
    t->kernel->grid[1] = kit_binary(t, TVM_EXPR_CDIV, TVM_I(32), em, sixteen);
    tvm_ir_kernel_add_assume(t->kernel, kit_binary(t, TVM_EXPR_EQ, TVM_BOOL, zero,
                                                   kit_binary(t, TVM_EXPR_MOD, TVM_I(32), ek, sixteen)));
    uint32_t acc = kit_register(t, "acc", TVM_F32, &t->c), ra = kit_register(t, "ra", TVM_F16, &t->a);
    uint32_t rb = kit_register(t, "rb", TVM_F16, &t->b), at = kit_scalar(t, "at", TVM_I(32));
    uint32_t row = kit_scalar(t, "row", TVM_I(32)), column = kit_scalar(t, "column", TVM_I(32));
    uint32_t sa = kit_shared(t, "sa", TVM_F16, 2, (const uint32_t[]){16, 16});
    INSN(t, ALLOC_REGISTER, acc, X(kit_float(t, 0)));
    INSN0(t, ALLOC_SHARED, sa);
    INSN(t, LET, row, X(kit_binary(t, TVM_EXPR_MUL, TVM_I(32), kit_block(t, 1), sixteen)));
    INSN(t, LET, column, X(kit_binary(t, TVM_EXPR_MUL, TVM_I(32), kit_block(t, 0), kit_int(t, 8))));
    uint32_t er = kit_slot_expr(t, row), ec = kit_slot_expr(t, column), ea = kit_slot_expr(t, at);
    INSN(t, FOR, at, X(zero), X(ek), X(kit_int(t, step)), K(2));
    INSN(t, COPY_ASYNC, TVM_NONE, S(sa), X(zero), X(zero), S(a), X(er), X(ea), K(2), K(16), K(16), LEFT_OUT,
         LEFT_OUT);
    INSN0(t, COMMIT_GROUP, TVM_NONE);
    INSN(t, WAIT_GROUP, TVM_NONE, K(0));
    INSN0(t, SYNC, TVM_NONE);
    INSN(t, LOAD_SHARED, ra, S(sa), X(zero), X(zero));
    INSN(t, LOAD_GLOBAL, rb, S(b), X(ea), X(ec), LEFT_OUT);
    INSN(t, MMA, acc, S(ra), S(rb), S(acc));
    INSN0(t, END, TVM_NONE);
    INSN(t, FREE_SHARED, TVM_NONE, S(sa));
    INSN(t, STORE_GLOBAL, TVM_NONE, S(c), X(er), X(ec), S(acc));
    uint32_t file = kit_string(t, "dir/matmul.vasm");
    for (uint32_t i = 0; i < t->kernel->insn_count; i++) {
        t->kernel->insns[i].file = file;
        t->kernel->insns[i].line = 10 + i;
    }
    build_entry(t->program, noise);
    tvm_diags diags = {0};
    tvm_status status = tvm_verify(t->program, &diags);
    ck_assert_msg(status == TVM_OK, "%s", status == TVM_OK ? "" : diags.items[0].message);
}

typedef struct image {
    uint8_t *bytes;
    size_t size;
} image;

static image write_program(const tvm_ir_program *program, bool lines) {
    tvm_diags diags = {0};
    image file = {0};
    ck_assert_int_eq(tvm_vbc_write(program, lines, &file.bytes, &file.size, &diags), TVM_OK);
    ck_assert_uint_eq(diags.count, 0);
    return file;
}

static image matmul_image(bool lines) {
    kit t;
    build_matmul(&t, false, 16);
    image file = write_program(t.program, lines);
    kit_end(&t);
    return file;
}

static void check_same_image(image a, image b) {
    ck_assert_uint_eq(a.size, b.size);
    ck_assert_mem_eq(a.bytes, b.bytes, a.size);
}

/* ---- round trips ---- */

START_TEST(test_round_trip) {
    image file = matmul_image(_i == 1);
    tvm_ir_program *program = NULL;
    tvm_diags diags = {0};
    ck_assert_int_eq(tvm_vbc_read(file.bytes, file.size, "matmul.vbc", &program, &diags), TVM_OK);
    ck_assert_uint_eq(diags.count, 0);
    image again = write_program(program, _i == 1);
    check_same_image(file, again);
    const tvm_ir_kernel *kernel = tvm_find_kernel(program, "matmul");
    ck_assert_ptr_nonnull(kernel);
    ck_assert_uint_eq(kernel->warps, 1);
    ck_assert_uint_eq(kernel->param_count, 6);
    ck_assert_uint_eq(kernel->grid[2], TVM_NONE);
    ck_assert_str_eq(tvm_string(program, kernel->slots[3].name), "a");
    ck_assert_uint_eq(kernel->insn_count, 15);
    ck_assert_uint_eq(kernel->insns[4].op, TVM_OP_FOR);
    ck_assert_uint_eq(kernel->insns[4].match, 12);
    ck_assert_uint_eq(kernel->insns[5].count, 11);
    ck_assert_uint_eq(kernel->insns[5].line, _i == 1 ? 15 : 0);
    ck_assert_str_eq(tvm_string(program, kernel->insns[5].file), _i == 1 ? "dir/matmul.vasm" : "");
    const tvm_slot *acc = &kernel->slots[kernel->insns[0].result];
    tvm_layout expected;
    ck_assert_int_eq(tvm_layout_atom("mma.m16n8k16.C", 14, &expected, NULL), TVM_OK);
    ck_assert(tvm_layout_equal(&program->layouts[acc->layout], &expected));
    ck_assert(tvm_dtype_same(acc->dtype, TVM_F32));
    /* grid.x is cdiv(n, 8): evaluated, it is what C says. */
    tvm_scalar slots[6] = {{.i = 100}, {.i = 1001}, {.i = 64}}, value = {0};
    tvm_eval_env env = {.slots = slots};
    ck_assert_int_eq(tvm_expr_eval(kernel, kernel->grid[0], &env, &value, NULL), TVM_OK);
    ck_assert_int_eq(value.i, (1001 + 7) / 8);
    /* The entry has the kernel's parameters, and its conditions are evaluated with them. */
    const tvm_ir_entry *entry = tvm_find_entry(program, "any");
    ck_assert_ptr_nonnull(entry);
    ck_assert_ptr_null(tvm_find_entry(program, "matmul"));
    ck_assert_uint_eq(entry->head.param_count, 6);
    ck_assert_str_eq(tvm_string(program, entry->head.slots[3].name), "a");
    ck_assert_uint_eq(entry->case_count, 2);
    ck_assert_uint_eq(entry->cases[1].condition, TVM_NONE);
    ck_assert_int_eq(tvm_expr_eval(&entry->head, entry->cases[0].condition, &env, &value, NULL), TVM_OK);
    ck_assert_int_eq(value.i, 0);
    slots[1].i = 99;
    ck_assert_int_eq(tvm_expr_eval(&entry->head, entry->cases[0].condition, &env, &value, NULL), TVM_OK);
    ck_assert_int_eq(value.i, 1);
    tvm_ir_program_free(program);
    free(file.bytes);
    free(again.bytes);
}
END_TEST

START_TEST(test_empty_program) {
    tvm_ir_program *empty = tvm_ir_program_new(), *program = NULL;
    tvm_diags diags = {0};
    image file = write_program(empty, true);
    ck_assert_int_eq(tvm_vbc_read(file.bytes, file.size, NULL, &program, &diags), TVM_OK);
    ck_assert_uint_eq(program->kernel_count, 0);
    tvm_ir_program_free(program);
    tvm_ir_program_free(empty);
    free(file.bytes);
}
END_TEST

/* How a program was built does not show; what it does, does. */
START_TEST(test_bytes_and_hash_depend_on_meaning_alone) {
    kit plain, noisy, other;
    build_matmul(&plain, false, 16);
    build_matmul(&noisy, true, 16);
    build_matmul(&other, false, 32);
    image a = write_program(plain.program, true), b = write_program(noisy.program, true);
    check_same_image(a, b);
    uint64_t hash[3][2];
    tvm_diags diags = {0};
    ck_assert_int_eq(tvm_vbc_hash(plain.program, hash[0], &diags), TVM_OK);
    plain.kernel->insns[3].line = 4711;
    ck_assert_int_eq(tvm_vbc_hash(plain.program, hash[1], &diags), TVM_OK);
    ck_assert_int_eq(tvm_vbc_hash(other.program, hash[2], &diags), TVM_OK);
    ck_assert_mem_eq(hash[0], hash[1], sizeof hash[0]);
    ck_assert_mem_ne(hash[0], hash[2], sizeof hash[0]);
    /* Another table is another program. */
    plain.program->entries[0].case_count = 1;
    image c = write_program(plain.program, true);
    ck_assert_uint_lt(c.size, a.size);
    free(c.bytes);
    ck_assert_int_eq(tvm_vbc_hash(plain.program, hash[2], &diags), TVM_OK);
    ck_assert_mem_ne(hash[0], hash[2], sizeof hash[0]);
    kit_end(&plain);
    kit_end(&noisy);
    kit_end(&other);
    free(a.bytes);
    free(b.bytes);
}
END_TEST

START_TEST(test_files) {
    char path[] = "/tmp/test_vbc.XXXXXX";
    int descriptor = mkstemp(path);
    ck_assert_int_ge(descriptor, 0);
    close(descriptor);
    kit t;
    build_matmul(&t, false, 16);
    tvm_diags diags = {0};
    tvm_ir_program *program = NULL;
    ck_assert_int_eq(tvm_vbc_write_file(t.program, path, true, &diags), TVM_OK);
    ck_assert_int_eq(tvm_vbc_read_file(path, &program, &diags), TVM_OK);
    ck_assert_uint_eq(program->kernel_count, 1);
    tvm_ir_program_free(program);
    ck_assert_int_eq(truncate(path, 100), 0);
    ck_assert_int_eq(tvm_vbc_read_file(path, &program, &diags), TVM_FORMAT);
    ck_assert_str_eq(diags.items[0].file, path);
    unlink(path);
    ck_assert_int_eq(tvm_vbc_read_file(path, &program, &diags), TVM_IO);
    ck_assert_uint_eq(diags.count, 2);
    tvm_diags_free(&diags);
    kit_end(&t);
}
END_TEST

/* ---- files that are broken in one way ---- */

static uint8_t *entry_of(image file, unsigned section) {
    return file.bytes + HEADER + section * ENTRY;
}

static uint64_t get(const uint8_t *at, unsigned size) {
    uint64_t value = 0;
    for (unsigned i = size; i-- > 0;) value = value << 8 | at[i];
    return value;
}

static void put(uint8_t *at, uint64_t value, unsigned size) {
    for (unsigned i = 0; i < size; i++) at[i] = (uint8_t)(value >> 8 * i);
}

static uint8_t *section_of(image file, unsigned section) {
    return file.bytes + get(entry_of(file, section) + 8, 8);
}

/* Makes the checksums right again, where the table still says what lies in the file. */
static void mend_checksums(image file) {
    if (file.size < HEADER) return;
    for (uint64_t s = 0; s < get(file.bytes + 12, 4) && HEADER + (s + 1) * ENTRY <= file.size; s++) {
        uint8_t *entry = entry_of(file, (unsigned)s);
        uint64_t offset = get(entry + 8, 8), size = get(entry + 16, 8);
        if (offset <= file.size && size <= file.size - offset)
            put(entry + 24, XXH3_64bits(file.bytes + offset, size), 8);
    }
}

/* Expects a refusal with these words, naming the file. */
static void check_refused(image file, tvm_status expected, const char *words) {
    tvm_ir_program *program = NULL;
    tvm_diags diags = {0};
    tvm_status status = tvm_vbc_read(file.bytes, file.size, "bad.vbc", &program, &diags);
    ck_assert_msg(status != TVM_OK, "accepted; expected '%s'", words);
    ck_assert_uint_ge(diags.count, 1);
    ck_assert_msg(status == expected && strstr(diags.items[0].message, words) != NULL, "%s",
                  diags.items[0].message);
    ck_assert_str_eq(diags.items[0].file, "bad.vbc");
    tvm_diags_free(&diags);
}

static void break_magic(image *f) {
    f->bytes[0] ^= 1;
}
static void break_version(image *f) {
    put(f->bytes + 8, TVM_VBC_VERSION + 1, 4);
}
static void break_old_version(image *f) {
    put(f->bytes + 8, TVM_VBC_OLDEST - 1, 4);
}
static void break_language(image *f) {
    put(f->bytes + 24, TVM_LANGUAGE_VERSION + 1, 4);
}
static void break_no_language(image *f) {
    put(f->bytes + 24, 0, 4);
}
static void break_header(image *f) {
    put(f->bytes + 28, 1, 4);
}
static void break_count(image *f) {
    put(f->bytes + 12, 1000000, 4);
}
static void break_total(image *f) {
    put(f->bytes + 16, f->size + 1, 8);
}
static void break_trailing(image *f) {
    f->size++;
}
static void break_unowned(image *f) {
    f->size++;
    put(f->bytes + 16, f->size, 8);
}
static void break_tag(image *f) {
    memcpy(entry_of(*f, SHRD), "CUBN", 4);
}
static void break_reserved(image *f) {
    entry_of(*f, SHRD)[5] = 1;
}
static void break_twice(image *f) {
    memcpy(entry_of(*f, LAYT), "STRS", 4);
}
static void break_range(image *f) {
    put(entry_of(*f, KRNL) + 16, UINT64_MAX - 10, 8);
}
static void break_overlap(image *f) {
    put(entry_of(*f, LAYT) + 8, get(entry_of(*f, STRS) + 8, 8), 8);
}
static void break_gap(image *f) {
    put(entry_of(*f, LAYT) + 8, get(entry_of(*f, LAYT) + 8, 8) + 1, 8);
    put(entry_of(*f, LAYT) + 16, get(entry_of(*f, LAYT) + 16, 8) - 1, 8);
}
static void break_checksum(image *f) {
    section_of(*f, KRNL)[20] ^= 1;
}
static void break_missing(image *f) {
    memcpy(entry_of(*f, KRNL), "LINE", 4);
}
static void break_strings(image *f) {
    put(section_of(*f, STRS), 100000, 4);
}
static void break_string_length(image *f) {
    put(section_of(*f, STRS) + 4, 4000000000u, 4);
}
static void break_nul(image *f) {
    section_of(*f, STRS)[9] = 0;
}
static void break_rank(image *f) {
    section_of(*f, LAYT)[4] = 9;
}
static void break_modes(image *f) {
    section_of(*f, LAYT)[5] = 33;
}
static void break_kernels(image *f) {
    put(section_of(*f, KRNL), 257, 4);
}
static void break_fewer_strings(image *f) {
    put(section_of(*f, STRS), get(section_of(*f, STRS), 4) - 1, 4);
}
static void break_params(image *f) {
    put(section_of(*f, KRNL) + 28, 65, 4);
}
/* That of the mma with its three operands. */
static void break_opcode(image *f) {
    static const uint8_t mma[4] = {TVM_OP_MMA, 0, 3, 0};
    uint8_t *at = section_of(*f, KRNL);
    while (memcmp(at, mma, sizeof mma) != 0) at++;
    put(at, 65535, 2);
}
static void break_insns(image *f) {
    put(section_of(*f, KRNL) + 44, 60000, 4);
}
static void break_warps(image *f) {
    put(section_of(*f, KRNL) + 8, 2, 4);
}
static void break_resident(image *f) {
    put(section_of(*f, KRNL) + 12, 33, 4);
}
static void break_file_index(image *f) {
    uint8_t *lines = section_of(*f, LINE);
    put(lines + 8 + get(lines + 4, 4), 1, 4);
}

static void break_entries(image *f) {
    put(section_of(*f, ENTR), 257, 4);
}
static void break_cases(image *f) {
    put(section_of(*f, ENTR) + 12, 4096, 4);
}
static void break_condition(image *f) {
    put(section_of(*f, LINE) - 16, 3, 4);
}
static void break_variant(image *f) {
    put(section_of(*f, LINE) - 4, 1, 4);
}

static const struct {
    const char *name;
    void (*change)(image *file);
    bool mend;
    tvm_status status;
    const char *words;
} broken[] = {
    {"magic", break_magic, false, TVM_FORMAT, "not a bytecode file"},
    {"version", break_version, false, TVM_VERSION, "bytecode version 4: this program reads versions 2 to 3"},
    {"old version", break_old_version, false, TVM_VERSION, "bytecode version 1"},
    {"language", break_language, false, TVM_VERSION, "the program needs version 8 of the language"},
    {"no language", break_no_language, false, TVM_VERSION, "the program needs version 0 of the language"},
    {"header", break_header, false, TVM_FORMAT, "offset 28: the reserved field"},
    {"opcode", break_opcode, true, TVM_FORMAT, "opcode 65535 does not exist in version 1 of the language"},
    {"count", break_count, false, TVM_FORMAT, "table of 1000000 sections"},
    {"total", break_total, false, TVM_FORMAT, "truncated"},
    {"trailing", break_trailing, false, TVM_FORMAT, "more bytes follow the end"},
    {"unowned", break_unowned, false, TVM_FORMAT, "belong to no section"},
    {"tag", break_tag, false, TVM_FORMAT, "no section 'CUBN' in version 1 of the language"},
    {"reserved", break_reserved, false, TVM_FORMAT, "section SHRD: the reserved field"},
    {"twice", break_twice, true, TVM_FORMAT, "a second section STRS"},
    {"range", break_range, false, TVM_FORMAT, "outside of the file"},
    {"overlap", break_overlap, true, TVM_FORMAT, "overlapping"},
    {"gap", break_gap, true, TVM_FORMAT, "leaving a gap"},
    {"checksum", break_checksum, false, TVM_FORMAT, "section KRNL at offset"},
    {"missing", break_missing, true, TVM_FORMAT, "second section LINE"},
    {"strings", break_strings, true, TVM_FORMAT, "100000 strings do not fit"},
    {"string length", break_string_length, true, TVM_FORMAT, "section STRS ends at offset"},
    {"nul", break_nul, true, TVM_FORMAT, "contains a NUL"},
    {"rank", break_rank, true, TVM_FORMAT, "the rank is 9, expected at most 8"},
    {"modes", break_modes, true, TVM_FORMAT, "number of modes is 33"},
    {"kernels", break_kernels, true, TVM_FORMAT, "257 kernels, expected at most 256"},
    {"fewer strings", break_fewer_strings, true, TVM_FORMAT, "bytes too many"},
    {"params", break_params, true, TVM_FORMAT, "65 parameters"},
    {"insns", break_insns, true, TVM_FORMAT, "60000 instructions do not fit"},
    {"warps", break_warps, true, TVM_INVALID, "32 threads, the kernel has 64"},
    {"resident", break_resident, true, TVM_INVALID, "33 resident blocks"},
    {"file index", break_file_index, true, TVM_FORMAT, "section LINE"},
    {"entries", break_entries, true, TVM_FORMAT, "257 entries, expected at most 256"},
    {"cases", break_cases, true, TVM_FORMAT, "4096 cases do not fit"},
    {"condition", break_condition, true, TVM_INVALID, "any: case 1: expression 3 does not exist"},
    {"variant", break_variant, true, TVM_INVALID, "any: case 2: kernel 1 does not exist"},
};

START_TEST(test_broken_files) {
    image file = matmul_image(true);
    /* one byte more, for those that lengthen it */
    file.bytes = realloc(file.bytes, file.size + 1);
    file.bytes[file.size] = 0;
    broken[_i].change(&file);
    if (broken[_i].mend) mend_checksums(file);
    check_refused(file, broken[_i].status, broken[_i].words);
    free(file.bytes);
}
END_TEST

START_TEST(test_section_left_out) {
    image file = matmul_image(false);
    uint64_t strings = get(entry_of(file, STRS) + 16, 8);
    /* header, one entry, one section */
    image part = {malloc(HEADER + ENTRY + strings), HEADER + ENTRY + strings};
    memcpy(part.bytes, file.bytes, HEADER + ENTRY);
    memcpy(part.bytes + HEADER + ENTRY, section_of(file, STRS), strings);
    put(part.bytes + 12, 1, 4);
    put(part.bytes + 16, part.size, 8);
    put(part.bytes + HEADER + 8, HEADER + ENTRY, 8);
    check_refused(part, TVM_FORMAT, "section LAYT is missing");
    free(part.bytes);
    free(file.bytes);
}
END_TEST

/* The bytes are copied to a block of exactly that size, so that a sanitizer sees a read past the end. */
START_TEST(test_every_truncation_is_refused) {
    image file = matmul_image(true);
    for (size_t size = 0; size < file.size; size++) {
        tvm_ir_program *program = NULL;
        tvm_diags diags = {0};
        uint8_t *copy = malloc(size + (size == 0));
        memcpy(copy, file.bytes, size);
        tvm_status status = tvm_vbc_read(copy, size, "cut.vbc", &program, &diags);
        ck_assert_msg(status == TVM_FORMAT && diags.count == 1, "%zu bytes", size);
        /* and when the header agrees with the length */
        if (size >= HEADER) {
            put(copy + 16, size, 8);
            ck_assert_int_eq(tvm_vbc_read(copy, size, "cut.vbc", &program, &diags), TVM_FORMAT);
            ck_assert_uint_eq(diags.count, 2);
        }
        tvm_diags_free(&diags);
        free(copy);
    }
    free(file.bytes);
}
END_TEST

/* ---- random corruptions ---- */

static uint64_t next_random(uint64_t *state) {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * UINT64_C(2685821657736338717);
}

/* One change: a bit, a byte, a small or an extreme number, a copied range. */
static void corrupt(image file, size_t from, uint64_t *seed) {
    static const uint32_t extremes[] = {0, 1, 2, 31, 32, 33, 0x7fffffff, 0x80000000, 0xfffffffe, 0xffffffff};
    size_t at = from + next_random(seed) % (file.size - from), left = file.size - at;
    uint64_t r = next_random(seed);
    switch (r % 6) {
    case 0:
        file.bytes[at] ^= (uint8_t)(1u << (r >> 8) % 8);
        break;
    case 1:
        file.bytes[at] = (uint8_t)(r >> 8);
        break;
    case 2:
        file.bytes[at] = (uint8_t)((r >> 8) % 16);
        break;
    case 3:
        put(file.bytes + at, extremes[(r >> 8) % 10], left < 4 ? 1 : 4);
        break;
    case 4:
        put(file.bytes + at, (r >> 8) % 64, left < 4 ? 1 : 4);
        break;
    default: {
        size_t source = from + (r >> 8) % (file.size - from), length = (r >> 40) % 24;
        if (length > left) length = left;
        if (length > file.size - source) length = file.size - source;
        memmove(file.bytes + at, file.bytes + source, length);
    }
    }
}

/* Reads it: an error with a diagnostic, or a program that survives a round trip. True when it was one. */
static bool read_corrupted(image file) {
    tvm_ir_program *program = NULL, *copy = NULL;
    tvm_diags diags = {0};
    tvm_status status = tvm_vbc_read(file.bytes, file.size, "fuzzed.vbc", &program, &diags);
    if (status != TVM_OK) {
        ck_assert_uint_ge(diags.count, 1);
        ck_assert_uint_le(diags.count, 21);
        tvm_diags_free(&diags);
        return false;
    }
    ck_assert_uint_eq(diags.count, 0);
    image again = write_program(program, true);
    ck_assert_int_eq(tvm_vbc_read(again.bytes, again.size, NULL, &copy, &diags), TVM_OK);
    image third = write_program(copy, true);
    check_same_image(again, third);
    free(again.bytes);
    free(third.bytes);
    tvm_ir_program_free(copy);
    tvm_ir_program_free(program);
    return true;
}

/* Round 0 leaves the checksums alone: nearly all is found there. Round 1 mends them, so that the readers of
 * sections and the verifier are what has to withstand it. */
START_TEST(test_random_corruptions) {
    enum { ROUNDS = 6000 };
    image file = matmul_image(true);
    image copy = {malloc(file.size), file.size};
    uint64_t seed = UINT64_C(88172645463325252) + (uint64_t)_i;
    unsigned right = 0;
    for (unsigned i = 0; i < ROUNDS; i++) {
        memcpy(copy.bytes, file.bytes, file.size);
        size_t from = _i == 1 ? HEADER + SECTIONS * ENTRY : 0;
        for (unsigned changes = 1 + (unsigned)(next_random(&seed) % 3); changes > 0; changes--)
            corrupt(copy, from, &seed);
        if (_i == 1) mend_checksums(copy);
        right += read_corrupted(copy);
    }
    /* Some changes do nothing, or change a constant: the reader is not one that refuses all. */
    ck_assert_uint_gt(right, 0);
    ck_assert_uint_lt(right, ROUNDS / 2);
    free(copy.bytes);
    free(file.bytes);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("vbc");
    TCase *right = tcase_create("round trips");
    tcase_add_loop_test(right, test_round_trip, 0, 2);
    tcase_add_test(right, test_empty_program);
    tcase_add_test(right, test_bytes_and_hash_depend_on_meaning_alone);
    tcase_add_test(right, test_files);
    suite_add_tcase(suite, right);
    TCase *wrong = tcase_create("broken files");
    tcase_add_loop_test(wrong, test_broken_files, 0, sizeof broken / sizeof broken[0]);
    tcase_add_test(wrong, test_section_left_out);
    tcase_add_test(wrong, test_every_truncation_is_refused);
    suite_add_tcase(suite, wrong);
    TCase *random_changes = tcase_create("corruptions");
    tcase_add_loop_test(random_changes, test_random_corruptions, 0, 2);
    suite_add_tcase(suite, random_changes);
    return run_suite(suite);
}
