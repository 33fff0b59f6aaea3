/* tvm-cc --emit html: the report as a page that needs nothing else, or of a large program a page a kernel.
 * Each line of the program's source stands beside what was selected for it and why not the better one; each
 * loop has what a turn of it moves and multiplies; a pipelined one has its stages over time. */
#include "codegen.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "fileio.h"
#include "mma.h"
#include "pipeline.h"
#include "text.h"

enum { SOURCE_LIMIT = 64 << 20, TURNS = 4, TURN = 90, ROW = 20, LABEL = 80 };

static const char style[] =
    "body{font:14px sans-serif;margin:2em;color:#222}h1{font-size:20px}h2{font-size:17px;margin-top:2em}"
    "table{border-collapse:collapse}td,th{padding:2px 8px;text-align:left;vertical-align:top;"
    "border-bottom:1px solid #eee}"
    "td.n{text-align:right;color:#666}code,pre,td.c{font-family:monospace;font-size:13px;white-space:pre}"
    "td.c{white-space:pre-wrap;max-width:38em}td.no{min-width:16em}"
    "pre{background:#f6f6f6;padding:8px;overflow-x:auto;max-height:40em}"
    ".bad{color:#b00}.no{color:#960;white-space:normal}"
    ".code{display:flex;gap:1em}.code pre{flex:1;min-width:0}"
    "summary{cursor:pointer;margin-top:1em}";

static void put_escaped(tvm_text *out, const char *text, size_t length) {
    for (size_t i = 0; i < length; i++) {
        const char *as = text[i] == '&'   ? "&amp;"
                         : text[i] == '<' ? "&lt;"
                         : text[i] == '>' ? "&gt;"
                         : text[i] == '"' ? "&quot;"
                                          : NULL;
        if (as)
            tvm_text_puts(out, as);
        else
            tvm_text_bytes(out, &text[i], 1);
    }
}

static void put_text(tvm_text *out, const char *text) {
    put_escaped(out, text, strlen(text));
}

/* ---- the program's text ---- */

/* The file that most of a kernel's lines are of, where it can be read, and what is said of its lines. */
typedef struct source {
    char *text;
    size_t size;
    uint32_t file;  /* string; TVM_NONE: there is none */
    uint32_t lines; /* 0: nothing is known of them */
    size_t *starts; /* of line n: [n - 1]; then the end */
    uint8_t
        *known; /* by line: does an instruction of the kernel stand there, and no macro's of another file? */
    uint32_t *first; /* by line: of what was selected for it, one more than the number; 0: nothing */
    uint32_t *next;  /* by selection: the next one for the line */
} source;

enum { LINE_NONE, LINE_OWN, LINE_FOREIGN };

static void close_source(source *s) {
    free(s->text);
    free(s->starts);
    free(s->known);
    free(s->first);
    free(s->next);
}

static bool find_starts(source *s) {
    uint32_t lines = 1;
    for (size_t i = 0; i < s->size; i++) lines += s->text[i] == '\n';
    s->starts = calloc((size_t)lines + 1, sizeof *s->starts);
    s->known = calloc((size_t)lines + 1, sizeof *s->known);
    s->first = calloc((size_t)lines + 1, sizeof *s->first);
    if (!s->starts || !s->known || !s->first) return false;
    for (size_t i = 0; i < s->size; i++)
        if (s->text[i] == '\n') s->starts[++s->lines] = i + 1;
    s->starts[++s->lines] = s->size + 1;
    return true;
}

