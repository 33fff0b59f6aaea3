/* The language server: requests and notifications to what answers them. */
#include "lsp.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lsp_impl.h"

#include "config.h"

/* JSON-RPC's codes, and the protocol's own. */
enum {
    PARSE_ERROR = -32700,
    INVALID_REQUEST = -32600,
    METHOD_NOT_FOUND = -32601,
    INVALID_PARAMS = -32602,
    NOT_INITIALIZED = -32002
};

/* ---- answers ---- */

static void send_answer(lsp_server *server, const json_t *id, const char *member, json_t *value) {
    json_t *message = value ? json_pack("{s:s,s:O?,s:o}", "jsonrpc", "2.0", "id", id, member, value) : NULL;
    if (message && !id) json_object_set_new(message, "id", json_null());
    if (!lsp_send(message)) server->failed = true;
}

static void refuse(lsp_server *server, const json_t *id, int code, const char *text) {
    send_answer(server, id, "error", json_pack("{s:i,s:s}", "code", code, "message", text));
}

/* ---- requests ---- */

/* The result; *code, where the request is refused. NULL with *code 0: out of memory. */
typedef json_t *request_function(lsp_server *server, const json_t *params, int *code);

/* Does the client take columns in bytes? */
static bool takes_utf8(const json_t *params) {
    const json_t *general = json_object_get(json_object_get(params, "capabilities"), "general");
    const json_t *encodings = json_object_get(general, "positionEncodings"), *each;
    size_t i;
    json_array_foreach(encodings, i, each) {
        const char *name = json_string_value(each);
        if (name && strcmp(name, "utf-8") == 0) return true;
    }
    return false;
}

static json_t *initialize(lsp_server *server, const json_t *params, int *code) {
    enum { FULL = 1 };
    if (server->initialized) {
        *code = INVALID_REQUEST;
        return NULL;
    }
    server->initialized = true;
    server->utf8 = takes_utf8(params);
    return json_pack("{s:{s:s,s:{s:b,s:i},s:b,s:{s:[s]}},s:{s:s,s:s}}", "capabilities", "positionEncoding",
                     server->utf8 ? "utf-8" : "utf-16", "textDocumentSync", "openClose", 1, "change", FULL,
                     "hoverProvider", 1, "completionProvider", "triggerCharacters", ".", "serverInfo", "name",
                     "tvm-as", "version", PACKAGE_VERSION);
}

static json_t *stop(lsp_server *server, const json_t *params, int *code) {
    (void)params, (void)code;
    server->stopping = true;
    return json_null();
}

/* The place that the params name, in a document that is open; false with *code when they name none. */
static bool find_place(lsp_server *server, const json_t *params, const lsp_document **document, uint32_t *row,
                       const char **line, size_t *size, size_t *at, int *code) {
    const char *uri = json_string_value(json_object_get(json_object_get(params, "textDocument"), "uri"));
    const json_t *position = json_object_get(params, "position");
    const json_t *number = json_object_get(position, "line"),
                 *column = json_object_get(position, "character");
    *document = uri ? lsp_find(server, uri) : NULL;
    bool good = *document && json_is_integer(number) && json_is_integer(column) &&
                json_integer_value(number) >= 0 && json_integer_value(number) < INT32_MAX &&
                json_integer_value(column) >= 0;
    *row = good ? (uint32_t)json_integer_value(number) : 0;
    if (!good || !lsp_line((*document)->text, (*document)->length, *row, line, size)) {
        *code = INVALID_PARAMS;
        return false;
    }
    *at = lsp_byte(server, *line, *size, json_integer_value(column));
    return true;
}

static json_t *hover(lsp_server *server, const json_t *params, int *code) {
    const lsp_document *document;
    const char *line;
    size_t size, at;
    uint32_t row;
    lsp_refresh(server);
    if (!find_place(server, params, &document, &row, &line, &size, &at, code)) return NULL;
    return lsp_hover(document, row, line, size, at);
}

static json_t *completion(lsp_server *server, const json_t *params, int *code) {
    const lsp_document *document;
    const char *line;
    size_t size, at;
    uint32_t row;
    if (!find_place(server, params, &document, &row, &line, &size, &at, code)) return NULL;
    return lsp_completion(line, at);
}

static const struct request {
    const char *method;
    request_function *function;
} requests[] = {
    {"initialize", initialize},
    {"shutdown", stop},
    {"textDocument/hover", hover},
    {"textDocument/completion", completion},
};

