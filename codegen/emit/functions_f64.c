#include "functions_f64.h"

/* Polynomials are minimax; a relative error is that of the function, not of the polynomial. */

/* ---- exponentials ---- */

/* e to %gin is 2^j %gp, %gj = j: as exp_f32 of operations.c, with 1 + f q(f) for e^f (relative error 2^-63).
 */
#define EXPONENTIAL                                                                                          \
    "mul.rn.f64 %gj, %gin, ##1.4426950408889634;"                                                            \
    "cvt.rni.f64.f64 %gj, %gj;"                                                                              \
    "neg.f64 %gm, %gj;"                                                                                      \
    "fma.rn.f64 %gf, %gm, ##0.6931471805599453, %gin;"                                                       \
    "fma.rn.f64 %gf, %gm, ##2.3190468138462996e-17, %gf;"                                                    \
    "fma.rn.f64 %gp, %gf, ##2.0925128039107444e-09, ##2.5110155033995165e-08;"                               \
    "fma.rn.f64 %gp, %gp, %gf, ##2.7557240188445836e-07;"                                                    \
    "fma.rn.f64 %gp, %gp, %gf, ##2.755724060049048e-06;"                                                     \
    "fma.rn.f64 %gp, %gp, %gf, ##2.4801587364178127e-05;"                                                    \
    "fma.rn.f64 %gp, %gp, %gf, ##0.0001984126989034506;"                                                     \
    "fma.rn.f64 %gp, %gp, %gf, ##0.00138888888888645;"                                                       \
    "fma.rn.f64 %gp, %gp, %gf, ##0.008333333333319488;"                                                      \
    "fma.rn.f64 %gp, %gp, %gf, ##0.041666666666666706;"                                                      \
    "fma.rn.f64 %gp, %gp, %gf, ##0.1666666666666668;"                                                        \
    "fma.rn.f64 %gp, %gp, %gf, ##0.5;"                                                                       \
    "fma.rn.f64 %gp, %gp, %gf, ##1;"                                                                         \
    "fma.rn.f64 %gp, %gp, %gf, ##1;"                                                                         \
    "cvt.rni.s32.f64 %rn, %gj;"
/* 2^f, |f| <= 1/2, the same way. */
#define POWER_OF_TWO                                                                                         \
    "fma.rn.f64 %gp, %gf, ##2.573783728096662e-11, ##4.455822270365521e-10;"                                 \
    "fma.rn.f64 %gp, %gp, %gf, ##7.054891451672409e-09;"                                                     \
    "fma.rn.f64 %gp, %gp, %gf, ##1.0178057063039321e-07;"                                                    \
    "fma.rn.f64 %gp, %gp, %gf, ##1.3215486823336039e-06;"                                                    \
    "fma.rn.f64 %gp, %gp, %gf, ##1.5252733841605173e-05;"                                                    \
    "fma.rn.f64 %gp, %gp, %gf, ##0.00015403530393354731;"                                                    \
    "fma.rn.f64 %gp, %gp, %gf, ##0.0013333558146406432;"                                                     \
    "fma.rn.f64 %gp, %gp, %gf, ##0.009618129107628487;"                                                      \
    "fma.rn.f64 %gp, %gp, %gf, ##0.055504108664821625;"                                                      \
    "fma.rn.f64 %gp, %gp, %gf, ##0.24022650695910072;"                                                       \
    "fma.rn.f64 %gp, %gp, %gf, ##0.6931471805599453;"                                                        \
    "fma.rn.f64 %gp, %gp, %gf, ##1;"                                                                         \
    "cvt.rni.s32.f64 %rn, %gj;"
/* %gp = 2^%rn %gp, as two powers of two, which also reaches the subnormals. */
#define SCALE                                                                                                \
    "mov.b32 %rzero, 0;"                                                                                     \
    "shr.s32 %rhalf, %rn, 1;"                                                                                \
    "sub.s32 %rrest, %rn, %rhalf;"                                                                           \
    "shl.b32 %rhalf, %rhalf, 20;"                                                                            \
    "add.s32 %rhalf, %rhalf, 0x3ff00000;"                                                                    \
    "mov.b64 %gs, {%rzero, %rhalf};"                                                                         \
    "mul.rn.f64 %gp, %gp, %gs;"                                                                              \
    "shl.b32 %rrest, %rrest, 20;"                                                                            \
    "add.s32 %rrest, %rrest, 0x3ff00000;"                                                                    \
    "mov.b64 %gs, {%rzero, %rrest};"                                                                         \
    "mul.rn.f64 %gp, %gp, %gs;"

/* The constant: see NAN_OF_X of operations.c. */
#define NAN_OF_X(value)                                                                                      \
    "setp.nan.f64 %p, %x, %x;"                                                                               \
    "selp.f64 %result, 0d7FF8000000000000, " value ", %p;"

const char tvm_exp_f64[] = "max.f64 %gin, %x, ##-750;"
                           "min.f64 %gin, %gin, ##710;" EXPONENTIAL SCALE NAN_OF_X("%gp");

const char tvm_exp2_f64[] = "max.f64 %gin, %x, ##-1100;"
                            "min.f64 %gin, %gin, ##1025;"
                            "cvt.rni.f64.f64 %gj, %gin;"
                            "sub.rn.f64 %gf, %gin, %gj;" POWER_OF_TWO SCALE NAN_OF_X("%gp");