static source open_source(const tvm_ir_program *program, const tvm_ir_kernel *kernel,
                          const tvm_kernel_code *code, tvm_text *out) {
    source s = {.file = TVM_NONE, .next = calloc(code->selection_count + 1, sizeof *s.next)};
    for (uint32_t i = 0; i < kernel->insn_count && s.file == TVM_NONE; i++) s.file = kernel->insns[i].file;
    uint8_t *bytes = NULL;
    if (s.file != TVM_NONE &&
        tvm_file_read(tvm_string(program, s.file), SOURCE_LIMIT, &bytes, &s.size, NULL) == TVM_OK)
        s.text = (char *)bytes;
    if (!s.next || (s.text && !find_starts(&s))) {
        s.lines = 0;
        out->failed = true;
        return s;
    }
    for (uint32_t i = 0; i < kernel->insn_count; i++) {
        const tvm_insn *insn = &kernel->insns[i];
        if (insn->line > s.lines) continue;
        if (insn->file != s.file)
            s.known[insn->line] = LINE_FOREIGN;
        else if (!s.known[insn->line])
            s.known[insn->line] = LINE_OWN;
    }
    for (uint32_t i = (uint32_t)code->selection_count; s.lines && i-- > 0;) {
        uint32_t line = code->selections[i].line;
        if (line > s.lines) continue;
        s.next[i] = s.first[line];
        s.first[line] = i + 1;
    }
    return s;
}

/* Line number `line`, from 1; "" beyond the end. */
static const char *line_of(const source *s, uint32_t line, size_t *length) {
    *length = 0;
    if (!line || line > s->lines) return "";
    *length = s->starts[line] - s->starts[line - 1] - 1;
    return s->text + s->starts[line - 1];
}

/* Is a line number that of a line of this file? Macros may be of another. */
static bool is_of(const source *s, uint32_t line) {
    return line <= s->lines && s->lines && s->known[line] == LINE_OWN;
}

static void put_cells(tvm_text *out, const tvm_selection *s) {
    tvm_text_puts(out, "<td class=\"c\">");
    put_text(out, s->candidate);
    tvm_text_puts(out, "</td><td class=\"n\">");
    if (s->bits) tvm_text_add(out, "%u", s->bits);
    tvm_text_add(out, "</td><td class=\"n\">%u</td><td class=\"n%s\">", s->count,
                 s->conflicts > 0 ? " bad" : "");
    if (s->conflicts >= 0) tvm_text_add(out, "%d", s->conflicts);
    tvm_text_puts(out, "</td><td class=\"no\">");
    put_text(out, s->refused);
    tvm_text_puts(out, "</td></tr>\n");
}

static void put_number(tvm_text *out, uint32_t line) {
    tvm_text_puts(out, "<tr><td class=\"n\">");
    if (line) tvm_text_add(out, "%" PRIu32, line);
    tvm_text_puts(out, "</td><td class=\"c\">");
}

/* A line of the text, and what was selected for it. */
static void put_line(tvm_text *out, const source *text, uint32_t line, const tvm_kernel_code *code) {
    size_t length;
    const char *at = line_of(text, line, &length);
    bool first = true;
    for (uint32_t i = is_of(text, line) ? text->first[line] : 0; i; i = text->next[i - 1]) {
        put_number(out, first ? line : 0);
        if (first) put_escaped(out, at, length);
        tvm_text_puts(out, "</td>");
        put_cells(out, &code->selections[i - 1]);
        first = false;
    }
    if (!first) return;
    put_number(out, line);
    put_escaped(out, at, length);
    tvm_text_puts(out, "</td><td></td><td></td><td></td><td></td><td></td></tr>\n");
}

static bool begins(const source *text, uint32_t line, const char *word) {
    size_t length;
    const char *at = line_of(text, line, &length);
    return length >= strlen(word) && !strncmp(at, word, strlen(word));
}

static bool is_end(const source *text, uint32_t line) {
    size_t length;
    const char *at = line_of(text, line, &length);
    return begins(text, line, ".end") && (length == 4 || strchr(" \t\r;#/", at[4]));
}

/* From its .kernel to its .end, where these stand at the beginning of a line; else its instructions' lines.
 */
static bool find_lines(const source *text, const tvm_ir_kernel *kernel, uint32_t *first, uint32_t *last) {
    *first = UINT32_MAX, *last = 0;
    for (uint32_t i = 0; i < kernel->insn_count; i++) {
        const tvm_insn *insn = &kernel->insns[i];
        if (insn->file != text->file || !insn->line || insn->line > text->lines) continue;
        if (insn->line < *first) *first = insn->line;
        if (insn->line > *last) *last = insn->line;
    }
    if (!*last) return false;
    uint32_t head = *first, end = *last;
    while (head && !begins(text, head, ".kernel")) head--;
    while (end <= text->lines && !is_end(text, end) && !begins(text, end, ".kernel")) end++;
    if (head) *first = head;
    if (end <= text->lines && is_end(text, end)) *last = end;
    return true;
}

