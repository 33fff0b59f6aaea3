/* What layouts that are left out are worth: accesses of 16 bytes and no bank conflicts; a matmul without a
 * layout against float64; and shipped programs without their layouts beside themselves. */
#include "check_kit.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernel_kit.h"
#include "suite_kit.h"
#include "translate_kit.h"

/* ---- the code ---- */

static bool moves(const tvm_selection *s) {
    static const char *const words[] = {"ld.", "st.", "cp.async", "ldmatrix"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strncmp(s->candidate, words[i], strlen(words[i])) == 0) return true;
    return false;
}

/* Every access of every kernel. */
static void check_accesses(const tvm_ir_program *program, const char *target) {
    tvm_module *module = translate(program, target);
    unsigned accesses = 0;
    for (size_t k = 0; k < module->kernel_count; k++)
        for (size_t i = 0; i < module->kernels[k].selection_count; i++) {
            const tvm_selection *s = &module->kernels[k].selections[i];
            ck_assert_msg(s->conflicts <= 0, "%s: line %u: %s: %s meets %d bank conflicts", target, s->line,
                          s->instruction, s->candidate, s->conflicts);
            if (!moves(s)) continue;
            accesses++;
            if (strncmp(s->candidate, "cp.async.bulk", 13) == 0) continue; /* whole boxes */
            ck_assert_msg(s->bits == 128, "%s: line %u: %s: %s moves %u bits (%s)", target, s->line,
                          s->instruction, s->candidate, s->bits, s->refused);
        }
    ck_assert_uint_gt(accesses, 0);
    tvm_module_free(module);
}

#define MATRIX(name, parameters) ".vasm 3\n.kernel " name "(m: i32, n: i32, " parameters ")\n.warps 4\n"

static const char *const texts[] = {
    /* rows in a block, rows in a warp */
    MATRIX("softmax", "x: global f16[m, n], y: global f16[m, n]")
    ".grid cdiv(m, 4)\n.assume n % 8 == 0\n%i = block.x * 4\n"
    "%inside = compare lt, iota(i32[1, 2048], axis 1), n\n"
    "%x = where %inside, cast(load-global(x[%i, 0], [4, 2048]), f32), -inf\n"
    "%e = exp(%x - reduce(max, %x, 1))\n"
    "store-global y[%i, 0], cast(%e / reduce(sum, %e, 1), f16)\n.end\n",
    MATRIX("rms_norm", "x: global bf16[m, n], w: global bf16[n], y: global bf16[m, n]")
    ".grid m\n.assume n % 8 == 0\n"
    "%x = cast(load-global(x[block.x, 0], [1, 4096]), f32)\n"
    "%s = rsqrt(reduce(sum, %x * %x, 1) / f32(n) + 1e-5)\n"
    "store-global y[block.x, 0], cast(%x * %s * cast(load-global(w), f32), bf16)\n.end\n",
    /* a transpose through shared memory that the assembler plans */
    MATRIX("transpose", "x: global f16[m, n], y: global f16[n, m]")
    ".grid cdiv(n, 64), cdiv(m, 64)\n.assume n % 8 == 0, m % 8 == 0\n"
    "%x = load-global x[block.y * 64, block.x * 64], [64, 64]\n"
    "store-global y[block.x * 64, block.y * 64], transpose(%x)\n.end\n",
    /* attention: the sums of one mma are the fragments of another */
    ".vasm 3\n.kernel attention(n: i32, q: global f16[n, 64], k: global f16[n, 64],\n"
    "v: global f16[n, 64], o: global f16[n, 64])\n.warps 4\n.grid cdiv(n, 64)\n"
    "%k = alloc-shared f16[64, 64]\n%v = alloc-shared f16[64, 64]\n"
    "%q = load-global q[block.x * 64], [64, 64]\n"
    "%o = alloc-register f32[64, 64], init 0.0\n"
    "%top = alloc-register f32[64, 1], init -1e30\n%sum = alloc-register f32[64, 1], init 0.0\n"
    "for %j = 0 to n step 64\n"
    "copy-async %k, k[%j, 0]\ncopy-async %v, v[%j, 0]\ncommit-group\nwait-group 0\nsync\n"
    "%zero = alloc-register f32[64, 64], init 0.0\n"
    "%s = mma %q, %k, %zero, transpose_b\n"
    "%new = max(%top, reduce(max, %s, 1))\n%p = exp(%s - %new)\n%scale = exp(%top - %new)\n"
    "%sum = %sum * %scale + reduce(sum, %p, 1)\n"
    "%o = mma cast(%p, f16), %v, %o * %scale\n%top = %new\nsync\nend\n"
    "store-global o[block.x * 64], cast(%o / %sum, f16)\n.end\n",
};