/* tanh x: below 0.5625 x + x^3 T(x^2) (relative error 2^-58); above 1 - 2 / (e^(2x) + 1). */
const char tvm_tanh_f64[] = "abs.f64 %ga, %x;"
                            "mul.rn.f64 %gz, %ga, %ga;"
                            "fma.rn.f64 %gt, %gz, ##-2.0059385847633316e-05, ##8.431726504703544e-05;"
                            "fma.rn.f64 %gt, %gt, %gz, ##-0.00023414083486118103;"
                            "fma.rn.f64 %gt, %gt, %gz, ##0.0005887669435637831;"
                            "fma.rn.f64 %gt, %gt, %gz, ##-0.0014556269784734813;"
                            "fma.rn.f64 %gt, %gt, %gz, ##0.0035921059534927834;"
                            "fma.rn.f64 %gt, %gt, %gz, ##-0.008863234057557363;"
                            "fma.rn.f64 %gt, %gt, %gz, ##0.021869488478732692;"
                            "fma.rn.f64 %gt, %gt, %gz, ##-0.053968253967103585;"
                            "fma.rn.f64 %gt, %gt, %gz, ##0.13333333333332434;"
                            "fma.rn.f64 %gt, %gt, %gz, ##-0.3333333333333333;"
                            "mul.rn.f64 %gz, %gz, %ga;"
                            "fma.rn.f64 %gt, %gt, %gz, %ga;"
                            "add.rn.f64 %gin, %ga, %ga;"
                            "min.f64 %gin, %gin, ##50;" EXPONENTIAL SCALE "add.rn.f64 %gp, %gp, ##1;"
                            "rcp.rn.f64 %gp, %gp;"
                            "fma.rn.f64 %gp, %gp, ##-2, ##1;"
                            "setp.lt.f64 %p, %ga, ##0.5625;"
                            "selp.f64 %gp, %gt, %gp, %p;"
                            "copysign.f64 %gp, %x, %gp;" NAN_OF_X("%gp");

/* Half of e^|x|, which is finite where sinh x and cosh x are, and a quarter of its reciprocal, half of
 * e^-|x|. */
#define HALVES                                                                                               \
    "abs.f64 %ga, %x;"                                                                                       \
    "min.f64 %gin, %ga, ##712;" EXPONENTIAL "sub.s32 %rn, %rn, 1;" SCALE "rcp.rn.f64 %gr, %gp;"
/* Below 1 sinh x is x + x^3 S(x^2) (relative error 2^-71). */
const char tvm_sinh_f64[] = HALVES "fma.rn.f64 %gp, %gr, ##-0.25, %gp;"
                                   "mul.rn.f64 %gz, %ga, %ga;"
                                   "fma.rn.f64 %gt, %gz, ##2.8445322140781574e-15, ##7.646625167066535e-13;"
                                   "fma.rn.f64 %gt, %gt, %gz, ##1.6059048398911922e-10;"
                                   "fma.rn.f64 %gt, %gt, %gz, ##2.5052108364041357e-08;"
                                   "fma.rn.f64 %gt, %gt, %gz, ##2.7557319224040395e-06;"
                                   "fma.rn.f64 %gt, %gt, %gz, ##0.00019841269841269773;"
                                   "fma.rn.f64 %gt, %gt, %gz, ##0.008333333333333333;"
                                   "fma.rn.f64 %gt, %gt, %gz, ##0.16666666666666666;"
                                   "mul.rn.f64 %gz, %gz, %ga;"
                                   "fma.rn.f64 %gt, %gt, %gz, %ga;"
                                   "setp.lt.f64 %p, %ga, ##1;"
                                   "selp.f64 %gp, %gt, %gp, %p;"
                                   "copysign.f64 %gp, %x, %gp;" NAN_OF_X("%gp");

const char tvm_cosh_f64[] = HALVES "fma.rn.f64 %gp, %gr, ##0.25, %gp;" NAN_OF_X("%gp");

/* erf x: below 1 x + x E(x^2) (relative error 2^-62); above 1 - exp(-x^2 - G(x)), where x^2 + G = -log(1 -
 * erf x) on [1, 6] (error of the whole 2^-62); beyond it is 1. */
const char tvm_erf_f64[] = "mul.rn.f64 %gz, %x, %x;"
                           "fma.rn.f64 %gt, %gz, ##5.960415365011372e-11, ##-1.1374800605823314e-09;"
                           "fma.rn.f64 %gt, %gt, %gz, ##1.466028980041413e-08;"
                           "fma.rn.f64 %gt, %gt, %gz, ##-1.6350390624991716e-07;"
                           "fma.rn.f64 %gt, %gt, %gz, ##1.6461007968459019e-06;"
                           "fma.rn.f64 %gt, %gt, %gz, ##-1.4925595741651187e-05;"
                           "fma.rn.f64 %gt, %gt, %gz, ##0.00012055331131738689;"
                           "fma.rn.f64 %gt, %gt, %gz, ##-0.0008548326981393706;"
                           "fma.rn.f64 %gt, %gt, %gz, ##0.005223977624827905;"
                           "fma.rn.f64 %gt, %gt, %gz, ##-0.026866170645077823;"
                           "fma.rn.f64 %gt, %gt, %gz, ##0.11283791670954885;"
                           "fma.rn.f64 %gt, %gt, %gz, ##-0.3761263890318375;"
                           "fma.rn.f64 %gt, %gt, %gz, ##0.1283791670955126;"
                           "fma.rn.f64 %gt, %gt, %x, %x;"
                           "abs.f64 %ga, %x;"
                           "min.f64 %gb, %ga, ##6;"
                           "fma.rn.f64 %gin, %gb, ##1.775074046397673e-13, ##-8.889190169165068e-12;"
                           "fma.rn.f64 %gin, %gin, %gb, ##2.09693252616627e-10;"
                           "fma.rn.f64 %gin, %gin, %gb, ##-3.097308567061987e-09;"
                           "fma.rn.f64 %gin, %gin, %gb, ##3.209596807372641e-08;"
                           "fma.rn.f64 %gin, %gin, %gb, ##-2.474756584959099e-07;"
                           "fma.rn.f64 %gin, %gin, %gb, ##1.4662867721653151e-06;"
                           "fma.rn.f64 %gin, %gin, %gb, ##-6.770315940512269e-06;"
                           "fma.rn.f64 %gin, %gin, %gb, ##2.4235665934806692e-05;"
                           "fma.rn.f64 %gin, %gin, %gb, ##-6.46455531079559e-05;"
                           "fma.rn.f64 %gin, %gin, %gb, ##0.00011054188058799705;"
                           "fma.rn.f64 %gin, %gin, %gb, ##-2.1599801801319913e-05;"
                           "fma.rn.f64 %gin, %gin, %gb, ##-0.0005529144029929221;"
                           "fma.rn.f64 %gin, %gin, %gb, ##0.0016755626860652623;"
                           "fma.rn.f64 %gin, %gin, %gb, ##-0.00020281025674582929;"
                           "fma.rn.f64 %gin, %gin, %gb, ##-0.019127716730091036;"
                           "fma.rn.f64 %gin, %gin, %gb, ##0.10277065828951634;"
                           "fma.rn.f64 %gin, %gin, %gb, ##-0.3633792131968884;"
                           "fma.rn.f64 %gin, %gin, %gb, ##1.1283789047953163;"
                           "fma.rn.f64 %gin, %gin, %gb, ##2.8862640617384153e-08;"
                           "fma.rn.f64 %gin, %gb, %gb, %gin;"
                           "neg.f64 %gin, %gin;" EXPONENTIAL SCALE "sub.rn.f64 %gp, ##1, %gp;"
                           "copysign.f64 %gp, %x, %gp;"
                           "setp.lt.f64 %p, %ga, ##1;"
                           "selp.f64 %gp, %gt, %gp, %p;" NAN_OF_X("%gp");

