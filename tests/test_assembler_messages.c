/* The assembler: what is said of mistakes, and where; and text that means harm. */
#include <inttypes.h>
#include <stdio.h>

#include "assembler_kit.h"
#include "directive_names.h"
#include "foreign.h"
#include "lexer.h"
#include "suite_kit.h"
#include "types.h"

/* ---- mistakes: the first message ---- */

static const struct {
    const char *text;
    uint32_t line, column;
    const char *message; /* contained */
    const char *hint;    /* contained; NULL: there is none */
} mistakes[] = {
    {".kernel f()\n.warps 1\n.end\n", 1, 1, "expected '.vasm 7'", NULL},
    {".vasm 8\n", 1, 7, "version 8 of the language is not known, only 1 to 7", NULL},
    {".vasm 2\n.if 0\n.elseif 1\n.endif\n", 3, 2, "unknown directive '.elseif'", "did you mean '.elif'?"},
    {".vasm 2\n.if 1\n.else\n.esle\n.endif\n", 4, 2, "unknown directive '.esle'", "did you mean '.else'?"},
    {".vasm 2\n.for i = 0 to 0\n.cosnt A = 1\n.endfor\n", 3, 2, "unknown directive '.cosnt'",
     "did you mean '.const'?"},
    {".vasm 2\n.kernel f()\n.warps 1\n.end\n", 2, 2, "the kernel has no '.grid'", "'.grid 1'"},
    {".vasm 1\n.cosnt A = 1\n", 2, 2, "unknown directive '.cosnt'", "did you mean '.const'?"},
    {".vasm 1\n.const A = 1\n.const A = 2\n", 3, 8, "already defined at test.vasm:2", NULL},
    {".vasm 1\n.const u3 = 1\n", 2, 8, "'u3' is a type", NULL},
    {".vasm 1\n.const load = 1, add = 2\n", 2, 18, "'add' is an instruction", NULL},
    {".vasm 1\n.const A = 1 +\n", 2, 15, "expected an expression, found end of line", NULL},
    {".vasm 1\n.const A = (1 + 2\n.const B = 1\n", 2, 12, "'(' is not closed", NULL},
    {".vasm 1\n.const A = [1,\n 2, 3\n", 2, 12, "'[' is not closed", NULL},
    {HEAD "%i = min(m,\n  (n + 1)\n%j = 2\n" TAIL, 4, 9, "'(' is not closed", NULL},
    {HEAD "%i = (m + 1\nfor %j = 0 to 2\nend\n" TAIL, 4, 6, "'(' is not closed", NULL},
    {HEAD "%i = (m + (n\nexit\n%j = 2\n" TAIL, 4, 11, "'(' is not closed", NULL},
    {HEAD "%i = (m 2\n" TAIL, 4, 9, "expected ')' after the expression, found '2'", NULL},
    {".vasm 1\n.const A = 1 / 0\n", 2, 14, "division by zero", NULL},
    {".vasm 1\n.const A = 9223372036854775807 + 1\n", 2, 32, "does not fit 64 bits", NULL},
    {".vasm 1\n.const A = 99999999999999999999\n", 2, 12, "too large number", NULL},
    {".vasm 1\n.const A = 12abc\n", 2, 12, "malformed", NULL},
    {".vasm 1\n.const A = \"abc\n", 2, 12, "without closing quote", NULL},
    {".vasm 1\n.const A = 1 @ 2\n", 2, 14, "unexpected character '@'", NULL},
    {".vasm 1\n.const ALPHA = 1\n.const B = ALHPA\n", 3, 12, "'ALHPA' is not defined",
     "did you mean 'ALPHA'?"},
    {".vasm 1\n.const A = spatail(2)\n", 2, 12, "unknown function 'spatail'", "did you mean 'spatial'?"},
    {".vasm 1\n.const A = f6_e2m2\n", 2, 12, "'f6_e2m2' is not defined", "did you mean 'f"},
    {".vasm 1\n.const A = mma.m16n8k16.E\n", 2, 12, "'mma.m16n8k16.E'", "did you mean 'mma.m16n8k16."},
    {".vasm 1\n.const A = cdiv(3)\n", 2, 12, "cdiv takes 2 arguments, not 1", NULL},
    {".vasm 1\n.const A = bits(3)\n", 2, 12, "takes a type, not an integer", NULL},
    {".vasm 1\n.layout A = 3\n", 2, 13, "expected a layout, found an integer", ".const"},
    {".vasm 1\n.layout A = local(2).3\n", 2, 21, "'.' composes register layouts, not an integer", NULL},
    {".vasm 1\n.layout A = local(0)\n", 2, 13, "from 1 to", NULL},
    {".vasm 1\n.if 1\n", 2, 2, "'.if' without '.endif'", NULL},
    {".vasm 1\n.endif\n", 2, 2, "'.endif' without '.if'", NULL},
    {".vasm 1\n.for i = 0 to 3\n", 2, 2, "'.for' without '.endfor'", NULL},
    {".vasm 1\n.for i = 0 to 3 step 0\n.endfor\n", 2, 22, "step of .for is 0", NULL},
    {".vasm 1\n.for i = 0 to 3\n.const A = B\n.endfor\n", 3, 12, "'B' is not defined", "in .for with i = 0"},
    {".vasm 1\n.else\n", 2, 2, "'.else' without '.if'", NULL},
    {".vasm 1\n.error \"not this\"\n", 2, 2, "not this", NULL},
    {".vasm 1\nsync\n", 2, 1, "expected a directive, found 'sync'", ".kernel"},
    {".vasm 1\n.warps 4\n", 2, 2, "'.warps' outside of a kernel", NULL},
    {".vasm 1\n.include 3\n", 2, 10, "file name in quotes", NULL},
    {".vasm 1\n.kernel f(\n.warps 1\n.end\n", 2, 10, "'(' is not closed", NULL},
    {".vasm 1\n.kernel f(\n  m: i32,\n  n: i32\n.warps 1\n.end\n", 2, 10, "'(' is not closed", NULL},
    {".vasm 1\n.kernel f(m: i16)\n.warps 1\n.end\n", 2, 14, "'i16' is not a type of scalars", "bool, i32"},
    {".vasm 1\n.kernel f(m: i32, m: i32)\n.warps 1\n.end\n", 2, 19, "two parameters 'm'", NULL},
    {".vasm 1\n.kernel f(u3: i32)\n.warps 1\n.end\n", 2, 11, "'u3' is a word of the language", NULL},
    {".vasm 1\n.kernel f(a: global f16[q])\n.warps 1\n.end\n", 2, 25, "'q' is not defined", NULL},
    {".vasm 1\n.kernel f()\n.warps 33\n.end\n", 3, 8, "number of warps is from 1 to 32", NULL},
    {".vasm 1\n.kernel f()\nsync\n.end\n", 3, 1, "expected '.warps'", NULL},
    {".vasm 1\n.kernel f()\n.warps 1\n", 2, 2, "'.kernel' without '.end'", NULL},
    {".vasm 1\n.kernel f()\n.warps 1\n.end\n.kernel f()\n.warps 1\n.end\n", 5, 9, "already a kernel 'f'",
     NULL},
    {".vasm 1\n.kernel f()\n.warps 1\n.grid block.x\n.end\n", 4, 7, "constants and scalar parameters", NULL},
    {".vasm 1\n.kernel f()\n.warps 1\n.assume 1 == 2\n.end\n", 4, 9, "assumption is false", NULL},
    {HEAD "%r = load-global a, spatial(8, 4)\n%s = add load-global(a[0, 1]), %r\n" TAIL, 5, 29,
     "expected ',' and 'layout' of load-global", NULL},
    {HEAD "%r = load-global a, spatial(8, 4)\n%s = add %r, reduce(sum, load-global(a[0, 1]), 1)\n" TAIL, 5,
     45, "expected ',' and 'layout' of load-global", NULL},
    {HEAD "%r = sigmoid %x\n" TAIL, 4, 6, "unknown instruction 'sigmoid'", "1 / (1 + exp(-x))"},
    {HEAD "%r = clamp %x, 0, 1\n" TAIL, 4, 6, "unknown instruction 'clamp'", "clip x, low, high"},
    {HEAD "%r = alloc-register float[32]\n" TAIL, 4, 21, "'float' is not defined", "the type is f32"},
    {HEAD "%i = threadIdx.x\n" TAIL, 4, 6, "'threadIdx", "layout"},
    {HEAD "return\n" TAIL, 4, 1, "unknown instruction 'return'", "exit ends the block"},
    {HEAD "if m\nelse if n\nend\n" TAIL, 5, 6, "'else if' is no statement", "written 'elif'"},
    {HEAD "frobnicate %x\n" TAIL, 4, 1, "unknown instruction 'frobnicate'", NULL},
    {HEAD "%r = laod-global a[0, 0], local(1)\n" TAIL, 4, 6, "unknown instruction 'laod-global'",
     "did you mean 'load-global'?"},
    {HEAD "stroe-global a, %r\n" TAIL, 4, 1, "unknown instruction 'stroe-global'",
     "did you mean 'store-global'?"},
    {HEAD "endif\n" TAIL, 4, 1, "unknown instruction 'endif'", "did you mean '.endif'?"},
    {HEAD "%r = sync\n" TAIL, 4, 6, "sync gives no result", NULL},
    {HEAD "mma %r, %r, %r\n" TAIL, 4, 1, "mma gives a result that must be assigned", "%name = mma"},
    {HEAD "k = 3\n" TAIL, 4, 1, "'k' cannot be assigned", "'%k = ...'"},
    {".vasm 2\n.kernel f(m: i32)\n.warps 1\n.grid 1\n%i = %m\n.end\n", 5, 7, "'%m' is not defined",
     "parameters are written without '%': 'm'"},
    {HEAD "%i = %j\n" TAIL, 4, 7, "'%j' is not defined", NULL},
    {HEAD "%count = 1\n%i = %cuont\n" TAIL, 5, 7, "'%cuont' is not defined", "did you mean '%count'?"},
    {HEAD "%count = 1\n%i = count\n" TAIL, 5, 6, "'count' is not defined", "'%count'"},
    {HEAD "%i = 1\n%i = 1.5\n" TAIL, 5, 6, "'%i' has type i32, this value f32", "i32(...)"},
    {HEAD "%i = 1\n%i = alloc-register f32[32]\n" TAIL, 5, 2,
     "'%i' is a scalar, this gives a register tensor", "another name"},
    {HEAD "%i = u3\n" TAIL, 4, 6, "holds a scalar or a tensor, not a type", ".const"},
    {HEAD "%i = m +\n" TAIL, 4, 9, "expected an expression, found end of line", NULL},
    {HEAD "%i = a\n" TAIL, 4, 6, "expected a scalar, found a global tensor", NULL},
    {HEAD "%r = load-global m, local(1)\n" TAIL, 4, 18,
     "expected a global tensor for 'source', found a scalar 'm'", NULL},
    {HEAD "%r = load-global a[0, 0, 0], spatial(8, 4)\n" TAIL, 4, 19, "3 indices for a tensor of rank 2",
     NULL},
    {HEAD "%r = load-global a[0]\n" TAIL, 4, 22, "expected ',' and 'layout' of load-global", NULL},
    {HEAD "%r = load-global a, spatial(8, 8)\n" TAIL, 4, 6, "load-global: ", NULL},
    {HEAD "%r = alloc-register f32[32], 0.0\n" TAIL, 4, 30, "expected a register layout, found a float",
     "init 0.0"},
    {HEAD "%r = alloc-register f32[16], spatial(32)\n" TAIL, 4, 30,
     "the layout has shape [32], the tensor [16]", NULL},
    {HEAD "%r = alloc-register f32[0]\n" TAIL, 4, 24, "from 1 to", NULL},
    {HEAD "%r = alloc-register f23[32]\n" TAIL, 4, 21, "'f23' is not defined", "did you mean 'f32'?"},
    {HEAD "%r = alloc-register f32[32]\n%s = reduce sun, %r, 0\n" TAIL, 5, 13,
     "expected a reduction (sum max)", "did you mean 'sum'?"},
    {HEAD "%s = alloc-shared f32[4, 4]\ncopy-async %s[0, 0], a\n" TAIL, 5, 23, "expected ', tile [...]'",
     "has an index"},
    {HEAD "%s = alloc-shared f32[4, 4]\ncopy-async %s, a, warps [2]\n" TAIL, 5, 1,
     "warps has 1 entries, expected 2", NULL},
    {HEAD "%s = alloc-shared f32[4, 4]\ncopy-async %s, a, warps [2, 1]\n" TAIL, 5, 1,
     "cut for 2 warps, expected the kernel's 1", NULL},
    {HEAD "%s = alloc-shared f32[4, 4]\ncopy-async %s, a, warps [3, 1]\n" TAIL, 5, 1,
     "the tile's extent 4 in dimension 0 is no multiple of 3 warps", NULL},
    {HEAD "%s = alloc-shared f32[4, 4]\ncopy-async %s, a, warps [0, 1]\n" TAIL, 5, 25, "from 1 to", NULL},
    {HEAD "%s = alloc-shared f32[4, 4]\ncopy-async %s, a, warps [m, 1]\n" TAIL, 5, 25,
     "the warps list is made of static integers", NULL},
    {HEAD "sync-warp 3\n" TAIL, 4, 11, "expected the end of the statement, found '3'", NULL},
    {HEAD "sync 3\n" TAIL, 4, 6, "expected the end of the statement, found '3'", NULL},
    {HEAD "wait-group m\n" TAIL, 4, 12, "must be known when the program is assembled", NULL},
    {HEAD "wait-group -1\n" TAIL, 4, 12, "'pending' is from 0", NULL},
    {HEAD "for i = 0 to 3\nend\n" TAIL, 4, 5, "expected the loop variable", "for %i"},
    {HEAD "for %i = 0, 3\nend\n" TAIL, 4, 11, "expected 'to'", NULL},
    {HEAD "for %i = 0 to 2.5\nend\n" TAIL, 4, 15, "counts with integers", NULL},
    {HEAD "if m\n" TAIL, 4, 1, "'if' without 'end'", NULL},
    {HEAD "end\n" TAIL, 4, 1, "'end' without 'for', 'while', 'if' or 'role'", ".end"},
    {HEAD "else\n" TAIL, 4, 1, "'else' without 'if'", NULL},
    {HEAD "if m\nelse\nelse\nend\n" TAIL, 6, 1, "'else' after 'else'", NULL},
    {HEAD "break\n" TAIL, 4, 1, "'break' outside of a loop", NULL},
    {HEAD "if x\nend\n" TAIL, 4, 4, "a float is not a condition", "x != 0.0"},
    {HEAD "%r = alloc-register f16[32]\n%i = %r % 2\n" TAIL, 5, 9,
     "'%' of tensors came with version 7 of the language", "write '.vasm 7'"},
};

