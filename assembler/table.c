/* Tables of values with named columns and rows: .table, and what is asked of them. */
#include "table.h"

#include <string.h>

#include "cursor.h"
#include "directives.h"
#include "expressions.h"
#include "frames.h"
#include "names.h"
#include "report.h"
#include "suggest.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

static bool same(const tvm_word *text, const char *name, uint32_t length) {
    return text->length == length && memcmp(text->name, name, length) == 0;
}

/* ---- .table ---- */

static bool column(tvm_asm *as, tvm_word *columns, uint32_t *count) {
    const tvm_token *token = tvm_asm_peek(as);
    const char *name;
    tvm_word made;
    if (!tvm_asm_expect_name(as, "the name of a column", &name, &made.length) ||
        !tvm_asm_check_name(as, token, name, made.length))
        return false;
    made.name = tvm_arena_text(&as->keep, name, made.length);
    if (!made.name) return tvm_asm_no_memory(as);
    if (same(&made, "name", 4) || same(&made, "kept", 4))
        return tvm_asm_error(as, token, NULL, "every table has a column '%s'", made.name);
    for (uint32_t i = 0; i < *count; i++)
        if (same(&columns[i], made.name, made.length))
            return tvm_asm_error(as, token, NULL, "there are two columns '%s'", made.name);
    if (*count == TVM_ASM_PARAMETERS)
        return tvm_asm_error(as, token, NULL, "a table has at most %d columns", TVM_ASM_PARAMETERS);
    columns[(*count)++] = made;
    return true;
}

static bool columns(tvm_asm *as, tvm_table *table) {
    tvm_word read[TVM_ASM_PARAMETERS];
    if (!tvm_asm_expect(as, "(", "and the columns after the table's name")) return false;
    do {
        if (!column(as, read, &table->column_count)) return false;
    } while (tvm_asm_accept(as, ","));
    tvm_word *kept = tvm_arena_alloc(&as->keep, table->column_count * sizeof *kept);
    if (!kept) return tvm_asm_no_memory(as);
    memcpy(kept, read, table->column_count * sizeof *kept);
    table->columns = kept;
    return tvm_asm_expect(as, ")", "or ',' after a column") && tvm_asm_expect_end(as);
}

/* ---- rows by name ---- */

/* Where the row of this name stands in the index, or where it would. */
static uint32_t *find_row(const tvm_table *table, const char *name, uint32_t length) {
    uint64_t at = XXH3_64bits(name, length);
    for (;; at++) {
        uint32_t *entry = &table->index[at & (table->index_size - 1)];
        if (!*entry || same(&table->rows[*entry - 1].name, name, length)) return entry;
    }
}

/* Room for `capacity` rows, a power of two: the rows may move. */
static bool grow_rows(tvm_asm *as, tvm_table *table, tvm_row **rows, uint32_t capacity) {
    tvm_row *more = tvm_arena_alloc(&as->keep, capacity * sizeof *more);
    table->index_size = 2 * capacity;
    table->index = tvm_arena_alloc(&as->keep, table->index_size * sizeof *table->index);
    if (!more || !table->index) return tvm_asm_no_memory(as);
    if (table->row_count) memcpy(more, *rows, table->row_count * sizeof *more);
    memset(table->index, 0, table->index_size * sizeof *table->index);
    table->rows = *rows = more;
    for (uint32_t i = 0; i < table->row_count; i++)
        *find_row(table, more[i].name.name, more[i].name.length) = i + 1;
    return true;
}

