#include "tvm.h"

unsigned tvm_version(void) {
    return TVM_VERSION_NUMBER;
}
