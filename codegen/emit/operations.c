#include "operations.h"

#include "functions_f64.h"

/* In all forms that compute in a type of their own the same instruction. */
#define INTEGERS(text) [FORM_WORD] = (text), [FORM_LONG] = (text)
#define SINGLES(text)  [FORM_F32] = (text), [FORM_F64] = (text)
#define PAIRS(text)    [FORM_F16X2] = (text), [FORM_BF16X2] = (text)

/* ---- arithmetic ---- */

/* bf16 has packed add, sub and mul from sm_90 on. Before, an fma with a constant pair is exactly them: x * 1
 * + y, y * -1 + x and x * y + -0. */
static const operation operation_ADD = {
    .exact = {INTEGERS("add.$t %result, %x, %y;"), SINGLES("add.rn.$t %result, %x, %y;"),
              [FORM_F16X2] = "add.rn.$t %result, %x, %y;", [FORM_BF16X2_90] = "add.rn.$t %result, %x, %y;",
              [FORM_BF16X2] = "mov.b32 %r, 0x3f803f80; fma.rn.$t %result, %x, %r, %y;"}};
static const operation operation_SUB = {
    .exact = {INTEGERS("sub.$t %result, %x, %y;"), SINGLES("sub.rn.$t %result, %x, %y;"),
              [FORM_F16X2] = "sub.rn.$t %result, %x, %y;", [FORM_BF16X2_90] = "sub.rn.$t %result, %x, %y;",
              [FORM_BF16X2] = "mov.b32 %r, 0xbf80bf80; fma.rn.$t %result, %y, %r, %x;"}};
static const operation operation_MUL = {
    .exact = {INTEGERS("mul.lo.$t %result, %x, %y;"), SINGLES("mul.rn.$t %result, %x, %y;"),
              [FORM_F16X2] = "mul.rn.$t %result, %x, %y;", [FORM_BF16X2_90] = "mul.rn.$t %result, %x, %y;",
              [FORM_BF16X2] = "mov.b32 %r, 0x80008000; fma.rn.$t %result, %x, %y, %r;"}};
/* Integer division by zero gives all ones, and leaves the dividend as remainder. */
static const operation operation_DIV = {
    .exact = {INTEGERS("div.$t %e, %x, %y; setp.eq.$b %p, %y, 0; selp.$b %result, -1, %e, %p;"),
              SINGLES("div.rn.$t %result, %x, %y;")},
    .fast = {[FORM_F32] = "div.approx.ftz.f32 %result, %x, %y;"},
    .not_packed = "no packed division"};
static const operation operation_MOD = {
    .exact = {INTEGERS("rem.$t %e, %x, %y; setp.eq.$b %p, %y, 0; selp.$b %result, %x, %e, %p;"),
              [FORM_F32] = tvm_mod_f32, [FORM_F64] = tvm_mod_f64},
    .not_packed = "no packed remainder"};
static const operation operation_MULHI = {
    .exact = {[FORM_WORD] =
                  "mul.wide.$t %q, %x, %y; shr.u64 %q, %q, $top; shr.u64 %q, %q, 1; cvt.u32.u64 %result, %q;",
              [FORM_LONG] = "mul.hi.$t %result, %x, %y;"}};
static const operation operation_MIN = {.exact = {INTEGERS("min.$t %result, %x, %y;"),
                                                  SINGLES("min.$t %result, %x, %y;"),
                                                  PAIRS("min.$t %result, %x, %y;")},
                                        .least = 3};
static const operation operation_MAX = {.exact = {INTEGERS("max.$t %result, %x, %y;"),
                                                  SINGLES("max.$t %result, %x, %y;"),
                                                  PAIRS("max.$t %result, %x, %y;")}};
#define CLIP "max.$t %e, %x, %y; min.$t %result, %e, %z;"
static const operation operation_CLIP = {.exact = {INTEGERS(CLIP), SINGLES(CLIP), PAIRS(CLIP)}, .least = 4};
static const operation operation_FMA = {.exact = {INTEGERS("mad.lo.$t %result, %x, %y, %z;"),
                                                  SINGLES("fma.rn.$t %result, %x, %y, %z;"),
                                                  PAIRS("fma.rn.$t %result, %x, %y, %z;")}};
/* Of words not by neg: see emit_negated in expr_emit.c. */
static const operation operation_NEG = {.exact = {[FORM_WORD] = "not.b32 %e, %x; add.$t %result, %e, 1;",
                                                  [FORM_LONG] = "neg.$t %result, %x;",
                                                  SINGLES("neg.$t %result, %x;"),
                                                  PAIRS("neg.$t %result, %x;")}};
static const operation operation_ABS = {
    .exact = {INTEGERS("abs.$t %result, %x;"), SINGLES("abs.$t %result, %x;"), PAIRS("abs.$t %result, %x;")}};

#define NO_PACKED_ROUNDING .not_packed = "no packed rounding to whole numbers"
static const operation operation_FLOOR = {.exact = {SINGLES("cvt.rmi.$t.$t %result, %x;")},
                                          NO_PACKED_ROUNDING};
static const operation operation_CEIL = {.exact = {SINGLES("cvt.rpi.$t.$t %result, %x;")},
                                         NO_PACKED_ROUNDING};
