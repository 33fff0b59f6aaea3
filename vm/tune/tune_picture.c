/* The picture of the costs over the space. */
#include "tune.h"

#include <math.h>

#include "fileio.h"

enum { BAR = 420, LEFT = 330, ROW = 16, TOP = 40 };

static void put_escaped(tvm_text *out, const char *text) {
    for (; *text; text++) {
        const char *as = *text == '&' ? "&amp;" : *text == '<' ? "&lt;" : *text == '>' ? "&gt;" : NULL;
        if (as)
            tvm_text_puts(out, as);
        else
            tvm_text_bytes(out, text, 1);
    }
}

static void put_row(const tune *t, const tune_variant *v, unsigned shape, double most, bool chosen,
                    unsigned y, tvm_text *out) {
    double cost = v->state == TUNE_TIMED ? v->costs[shape] : NAN;
    tvm_text_add(out, "<text x=\"%d\" y=\"%u\" text-anchor=\"end\"%s>", LEFT - 6, y + 12,
                 chosen ? " font-weight=\"bold\"" : "");
    put_escaped(out, v->label);
    tvm_text_puts(out, "</text>");
    double width = isnan(cost) || most <= 0 ? 0 : BAR * cost / most;
    if (!isnan(cost))
        tvm_text_add(out, "<rect x=\"%d\" y=\"%u\" width=\"%.1f\" height=\"%d\" fill=\"%s\"/>", LEFT, y + 2,
                     width, ROW - 4,
                     chosen             ? "#009e73"
                     : v == t->variants ? "#e69f00"
                                        : "#56b4e9");
    tvm_text_add(out, "<text x=\"%.1f\" y=\"%u\"%s>", LEFT + width + 4, y + 12,
                 isnan(cost) ? " fill=\"#c00\"" : "");
    if (isnan(cost))
        tvm_text_puts(out, v->state == TUNE_TIMED ? "not for this shape" : tune_state_names[v->state]);
    else
        tvm_text_add(out, "%.4g", cost);
    tvm_text_puts(out, "</text>\n");
}

tvm_status tune_svg_write(const tune *t, tvm_diags *diags) {
    tvm_text body = {0}, out = {0};
    unsigned y = TOP;
    for (unsigned s = 0; s < t->shape_count; s++) {
        double most = 0;
        if (t->shapes[s].check_only) continue;
        unsigned c = t->shapes[s].class_number;
        for (uint32_t v = 0; v < t->count; v++)
            if (t->variants[v].state == TUNE_TIMED) most = fmax(most, t->variants[v].costs[s]);
        tvm_text_add(&body, "<text x=\"12\" y=\"%u\" font-weight=\"bold\">", y + 12);
        put_escaped(&body, t->shapes[s].text[0] ? t->shapes[s].text : "all shapes");
        tvm_text_add(&body, ", %s</text>\n", tune_cost_units[t->options.cost]);
        y += ROW + 4;
        for (uint32_t v = 0; v < t->count; v++, y += ROW)
            put_row(t, &t->variants[v], s, most, v == t->chosen[c], y, &body);
        y += ROW;
    }
    tvm_text_add(
        &out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%u\" font-family=\"sans-serif\" "
        "font-size=\"11\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n"
        "<text x=\"12\" y=\"24\" font-size=\"14\">",
        LEFT + BAR + 120, y + 12);
    put_escaped(&out, t->options.input);
    tvm_text_puts(&out, " on ");
    put_escaped(&out, t->device.text);
    tvm_text_puts(&out, ": green is chosen, orange the default</text>\n");
    tvm_text_append(&out, &body);
    tvm_text_puts(&out, "</svg>\n");
    tvm_text_free(&body);
    tvm_status status =
        out.failed ? tvm_diag_no_memory(diags) : tvm_file_write(t->options.svg, out.data, out.size, diags);
    tvm_text_free(&out);
    return status;
}
