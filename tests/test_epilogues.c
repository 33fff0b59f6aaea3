/* Layouts that are left out around products with epilogues: each kernel is compared with itself where the
 * layouts are written as one who knows the hardware writes them. It has the same tensor instructions, and
 * hardly more instructions and registers. The kernels are the combinations of the tables below. ptxas counts
 * the registers of some whose PTX is another one, with TVM_TEST_ALL of all of these. */
#include "check_kit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "assembler_kit.h"
#include "extent_kit.h"
#include "suite_kit.h"
#include "translate_kit.h"

enum { TEXT = 8192, MORE_INSTRUCTIONS = 3, MORE_REGISTERS = 5 };

/* ---- the kernels ---- */

/* The words in capitals are replaced: TILE, ROW and COLUMN by the tiles of y, or by their written layouts;
 * SUMS and A by a layout, or nothing. */
static const struct {
    const char *name, *parameters, *tensors, *copies, *product;
    unsigned k;
    bool integer;
} products[] = {
    {"f16", "a: global f16[m, k], b: global f16[n, k]",
     "%a = alloc-shared f16[BM, BK]\n%b = alloc-shared f16[BN, BK]\n",
     "copy-async %a, a[%i, %k0]\ncopy-async %b, b[%j, %k0]\n", "mma %a, %b, %acc, transpose_b, k BK", 64,
     false},
    {"bf16", "a: global bf16[m, k], b: global bf16[k, n]",
     "%a = alloc-shared bf16[BM, BK]\n%b = alloc-shared bf16[BK, BN]\n",
     "copy-async %a, a[%i, %k0]\ncopy-async %b, b[%k0, %j]\n", "mma %a, %b, %acc, k BK", 64, false},
    {"f8", "a: global f8_e4m3[m, k], b: global f8_e4m3[n, k]",
     "%a = alloc-shared f8_e4m3[BM, BK]\n%b = alloc-shared f8_e4m3[BN, BK]\n",
     "copy-async %a, a[%i, %k0]\ncopy-async %b, b[%j, %k0]\n", "mma %a, %b, %acc, transpose_b, k BK", 128,
     false},
    {"i8", "a: global i8[m, k], b: global i8[n, k]",
     "%a = alloc-shared i8[BM, BK]\n%b = alloc-shared i8[BN, BK]\n",
     "copy-async %a, a[%i, %k0]\ncopy-async %b, b[%j, %k0]\n", "mma %a, %b, %acc, transpose_b, k BK", 128,
     true},
    {"u4", "a: global u4[m, k], b: global f16[n, k]", "%b = alloc-shared f16[BN, BK]\n",
     "copy-async %b, b[%j, %k0]\n",
     "mma RELAYOUT(cast-lowbit(load-global(a[%i, %k0], CODES), f16) - 8.0), %b, %acc, transpose_b", 64,
     false},
};

static const struct {
    unsigned m, n, warps;
    const char *sums, *a; /* written: of the sums, and of u4 codes that are converted */
} sizes[] = {
    {64, 64, 4, "spatial(4, 1).local(1, 8).mma.m16n8k16.C", "spatial(4, 1).local(1, 4).mma.m16n8k16.A"},
    {64, 128, 4, "spatial(4, 1).local(1, 16).mma.m16n8k16.C", "spatial(4, 1).local(1, 4).mma.m16n8k16.A"},
    {64, 32, 4, "spatial(4, 1).local(1, 4).mma.m16n8k16.C", "spatial(4, 1).local(1, 4).mma.m16n8k16.A"},
    {128, 64, 4, "local(2, 1).spatial(4, 1).local(1, 8).mma.m16n8k16.C",
     "local(2, 1).spatial(4, 1).local(1, 4).mma.m16n8k16.A"},
    {128, 128, 8, "spatial(8, 1).local(1, 16).mma.m16n8k16.C", "spatial(8, 1).local(1, 4).mma.m16n8k16.A"},
};

