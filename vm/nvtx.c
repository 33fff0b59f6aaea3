/* NVTX 3 consists of headers: they open the tool's library on the first call, and keep its functions in a
 * variable of their own. */
#include "config.h"

#include "nvtx.h"

#include <stdlib.h>

#ifdef HAVE_NVTX3

/* NVTX's functions and variables as this file's own, where the header would define weak ones of the whole
 * library. */
#define __NVTX_LINKONCE_H__
#define NVTX_LINKONCE_DEFINE_GLOBAL           static
#define NVTX_LINKONCE_DEFINE_FUNCTION         static
#define NVTX_LINKONCE_FWDDECL_GLOBAL          static
#define NVTX_LINKONCE_FWDDECL_FUNCTION        static
#define NVTX_SUPPORT_STATIC_INJECTION_LIBRARY 0
#define NVTX_AS_SYSTEM_HEADER
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#define getenv secure_getenv /* by which it finds the library that it opens */
#include <nvtx3/nvToolsExt.h>
#undef getenv
#pragma GCC diagnostic pop

bool tvm_nvtx_present(void) {
    const char *path = secure_getenv("NVTX_INJECTION64_PATH");
    return path && *path;
}

void tvm_nvtx_push(const char *text) {
    nvtxRangePushA(text);
}

void tvm_nvtx_pop(void) {
    nvtxRangePop();
}

#else

bool tvm_nvtx_present(void) {
    return false;
}

void tvm_nvtx_push(const char *text) {
    (void)text;
}

void tvm_nvtx_pop(void) {}

#endif
