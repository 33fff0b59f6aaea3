/* Reports: one for each kind and pair of places, with a count of the elements. */
#include "sanitize_impl.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_REPORTS = 200 };

static const struct {
    const char *name, *text;
} kinds[SAN_KINDS] = {
#define SAN_KIND(id, name, text) {name, text},
#include "sanitize_kinds.def"
};

const char *tvm_san_kind_text(san_kind kind) {
    return kinds[kind].text;
}

tvm_place tvm_san_place(const sanitizer *s, uint32_t insn) {
    const tvm_insn *source = &s->kernel->kernel->insns[insn];
    tvm_place place = {.line = source->line};
    if (source->file != TVM_NONE) place.file = tvm_string(s->kernel->program, source->file);
    return place;
}

const char *tvm_san_mnemonic(const sanitizer *s, uint32_t insn) {
    return tvm_op(s->kernel->kernel->insns[insn].op)->mnemonic;
}

san_report *tvm_san_find(sanitizer *s, san_kind kind, uint32_t insn, uint32_t other) {
    for (uint32_t i = s->report_count; i-- > 0;) {
        san_report *report = &s->reports[i];
        if (report->kind == kind && report->insn == insn && report->other == other) return report;
    }
    return NULL;
}

san_report *tvm_san_report(sanitizer *s, san_kind kind, uint32_t insn, uint32_t other) {
    san_report *kept = tvm_san_find(s, kind, insn, other);
    if (kept) {
        kept->count++;
        return NULL;
    }
    if (s->report_count == s->report_capacity && s->report_count < MOST_REPORTS) {
        uint32_t capacity = s->report_capacity ? 2 * s->report_capacity : 8;
        san_report *reports = realloc(s->reports, capacity * sizeof *reports);
        if (!reports) {
            s->no_memory = true;
            return NULL;
        }
        s->reports = reports;
        s->report_capacity = capacity;
    }
    if (s->report_count >= MOST_REPORTS) {
        s->lost++;
        return NULL;
    }
    san_report *report = &s->reports[s->report_count++];
    *report = (san_report){.kind = kind, .insn = insn, .other = other, .count = 1, .slot = TVM_NONE};
    return report;
}

static const char *fault_hint(san_kind kind) {
    switch (kind) {
    case SAN_OUTSIDE:
        return "what is indexed must be inside for all values that the index takes";
    case SAN_BARRIER:
        return "every team, or block of the cluster, that it counts comes to the barrier on every path";
    case SAN_CLUSTER:
        return "all blocks make a multicast alike, on every path, once sync-cluster has shown that the others' "
               "mbarriers are made";
    case SAN_DEADLOCK:
        return "each wait needs an arrival, release or put whose maker does not wait for this one";
    default:
        return NULL;
    }
}

/* Blocks that wait for one that has ended with a fault are not at fault. */
void tvm_sanitize_fault(const interp_context *context, const interp_insn *insn, const interp_insn *other,
                        interp_fault fault, const char *message) {
    static const san_kind kinds_of[] = {[INTERP_FAULT] = SAN_FAULT,
                                        [INTERP_OUTSIDE] = SAN_OUTSIDE,
                                        [INTERP_DEADLOCK] = SAN_DEADLOCK,
                                        [INTERP_BARRIER] = SAN_BARRIER,
                                        [INTERP_CLUSTER] = SAN_CLUSTER};
    sanitizer *s = context->block->run->sanitizer;
    uint32_t number = insn ? (uint32_t)(insn - s->kernel->insns) : 0;
    san_kind kind = kinds_of[fault];
    if (kind == SAN_DEADLOCK && s->faulted) return;
    s->faulted = true;
    san_report *report =
        tvm_san_report(s, kind, number, other ? (uint32_t)(other - s->kernel->insns) : TVM_NONE);
    if (!report) return;
    const int32_t *index = context->block->index;
    memcpy(report->block, index, sizeof report->block);
    report->hint = fault_hint(kind);
    if (!strncmp(message, "deadlock: ", strlen("deadlock: "))) message += strlen("deadlock: ");
    snprintf(report->what, sizeof report->what, "%s: %s (block (%d,%d,%d))", tvm_san_mnemonic(s, number),
             message, index[0], index[1], index[2]);
}

/* An update of memory over blocks is one mistake, not also a race of its load. */
static bool is_covered(const sanitizer *s, const san_report *report) {
    if (report->kind != SAN_RACE_GLOBAL) return false;
    for (uint32_t i = 0; i < s->report_count; i++)
        if (s->reports[i].kind == SAN_ORDER && s->reports[i].slot == report->slot &&
            s->reports[i].other == report->other)
            return true;
    return false;
}

void tvm_san_finish(sanitizer *s) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < s->report_count; i++) s->reports[i].covered = is_covered(s, &s->reports[i]);
    for (uint32_t i = 0; i < s->report_count; i++)
        if (!s->reports[i].covered) s->reports[kept++] = s->reports[i];
    s->report_count = kept;
}

/* ---- JSON ---- */

static void write_string(FILE *out, const char *text) {
    fputc('"', out);
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if (*c == '"' || *c == '\\')
            fprintf(out, "\\%c", *c);
        else if (*c < 0x20)
            fprintf(out, "\\u%04x", (unsigned)*c);
        else
            fputc(*c, out);
    }
    fputc('"', out);
}

static void write_member(FILE *out, const char *name, const char *text) {
    fprintf(out, ", \"%s\": ", name);
    write_string(out, text);
}

static void write_place(FILE *out, const sanitizer *s, const char *name, uint32_t insn, const char *threads) {
    const tvm_place place = tvm_san_place(s, insn);
    fprintf(out, ", \"%s\": {\"line\": %" PRIu32, name, place.line);
    write_member(out, "file", place.file ? place.file : "");
    write_member(out, "instruction", tvm_san_mnemonic(s, insn));
    write_member(out, "threads", threads);
    fputc('}', out);
}

static void write_report(FILE *out, const sanitizer *s, const san_report *report) {
    fprintf(out, "{\"kind\": \"%s\", \"count\": %" PRIu64 ", \"block\": [%d, %d, %d]",
            kinds[report->kind].name, report->count, report->block[0], report->block[1], report->block[2]);
    write_member(out, "kernel", tvm_string(s->kernel->program, s->kernel->kernel->name));
    write_member(out, "message", report->what);
    write_member(out, "element", report->element);
    write_place(out, s, "place", report->insn, report->who);
    if (report->other != TVM_NONE) write_place(out, s, "other", report->other, report->whom);
    write_member(out, "hint", report->hint ? report->hint : "");
    fputc('}', out);
}

char *tvm_san_json(const sanitizer *s) {
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out) return NULL;
    fputs("{\"reports\": [", out);
    for (uint32_t i = 0; i < s->report_count; i++) {
        if (i) fputs(",\n ", out);
        write_report(out, s, &s->reports[i]);
    }
    fprintf(out, "], \"lost\": %" PRIu64 "}", s->lost);
    if (fclose(out) == 0) return text;
    free(text);
    return NULL;
}
