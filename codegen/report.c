/* The report of --explain: one aligned table a kernel. */
#include <stdio.h>
#include <string.h>

#include "codegen.h"
#include "text.h"
#include "target.h"

enum { COLUMNS = 7, CELL_MAX = 512 };

static const char *const titles[COLUMNS] = {"line",  "instruction", "candidate", "bits",
                                            "count", "conflicts",   "refused"};
static const bool right_aligned[COLUMNS] = {true, false, false, true, true, true, false};

static void number_cell(char cell[CELL_MAX], long value, bool known) {
    if (known)
        snprintf(cell, CELL_MAX, "%ld", value);
    else
        snprintf(cell, CELL_MAX, "-");
}

static void selection_cells(const tvm_selection *s, char cells[COLUMNS][CELL_MAX]) {
    number_cell(cells[0], (long)s->line, s->line != 0);
    snprintf(cells[1], CELL_MAX, "%s", s->instruction);
    snprintf(cells[2], CELL_MAX, "%s", s->candidate);
    number_cell(cells[3], (long)s->bits, s->bits != 0);
    number_cell(cells[4], (long)s->count, true);
    number_cell(cells[5], (long)s->conflicts, s->conflicts >= 0);
    snprintf(cells[6], CELL_MAX, "%s", s->refused);
}

static void write_row(tvm_text *t, const char cells[COLUMNS][CELL_MAX], const int widths[COLUMNS]) {
    char row[COLUMNS * (CELL_MAX + 2) + 4];
    size_t used = 0, end = 0;
    for (unsigned c = 0; c < COLUMNS; c++) {
        int width = right_aligned[c] ? widths[c] : -widths[c];
        int n = snprintf(row + used, sizeof row - used, "  %*s", width, cells[c]);
        if (n > 0) used += (size_t)n;
        if (used >= sizeof row) used = sizeof row - 1;
    }
    for (size_t i = 0; i < used; i++)
        if (row[i] != ' ') end = i + 1;
    tvm_text_add(t, "%.*s\n", (int)end, row);
}

static void write_table(tvm_text *t, const tvm_kernel_code *kernel) {
    char cells[COLUMNS][CELL_MAX];
    int widths[COLUMNS];
    for (unsigned c = 0; c < COLUMNS; c++) widths[c] = (int)strlen(titles[c]);
    for (size_t i = 0; i < kernel->selection_count; i++) {
        selection_cells(&kernel->selections[i], cells);
        for (unsigned c = 0; c < COLUMNS; c++) {
            int width = (int)strlen(cells[c]);
            if (width > widths[c]) widths[c] = width;
        }
    }
    for (unsigned c = 0; c < COLUMNS; c++) snprintf(cells[c], CELL_MAX, "%s", titles[c]);
    write_row(t, (const char(*)[CELL_MAX])cells, widths);
    for (size_t i = 0; i < kernel->selection_count; i++) {
        selection_cells(&kernel->selections[i], cells);
        write_row(t, (const char(*)[CELL_MAX])cells, widths);
    }
}

static void write_usage(tvm_text *t, const tvm_kernel_code *kernel) {
    if (kernel->registers < 0)
        tvm_text_add(t, "  registers and spills are not known: the PTX has not been compiled\n");
    else
        tvm_text_add(t,
                     "  %d registers, %d bytes of stack, %d bytes of spill stores, %d bytes of spill loads\n",
                     kernel->registers, kernel->stack_bytes, kernel->spill_stores, kernel->spill_loads);
    if (kernel->loss[0]) tvm_text_add(t, "  %s\n", kernel->loss);
}

static bool came_before(const tvm_ir_entry *entry, uint32_t index) {
    for (uint32_t i = 0; i < index; i++)
        if (entry->cases[i].kernel == entry->cases[index].kernel) return true;
    return false;
}

/* An entry and its variants, each once. */
static void write_entry(tvm_text *t, const tvm_ir_program *program, const tvm_ir_entry *entry) {
    tvm_text_add(t, "\nentry %s: %u cases, of kernels", tvm_string(program, entry->head.name),
                 entry->case_count);
    for (uint32_t i = 0; i < entry->case_count; i++)
        if (!came_before(entry, i))
            tvm_text_add(t, "%s %s", i ? "," : "",
                         tvm_string(program, program->kernels[entry->cases[i].kernel].name));
    tvm_text_add(t, "\n");
}

static void write_absence(tvm_text *t, const tvm_ir_kernel *source, const tvm_kernel_code *kernel,
                          tvm_target target, bool follows) {
    char name[16];
    tvm_text_add(t, "%skernel %s is not for %s: ", follows ? "\n" : "", kernel->name,
                 tvm_target_name(target, name));
    if (kernel->abi.absence == TVM_ABI_TOO_BIG)
        tvm_text_add(t, "it needs %u bytes of shared memory, of which a block has %u\n",
                     (unsigned)kernel->abi.shared_bytes, tvm_target_shared_bytes(target));
    else if (tvm_cluster_blocks(source) > 1 && !tvm_target_has(target, TVM_HAS_CLUSTERS))
        tvm_text_add(t, "it has clusters, which %s is the first to have\n",
                     tvm_target_name(tvm_target_first_with(TVM_HAS_CLUSTERS)->target, name));
    else if (tvm_has_tensor_memory(source) && !tvm_target_has(target, TVM_HAS_TCGEN05))
        tvm_text_add(t, "it has tensor memory, which %s is the first to have\n",
                     tvm_target_name(tvm_target_first_with(TVM_HAS_TCGEN05)->target, name));
    else
        tvm_text_add(t, "it assumes another target\n");
}

tvm_status tvm_report(const tvm_ir_program *program, const tvm_module *module, char **report,
                      tvm_diags *diags) {
    char target[16];
    tvm_text t = {0};
    for (size_t k = 0; k < module->kernel_count; k++) {
        const tvm_kernel_code *kernel = &module->kernels[k];
        if (kernel->abi.absence) {
            write_absence(&t, &program->kernels[k], kernel, module->target, k > 0);
            continue;
        }
        tvm_text_add(&t, "%skernel %s for %s: %u threads, %u bytes of shared memory\n", k ? "\n" : "",
                     kernel->name, tvm_target_name(module->target, target), kernel->abi.threads,
                     kernel->abi.shared_bytes);
        write_table(&t, kernel);
        write_usage(&t, kernel);
    }
    for (uint32_t i = 0; i < program->entry_count; i++) write_entry(&t, program, &program->entries[i]);
    if (module->kernel_count == 0) tvm_text_add(&t, "no kernels\n");
    if (module->made_by[0])
        tvm_text_add(&t, "\ncompiled by %s%s%s\n", module->made_by, module->made_by_why ? ", " : "",
                     module->made_by_why ? module->made_by_why : "");
    *report = t.failed ? NULL : t.data;
    if (!t.failed) return TVM_OK;
    tvm_text_free(&t);
    return tvm_diag_no_memory(diags);
}