/* name: value, value, ... [if condition] */
static bool row(tvm_asm *as, const tvm_table *table, tvm_row *made) {
    const tvm_token *token = tvm_asm_peek(as);
    const char *name;
    if (!tvm_asm_expect_name(as, "a row, `name: value, ...`, or '.endtable'", &name, &made->name.length))
        return false;
    made->name.name = tvm_arena_text(&as->keep, name, made->name.length);
    tvm_value *values = tvm_arena_alloc(&as->keep, table->column_count * sizeof *values);
    if (!made->name.name || !values) return tvm_asm_no_memory(as);
    if (table->row_count && *find_row(table, name, made->name.length))
        return tvm_asm_error(as, token, NULL, "there are two rows '%s'", made->name.name);
    if (!tvm_asm_expect(as, ":", "after the row's name")) return false;
    for (uint32_t i = 0; i < table->column_count; i++) {
        tvm_value value;
        if (i && !tvm_asm_accept(as, ","))
            return tvm_asm_error(as, tvm_asm_peek(as), NULL, "expected ',' and the value of '%.*s'",
                                 (int)table->columns[i].length, table->columns[i].name);
        if (!tvm_asm_static(as, "a value of a table", &value)) return false;
        values[i] = tvm_value_copy(&as->keep, &value);
    }
    made->values = values;
    made->kept = true;
    if (tvm_asm_accept(as, "if") && !tvm_asm_condition(as, "the condition of a row", &made->kept))
        return false;
    return tvm_asm_expect_end(as);
}

/* rows: those of the table, which may move. */
static bool add_row(tvm_asm *as, tvm_table *table, tvm_row **rows, uint32_t *capacity) {
    tvm_row made = {.kept = false};
    if (!row(as, table, &made)) return false;
    if (table->row_count == *capacity) {
        *capacity = *capacity ? *capacity * 2 : 8;
        if (!grow_rows(as, table, rows, *capacity)) return false;
    }
    (*rows)[table->row_count++] = made;
    *find_row(table, made.name.name, made.name.length) = table->row_count;
    return true;
}

static bool at_endtable(const tvm_asm *as) {
    return tvm_asm_at(as, ".") && tvm_asm_is(as, tvm_asm_ahead(as, 1), "endtable");
}

/* The rows, up to and with .endtable. */
static bool read_rows(tvm_asm *as, const tvm_token *token, tvm_table *table) {
    tvm_row *rows = NULL;
    uint32_t capacity = 0;
    bool good = true;
    for (;;) {
        while (tvm_asm_peek(as)->kind == TVM_TOKEN_NEWLINE) tvm_asm_next(as);
        if (tvm_asm_peek(as)->kind == TVM_TOKEN_END || as->report.stopped)
            return tvm_asm_error(as, token, NULL, "'.table' without '.endtable'");
        if (at_endtable(as)) break;
        if (table->row_count == TVM_ASM_LIST) {
            tvm_asm_error(as, tvm_asm_peek(as), "several tables, or a .for over numbers, may do",
                          "a table has at most %d rows", TVM_ASM_LIST);
            as->report.stopped = true;
            return false;
        }
        const tvm_token *begin = tvm_asm_peek(as);
        if (add_row(as, table, &rows, &capacity)) continue;
        good = false;
        bool has_ended = as->text.source->tokens[as->text.at - 1].kind == TVM_TOKEN_NEWLINE;
        if (tvm_asm_peek(as) == begin || !has_ended) tvm_asm_skip_statement(as);
    }
    tvm_asm_next(as);
    tvm_asm_next(as);
    return tvm_asm_expect_end(as) && good;
}

bool tvm_directive_table(tvm_asm *as, const tvm_token *token) {
    const tvm_token *at = tvm_asm_peek(as);
    const char *name;
    tvm_table *table = tvm_arena_alloc(&as->keep, sizeof *table);
    if (!table) return tvm_asm_no_memory(as);
    *table = (tvm_table){.column_count = 0};
    if (!tvm_asm_expect_name(as, "the name of a table", &name, &table->name.length)) return false;
    table->name.name = tvm_arena_text(&as->keep, name, table->name.length);
    if (!table->name.name) return tvm_asm_no_memory(as);
    bool good = columns(as, table);
    if (!good) {
        tvm_asm_skip_to(as, "table", "endtable", false);
        if (at_endtable(as)) tvm_asm_skip_statement(as);
    }
    good = good && read_rows(as, token, table);
    tvm_value value =
        good ? (tvm_value){.kind = TVM_VALUE_TABLE, .as.record = {table, 0}} : tvm_value_poison();
    return tvm_asm_define(as, at, table->name.name, table->name.length, &value) && good;
}

