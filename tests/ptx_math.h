/* Inside ptx_machine.h: the functions of floats that PTX has, the approximate ones exact. */
#ifndef TVM_TESTS_PTX_MATH_H
#define TVM_TESTS_PTX_MATH_H

#include <math.h>

#include "ptx_state.h"

static inline double ptx_reciprocal(double x) {
    return 1 / x;
}

static inline double ptx_reciprocal_root(double x) {
    return 1 / sqrt(x);
}

/* The function that an instruction is; NULL: none. */
static inline double (*ptx_function(const ptx_insn *insn))(double) {
    static const struct {
        const char *op;
        double (*function)(double);
    } all[] = {{"ex2", exp2}, {"lg2", log2}, {"rcp", ptx_reciprocal}, {"rsqrt", ptx_reciprocal_root},
               {"sin", sin},  {"cos", cos},  {"tanh", tanh},          {"sqrt", sqrt}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (ptx_is(insn->part[0], all[i].op)) return all[i].function;
    return NULL;
}

static inline uint64_t ptx_function_value(const ptx_insn *insn, uint64_t x) {
    double (*function)(double) = ptx_function(insn);
    const char *type = insn->part[insn->parts - 1];
    if (ptx_is(type, "f32")) return ptx_from_float((float)function((double)tvm_f32_from_bits((uint32_t)x)));
    if (ptx_is(type, "f64")) {
        double value = function(tvm_f64_from_bits(x));
        return isnan(value) ? UINT64_C(0x7ff8dead0000beef) : tvm_f64_bits(value);
    }
    bool bf16 = ptx_is(type, "bf16x2");
    ptx_must(bf16 || ptx_is(type, "f16x2"), "ptx: unknown %s", insn->text);
    uint64_t both = 0;
    for (unsigned shift = 0; shift < 32; shift += 16) {
        uint16_t code = (uint16_t)(x >> shift);
        double value = function((double)(bf16 ? tvm_bf16_to_f32(code) : tvm_f16_to_f32(code)));
        both |= (uint64_t)(bf16 ? tvm_f64_to_bf16(value) : tvm_f64_to_f16(value)) << shift;
    }
    return both;
}

#endif
