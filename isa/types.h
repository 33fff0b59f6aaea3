/* Data types of tensor elements and scalars, and exact conversions between their bit codes and host numbers.
 *
 * Standard types: bool, i8..i64, u8..u64, f16, bf16, tf32, f32, f64, e8m0.
 * Low-precision types ("low-bit"): u1..u8, i2..i8, and fN_eXmY for N = 3..8 and every split 1 + X + Y = N
 * with X >= 1, Y >= 0. u8 and i8 are both. f8_e4m3 and f8_e5m2 are those of the OCP 8-bit floating point
 * specification (OFP8) revision 1.0 with their NaN and infinity; f6_e3m2, f6_e2m3 and f4_e2m1 those of the
 * OCP Microscaling formats (MX) specification 1.0; all others have neither infinity nor NaN, have subnormals,
 * and bias 2^(X-1)-1.
 *
 * e8m0 is the type of scales of MX: code c is 2^(c-127), 255 is NaN; there is neither sign, zero nor
 * infinity.
 *
 * A *code* is an element's bits in the low `bits` of a uint64_t, the rest zero. tf32 is held as the upper 19
 * bits of an f32; its 13 lower bits are written as zero (ones in the canonical NaN) and ignored when read, as
 * mma does. */
#ifndef TVM_ISA_TYPES_H
#define TVM_ISA_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "convert.h"

typedef enum tvm_kind {
    TVM_KIND_NONE = 0,
    TVM_KIND_BOOL,
    TVM_KIND_UINT,
    TVM_KIND_INT,
    TVM_KIND_FLOAT
} tvm_kind;

/* Passed by value. bits: width in memory (tf32: 32, bool: 8 with codes 0 and 1). exponent, mantissa: field
 * widths of a float, else 0. Two dtypes are the same type exactly if all four members are equal. */
typedef struct tvm_dtype {
    uint8_t kind;
    uint8_t bits;
    uint8_t exponent;
    uint8_t mantissa;
} tvm_dtype;

#define TVM_BOOL           ((tvm_dtype){TVM_KIND_BOOL, 8, 0, 0})
#define TVM_I(n)           ((tvm_dtype){TVM_KIND_INT, (n), 0, 0})
#define TVM_U(n)           ((tvm_dtype){TVM_KIND_UINT, (n), 0, 0})
#define TVM_FLOAT(n, e, m) ((tvm_dtype){TVM_KIND_FLOAT, (n), (e), (m)})
#define TVM_F16            TVM_FLOAT(16, 5, 10)
#define TVM_BF16           TVM_FLOAT(16, 8, 7)
#define TVM_TF32           TVM_FLOAT(32, 8, 10)
#define TVM_F32            TVM_FLOAT(32, 8, 23)
#define TVM_F64            TVM_FLOAT(64, 11, 52)
#define TVM_E8M0           TVM_FLOAT(8, 8, 0)

enum { TVM_DTYPE_NAME_MAX = 16, TVM_DTYPE_COUNT_MAX = 64 };

static inline bool tvm_dtype_same(tvm_dtype a, tvm_dtype b) {
    return a.kind == b.kind && a.bits == b.bits && a.exponent == b.exponent && a.mantissa == b.mantissa;
}

/* Is this one of the types named above? (Anything else may come out of a hostile file.) */
bool tvm_dtype_valid(tvm_dtype type);

/* Writes the name ("u3", "f6_e3m2", "bf16") into name and returns it. */
const char *tvm_dtype_name(tvm_dtype type, char name[TVM_DTYPE_NAME_MAX]);
/* The same in a buffer that lives as long as the block around. */
#define TVM_DTYPE_TEXT(type) tvm_dtype_name(type, (char[TVM_DTYPE_NAME_MAX]){0})

/* Parses exactly `length` bytes of text; false when they name no type. */
bool tvm_dtype_parse(const char *text, size_t length, tvm_dtype *type);

/* Every valid type, in a fixed order: standard ones first. Writes at most `capacity`, returns how many exist.
 */
size_t tvm_dtype_list(tvm_dtype *types, size_t capacity);