static const operation operation_ROUND = {.exact = {SINGLES("cvt.rni.$t.$t %result, %x;")},
                                          NO_PACKED_ROUNDING};
static const operation operation_TRUNC = {.exact = {SINGLES("cvt.rzi.$t.$t %result, %x;")},
                                          NO_PACKED_ROUNDING};

/* ---- bits ---- */

/* Of a 64-bit shift the count is a word. Counts are modulo the width, where PTX has zeros from the width on.
 */
#define SHIFT_WORD(op) "and.b32 %r, %y, $top; " op " %result, %x, %r;"
#define SHIFT_LONG(op) "cvt.u32.u64 %r, %y; and.b32 %r, %r, $top; " op " %result, %x, %r;"
#define BITWISE(op)                                                                                          \
    INTEGERS(op ".$b %result, %x, %y;"), [FORM_WHOLE] = op ".b32 %result, %x, %y;",                          \
                                         [FORM_WHOLE_BOOL] = op ".b32 %result, %x, %y;"

static const operation operation_AND = {.exact = {BITWISE("and")}};
static const operation operation_OR = {.exact = {BITWISE("or")}};
static const operation operation_XOR = {.exact = {BITWISE("xor")}};
static const operation operation_NOT = {
    .exact = {INTEGERS("not.$b %result, %x;"), [FORM_BOOL] = "xor.b32 %result, %x, 1;",
              [FORM_WHOLE] = "not.b32 %result, %x;", [FORM_WHOLE_BOOL] = "xor.b32 %result, %x, 0x01010101;"}};
static const operation operation_SHL = {
    .exact = {[FORM_WORD] = SHIFT_WORD("shl.b32"), [FORM_LONG] = SHIFT_LONG("shl.b64")}};
static const operation operation_SHR = {
    .exact = {[FORM_WORD] = SHIFT_WORD("shr.$t"), [FORM_LONG] = SHIFT_LONG("shr.$t")}};
static const operation operation_POPCOUNT = {
    .exact = {[FORM_WORD] = "and.b32 %r, %x, $mask; popc.b32 %result, %r;",
              [FORM_LONG] = "popc.b64 %r, %x; cvt.u64.u32 %result, %r;"}};

/* ---- roots ---- */

#define NO_PACKED_FUNCTION .not_packed = "no packed form of full precision"

static const operation operation_SQRT = {.exact = {SINGLES("sqrt.rn.$t %result, %x;")},
                                         .fast = {[FORM_F32] = "sqrt.approx.ftz.f32 %result, %x;"},
                                         NO_PACKED_FUNCTION};
static const operation operation_RSQRT = {
    .exact = {[FORM_F32] = "rsqrt.approx.f32 %result, %x;",
              [FORM_F64] = "sqrt.rn.f64 %g, %x; rcp.rn.f64 %result, %g;"},
    .fast = {[FORM_F32] = "rsqrt.approx.ftz.f32 %result, %x;"},
    NO_PACKED_FUNCTION};

/* ---- exponentials ---- */

/* e to the x in f32: x = j ln 2 + f with |f| <= ln 2 / 2 (ln 2 in two parts, so that f is nearly exact), 2^(f
 * log2 e) from the hardware, and 2^j applied as two powers of two, which also reaches the subnormals. Outside
 * [-105, 89] the result is zero or infinity as at the ends. */
#define EXPONENTIAL                                                                                          \
    "mul.rn.f32 %fs, %fin, #1.44269504;"                                                                     \
    "cvt.rni.f32.f32 %fj, %fs;"                                                                              \
    "neg.f32 %fm, %fj;"                                                                                      \
    "fma.rn.f32 %ff, %fm, 0f3F317200, %fin;" /* ln 2, the upper bits */                                      \
    "fma.rn.f32 %ff, %fm, 0f35BFBE8E, %ff;"  /* and the rest */                                              \
    "mul.rn.f32 %ff, %ff, #1.44269504;"                                                                      \
    "ex2.approx.f32 %fp, %ff;"                                                                               \
    "cvt.rni.s32.f32 %rn, %fj;"
#define SCALE                                                                                                \
    "shr.s32 %rhalf, %rn, 1;"                                                                                \
    "sub.s32 %rrest, %rn, %rhalf;"                                                                           \
    "shl.b32 %rhalf, %rhalf, 23;"                                                                            \
    "add.s32 %rhalf, %rhalf, 0x3f800000;"                                                                    \
    "mul.rn.f32 %fp, %fp, %rhalf;"                                                                           \
    "shl.b32 %rrest, %rrest, 23;"                                                                            \
    "add.s32 %rrest, %rrest, 0x3f800000;"                                                                    \
    "mul.rn.f32 %fp, %fp, %rrest;"
static const char exp_f32[] = "max.f32 %flow, %x, #-105;"
                              "min.f32 %fin, %flow, #89;" EXPONENTIAL SCALE "setp.nan.f32 %p, %x, %x;"
                              "selp.f32 %result, 0f7FFFFFFF, %fp, %p;";
/* x log2 e is up to 2^7, its error 2^-17: nothing beside the half unit of a result of 11 digits. */
static const char exp_half[] = "mul.rn.f32 %f, %x, #1.44269504; ex2.approx.f32 %result, %f;";

