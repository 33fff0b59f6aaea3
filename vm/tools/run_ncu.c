/* tvm-run --ncu: counters of the hardware, by Nsight Compute's names: ncu runs the same launch in a process
 * of its own, and its table is read. */
#include "run_profile.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "subprocess.h"

enum { LIMIT_MS = 600 * 1000, WORDS = 16, CELLS = 32 };

/* What there is on every GPU from sm_80 on. */
static const char usual[] = "gpu__time_duration.sum,"
                            "dram__bytes_read.sum,"
                            "dram__bytes_write.sum,"
                            "dram__throughput.avg.pct_of_peak_sustained_elapsed,"
                            "lts__t_sector_hit_rate.pct,"
                            "l1tex__data_bank_conflicts_pipe_lsu.sum,"
                            "smsp__inst_executed.sum,"
                            "sm__throughput.avg.pct_of_peak_sustained_elapsed,"
                            "sm__warps_active.avg.pct_of_peak_sustained_active";

/* ---- its table: CSV, each cell in quotation marks, between lines of other kinds ---- */

/* Takes the line apart in place; the number of cells. */
static unsigned split(char *line, char *cells[CELLS]) {
    unsigned count = 0;
    for (char *c = line; *c == '"' && count < CELLS;) {
        cells[count++] = ++c;
        char *to = c;
        while (*c && (*c != '"' || c[1] == '"')) {
            if (*c == '"') c++;
            *to++ = *c++;
        }
        bool more = *c && c[1] == ',';
        if (*c) c += 1 + more;
        *to = 0;
        if (!more) break;
    }
    return count;
}

static unsigned find_cell(char *const *cells, unsigned count, const char *name) {
    unsigned i = 0;
    while (i < count && strcmp(cells[i], name)) i++;
    return i;
}

/* The number of counters printed. */
static unsigned print_table(char *text, FILE *out) {
    unsigned name = CELLS, unit = CELLS, value = CELLS, printed = 0;
    for (char *rest = text, *line = strsep(&rest, "\n"); line; line = strsep(&rest, "\n")) {
        char *cells[CELLS];
        line[strcspn(line, "\r")] = 0;
        unsigned count = split(line, cells);
        if (count && !strcmp(cells[0], "ID")) {
            name = find_cell(cells, count, "Metric Name");
            unit = find_cell(cells, count, "Metric Unit");
            value = find_cell(cells, count, "Metric Value");
        } else if (name < count && unit < count && value < count) {
            fprintf(out, "  %-56s %14s %s\n", cells[name], cells[value], cells[unit]);
            printed++;
        }
    }
    return printed;
}

/* ---- the run ---- */

/* Why there are no counters: ncu's own words, of which those of an error come first. */
static tvm_status explain(const tvm_process_result *result, tvm_diags *diags) {
    const char *at = strstr(result->output, "==ERROR== ");
    if (result->error || result->exit_code == 127)
        return tvm_diag_add(diags, TVM_NOT_FOUND, NULL, "it comes with the CUDA toolkit",
                            "ncu is not in PATH");
    if (result->timed_out)
        return tvm_diag_add(diags, TVM_IO, NULL, NULL, "ncu took longer than %d s", LIMIT_MS / 1000);
    if (strstr(result->output, "ERR_NVGPUCTRPERM"))
        return tvm_diag_add(diags, TVM_UNSUPPORTED, NULL,
                            "run it as root, or load the driver with NVreg_RestrictProfilingToAdminUsers=0",
                            "ncu may not read this GPU's counters");
    at = at ? at + strlen("==ERROR== ") : result->output;
    return tvm_diag_add(diags, TVM_UNSUPPORTED, NULL, NULL, "ncu has no counters: %.*s",
                        (int)strcspn(at, "\r\n"), at);
}

tvm_status tvm_run_ncu(const tvm_run_ncu_launch *launch, const char *counters, FILE *out, tvm_diags *diags) {
    char self[4096], device[32], kernel[256];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length < 0) return tvm_diag_add(diags, TVM_IO, NULL, NULL, "/proc/self/exe cannot be read");
    self[length] = 0;
    snprintf(device, sizeof device, "--device=cuda:%d", launch->ordinal);
    snprintf(kernel, sizeof kernel, "--kernel=%s", launch->function);
    const char *const head[] = {"/usr/bin/env",
                                "ncu",
                                "--csv",
                                "--target-processes",
                                "all",
                                "--kernel-name",
                                launch->kernel,
                                "--launch-count",
                                "1",
                                "--metrics",
                                counters ? counters : usual,
                                self,
                                launch->file,
                                "--quiet",
                                device,
                                kernel};
    enum { HEAD = sizeof head / sizeof *head };
    const char **words = calloc(HEAD + launch->word_count + 1, sizeof *words);
    tvm_process_result result = {0};
    if (!words) return tvm_diag_no_memory(diags);
    memcpy(words, head, sizeof head);
    for (size_t i = 0; i < launch->word_count; i++) words[HEAD + i] = launch->words[i];
    tvm_status status = tvm_process_run(words, NULL, 0, LIMIT_MS, &result, diags);
    free(words);
    if (status) return status;
    char *text = strdup(result.output);
    if (!text) status = tvm_diag_no_memory(diags);
    if (!status) fprintf(out, "counted by ncu:\n");
    if (!status && !print_table(text, out)) status = explain(&result, diags);
    free(text);
    free(result.output);
    return status;
}