/* ---- logarithms ---- */

/* Of x in %gx, as LOG_PARTS of operations.c: x = 2^e m with m in [sqrt 0.5, sqrt 2), %ge = e, f = m - 1. Then
 * s = 2 f / (f + 2) in two f64, log m = s + s^3 (1/12 + s^2 R(s^2)) (relative error 2^-65), of which s and
 * the product with 1/12 are computed in two f64, gives %gh + %gl. %pgood, where x is positive and finite;
 * %gbad, the logarithm of others. */
#define LOGARITHM                                                                                            \
    "setp.gt.f64 %pgood, %gx, ##0;"                                                                          \
    "setp.lt.and.f64 %pgood, %gx, 0d7FF0000000000000, %pgood;"                                               \
    "setp.eq.f64 %p, %gx, ##0;"                                                                              \
    "selp.f64 %gbad, 0dFFF0000000000000, %gx, %p;"                                                           \
    "setp.lt.f64 %p, %gx, ##0;"                                                                              \
    "selp.f64 %gbad, 0d7FF8000000000000, %gbad, %p;"                                                         \
    "setp.lt.f64 %p, %gx, 0d0010000000000000;"                                                               \
    "mul.rn.f64 %gup, %gx, ##18014398509481984;"                                                             \
    "selp.f64 %gup, %gup, %gx, %p;"                                                                          \
    "selp.f64 %ge, ##-54, ##0, %p;"                                                                          \
    "mov.b64 {%rlow, %rm}, %gup;"                                                                            \
    "sub.s32 %re, %rm, 0x3fe6a09e;"                                                                          \
    "and.b32 %re, %re, 0xfff00000;"                                                                          \
    "sub.s32 %rm, %rm, %re;"                                                                                 \
    "mov.b64 %gf, {%rlow, %rm};"                                                                             \
    "shr.s32 %re, %re, 20;"                                                                                  \
    "cvt.rn.f64.s32 %gi, %re;"                                                                               \
    "add.rn.f64 %ge, %ge, %gi;"                                                                              \
    "add.rn.f64 %gf, %gf, ##-1;"                                                                             \
    "add.rn.f64 %gr, %gf, ##2;"                                                                              \
    "rcp.rn.f64 %gr, %gr;"                                                                                   \
    "add.rn.f64 %gs, %gf, %gf;"                                                                              \
    "mul.rn.f64 %gs, %gs, %gr;"                                                                              \
    "neg.f64 %gn, %gs;"                                                                                      \
    "sub.rn.f64 %gd, %gf, %gs;"                                                                              \
    "add.rn.f64 %gd, %gd, %gd;"                                                                              \
    "fma.rn.f64 %gd, %gn, %gf, %gd;"                                                                         \
    "mul.rn.f64 %gsl, %gr, %gd;"                                                                             \
    "mul.rn.f64 %gz, %gs, %gs;"                                                                              \
    "neg.f64 %gn, %gz;"                                                                                      \
    "fma.rn.f64 %gzl, %gs, %gs, %gn;"                                                                        \
    "add.rn.f64 %gd, %gs, %gs;"                                                                              \
    "fma.rn.f64 %gzl, %gd, %gsl, %gzl;"                                                                      \
    "fma.rn.f64 %gc, %gz, ##5.132616933469119e-08, ##1.9943541314472442e-07;"                                \
    "fma.rn.f64 %gc, %gc, %gz, ##8.977371975221491e-07;"                                                     \
    "fma.rn.f64 %gc, %gc, %gz, ##4.06899912786833e-06;"                                                      \
    "fma.rn.f64 %gc, %gc, %gz, ##1.8780048539756798e-05;"                                                    \
    "fma.rn.f64 %gc, %gc, %gz, ##8.877840908026299e-05;"                                                     \
    "fma.rn.f64 %gc, %gc, %gz, ##0.0004340277777779004;"                                                     \
    "fma.rn.f64 %gc, %gc, %gz, ##0.0022321428571428566;"                                                     \
    "fma.rn.f64 %gc, %gc, %gz, ##0.0125;"                                                                    \
    "fma.rn.f64 %gc, %gc, %gz, ##4.625929269271485e-18;" /* what 1/12 lacks in f64 */                        \
    "mul.rn.f64 %gu, %gz, ##0.08333333333333333;"                                                            \
    "neg.f64 %gn, %gu;"                                                                                      \
    "fma.rn.f64 %gul, %gz, ##0.08333333333333333, %gn;"                                                      \
    "fma.rn.f64 %gul, %gz, %gc, %gul;"                                                                       \
    "fma.rn.f64 %gul, %gzl, ##0.08333333333333333, %gul;"                                                    \
    "mul.rn.f64 %gt, %gu, %gs;"                                                                              \
    "neg.f64 %gn, %gt;"                                                                                      \
    "fma.rn.f64 %gtl, %gu, %gs, %gn;"                                                                        \
    "fma.rn.f64 %gtl, %gul, %gs, %gtl;"                                                                      \
    "fma.rn.f64 %gtl, %gu, %gsl, %gtl;"                                                                      \
    "add.rn.f64 %gh, %gs, %gt;"                                                                              \
    "sub.rn.f64 %gl, %gs, %gh;"                                                                              \
    "add.rn.f64 %gl, %gl, %gt;"                                                                              \
    "add.rn.f64 %gtl, %gtl, %gsl;"                                                                           \
    "add.rn.f64 %gl, %gl, %gtl;"
