/* Inside ptx_machine.h: what an instruction makes of the values of one thread: arithmetic, conversions,
 * comparisons and bits. */
#ifndef TVM_TESTS_PTX_ARITHMETIC_H
#define TVM_TESTS_PTX_ARITHMETIC_H

#include "ptx_math.h"
#include "ptx_state.h"
#include "types.h"

/* ---- arithmetic ---- */

/* Payloads of NaN in f64, and of NaN that cvt makes in f32, are not defined: something unlikely stands for
 * them. */
static inline uint64_t ptx_from_double(double value) {
    return isnan(value) ? UINT64_C(0x7ff8dead0000beef) : tvm_f64_bits(value);
}

static inline double ptx_least(double a, double b) {
    if (isnan(a) || isnan(b)) return isnan(a) ? b : a;
    return a < b || (a == b && signbit(a)) ? a : b;
}

static inline double ptx_greatest(double a, double b) {
    return -ptx_least(-a, -b);
}

/* a * b + c for f16 and bf16, rounded to odd in double: one rounding more gives the correctly rounded result.
 */
static inline double ptx_fma_odd(double a, double b, double c) {
    double product = a * b, sum = product + c, part = sum - product;
    double error = (product - (sum - part)) + (c - part);
    uint64_t bits = tvm_f64_bits(sum);
    if (!isfinite(sum) || error == 0 || bits & 1) return sum;
    return tvm_f64_from_bits((error > 0) == (sum > 0) ? bits + 1 : bits - 1);
}

/* a / b rounded toward zero. */
static inline double ptx_divide_to_zero(double a, double b) {
    double quotient = a / b, rest = fma(-quotient, b, a); /* is exact */
    return rest != 0 && (rest > 0) != (a > 0) ? nextafter(quotient, 0) : quotient;
}

static inline double ptx_float_op(const ptx_insn *insn, double a, double b, double c, bool half) {
    const ptx_op op = insn->op;
    if (op == PTX_OP_div && ptx_is(insn->part[1], "rz")) return ptx_divide_to_zero(a, b);
    if (op == PTX_OP_add) return half ? ptx_fma_odd(a, 1, b) : a + b;
    if (op == PTX_OP_sub) return half ? ptx_fma_odd(b, -1, a) : a - b;
    if (op == PTX_OP_mul) return a * b;
    if (op == PTX_OP_div) return a / b;
    if (op == PTX_OP_min) return ptx_least(a, b);
    if (op == PTX_OP_max) return ptx_greatest(a, b);
    if (op == PTX_OP_neg) return -a;
    if (op == PTX_OP_abs) return fabs(a);
    if (op == PTX_OP_fma) return half ? ptx_fma_odd(a, b, c) : fma(a, b, c);
    ck_abort_msg("ptx: unknown %s", insn->text);
    return 0;
}

static inline uint64_t ptx_f32_op(const ptx_insn *insn, const uint64_t v[3]) {
    float a = tvm_f32_from_bits((uint32_t)v[0]), b = tvm_f32_from_bits((uint32_t)v[1]),
          c = tvm_f32_from_bits((uint32_t)v[2]);
    if (insn->op == PTX_OP_fma) return ptx_from_float(fmaf(a, b, c));
    /* one operation in double and one rounding to f32 is the operation in f32 (53 >= 2 * 24 + 2) */
    return ptx_from_float((float)ptx_float_op(insn, a, b, c, false));
}

static inline uint64_t ptx_half_op(const ptx_insn *insn, bool bf16, const uint64_t v[3], unsigned shift) {
    double x[3];
    for (unsigned i = 0; i < 3; i++) {
        uint16_t code = (uint16_t)(v[i] >> shift);
        x[i] = (double)(bf16 ? tvm_bf16_to_f32(code) : tvm_f16_to_f32(code));
    }
    if (ptx_is(insn->part[1], "xorsign")) { /* of absolute values, and the sign apart */
        x[0] = copysign(x[0], 1);
        x[1] = copysign(x[1], 1);
        uint16_t least = tvm_f64_to_f16(ptx_float_op(insn, x[0], x[1], x[2], true));
        return ((uint64_t)least & 0x7fff) << shift | ((v[0] ^ v[1]) >> shift & 0x8000) << shift;
    }
    double result = ptx_float_op(insn, x[0], x[1], x[2], true);
    return (uint64_t)(bf16 ? tvm_f64_to_bf16(result) : tvm_f64_to_f16(result)) << shift;
}

