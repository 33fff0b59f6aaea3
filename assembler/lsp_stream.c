/* The base protocol: header lines, an empty one, and so many bytes of JSON as Content-Length says. */
#include "lsp_impl.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* A text of 64 MiB, each byte of it escaped as two, and room. */
enum { BODY_MAX = 160 << 20, HEADER_MAX = 1024, HEADERS_MAX = 32 };

static bool fill(lsp_stream *stream) {
    ssize_t got;
    do got = read(STDIN_FILENO, stream->buffer, sizeof stream->buffer);
    while (got < 0 && errno == EINTR);
    stream->at = 0;
    stream->end = got > 0 ? (size_t)got : 0;
    return got > 0;
}

static bool has_byte(lsp_stream *stream) {
    return stream->at < stream->end || fill(stream);
}

static lsp_received broken(lsp_stream *stream, const char *fault) {
    stream->fault = fault;
    return LSP_BROKEN;
}

/* A line without its end; *ended when the input ends before its first byte. */
static bool read_header(lsp_stream *stream, char line[HEADER_MAX], bool *ended) {
    size_t size = 0;
    *ended = !has_byte(stream);
    while (has_byte(stream)) {
        char c = stream->buffer[stream->at++];
        if (c == '\n') {
            if (size && line[size - 1] == '\r') size--;
            line[size] = '\0';
            return true;
        }
        if (size == HEADER_MAX - 1 || c == '\0') {
            stream->fault = "a header line is too long, or no text";
            return false;
        }
        line[size++] = c;
    }
    stream->fault = "the input ends within a header";
    return false;
}

/* False when the line is not understood. Lines of other names are skipped. */
static bool take_length(const char *line, size_t *length, bool *known) {
    static const char name[] = "Content-Length:";
    if (strncasecmp(line, name, sizeof name - 1) != 0) return strchr(line, ':') != NULL;
    const char *digit = line + sizeof name - 1;
    digit += strspn(digit, " \t");
    if (*known || *digit < '0' || *digit > '9') return false;
    size_t value = 0;
    for (; *digit >= '0' && *digit <= '9'; digit++) {
        value = value * 10 + (size_t)(*digit - '0');
        if (value > BODY_MAX) return false;
    }
    *length = value;
    *known = true;
    return digit[strspn(digit, " \t")] == '\0';
}

lsp_received lsp_receive(lsp_stream *stream, tvm_text *body) {
    char line[HEADER_MAX];
    size_t length = 0;
    bool known = false, ended;
    for (unsigned count = 0;; count++) {
        if (!read_header(stream, line, &ended)) return ended && !count ? LSP_END : LSP_BROKEN;
        if (!line[0]) break;
        if (count == HEADERS_MAX) return broken(stream, "too many header lines");
        if (!take_length(line, &length, &known))
            return broken(stream, "a header line is not understood, or Content-Length is out of range");
    }
    if (!known) return broken(stream, "a message without Content-Length");
    body->limit = BODY_MAX + 1;
    while (length) {
        if (!has_byte(stream)) return broken(stream, "the input ends within a message");
        size_t piece = stream->end - stream->at;
        if (piece > length) piece = length;
        tvm_text_bytes(body, stream->buffer + stream->at, piece);
        stream->at += piece;
        length -= piece;
    }
    return body->failed ? broken(stream, "out of memory") : LSP_RECEIVED;
}

bool lsp_has_input(const lsp_stream *stream) {
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    return stream->at < stream->end || poll(&input, 1, 0) != 0;
}

bool lsp_send(json_t *message) {
    char *text = message ? json_dumps(message, JSON_COMPACT) : NULL;
    json_decref(message);
    if (!text) return false;
    size_t size = strlen(text);
    bool good = printf("Content-Length: %zu\r\n\r\n", size) > 0 && fwrite(text, 1, size, stdout) == size &&
                fflush(stdout) == 0;
    free(text);
    return good;
}
