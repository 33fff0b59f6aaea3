/* What the assembler writes out: macros, scopes, tables, launch-time values, arrays of variables, nested
 * instructions. Each text is compared with one that has none of them. */
#include <inttypes.h>
#include <stdio.h>

#include "assembler_kit.h"
#include "suite_kit.h"

static char *printed(const char *text) {
    tvm_ir_program *program = assemble(text);
    tvm_diags diags = {0};
    char *plain = NULL;
    ck_assert_int_eq(tvm_disassemble(program, &plain, &diags), TVM_OK);
    tvm_ir_program_free(program);
    return plain;
}

static const struct {
    const char *text;
    const char *plain;
} same[] = {
    /* macros: values, variables of the caller, names of their own, defaults, names of arguments */
    {".vasm 2\n.macro FILL(%x, N = 32, value = N)\n"
     "%t = alloc-register f32[N], spatial(32), init value\n%x = add %t, 1.0\n.endmacro\n"
     ".kernel f()\n.warps 1\n.grid 1\n%t = 1\nFILL(%a, 32, 2.0)\nFILL(%a, value = 3.0)\nFILL(%b, N = 32)\n.end\n",
     ".vasm 2\n.kernel f()\n.warps 1\n.grid 1\n%t = 1\n"
     "%t_1 = alloc-register f32[32], spatial(32), init 2.0\n%a = add %t_1, 1.0\n"
     "%t_2 = alloc-register f32[32], spatial(32), init 3.0\n%a = add %t_2, 1.0\n"
     "%t_3 = alloc-register f32[32], spatial(32), init 32\n%b = add %t_3, 1.0\n.end\n"},
    /* a macro reads its caller's variables, and assigns its own */
    {".vasm 2\n.macro NEXT()\n%i = %i + 1\n.endmacro\n.kernel f()\n.warps 1\n.grid 1\n%i = 1\nNEXT()\n%j = %i\n.end\n",
     ".vasm 2\n.kernel f()\n.warps 1\n.grid 1\n%i = 1\n%i_1 = %i + 1\n%j = %i\n.end\n"},
    /* a macro calls another one, and passes on what it was given; tensors and run-time scalars are arguments,
       too */
    {".vasm 2\n.macro INNER(%x, t, i)\n%x = load-global t[i], spatial(32)\n.endmacro\n"
     ".macro OUTER(%x, t, i)\nINNER(%x, t, i * 32)\nINNER(%x, t, i = i + 1)\n.endmacro\n"
     ".kernel f(n: i32, a: global f32[n])\n.warps 1\n.grid 1\nOUTER(%y, a, block.x)\nstore-global a, %y\n.end\n",
     ".vasm 2\n.kernel f(n: i32, a: global f32[n])\n.warps 1\n.grid 1\n%y = load-global a[block.x * 32], spatial(32)\n"
     "%y = load-global a[block.x + 1], spatial(32)\nstore-global a, %y\n.end\n"},
    /* a macro that writes kernels */
    {".vasm 2\n.macro K(n)\n.kernel f${n}(i: i32)\n.warps n\n.grid i\n%x = n\n.end\n.endmacro\nK(1)\nK(2)\n",
     ".vasm 2\n.kernel f1(i: i32)\n.warps 1\n.grid i\n%x = 1\n.end\n.kernel f2(i: i32)\n.warps 2\n"
     ".grid i\n%x = 2\n.end\n"},
    /* scopes: what is assigned outside is meant inside, what is not ends with the scope */
    {".vasm 2\n.kernel f()\n.warps 1\n.grid 1\n%i = 1\n.scope\n.const A = 2\n%i = A\n%t = 2\n.endscope\n"
     ".scope\n%t = 1.5\n.endscope\n.end\n",
     ".vasm 2\n.kernel f()\n.warps 1\n.grid 1\n%i = 1\n%i = 2\n%t = 2\n%t_1 = 1.5\n.end\n"},
    /* tables: columns in .for, members, rows under a condition, .case of a row that is left out */
    {".vasm 2\n.const WIDE = false\n.table V(W, SHAPE)\nsmall: 1, [4, 8]\n"
     "large: 2, [64, 64] if WIDE\n\nlast: 3,\n [16]\n"
     ".endtable\n.for v in V\n.kernel f_${v.name}(n: i32)\n.warps W\n.grid n / SHAPE[0], V.large.W\n.end\n.endfor\n"
     ".entry f\n.case f_small if n < 4 && V.small.kept\n.case f_large if V.large.kept && n < 8\n.case f_last\n.end\n",
     ".vasm 2\n.kernel f_small(n: i32)\n.warps 1\n.grid n / 4, 2\n.end\n"
     ".kernel f_last(n: i32)\n.warps 3\n.grid n / 16, 2\n.end\n.entry f\n.case f_small if n < 4\n.case f_last\n.end\n"},
    /* names of the rows that are kept, and lists behind lists */
    {".vasm 7\n.const WIDE = false\n.table V(W)\n_8x8: 1\nlarge: 2 if WIDE\nlast: 3\n.endtable\n"
     ".const ALL = [\"any\"] + names(V) + [\"none\"]\n"
     ".for i = 0 to len(ALL)\n.kernel f${ALL[i]}(n: i32)\n.warps 1\n.grid n\n.end\n.endfor\n",
     ".vasm 7\n.kernel fany(n: i32)\n.warps 1\n.grid n\n.end\n.kernel f_8x8(n: i32)\n.warps 1\n.grid n\n.end\n"
     ".kernel flast(n: i32)\n.warps 1\n.grid n\n.end\n.kernel fnone(n: i32)\n.warps 1\n.grid n\n.end\n"},
    {".vasm 2\n.for t in [f16, f32]\n.kernel f_${t}(a: global t[4])\n.warps 1\n.grid 1\n.end\n.endfor\n",
     ".vasm 2\n.kernel f_f16(a: global f16[4])\n.warps 1\n.grid 1\n.end\n"
     ".kernel f_f32(a: global f32[4])\n.warps 1\n.grid 1\n.end\n"},
    /* launch-time values: of all kernels, of an entry, of one kernel */
    {".vasm 2\n.let tiles = cdiv(n, B), even = tiles % 2 == 0\n.const B = 32\n"
     ".kernel f(n: i32, a: global f32[tiles, B])\n.let half = tiles / 2\n.warps 1\n.grid tiles, half\n"
     ".assume even\n%i = half + block.x\n%g = alloc-global f32[half]\n.end\n"
     ".entry e\n.case f if tiles < 4\n.case f if even\n.end\n",
     ".vasm 2\n.kernel f(n: i32, a: global f32[cdiv(n, 32), 32])\n.warps 1\n.grid cdiv(n, 32), cdiv(n, 32) / 2\n"
     ".assume cdiv(n, 32) % 2 == 0\n%i = cdiv(n, 32) / 2 + block.x\n%g = alloc-global f32[cdiv(n, 32) / 2]\n.end\n"
     ".entry e\n.case f if cdiv(n, 32) < 4\n.case f if cdiv(n, 32) % 2 == 0\n.end\n"},
    /* parameters and operands under a condition */
    {".vasm 2\n.const Z = false\n.assert !Z, \"no zeros\"\n"
     ".kernel f(n: i32, z: global f16[n, n] if Z, b: global f16[n, n] if !Z)\n.warps 1\n.grid 1\n"
     "%s = alloc-shared f16[8, 8], row_major if Z\n"
     "copy-async %s, b, tile [8, 8], evict first if Z, warps [1, 1] if !Z\n"
     "%r = alloc-register f32[32], spatial(32), init 1.0 if Z\n.end\n",
     ".vasm 2\n.kernel f(n: i32, b: global f16[n, n])\n.warps 1\n.grid 1\n%s = alloc-shared f16[8, 8]\n"
     "copy-async %s, b, tile [8, 8], warps [1, 1]\n%r = alloc-register f32[32], spatial(32)\n.end\n"},
    /* signatures: constants are those of the signature's place, parameters may be left out; tvm-dis prints
       lists */
    {".vasm 7\n.const D = 64, Z = false\n.signature S(n: i32, z: i32 if Z, a: global f32[n, D])\n"
     ".for D in [1, 2]\n.kernel f${D}: S\n.warps D\n.grid n\n.end\n.endfor\n",
     ".vasm 2\n.kernel f1(n: i32, a: global f32[n, 64])\n.warps 1\n.grid n\n.end\n"
     ".kernel f2(n: i32, a: global f32[n, 64])\n.warps 2\n.grid n\n.end\n"},
    /* a signature in a list: its parameters stand there, with the constants of its own place; one that is
       left out need not be */
    {".vasm 7\n.const D = 4\n.signature MORE(x: f32, b: global f16[n, D])\n"
     ".signature S(n: i32, : MORE, : LESS if D == 5, c: global f16[n] if D == 4)\n"
     ".kernel f: S\n.warps 1\n.grid n\n.end\n.kernel g(n: i32, : MORE if D == 4)\n.warps 1\n.grid n\n.end\n",
     ".vasm 2\n.kernel f(n: i32, x: f32, b: global f16[n, 4], c: global f16[n])\n.warps 1\n.grid n\n.end\n"
     ".kernel g(n: i32, x: f32, b: global f16[n, 4])\n.warps 1\n.grid n\n.end\n"},
    /* records: a macro's parameter passes all fields on, arrays of them as well; scopes have records of their
       own */
    {".vasm 7\n.macro NEXT(%at, by)\n%at.step = %at.step + by\n%at.acc[1] = %at.acc[1] + 1\n.endmacro\n"
     ".macro TWICE(%to)\nNEXT(%to, 1)\nNEXT(%to, 2)\n%to.m0 = %to.step * 2\n%own.x = 3\n.endmacro\n"
     ".kernel f()\n.warps 1\n.grid 1\n%at.step = 0\n%at.acc[0 to 2] = 5\nTWICE(%at)\n"
     ".scope\n%own.x = 1\n%at.m0 = 4\n.endscope\nfor %at.i = 0 to %at.m0\n%y = %at.i + %at.acc[0]\nend\n.end\n",
     ".vasm 2\n.kernel f()\n.warps 1\n.grid 1\n%at_step = 0\n%at_acc_0 = 5\n%at_acc_1 = 5\n"
     "%at_step = %at_step + 1\n%at_acc_1 = %at_acc_1 + 1\n%at_step = %at_step + 2\n%at_acc_1 = %at_acc_1 + 1\n"
     "%at_m0 = %at_step * 2\n%own_x = 3\n%own_x_1 = 1\n%at_m0 = 4\n"
     "for %at_i = 0 to %at_m0\n%y = %at_i + %at_acc_0\nend\n.end\n"},
    /* arrays of variables */
    {".vasm 2\n.macro TWICE(%x, %one)\n.for i = 0 to 2\n%x[i, 0] = %x[i, 0] + %one\n.endfor\n%one = 2.0\n.endmacro\n"
     ".kernel f()\n.warps 1\n.grid 1\n%x[0, 0] = 1.0\n%x[1, 0] = 2.0\n%y[0 to 2] = %x[1, 0]\nTWICE(%x, %y[1])\n"
     "%r[1] = alloc-register f32[32], spatial(32)\n%r[1] = exp %r[1]\n.end\n",
     ".vasm 2\n.kernel f()\n.warps 1\n.grid 1\n%x_0_0 = 1.0\n%x_1_0 = 2.0\n%y_0 = %x_1_0\n%y_1 = %x_1_0\n"
     "%x_0_0 = %x_0_0 + %y_1\n%x_1_0 = %x_1_0 + %y_1\n%y_1 = 2.0\n"
     "%r_1 = alloc-register f32[32], spatial(32)\n%r_1 = exp %r_1\n.end\n"},
    /* the names of the text win: those that the assembler makes step aside */
    {".vasm 2\n.kernel f()\n.warps 1\n.grid 1\n%x_1 = 1\n%r = alloc-register f32[32], spatial(32)\n"
     "%x = exp(exp(%r))\n.end\n",
     ".vasm 2\n.kernel f()\n.warps 1\n.grid 1\n%x_1 = 1\n%r = alloc-register f32[32], spatial(32)\n%x_2 = exp %r\n"
     "%x = exp %x_2\n.end\n"},
    /* nested instructions, operators, functions of tensors; scalars stay scalars */
    {".vasm 2\n.kernel f(n: i32, a: global f16[n])\n.warps 1\n.grid 1\n"
     "%x = cast(load-global(a[n * 2], spatial(32), evict first), f32) * 2.0 + 1.0\n"
     "%y = max(%x - %x * %x, 0.0)\n%y = -%y / (%x + n)\n%m = max(n, 3) * 2\n"
     "store-global a, cast(where(compare(lt, %y, 0.0), %y, 1.0), f16)\n"
     "%s = reduce(sum, %x, 0)\n%z = fma %x + 1.0, %y, alloc-register(f32[32], spatial(32))\n%z = %x\n.end\n",
     ".vasm 2\n.kernel f(n: i32, a: global f16[n])\n.warps 1\n.grid 1\n"
     "%x_1 = load-global a[n * 2], spatial(32), evict first\n%x_2 = cast %x_1, f32\n%x_3 = mul %x_2, 2.0\n"
     "%x = add %x_3, 1.0\n%y_1 = mul %x, %x\n%y_2 = sub %x, %y_1\n%y = max %y_2, 0.0\n%y_3 = neg %y\n"
     "%y_4 = add %x, n\n%y = div %y_3, %y_4\n%m = max(n, 3) * 2\n%t_1 = compare lt, %y, 0.0\n"
     "%t_2 = where %t_1, %y, 1.0\n%t_3 = cast %t_2, f16\nstore-global a, %t_3\n%s = reduce sum, %x, 0\n"
     "%z_1 = add %x, 1.0\n%z_2 = alloc-register f32[32], spatial(32)\n%z = fma %z_1, %y, %z_2\n"
     "%z = view %x, f32, spatial(32)\n.end\n"},
};