static inline uint64_t ptx_integer_op(const ptx_insn *insn, const char *type, const uint64_t v[3]) {
    const ptx_op op = insn->op;
    unsigned width = insn->width;
    bool is_signed = type[0] == 's';
    uint64_t a = ptx_mask(v[0], width), b = ptx_mask(v[1], width);
    int64_t x = ptx_signed(a, width), y = ptx_signed(b, width);
    bool wide = ptx_is(insn->part[1], "wide");
    if (op == PTX_OP_mul && ptx_is(insn->part[1], "hi")) {
        __extension__ typedef __int128 wide_integer;
        __extension__ typedef unsigned __int128 wide_unsigned;
        if (width == 64)
            return (uint64_t)(is_signed ? (wide_unsigned)((wide_integer)x * y) >> 64
                                        : (wide_unsigned)a * b >> 64);
        ptx_must(width == 32 && !is_signed, "ptx: unknown %s", insn->text);
        return a * b >> 32;
    }
    if (op == PTX_OP_add) return a + b;
    if (op == PTX_OP_sub) return a - b;
    if (op == PTX_OP_neg) return 0 - a;
    if (op == PTX_OP_abs) return x < 0 ? 0 - a : a;
    if (op == PTX_OP_mul || op == PTX_OP_mad) {
        uint64_t product = wide && is_signed ? (uint64_t)(x * y) : a * b;
        return op == PTX_OP_mad ? product + v[2] : product;
    }
    if (op == PTX_OP_min) return (is_signed ? x < y : a < b) ? a : b;
    if (op == PTX_OP_max) return (is_signed ? x > y : a > b) ? a : b;
    if (op == PTX_OP_div) {
        if (b == 0) return 0xdeadbeef;
        return !is_signed ? a / b : y == -1 ? 0 - a : (uint64_t)(x / y);
    }
    if (op == PTX_OP_rem) {
        if (b == 0) return 0xdeadbeef;
        return !is_signed ? a % b : y == -1 ? 0 : (uint64_t)(x % y);
    }
    ck_abort_msg("ptx: unknown %s", insn->text);
    return 0;
}

static inline uint64_t ptx_arithmetic(const ptx_insn *insn, const uint64_t v[3]) {
    const char *type = insn->part[insn->parts - 1];
    if (ptx_is(type, "f16x2") || ptx_is(type, "bf16x2")) {
        bool bf16 = type[0] == 'b';
        return ptx_half_op(insn, bf16, v, 0) | ptx_half_op(insn, bf16, v, 16);
    }
    if (ptx_is(type, "f32")) return ptx_f32_op(insn, v);
    if (ptx_is(type, "f64"))
        return ptx_from_double(ptx_float_op(insn, tvm_f64_from_bits(v[0]), tvm_f64_from_bits(v[1]),
                                            tvm_f64_from_bits(v[2]), false));
    return ptx_integer_op(insn, type, v);
}

/* ---- conversion ---- */

static inline uint64_t ptx_to_integer(const char *mode, const char *to, bool narrow_source, double x) {
    unsigned width = (unsigned)strtoul(to + 1, NULL, 10);
    bool is_signed = to[0] == 's';
    if (isnan(x)) return narrow_source && width <= 32 ? 0 : UINT64_C(1) << (width - 1);
    x = ptx_is(mode, "rzi") ? trunc(x) : rint(x);
    double high = ldexp(1, is_signed ? (int)width - 1 : (int)width), low = is_signed ? -high : 0;
    if (x >= high) return is_signed ? (UINT64_C(1) << (width - 1)) - 1 : ptx_mask(UINT64_MAX, width);
    if (x <= low) return is_signed ? UINT64_C(1) << (width - 1) : 0;
    return is_signed ? ptx_mask((uint64_t)(int64_t)x, width) : (uint64_t)x;
}

static inline bool ptx_rounds_whole(const char *mode) {
    return mode[0] == 'r' && mode[1] != '\0' && mode[2] == 'i';
}

