/* Names of capabilities and limits. */
#include "target_traits.h"

typedef struct trait_row {
    const char *name;
    bool used;
    const char *otherwise;
} trait_row;

#define TVM_TARGET_LIMIT(...)
#define TVM_CAPABILITY(number, id, name, what, used, otherwise) [number] = {name, used, otherwise},
static const trait_row capabilities[TVM_CAPABILITY_COUNT] = {
#include "capabilities.def"
};
#undef TVM_CAPABILITY
#undef TVM_TARGET_LIMIT

#define TVM_CAPABILITY(...)
#define TVM_TARGET_LIMIT(number, id, name, what) [number] = {name, true, NULL},
static const trait_row limits[TVM_LIMIT_COUNT] = {
#include "capabilities.def"
};
#undef TVM_TARGET_LIMIT
#undef TVM_CAPABILITY

_Static_assert((int)TVM_CAPABILITY_COUNT <= 64, "a bit of tvm_target_traits for each");

const char *tvm_capability_name(size_t number) {
    return number < TVM_CAPABILITY_COUNT ? capabilities[number].name : NULL;
}

bool tvm_capability_is_used(size_t number) {
    return number < TVM_CAPABILITY_COUNT && capabilities[number].used;
}

const char *tvm_capability_otherwise(size_t number) {
    return number < TVM_CAPABILITY_COUNT ? capabilities[number].otherwise : NULL;
}

const char *tvm_limit_name(size_t number) {
    return number < TVM_LIMIT_COUNT ? limits[number].name : NULL;
}