/* The logarithm to the base 2 of x in two f64, %gh + %gl. */
#define LOGARITHM_2                                                                                          \
    LOGARITHM                                                                                                \
    "mul.rn.f64 %gb, %gh, ##1.4426950408889634;"                                                             \
    "neg.f64 %gn, %gb;"                                                                                      \
    "fma.rn.f64 %gbl, %gh, ##1.4426950408889634, %gn;"                                                       \
    "fma.rn.f64 %gbl, %gh, ##2.0355273740931033e-17, %gbl;"                                                  \
    "fma.rn.f64 %gbl, %gl, ##1.4426950408889634, %gbl;"                                                      \
    "add.rn.f64 %gh, %ge, %gb;"                                                                              \
    "sub.rn.f64 %gl, %ge, %gh;"                                                                              \
    "add.rn.f64 %gl, %gl, %gb;"                                                                              \
    "add.rn.f64 %gl, %gl, %gbl;"

/* ln 2 in two parts, the first of so few digits that its product with e is exact. */
const char tvm_log_f64[] = "mov.f64 %gx, %x;" LOGARITHM "mul.rn.f64 %ga, %ge, 0d3FE62E42FEE00000;"
                           "add.rn.f64 %gt, %ga, %gh;"
                           "sub.rn.f64 %gn, %ga, %gt;"
                           "add.rn.f64 %gn, %gn, %gh;"
                           "fma.rn.f64 %gl, %ge, 0d3DEA39EF35793C76, %gl;"
                           "add.rn.f64 %gl, %gl, %gn;"
                           "add.rn.f64 %gt, %gt, %gl;"
                           "selp.f64 %result, %gt, %gbad, %pgood;";

const char tvm_log2_f64[] = "mov.f64 %gx, %x;" LOGARITHM_2 "add.rn.f64 %gh, %gh, %gl;"
                            "selp.f64 %result, %gh, %gbad, %pgood;";

/* |x|^y is 2^(y log2 |x|); the special cases are those of pow_f32. */
const char tvm_pow_f64[] = "abs.f64 %gx, %x;" LOGARITHM_2 "add.rn.f64 %gb, %gh, %gl;"
                           "sub.rn.f64 %gh, %gh, %gb;"
                           "add.rn.f64 %gl, %gl, %gh;"
                           "selp.f64 %gh, %gb, %gbad, %pgood;"
                           "mul.rn.f64 %gw, %gh, %y;"
                           "neg.f64 %gn, %gw;"
                           "fma.rn.f64 %gwl, %gh, %y, %gn;"
                           "fma.rn.f64 %gwl, %gl, %y, %gwl;"
                           "abs.f64 %gd, %gw;"
                           "setp.lt.f64 %pin, %gd, ##1100;"
                           "selp.f64 %gwl, %gwl, ##0, %pin;"
                           "max.f64 %gd, %gw, ##-1100;"
                           "min.f64 %gd, %gd, ##1100;"
                           "cvt.rni.f64.f64 %gj, %gd;"
                           "sub.rn.f64 %gf, %gd, %gj;"
                           "add.rn.f64 %gf, %gf, %gwl;" POWER_OF_TWO SCALE "setp.nan.f64 %p, %gw, %gw;"
                           "selp.f64 %gw, %gw, %gp, %p;"
                           "cvt.rzi.f64.f64 %gd, %y;"
                           "setp.neu.f64 %pfrac, %gd, %y;"
                           "mul.rn.f64 %gd, %y, ##0.5;"
                           "cvt.rzi.f64.f64 %gn, %gd;"
                           "setp.neu.f64 %podd, %gn, %gd;"
                           "copysign.f64 %gn, %x, %gw;"
                           "selp.f64 %gn, %gn, %gw, %podd;"
                           "selp.f64 %gw, %gw, %gn, %pfrac;"
                           "selp.f64 %gn, 0d7FF8000000000000, %gw, %pfrac;"
                           "setp.lt.f64 %pneg, %x, ##0;"
                           "setp.gt.and.f64 %pneg, %x, 0dFFF0000000000000, %pneg;"
                           "selp.f64 %gw, %gn, %gw, %pneg;"
                           "setp.eq.f64 %pone, %y, ##0;"
                           "setp.eq.or.f64 %pone, %x, ##1, %pone;"
                           "selp.f64 %gw, ##1, %gw, %pone;"
                           "abs.f64 %gn, %y;"
                           "setp.eq.f64 %pone, %gx, ##1;"
                           "setp.eq.and.f64 %pone, %gn, 0d7FF0000000000000, %pone;"
                           "selp.f64 %result, ##1, %gw, %pone;";