START_TEST(test_same_as_plain) {
    char *text = printed(same[_i].text), *plain = printed(same[_i].plain);
    ck_assert_str_eq(text, plain);
    free(text);
    free(plain);
}
END_TEST

/* The line of an instruction is that of its statement; in a macro, of the macro's. */
START_TEST(test_lines) {
    tvm_ir_program *program =
        assemble(".vasm 2\n.macro M(%x)\n%x = neg(\n exp(%x))\n.endmacro\n.kernel f()\n.warps 1\n"
                 ".grid 1\n%x = alloc-register f32[32], spatial(32)\nM(%x)\n.end\n");
    const uint32_t lines[] = {9, 3, 3};
    for (uint32_t i = 0; i < 3; i++) ck_assert_uint_eq(insn_at(program, i)->line, lines[i]);
    tvm_ir_program_free(program);
}
END_TEST

#define KERNEL ".kernel f(n: i32)\n.warps 1\n.grid 1\n"

static const struct {
    const char *text;
    uint32_t line, column;
    const char *message; /* contained */
    const char *hint;    /* contained; NULL: there is none */
} mistakes[] = {
    {".macro M(a)\n.const B = a + c\n.endmacro\nM(1)\n", 3, 16, "'c' is not defined",
     "in M, called at test.vasm:5"},
    {".macro M(a)\n.endmacro\n.macro N()\nM()\n.endmacro\nN()\n", 5, 1, "'M' is called without 'a'",
     "in N, called at test.vasm:7"},
    {".macro M(a)\n.endmacro\nM(1, 2)\n", 4, 6, "'M' takes 1 argument", NULL},
    {".macro M(a)\n.endmacro\nM(1, a = 2)\n", 4, 6, "'a' is given twice", NULL},
    {".macro M(a)\n.endmacro\nM(b = 2)\n", 4, 3, "'M' has no parameter 'b'", NULL},
    {".macro M(%a)\n.endmacro\n" KERNEL "M(3)\n.end\n", 7, 3, "expected a variable for '%a', found '3'",
     NULL},
    {".macro M(a, a)\n.endmacro\n", 2, 13, "two parameters 'a'", NULL},
    {".macro M(a)\n", 2, 2, "'.macro' without '.endmacro'", NULL},
    {".endmacro\n", 2, 2, "'.endmacro' without '.macro'", NULL},
    {".macro M()\n.if 1\n.endmacro\nM()\n", 3, 2, "'.if' without '.endif'", "in M, called at"},
    {".macro M()\n.endif\n.endmacro\n.if 1\nM()\n.endif\n", 3, 2, "'.endif' without '.if'",
     "in M, called at"},
    {".macro M()\nM()\n.endmacro\nM()\n", 3, 1, "macros nested deeper than 64",
     "does the macro call itself?"},
    {".macro M()\n.kernel f()\n.warps 1\n.grid 1\n.endmacro\nM()\n", 3, 2, "'.kernel' without '.end'",
     "in M"},
    {".macro M(%x)\n%y = %x\n.endmacro\n" KERNEL "M(%a)\n.end\n", 3, 7, "'%x' is not defined",
     "in M, called at"},
    {".macro M()\n%y = 1\n.endmacro\n" KERNEL "M()\n%z = %y\n.end\n", 9, 7, "'%y' is not defined", NULL},
    {".macro M()\n.endmacro\n" KERNEL "%z = M()\n.end\n", 7, 6, "'M' is a macro", NULL},
    {".macro M()\nsync\n.endmacro\nM()\n", 3, 1, "expected a directive, found 'sync'",
     ".kernel and .end; in M"},
    {".vasm 6\n.signature S(n: i32)\n", 2, 2, "'.signature' needs '.vasm 7'", NULL},
    {".vasm 7\n.signature ROWS(n: i32)\n.kernel f: ROW\n.warps 1\n.grid 1\n.end\n", 3, 12,
     "there is no signature 'ROW'", "did you mean 'ROWS'?"},
    {".vasm 7\n.const S = 1\n.kernel f: S\n.warps 1\n.grid 1\n.end\n", 3, 12,
     "'S' is an integer, not a signature", NULL},
    {".vasm 7\n.signature S(n: i32)\n.kernel f: S(n: i32)\n.warps 1\n.grid 1\n.end\n", 3, 13, "not both",
     NULL},
    {".vasm 7\n.signature S(n: i32)\n.kernel f(n: i32): S\n.warps 1\n.grid 1\n.end\n", 3, 18, "not both",
     NULL},
    {".vasm 7\n.signature S(n: i32)\n.signature S(n: i32)\n", 3, 12, "'S' is already defined at", NULL},
    {".vasm 7\n.signature S(n: i32\n", 2, 14, "the list of parameters is not closed with ')'", NULL},
    {".vasm 7\n.signature S(a: global f32[m])\n.const m = 4\n.kernel f: S\n.warps 1\n.grid 1\n.end\n", 2, 28,
     "'m' is not defined", "used at test.vasm:4"},
    {".vasm 7\n.signature S(n: i32, : S)\n.kernel f: S\n.warps 1\n.grid 1\n.end\n", 2, 24,
     "there is no signature 'S'", "used at test.vasm:3"},
    {".vasm 7\n.signature S(n: i32)\n.kernel f(n: i32, : S)\n.warps 1\n.grid 1\n.end\n", 2, 14,
     "there are two parameters 'n'", "used at test.vasm:3"},
    {".vasm 7\n" KERNEL "%at.step = 1\n%x = %at.stpe\n.end\n", 6, 7, "'%at.stpe' is not defined",
     "did you mean '%at.step'?"},
    {".vasm 7\n" KERNEL "%at.step = 1\n%x = %at\n.end\n", 6, 7, "'%at' is not defined", "%name.field"},
    {".vasm 7\n" KERNEL "%at.step = 1\n%at = 2\n.end\n", 6, 2, "'%at' is a record", "%name.field"},
    {".vasm 7\n" KERNEL "%at = 1\n%at.step = 2\n.end\n", 6, 2, "not a record of them", "another name"},
    {".vasm 7\n.macro M(%at)\n%x = %at.tiel\n.endmacro\n" KERNEL "%p.tile = 1\nM(%p)\n.end\n", 3, 7,
     "'%at.tiel' is not defined", "did you mean '%at.tile'?"},
    {".vasm 6\n" KERNEL "%at.step = 1\n.end\n", 5, 4, "fields of variables need '.vasm 7'", NULL},
    {".scope\n", 2, 2, "'.scope' without '.endscope'", NULL},
    {".endscope\n", 2, 2, "'.endscope' without '.scope'", NULL},
    {KERNEL ".scope\n%x = 1\n.endscope\n%y = %x\n.end\n", 8, 7, "'%x' is not defined", NULL},
    {".table T(A, B)\na: 1\n.endtable\n", 3, 5, "expected ',' and the value of 'B'", NULL},
    {".table T(A)\na: 1\na: 2\n.endtable\n", 4, 1, "two rows 'a'", NULL},
    {".table T(A, A)\n.endtable\n", 2, 13, "two columns 'A'", NULL},
    {".table T(name)\n.endtable\n", 2, 10, "every table has a column 'name'", NULL},
    {".table T(A)\na: 1\n", 2, 2, "'.table' without '.endtable'", NULL},
    {".endtable\n", 2, 2, "'.endtable' without '.table'", NULL},
    {".const N = names([1])\n", 2, 12, "names takes a table, not a list", NULL},
    {".const N = [1] + 1\n", 2, 16, "'+' takes scalars, not a list", NULL},
    {".table T(AB)\nrow1: 1\n.endtable\n.const C = T.row2.AB\n", 5, 14, "'T' has no row 'row2'",
     "did you mean 'row1'?"},
    {".table T(AB)\nrow1: 1\n.endtable\n.const C = T.row1.AC\n", 5, 19, "'T' has no column 'AC'",
     "did you mean 'AB'?"},
    {".for i in 3\n.endfor\n", 2, 11, "'in' goes over a list or a table, not over an integer", NULL},
    {".table T(A)\nrow: 7\n.endtable\n.for t in T\n.const B = t.name + A\n.endfor\n", 6, 19,
     "takes scalars, not a string", "in .for with t = row"},
    {KERNEL ".end\n.entry e\n.case g if n > 2\n.end\n", 7, 7, "there is no kernel 'g' before this",
     "the kernels of an entry stand before it"},
    {KERNEL ".end\n.entry e\n.case f if n > 2\n.case g\n.end\n", 8, 7, "there is no kernel 'g' before this",
     "the kernels of an entry stand before it"},
    {".let t = m + 1\n" KERNEL "%x = t\n.end\n", 2, 10, "'m' is not defined", "used at test.vasm:6"},
    {".let t = t + 1\n" KERNEL "%x = t\n.end\n", 2, 10, "values of .let nested too deep", "depend on itself"},
    {KERNEL "%x = 1\n.let t = %x + 1\n.end\n", 6, 10, "a value of .let is made of constants", NULL},
    {".let t = f16\n" KERNEL "%x = t\n.end\n", 2, 10, "expected a scalar, found a type", ".const"},
    {".assert 1 == 2, \"one is not two\"\n", 2, 2, "one is not two", NULL},
    {".assert 1 == 2\n", 2, 2, "the assertion does not hold", NULL},
    {KERNEL ".assert n > 2\n.end\n", 5, 9, "must be known when the program is assembled", ".assume"},
    {".kernel f(n: i32, z: i32 if n)\n.warps 1\n.grid 1\n.end\n", 2, 29,
     "must be known when the program is assembled", NULL},
    {KERNEL "%x[0] = 1\n%y = %x\n.end\n", 6, 7, "'%x' is not defined", "it is an array"},
    {KERNEL "%x[0] = 1\n%y = %x[1]\n.end\n", 6, 7, "'%x[1]' is not defined", NULL},
    {KERNEL "%x[0] = 1\n%x = 2\n.end\n", 6, 2, "'%x' is an array of variables", "%name[index]"},
    {KERNEL "%x = 1\n%x[0] = 2\n.end\n", 6, 2, "'%x' is a variable, not an array", "another name"},
    {KERNEL "%x[n] = 1\n.end\n", 5, 3, "a static integer, not a run-time scalar", NULL},
    {KERNEL "%x[0 - 1] = 1\n.end\n", 5, 3, "is not negative", NULL},
    {KERNEL "%x[0 to 5000] = 1\n.end\n", 5, 3, "at most 4096 elements", NULL},
    {KERNEL "%r = alloc-register f32[32], spatial(32)\n%x = cast(%r)\n.end\n", 6, 13,
     "expected ',' and 'type' of cast", NULL},
    {KERNEL "%r = alloc-register f32[32], spatial(32)\n%x = exp(exp(n))\n.end\n", 6, 14,
     "expected a register tensor for 'x', found a scalar 'n'", "functions of scalars need '.vasm 7'"},
    {KERNEL "%r = alloc-register f32[32], spatial(32)\n%x = n + neg(%r, 2)\n.end\n", 6, 16, "expected ')'",
     NULL},
    {KERNEL "%r = alloc-register f32[32], spatial(32)\n%x = %r << 1\n.end\n", 6, 9,
     "'<<' of tensors came with version 3 of the language", "write '.vasm 3'"},
    {KERNEL "%r = alloc-register f32[32], spatial(32)\nif %r > 1.0\nend\n.end\n", 6, 7,
     "'>' of tensors came with version 7 of the language", "write '.vasm 7'"},
    {KERNEL "%s = alloc-shared f32[32]\n%x = %s + 1.0\n.end\n", 6, 9, "found a shared tensor", NULL},
    {".const A = cast(3, f32)\n", 2, 12, "instructions stand between .kernel and .end", NULL},
};