static const operation operation_EXP = {
    .exact = {[FORM_F32] = exp_f32, [FORM_F64] = tvm_exp_f64, [FORM_F16] = exp_half, [FORM_BF16] = exp_half},
    .fast = {[FORM_F32] = "mul.rn.f32 %f, %x, #1.44269504; ex2.approx.ftz.f32 %result, %f;"},
    .not_packed = "no packed exponential of full precision"};
static const operation operation_EXP2 = {
    .exact = {[FORM_F32] = "ex2.approx.f32 %result, %x;", [FORM_F64] = tvm_exp2_f64},
    .fast = {[FORM_F32] = "ex2.approx.ftz.f32 %result, %x;",
             [FORM_F16X2] = "ex2.approx.f16x2 %result, %x;",
             [FORM_BF16X2_90] = "ex2.approx.ftz.bf16x2 %result, %x;"},
    NO_PACKED_FUNCTION};

/* tanh x: below 0.5625 x + x^3 T(x^2), T a minimax polynomial (relative error 2^-29); above 1 - 2 / (e^(2x) +
 * 1), where the errors of the hardware's functions are halved at least. */
static const char tanh_f32[] = "abs.f32 %fa, %x;"
                               "mul.rn.f32 %fz, %fa, %fa;"
                               "fma.rn.f32 %ft, %fz, #-0.00617977604, #0.0210074317;"
                               "fma.rn.f32 %ft, %ft, %fz, #-0.0538374223;"
                               "fma.rn.f32 %ft, %ft, %fz, #0.133324519;"
                               "fma.rn.f32 %ft, %ft, %fz, #-0.333333135;"
                               "mul.rn.f32 %fz, %fz, %fa;"
                               "fma.rn.f32 %ft, %ft, %fz, %fa;"
                               "mul.rn.f32 %fe, %fa, #2.88539008;"
                               "ex2.approx.ftz.f32 %fe, %fe;"
                               "add.rn.f32 %fe, %fe, #1;"
                               "rcp.approx.ftz.f32 %fe, %fe;"
                               "fma.rn.f32 %fe, %fe, #-2, #1;"
                               "setp.lt.f32 %p, %fa, #0.5625;"
                               "selp.f32 %fe, %ft, %fe, %p;"
                               "copysign.f32 %result, %x, %fe;";
static const operation operation_TANH = {.exact = {[FORM_F32] = tanh_f32, [FORM_F64] = tvm_tanh_f64},
                                         .fast = {[FORM_F32] = "tanh.approx.f32 %result, %x;",
                                                  [FORM_F16X2] = "tanh.approx.f16x2 %result, %x;",
                                                  [FORM_BF16X2_90] = "tanh.approx.bf16x2 %result, %x;"},
                                         NO_PACKED_FUNCTION};

/* erf x: below 0.92 x + x E(x^2), relative error 2^-31; above 1 - exp(-x - x Q(x)), where x + x Q(x) = -log(1
 * - erf x) on [0.92, 4], relative error of the whole 2^-30; beyond 4, where Q is large enough, 1. Both are
 * minimax polynomials. */
static const char erf_f32[] = "mul.rn.f32 %fz, %x, %x;"
                              "fma.rn.f32 %fs, %fz, #8.3167557e-05, #-0.000813000777;"
                              "fma.rn.f32 %fs, %fs, %fz, #0.00519990595;"
                              "fma.rn.f32 %fs, %fs, %fz, #-0.0268589407;"
                              "fma.rn.f32 %fs, %fs, %fz, #0.112836875;"
                              "fma.rn.f32 %fs, %fs, %fz, #-0.376126319;"
                              "fma.rn.f32 %fs, %fs, %fz, #0.128379166;"
                              "fma.rn.f32 %fs, %fs, %x, %x;"
                              "abs.f32 %fa, %x;"
                              "fma.rn.f32 %fq, %fa, #1.1232547e-05, #-0.00032281602;"
                              "fma.rn.f32 %fq, %fq, %fa, #0.0036425076;"
                              "fma.rn.f32 %fq, %fq, %fa, #-0.0237621628;"
                              "fma.rn.f32 %fq, %fq, %fa, #0.106236994;"
                              "fma.rn.f32 %fq, %fq, %fa, #0.635151267;"
                              "fma.rn.f32 %fq, %fq, %fa, #0.128648505;"
                              "fma.rn.f32 %fq, %fq, %fa, %fa;"
                              "mul.rn.f32 %fq, %fq, #-1.44269504;"
                              "ex2.approx.ftz.f32 %fq, %fq;"
                              "sub.rn.f32 %fq, #1, %fq;"
                              "copysign.f32 %fq, %x, %fq;"
                              "setp.lt.f32 %p, %fa, #0.927734375;"
                              "selp.f32 %result, %fs, %fq, %p;";
static const operation operation_ERF = {.exact = {[FORM_F32] = erf_f32, [FORM_F64] = tvm_erf_f64},
                                        NO_PACKED_FUNCTION};

/* ---- logarithms ---- */