static void answer(lsp_server *server, const json_t *id, const char *method, const json_t *params) {
    const struct request *request = NULL;
    int code = 0;
    if (!json_is_string(id) && !json_is_integer(id)) {
        refuse(server, NULL, INVALID_REQUEST, "an id is a string or an integer");
        return;
    }
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++)
        if (strcmp(requests[i].method, method) == 0) request = &requests[i];
    if (!server->initialized && strcmp(method, "initialize") != 0) {
        refuse(server, id, NOT_INITIALIZED, "the first request is initialize");
    } else if (server->stopping) {
        refuse(server, id, INVALID_REQUEST, "nothing but exit comes after shutdown");
    } else if (!request) {
        refuse(server, id, METHOD_NOT_FOUND, "the server has no such method");
    } else {
        json_t *result = request->function(server, params, &code);
        if (code)
            refuse(server, id, code,
                   code == INVALID_PARAMS ? "the params name no place in an open document"
                                          : "initialize comes once");
        else
            send_answer(server, id, "result", result);
    }
}

/* ---- notifications: those with params that are not understood are ignored ---- */

static json_int_t version_of(const json_t *document) {
    return json_integer_value(json_object_get(document, "version"));
}

static void notify(lsp_server *server, const char *method, const json_t *params) {
    const json_t *document = json_object_get(params, "textDocument");
    const char *uri = json_string_value(json_object_get(document, "uri"));
    if (!server->initialized || server->stopping || !uri) return;
    lsp_document *open = lsp_find(server, uri);
    if (strcmp(method, "textDocument/didOpen") == 0) {
        const json_t *text = json_object_get(document, "text");
        if (json_is_string(text))
            lsp_open(server, uri, json_string_value(text), json_string_length(text), version_of(document));
    } else if (strcmp(method, "textDocument/didChange") == 0 && open) {
        /* whole texts, of which the last is what the client has now */
        const json_t *changes = json_object_get(params, "contentChanges");
        const json_t *last = json_array_get(changes, json_array_size(changes) - 1);
        const json_t *text = json_object_get(last, "text");
        if (json_is_string(text) && !json_object_get(last, "range"))
            lsp_change(server, open, json_string_value(text), json_string_length(text), version_of(document));
    } else if (strcmp(method, "textDocument/didClose") == 0 && open) {
        lsp_close(server, open);
    }
}

/* ---- messages ---- */

/* False: the client said exit. */
static bool dispatch(lsp_server *server, const json_t *message) {
    const json_t *id = json_object_get(message, "id"), *method = json_object_get(message, "method");
    const json_t *params = json_object_get(message, "params");
    if (!method && (json_object_get(message, "result") || json_object_get(message, "error"))) return true;
    if (!json_is_string(method)) {
        refuse(server, NULL, INVALID_REQUEST, "a message is an object with a method");
    } else if (id) {
        answer(server, id, json_string_value(method), params);
    } else if (strcmp(json_string_value(method), "exit") == 0) {
        return false;
    } else {
        notify(server, json_string_value(method), params);
    }
    return true;
}

/* Before it waits for the client, the server assembles what has changed. False: the last message was handled.
 */
static bool serve_one(lsp_server *server, lsp_received *received) {
    tvm_text body = {0};
    bool more = true;
    if (!lsp_has_input(&server->stream)) lsp_refresh(server);
    *received = lsp_receive(&server->stream, &body);
    if (*received == LSP_BROKEN) refuse(server, NULL, PARSE_ERROR, server->stream.fault);
    if (*received == LSP_RECEIVED) {
        json_t *message = json_loadb(tvm_text_string(&body), body.size, JSON_DECODE_ANY, NULL);
        if (message)
            more = dispatch(server, message);
        else
            refuse(server, NULL, PARSE_ERROR, "the message is no JSON");
        json_decref(message);
    }
    tvm_text_free(&body);
    return more && *received == LSP_RECEIVED && !server->failed;
}

int tvm_lsp_run(const tvm_assembler_options *options, const tvm_warnings *warnings) {
    lsp_received received = LSP_RECEIVED;
    lsp_server *server = calloc(1, sizeof *server);
    if (!server) return EXIT_FAILURE;
    server->options = options;
    server->warnings = *warnings;
    signal(SIGPIPE, SIG_IGN); /* a client that is gone is an error of what is written */
    while (serve_one(server, &received)) continue;
    bool good = received == LSP_RECEIVED && server->stopping && !server->failed;
    if (received == LSP_BROKEN) fprintf(stderr, "tvm-as: error: %s\n", server->stream.fault);
    if (server->failed) fprintf(stderr, "tvm-as: error: out of memory, or the client does not read\n");
    lsp_free_documents(server);
    free(server);
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