START_TEST(test_mistakes) {
    tvm_ir_program *program;
    tvm_diags diags = {0};
    char text[1024];
    bool says_version = strncmp(mistakes[_i].text, ".vasm ", 6) == 0;
    snprintf(text, sizeof text, "%s%s", says_version ? "" : ".vasm 2\n", mistakes[_i].text);
    ck_assert_int_ne(tvm_assemble_text(text, strlen(text), "test.vasm", NULL, &program, &diags), TVM_OK);
    ck_assert_ptr_null(program);
    ck_assert_uint_ge(diags.count, 1);
    const tvm_diag *diag = &diags.items[0];
    ck_assert_msg(strstr(diag->message, mistakes[_i].message) != NULL, "'%s' not in '%s' of\n%s",
                  mistakes[_i].message, diag->message, text);
    ck_assert_msg(diag->line == mistakes[_i].line && diag->column == mistakes[_i].column,
                  "at %" PRIu32 ":%" PRIu32 ": %s of\n%s", diag->line, diag->column, diag->message, text);
    if (mistakes[_i].hint) {
        ck_assert_msg(diag->hint && strstr(diag->hint, mistakes[_i].hint), "hint '%s' of\n%s",
                      diag->hint ? diag->hint : "", text);
    } else {
        ck_assert_msg(!diag->hint, "hint '%s' of\n%s", diag->hint, text);
    }
    tvm_diags_free(&diags);
}
END_TEST

