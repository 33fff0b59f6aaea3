#include "find_file.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "report.h"

const tvm_source *tvm_asm_known_source(const tvm_asm *as, const char *path) {
    for (const tvm_source *source = as->text.sources; source; source = source->next)
        if (strcmp(source->name, path) == 0) return source;
    return NULL;
}

/* folder (with its slash, may be empty) + file, in scratch memory. */
static char *joined(tvm_asm *as, const char *folder, size_t length, bool slash, const char *file) {
    size_t size = length + strlen(file) + 4;
    char *path = tvm_arena_alloc(&as->scratch, size);
    if (!path) return NULL;
    snprintf(path, size, "%.*s%s%s", (int)length, folder, slash ? "/" : "", file);
    if (strcmp(path, "-") == 0) snprintf(path, size, "./-");
    return path;
}

const char *tvm_asm_find_file(tvm_asm *as, const tvm_token *token, const char *file) {
    const char *includer = as->text.source->name, *slash = strrchr(includer, '/');
    size_t folder = file[0] == '/' || !slash ? 0 : (size_t)(slash - includer) + 1;
    size_t folders = as->options && file[0] != '/' ? as->options->include_dir_count : 0;
    for (size_t i = 0; i <= folders; i++) {
        const char *path = i ? joined(as, as->options->include_dirs[i - 1],
                                      strlen(as->options->include_dirs[i - 1]), true, file)
                             : joined(as, includer, folder, false, file);
        if (!path) {
            tvm_asm_no_memory(as);
            return NULL;
        }
        if (tvm_asm_known_source(as, path) || access(path, F_OK) == 0) return path;
    }
    tvm_asm_error(as, token, folders ? NULL : "folders to search are given with -I", "cannot find '%.200s'",
                  file);
    return NULL;
}

