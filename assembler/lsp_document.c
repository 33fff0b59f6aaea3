/* The client's open documents: their diagnostics, by the file that each is of. A text that only others
 * include
 * (.vasminc) is not assembled alone: what is wrong in it shows when a program that includes it is open. */
#include "lsp_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "warnings.h"

json_t *lsp_string(const char *text) {
    json_t *string = json_string(text);
    if (string) return string;
    char *copy = strdup(text);
    for (char *c = copy; copy && *c; c++)
        if ((unsigned char)*c >= 0x80) *c = '?';
    string = copy ? json_string(copy) : NULL;
    free(copy);
    return string;
}

/* ---- names ---- */

static int digit_of(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The path of a file: URI; of another its last part, as the name of something in the current folder.
 * malloc'ed. */
static char *path_of(const char *uri) {
    static const char scheme[] = "file://";
    bool is_file = strncmp(uri, scheme, sizeof scheme - 1) == 0;
    const char *from = is_file ? strchr(uri + sizeof scheme - 1, '/') : strrchr(uri, '/');
    if (!from) from = uri;
    char *path = strdup(is_file || from == uri ? from : from + 1), *to = path;
    for (const char *at = path; path && *at; at++) {
        int high = *at == '%' ? digit_of(at[1]) : -1, low = high >= 0 ? digit_of(at[2]) : -1;
        bool escaped = low >= 0 && (high || low);
        *to++ = escaped ? (char)(high * 16 + low) : *at;
        if (escaped) at += 2;
    }
    if (path) *to = '\0';
    return path;
}

static bool is_same_file(const char *a, const char *b) {
    struct stat first, second;
    if (strcmp(a, b) == 0) return true;
    return stat(a, &first) == 0 && stat(b, &second) == 0 && first.st_dev == second.st_dev &&
           first.st_ino == second.st_ino;
}

static const lsp_document *find_path(const lsp_server *server, const char *path) {
    for (size_t i = 0; i < server->count; i++)
        if (is_same_file(server->documents[i].path, path)) return &server->documents[i];
    return NULL;
}

/* malloc'ed; NULL: out of memory. */
static char *uri_of(const lsp_server *server, const char *path) {
    const lsp_document *document = find_path(server, path);
    if (document) return strdup(document->uri);
    char *whole = realpath(path, NULL);
    tvm_text uri = {0};
    tvm_text_puts(&uri, "file://");
    for (const char *c = whole ? whole : path; *c; c++) {
        bool plain = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || strchr("0123456789/._-~", *c);
        tvm_text_add(&uri, plain ? "%c" : "%%%02X", (unsigned char)*c);
    }
    free(whole);
    char *text = uri.failed ? NULL : strdup(tvm_text_string(&uri));
    tvm_text_free(&uri);
    return text;
}

static bool is_program(const lsp_document *document) {
    static const char ending[] = ".vasminc";
    size_t length = strlen(document->path), end = sizeof ending - 1;
    return length < end || strcmp(document->path + length - end, ending) != 0;
}

/* ---- diagnostics ---- */

/* The line that a diagnostic is of: as the client has it, else as the assembler read it. */
static void find_line(const lsp_document *document, const tvm_diag *diag, const char **line, size_t *size) {
    *line = diag->source ? diag->source : "";
    *size = strlen(*line);
    if (document && diag->line) lsp_line(document->text, document->length, diag->line - 1, line, size);
}

static json_t *range_of(const lsp_server *server, const lsp_document *document, const tvm_diag *diag) {
    const char *line;
    size_t size;
    find_line(document, diag, &line, &size);
    uint32_t row = diag->line ? diag->line - 1 : 0;
    size_t from = diag->column ? diag->column - 1 : 0;
    size_t length = diag->length ? diag->length : 1;
    size_t to = diag->column ? from + length : size;
    json_int_t start = lsp_column(server, line, size, from), end = lsp_column(server, line, size, to);
    return json_pack("{s:{s:i,s:I},s:{s:i,s:I}}", "start", "line", (int)row, "character", start, "end",
                     "line", (int)row, "character", end);
}

static json_t *diagnostic(const lsp_server *server, const lsp_document *document, const tvm_diag *diag) {
    enum { ERROR = 1, WARNING = 2 };
    tvm_text message = {0};
    tvm_text_puts(&message, diag->message ? diag->message : "");
    if (diag->hint) tvm_text_add(&message, "\nhint: %s", diag->hint);
    json_t *made = message.failed ? NULL
                                  : json_pack("{s:o,s:i,s:s,s:o}", "range", range_of(server, document, diag),
                                              "severity", diag->status == TVM_OK ? WARNING : ERROR, "source",
                                              "tvm-as", "message", lsp_string(tvm_text_string(&message)));
    tvm_text_free(&message);
    return made;
}

/* Those of the document's diagnostics that are of the URI; what has no place is of the document. */
static bool add_diagnostics(const lsp_server *server, const lsp_document *from, const char *uri,
                            json_t *list) {
    const lsp_document *shown = lsp_find(server, uri);
    for (size_t i = 0; i < from->diags.count; i++) {
        const tvm_diag *diag = &from->diags.items[i];
        char *of = diag->file ? uri_of(server, diag->file) : strdup(from->uri);
        bool good = of != NULL;
        if (good && strcmp(of, uri) == 0) {
            json_t *item = diagnostic(server, shown, diag);
            good = item && json_array_append_new(list, item) == 0;
        }
        free(of);
        if (!good) return false;
    }
    return true;
}

static void publish(lsp_server *server, const char *uri) {
    const lsp_document *document = lsp_find(server, uri);
    json_t *list = json_array();
    bool good = list != NULL;
    for (size_t i = 0; i < server->count && good; i++)
        good = add_diagnostics(server, &server->documents[i], uri, list);
    json_t *params = good ? json_pack("{s:s,s:O}", "uri", uri, "diagnostics", list) : NULL;
    if (params && document) json_object_set_new(params, "version", json_integer(document->version));
    json_decref(list);
    json_t *message = params ? json_pack("{s:s,s:s,s:o}", "jsonrpc", "2.0", "method",
                                         "textDocument/publishDiagnostics", "params", params)
                             : NULL;
    if (!lsp_send(message)) server->failed = true;
}

/* Publishes anew what is of the document's URI and of each file that the diagnostics name. */
static void publish_files(lsp_server *server, const char *uri, const tvm_diags *first,
                          const tvm_diags *second) {
    json_t *uris = json_object();
    const char *each;
    json_t *value;
    bool good = uris && json_object_set_new(uris, uri, json_null()) == 0;
    for (size_t i = 0; i < first->count + second->count && good; i++) {
        const tvm_diag *diag = i < first->count ? &first->items[i] : &second->items[i - first->count];
        char *other = diag->file ? uri_of(server, diag->file) : NULL;
        good = !diag->file || (other && json_object_set_new(uris, other, json_null()) == 0);
        free(other);
    }
    if (!good) server->failed = true;
    json_object_foreach(uris, each, value) if (!server->failed) publish(server, each);
    json_decref(uris);
}

/* ---- documents ---- */

lsp_document *lsp_find(const lsp_server *server, const char *uri) {
    for (size_t i = 0; i < server->count; i++)
        if (strcmp(server->documents[i].uri, uri) == 0) return &server->documents[i];
    return NULL;
}

/* The assembler asks for an included file: what the client has open is newer than the disk's. */
static bool open_text(void *context, const char *path, const char **text, size_t *length) {
    const lsp_document *document = find_path(context, path);
    if (!document) return false;
    *text = document->text;
    *length = document->length;
    return true;
}

static void assemble(lsp_server *server, lsp_document *document) {
    tvm_diags diags = {0}, before = document->diags;
    tvm_text layouts = {0};
    tvm_ir_program *program = NULL;
    unsigned version = 0;
    tvm_graph_text *graph = NULL;
    tvm_assembler_options options = {.include_dirs = server->options->include_dirs,
                                     .include_dir_count = server->options->include_dir_count,
                                     .layouts = &layouts,
                                     .version = &version,
                                     .open_text = open_text,
                                     .open_context = server,
                                     .graph = &graph};
    document->stale = false;
    tvm_status status =
        tvm_assemble_text(document->text, document->length, document->path, &options, &program, &diags);
    if (status == TVM_OK) status = tvm_warnings_find(program, &server->warnings, version, &diags);
    tvm_graph_text_free(graph);
    tvm_ir_program_free(program);
    if (status == TVM_NO_MEMORY) server->failed = true;
    if (layouts.size && !layouts.failed) {
        tvm_text_free(&document->layouts);
        document->layouts = layouts;
    } else {
        tvm_text_free(&layouts);
    }
    document->diags = diags;
    publish_files(server, document->uri, &before, &document->diags);
    tvm_diags_free(&before);
}

void lsp_refresh(lsp_server *server) {
    for (size_t i = 0; i < server->count && !server->failed; i++)
        if (server->documents[i].stale) assemble(server, &server->documents[i]);
}

/* Of a text that others include all programs are stale with it. */
static void make_stale(lsp_server *server, lsp_document *changed) {
    bool alone = is_program(changed);
    for (size_t i = 0; i < server->count; i++) {
        lsp_document *document = &server->documents[i];
        if (is_program(document) && (!alone || document == changed)) document->stale = true;
    }
}

void lsp_change(lsp_server *server, lsp_document *document, const char *text, size_t length,
                json_int_t version) {
    char *copy = malloc(length + 1);
    if (!copy) {
        server->failed = true;
        return;
    }
    memcpy(copy, text, length);
    copy[length] = '\0';
    free(document->text);
    document->text = copy;
    document->length = length;
    document->version = version;
    make_stale(server, document);
}

void lsp_open(lsp_server *server, const char *uri, const char *text, size_t length, json_int_t version) {
    lsp_document *document = lsp_find(server, uri);
    if (!document) {
        if (server->count == server->capacity) {
            size_t capacity = server->capacity ? 2 * server->capacity : 8;
            lsp_document *more = reallocarray(server->documents, capacity, sizeof *more);
            if (!more) {
                server->failed = true;
                return;
            }
            server->documents = more;
            server->capacity = capacity;
        }
        document = &server->documents[server->count++];
        *document = (lsp_document){.uri = strdup(uri), .path = path_of(uri), .text = strdup("")};
        if (!document->uri || !document->path || !document->text) {
            server->failed = true;
            return;
        }
    }
    lsp_change(server, document, text, length, version);
}

static void free_document(lsp_document *document) {
    free(document->uri);
    free(document->path);
    free(document->text);
    tvm_diags_free(&document->diags);
    tvm_text_free(&document->layouts);
}

void lsp_close(lsp_server *server, lsp_document *document) {
    lsp_document closed = *document;
    make_stale(server, document);
    *document = server->documents[--server->count];
    publish_files(server, closed.uri, &closed.diags, &(tvm_diags){0});
    free_document(&closed);
}

void lsp_free_documents(lsp_server *server) {
    for (size_t i = 0; i < server->count; i++) free_document(&server->documents[i]);
    free(server->documents);
}