START_TEST(test_mistakes) {
    tvm_ir_program *program;
    tvm_diags diags = {0};
    const char *text = mistakes[_i].text;
    ck_assert_int_ne(tvm_assemble_text(text, strlen(text), "test.vasm", NULL, &program, &diags), TVM_OK);
    ck_assert_ptr_null(program);
    ck_assert_uint_ge(diags.count, 1);
    const tvm_diag *diag = &diags.items[0];
    ck_assert_msg(strstr(diag->message, mistakes[_i].message) != NULL, "'%s' not in '%s' of\n%s",
                  mistakes[_i].message, diag->message, text);
    ck_assert_str_eq(diag->file, "test.vasm");
    ck_assert_msg(diag->line == mistakes[_i].line && diag->column == mistakes[_i].column,
                  "at %" PRIu32 ":%" PRIu32 ": %s", diag->line, diag->column, text);
    if (mistakes[_i].hint) {
        ck_assert_msg(diag->hint && strstr(diag->hint, mistakes[_i].hint), "hint '%s' of\n%s",
                      diag->hint ? diag->hint : "", text);
    } else {
        ck_assert_msg(!diag->hint, "hint '%s' of\n%s", diag->hint, text);
    }
    ck_assert_ptr_nonnull(diag->source);
    tvm_diags_free(&diags);
}
END_TEST

