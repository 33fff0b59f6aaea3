/* bench/trellis.vasm, the prototype of weights whose values are computed from the states of a trellis,
 * against the formula, from single bits. */
#include "check_kit.h"

#include "kernel_kit.h"
#include "suite_kit.h"

static const tvm_dtype U32 = {TVM_KIND_UINT, 32, 0, 0}, F16 = {TVM_KIND_FLOAT, 16, 5, 10};

/* A state's value by the formula of 3INST; its halves' sum is rounded to f16. */
static double state_value(uint32_t state) {
    uint32_t y = ((state * 89226354u + 64248484u) & 0x8fff8fffu) ^ 0x3b603b60u;
    double sum = tvm_decode(F16, y & 0xffff) + tvm_decode(F16, y >> 16);
    return tvm_decode(F16, tvm_encode(F16, sum));
}

START_TEST(a_trellis_is_decoded) {
    enum { STEPS = 3 };
    const unsigned bits = 2 + (unsigned)_i;
    kernel_kit k = kit_open("../bench/trellis.vasm", _i ? "BITS=3" : "BITS=2");
    kit_scalar(&k, STEPS);
    kit_tensor *p = kit_input(&k, U32, STEPS * 8 * bits, 0, 0x1p32),
               *w = kit_tensor_new(&k, F16, STEPS * 256);
    kit_launch(&k, "decode");
    for (unsigned i = 0; i < STEPS * 256; i++) {
        uint32_t state = 0;
        for (unsigned b = 0; b < 16; b++) {
            unsigned bit = (i % 256 * bits + b) % (256 * bits);
            state |= ((uint32_t)p->values[i / 256 * 8 * bits + bit / 32] >> bit % 32 & 1) << b;
        }
        /* element e of thread t of two of B's fragments: k 2 (t % 4) + e % 2 + 8 (e / 2 % 2), n t / 4 + 8 (e
         * / 4) */
        unsigned t = i % 256 / 8, e = i % 8, row = 2 * (t % 4) + e % 2 + e / 2 % 2 * 8,
                 column = t / 4 + e / 4 * 8;
        ck_assert_double_eq(w->values[i / 256 * 256 + row * 16 + column], state_value(state));
    }
    kit_close(&k);
}
END_TEST

static Suite *trellis_suite(void) {
    Suite *suite = suite_create("trellis");
    TCase *decoded = tcase_create("decoded");
    tcase_add_loop_test(decoded, a_trellis_is_decoded, 0, 2);
    suite_add_tcase(suite, decoded);
    return suite;
}

int main(void) {
    return run_suite(trellis_suite());
}