static void put_selections(tvm_text *out, const tvm_ir_program *program, const tvm_ir_kernel *kernel,
                           const tvm_kernel_code *code) {
    source text = open_source(program, kernel, code, out);
    uint32_t first = 0, last = 0;
    tvm_text_puts(out, "<table><tr><th>line</th><th>program</th><th>selected</th><th>bits</th><th>count</th>"
                       "<th>conflicts</th><th>why not better</th></tr>\n");
    if (text.text && find_lines(&text, kernel, &first, &last))
        for (uint32_t line = first; line <= last; line++) put_line(out, &text, line, code);
    uint32_t before = 0;
    for (size_t i = 0; i < code->selection_count; i++) {
        const tvm_selection *s = &code->selections[i];
        if (s->line >= first && s->line <= last && is_of(&text, s->line)) continue;
        put_number(out, s->line == before ? 0 : s->line);
        put_text(out, s->instruction);
        tvm_text_puts(out, "</td>");
        put_cells(out, s);
        before = s->line;
    }
    tvm_text_puts(out, "</table>\n");
    close_source(&text);
}

/* ---- loops ---- */

/* What one turn does, without the loops inside of it. */
typedef struct turn {
    uint64_t global_read, global_written, shared_read, shared_written, products;
} turn;

static uint64_t tensor_bits(const tvm_ir_program *program, const tvm_ir_kernel *kernel, uint32_t slot) {
    const tvm_slot *s = &kernel->slots[slot];
    uint64_t bits = s->dtype.bits;
    if (s->kind != TVM_SLOT_REGISTER && s->kind != TVM_SLOT_SHARED) return 0;
    for (unsigned d = 0; d < tvm_slot_rank(program, s); d++) bits *= tvm_slot_shape(program, s)[d];
    return bits;
}

/* The tile that an instruction moves: the register tensor that it makes or reads, else the tile of the shared
 * one. */
static uint64_t moved_bits(const tvm_ir_program *program, const tvm_ir_kernel *kernel, const tvm_insn *insn) {
    if (insn->result != TVM_NONE && kernel->slots[insn->result].kind == TVM_SLOT_REGISTER)
        return tensor_bits(program, kernel, insn->result);
    uint64_t shared = 0;
    for (uint32_t i = 0; i < insn->count; i++) {
        const tvm_operand *operand = &kernel->operands[insn->first + i];
        if (operand->kind != TVM_OPERAND_SLOT) continue;
        if (kernel->slots[operand->value].kind == TVM_SLOT_REGISTER)
            return tensor_bits(program, kernel, operand->value);
        if (kernel->slots[operand->value].kind == TVM_SLOT_SHARED && !shared)
            shared = tensor_bits(program, kernel, operand->value);
    }
    return shared;
}

static turn turn_of(const tvm_ir_program *program, const tvm_ir_kernel *kernel, uint32_t loop) {
    turn t = {0};
    for (uint32_t i = loop + 1; i < kernel->insns[loop].match; i++) {
        const tvm_insn *insn = &kernel->insns[i];
        const tvm_op_info *info = tvm_op(insn->op);
        tvm_mma mma;
        if (info->class == TVM_CLASS_LOOP) {
            i = insn->match;
            continue;
        }
        if (insn->op == TVM_OP_MMA &&
            tvm_mma_read(program, kernel, &kernel->operands[insn->first], insn->count, &mma))
            t.products += (uint64_t)2 * mma.batch * mma.m * mma.n * mma.k;
        if (info->class != TVM_CLASS_MOVE) continue;
        uint64_t bytes = moved_bits(program, kernel, insn) / 8;
        if (info->effects & TVM_EFFECT_READ_GLOBAL) t.global_read += bytes;
        if (info->effects & TVM_EFFECT_WRITE_GLOBAL) t.global_written += bytes;
        if (info->effects & TVM_EFFECT_READ_SHARED) t.shared_read += bytes;
        if (info->effects & TVM_EFFECT_WRITE_SHARED) t.shared_written += bytes;
    }
    return t;
}