/* From %acc, which has the sums as f32, to what is stored. */
static const struct {
    const char *name, *text;
} epilogues[] = {
    {"bare", "%y = %acc\nSTORE"},
    {"bias", "%y = %acc + cast(load-global(bias[%j], COLUMN), f32)\nSTORE"},
    {"bias first", "%bias = cast load-global(bias[%j], COLUMN), f32\n%y = add %bias, %acc\nSTORE"},
    {"bias of rows", "%y = %acc + unsqueeze(cast(load-global(bias[%i], ROW), f32), 1)\nSTORE"},
    {"rows", "%y = %acc * unsqueeze(load-global(rows[%i], ROW), 1)\nSTORE"},
    {"columns", "%y = %acc * load-global(columns[%j], COLUMN)\nSTORE"},
    {"both, bias",
     "%y = %acc * unsqueeze(load-global(rows[%i], ROW), 1) * load-global(columns[%j], COLUMN) + "
     "cast(load-global(bias[%j], COLUMN), f32)\nSTORE"},
    {"residual", "%y = %acc + cast(TURNED(load-global(residual[%i, %j], TILE)TURNED), f32)\nSTORE"},
    {"gelu",
     "%x = %acc + cast(load-global(bias[%j], COLUMN), f32)\n%y = %x * 0.5 * (1.0 + erf(%x * 0.70710678))\nSTORE"},
    {"silu, factor",
     "%x = fma(%acc, load-global(columns[%j], COLUMN), cast(load-global(bias[%j], COLUMN), f32))\n"
     "%y = %x / (1.0 + exp(-%x))\nSTORE"},
    {"swiglu", "%y = %acc * %gat / (1.0 + exp(-%gat))\nSTORE"},
    {"quantization", "%x = %acc + cast(load-global(bias[%j], COLUMN), f32)\n"
                     "%most = max(reduce(max, abs(%x), 1), 1e-9)\n"
                     "store-global scales[block.y, %i], squeeze(%most * (1.0 / 127.0), 1)\n"
                     "store-global codes[%i, %j], CODED(cast(round(%x * (127.0 / %most)), i8)CODED)\n"},
    {"argmax", "%x = %acc + cast(load-global(bias[%j], COLUMN), f32)\n"
               "store-global best[block.y, %i], squeeze(reduce(argmax, %x, 1) + %j, 1)\n"},
};

enum {
    PRODUCTS = sizeof products / sizeof *products,
    SIZES = sizeof sizes / sizeof *sizes,
    EPILOGUES = sizeof epilogues / sizeof *epilogues
};

/* Adds the text with its words in capitals replaced. */
static void add_words(tvm_text *out, const char *text, const char *const words[][2]) {
    while (*text) {
        unsigned i = 0;
        while (words[i][0] && strncmp(text, words[i][0], strlen(words[i][0])) != 0) i++;
        if (words[i][0]) {
            tvm_text_puts(out, words[i][1]);
            text += strlen(words[i][0]);
        } else {
            tvm_text_add(out, "%c", *text++);
        }
    }
}

/* The words of b in those of another b, whose product is the gate. */
static const char *const gate[][2] = {{"%b", "%g"}, {" b[", " g["}, {"b: ", "g: "}, {NULL, NULL}};

static void add_product(tvm_text *out, unsigned product, const char *sums, const char *const words[][2],
                        bool gates) {
    tvm_text named = {0};
    char *text = strdup(products[product].product), *acc = strstr(text, "%acc");
    memcpy(acc, sums, 4);
    add_words(&named, text, words);
    tvm_text_add(out, "%s = ", sums);
    if (gates)
        add_words(out, tvm_text_string(&named), gate);
    else
        tvm_text_puts(out, tvm_text_string(&named));
    tvm_text_puts(out, "\n");
    tvm_text_free(&named);
    free(text);
}

