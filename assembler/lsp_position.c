/* Places in text: lines and columns of the protocol, bytes of ours. */
#include "lsp_impl.h"

#include <string.h>

bool lsp_line(const char *text, size_t length, uint32_t line, const char **start, size_t *size) {
    const char *at = text, *end = text + length;
    for (uint32_t i = 0; i < line; i++) {
        at = memchr(at, '\n', (size_t)(end - at));
        if (!at) return false;
        at++;
    }
    const char *newline = memchr(at, '\n', (size_t)(end - at));
    if (!newline) newline = end;
    if (newline > at && newline[-1] == '\r') newline--;
    *start = at;
    *size = (size_t)(newline - at);
    return true;
}

/* What the character that begins with this byte counts: none where a byte goes on with one. */
static uint32_t units(const lsp_server *server, unsigned char byte) {
    if (server->utf8) return 1;
    if (byte >= 0x80 && byte < 0xc0) return 0;
    return byte >= 0xf0 ? 2 : 1;
}

uint32_t lsp_column(const lsp_server *server, const char *line, size_t size, size_t byte) {
    uint32_t column = 0;
    for (size_t i = 0; i < size && i < byte; i++) column += units(server, (unsigned char)line[i]);
    return column;
}

size_t lsp_byte(const lsp_server *server, const char *line, size_t size, json_int_t column) {
    size_t at = 0;
    for (json_int_t left = column; at < size; at++) {
        left -= units(server, (unsigned char)line[at]);
        if (left < 0) break;
    }
    return at;
}