/* Of x in %fx: x = 2^e m with m in [sqrt 0.5, sqrt 2), subnormals multiplied by 2^23 before; f = m - 1,
 * exactly; and with a minimax polynomial q(f) log m = f + f^2 q (relative error 2^-30). Gives %fe, %ff, %fff
 * (f^2) and %fq; %pgood, where x is positive and finite; %fbad, the result of others. */
#define LOG_PARTS                                                                                            \
    "mov.b32 %rx, %fx;"                                                                                      \
    "sub.u32 %rgood, %rx, 1;"                                                                                \
    "setp.lt.u32 %pgood, %rgood, 0x7f7fffff;"                                                                \
    "lg2.approx.f32 %fbad, %fx;"                                                                             \
    "setp.lt.f32 %psub, %fx, 0f00800000;"                                                                    \
    "mul.rn.f32 %fup, %fx, #8388608;"                                                                        \
    "selp.f32 %fup, %fup, %fx, %psub;"                                                                       \
    "selp.f32 %fe, #-23, #0, %psub;"                                                                         \
    "mov.b32 %rm, %fup;"                                                                                     \
    "sub.s32 %re, %rm, 0x3f3504f3;"                                                                          \
    "and.b32 %re, %re, 0xff800000;"                                                                          \
    "sub.s32 %rm, %rm, %re;"                                                                                 \
    "cvt.rn.f32.s32 %fi, %re;"                                                                               \
    "fma.rn.f32 %fe, %fi, #1.1920929e-07, %fe;"                                                              \
    "add.rn.f32 %ff, %rm, #-1;"
#define LOG_SERIES                                                                                           \
    "mul.rn.f32 %fff, %ff, %ff;"                                                                             \
    "fma.rn.f32 %fq, %ff, #0.0674658716, #-0.116758123;"                                                     \
    "fma.rn.f32 %fq, %fq, %ff, #0.118882716;"                                                                \
    "fma.rn.f32 %fq, %fq, %ff, #-0.124055631;"                                                               \
    "fma.rn.f32 %fq, %fq, %ff, #0.142195329;"                                                                \
    "fma.rn.f32 %fq, %fq, %ff, #-0.166679963;"                                                               \
    "fma.rn.f32 %fq, %fq, %ff, #0.200021192;"                                                                \
    "fma.rn.f32 %fq, %fq, %ff, #-0.250000089;"                                                               \
    "fma.rn.f32 %fq, %fq, %ff, #0.333333135;"                                                                \
    "fma.rn.f32 %fq, %fq, %ff, #-0.5;"

static const char log_f32[] = "mov.f32 %fx, %x;" LOG_PARTS LOG_SERIES "fma.rn.f32 %fq, %fff, %fq, %ff;"
                              "fma.rn.f32 %fq, %fe, #0.693147182, %fq;"
                              "selp.f32 %result, %fq, %fbad, %pgood;";
/* log2 e in two parts, so that the error of the first one's product is not seen. */
static const char log2_f32[] = "mov.f32 %fx, %x;" LOG_PARTS LOG_SERIES "mul.rn.f32 %fq, %fff, %fq;"
                               "mul.rn.f32 %fq, %fq, #1.44269502;"
                               "fma.rn.f32 %fq, %ff, #1.925963033e-08, %fq;"
                               "fma.rn.f32 %fq, %ff, #1.44269502, %fq;"
                               "add.rn.f32 %fq, %fq, %fe;"
                               "selp.f32 %result, %fq, %fbad, %pgood;";
static const operation operation_LOG = {
    .exact = {[FORM_F32] = log_f32, [FORM_F64] = tvm_log_f64},
    .fast = {[FORM_F32] = "lg2.approx.ftz.f32 %f, %x; mul.rn.f32 %result, %f, #0.693147182;"},
    NO_PACKED_FUNCTION};
static const operation operation_LOG2 = {.exact = {[FORM_F32] = log2_f32, [FORM_F64] = tvm_log2_f64},
                                         .fast = {[FORM_F32] = "lg2.approx.ftz.f32 %result, %x;"},
                                         NO_PACKED_FUNCTION};

/* |x|^y is 2^(y log2 |x|), with the logarithm in two f32 (%fh + %fl), to 2^-33 of itself: with m as above, s
 * = 2 (m - 1) / (m + 1) in two f32, log m = s + s^3 (1/12 + s^2 R(s^2)), of which s and the product with 1/12
 * are computed in two f32. The special cases are those of C's pow: a zero or infinite x goes through the
 * hardware's logarithm; x to the 0 and 1 to the y are 1, and so is -1 to an infinite y; a negative x has the
 * sign of an odd y, and to a y that is no whole number NaN. */