static void write_kernel(tvm_text *out, unsigned product, unsigned size, unsigned epilogue, bool written) {
    const char *const words[][2] = {
        {"STORE", written ? "store-global y[%i, %j], relayout(cast(%y, f16), auto(BM, BN, f16))\n"
                          : "store-global y[%i, %j], cast(%y, f16)\n"},
        {"CODED(", written ? "relayout(" : "("},
        {"CODED)", written ? ", auto(BM, BN, i8))" : ")"},
        {"COLUMN", written ? "squeeze(reduce(SUM, 0), 0)" : "[BN]"},
        {"ROW", written ? "squeeze(reduce(SUM, 1), 1)" : "[BM]"},
        {"TILE", written ? "auto(BM, BN, f16)" : "[BM, BN]"},
        {"TURNED(", written ? "relayout(" : "("},
        {"TURNED)", written ? ", SUM)" : ")"},
        {"RELAYOUT(", written ? "relayout(" : "("},
        {"CODES), f16) - 8.0)", written ? "auto(BM, BK, u4)), f16) - 8.0, OF_A)" : "[BM, BK]), f16) - 8.0)"},
        {NULL, NULL}};
    bool integer = products[product].integer, gates = strstr(epilogues[epilogue].text, "%gat") != NULL;
    const char *type = integer ? "i32" : "f32", *sums = integer ? "%sum" : "%acc",
               *other = integer ? "%gum" : "%gat";
    tvm_text_add(out, ".vasm 7\n.const BM = %u, BN = %u, BK = %u\n", sizes[size].m, sizes[size].n,
                 products[product].k);
    tvm_text_add(out, ".layout SUM = %s\n.layout OF_A = %s\n", sizes[size].sums, sizes[size].a);
    tvm_text_add(out, ".kernel f(m: i32, n: i32, k: i32, %s, ", products[product].parameters);
    if (gates) add_words(out, strstr(products[product].parameters, "b: "), gate);
    tvm_text_add(out, "%s bias: global f16[n], rows: global f32[m],\n", gates ? "," : "");
    tvm_text_puts(out,
                  "columns: global f32[n], residual: global f16[m, n], y: global f16[m, n],\n"
                  "codes: global i8[m, n], scales: global f32[n / BN, m], best: global i32[n / BN, m])\n");
    tvm_text_add(out, ".warps %u\n.grid cdiv(m, BM), cdiv(n, BN)\n", sizes[size].warps);
    tvm_text_puts(out, ".assume m >= 0, n % 64 == 0, k % 64 == 0\n%i = block.x * BM\n%j = block.y * BN\n");
    tvm_text_puts(out, products[product].tensors);
    if (gates) add_words(out, strstr(products[product].tensors, "%b = "), gate);
    tvm_text_add(out, "%s = alloc-register %s[BM, BN], %sinit 0\n", sums, type, written ? "SUM, " : "");
    if (gates)
        tvm_text_add(out, "%s = alloc-register %s[BM, BN], %sinit 0\n", other, type, written ? "SUM, " : "");
    tvm_text_puts(out, "for %k0 = 0 to k step BK pipeline 3\n");
    tvm_text_puts(out, products[product].copies);
    if (gates) add_words(out, strstr(products[product].copies, "copy-async %b"), gate);
    add_product(out, product, sums, words, false);
    if (gates) add_product(out, product, other, words, true);
    tvm_text_puts(out, "end\n");
    if (integer) tvm_text_puts(out, "%acc = cast %sum, f32\n");
    if (integer && gates) tvm_text_puts(out, "%gat = cast %gum, f32\n");
    add_words(out, epilogues[epilogue].text, words);
    tvm_text_puts(out, ".end\n");
}

/* ---- what is compared ---- */

typedef struct code {
    unsigned instructions, wgmma, columns, mma;
    int registers, spills; /* 0: ptxas was not asked */
} code;