/* ---- sine, cosine, tangent ---- */

/* x = q pi/2 + r, |r| <= pi/4 and a little: r in two f64 (%gr + %gl), pi/2 in three, whose errors are below
 * r's last place up to 2^27; the first difference is exact. */
#define REDUCE                                                                                               \
    "fma.rn.f64 %gj, %x, ##0.6366197723675814, ##6755399441055744;"                                          \
    "mov.b64 {%rq, %rtop}, %gj;"                                                                             \
    "add.rn.f64 %gj, %gj, ##-6755399441055744;"                                                              \
    "neg.f64 %gm, %gj;"                                                                                      \
    "fma.rn.f64 %gd, %gm, ##1.5707963267948966, %x;"                                                         \
    "mul.rn.f64 %gw, %gj, ##6.123233995736766e-17;"                                                          \
    "neg.f64 %gn, %gw;"                                                                                      \
    "fma.rn.f64 %gwl, %gj, ##6.123233995736766e-17, %gn;"                                                    \
    "sub.rn.f64 %gr, %gd, %gw;"                                                                              \
    "sub.rn.f64 %gb, %gr, %gd;"                                                                              \
    "sub.rn.f64 %gn, %gr, %gb;"                                                                              \
    "sub.rn.f64 %gn, %gd, %gn;"                                                                              \
    "add.rn.f64 %gb, %gw, %gb;"                                                                              \
    "sub.rn.f64 %gl, %gn, %gb;"                                                                              \
    "sub.rn.f64 %gl, %gl, %gwl;"                                                                             \
    "fma.rn.f64 %gl, %gm, 0dB91F1976B7ED8FBC, %gl;"
/* Larger x, as REDUCE_LARGE of operations.c: x is the integer m times 2^(e-1075); of 2/pi, after 64 zeros,
 * those 192 bits from bit e - 1013 on matter that m multiplies to the quadrant and 126 bits behind the point,
 * of which 62 are zeros or ones at most. Four words of 2/pi are chosen by the bits of that number, from the
 * highest down. */
