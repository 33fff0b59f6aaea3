/* tvm-run --profile: what is printed and drawn. */
#include "run_profile.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "fileio.h"
#include "text.h"

enum {
    WIDTH = 64,
    HEIGHT = 14,
    DECADES = 5
}; /* of the terminal's picture: from 0.1 to 10^4 operations a byte */

/* "1.05 MB": three digits, decimal prefixes. */
static const char *amount(double value, const char *unit, char text[32]) {
    static const char *const prefixes[] = {"", "k", "M", "G", "T", "P"};
    unsigned p = 0;
    while (value >= 999.5 && p < 5) value /= 1000, p++;
    if (p == 0)
        snprintf(text, 32, "%.0f %s", value, unit);
    else
        snprintf(text, 32, "%.3g %s%s", value, prefixes[p], unit);
    return text;
}

static bool is_measured(const tvm_run_profile *p) {
    return !isnan(p->microseconds);
}

/* The share of the time that each roofline ceiling explains, in percent. */
static double memory_share(const tvm_run_profile *p) {
    return 100 * (double)tvm_run_profile_bytes(p) / p->bytes_per_second / (p->microseconds * 1e-6);
}

static double tensor_share(const tvm_run_profile *p) {
    return 100 * tvm_run_profile_operations(p) / p->operations_per_second / (p->microseconds * 1e-6);
}

static double intensity(const tvm_run_profile *p) {
    uint64_t bytes = tvm_run_profile_bytes(p);
    return bytes ? tvm_run_profile_operations(p) / (double)bytes : 0;
}

static double roof_at(const tvm_run_profile *p, double operations_a_byte) {
    return fmin(p->operations_per_second, operations_a_byte * p->bytes_per_second);
}

/* Rows are half decades below the peak, columns operations a byte, both logarithmic. */
static void print_roofline(const tvm_run_profile *p, FILE *out) {
    char picture[HEIGHT][WIDTH + 1], text[32];
    double x = intensity(p), rate = tvm_run_profile_operations(p) / (p->microseconds * 1e-6);
    if (!(x > 0)) return;
    memset(picture, ' ', sizeof picture);
    for (int c = 0; c < WIDTH; c++) {
        double roof = roof_at(p, pow(10, c * (double)DECADES / WIDTH - 1));
        int row = (int)lround(3 * log10(p->operations_per_second / roof));
        if (row >= 0 && row < HEIGHT) picture[row][c] = roof < p->operations_per_second ? '/' : '_';
    }
    int column = (int)lround((log10(x) + 1) * WIDTH / DECADES),
        row = (int)lround(3 * log10(p->operations_per_second / rate));
    column = column < 0 ? 0 : column >= WIDTH ? WIDTH - 1 : column;
    row = row < 0 ? 0 : row >= HEIGHT ? HEIGHT - 1 : row;
    picture[row][column] = 'o';
    for (int r = 0; r < HEIGHT; r++) {
        picture[r][WIDTH] = 0;
        bool labelled = r % 3 == 0;
        fprintf(out, "%12s |%s\n",
                labelled ? amount(p->operations_per_second / pow(10, r / 3.0), "op/s", text) : "",
                picture[r]);
    }
    fprintf(out, "%12s +0.1", "");
    for (int d = 1; d <= DECADES; d++) fprintf(out, "%*.0f", WIDTH / DECADES - (d == 1), pow(10, d - 1));
    fprintf(out, "\n%*s\n", 13 + WIDTH, "op/byte");
}

static void print_bytes(const char *name, uint64_t read, uint64_t written, FILE *out) {
    char a[32], b[32];
    fprintf(out, "  %-16s %12s read, %12s written\n", name, amount((double)read, "B", a),
            amount((double)written, "B", b));
}

