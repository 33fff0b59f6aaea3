/* What programs ask of a target: capabilities and limits, rows of capabilities.def. */
#ifndef TVM_ISA_TARGET_TRAITS_H
#define TVM_ISA_TARGET_TRAITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TVM_TARGET_LIMIT(...)
typedef enum tvm_capability {
#define TVM_CAPABILITY(number, id, ...) TVM_HAS_##id = number,
#include "capabilities.def"
#undef TVM_CAPABILITY
    TVM_CAPABILITY_COUNT = 0
#define TVM_CAPABILITY(...) +1
#include "capabilities.def"
#undef TVM_CAPABILITY
} tvm_capability;
#undef TVM_TARGET_LIMIT

#define TVM_CAPABILITY(...)
typedef enum tvm_limit {
#define TVM_TARGET_LIMIT(number, id, ...) TVM_LIMIT_##id = number,
#include "capabilities.def"
#undef TVM_TARGET_LIMIT
    TVM_LIMIT_COUNT = 0
#define TVM_TARGET_LIMIT(...) +1
#include "capabilities.def"
#undef TVM_TARGET_LIMIT
} tvm_limit;
#undef TVM_CAPABILITY

/* A target as programs see it. Where a pointer to one is NULL, nobody knows of a target: there is no
 * capability, and every limit is 0. */
typedef struct tvm_target_traits {
    uint64_t capabilities; /* bit c: it has capability c */
    int32_t limits[TVM_LIMIT_COUNT];
} tvm_target_traits;

static inline bool tvm_traits_have(const tvm_target_traits *traits, unsigned capability) {
    return traits && traits->capabilities >> capability & 1;
}

static inline int32_t tvm_traits_limit(const tvm_target_traits *traits, unsigned limit) {
    return traits ? traits->limits[limit] : 0;
}

/* The name in a program; NULL: there is no such row. */
const char *tvm_capability_name(size_t number);
/* Does the code generator use it where a target has it? What code does where it is not used. */
bool tvm_capability_is_used(size_t number);
const char *tvm_capability_otherwise(size_t number);
const char *tvm_limit_name(size_t number);

#endif