#define REDUCE_LARGE                                                                                         \
    "abs.f64 %ga, %x;"                                                                                       \
    "setp.gt.f64 %plarge, %ga, ##134217728;"                                                                 \
    "vote.sync.any.pred %pany, %plarge, 0xffffffff;"                                                         \
    "@!%pany bra $1;"                                                                                        \
    "mov.b64 %qx, %x;"                                                                                       \
    "and.b64 %qm, %qx, 0xfffffffffffff;"                                                                     \
    "or.b64 %qm, %qm, 0x10000000000000;"                                                                     \
    "mov.b64 {%rlow, %rs}, %x;"                                                                              \
    "bfe.u32 %rs, %rs, 20, 11;"                                                                              \
    "sub.u32 %rs, %rs, 1013;"                                                                                \
    "and.b32 %rb, %rs, 1024;"                                                                                \
    "setp.ne.s32 %p, %rb, 0;"                                                                                \
    "selp.b64 %q0, 0x7527bac7ebe5f17b, 0x0, %p;"                                                             \
    "selp.b64 %q1, 0x3d0739f78a5292ea, 0xa2f9836e4e441529, %p;"                                              \
    "selp.b64 %q2, 0x6bfb5fb11f8d5d08, 0xfc2757d1f534ddc0, %p;"                                              \
    "selp.b64 %q3, 0x56033046fc7b6bab, 0xdb6295993c439041, %p;"                                              \
    "and.b32 %rb, %rs, 512;"                                                                                 \
    "setp.ne.s32 %p, %rb, 0;"                                                                                \
    "selp.b64 %q0, 0xe88235f52ebb4484, %q0, %p;"                                                             \
    "selp.b64 %q1, 0xe99c7026b45f7e41, %q1, %p;"                                                             \
    "selp.b64 %q2, 0x3991d639835339f4, %q2, %p;"                                                             \
    "selp.b64 %q3, 0x9c845f8bbdf9283b, %q3, %p;"                                                             \
    "selp.b64 %q4, 0x1ff897ffde05980f, 0xfe5163abdebbc561, %p;"                                              \
    "selp.b64 %q5, 0xef2f118b5a0a6d1f, 0xb7246e3a424dd2e0, %p;"                                              \
    "selp.b64 %q6, 0x6d367ecf27cb09b7, 0x06492eea09d1921c, %p;"                                              \
    "selp.b64 %q7, 0x4f463f669e5fea2d, 0xfe1deb1cb129a73e, %p;"                                              \
    "selp.b64 %q8, 0x7527bac7ebe5f17b, 0xe88235f52ebb4484, %p;"                                              \
    "selp.b64 %q9, 0x3d0739f78a5292ea, 0xe99c7026b45f7e41, %p;"                                              \
    "selp.b64 %q10, 0x6bfb5fb11f8d5d08, 0x3991d639835339f4, %p;"                                             \
    "and.b32 %rb, %rs, 256;"                                                                                 \
    "setp.ne.s32 %p, %rb, 0;"                                                                                \
    "selp.b64 %q0, %q4, %q0, %p;"                                                                            \
    "selp.b64 %q1, %q5, %q1, %p;"                                                                            \
    "selp.b64 %q2, %q6, %q2, %p;"                                                                            \
    "selp.b64 %q3, %q7, %q3, %p;"                                                                            \
    "selp.b64 %q4, %q8, %q4, %p;"                                                                            \
    "selp.b64 %q5, %q9, %q5, %p;"                                                                            \
    "selp.b64 %q6, %q10, %q6, %p;"                                                                           \
    "and.b32 %rb, %rs, 128;"                                                                                 \
    "setp.ne.s32 %p, %rb, 0;"                                                                                \
    "selp.b64 %q0, %q2, %q0, %p;"                                                                            \
    "selp.b64 %q1, %q3, %q1, %p;"                                                                            \
    "selp.b64 %q2, %q4, %q2, %p;"                                                                            \
    "selp.b64 %q3, %q5, %q3, %p;"                                                                            \
    "selp.b64 %q4, %q6, %q4, %p;"                                                                            \
    "and.b32 %rb, %rs, 64;"                                                                                  \
    "setp.ne.s32 %p, %rb, 0;"                                                                                \
    "selp.b64 %q0, %q1, %q0, %p;"                                                                            \
    "selp.b64 %q1, %q2, %q1, %p;"                                                                            \
    "selp.b64 %q2, %q3, %q2, %p;"                                                                            \
    "selp.b64 %q3, %q4, %q3, %p;"                                                                            \
    "and.b32 %rs, %rs, 63;"                                                                                  \
    "sub.u32 %rb, 64, %rs;"                                                                                  \
    "shl.b64 %q0, %q0, %rs;"                                                                                 \
    "shr.u64 %q, %q1, %rb;"                                                                                  \
    "or.b64 %q0, %q0, %q;"                                                                                   \
    "shl.b64 %q1, %q1, %rs;"                                                                                 \
    "shr.u64 %q, %q2, %rb;"                                                                                  \
    "or.b64 %q1, %q1, %q;"                                                                                   \
    "shl.b64 %q2, %q2, %rs;"                                                                                 \
    "shr.u64 %q, %q3, %rb;"                                                                                  \
    "or.b64 %q2, %q2, %q;"                                                                                   \
    "mul.hi.u64 %qt, %qm, %q2;"                                                                              \
    "mul.lo.u64 %qd, %qm, %q1;"                                                                              \
    "mul.hi.u64 %qh, %qm, %q1;"                                                                              \
    "mul.lo.u64 %qa, %qm, %q0;"                                                                              \
    "add.u64 %qa, %qa, %qh;"                                                                                 \
    "add.u64 %qt, %qt, %qd;"                                                                                 \
    "setp.lt.u64 %p, %qt, %qd;"                                                                              \
    "selp.b64 %qd, 1, 0, %p;"                                                                                \
    "add.u64 %qa, %qa, %qd;" /* the quadrant, the point, 126 bits; then the fraction less one where it is a  \
                                half and more, its magnitude */                                              \
    "shr.u64 %qd, %qa, 62;"                                                                                  \
    "cvt.u32.u64 %rn, %qd;"                                                                                  \
    "shl.b64 %qa, %qa, 2;"                                                                                   \
    "shr.u64 %qd, %qt, 62;"                                                                                  \
    "or.b64 %qa, %qa, %qd;"                                                                                  \
    "shl.b64 %qt, %qt, 2;"                                                                                   \
    "shr.s64 %qd, %qa, 63;"                                                                                  \
    "cvt.u32.u64 %rb, %qd;"                                                                                  \
    "sub.u32 %rn, %rn, %rb;"                                                                                 \
    "xor.b64 %qa, %qa, %qd;"                                                                                 \
    "xor.b64 %qt, %qt, %qd;"                                                                                 \
    "and.b64 %qh, %qa, 0xfffffffffffff800;"                                                                  \
    "cvt.rn.f64.u64 %ga, %qh;"                                                                               \
    "mul.rn.f64 %ga, %ga, 0d3BF0000000000000;"                                                               \
    "and.b64 %qh, %qa, 0x7ff;"                                                                               \
    "shl.b64 %qh, %qh, 53;"                                                                                  \
    "shr.u64 %qt, %qt, 11;"                                                                                  \
    "or.b64 %qh, %qh, %qt;"                                                                                  \
    "cvt.rn.f64.u64 %gb, %qh;"                                                                               \
    "mul.rn.f64 %gb, %gb, 0d38A0000000000000;"                                                               \
    "add.rn.f64 %gt, %ga, %gb;"                                                                              \
    "sub.rn.f64 %ga, %gt, %ga;"                                                                              \
    "sub.rn.f64 %gb, %gb, %ga;" /* times pi/2 */                                                             \
    "mul.rn.f64 %ga, %gt, ##1.5707963267948966;"                                                             \
    "neg.f64 %gn, %ga;"                                                                                      \
    "fma.rn.f64 %gn, %gt, ##1.5707963267948966, %gn;"                                                        \
    "fma.rn.f64 %gn, %gt, ##6.123233995736766e-17, %gn;"                                                     \
    "fma.rn.f64 %gn, %gb, ##1.5707963267948966, %gn;"                                                        \
    "xor.b64 %qh, %qd, %qx;"                                                                                 \
    "setp.lt.s64 %p, %qh, 0;"                                                                                \
    "neg.f64 %gb, %ga;"                                                                                      \
    "selp.f64 %ga, %gb, %ga, %p;"                                                                            \
    "neg.f64 %gb, %gn;"                                                                                      \
    "selp.f64 %gn, %gb, %gn, %p;"                                                                            \
    "setp.lt.s64 %p, %qx, 0;"                                                                                \
    "neg.s32 %rb, %rn;"                                                                                      \
    "selp.b32 %rn, %rb, %rn, %p;"                                                                            \
    "fma.rn.f64 %ga, %x, ##0, %ga;"                                                                          \
    "selp.f64 %gr, %ga, %gr, %plarge;"                                                                       \
    "selp.f64 %gl, %gn, %gl, %plarge;"                                                                       \
    "selp.b32 %rq, %rn, %rq, %plarge;"                                                                       \
    "$1:;"