void tvm_run_profile_print(const tvm_run_profile *p, FILE *out) {
    static const char *const pipes[TVM_RUN_PIPES] = {"tensor, 16 bits", "tensor, 8 bits", "tensor, 32 bits",
                                                     "float elements", "other elements"};
    char text[32], other[32];
    fprintf(out, "%s on %s, counted by the interpreter:\n", p->kernel, p->device);
    fprintf(out, "  %-16s %12" PRIu64 " of %" PRIu64 " blocks\n", "instructions", p->instructions, p->blocks);
    if (p->turns) fprintf(out, "  %-16s %12" PRIu64 " of loops, of a warp at most\n", "turns", p->turns);
    print_bytes("global memory", p->global_read, p->global_written, out);
    print_bytes("shared memory", p->shared_read, p->shared_written, out);
    if (p->passes)
        fprintf(out, "  %-16s %12" PRIu64 " of %" PRIu64 " passes at most, on %s\n", "bank conflicts",
                p->conflicts, p->passes, p->target);
    for (unsigned i = 0; i < TVM_RUN_PIPES; i++)
        if (p->operations[i])
            fprintf(out, "  %-16s %12s\n", pipes[i], amount((double)p->operations[i], "op", text));
    if (!is_measured(p)) return;
    double memory = memory_share(p), tensor = tensor_share(p);
    fprintf(out, "%.3f us; at least %s of memory, at %s/s %.3f us: %.0f %%\n", p->microseconds,
            amount((double)tvm_run_profile_bytes(p), "B", text), amount(p->bytes_per_second, "B", other),
            p->microseconds * memory / 100, memory);
    if (tensor > 0)
        fprintf(out, "%12s of products of f16, at %s/s %.3f us: %.0f %%\n",
                amount(tvm_run_profile_operations(p), "op", text),
                amount(p->operations_per_second, "op", other), p->microseconds * tensor / 100, tensor);
    fprintf(out, "the nearest ceiling is %s: %.0f %% of it\n",
            memory >= tensor ? "memory" : "the tensor cores", fmax(memory, tensor));
    print_roofline(p, out);
}

/* ---- SVG ---- */

enum { LEFT = 90, TOP = 60, ACROSS = 520, DOWN = 300 };

static double x_of(double operations_a_byte) {
    return LEFT + (log10(fmin(fmax(operations_a_byte, 0.1), 1e4)) + 1) * ACROSS / DECADES;
}

static double y_of(const tvm_run_profile *p, double rate) {
    return TOP + fmin(fmax(log10(p->operations_per_second / fmax(rate, 1)), 0), DECADES) * DOWN / DECADES;
}

tvm_status tvm_run_profile_svg(const tvm_run_profile *p, const char *path, tvm_diags *diags) {
    tvm_text out = {0};
    char text[32];
    double x = intensity(p), rate = tvm_run_profile_operations(p) / (p->microseconds * 1e-6);
    if (!is_measured(p) || !(x > 0))
        return tvm_diag_add(diags, TVM_UNSUPPORTED, NULL, NULL,
                            "a roofline needs a GPU's time and products: there is %s",
                            is_measured(p) ? "no mma" : "only the interpreter");
    tvm_text_add(
        &out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" "
        "font-size=\"11\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n"
        "<text x=\"%d\" y=\"24\" font-size=\"14\">%s on %s: %.3f us</text>\n",
        LEFT + ACROSS + 60, TOP + DOWN + 50, LEFT, p->kernel, p->device, p->microseconds);
    for (int d = 0; d <= DECADES; d++) {
        double at = pow(10, d - 1), level = p->operations_per_second / pow(10, d);
        tvm_text_add(&out, "<line x1=\"%.0f\" y1=\"%d\" x2=\"%.0f\" y2=\"%d\" stroke=\"#eee\"/>", x_of(at),
                     TOP, x_of(at), TOP + DOWN);
        tvm_text_add(&out, "<text x=\"%.0f\" y=\"%d\" text-anchor=\"middle\">%g</text>", x_of(at),
                     TOP + DOWN + 16, at);
        tvm_text_add(&out, "<text x=\"%d\" y=\"%.0f\" text-anchor=\"end\">%s</text>\n", LEFT - 6,
                     y_of(p, level) + 4, amount(level, "op/s", text));
    }
    bool is_right = x_of(x) > LEFT + ACROSS / 2; /* its text goes where there is room, below the roof */
    double knee = p->operations_per_second / p->bytes_per_second;
    tvm_text_add(
        &out,
        "<polyline points=\"%.1f,%.1f %.1f,%d %d,%d\" fill=\"none\" stroke=\"#333\" stroke-width=\"2\"/>\n",
        x_of(0.1), y_of(p, roof_at(p, 0.1)), x_of(knee), TOP, LEFT + ACROSS, TOP);
    tvm_text_add(
        &out,
        "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"5\" fill=\"#d55e00\"/>"
        "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%.0f %% of memory, %.0f %% of the tensor cores</text>\n",
        x_of(x), y_of(p, rate), is_right ? x_of(x) - 9 : x_of(x) + 9, y_of(p, rate) + 16,
        is_right ? "end" : "start", memory_share(p), tensor_share(p));
    tvm_text_add(&out, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">operations a byte</text>\n</svg>\n",
                 LEFT + ACROSS / 2, TOP + DOWN + 36);
    tvm_status status =
        out.failed ? tvm_diag_no_memory(diags) : tvm_file_write(path, out.data, out.size, diags);
    tvm_text_free(&out);
    return status;
}