static const char pow_f32[] = "abs.f32 %fx, %x;" LOG_PARTS "add.rn.f32 %fr, %ff, #2;"
                              "rcp.approx.ftz.f32 %fr, %fr;"
                              "add.rn.f32 %fs, %ff, %ff;"
                              "mul.rn.f32 %fs, %fs, %fr;"
                              "neg.f32 %fn, %fs;"
                              "sub.rn.f32 %fd, %ff, %fs;"
                              "add.rn.f32 %fd, %fd, %fd;"
                              "fma.rn.f32 %fd, %fn, %ff, %fd;"
                              "mul.rn.f32 %fsl, %fr, %fd;" /* s = fs + fsl */
                              "mul.rn.f32 %fz, %fs, %fs;"
                              "neg.f32 %fn, %fz;"
                              "fma.rn.f32 %fzl, %fs, %fs, %fn;"
                              "add.rn.f32 %fd, %fs, %fs;"
                              "fma.rn.f32 %fzl, %fd, %fsl, %fzl;" /* s^2 = fz + fzl */
                              "fma.rn.f32 %fc, %fz, #0.000457394723, #0.00223024469;"
                              "fma.rn.f32 %fc, %fc, %fz, #0.0125000477;"
                              "fma.rn.f32 %fc, %fc, %fz, #-2.48352694e-09;" /* what 1/12 lacks in f32 */
                              "mul.rn.f32 %fu, %fz, #0.0833333358;"
                              "neg.f32 %fn, %fu;"
                              "fma.rn.f32 %ful, %fz, #0.0833333358, %fn;"
                              "fma.rn.f32 %ful, %fz, %fc, %ful;"
                              "fma.rn.f32 %ful, %fzl, #0.0833333358, %ful;" /* s^2 (1/12 + ...) = fu + ful */
                              "mul.rn.f32 %ft, %fu, %fs;"
                              "neg.f32 %fn, %ft;"
                              "fma.rn.f32 %ftl, %fu, %fs, %fn;"
                              "fma.rn.f32 %ftl, %ful, %fs, %ftl;"
                              "fma.rn.f32 %ftl, %fu, %fsl, %ftl;"
                              "add.rn.f32 %fh, %fs, %ft;"
                              "sub.rn.f32 %fl, %fs, %fh;"
                              "add.rn.f32 %fl, %fl, %ft;"
                              "add.rn.f32 %ftl, %ftl, %fsl;"
                              "add.rn.f32 %fl, %fl, %ftl;" /* log m = fh + fl */
                              "mul.rn.f32 %fb, %fh, #1.44269502;"
                              "neg.f32 %fn, %fb;"
                              "fma.rn.f32 %fbl, %fh, #1.44269502, %fn;"
                              "fma.rn.f32 %fbl, %fh, #1.925963033e-08, %fbl;"
                              "fma.rn.f32 %fbl, %fl, #1.44269502, %fbl;"
                              "add.rn.f32 %fh, %fe, %fb;"
                              "sub.rn.f32 %fl, %fe, %fh;"
                              "add.rn.f32 %fl, %fl, %fb;"
                              "add.rn.f32 %fl, %fl, %fbl;"
                              "add.rn.f32 %fb, %fh, %fl;"
                              "sub.rn.f32 %fh, %fh, %fb;"
                              "add.rn.f32 %fl, %fl, %fh;"
                              "selp.f32 %fh, %fb, %fbad, %pgood;"
                              "mul.rn.f32 %fw, %fh, %y;"
                              "neg.f32 %fn, %fw;"
                              "fma.rn.f32 %fwl, %fh, %y, %fn;"
                              "fma.rn.f32 %fwl, %fl, %y, %fwl;"
                              "abs.f32 %fd, %fw;"
                              "setp.lt.f32 %pin, %fd, #256;"
                              "selp.f32 %fwl, %fwl, #0, %pin;"
                              "ex2.approx.f32 %fw, %fw;"
                              "fma.rn.f32 %fwl, %fwl, #0.693147182, #1;"
                              "mul.rn.f32 %fw, %fw, %fwl;"
                              "cvt.rzi.f32.f32 %fd, %y;"
                              "setp.neu.f32 %pfrac, %fd, %y;"
                              "mul.rn.f32 %fd, %y, #0.5;"
                              "cvt.rzi.f32.f32 %fn, %fd;"
                              "setp.neu.f32 %podd, %fn, %fd;"
                              "copysign.f32 %fn, %x, %fw;"
                              "selp.f32 %fn, %fn, %fw, %podd;"
                              "selp.f32 %fw, %fw, %fn, %pfrac;"
                              "selp.f32 %fn, 0f7FFFFFFF, %fw, %pfrac;"
                              "setp.lt.f32 %pneg, %x, #0;"
                              "setp.gt.and.f32 %pneg, %x, 0fFF800000, %pneg;"
                              "selp.f32 %fw, %fn, %fw, %pneg;"
                              "setp.eq.f32 %pone, %y, #0;"
                              "setp.eq.or.f32 %pone, %x, #1, %pone;"
                              "selp.f32 %fw, #1, %fw, %pone;"
                              "abs.f32 %fn, %y;"
                              "setp.eq.f32 %pone, %fx, #1;"
                              "setp.eq.and.f32 %pone, %fn, 0f7F800000, %pone;"
                              "selp.f32 %result, #1, %fw, %pone;";
static const operation operation_POW = {.exact = {[FORM_F32] = pow_f32, [FORM_F64] = tvm_pow_f64},
                                        NO_PACKED_FUNCTION};

/* ---- sine and cosine ---- */

/* x = q pi/2 + r with |r| <= pi/4: r by three fma, pi/2 in three parts, which is right where q has 17 bits at
 * most. */