/* Expansion ends. */
START_TEST(test_limits) {
    static const struct {
        const char *text, *message;
    } limits[] = {
        {".vasm 2\n.macro A(i)\nB(i)\nB(i)\n.endmacro\n.macro B(i)\nA(i)\nA(i)\n.endmacro\nA(1)\n",
         "nested deeper"},
        {".vasm 2\n.macro A()\n.for i = 0 to 1000000\n.endfor\n.endmacro\n.for i = 0 to 1000\nA()\n.endfor\n",
         "more than 1000000 statements"},
        {".vasm 2\n.kernel f(n: i32)\n.warps 1\n.grid 1\n.for i = 0 to 1000000\n.scope\n%x = 1\n"
         ".endscope\n.endfor\n.end\n",
         "at most 4096 variables"},
    };
    for (unsigned i = 0; i < sizeof limits / sizeof *limits; i++) {
        tvm_ir_program *program;
        tvm_diags diags = {0};
        const char *text = limits[i].text;
        ck_assert_int_ne(tvm_assemble_text(text, strlen(text), "test.vasm", NULL, &program, &diags), TVM_OK);
        ck_assert_msg(strstr(diags.items[0].message, limits[i].message) != NULL, "%s",
                      diags.items[0].message);
        tvm_diags_free(&diags);
    }
}
END_TEST

/* 2^30 readings of the first value are not made. */
START_TEST(test_let_ends) {
    char text[2048] = ".vasm 2\n.let v0 = n\n";
    for (int i = 1; i < 60; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), ".let v%d = v%d + v%d\n", i, i - 1, i - 1);
    strcat(text, KERNEL "%x = v59\n.end\n");
    tvm_ir_program *program;
    tvm_diags diags = {0};
    ck_assert_int_ne(tvm_assemble_text(text, strlen(text), "test.vasm", NULL, &program, &diags), TVM_OK);
    ck_assert_uint_ge(diags.count, 1);
    tvm_diags_free(&diags);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("language");
    TCase *tests = tcase_create("language");
    tcase_add_loop_test(tests, test_same_as_plain, 0, sizeof same / sizeof *same);
    tcase_add_loop_test(tests, test_mistakes, 0, sizeof mistakes / sizeof *mistakes);
    tcase_add_test(tests, test_lines);
    tcase_add_test(tests, test_limits);
    tcase_add_test(tests, test_let_ends);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