/* A row goes when its word comes into the language, and names instructions that are there. */
START_TEST(test_foreign_words_are_foreign) {
    for (const tvm_foreign *row = tvm_foreign_words; row->word; row++) {
        size_t length = strlen(row->word);
        tvm_dtype type;
        ck_assert_msg(tvm_op_by_name(row->word, length) == TVM_OP_COUNT, "%s is an instruction", row->word);
        ck_assert_msg(!tvm_asm_is_directive(row->word, length), "%s is a directive", row->word);
        ck_assert_msg(!tvm_dtype_parse(row->word, length, &type), "%s is a type", row->word);
        ck_assert_ptr_eq(tvm_foreign_hint(row->word, length), row->hint);
        if (!row->uses) continue;
        ck_assert_msg(tvm_op_by_name(row->uses, strlen(row->uses)) != TVM_OP_COUNT, "%s: there is no %s",
                      row->word, row->uses);
        ck_assert_msg(strstr(row->hint, row->uses) != NULL, "the hint for %s does not name %s", row->word,
                      row->uses);
    }
    ck_assert_ptr_null(tvm_foreign_hint("sqr", 3));
}
END_TEST

START_TEST(test_files_that_begin_otherwise) {
    tvm_ir_program *program = assemble("\xEF\xBB\xBF.vasm 1\n.kernel f()\n.warps 1\n.end\n");
    tvm_ir_program_free(program);
    static const struct {
        const char *text;
        size_t length;
        const char *message, *hint;
        uint32_t line, column;
    } files[] = {
        {"\xEF\xBB\xBF.vasm 9\n", 11, "version 9", NULL, 1, 7},
        {"\x89VBC\r\n\x1a\n\0\0", 10, "this is bytecode, not text", "tvm-dis", 1, 1},
    };
    for (unsigned i = 0; i < sizeof files / sizeof *files; i++) {
        tvm_diags diags = {0};
        ck_assert_int_eq(
            tvm_assemble_text(files[i].text, files[i].length, "test.vasm", NULL, &program, &diags),
            TVM_SYNTAX);
        ck_assert_uint_eq(diags.count, 1);
        ck_assert_ptr_nonnull(strstr(diags.items[0].message, files[i].message));
        ck_assert_uint_eq(diags.items[0].line, files[i].line);
        ck_assert_uint_eq(diags.items[0].column, files[i].column);
        if (files[i].hint) ck_assert_ptr_nonnull(strstr(diags.items[0].hint, files[i].hint));
        tvm_diags_free(&diags);
    }
}
END_TEST

