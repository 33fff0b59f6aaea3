/* Random programs that are well typed, free of races and of defined results, made from the instruction table:
 * operands are chosen by the kinds that a row names, and the rules of the language (tvm_infer) say what of
 * that is a program. The same seed gives the same text.
 *
 * The text says by the names of its parameters what they hold and how they are compared (arguments.h), so
 * that a program alone, shrunk or changed by hand, is a test:
 *
 *   raw3     any bits, among them NaN, infinities, subnormals           in
 *   small3   whole numbers of -4..4 (unsigned: 0..4)                    in
 *   index3   whole numbers of 0..31                                     in
 *   zero3    zeros; compared bit for bit, any NaN for a NaN             in and out
 *   out3     bytes 0x5a; compared so                                    out
 *   near8_3  the same; floats may be 8 units in the last place apart, or 8 * 2^-22  out
 */
#ifndef TVM_TESTS_GENERATE_H
#define TVM_TESTS_GENERATE_H

#include "program.h"

typedef struct generate_options {
    bool small;          /* few statements, few elements a thread: soon compiled */
    bool prints;         /* with print-tensor and printf */
    bool clusters;       /* with sync-cluster, which needs blocks that run at the same time */
    bool layouts_matter; /* with what depends on layouts: sums of floats, views, fragments */
    void (*made)(void *data, const tvm_ir_program *program); /* NULL, or sees each program */
    void *data;
} generate_options;

/* malloc'ed text of one kernel `k`; NULL where what was made is no program after all (*why says so). */
char *generate_program(uint64_t seed, const generate_options *options, tvm_why *why);

/* splitmix64 */
static inline uint64_t generate_bits(uint64_t *state) {
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

#endif
