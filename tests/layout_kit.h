/* For the tests of layouts: layouts as the library makes them, and random ones with their tables. */
#ifndef TVM_TESTS_LAYOUT_KIT_H
#define TVM_TESTS_LAYOUT_KIT_H

#include <check.h>

#include "layout.h"
#include "layout_reference.h"

static inline tvm_layout local2(uint32_t a, uint32_t b) {
    tvm_layout out;
    ck_assert_int_eq(tvm_layout_local(2, (uint32_t[]){a, b}, &out, NULL), TVM_OK);
    return out;
}

static inline tvm_layout spatial2(uint32_t a, uint32_t b) {
    tvm_layout out;
    ck_assert_int_eq(tvm_layout_spatial(2, (uint32_t[]){a, b}, &out, NULL), TVM_OK);
    return out;
}

static inline tvm_layout compose(tvm_layout a, tvm_layout b) {
    tvm_layout out;
    ck_assert_int_eq(tvm_layout_compose(&a, &b, &out, NULL), TVM_OK);
    return out;
}

/* A random layout and its table. */
static inline void random_layout(uint32_t *state, uint32_t most, tvm_layout *layout, reference *table) {
    lists from;
    tvm_why why = {""};
    random_lists(state, most, &from);
    ck_assert_msg(make_from(&from, layout, &why) == TVM_OK, "%s", why.text);
    reference_from_lists(&from, table);
}

#endif
