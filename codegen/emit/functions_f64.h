/* Inside the code generator: functions of f64, of which PTX has none but roots, as sequences (sequence.h) of
 * %x, and of %x and %y. How far their results are from the exact ones is in vasm(5). */
#ifndef TVM_CODEGEN_FUNCTIONS_F64_H
#define TVM_CODEGEN_FUNCTIONS_F64_H

extern const char tvm_exp_f64[], tvm_exp2_f64[], tvm_log_f64[], tvm_log2_f64[], tvm_pow_f64[], tvm_tanh_f64[],
    tvm_sinh_f64[], tvm_cosh_f64[], tvm_erf_f64[], tvm_sin_f64[], tvm_cos_f64[], tvm_tan_f64[],
    tvm_atan2_f64[];

/* The remainder of x / y with the sign of x, exactly; that of f32 is computed in f64. */
extern const char tvm_mod_f64[], tvm_mod_f32[];

#endif