/* Copies of a turn start STAGES - 1 turns ahead, and the turn's instructions follow when they have come. */
static void put_stages(tvm_text *out, uint32_t stages, const char *wait) {
    uint32_t turns = stages - 1 + TURNS, width = LABEL + turns * TURN;
    tvm_text_add(out,
                 "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%" PRIu32 "\" height=\"%" PRIu32
                 "\" font-family=\"sans-serif\" font-size=\"11\">\n",
                 width + 10, (TURNS + 1) * (uint32_t)ROW + 30);
    for (uint32_t t = 0; t < turns; t++)
        tvm_text_add(out, "<text x=\"%" PRIu32 "\" y=\"12\" fill=\"#666\">%s%" PRIu32 "</text>",
                     LABEL + t * TURN + 4, t < stages - 1 ? "before, " : "turn ",
                     t < stages - 1 ? t + 1 : t - (stages - 1));
    for (uint32_t k = 0; k < TURNS; k++) {
        uint32_t y = 20 + k * ROW, start = LABEL + k * TURN, work = LABEL + (k + stages - 1) * TURN;
        tvm_text_add(out, "<text x=\"0\" y=\"%" PRIu32 "\">stage %" PRIu32 "</text>", y + 13, k % stages);
        tvm_text_add(out,
                     "<rect x=\"%" PRIu32 "\" y=\"%" PRIu32 "\" width=\"%" PRIu32
                     "\" height=\"16\" fill=\"#9ecae1\"/><text x=\"%" PRIu32 "\" y=\"%" PRIu32
                     "\">copies of turn %" PRIu32 "</text>",
                     start, y, (stages - 1) * (uint32_t)TURN, start + 4, y + 12, k);
        tvm_text_add(out,
                     "<line x1=\"%" PRIu32 "\" y1=\"%" PRIu32 "\" x2=\"%" PRIu32 "\" y2=\"%" PRIu32
                     "\" stroke=\"#b00\" stroke-width=\"2\"/><rect x=\"%" PRIu32 "\" y=\"%" PRIu32
                     "\" width=\"%d\" height=\"16\" fill=\"#a1d99b\"/><text x=\"%" PRIu32 "\" y=\"%" PRIu32
                     "\">turn %" PRIu32 "</text>\n",
                     work, y - 1, work, y + 17, work + 1, y, TURN - 2, work + 5, y + 12, k);
    }
    tvm_text_add(out, "<text x=\"0\" y=\"%u\" fill=\"#b00\">red: the wait for the turn's copies%s",
                 (unsigned)(TURNS + 1) * ROW + 24, *wait ? ", " : "");
    put_text(out, wait);
    tvm_text_puts(out, "</text></svg>\n");
}

/* The wait that was placed in the loop that begins on this line. */
static const char *wait_of(const tvm_kernel_code *code, uint32_t line) {
    for (size_t i = 0; i < code->selection_count; i++)
        if (code->selections[i].line == line && strstr(code->selections[i].candidate, "wait"))
            return code->selections[i].candidate;
    return "";
}