/* To a whole number: rni, rzi, rmi, rpi. */
static inline double ptx_whole(const char *mode, double x) {
    return mode[1] == 'n' ? rint(x) : mode[1] == 'z' ? trunc(x) : mode[1] == 'm' ? floor(x) : ceil(x);
}

static inline uint64_t ptx_to_f32(const char *mode, long double x) {
    float nearest = (float)x;
    if (isnan(x)) return 0x7fc12345;
    if (ptx_rounds_whole(mode)) return tvm_f32_bits((float)ptx_whole(mode, (double)x));
    if (ptx_is(mode, "rz") && fabsl((long double)nearest) > fabsl(x)) nearest = nextafterf(nearest, 0);
    return tvm_f32_bits(nearest);
}

/* An OFP8 byte as f16; a NaN is canonical, as the PTX ISA has it for conversions to f16. */
static inline uint16_t ptx_ofp8_to_f16(uint8_t code, bool e5m2) {
    unsigned mantissa = e5m2 ? 2 : 3, magnitude = code & 0x7f, field = magnitude >> mantissa;
    int bias = e5m2 ? 15 : 7;
    double value = magnitude & ((1u << mantissa) - 1);
    if (e5m2 ? magnitude > 0x7c : magnitude == 0x7f) return 0x7fff;
    if (e5m2 && magnitude == 0x7c) return code & 0x80 ? 0xfc00 : 0x7c00;
    if (field) value += 1u << mantissa;
    value = ldexp(value, (field ? (int)field : 1) - bias - (int)mantissa);
    return tvm_f64_to_f16(code & 0x80 ? -value : value);
}

static inline uint64_t ptx_convert(const ptx_insn *insn, const uint64_t v[3]) {
    const char *from = insn->part[insn->parts - 1], *to = insn->part[insn->parts - 2],
               *mode = insn->parts > 3 ? insn->part[1] : "";
    if (ptx_is(from, "e4m3x2") || ptx_is(from, "e5m2x2")) {
        bool e5m2 = from[1] == '5';
        ptx_must(ptx_is(to, "f16x2"), "ptx: unknown %s", insn->text);
        return (uint64_t)ptx_ofp8_to_f16((uint8_t)(v[0] >> 8), e5m2) << 16 |
               ptx_ofp8_to_f16((uint8_t)v[0], e5m2);
    }
    if (ptx_is(to, "e4m3x2") || ptx_is(to, "e5m2x2")) {
        tvm_dtype type = to[1] == '5' ? TVM_FLOAT(8, 5, 2) : TVM_FLOAT(8, 4, 3);
        ptx_must(ptx_is(insn->part[2], "satfinite"), "ptx: unknown %s", insn->text);
        if (ptx_is(from, "f16x2"))
            return tvm_encode(type, (double)tvm_f16_to_f32((uint16_t)(v[0] >> 16))) << 8 |
                   tvm_encode(type, (double)tvm_f16_to_f32((uint16_t)v[0]));
        ptx_must(ptx_is(from, "f32"), "ptx: unknown %s", insn->text);
        return tvm_encode(type, (double)tvm_f32_from_bits((uint32_t)v[0])) << 8 |
               tvm_encode(type, (double)tvm_f32_from_bits((uint32_t)v[1]));
    }
    if (ptx_is(to, "f16x2") || ptx_is(to, "bf16x2")) {
        float high = tvm_f32_from_bits((uint32_t)v[0]), low = tvm_f32_from_bits((uint32_t)v[1]);
        bool bf16 = to[0] == 'b';
        uint32_t upper = bf16 ? tvm_f32_to_bf16(high) : tvm_f32_to_f16(high);
        return upper << 16 | (bf16 ? tvm_f32_to_bf16(low) : tvm_f32_to_f16(low));
    }
    long double x;
    if (from[0] == 'f') {
        x = ptx_is(from, "f64")   ? tvm_f64_from_bits(v[0])
            : ptx_is(from, "f32") ? (double)tvm_f32_from_bits((uint32_t)v[0])
                                  : (double)tvm_f16_to_f32((uint16_t)v[0]);
        if (to[0] == 'u' || to[0] == 's') return ptx_to_integer(mode, to, !ptx_is(from, "f64"), (double)x);
    } else {
        unsigned width = (unsigned)strtoul(from + 1, NULL, 10);
        uint64_t value = ptx_mask(v[0], width);
        int64_t number = ptx_signed(value, width);
        if (to[0] == 'u' || to[0] == 's') return from[0] == 's' ? (uint64_t)number : value;
        x = from[0] == 's' ? (long double)number : (long double)value;
    }
    if (ptx_is(to, "f16")) return tvm_f64_to_f16((double)x);
    if (ptx_is(to, "bf16")) return tvm_f64_to_bf16((double)x);
    if (ptx_is(to, "f32")) return ptx_to_f32(mode, x);
    return ptx_from_double(ptx_rounds_whole(mode) ? ptx_whole(mode, (double)x) : (double)x);
}

