/* The picture: time over floor by type, a panel a batch, a colour a shape. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "decode.h"

enum { LEFT = 60, TOP = 70, COLUMN = 26, PANEL = 200, GAP = 90, COLOURS = 8 };
static const char *const colours[COLOURS] = {"#0072b2", "#e69f00", "#d55e00", "#009e73",
                                             "#cc79a7", "#56b4e9", "#6b4c9a", "#333333"};

double decode_target(unsigned bits, int64_t m) {
    if (m > 64) return NAN;
    if (m > 32) return bits == 4 ? 2.6 : NAN;
    if (m > 16) return bits == 4 ? 1.6 : NAN;
    return bits == 1 ? 2.3 : bits == 2 ? 1.5 : bits == 3 ? 1.2 : 1.12;
}

typedef struct picture {
    FILE *out;
    const decode_options *options;
    const decode_point *points;
    size_t count;
    double top; /* the largest ratio shown; what is above stands at the edge */
} picture;

static double ratio(const picture *p, const decode_point *point) {
    bool pdl = p->options->chain && !isnan(point->floor_pdl);
    return point->ours / (pdl ? point->floor_pdl : point->floor);
}

static double largest(const picture *p) {
    double most = 1.5;
    for (size_t i = 0; i < p->count; i++)
        most = fmax(most, ratio(p, &p->points[i])); /* fmax passes NAN over */
    return fmin(ceil(most * 4) / 4, 6);
}

static double y_of(const picture *p, double base, double value) {
    double share = (fmin(value, p->top) - 0.75) / (p->top - 0.75);
    return base - fmax(share, 0) * PANEL;
}

static void draw_axes(const picture *p, unsigned panel, double base) {
    double right = LEFT + COLUMN * (double)p->options->type_count;
    double step = p->top > 3 ? 0.5 : 0.25;
    fprintf(p->out, "<text x=\"%d\" y=\"%.0f\" font-weight=\"bold\">batch %lld</text>\n", LEFT,
            base - PANEL - 8, (long long)p->options->batches[panel]);
    for (double value = 1; value <= p->top + 1e-9; value += step) {
        double y = y_of(p, base, value);
        fprintf(p->out, "<line x1=\"%d\" y1=\"%.1f\" x2=\"%.0f\" y2=\"%.1f\" stroke=\"%s\"/>\n", LEFT, y,
                right, y, value == 1 ? "#888" : "#e4e4e4");
        fprintf(p->out, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.2f</text>\n", LEFT - 6, y + 4,
                value);
    }
    fprintf(p->out,
            "<text transform=\"translate(16 %.0f) rotate(-90)\" text-anchor=\"middle\">time / floor</text>\n",
            base - PANEL / 2.0);
    for (unsigned t = 0; t < p->options->type_count; t++) {
        double x = LEFT + COLUMN * (t + 0.5);
        fprintf(p->out,
                "<text transform=\"translate(%.1f %.0f) rotate(-60)\" text-anchor=\"end\">%s</text>\n", x + 4,
                base + 14, p->options->types[t].name);
        double target = decode_target(p->options->types[t].bits, p->options->batches[panel]);
        if (isnan(target)) continue;
        fprintf(p->out,
                "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#c00\" stroke-width=\"1.5\" "
                "stroke-dasharray=\"4 2\"/>\n",
                x - COLUMN / 2.0, y_of(p, base, target), x + COLUMN / 2.0, y_of(p, base, target));
    }
}

static void draw_point(const picture *p, const decode_point *point, double base) {
    unsigned type = 0, shape = 0;
    double value = ratio(p, point);
    while (type < p->options->type_count && strcmp(p->options->types[type].name, point->type.name)) type++;
    while (shape < p->options->shape_count &&
           (p->options->shapes[shape].n != point->n || p->options->shapes[shape].k != point->k))
        shape++;
    if (isnan(value) || type == p->options->type_count || shape == p->options->shape_count) return;
    double offset = (shape + 0.5) / p->options->shape_count - 0.5;
    double x = LEFT + COLUMN * (type + 0.5 + 0.8 * offset), y = y_of(p, base, value);
    fprintf(
        p->out,
        "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2.6\" fill=\"%s\"><title>%s, m %lld, n %lld, k %lld: %.2f us, %.3f of "
        "the floor</title></circle>\n",
        x, y, colours[shape % COLOURS], point->type.name, (long long)point->m, (long long)point->n,
        (long long)point->k, point->ours, value);
}

static void draw_legend(const picture *p) {
    double x = LEFT;
    for (unsigned i = 0; i < p->options->shape_count; i++, x += 120) {
        fprintf(p->out, "<circle cx=\"%.0f\" cy=\"36\" r=\"4\" fill=\"%s\"/>", x + 4, colours[i % COLOURS]);
        fprintf(p->out, "<text x=\"%.0f\" y=\"40\">%lld \xc3\x97 %lld</text>\n", x + 12,
                (long long)p->options->shapes[i].n, (long long)p->options->shapes[i].k);
    }
    fprintf(p->out,
            "<line x1=\"%.0f\" y1=\"36\" x2=\"%.0f\" y2=\"36\" stroke=\"#c00\" stroke-width=\"1.5\" "
            "stroke-dasharray=\"4 2\"/><text x=\"%.0f\" y=\"40\">target (57344 \xc3\x97 8192)</text>\n",
            x, x + 24, x + 30);
}

bool decode_svg_write(const char *path, const char *device, const decode_options *options,
                      const decode_point *points, size_t count) {
    picture p = {.out = fopen(path, "w"), .options = options, .points = points, .count = count};
    if (!p.out) return false;
    p.top = largest(&p);
    double types = LEFT + COLUMN * (double)options->type_count + 20;
    double legend = LEFT + 120.0 * options->shape_count + 200;
    fprintf(
        p.out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%u\" font-family=\"sans-serif\" "
        "font-size=\"11\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
        fmax(types, legend), TOP + options->batch_count * (PANEL + GAP));
    fprintf(p.out,
            "<text x=\"%d\" y=\"20\" font-size=\"14\">%s over the read floor, n \xc3\x97 k, %s</text>\n",
            LEFT, options->chain ? "Chained decode matmul" : "Decode matmul", device);
    draw_legend(&p);
    for (unsigned panel = 0; panel < options->batch_count; panel++) {
        double base = TOP + 20 + PANEL + panel * (double)(PANEL + GAP);
        draw_axes(&p, panel, base);
        for (size_t i = 0; i < count; i++)
            if (points[i].m == options->batches[panel]) draw_point(&p, &points[i], base);
    }
    fputs("</svg>\n", p.out);
    bool written = !ferror(p.out);
    return fclose(p.out) == 0 && written;
}
