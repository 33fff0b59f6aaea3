/* .include, and the files that are being read. */
#include <stdlib.h>
#include <string.h>

#include "cursor.h"
#include "directives.h"
#include "fileio.h"
#include "find_file.h"
#include "report.h"
#include "run.h"

static const tvm_source *read_source(tvm_asm *as, const tvm_token *token, const char *path) {
    uint8_t *bytes = NULL;
    const char *text;
    size_t size;
    tvm_diags diags = {0};
    if (as->options && as->options->reads) as->options->reads(as->options->closure, path);
    bool open = as->options && as->options->open_text &&
                as->options->open_text(as->options->open_context, path, &text, &size);
    if (!open && tvm_file_read(path, TVM_SOURCE_MAX, &bytes, &size, &diags) != TVM_OK) {
        tvm_asm_error(as, token, NULL, "%s",
                      diags.count ? diags.items[0].message : "the file cannot be read");
        tvm_diags_free(&diags);
        return NULL;
    }
    if (!open) text = (const char *)bytes;
    unsigned errors = as->report.errors;
    tvm_source *source =
        tvm_source_new(path, text, size, TVM_ASM_ERRORS, &as->report.errors, as->report.diags);
    free(bytes);
    if (errors != as->report.errors && as->report.status == TVM_OK) as->report.status = TVM_SYNTAX;
    if (as->report.errors >= TVM_ASM_ERRORS) as->report.stopped = true;
    if (!source) {
        if (as->report.status == TVM_OK) as->report.status = TVM_SYNTAX;
        as->report.errors++;
        as->report.stopped = true;
        return NULL;
    }
    source->next = as->text.sources;
    as->text.sources = source;
    return source;
}

static const tvm_source *find_source(tvm_asm *as, const tvm_token *token, const char *file) {
    const char *path = tvm_asm_find_file(as, token, file);
    const tvm_source *source = path ? tvm_asm_known_source(as, path) : NULL;
    return source || !path ? source : read_source(as, token, path);
}

bool tvm_asm_push_source(tvm_asm *as, const tvm_source *source, uint32_t opener) {
    if (as->text.frame_count == TVM_ASM_FRAMES) {
        tvm_asm_error(as, tvm_asm_peek(as), NULL, "nested deeper than %d", TVM_ASM_FRAMES);
        as->report.stopped = true;
        return false;
    }
    as->text.frames[as->text.frame_count++] = (tvm_frame){.kind = TVM_FRAME_FILE,
                                                          .source = source,
                                                          .opener = opener,
                                                          .resume = as->text.at,
                                                          .version = as->text.version};
    as->text.includes++;
    as->text.source = source;
    as->text.at = 0;
    return true;
}

bool tvm_directive_include(tvm_asm *as, const tvm_token *token) {
    const tvm_token *file = tvm_asm_peek(as);
    tvm_value name;
    if (file->kind != TVM_TOKEN_STRING) return tvm_asm_expected(as, file, NULL, "a file name in quotes");
    tvm_asm_next(as);
    if (!tvm_asm_string(as, file, &name) || !tvm_asm_expect_end(as)) return false;
    if (as->text.includes >= TVM_ASM_INCLUDES) {
        tvm_asm_error(as, file, "does the file include itself?", ".include nested deeper than %d",
                      TVM_ASM_INCLUDES);
        as->report.stopped = true;
        return false;
    }
    const tvm_source *source = find_source(as, file, name.as.string.text);
    if (!source) as->text.left_out = true;
    return source && tvm_asm_push_source(as, source, (uint32_t)(token - as->text.source->tokens));
}