#define REDUCE                                                                                               \
    "fma.rn.f32 %fj, %x, #0.636619747, #12582912;" /* 1.5 * 2^23: its low bits count ones */                 \
    "mov.b32 %rq, %fj;"                                                                                      \
    "add.rn.f32 %fj, %fj, #-12582912;"                                                                       \
    "fma.rn.f32 %fr, %fj, 0fBFC90FDA, %x;"                                                                   \
    "fma.rn.f32 %fr, %fj, 0fB3A22169, %fr;"                                                                  \
    "fma.rn.f32 %fr, %fj, 0f26F72CED, %fr;"
/* Larger x, of any exponent (Payne and Hanek, "Radian reduction for trigonometric functions", SIGNUM 1983): x
 * is the integer m times 2^(e-150); of 2/pi those 96 bits matter that m multiplies to the two bits of the
 * quadrant and 62 bits behind the point. Bits that only give multiples of four are before them. Words of
 * 2/pi, after one of zeros, are chosen by bits e - 120 and on. Only a warp that has such an x comes here. */
#define TAKE(r, w0, w1, w2, w3, w4)                                                                          \
    "selp.b32 " r ", " w1 ", " w0 ", %p1; selp.b32 " r ", " w2 ", " r ", %p2;"                               \
    "selp.b32 " r ", " w3 ", " r ", %p3; selp.b32 " r ", " w4 ", " r ", %p4;"
#define REDUCE_LARGE                                                                                         \
    "abs.f32 %fa, %x;"                                                                                       \
    "setp.gt.f32 %plarge, %fa, #105615;"                                                                     \
    "vote.sync.any.pred %pany, %plarge, 0xffffffff;"                                                         \
    "@!%pany bra $1;"                                                                                        \
    "mov.b32 %rx, %x;"                                                                                       \
    "bfe.u32 %rs, %rx, 23, 8;"                                                                               \
    "sub.u32 %rs, %rs, 120;"                                                                                 \
    "and.b32 %rm, %rx, 0x7fffff;"                                                                            \
    "or.b32 %rm, %rm, 0x800000;"                                                                             \
    "setp.ge.u32 %p1, %rs, 32; setp.ge.u32 %p2, %rs, 64;"                                                    \
    "setp.ge.u32 %p3, %rs, 96; setp.ge.u32 %p4, %rs, 128;" TAKE("%ra", "0", "0xa2f9836e", "0x4e441529",      \
                                                                "0xfc2757d1", "0xf534ddc0")                  \
        TAKE("%rb", "0xa2f9836e", "0x4e441529", "0xfc2757d1", "0xf534ddc0", "0xdb629599")                    \
            TAKE("%rc", "0x4e441529", "0xfc2757d1", "0xf534ddc0", "0xdb629599", "0x3c439041")                \
                TAKE("%rd", "0xfc2757d1", "0xf534ddc0", "0xdb629599", "0x3c439041",                          \
                     "0xfe5163ab") "shf.l.wrap.b32 %ra, %rb, %ra, %rs;"                                      \
                                   "shf.l.wrap.b32 %rb, %rc, %rb, %rs;"                                      \
                                   "shf.l.wrap.b32 %rc, %rd, %rc, %rs;"                                      \
                                   "mul.wide.u32 %qp, %rm, %rc;"                                             \
                                   "shr.u64 %qp, %qp, 32;"                                                   \
                                   "mul.wide.u32 %qm, %rm, %rb;"                                             \
                                   "add.u64 %qp, %qp, %qm;"                                                  \
                                   "mul.lo.u32 %ra, %rm, %ra;"                                               \
                                   "cvt.u64.u32 %qm, %ra;"                                                   \
                                   "shl.b64 %qm, %qm, 32;"                                                   \
                                   "add.u64 %qp, %qp, %qm;" /* the quadrant, the point, 62 bits */           \
                                   "shl.b64 %qm, %qp, 2;"                                                    \
                                   "cvt.rn.f64.s64 %g, %qm;"                                                 \
                                   "mul.rn.f64 %g, %g, 0d3BF921FB54442D18;" /* pi/2 * 2^-64 */               \
                                   "cvt.rn.f32.f64 %fn, %g;"                                                 \
                                   "shr.u64 %qp, %qp, 61;"                                                   \
                                   "add.u64 %qp, %qp, 1;"                                                    \
                                   "shr.u64 %qp, %qp, 1;"                                                    \
                                   "cvt.u32.u64 %rn, %qp;"                                                   \
                                   "fma.rn.f32 %fn, %x, #0, %fn;" /* NaN where x is infinite */              \
                                   "setp.lt.f32 %pneg, %x, #0;"                                              \
                                   "neg.f32 %fm, %fn; selp.f32 %fn, %fm, %fn, %pneg;"                        \
                                   "neg.s32 %rm, %rn; selp.b32 %rn, %rm, %rn, %pneg;"                        \
                                   "selp.f32 %fr, %fn, %fr, %plarge;"                                        \
                                   "selp.b32 %rq, %rn, %rq, %plarge;"                                        \
                                   "$1:;"
/* sin r and cos r by minimax polynomials (relative errors 2^-28 and 2^-33); one of them, and the sign, by the
 * quadrant. */
