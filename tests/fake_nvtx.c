/* A tool that listens to NVTX: the library that NVTX_INJECTION64_PATH names. Appends "push TEXT" and "pop" to
 * the file that FAKE_NVTX_LOG names. */
#include <nvtx3/nvToolsExt.h>
#include <stdio.h>
#include <stdlib.h>

__attribute__((visibility("default"))) int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table);

static void say(const char *what, const char *text) {
    const char *path = getenv("FAKE_NVTX_LOG");
    FILE *log = path ? fopen(path, "a") : NULL;
    if (!log) return;
    fprintf(log, "%s%s\n", what, text);
    fclose(log);
}

static int NVTX_API push(const char *text) {
    say("push ", text);
    return 0;
}

static int NVTX_API pop(void) {
    say("pop", "");
    return 0;
}

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table) {
    const NvtxExportTableCallbacks *callbacks = get_table(NVTX_ETID_CALLBACKS);
    NvtxFunctionTable table = NULL;
    unsigned size = 0;
    if (!callbacks || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &size)) return 0;
    *table[NVTX_CBID_CORE_RangePushA] = (NvtxFunctionPointer)push;
    *table[NVTX_CBID_CORE_RangePop] = (NvtxFunctionPointer)pop;
    return 1;
}