/* sin and cos of r (%gs and %gc; relative errors 2^-56 and 2^-60). */
#define SINE_AND_COSINE                                                                                      \
    "mul.rn.f64 %gz, %gr, %gr;"                                                                              \
    "mul.rn.f64 %gv, %gz, %gr;"                                                                              \
    "neg.f64 %gn, %gv;"                                                                                      \
    "fma.rn.f64 %gp, %gz, ##1.5917861853578094e-10, ##-2.505112814998083e-08;"                               \
    "fma.rn.f64 %gp, %gp, %gz, ##2.7557316084930338e-06;"                                                    \
    "fma.rn.f64 %gp, %gp, %gz, ##-0.00019841269836724877;"                                                   \
    "fma.rn.f64 %gp, %gp, %gz, ##0.008333333333330927;"                                                      \
    "mul.rn.f64 %gt, %gl, ##0.5;"                                                                            \
    "fma.rn.f64 %gt, %gn, %gp, %gt;"                                                                         \
    "neg.f64 %gb, %gl;"                                                                                      \
    "fma.rn.f64 %gt, %gz, %gt, %gb;"                                                                         \
    "fma.rn.f64 %gt, %gn, ##-0.16666666666666666, %gt;"                                                      \
    "sub.rn.f64 %gs, %gr, %gt;"                                                                              \
    "fma.rn.f64 %gp, %gz, ##-1.1382464188275081e-11, ##2.0876143942501043e-09;"                              \
    "fma.rn.f64 %gp, %gp, %gz, ##-2.7557317260628156e-07;"                                                   \
    "fma.rn.f64 %gp, %gp, %gz, ##2.4801587298744435e-05;"                                                    \
    "fma.rn.f64 %gp, %gp, %gz, ##-0.0013888888888887382;"                                                    \
    "fma.rn.f64 %gp, %gp, %gz, ##0.041666666666666664;"                                                      \
    "mul.rn.f64 %gh, %gz, ##0.5;"                                                                            \
    "sub.rn.f64 %gw, ##1, %gh;"                                                                              \
    "sub.rn.f64 %gt, ##1, %gw;"                                                                              \
    "sub.rn.f64 %gt, %gt, %gh;"                                                                              \
    "mul.rn.f64 %gb, %gr, %gl;"                                                                              \
    "sub.rn.f64 %gt, %gt, %gb;"                                                                              \
    "mul.rn.f64 %gb, %gz, %gz;"                                                                              \
    "fma.rn.f64 %gt, %gb, %gp, %gt;"                                                                         \
    "add.rn.f64 %gc, %gw, %gt;"                                                                              \
    "and.b32 %rb, %rq, 1;"                                                                                   \
    "setp.ne.s32 %podd, %rb, 0;"
/* One of them, and the sign, by the quadrant. */
#define QUADRANT                                                                                             \
    "selp.f64 %gs, %gc, %gs, %podd;"                                                                         \
    "and.b32 %rb, %rq, 2;"                                                                                   \
    "setp.ne.s32 %p, %rb, 0;"                                                                                \
    "neg.f64 %gc, %gs;"                                                                                      \
    "selp.f64 %gs, %gc, %gs, %p;"

const char tvm_sin_f64[] = REDUCE REDUCE_LARGE SINE_AND_COSINE QUADRANT "setp.eq.f64 %p, %x, ##0;"
                                                                        "selp.f64 %result, %x, %gs, %p;";

const char tvm_cos_f64[] =
    REDUCE REDUCE_LARGE "add.s32 %rq, %rq, 1;" SINE_AND_COSINE QUADRANT "mov.f64 %result, %gs;";

const char tvm_tan_f64[] = REDUCE REDUCE_LARGE SINE_AND_COSINE "neg.f64 %gn, %gc;"
                                                               "selp.f64 %gt, %gn, %gs, %podd;"
                                                               "selp.f64 %gc, %gs, %gc, %podd;"
                                                               "div.rn.f64 %gs, %gt, %gc;"
                                                               "setp.eq.f64 %p, %x, ##0;"
                                                               "selp.f64 %result, %x, %gs, %p;";

/* The angle of the point (y, x), the operands in the order of C: that of the smaller of |x| and |y| over the
 * larger, t + t^3 A(t^2) (relative error 2^-58), taken from pi/2 or pi, in two f64 each, where it must be. */