static inline bool ptx_float_test(const char *test, double a, double b) {
    if (ptx_is(test, "nan")) return isnan(a) || isnan(b);
    if (ptx_is(test, "neu")) return !(a == b);
    if (ptx_is(test, "eq")) return a == b;
    if (ptx_is(test, "lt")) return a < b;
    if (ptx_is(test, "le")) return a <= b;
    if (ptx_is(test, "gt")) return a > b;
    ptx_must(ptx_is(test, "ge"), "ptx: unknown comparison %s", test);
    return a >= b;
}

static inline bool ptx_compare(const ptx_insn *insn, const uint64_t v[3]) {
    const char *test = insn->part[1], *type = insn->part[insn->parts - 1];
    if (ptx_is(type, "f64")) return ptx_float_test(test, tvm_f64_from_bits(v[0]), tvm_f64_from_bits(v[1]));
    if (ptx_is(type, "f32"))
        return ptx_float_test(test, (double)tvm_f32_from_bits((uint32_t)v[0]),
                              (double)tvm_f32_from_bits((uint32_t)v[1]));
    unsigned width = insn->width;
    uint64_t a = ptx_mask(v[0], width), b = ptx_mask(v[1], width);
    int64_t x = ptx_signed(a, width), y = ptx_signed(b, width);
    bool less = type[0] == 's' ? x < y : a < b;
    if (ptx_is(test, "eq")) return a == b;
    if (ptx_is(test, "ne")) return a != b;
    if (ptx_is(test, "lt") || ptx_is(test, "lo")) return less;
    if (ptx_is(test, "le") || ptx_is(test, "ls")) return less || a == b;
    if (ptx_is(test, "gt") || ptx_is(test, "hi")) return !less && a != b;
    return !less;
}

/* setp.TEST.TYPE p, a, b, and setp.TEST.and.TYPE p, a, b, q (or: or). */
static inline bool ptx_test(const ptx_insn *insn, const uint64_t v[3]) {
    bool result = ptx_compare(insn, v);
    if (insn->operands < 4) return result;
    bool both = ptx_is(insn->part[2], "and");
    ptx_must(both || ptx_is(insn->part[2], "or"), "ptx: unknown %s", insn->text);
    return both ? result && v[2] : result || v[2];
}

/* ---- bits ---- */

static inline uint64_t ptx_permute(uint64_t low, uint64_t high, uint64_t selector) {
    uint64_t bytes = (low & UINT32_MAX) | high << 32, result = 0;
    for (unsigned i = 0; i < 4; i++) {
        unsigned digit = (unsigned)(selector >> (4 * i)) & 15;
        uint64_t byte = bytes >> (8 * (digit & 7)) & 0xff;
        if (digit & 8) byte = byte & 0x80 ? 0xff : 0;
        result |= byte << (8 * i);
    }
    return result;
}

static inline uint64_t ptx_lop3(uint32_t a, uint32_t b, uint32_t c, uint64_t table) {
    uint32_t result = 0;
    for (unsigned i = 0; i < 8; i++)
        if (table >> i & 1) result |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
    return result;
}

static inline uint64_t ptx_shift(const ptx_insn *insn, uint64_t a, uint64_t by) {
    unsigned width = ptx_bits(insn);
    if (insn->part[0][2] == 'l') return by >= width ? 0 : a << by;
    if (insn->part[1][0] == 's') return (uint64_t)(ptx_signed(a, width) >> (by >= width ? width - 1 : by));
    return by >= width ? 0 : a >> by;
}

