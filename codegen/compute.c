#include "compute.h"

#include <stdio.h>
#include <string.h>

unsigned body_lines(const emitter *e, size_t from) {
    unsigned lines = 0;
    if (e->body.failed) return 0;
    for (size_t i = from; i < e->body.size; i++) lines += e->body.data[i] == '\n';
    return lines;
}

tvm_status select_candidate(emitter *e, const candidate *candidates, size_t count, void *work,
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
    if (!candidates[chosen].emit(e, work)) return tvm_diag_no_memory(e->diags);
    char name[80];
    snprintf(name, sizeof name, "%s%s%s", candidates[chosen].name, detail ? " " : "", detail ? detail : "");
    explain(e, name, 0, body_lines(e, before), -1, refused);
    return TVM_OK;
}

bool is_half(tvm_dtype type) {
    return type.kind == TVM_KIND_FLOAT && type.bits == 16;
}

reg new_element(emitter *e, tvm_dtype type) {
    if (type.kind == TVM_KIND_FLOAT && type.bits == 64) return new_fd(e);
    if (type.kind == TVM_KIND_FLOAT && type.bits == 32) return new_f(e);
    if (is_half(type)) return new_h(e);
    return type.bits == 64 ? new_rd(e) : new_r(e);
}

const char *element_suffix(tvm_dtype type) {
    if (type.kind == TVM_KIND_FLOAT && type.bits == 64) return "f64";
    if (type.kind == TVM_KIND_FLOAT && type.bits == 32) return "f32";
    if (is_half(type)) return "b16";
    return type.bits == 64 ? "b64" : "b32";
}

const char *arithmetic_suffix(tvm_dtype type) {
    if (type.kind == TVM_KIND_FLOAT) return type.bits == 64 ? "f64" : "f32";
    if (type.kind == TVM_KIND_INT) return type.bits == 64 ? "s64" : "s32";
    return type.bits == 64 ? "u64" : "u32";
}

reg pack_pair(emitter *e, reg low, reg high) {
    reg word = new_r(e);
    emit(e, "mov.b32 %s, {%s, %s};", word.name, low.name, high.name);
    return word;
}

reg constant_word(emitter *e, uint32_t value) {
    reg word = new_r(e);
    emit(e, "mov.b32 %s, 0x%08x;", word.name, (unsigned)value);
    return word;
}

reg half_to_f32(emitter *e, tvm_dtype type, reg half) {
    reg value = new_f(e);
    if (type.exponent == 5) {
        emit(e, "cvt.f32.f16 %s, %s;", value.name, half.name);
        return value;
    }
    reg zero = new_h(e);
    emit(e, "mov.b16 %s, 0;", zero.name);
    emit(e, "mov.b32 %s, {%s, %s};", value.name, zero.name, half.name);
    return value;
}

reg f32_to_half(emitter *e, tvm_dtype type, reg value) {
    reg half = new_h(e);
    emit(e, "cvt.rn.%s.f32 %s, %s;", type.exponent == 5 ? "f16" : "bf16", half.name, value.name);
    return half;
}

reg extend_code(emitter *e, tvm_dtype type, reg value) {
    if (type.kind != TVM_KIND_INT || type.bits >= 32) return value;
    reg extended = new_r(e);
    emit(e, "bfe.s32 %s, %s, 0, %u;", extended.name, value.name, (unsigned)type.bits);
    return extended;
}