START_TEST(inferred_accesses_are_wide) {
    tvm_ir_program *program = NULL;
    tvm_diags diags = {0};
    tvm_status status = tvm_assemble_text(texts[_i], strlen(texts[_i]), "test.vasm", NULL, &program, &diags);
    tvm_diags_print(&diags, stderr, "test", false);
    tvm_diags_free(&diags);
    ck_assert_int_eq(status, TVM_OK);
    check_accesses(program, "sm_80");
    check_accesses(program, "sm_90a");
    tvm_ir_program_free(program);
}
END_TEST

/* ---- matmul_simple ---- */

static const char *const defines[] = {"T=f16", "T=bf16"};
static const size_t sizes[][3] = {{1, 8, 8}, {130, 136, 72}, {64, 200, 200}, {7, 264, 1000}};

START_TEST(matmul_simple_is_that_of_float64) {
    kernel_kit k = kit_open("matmul_simple.vasm", defines[_i]);
    tvm_dtype type = _i ? TVM_BF16 : TVM_F16;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        size_t m = sizes[s][0], n = sizes[s][1], depth = sizes[s][2];
        kit_clear(&k);
        kit_scalar(&k, (double)m), kit_scalar(&k, (double)n), kit_scalar(&k, (double)depth);
        kit_tensor *a = kit_input(&k, type, m * depth, -1, 1), *b = kit_input(&k, type, depth * n, -1, 1);
        kit_tensor *c = kit_tensor_new(&k, type, m * n);
        kit_launch(&k, "matmul");
        for (size_t i = 0; i < m * n; i++) {
            double want = 0;
            for (size_t l = 0; l < depth; l++)
                want += a->values[i / n * depth + l] * b->values[l * n + i % n];
            ck_assert_msg(fabs(c->values[i] - want) <= (_i ? 0x1p-8 : 0x1p-11) * fabs(want) + 1e-4,
                          "%s: %zu x %zu x %zu: element %zu is %.9g, expected %.9g", defines[_i], m, n, depth,
                          i, c->values[i], want);
        }
    }
    kit_close(&k);
}
END_TEST

START_TEST(matmul_simple_is_short_and_fast) {
    char path[5000], line[400];
    FILE *file = fopen(program_path("matmul_simple.vasm", path), "r");
    unsigned lines = 0;
    ck_assert_ptr_nonnull(file);
    while (fgets(line, sizeof line, file)) lines++;
    fclose(file);
    ck_assert_uint_le(lines, 25);
    tvm_ir_program *program = assemble_file(program_path("matmul_simple.vasm", path), defines[_i]);
    check_accesses(program, "sm_80");
    check_accesses(program, "sm_90a");
    compiles_without_spills(program, defines[_i], "sm_80");
    compiles_without_spills(program, defines[_i], "sm_90a");
    tvm_ir_program_free(program);
}
END_TEST

/* ---- shipped programs without their layouts ---- */

/* The text of `.layout NAME = layout([16, 64], ...`, from the shape's bracket on. */
static const char *shape_of(const char *text, const char *name, size_t length) {
    for (const char *line = strstr(text, "\n.layout "); line; line = strstr(line + 1, "\n.layout ")) {
        const char *at = line + strlen("\n.layout ");
        if (strncmp(at, name, length) == 0 && at[length] == ' ') return strchr(at, '[');
    }
    return NULL;
}

/* Bytes of a layout that begins there: L7, or a shared one; 0: none does. */
static size_t layout_at(const char *text) {
    static const char *const words[] = {"shared(", "swizzle(", "row_major"};
    size_t i = 0, length = 0, depth = 0;
    if (*text == 'L' && text[1] >= '0' && text[1] <= '9') return 1 + strspn(text + 1, "0123456789");
    while (i < sizeof words / sizeof *words && strncmp(text, words[i], strlen(words[i])) != 0) i++;
    if (i == sizeof words / sizeof *words) return 0;
    while (text[length] && text[length] != '\n' && (depth || (text[length] != ',' && text[length] != ' '))) {
        depth += text[length] == '(' || text[length] == '[';
        depth -= text[length] == ')' || text[length] == ']';
        length++;
    }
    return length;
}

/* Does the line make a tensor of which its kernel takes slices, parts of what each thread holds? */
static bool is_sliced(const char *line, size_t size) {
    const char *made = memmem(line, size, " = alloc-register ", 18), *end = strstr(line, "\n.end");
    const char *name = line + strspn(line, " ");
    char slice[120];
    if (!made || !end) return false;
    snprintf(slice, sizeof slice, " = slice %.*s,", (int)(made - name), name);
    return memmem(line, (size_t)(end - line), slice, strlen(slice)) != NULL;
}

