#include "run_cache.h"
#include "cache.h"

#include <inttypes.h>

tvm_status tvm_run_cache_do(tvm_run_cache action, FILE *stream, tvm_diags *diags) {
    tvm_cache_stats stats;
    tvm_diags warnings = {0};
    tvm_cache *cache = tvm_cache_open(NULL, 0, &warnings);
    tvm_status status = TVM_OK;
    /* Here the folder is the subject: what is a warning elsewhere is an error. */
    for (size_t i = 0; i < warnings.count; i++)
        status = tvm_diag_add(diags, warnings.items[i].status, NULL, NULL, "%s", warnings.items[i].message);
    if (!cache && !status) status = tvm_diag_no_memory(diags);
    tvm_diags_free(&warnings);
    if (!status && action == TVM_RUN_CACHE_STATS) status = tvm_cache_read_stats(cache, &stats, diags);
    if (!status && action == TVM_RUN_CACHE_CLEAR) status = tvm_cache_clear(cache, &stats, diags);
    if (!status && action == TVM_RUN_CACHE_STATS)
        fprintf(stream, "folder   %s\nentries  %" PRIu64 "\nbytes    %" PRIu64 "\nbound    %" PRIu64 "\n",
                stats.dir, stats.entries, stats.bytes, stats.limit);
    if (!status && action == TVM_RUN_CACHE_CLEAR)
        fprintf(stream, "folder   %s\nremoved  %" PRIu64 "\nbytes    %" PRIu64 "\n", stats.dir, stats.entries,
                stats.bytes);
    tvm_cache_close(cache);
    return status;
}
