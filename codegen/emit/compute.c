#include "compute.h"

#include <stdio.h>
#include <string.h>

unsigned tvm_body_lines(const emitter *e, size_t from) {
    unsigned lines = 0;
    if (e->body.failed) return 0;
    for (size_t i = from; i < e->body.size; i++) lines += e->body.data[i] == '\n';
    return lines;
}

tvm_status tvm_select_candidate(emitter *e, const candidate *candidates, size_t count, void *work,
                                const char *detail) {
    char refused[256] = "";
    size_t used = 0, chosen = 0;
    for (; chosen + 1 < count; chosen++) {
        const char *why = candidates[chosen].refuse(e, work);
        if (!why) break;
        if (!*why) continue;
        int n = snprintf(refused + used, sizeof refused - used, "%s%s: %s", used ? "; " : "",
                         candidates[chosen].name, why);
        used = n < 0 || (size_t)n >= sizeof refused - used ? sizeof refused - 1 : used + (size_t)n;
    }
    size_t before = e->body.size;
    if (!candidates[chosen].emit(e, work)) return tvm_diag_no_memory(e->k->diags);
    char name[80];
    snprintf(name, sizeof name, "%s%s%s", candidates[chosen].name, detail ? " " : "", detail ? detail : "");
    tvm_explain(e, name, 0, tvm_body_lines(e, before), -1, refused);
    return TVM_OK;
}

reg tvm_new_element(emitter *e, tvm_dtype type) {
    if (type.kind == TVM_KIND_FLOAT && type.bits == 64) return tvm_new_fd(e);
    if (type.kind == TVM_KIND_FLOAT && type.bits == 32) return tvm_new_f(e);
    if (tvm_is_half(type)) return tvm_new_h(e);
    return type.bits == 64 ? tvm_new_rd(e) : tvm_new_r(e);
}

const char *tvm_element_suffix(tvm_dtype type) {
    if (type.kind == TVM_KIND_FLOAT && type.bits == 64) return "f64";
    if (type.kind == TVM_KIND_FLOAT && type.bits == 32) return "f32";
    if (tvm_is_half(type)) return "b16";
    return type.bits == 64 ? "b64" : "b32";
}

const char *tvm_arithmetic_suffix(tvm_dtype type) {
    if (type.kind == TVM_KIND_FLOAT) return type.bits == 64 ? "f64" : "f32";
    if (type.kind == TVM_KIND_INT) return type.bits == 64 ? "s64" : "s32";
    return type.bits == 64 ? "u64" : "u32";
}

const char *tvm_test_name(tvm_compare test, tvm_dtype type) {
    return test == TVM_NE && type.kind == TVM_KIND_FLOAT ? "neu" : tvm_compare_names[test];
}

reg tvm_pack_pair(emitter *e, reg low, reg high) {
    reg word = tvm_new_r(e);
    tvm_emit(e, "mov.b32 %s, {%s, %s};", word.name, low.name, high.name);
    return word;
}

reg tvm_constant_word(emitter *e, uint32_t value) {
    reg word = tvm_new_r(e);
    tvm_emit(e, "mov.b32 %s, 0x%08x;", word.name, (unsigned)value);
    return word;
}

reg tvm_half_to_f32(emitter *e, tvm_dtype type, reg half) {
    return tvm_half_to_f32_in(e, type, half, tvm_new_f(e));
}

reg tvm_half_to_f32_in(emitter *e, tvm_dtype type, reg half, reg value) {
    if (type.exponent == 5) {
        tvm_emit(e, "cvt.f32.f16 %s, %s;", value.name, half.name);
        return value;
    }
    reg zero = tvm_new_h(e);
    tvm_emit(e, "mov.b16 %s, 0;", zero.name);
    tvm_emit(e, "mov.b32 %s, {%s, %s};", value.name, zero.name, half.name);
    return value;
}

reg tvm_f32_to_half(emitter *e, tvm_dtype type, reg value) {
    reg half = tvm_new_h(e);
    tvm_emit(e, "cvt.rn.%s.f32 %s, %s;", type.exponent == 5 ? "f16" : "bf16", half.name, value.name);
    return half;
}

reg tvm_extend_code(emitter *e, tvm_dtype type, reg value) {
    if (type.kind != TVM_KIND_INT || type.bits >= 32) return value;
    reg extended = tvm_new_r(e);
    tvm_emit(e, "bfe.s32 %s, %s, 0, %u;", extended.name, value.name, (unsigned)type.bits);
    return extended;
}