bool tvm_dtype_is_lowbit(tvm_dtype type);     /* u1..u8, i2..i8, f3..f8 */
bool tvm_dtype_is_integer(tvm_dtype type);    /* INT or UINT */
bool tvm_dtype_is_arithmetic(tvm_dtype type); /* add, mul, ...: i8..i64 u8..u64 f16 bf16 f32 f64 */
bool tvm_dtype_is_scalar(tvm_dtype type);     /* of a run-time scalar: bool i32 u32 i64 u64 f32 f64 */

/* The type of scalar that holds an element of this type: i32 for integers under 32 bits, f32 for f16 and
 * bf16. False: none does, of tf32 and low-precision types other than u8 and i8. */
bool tvm_dtype_scalar_of(tvm_dtype type, tvm_dtype *scalar);

/* Elements in the shortest run that is whole bytes: 2 of 4 bits, 8 of 3 bits, 1 of 8 bits and more. */
uint32_t tvm_bits_whole(unsigned bits);

/* Bytes of the power-of-two container an element is held in on the host, unpacked: 1, 2, 4 or 8. */
unsigned tvm_dtype_container(tvm_dtype type);

/* Float fields. bias of the exponent; has_infinity/has_nan as above. */
int tvm_float_bias(tvm_dtype type);
bool tvm_float_has_infinity(tvm_dtype type);
bool tvm_float_has_nan(tvm_dtype type);

/* The value of a code, exact (i64 and u64 beyond 2^53 are rounded to nearest even). */
double tvm_decode(tvm_dtype type, uint64_t code);

/* The code nearest to a value.
 * Floats: round to nearest, ties to even. Where a type has no mantissa bits (fN_eXm0) a tie takes the larger
 * magnitude (IEEE 754-2019, 4.3.1), except that half of the least one is a tie with zero, which is even.
 * Overflow and infinity: infinity in f16 bf16 tf32 f32 f64; in low-bit floats the largest finite magnitude
 * (saturation, also f8_e5m2 and f8_e4m3). NaN: canonical NaN (sign 0, all other bits one) where the type has
 * NaN, else the largest positive finite value.
 * e8m0: to nearest, ties to the larger power; below 2^-127, zero and negative numbers as well, 2^-127; above
 * 2^127, and infinity, 2^127; NaN is NaN. Integers: round to nearest even, saturating; NaN gives 0. bool:
 * value != 0. */
uint64_t tvm_encode(tvm_dtype type, double value);

/* `cast` between any two types (the definition of the instruction cast, and of cast-lowbit):
 *   integer or bool -> standard integer   two's complement truncation (sign or zero extension first)
 *   integer -> low-bit integer under 8 bits   saturating
 *   float -> standard integer (i8..i64, u8..u64)  toward zero, saturating, NaN -> 0  (PTX cvt.rzi)
 *   float -> low-bit integer under 8 bits         to nearest even, saturating, NaN -> 0
 *   anything -> float              as tvm_encode, one rounding only (i64/u64 to floats included)
 *   a low-precision type -> itself         the code, also of a NaN
 *   anything -> bool               value != 0 (NaN is true)
 * i8/u8 as target of cast-lowbit instead of cast round to nearest even and saturate: pass lowbit = true. */
uint64_t tvm_cast(tvm_dtype to, tvm_dtype from, uint64_t code, bool lowbit);

/* Fast single conversions between f16, bf16 and f32, f64 are inline in convert.h:
 * tvm_f16_to_f32 tvm_f32_to_f16 tvm_f64_to_f16 tvm_bf16_to_f32 tvm_f32_to_bf16 tvm_f64_to_bf16. */

/* Compact bit strings: element i is bits [i*bits, (i+1)*bits) of little-endian bytes. get/set of any width.
 */
uint64_t tvm_bits_get(const uint8_t *string, uint64_t bit, unsigned bits);
void tvm_bits_set(uint8_t *string, uint64_t bit, unsigned bits, uint64_t code);

/* Unpacks `count` elements from bit offset `bit` into containers (tvm_dtype_container bytes each), and back.
 */
void tvm_bits_unpack(tvm_dtype type, const uint8_t *string, uint64_t bit, size_t count, void *containers);
void tvm_bits_pack(tvm_dtype type, uint8_t *string, uint64_t bit, size_t count, const void *containers);

/* An element of a container array as a code, and back. */
uint64_t tvm_container_get(tvm_dtype type, const void *containers, size_t index);
void tvm_container_set(tvm_dtype type, void *containers, size_t index, uint64_t code);

#endif