static void put_loops(tvm_text *out, const tvm_ir_program *program, const tvm_ir_kernel *kernel,
                      const tvm_kernel_code *code) {
    bool any = false;
    for (uint32_t i = 0; i < kernel->insn_count; i++) {
        const tvm_insn *insn = &kernel->insns[i];
        if (tvm_op(insn->op)->class != TVM_CLASS_LOOP) continue;
        if (!any)
            tvm_text_puts(
                out, "<h3>Loops: a turn of each, for a block, where nothing is outside of the tensors</h3>\n"
                     "<table><tr><th>line</th><th>global read</th><th>written</th><th>shared read</th>"
                     "<th>written</th><th>operations of mma</th><th>a byte read</th></tr>\n");
        any = true;
        turn t = turn_of(program, kernel, i);
        tvm_text_add(out,
                     "<tr><td class=\"n\">%" PRIu32 "</td><td class=\"n\">%" PRIu64
                     "</td><td class=\"n\">%" PRIu64 "</td><td class=\"n\">%" PRIu64
                     "</td><td class=\"n\">%" PRIu64 "</td><td class=\"n\">%" PRIu64 "</td><td class=\"n\">",
                     insn->line, t.global_read, t.global_written, t.shared_read, t.shared_written,
                     t.products);
        if (t.products && t.global_read)
            tvm_text_add(out, "%.1f", (double)t.products / (double)t.global_read);
        tvm_text_puts(out, "</td></tr>\n");
    }
    if (any) tvm_text_puts(out, "</table>\n");
    for (uint32_t i = 0; i < kernel->insn_count; i++) {
        uint32_t stages = tvm_pipeline_stages(kernel, &kernel->insns[i]);
        if (stages < 2) continue;
        tvm_text_add(out, "<p>The loop of line %" PRIu32 " has %" PRIu32 " stages:</p>\n",
                     kernel->insns[i].line, stages);
        put_stages(out, stages, wait_of(code, kernel->insns[i].line));
    }
}

/* ---- the page ---- */

static void put_absence(tvm_text *out, const tvm_kernel_code *code, tvm_target target) {
    char name[16];
    tvm_text_add(out, "Not for %s: %s", tvm_target_name(target, name),
                 code->abi.absence == TVM_ABI_TOO_BIG ? "a block has too little shared memory"
                                                      : "it assumes another target");
}

static void put_kernel(tvm_text *out, const tvm_ir_program *program, const tvm_ir_kernel *kernel,
                       const tvm_kernel_code *code, tvm_target target) {
    tvm_text_puts(out, "<h2>");
    put_text(out, code->name);
    tvm_text_puts(out, "</h2>\n");
    if (code->abi.absence) {
        tvm_text_puts(out, "<p class=\"bad\">");
        put_absence(out, code, target);
        tvm_text_puts(out, ".</p>\n");
        return;
    }
    tvm_text_add(out, "<p>%u threads, %u bytes of shared memory, ", code->abi.threads,
                 code->abi.shared_bytes);
    if (code->registers < 0)
        tvm_text_puts(out, "registers not known: the PTX has not been compiled");
    else
        tvm_text_add(out,
                     "%d registers, <span%s>%d bytes of spill stores, %d of spill loads</span>, %d of stack",
                     code->registers, code->spill_stores || code->spill_loads ? " class=\"bad\"" : "",
                     code->spill_stores, code->spill_loads, code->stack_bytes);
    tvm_text_puts(out, "</p>\n");
    if (code->loss[0]) {
        tvm_text_puts(out, "<p class=\"bad\">");
        put_text(out, code->loss);
        tvm_text_puts(out, "</p>\n");
    }
    put_selections(out, program, kernel, code);
    put_loops(out, program, kernel, code);
}

static void put_code(tvm_text *out, const char *ptx, size_t size, const char *sass) {
    tvm_text_add(out, "<details><summary>PTX%s</summary><div class=\"code\"><pre>", sass ? " and SASS" : "");
    put_escaped(out, ptx, size);
    tvm_text_puts(out, "</pre>");
    if (sass) {
        tvm_text_puts(out, "<pre>");
        put_text(out, sass);
        tvm_text_puts(out, "</pre>");
    }
    tvm_text_puts(out, "</div></details>\n");
}

/* What stands in the module's PTX for one kernel; "" where it has none. */
static const char *ptx_of(const tvm_module *module, const char *name, size_t *size) {
    static const char entry[] = "\n.visible .entry ";
    size_t length = strlen(name);
    for (const char *at = module->ptx; (at = strstr(at, entry)); at += sizeof entry - 1) {
        const char *word = at + sizeof entry - 1;
        if (strncmp(word, name, length) != 0 || word[length] != '(') continue;
        const char *next = strstr(word, entry);
        *size = next ? (size_t)(next - at) : strlen(at);
        return at;
    }
    *size = 0;
    return "";
}