static code count(const tvm_module *module) {
    code c = {.registers = 0};
    for (const char *line = module->ptx; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        while (*line == ' ' || *line == '\t') line++;
        size_t length = strcspn(line, "\n");
        if (!length || *line == '.' || line[length - 1] != ';') continue;
        c.instructions++;
        c.mma += memcmp(line, "mma.sync", 8) == 0;
        if (strncmp(line, "wgmma.mma_async", 15) != 0) continue;
        c.wgmma++;
        c.columns = (unsigned)strtoul(strchr(strstr(line, ".m64"), 'n') + 1, NULL, 10);
    }
    return c;
}

static tvm_module *module_of(const tvm_text *text) {
    tvm_ir_program *program = assemble(tvm_text_string(text));
    tvm_module *module = translate(program, "sm_90a");
    tvm_ir_program_free(program);
    return module;
}

/* ptxas counts the registers, if there is one; what it says stands for any text that is the same. */
static void count_registers(tvm_module *module, code *c) {
    tvm_diags diags = {0};
    if (tvm_ptxas(module, NULL, &diags) == TVM_OK) {
        c->registers = module->kernels[0].registers;
        c->spills = module->kernels[0].spill_stores + module->kernels[0].spill_loads;
    }
    tvm_diags_free(&diags);
}

static void compare(unsigned product, unsigned size, unsigned epilogue) {
    tvm_text open = {0}, written = {0};
    char name[200];
    write_kernel(&open, product, size, epilogue, false);
    write_kernel(&written, product, size, epilogue, true);
    tvm_module *of_open = module_of(&open), *of_written = module_of(&written);
    code mine = count(of_open), best = count(of_written);
    bool same = strcmp(of_open->ptx, of_written->ptx) == 0;
    if (!same && test_takes(EPILOGUES * (size + product) + epilogue, 11)) {
        count_registers(of_open, &mine);
        count_registers(of_written, &best);
    }
    snprintf(name, sizeof name, "%s, [%u, %u] on %u warps, %s", products[product].name, sizes[size].m,
             sizes[size].n, sizes[size].warps, epilogues[epilogue].name);
    if (getenv("TVM_TEST_SHOW") != NULL)
        printf("%-44s %5u %5u  wgmma %u n%u, %u n%u  mma %u %u  registers %d %d\n", name, mine.instructions,
               best.instructions, mine.wgmma, mine.columns, best.wgmma, best.columns, mine.mma, best.mma,
               mine.registers, best.registers);
    ck_assert_msg(mine.wgmma == best.wgmma && mine.columns == best.columns && mine.mma == best.mma &&
                      best.wgmma > 0,
                  "%s: %u wgmma of %u columns and %u mma.sync, written %u of %u and %u\n%s", name, mine.wgmma,
                  mine.columns, mine.mma, best.wgmma, best.columns, best.mma, tvm_text_string(&open));
    ck_assert_msg(100 * mine.instructions <= (100 + MORE_INSTRUCTIONS) * best.instructions,
                  "%s: %u instructions, written %u\n%s", name, mine.instructions, best.instructions,
                  tvm_text_string(&open));
    ck_assert_msg(mine.spills <= best.spills, "%s: spills\n%s", name, tvm_text_string(&open));
    ck_assert_msg(100 * mine.registers <= (100 + MORE_REGISTERS) * best.registers,
                  "%s: %d registers, written %d\n%s", name, mine.registers, best.registers,
                  tvm_text_string(&open));
    tvm_module_free(of_open);
    tvm_module_free(of_written);
    tvm_text_free(&open);
    tvm_text_free(&written);
}

START_TEST(inferred_is_as_good_as_written) {
    unsigned product = (unsigned)_i / SIZES, size = (unsigned)_i % SIZES;
    for (unsigned e = 0; e < EPILOGUES; e++) {
        compare(product, size, e);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("epilogues");
    TCase *tests = tcase_create("epilogues");
    tcase_add_loop_test(tests, inferred_is_as_good_as_written, 0, PRODUCTS * SIZES);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
