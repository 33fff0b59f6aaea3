/* Packings: in which bits of a thread's storage the elements of a register tensor lie.
 *
 * `linear` is the compact bit string: element i is bits [i*w, (i+1)*w). `pair` is for low-precision types of
 * w bits: elements 2i and 2i+1, a pair, come out of a 32-bit word at once. Pairs come in blocks that fill
 * whole words; a recipe says where the pairs of a block lie, by saying how to reach them: it lists views,
 * which are words made from those of the block, and for each pair a view in which its bits have a form that
 * conversion needs. Integers lie in runs, at one offset of both halves below bit 10, so that they fit the
 * mantissa of f16; floats lie as f16 or bytes of an 8-bit float have them, the sign apart from the rest
 * (floats of 3 bits lie otherwise: see vasm(5)). A recipe has as few views beyond the block's own words
 * as was found: each is one instruction. The sign bits of signed integers are stored complemented: they then
 * are unsigned numbers less a constant. */
#ifndef TVM_ISA_PACKING_H
#define TVM_ISA_PACKING_H

#include "types.h"

typedef enum tvm_packing { TVM_PACKING_LINEAR, TVM_PACKING_PAIR, TVM_PACKING_COUNT } tvm_packing;
extern const char *const tvm_packing_names[TVM_PACKING_COUNT];

/* Has the type this packing? pair: low-precision types alone. */
bool tvm_packing_takes(tvm_packing packing, tvm_dtype type);
/* A thread's elements must be a multiple of this many: 1 for linear. */
uint32_t tvm_packing_block(tvm_packing packing, tvm_dtype type);
/* The definition: the bit of a thread's bit string that holds bit `bit` of the thread's element `element`
 * (its local index). The type must take the packing. */
uint32_t tvm_packing_bit(tvm_packing packing, tvm_dtype type, uint32_t element, unsigned bit);

/* The bits of a code that are stored complemented. */
uint32_t tvm_packing_complement(tvm_packing packing, tvm_dtype type);

/* Neighbouring bits of a code that are neighbours in the string, too: `count` bits from bit `at` of the code
 * on lie from bit `bit` of the string on. */
typedef struct tvm_packing_run {
    uint32_t bit;
    uint8_t at, count;
} tvm_packing_run;
enum { TVM_PACKING_RUNS = 8 };
/* The runs of an element, from the code's lowest bit up; returns how many. */
unsigned tvm_packing_runs(tvm_packing packing, tvm_dtype type, uint32_t element,
                          tvm_packing_run runs[TVM_PACKING_RUNS]);

/* ---- recipes ---- */

typedef enum tvm_view_op {
    TVM_VIEW_SHIFT,  /* a >> amount, where no bit that is used leaves its half */
    TVM_VIEW_ROTATE, /* a rotated right by amount */
    TVM_VIEW_BYTES, /* low byte of each half: byte amount % 2 of that half of a; high byte: byte amount / 2 of
                       b's */
    TVM_VIEW_SELECT /* each half: a where amount has ones, else b */
} tvm_view_op;

typedef struct tvm_pair_view {
    uint8_t op, a, b; /* views: those below `words` are the block's words */
    uint16_t amount;
} tvm_pair_view;

/* Where a view has a pair. */
typedef enum tvm_pair_form {
    TVM_FORM_RUN,    /* in the two halves: the code from bit `offset` up */
    TVM_FORM_HALVES, /* in the two halves: `offset` bits below their places, the sign at the top and exponent
                        and mantissa from bit tvm_pair_low up, which is where tvm_pair_target has them or
                        lower */
    TVM_FORM_BYTES   /* in two neighbouring bytes of the view, the lower two when `offset` is 8, the upper two
                        when   it is 0: sign, exponent and mantissa in their places in f8_e4m3, or f8_e5m2
                        itself
                      */
} tvm_pair_form;
tvm_pair_form tvm_pair_form_of(tvm_dtype type);

typedef struct tvm_pair_field {
    uint8_t view, offset;
} tvm_pair_field;

/* The bit of the view, of 32, that holds bit `bit` of the pair's first (odd 0) or second (odd 1) code. */
unsigned tvm_pair_place(tvm_dtype type, const tvm_pair_field *field, unsigned odd, unsigned bit);

/* The type that floats are packed for: f16, or bf16 where in f16's places the largest of them would be
 * infinity, or their exponents have no room. */
tvm_dtype tvm_pair_target(tvm_dtype type);
/* Form HALVES: the place of the mantissa's lowest bit. */
unsigned tvm_pair_low(tvm_dtype type);
/* log2 of the power of two by which a value is larger than what its bits in place are as tvm_pair_target
 * (form HALVES), or are converted to (BYTES); 0 for other types. A conversion to that type ends with a
 * multiplication by it. */
int tvm_pair_exponent(tvm_dtype type);

enum { TVM_PAIR_VIEWS = 32, TVM_PAIR_FIELDS = 16 };

typedef struct tvm_pair_recipe {
    uint8_t words, views, pairs; /* of a block; views besides its words */
    tvm_pair_view view[TVM_PAIR_VIEWS];
    tvm_pair_field field[TVM_PAIR_FIELDS];
} tvm_pair_recipe;

/* The recipe of `pair` for a type that has one: low-precision types but floats of 3 bits; else NULL. */
const tvm_pair_recipe *tvm_pair_recipe_of(tvm_dtype type);

#endif