START_TEST(test_names_that_are_too_long) {
    char name[TVM_MAX_NAME + 2], text[1024];
    memset(name, 'x', sizeof name);
    name[TVM_MAX_NAME + 1] = '\0';
    static const char *const heads[] = {".vasm 1\n.kernel ", HEAD "%", HEAD ".const "};
    static const char *const tails[] = {"()\n.warps 1\n.end\n", " = m\n" TAIL, " = 1\n" TAIL};
    for (unsigned i = 0; i < 3; i++) {
        tvm_ir_program *program;
        tvm_diags diags = {0};
        snprintf(text, sizeof text, "%s%s%s", heads[i], name, tails[i]);
        ck_assert_int_ne(tvm_assemble_text(text, strlen(text), "test.vasm", NULL, &program, &diags), TVM_OK);
        ck_assert_uint_eq(diags.count, 1);
        ck_assert_uint_gt(diags.items[0].column, 0);
        ck_assert_msg(strstr(diags.items[0].message, "a name has at most 255 letters, this one 256") != NULL,
                      "%s", diags.items[0].message);
        tvm_diags_free(&diags);
    }
}
END_TEST

START_TEST(test_several_errors_without_cascades) {
    const char *text = HEAD "%p = frob %q\n" /* one error; %p is not complained about below */
                            "%s = %p + 1\n"
                            "%t = add %p, %s\n"
                            "%c = alloc-register f32[32]\n"
                            "%d = add %c, %missing\n"
                            "%e = mul %d, %missing\n"
                            ".const Z = nothing\n"
                            ".const Y = Z + 1\n"
                            "wait-group Y\n"
                            "%f = neg %c,\n"
                            ".const V = nothing + nothing\n"
                            ".const nothing = 3\n"
                            ".end\n";
    tvm_ir_program *program;
    tvm_diags diags = {0};
    ck_assert_int_ne(tvm_assemble_text(text, strlen(text), "test.vasm", NULL, &program, &diags), TVM_OK);
    const uint32_t lines[] = {4, 8, 10, 13};
    ck_assert_uint_eq(diags.count, 4);
    for (unsigned i = 0; i < 4; i++) ck_assert_uint_eq(diags.items[i].line, lines[i]);
    tvm_diags_free(&diags);
}
END_TEST

