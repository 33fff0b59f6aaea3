#include "value.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

unsigned value_types(value_type types[VALUE_TYPES]) {
    unsigned count = 0;
    for (unsigned bits = 1; bits <= 8; bits++) types[count++] = (value_type){.kind = 'u', .bits = bits};
    for (unsigned bits = 2; bits <= 8; bits++) types[count++] = (value_type){.kind = 'i', .bits = bits};
    for (unsigned bits = 3; bits <= 8; bits++)
        for (unsigned exponent = 1; exponent < bits; exponent++)
            types[count++] = (value_type){"", 'f', bits, exponent, bits - 1 - exponent};
    for (unsigned i = 0; i < count; i++) {
        value_type *t = &types[i];
        if (t->kind == 'f')
            snprintf(t->name, sizeof t->name, "f%u_e%um%u", t->bits % 10, t->exponent % 10, t->mantissa % 10);
        else
            snprintf(t->name, sizeof t->name, "%c%u", t->kind, t->bits % 10);
    }
    return count;
}

bool value_type_named(const char *name, value_type *type) {
    static const value_type wide[] = {
        {"f16", 'f', 16, 5, 10}, {"bf16", 'f', 16, 8, 7}, {"f32", 'f', 32, 8, 23}};
    value_type low[VALUE_TYPES];
    unsigned count = value_types(low);
    for (unsigned i = 0; i < sizeof wide / sizeof *wide; i++)
        if (!strcmp(wide[i].name, name)) {
            *type = wide[i];
            return true;
        }
    for (unsigned i = 0; i < count; i++)
        if (!strcmp(low[i].name, name)) {
            *type = low[i];
            return true;
        }
    return false;
}

static int bias(const value_type *type) {
    return (1 << (type->exponent - 1)) - 1;
}

/* Which types set codes aside: f8_e4m3 its largest magnitude (NaN); f8_e5m2 and the wide ones their largest
 * exponent (infinity and NaN). */
static bool is_special(const value_type *type, uint32_t exponent, uint32_t mantissa) {
    if (exponent != (1u << type->exponent) - 1) return false;
    if (type->bits == 8 && type->exponent == 4) return mantissa == 7;
    return type->bits > 8 || (type->bits == 8 && type->exponent == 5);
}

double value_of(const value_type *type, uint32_t code) {
    if (type->kind == 'u') return (double)code;
    if (type->kind == 'i') {
        uint32_t sign = 1u << (type->bits - 1);
        return (double)(int32_t)((code ^ sign) - sign);
    }
    uint32_t mantissa = code & ((1u << type->mantissa) - 1);
    uint32_t exponent = code >> type->mantissa & ((1u << type->exponent) - 1);
    bool negative = code >> (type->bits - 1) & 1;
    double value;
    if (is_special(type, exponent, mantissa))
        value = mantissa == 0 ? INFINITY : NAN;
    else if (exponent)
        value = ldexp((double)(mantissa | 1u << type->mantissa),
                      (int)exponent - bias(type) - (int)type->mantissa);
    else
        value = ldexp((double)mantissa, 1 - bias(type) - (int)type->mantissa);
    return negative ? -value : value;
}

uint32_t value_code(const value_type *type, double value) {
    int exponent;
    uint32_t sign = signbit(value) ? 1u << (type->bits - 1) : 0;
    double fraction = frexp(fabs(value), &exponent); /* in [1/2, 1) */
    if (fraction == 0) return sign;
    uint32_t mantissa = (uint32_t)ldexp(fraction, (int)type->mantissa + 1); /* with the leading one */
    int field = exponent - 1 + bias(type);
    if (field < 1) { /* subnormal */
        mantissa = field < -31 ? 0 : mantissa >> (1 - field);
        field = 0;
    }
    return sign | (uint32_t)field << type->mantissa | (mantissa & ((1u << type->mantissa) - 1));
}

/* ---- random weights ---- */

/* The code that stands for each random one. */
static bool substitutes(const value_type *type, uint8_t table[256]) {
    bool any = false;
    for (uint32_t code = 0; code < 1u << type->bits; code++) {
        table[code] = (uint8_t)code;
        if (type->kind != 'f') continue;
        uint32_t exponent = code >> type->mantissa & ((1u << type->exponent) - 1);
        uint32_t limit = (uint32_t)bias(type) + 4;
        if (type->exponent >= 5 && exponent > limit) {
            uint32_t other = code & ~(((1u << type->exponent) - 1) << type->mantissa);
            table[code] = (uint8_t)(other | (limit - exponent % 8) << type->mantissa);
        } else if (is_special(type, exponent, code & ((1u << type->mantissa) - 1))) {
            table[code] = (uint8_t)(code - 1);
        }
        any |= table[code] != code;
    }
    return any;
}

void value_fill(bench *b, const value_type *type, uint8_t *to, size_t count) {
    uint8_t table[256];
    if (!substitutes(type, table)) {
        bench_fill_random(b, to, count / 8 * type->bits);
        return;
    }
    for (; count >= 8; count -= 8, to += type->bits) {
        uint64_t random = bench_random(b), word = 0;
        for (unsigned i = 0; i < 8; i++) {
            uint64_t code = table[random >> 8 * i & ((1u << type->bits) - 1)];
            word |= code << i * type->bits;
        }
        for (unsigned i = 0; i < type->bits; i++) to[i] = (uint8_t)(word >> 8 * i);
    }
}