#define SINE_AND_COSINE                                                                                      \
    "mul.rn.f32 %fz, %fr, %fr;"                                                                              \
    "fma.rn.f32 %fs, %fz, #-0.000195120228, #0.00833213702;"                                                 \
    "fma.rn.f32 %fs, %fs, %fz, #-0.166666538;"                                                               \
    "mul.rn.f32 %fc, %fr, %fz;"                                                                              \
    "fma.rn.f32 %fs, %fs, %fc, %fr;"                                                                         \
    "fma.rn.f32 %fc, %fz, #2.4429386e-05, #-0.00138872839;"                                                  \
    "fma.rn.f32 %fc, %fc, %fz, #0.0416666456;"                                                               \
    "fma.rn.f32 %fc, %fc, %fz, #-0.5;"                                                                       \
    "fma.rn.f32 %fc, %fc, %fz, #1;"                                                                          \
    "and.b32 %ro, %rq, 1;"                                                                                   \
    "setp.ne.s32 %po, %ro, 0;"
#define QUADRANT                                                                                             \
    SINE_AND_COSINE                                                                                          \
    "selp.f32 %fs, %fc, %fs, %po;"                                                                           \
    "and.b32 %ro, %rq, 2;"                                                                                   \
    "setp.ne.s32 %po, %ro, 0;"                                                                               \
    "neg.f32 %fc, %fs;"                                                                                      \
    "selp.f32 %fs, %fc, %fs, %po;"
#define NEXT_QUADRANT "add.s32 %rq, %rq, 1;"
/* The sum above is +0 of -0. */
#define SIN QUADRANT "setp.eq.f32 %p, %x, #0; selp.f32 %result, %x, %fs, %p;"
#define COS NEXT_QUADRANT QUADRANT "mov.f32 %result, %fs;"

static const char sin_f32[] = REDUCE REDUCE_LARGE SIN;
static const char cos_f32[] = REDUCE REDUCE_LARGE COS;
static const operation operation_SIN = {
    .exact = {[FORM_F32] = sin_f32, [FORM_F64] = tvm_sin_f64, [FORM_F16] = REDUCE SIN},
    .fast = {[FORM_F32] = "sin.approx.ftz.f32 %result, %x;"},
    NO_PACKED_FUNCTION};
static const operation operation_COS = {
    .exact = {[FORM_F32] = cos_f32, [FORM_F64] = tvm_cos_f64, [FORM_F16] = REDUCE COS},
    .fast = {[FORM_F32] = "cos.approx.ftz.f32 %result, %x;"},
    NO_PACKED_FUNCTION};

/* sin / cos, or -cos / sin. */
#define TAN                                                                                                  \
    SINE_AND_COSINE                                                                                          \
    "neg.f32 %fn, %fc;"                                                                                      \
    "selp.f32 %fn, %fn, %fs, %po;"                                                                           \
    "selp.f32 %fc, %fs, %fc, %po;"                                                                           \
    "div.rn.f32 %fs, %fn, %fc;"                                                                              \
    "setp.eq.f32 %p, %x, #0; selp.f32 %result, %x, %fs, %p;"
static const char tan_f32[] = REDUCE REDUCE_LARGE TAN;
static const operation operation_TAN = {
    .exact = {[FORM_F32] = tan_f32, [FORM_F64] = tvm_tan_f64, [FORM_F16] = REDUCE TAN}, NO_PACKED_FUNCTION};

/* As tvm_atan2_f64; relative error of the polynomial 2^-31. */
static const char atan2_f32[] = "abs.f32 %fa, %x;"
                                "abs.f32 %fb, %y;"
                                "min.f32 %fn, %fa, %fb;"
                                "max.f32 %fm, %fa, %fb;"
                                "div.rn.f32 %ft, %fn, %fm;"
                                "setp.eq.f32 %p, %fm, #0;"
                                "selp.f32 %ft, #0, %ft, %p;"
                                "setp.eq.f32 %p, %fn, 0f7F800000;"
                                "selp.f32 %ft, #1, %ft, %p;"
                                "mul.rn.f32 %fz, %ft, %ft;"
                                "fma.rn.f32 %fp, %fz, #-0.000985402148, #0.00645374833;"
                                "fma.rn.f32 %fp, %fp, %fz, #-0.0197872482;"
                                "fma.rn.f32 %fp, %fp, %fz, #0.038949661;"
                                "fma.rn.f32 %fp, %fp, %fz, #-0.0580521449;"
                                "fma.rn.f32 %fp, %fp, %fz, #0.0743721202;"
                                "fma.rn.f32 %fp, %fp, %fz, #-0.0904206634;"
                                "fma.rn.f32 %fp, %fp, %fz, #0.111055337;"
                                "fma.rn.f32 %fp, %fp, %fz, #-0.142853826;"
                                "fma.rn.f32 %fp, %fp, %fz, #0.199999928;"
                                "fma.rn.f32 %fp, %fp, %fz, #-0.333333343;"
                                "mul.rn.f32 %fp, %fp, %fz;"
                                "fma.rn.f32 %ft, %fp, %ft, %ft;"
                                "setp.gt.f32 %pswap, %fa, %fb;"
                                "mov.b32 %rhigh, %y;"
                                "setp.lt.s32 %pneg, %rhigh, 0;"
                                "selp.f32 %fh, 0f40490FDB, #0, %pneg;" /* pi, and what it lacks */
                                "selp.f32 %fl, 0fB3BBBD2E, #0, %pneg;"
                                "selp.f32 %fh, 0f3FC90FDB, %fh, %pswap;"
                                "selp.f32 %fl, 0fB33BBD2E, %fl, %pswap;"
                                "xor.pred %p, %pswap, %pneg;"
                                "neg.f32 %fn, %ft;"
                                "selp.f32 %ft, %fn, %ft, %p;"
                                "add.rn.f32 %ft, %ft, %fl;"
                                "add.rn.f32 %ft, %fh, %ft;"
                                "copysign.f32 %ft, %x, %ft;"
                                "setp.nan.f32 %p, %x, %y;"
                                "selp.f32 %result, 0f7FFFFFFF, %ft, %p;";