/* ---- an index, and the kernels' pages beside it ---- */

static void put_url(tvm_text *out, const char *text) {
    for (const char *c = text; *c; c++) {
        bool plain = (*c >= '0' && *c <= '9') || (*c >= 'A' && *c <= 'Z') || (*c >= 'a' && *c <= 'z') ||
                     strchr("-._", *c);
        if (plain)
            tvm_text_bytes(out, c, 1);
        else
            tvm_text_add(out, "%%%02X", (unsigned)(unsigned char)*c);
    }
}

static void put_index(tvm_text *out, const tvm_module *module, const char *stem) {
    tvm_text_puts(out, "<table><tr><th>kernel</th><th>threads</th><th>shared memory</th><th>registers</th>"
                       "<th>bytes of spills</th><th></th></tr>\n");
    for (size_t k = 0; k < module->kernel_count; k++) {
        const tvm_kernel_code *code = &module->kernels[k];
        tvm_text_puts(out, "<tr><td><a href=\"");
        put_url(out, stem);
        tvm_text_add(out, "-%s.html\">%s</a></td>", code->name, code->name);
        if (code->abi.absence) {
            tvm_text_puts(out, "<td></td><td></td><td></td><td></td><td class=\"no\">");
            put_absence(out, code, module->target);
        } else {
            tvm_text_add(out, "<td class=\"n\">%u</td><td class=\"n\">%u</td>", code->abi.threads,
                         code->abi.shared_bytes);
            int spills = code->spill_stores + code->spill_loads;
            if (code->registers < 0)
                tvm_text_puts(out, "<td></td><td></td><td class=\"bad\">");
            else
                tvm_text_add(out, "<td class=\"n\">%d</td><td class=\"n%s\">%d</td><td class=\"bad\">",
                             code->registers, spills ? " bad" : "", spills);
            put_text(out, code->loss);
        }
        tvm_text_puts(out, "</td></tr>\n");
    }
    tvm_text_puts(out, "</table>\n");
}

static void put_head(tvm_text *t, const tvm_module *module, const char *title) {
    char name[16];
    tvm_text_puts(t, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/><title>");
    put_text(t, title);
    tvm_text_add(t, "</title><style>%s</style></head><body>\n<h1>", style);
    put_text(t, title);
    tvm_text_add(t, " for %s</h1>\n", tvm_target_name(module->target, name));
    if (!module->made_by[0]) return;
    tvm_text_puts(t, "<p>Compiled by ");
    put_text(t, module->made_by);
    tvm_text_puts(t, "</p>\n");
}

tvm_status tvm_report_html(const tvm_ir_program *program, const tvm_module *module,
                           const tvm_report_page *page, char **text, tvm_diags *diags) {
    tvm_text t = {0};
    size_t size;
    put_head(&t, module, page->title);
    if (page->kernel != TVM_NONE) {
        const tvm_kernel_code *code = &module->kernels[page->kernel];
        tvm_text_puts(&t, "<p><a href=\"");
        put_url(&t, page->index);
        tvm_text_puts(&t, "\">all kernels</a></p>\n");
        put_kernel(&t, program, &program->kernels[page->kernel], code, module->target);
        const char *ptx = ptx_of(module, code->name, &size);
        if (size) put_code(&t, ptx, size, page->sass);
    } else if (page->index) {
        put_index(&t, module, page->stem);
    } else {
        for (size_t k = 0; k < module->kernel_count; k++)
            put_kernel(&t, program, &program->kernels[k], &module->kernels[k], module->target);
        put_code(&t, module->ptx, module->ptx_size, page->sass);
    }
    tvm_text_puts(&t, "</body></html>\n");
    *text = t.failed ? NULL : t.data;
    if (!t.failed) return TVM_OK;
    tvm_text_free(&t);
    return tvm_diag_no_memory(diags);
}
