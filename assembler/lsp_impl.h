/* What the files of the language server share. */
#ifndef TVM_ASSEMBLER_LSP_IMPL_H
#define TVM_ASSEMBLER_LSP_IMPL_H

#include <jansson.h>

#include "assembler.h"
#include "warnings.h"

/* ---- lsp_stream.c: messages of the base protocol ---- */

typedef struct lsp_stream {
    char buffer[1 << 16];
    size_t at, end;
    const char *fault; /* why there are no further messages */
} lsp_stream;

typedef enum lsp_received { LSP_RECEIVED, LSP_END, LSP_BROKEN } lsp_received;

/* The content of the next message into *body, which was empty. END: the input ends between messages. BROKEN:
 * where the next one would begin is not known; stream->fault says why. */
lsp_received lsp_receive(lsp_stream *stream, tvm_text *body);
/* Does reading not wait: is there input, or its end? */
bool lsp_has_input(const lsp_stream *stream);
/* Takes the message over, which may be NULL when memory was short. False when it could not be written. */
bool lsp_send(json_t *message);

/* ---- lsp_document.c: what the client has open ---- */

typedef struct lsp_document {
    char *uri, *path;
    char *text;
    size_t length;
    json_int_t version;
    bool stale; /* its diagnostics are those of an earlier text */
    tvm_diags diags;
    tvm_text layouts; /* the listing of the last text that had one */
} lsp_document;

typedef struct lsp_server {
    lsp_stream stream;
    const tvm_assembler_options *options;
    tvm_warnings warnings;
    bool initialized, stopping; /* by shutdown */
    bool utf8;                  /* columns are bytes; else UTF-16 code units */
    bool failed;                /* out of memory, or nobody reads what is written */
    lsp_document *documents;
    size_t count, capacity;
} lsp_server;

lsp_document *lsp_find(const lsp_server *server, const char *uri);
void lsp_open(lsp_server *server, const char *uri, const char *text, size_t length, json_int_t version);
void lsp_change(lsp_server *server, lsp_document *document, const char *text, size_t length,
                json_int_t version);
void lsp_close(lsp_server *server, lsp_document *document);
/* Assembles what is stale and publishes the diagnostics. */
void lsp_refresh(lsp_server *server);
void lsp_free_documents(lsp_server *server);

/* Text of any bytes; what is no UTF-8 becomes question marks. */
json_t *lsp_string(const char *text);

/* ---- lsp_position.c: places in text ---- */

/* Line `line` from 0, without its newline; false when there is none. */
bool lsp_line(const char *text, size_t length, uint32_t line, const char **start, size_t *size);
/* The column of a byte of the line, and the byte of a column; both at most those of the line's end. */
uint32_t lsp_column(const lsp_server *server, const char *line, size_t size, size_t byte);
size_t lsp_byte(const lsp_server *server, const char *line, size_t size, json_int_t column);

/* ---- lsp_hover.c: what is known of a word ---- */

/* The results of textDocument/hover and of textDocument/completion at a byte of a line; NULL: out of memory.
 */
json_t *lsp_hover(const lsp_document *document, uint32_t line, const char *text, size_t size, size_t at);
json_t *lsp_completion(const char *text, size_t at);

#endif