/* An unclosed bracket takes no statement along that defines something; what is read again, in each turn of a
 * .for, is complained about once. */
START_TEST(test_one_error_a_mistake) {
    static const char *const texts[] = {
        HEAD "%i = (m + 1\n%j = 2\nfor %k = 0 to %j\n%l2 = %k + %j + %i\nend\n" TAIL,
        ".vasm 1\n.kernel f(\n m: i32,\n n: i32\n.warps 1\n.grid n\n%i = m + n\n.end\n",
        ".vasm 2\n.for i = 0 to 3\n.if i == 5\n.esle\n.endif\n.endfor\n",
        HEAD
        "%h = alloc-register f16[32]\n%h = alloc-register f32[32]\n%s = add %h, %h\n%s = mul %s, %h\n" TAIL,
        ".vasm 1\n.kernel f(a: global f32[64])\n%x = load-global a, spatial(32)\n%y = load-global a, auto(64)\n.end\n",
        ".vasm 1\n.kernel f(a: global f32[64])\n.warps 99\n%x = load-global a, spatial(32)\n%y = neg %x\n.end\n",
        HEAD ".if WHAT\n%i = 1\n.const A = 2\n.else\n%i = 2\n.const A = 3\n.endif\n%j = %i + A\n" TAIL,
        HEAD ".for i = 0 to N\n%v${i} = i\n.endfor\n%j = %v0 + %v1\n" TAIL,
        ".vasm 1\n.include \"missing.inc\"\n.kernel f()\n.warps WARPS\n%j = N + 1\n.end\n",
        ".vasm 1\n.const A 3\n.kernel f()\n.warps A\n%x = alloc-register f32[32], spatial(32)\n.end\n",
        ".vasm 1\n.layout L spatial(32)\n.kernel f()\n.warps 1\n%x = alloc-register f32[32], L\n.end\n",
        ".vasm 1\n.for i = 0 to 3\n.kernel f${i}()\n.warps 1\nfrob\n.end\n.endfor\n",
    };
    for (unsigned i = 0; i < sizeof texts / sizeof *texts; i++) {
        tvm_ir_program *program;
        tvm_diags diags = {0};
        ck_assert_int_ne(tvm_assemble_text(texts[i], strlen(texts[i]), "test.vasm", NULL, &program, &diags),
                         TVM_OK);
        ck_assert_msg(diags.count == 1, "%zu errors, the second '%s':\n%s", diags.count,
                      diags.items[1].message, texts[i]);
        tvm_diags_free(&diags);
    }
}
END_TEST