/* One line without its layouts: a keyword operand goes, another becomes the tile, a relayout a copy. Of a
 * view, and of what slices are taken of, they stay: they are what these mean. */
static void strip_line(tvm_text *out, const char *text, const char *line, size_t size) {
    bool relayout = memmem(line, size, " = relayout ", 12) != NULL;
    if (strncmp(line, ".layout ", 8) == 0 || memmem(line, size, " = view ", 8) || is_sliced(line, size)) {
        tvm_text_add(out, "%.*s", (int)size, line);
        return;
    }
    for (size_t i = 0; i < size;) {
        size_t keyword = strncmp(line + i, ", layout ", 9) == 0 ? 9 : 0;
        size_t comma = strncmp(line + i, ", ", 2) == 0 ? 2 : 0, skip = keyword ? keyword : comma;
        size_t length = skip ? layout_at(line + i + skip) : 0;
        const char *shape = length && comma ? shape_of(text, line + i + skip, length) : NULL;
        if (relayout && strncmp(line + i, "relayout ", 9) == 0) {
            i += 9;
        } else if (length && (keyword || relayout)) {
            i += skip + length;
        } else if (shape) {
            tvm_text_add(out, ", %.*s]", (int)strcspn(shape, "]"), shape);
            i += skip + length;
        } else {
            tvm_text_add(out, "%c", line[i++]);
        }
    }
}

static char *without_layouts(const tvm_ir_program *program) {
    tvm_text out = {0};
    tvm_diags diags = {0};
    char *text = NULL;
    ck_assert_int_eq(tvm_disassemble(program, &text, &diags), TVM_OK);
    for (const char *line = text; *line;) {
        size_t size = strcspn(line, "\n") + 1;
        strip_line(&out, text, line, size);
        line += size;
    }
    free(text);
    return out.data;
}

static unsigned count(const char *text, const char *what) {
    unsigned found = 0;
    for (; (text = strstr(text, what)) != NULL; text++) found++;
    return found;
}

/* Of the PTX, without copies between registers, which machine code has none of. */
static unsigned instructions(const tvm_module *module) {
    return count(module->ptx, ";") - count(module->ptx, "mov.b32 %w");
}

/* attention, kv_append and the low-bit products have views between types of other widths and parts that are
 * put together, which mean what their layouts say. sample has the layout that its atomic operations want;
 * transpose is counted by element. */
static const char *const shipped[] = {
    "argmax",      "attention_merge", "cumsum",        "embedding", "histogram", "layer_norm",
    "matmul",      "matmul_simple",   "quantize_rows", "reduce",    "rms_norm",  "rope",
    "scatter_add", "softmax",         "swiglu",        "topk",
};

START_TEST(shipped_programs_without_layouts) {
    char path[5000], name[100];
    snprintf(name, sizeof name, "%s.vasm", shipped[_i]);
    tvm_ir_program *written = assemble_file(program_path(name, path), ""), *open = NULL;
    tvm_diags diags = {0};
    char *text = without_layouts(written);
    ck_assert_ptr_null(strstr(text, "relayout"));
    tvm_status status = tvm_assemble_text(text, strlen(text), name, NULL, &open, &diags);
    tvm_diags_print(&diags, stderr, "test", false);
    ck_assert_int_eq(status, TVM_OK);
    tvm_diags_free(&diags);
    tvm_module *of_written = translate(written, "sm_90a"), *of_open = translate(open, "sm_90a");
    ck_assert_uint_eq(count(of_open->ptx, "wgmma.mma_async"), count(of_written->ptx, "wgmma.mma_async"));
    ck_assert_uint_eq(count(of_open->ptx, "mma.sync"), count(of_written->ptx, "mma.sync"));
    ck_assert_msg(100 * instructions(of_open) <= 103 * instructions(of_written),
                  "%s: %u instructions, written %u", shipped[_i], instructions(of_open),
                  instructions(of_written));
    tvm_module_free(of_written);
    tvm_module_free(of_open);
    tvm_ir_program_free(written);
    tvm_ir_program_free(open);
    free(text);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("inferred code");
    TCase *tests = tcase_create("inferred code");
    tcase_add_loop_test(tests, inferred_accesses_are_wide, 0, sizeof texts / sizeof *texts);
    tcase_add_loop_test(tests, matmul_simple_is_that_of_float64, 0, 2);
    tcase_add_loop_test(tests, matmul_simple_is_short_and_fast, 0, 2);
    tcase_add_loop_test(tests, shipped_programs_without_layouts, 0, sizeof shipped / sizeof *shipped);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