static inline uint64_t ptx_bit_field(const ptx_insn *insn, const uint64_t v[5]) {
    if (insn->op == PTX_OP_bfi) {
        uint64_t mask = ptx_mask(UINT64_MAX, (unsigned)v[3]) << v[2];
        return (v[1] & ~mask) | (v[0] << v[2] & mask);
    }
    uint64_t field = ptx_mask(v[0] >> v[1], (unsigned)v[2]);
    return insn->part[1][0] == 's' && v[2] ? (uint64_t)ptx_signed(field, (unsigned)v[2]) : field;
}

/* The value that an instruction with one destination gives a thread. */
static inline uint64_t ptx_value(const ptx_insn *insn, const uint64_t v[5]) {
    const ptx_op op = insn->op;
    if (op == PTX_OP_mov || op == PTX_OP_cvta) return v[0];
    if (op == PTX_OP_createpolicy) return UINT64_C(0xcac4e00000000001); /* whatever: a hint changes nothing */
    if (op == PTX_OP_and) return v[0] & v[1];
    if (op == PTX_OP_or) return v[0] | v[1];
    if (op == PTX_OP_xor) return v[0] ^ v[1];
    if (op == PTX_OP_not) return insn->part[1][0] == 'p' ? !v[0] : ~v[0];
    if (op == PTX_OP_shl || op == PTX_OP_shr) return ptx_shift(insn, v[0], v[1]);
    if (op == PTX_OP_shf) {
        uint64_t both = (v[1] & UINT32_MAX) << 32 | (v[0] & UINT32_MAX);
        return insn->part[1][0] == 'l' ? both << (v[2] & 31) >> 32 : both >> (v[2] & 31);
    }
    if (op == PTX_OP_popc) return (uint64_t)__builtin_popcountll(ptx_mask(v[0], ptx_bits(insn)));
    if (op == PTX_OP_copysign) {
        uint64_t sign = ptx_is(insn->part[1], "f64") ? UINT64_C(1) << 63 : UINT64_C(1) << 31;
        return (v[0] & sign) | (v[1] & (sign - 1));
    }
    if (op == PTX_OP_lop3) return ptx_lop3((uint32_t)v[0], (uint32_t)v[1], (uint32_t)v[2], v[3]);
    if (op == PTX_OP_prmt) return ptx_permute(v[0], v[1], v[2]);
    if (op == PTX_OP_bfe || op == PTX_OP_bfi) return ptx_bit_field(insn, v);
    if (op == PTX_OP_selp) return v[2] ? v[0] : v[1];
    if (op == PTX_OP_setp) return ptx_test(insn, v);
    if (op == PTX_OP_cvt) return ptx_convert(insn, v);
    if (op == PTX_OP_OTHER && ptx_function(insn) != NULL) return ptx_function_value(insn, v[0]);
    return ptx_arithmetic(insn, v);
}

/* ---- atomic operations ---- */

static inline uint64_t ptx_atomic_word(const ptx_insn *insn, const char *op, const char *type, uint64_t old,
                                       const uint64_t v[2]) {
    if (ptx_is(op, "exch")) return v[0];
    if (ptx_is(op, "cas")) return old == v[0] ? v[1] : old;
    if (ptx_is(op, "and")) return old & v[0];
    if (ptx_is(op, "or")) return old | v[0];
    if (ptx_is(op, "xor")) return old ^ v[0];
    if (ptx_is(op, "inc")) return old >= v[0] ? 0 : old + 1;
    const uint64_t operands[3] = {old, v[0], 0};
    ptx_insn plain = *insn;
    plain.op = ptx_op_of(op); /* what it is called among those of registers */
    plain.width = (unsigned)strtoul(type + 1, NULL, 10);
    plain.part[1][0] = '\0';
    if (ptx_is(type, "f16x2") || ptx_is(type, "bf16x2"))
        return ptx_half_op(&plain, type[0] == 'b', operands, 0) |
               ptx_half_op(&plain, type[0] == 'b', operands, 16);
    if (ptx_is(type, "f16") || ptx_is(type, "bf16")) return ptx_half_op(&plain, type[0] == 'b', operands, 0);
    if (ptx_is(type, "f32")) return ptx_f32_op(&plain, operands);
    if (ptx_is(type, "f64"))
        return ptx_from_double(
            ptx_float_op(&plain, tvm_f64_from_bits(old), tvm_f64_from_bits(v[0]), 0, false));
    return ptx_integer_op(&plain, type, operands);
}

#endif