/* The promise of version 1: what it took, it goes on taking. */
START_TEST(test_version_1_is_as_lax_as_it_was) {
    tvm_ir_program *program =
        assemble(".vasm 1\n.kernel f(n: i32)\n.warps 1\n.if 0\n.esle\n.endif\n%i = %n\n.end\n");
    ck_assert_uint_eq(program->kernels[0].grid[0], TVM_NONE);
    tvm_ir_program_free(program);
}
END_TEST

START_TEST(test_errors_are_limited) {
    char text[4096] = HEAD;
    for (int i = 0; i < 40; i++) strcat(text, "bad-one\n");
    strcat(text, TAIL);
    tvm_ir_program *program;
    tvm_diags diags = {0};
    ck_assert_int_ne(tvm_assemble_text(text, strlen(text), "test.vasm", NULL, &program, &diags), TVM_OK);
    ck_assert_uint_eq(diags.count, 20);
    tvm_diags_free(&diags);
}
END_TEST

START_TEST(test_wrong_defines) {
    static const char *const given[] = {"B=1", "A", "A=1 +", "A=u3", "3=4"};
    static const char *const messages[] = {"no .const of that name", "NAME=VALUE", "expected an expression",
                                           "gives a type where an integer is needed", "NAME=VALUE"};
    const char *text = ".vasm 1\n.const A = 1\n";
    for (unsigned i = 0; i < 5; i++) {
        tvm_assembler_options options = {.defines = &given[i], .define_count = 1};
        tvm_ir_program *program;
        tvm_diags diags = {0};
        ck_assert_int_ne(tvm_assemble_text(text, strlen(text), "test.vasm", &options, &program, &diags),
                         TVM_OK);
        ck_assert_uint_ge(diags.count, 1);
        ck_assert_msg(strstr(diags.items[0].message, messages[i]) != NULL, "%s", diags.items[0].message);
        tvm_diags_free(&diags);
    }
}
END_TEST

/* Rules that only the verifier knows come back with the line's text. */
START_TEST(test_verifier_errors_show_the_line) {
    const char *text = HEAD "if m\n  %late = 1\nend\n%i = %late\n" TAIL;
    tvm_ir_program *program;
    tvm_diags diags = {0};
    ck_assert_int_eq(tvm_assemble_text(text, strlen(text), "test.vasm", NULL, &program, &diags), TVM_INVALID);
    ck_assert_uint_eq(diags.items[0].line, 7);
    ck_assert_str_eq(diags.items[0].source, "%i = %late");
    tvm_diags_free(&diags);
}
END_TEST