const char tvm_atan2_f64[] = "abs.f64 %ga, %x;"
                             "abs.f64 %gb, %y;"
                             "min.f64 %gn, %ga, %gb;"
                             "max.f64 %gm, %ga, %gb;"
                             "div.rn.f64 %gt, %gn, %gm;"
                             "setp.eq.f64 %p, %gm, ##0;"
                             "selp.f64 %gt, ##0, %gt, %p;"
                             "setp.eq.f64 %p, %gn, 0d7FF0000000000000;"
                             "selp.f64 %gt, ##1, %gt, %p;"
                             "mul.rn.f64 %gz, %gt, %gt;"
                             "fma.rn.f64 %gp, %gz, ##-1.2498326314381162e-05, ##0.00014354425699193084;"
                             "fma.rn.f64 %gp, %gp, %gz, ##-0.0007827708538771683;"
                             "fma.rn.f64 %gp, %gp, %gz, ##0.002710935461787788;"
                             "fma.rn.f64 %gp, %gp, %gz, ##-0.0067474359386666535;"
                             "fma.rn.f64 %gp, %gp, %gz, ##0.013000205168686432;"
                             "fma.rn.f64 %gp, %gp, %gz, ##-0.02049961331505432;"
                             "fma.rn.f64 %gp, %gp, %gz, ##0.027782048444590465;"
                             "fma.rn.f64 %gp, %gp, %gz, ##-0.0338864751725146;"
                             "fma.rn.f64 %gp, %gp, %gz, ##0.03879407375642845;"
                             "fma.rn.f64 %gp, %gp, %gz, ##-0.04310734742011555;"
                             "fma.rn.f64 %gp, %gp, %gz, ##0.047528687141074166;"
                             "fma.rn.f64 %gp, %gp, %gz, ##-0.05261444550985757;"
                             "fma.rn.f64 %gp, %gp, %gz, ##0.058821056701350016;"
                             "fma.rn.f64 %gp, %gp, %gz, ##-0.06666640295256758;"
                             "fma.rn.f64 %gp, %gp, %gz, ##0.07692305696287881;"
                             "fma.rn.f64 %gp, %gp, %gz, ##-0.09090908989702533;"
                             "fma.rn.f64 %gp, %gp, %gz, ##0.11111111107961288;"
                             "fma.rn.f64 %gp, %gp, %gz, ##-0.14285714285662274;"
                             "fma.rn.f64 %gp, %gp, %gz, ##0.1999999999999966;"
                             "fma.rn.f64 %gp, %gp, %gz, ##-0.3333333333333333;"
                             "mul.rn.f64 %gp, %gp, %gz;"
                             "fma.rn.f64 %gt, %gp, %gt, %gt;"
                             "setp.gt.f64 %pswap, %ga, %gb;"
                             "mov.b64 {%rlow, %rhigh}, %y;"
                             "setp.lt.s32 %pneg, %rhigh, 0;"
                             "selp.f64 %gh, ##3.141592653589793, ##0, %pneg;"
                             "selp.f64 %gl, ##1.2246467991473532e-16, ##0, %pneg;"
                             "selp.f64 %gh, ##1.5707963267948966, %gh, %pswap;"
                             "selp.f64 %gl, ##6.123233995736766e-17, %gl, %pswap;"
                             "xor.pred %p, %pswap, %pneg;"
                             "neg.f64 %gn, %gt;"
                             "selp.f64 %gt, %gn, %gt, %p;"
                             "add.rn.f64 %gt, %gt, %gl;"
                             "add.rn.f64 %gt, %gh, %gt;"
                             "copysign.f64 %gt, %x, %gt;"
                             "setp.nan.f64 %p, %x, %y;"
                             "selp.f64 %result, 0d7FF8000000000000, %gt, %p;";

/* ---- remainders ---- */

/* %gr = |x| mod |y|, exactly, of %ga = |x| and %gb = |y|: |y| is taken off as often as 2^k |y| goes into the
 * rest, which is below 2^52 times with k the difference of the exponents less 51, until the rest is below
 * |y|: each quotient is exact when rounded to zero, and so is each rest. %pok: neither is NaN, x is finite
 * and y is not 0. */
#define REMAINDER                                                                                            \
    "setp.gt.f64 %pok, %gb, ##0;"                                                                            \
    "setp.lt.and.f64 %pok, %ga, 0d7FF0000000000000, %pok;"                                                   \
    "mov.f64 %gr, %ga;"                                                                                      \
    "setp.lt.f64 %p, %gb, 0d0010000000000000;"                                                               \
    "mul.rn.f64 %gn, %gb, ##18014398509481984;"                                                              \
    "selp.f64 %gn, %gn, %gb, %p;"                                                                            \
    "selp.b32 %rb, 54, 0, %p;"                                                                               \
    "mov.b64 {%rlow, %re}, %gn;"                                                                             \
    "shr.u32 %re, %re, 20;"                                                                                  \
    "sub.s32 %re, %re, %rb;"                                                                                 \
    "add.s32 %re, %re, 51;"                                                                                  \
    "mov.b32 %rzero, 0;"                                                                                     \
    "$1:;"                                                                                                   \
    "setp.ge.and.f64 %pmore, %gr, %gb, %pok;"                                                                \
    "vote.sync.any.pred %pany, %pmore, 0xffffffff;"                                                          \
    "@!%pany bra $2;"                                                                                        \
    "mov.b64 {%rlow, %rk}, %gr;"                                                                             \
    "shr.u32 %rk, %rk, 20;"                                                                                  \
    "sub.s32 %rk, %rk, %re;"                                                                                 \
    "max.s32 %rk, %rk, 0;"                                                                                   \
    "shr.s32 %rhalf, %rk, 1;"                                                                                \
    "sub.s32 %rrest, %rk, %rhalf;"                                                                           \
    "shl.b32 %rhalf, %rhalf, 20;"                                                                            \
    "add.s32 %rhalf, %rhalf, 0x3ff00000;"                                                                    \
    "mov.b64 %gs, {%rzero, %rhalf};"                                                                         \
    "mul.rn.f64 %gd, %gb, %gs;"                                                                              \
    "shl.b32 %rrest, %rrest, 20;"                                                                            \
    "add.s32 %rrest, %rrest, 0x3ff00000;"                                                                    \
    "mov.b64 %gs, {%rzero, %rrest};"                                                                         \
    "mul.rn.f64 %gd, %gd, %gs;"                                                                              \
    "div.rz.f64 %gq, %gr, %gd;"                                                                              \
    "cvt.rzi.f64.f64 %gq, %gq;"                                                                              \
    "neg.f64 %gq, %gq;"                                                                                      \
    "fma.rn.f64 %gd, %gq, %gd, %gr;"                                                                         \
    "selp.f64 %gr, %gd, %gr, %pmore;"                                                                        \
    "bra $1;"                                                                                                \
    "$2:;"                                                                                                   \
    "selp.f64 %gr, %gr, 0d7FF8000000000000, %pok;"

const char tvm_mod_f64[] = "abs.f64 %ga, %x;"
                           "abs.f64 %gb, %y;" REMAINDER "copysign.f64 %result, %x, %gr;";

const char tvm_mod_f32[] = "cvt.f64.f32 %gx, %x;"
                           "abs.f64 %ga, %gx;"
                           "cvt.f64.f32 %gb, %y;"
                           "abs.f64 %gb, %gb;" REMAINDER "cvt.rn.f32.f64 %fr, %gr;"
                           "copysign.f32 %result, %x, %fr;";