static const operation operation_ATAN2 = {.exact = {[FORM_F32] = atan2_f32, [FORM_F64] = tvm_atan2_f64},
                                          NO_PACKED_FUNCTION};

/* ---- hyperbolic sine and cosine ---- */

/* As tvm_sinh_f64 and tvm_cosh_f64; relative error of the polynomial 2^-32. A NaN's result is a constant, not
 * x: ptxas 13.0 was seen to write a selection between x and a sum into the register of x, which a later turn
 * of a loop reads. */
#define HALVES                                                                                               \
    "abs.f32 %fa, %x;"                                                                                       \
    "min.f32 %fin, %fa, #91;" EXPONENTIAL "sub.s32 %rn, %rn, 1;" SCALE "rcp.rn.f32 %fr, %fp;"
#define NAN_OF_X "setp.nan.f32 %p, %x, %x; selp.f32 %result, 0f7FFFFFFF, %fp, %p;"
static const char sinh_f32[] = HALVES "fma.rn.f32 %fp, %fr, #-0.25, %fp;"
                                      "mul.rn.f32 %fz, %fa, %fa;"
                                      "fma.rn.f32 %ft, %fz, #2.8063057e-06, #0.000198380978;"
                                      "fma.rn.f32 %ft, %ft, %fz, #0.00833333936;"
                                      "fma.rn.f32 %ft, %ft, %fz, #0.166666672;"
                                      "mul.rn.f32 %fz, %fz, %fa;"
                                      "fma.rn.f32 %ft, %ft, %fz, %fa;"
                                      "setp.lt.f32 %p, %fa, #1;"
                                      "selp.f32 %fp, %ft, %fp, %p;"
                                      "copysign.f32 %fp, %x, %fp;" NAN_OF_X;
static const char cosh_f32[] = HALVES "fma.rn.f32 %fp, %fr, #0.25, %fp;" NAN_OF_X;
static const operation operation_SINH = {.exact = {[FORM_F32] = sinh_f32, [FORM_F64] = tvm_sinh_f64},
                                         NO_PACKED_FUNCTION};
static const operation operation_COSH = {.exact = {[FORM_F32] = cosh_f32, [FORM_F64] = tvm_cosh_f64},
                                         NO_PACKED_FUNCTION};

/* ---- the rows ---- */

/* An element-wise row without an operation does not compile. */
const operation *tvm_operation_of(unsigned op) {
    switch (op) {
#define TVM_OP_ELEMENT(number, id, ...)                                                                      \
    case number:                                                                                             \
        return &operation_##id;
#include "opcodes.def"
    default:
        return NULL;
    }
}

bool tvm_operation_is_fast(const emitter *e, const tvm_insn *insn, unsigned arity) {
    return insn->count > arity && tvm_operands(e->k->kernel, insn)[arity].kind == TVM_OPERAND_CONST;
}

const char *tvm_operation_single(const operation *o, bool fast, tvm_dtype type) {
    operation_form base = FORM_WORD, own;
    if (type.kind == TVM_KIND_FLOAT)
        base = type.bits == 64 ? FORM_F64 : FORM_F32;
    else if (type.bits == 64)
        base = FORM_LONG;
    own = base;
    if (type.kind == TVM_KIND_BOOL) own = FORM_BOOL;
    if (tvm_is_half(type)) own = type.exponent == 5 ? FORM_F16 : FORM_BF16;
    if (fast && o->fast[own]) return o->fast[own];
    if (fast && o->fast[base]) return o->fast[base];
    return o->exact[own] ? o->exact[own] : o->exact[base];
}

const char *tvm_operation_packed(const operation *o, bool fast, tvm_dtype type, tvm_target target) {
    const char *const *forms = fast ? o->fast : o->exact;
    if (!tvm_is_half(type)) return NULL;
    if (type.exponent == 5) return forms[FORM_F16X2];
    bool newer = tvm_target_has(target, TVM_HAS_BF16_ARITHMETIC) && forms[FORM_BF16X2_90];
    return forms[newer ? FORM_BF16X2_90 : FORM_BF16X2];
}

const char *tvm_operation_whole(const operation *o, tvm_dtype type) {
    if (type.bits >= 32) return NULL;
    return o->exact[type.kind == TVM_KIND_BOOL ? FORM_WHOLE_BOOL : FORM_WHOLE];
}