/* ---- text that means harm ---- */

static void must_fail(const char *text, size_t length, const char *message) {
    tvm_ir_program *program;
    tvm_diags diags = {0};
    ck_assert_int_ne(tvm_assemble_text(text, length, "test.vasm", NULL, &program, &diags), TVM_OK);
    ck_assert_uint_ge(diags.count, 1);
    ck_assert_msg(strstr(diags.items[0].message, message) != NULL, "%s", diags.items[0].message);
    tvm_diags_free(&diags);
}

static void must_fail_repeated(const char *before, const char *piece, size_t count, const char *message) {
    size_t head = strlen(before), size = strlen(piece);
    char *text = malloc(head + size * count + 1);
    ck_assert_ptr_nonnull(text);
    memcpy(text, before, head);
    for (size_t i = 0; i < count; i++) memcpy(text + head + i * size, piece, size);
    must_fail(text, head + size * count, message);
    free(text);
}

START_TEST(test_limits) {
    must_fail_repeated(".vasm 1\n.const A = ", "(", 100000, "nested deeper than");
    must_fail_repeated(".vasm 1\n.const A = ", "-", 100000, "nested deeper than");
    must_fail_repeated(".vasm 1\n.const A = ", "[", 100000, "nested deeper than");
    must_fail_repeated(".vasm 1\n.const A = ", "1?", 100000, "nested deeper than");
    must_fail_repeated(".vasm 1\n", ".if 1\n", 1000, "nested deeper than");
    must_fail_repeated(HEAD, "if m\n", 10000, "nested deeper than");
    must_fail_repeated(HEAD "%i = m", " + m", 100000, "too large");
    must_fail_repeated(".vasm 1\n.const A = [", "1,", 100000, "more than 65536 items");
    must_fail_repeated(".vasm 1\n.kernel f(", "a,", 1000, "expected ':'");
    const char *forever = ".vasm 1\n.for i = 0 to 1 << 60\n.endfor\n";
    must_fail(forever, strlen(forever), "more than 1000000 statements");
    const char *nested = ".vasm 1\n.for i = 0 to 9999\n.for j = 0 to 9999\n.const A = i\n.endfor\n.endfor\n";
    must_fail(nested, strlen(nested), "more than 1000000 statements");
}
END_TEST

START_TEST(test_any_bytes) {
    static const char pieces[] = "%.,:()[]=+-*/<>&|^~!?\n\"\\ ${}am3\t\x01\x80\xff;#";
    uint64_t state = 88172645463325252u;
    for (int round = 0; round < 3000; round++) {
        char text[256] = HEAD;
        size_t length = strlen(text);
        while (length < 160 + (size_t)(round % 90)) {
            state ^= state << 13, state ^= state >> 7, state ^= state << 17;
            text[length++] = pieces[state % (sizeof pieces)];
        }
        tvm_ir_program *program;
        tvm_diags diags = {0};
        tvm_status status = tvm_assemble_text(text, length, "test.vasm", NULL, &program, &diags);
        ck_assert((status == TVM_OK) == (program != NULL));
        ck_assert((status == TVM_OK) == (diags.count == 0));
        tvm_ir_program_free(program);
        tvm_diags_free(&diags);
    }
}
END_TEST

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

static Suite *make_suite(void) {
    Suite *suite = suite_create("assembler_messages");
    TCase *errors = tcase_create("errors");
    tcase_add_loop_test(errors, test_mistakes, 0, COUNT(mistakes));
    tcase_add_test(errors, test_several_errors_without_cascades);
    tcase_add_test(errors, test_one_error_a_mistake);
    tcase_add_test(errors, test_foreign_words_are_foreign);
    tcase_add_test(errors, test_files_that_begin_otherwise);
    tcase_add_test(errors, test_names_that_are_too_long);
    tcase_add_test(errors, test_version_1_is_as_lax_as_it_was);
    tcase_add_test(errors, test_errors_are_limited);
    tcase_add_test(errors, test_wrong_defines);
    tcase_add_test(errors, test_verifier_errors_show_the_line);
    tcase_add_test(errors, test_limits);
    tcase_add_test(errors, test_any_bytes);
    suite_add_tcase(suite, errors);
    return suite;
}

int main(void) {
    return run_suite(make_suite());
}
