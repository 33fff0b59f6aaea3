/* Inside the code generator: weights that mma takes before their conversion is finished.
 *
 * The last step of a conversion to f16 multiplies by a power of two (floats: between the biases), or takes a
 * magic number off (integers). mma is linear in the weights, so both can be done to its f32 sums instead, of
 * which there are far fewer than weights:
 *
 *     sum_k (2^-p w[k]) x[k] = 2^-p sum_k w[k] x[k]      a field of bits, read as a subnormal f16, is w 2^-p
 *     sum_k (w[k] - z) x[k] = sum_k w[k] x[k] - z sum_k x[k]
 *
 * The first is exact: f32 has the range. The power is taken off the group scale that the sums are multiplied
 * by next. The second rounds otherwise than the subtraction before the multiplication does; sum_k x[k] is one
 * more row of weights, all ones, which is computed once for all of them. That row costs an mma for each
 * fragment of activations; where it is more than what it saves, z is taken off the field of bits in the
 * register instead, by an addition of subnormals, which is exact, and the power alone is left to the sums
 * (scaled_weights.subtracted). Where z is the greatest code, as it is of one bit, w - z is minus the code's
 * complement, which costs nothing to take. */
#ifndef TVM_CODEGEN_SCALED_H
#define TVM_CODEGEN_SCALED_H

#include "groups.h"

/* The pattern of groups.h: the conversion of packed codes to f16 that mma alone reads. It is legal where
 * every mma has it as a, adds to zero, and has sums that are only multiplied by what was cast from f16, and
 * where the program allows what rounds otherwise (the second step, by `reassociate`). Taking it sets the
 * slots' `scaled`. */
bool tvm_scaled_matches(kernel_state *k, group_match *g);
const char *tvm_scaled_refuse(kernel_state *k, const group_match *g);
const char *tvm_scaled_does_not_pay(kernel_state *k, const group_match *g);
uint32_t tvm_scaled_take(kernel_state *k, const group_match *g);

/* The powers are by class, so that a field of bits can be used at several places in a half of a word. A
 * thread's fragment of a is four pairs, of two rows in turn (PTX ISA, mma.m16n8k16, A), and the sums of a row
 * need one power: so the class of a pair is the number of its fragment, modulo a period, and its row. Classes
 * are as many as there are places in f16's mantissa: class i of codes of w bits stands at bit i*w.
 *
 * Where the classes fill a byte they may be nested (w = 2, 4; the eight classes of w = 1 would cost more):
 * class 0 is taken as the whole byte, with all the others' codes above its own, which for the upper bytes is
 * one PRMT in place of a shift and an AND. The sums of the other classes are taken off its sums again. */
unsigned tvm_weight_class(const scaled_weights *scaled, unsigned pair);
unsigned tvm_sum_class(const scaled_weights *scaled, uint32_t local);
/* Element `local` of scaled sums is its register times this, a power of two or minus one. */
double tvm_sum_factor(const scaled_weights *scaled, uint32_t local);

#endif