bool tvm_directive_endtable(tvm_asm *as, const tvm_token *token) {
    return tvm_asm_error(as, token, NULL, "'.endtable' without '.table'");
}

/* ---- what a table has ---- */

static bool row_named(tvm_asm *as, const tvm_token *token, const char *name, uint32_t length,
                      tvm_value *value) {
    const tvm_table *table = value->as.record.table;
    tvm_suggest suggest;
    uint32_t found = table->row_count ? *find_row(table, name, length) : 0;
    if (found) {
        *value = (tvm_value){.kind = TVM_VALUE_RECORD, .as.record = {table, found - 1}};
        return true;
    }
    tvm_suggest_start(&suggest, name, length);
    for (uint32_t i = 0; i < table->row_count; i++)
        tvm_suggest_offer(&suggest, table->rows[i].name.name, table->rows[i].name.length);
    return tvm_asm_error(as, token, TVM_SUGGEST_HINT(&suggest, ""), "'%s' has no row '%.*s'",
                         table->name.name, (int)length, name);
}

static bool column_named(tvm_asm *as, const tvm_token *token, const char *name, uint32_t length,
                         tvm_value *value) {
    const tvm_table *table = value->as.record.table;
    const tvm_row *row = &table->rows[value->as.record.row];
    tvm_word asked = {name, length};
    tvm_suggest suggest;
    if (same(&asked, "name", 4)) {
        *value = tvm_value_string(row->name.name, row->name.length);
        return true;
    }
    if (same(&asked, "kept", 4)) {
        *value = tvm_value_bool(row->kept);
        return true;
    }
    tvm_suggest_start(&suggest, name, length);
    for (uint32_t i = 0; i < table->column_count; i++) {
        tvm_suggest_offer(&suggest, table->columns[i].name, table->columns[i].length);
        if (!same(&table->columns[i], name, length)) continue;
        *value = row->values[i];
        return true;
    }
    return tvm_asm_error(as, token, TVM_SUGGEST_HINT(&suggest, ""), "'%s' has no column '%.*s'",
                         table->name.name, (int)length, name);
}

bool tvm_asm_members(tvm_asm *as, tvm_value *value) {
    while (value->kind == TVM_VALUE_TABLE || value->kind == TVM_VALUE_RECORD) {
        const char *name;
        uint32_t length;
        if (!tvm_asm_accept(as, ".")) return true;
        const tvm_token *token = tvm_asm_peek(as);
        bool table = value->kind == TVM_VALUE_TABLE;
        if (!tvm_asm_expect_name(as, table ? "the name of a row" : "the name of a column", &name, &length) ||
            !(table ? row_named : column_named)(as, token, name, length, value))
            return false;
    }
    return true;
}

bool tvm_asm_rows(tvm_asm *as, const tvm_table *table, tvm_value *list) {
    tvm_value *items = tvm_arena_alloc(&as->keep, (table->row_count + 1) * sizeof *items);
    uint32_t count = 0;
    if (!items) return tvm_asm_no_memory(as);
    for (uint32_t i = 0; i < table->row_count; i++)
        if (table->rows[i].kept)
            items[count++] = (tvm_value){.kind = TVM_VALUE_RECORD, .as.record = {table, i}};
    *list = (tvm_value){.kind = TVM_VALUE_LIST, .as.list = {items, count}};
    return true;
}

bool tvm_asm_define_columns(tvm_asm *as, const tvm_token *token, const tvm_value *row) {
    const tvm_table *table = row->as.record.table;
    bool good = true;
    for (uint32_t i = 0; good && i < table->column_count; i++)
        good = tvm_asm_define(as, token, table->columns[i].name, table->columns[i].length,
                              &table->rows[row->as.record.row].values[i]);
    return good;
}
