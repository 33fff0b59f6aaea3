/* What the scales, the zero points and the values of layers become: which type, divided by what, and by how
 * much the weights change where they are rounded. Layers are worked on one by one, on all threads, before
 * anything is written. */
#include "checkpoint_impl.h"
#include "work.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

enum { ROWS = 64, COLUMNS = 1024, STRIDE = COLUMNS + 64, MOST_F16 = 65504 };

/* ---- what weights are ---- */

double ck_level(const ck_layer *layer, unsigned code) {
    return layer->table ? ck_table_value(layer->table, code) : tvm_decode(layer->type, code);
}

ck_group ck_group_at(const ck_layer *layer, uint64_t index, uint64_t group, uint64_t column) {
    const ck_format *format = layer->format;
    ck_group g = {.scale = format->scale(layer, index, group, column)};
    if (layer->input_scales) g.scale *= layer->input_scales[group];
    if (!layer->own_zeros) {
        if (layer->type.kind == TVM_KIND_UINT && !layer->table) g.zero = 1u << (layer->bits - 1);
        return g;
    }
    if (!layer->has_offsets) {
        g.zero = format->zero(layer, index, group, column);
        return g;
    }
    g.offset = format->offset(layer, index, group, column);
    g.zero = g.offset != 0 ? -g.offset / g.scale : 0;
    g.constant = fabs(g.zero) > MOST_F16;
    return g;
}

double ck_value(const ck_layer *layer, const ck_group *group, double level) {
    return layer->has_offsets ? level * group->scale + group->offset : (level - group->zero) * group->scale;
}

double ck_rounded(tvm_dtype type, double value, uint16_t *code) {
    bool bf16 = tvm_dtype_same(type, TVM_BF16);
    if (type.bits == 8) {
        *code = (uint16_t)tvm_encode(type, value);
        return tvm_decode(type, *code);
    }
    *code = bf16 ? tvm_f64_to_bf16(value) : tvm_f64_to_f16(value);
    return (double)(bf16 ? tvm_bf16_to_f32(*code) : tvm_f16_to_f32(*code));
}

/* Scale and zero point as they are written, before the multiplier; the code of each. In a group whose codes
 * hardly matter all codes become 0, which means -scale. */
static void written(const ck_layer *layer, const ck_group *group, double pair[2], uint16_t codes[2]) {
    double scale = group->constant ? -group->offset : group->scale, zero = group->constant ? 1 : group->zero;
    pair[0] = ck_rounded(layer->scale_type, scale / layer->rescale, &codes[0]);
    pair[1] = 0; /* beside scales of 8 bits there are no zero points */
    codes[1] = 0;
    if (layer->scale_type.bits != 8) pair[1] = ck_rounded(layer->scale_type, zero, &codes[1]);
}

void ck_written(const ck_layer *layer, const ck_group *group, uint16_t *scale, uint16_t *zero) {
    double pair[2];
    uint16_t codes[2];
    written(layer, group, pair, codes);
    *scale = codes[0];
    *zero = codes[1];
}

/* ---- the type of scales ---- */

static tvm_status bad_scale(const checkpoint *c, const ck_layer *layer, const char *what, uint64_t g,
                            uint64_t j, double value, tvm_diags *diags) {
    tvm_place place = {.file = c->files[layer->file].path};
    return tvm_diag_add(diags, TVM_FORMAT, &place, isfinite(value) ? "--scale bf16 has a wider range" : NULL,
                        "layer '%.120s' (%s): the %s of group %" PRIu64 ", column %" PRIu64 " is %g%s",
                        layer->name, layer->format->name, what, g, j, value,
                        isfinite(value) ? ", beyond the range of f16" : "");
}

static uint64_t groups_of(const ck_layer *layer) {
    return layer->k / layer->group;
}

/* The largest scale, and whether a column's scales are so small, on the average of their squares, that those
 * of f16 are not as exact there as elsewhere. sums: n numbers. */
static tvm_status measure(const checkpoint *c, const ck_layer *layer, double *sums, double *greatest,
                          bool *small, tvm_diags *diags) {
    for (uint64_t index = 0; index < layer->count; index++) {
        memset(sums, 0, layer->n * sizeof *sums);
        for (uint64_t g = 0; g < groups_of(layer); g++)
            for (uint64_t j = 0; j < layer->n; j++) {
                ck_group group = ck_group_at(layer, index, g, j);
                if (!isfinite(group.scale)) return bad_scale(c, layer, "scale", g, j, group.scale, diags);
                if (!isfinite(group.offset)) return bad_scale(c, layer, "offset", g, j, group.offset, diags);
                double magnitude = fabs(group.constant ? group.offset : group.scale);
                if (magnitude > *greatest) *greatest = magnitude;
                sums[j] += magnitude * magnitude;
            }
        for (uint64_t j = 0; j < layer->n; j++)
            if (sums[j] > 0 && sums[j] < 0x1p-26 * (double)groups_of(layer)) *small = true;
    }
    return TVM_OK;
}

/* How many scales and zero points change. */
static tvm_status count_rounded(const checkpoint *c, ck_layer *layer, tvm_diags *diags) {
    for (uint64_t index = 0; index < layer->count; index++)
        for (uint64_t g = 0; g < groups_of(layer); g++)
            for (uint64_t j = 0; j < layer->n; j++) {
                ck_group group = ck_group_at(layer, index, g, j);
                double pair[2];
                uint16_t codes[2];
                written(layer, &group, pair, codes);
                if (!isfinite(pair[0])) return bad_scale(c, layer, "scale", g, j, group.scale, diags);
                if (!isfinite(pair[1])) return bad_scale(c, layer, "zero point", g, j, group.zero, diags);
                layer->inexact += group.constant || pair[0] * layer->rescale != group.scale;
                layer->inexact += !group.constant && pair[1] != group.zero;
                layer->has_constants = layer->has_constants || group.constant;
            }
    return TVM_OK;
}

bool ck_is_narrow(tvm_dtype type) {
    return tvm_dtype_same(type, TVM_E8M0) || tvm_dtype_same(type, TVM_FLOAT(8, 4, 3));
}

/* Are scales of 8 bits written as they are found? Zero points and what else changes scales want halves. */
static bool stays_narrow(const checkpoint *c, const ck_layer *layer) {
    return ck_is_narrow(layer->numbers) && !c->options->to && !layer->plain && !layer->own_zeros &&
           !layer->has_offsets && !layer->input_scales && layer->type.kind != TVM_KIND_UINT;
}

/* Scales keep their type where a program takes it. Others are rounded to f16, if need be divided by a power
 * of two that brings them where f16 is as exact as it gets. */
static tvm_status choose_scales(const checkpoint *c, ck_layer *layer, double *sums, tvm_diags *diags) {
    tvm_dtype found = layer->numbers, wanted = c->options->scale_type;
    bool power = tvm_dtype_same(found, TVM_E8M0), small = false;
    bool half = tvm_dtype_same(found, TVM_F16) || tvm_dtype_same(found, TVM_BF16) || stays_narrow(c, layer);
    layer->scale_type = wanted.kind != TVM_KIND_NONE ? wanted : half ? found : power ? TVM_BF16 : TVM_F16;
    double greatest = 0;
    tvm_status status = measure(c, layer, sums, &greatest, &small, diags);
    bool same = tvm_dtype_same(layer->scale_type, found) && !layer->input_scales;
    if (status || layer->plain || (same && !layer->has_offsets)) return status;
    if (!c->options->to && !same && tvm_dtype_same(layer->scale_type, TVM_F16) && greatest > 0 &&
        (greatest > MOST_F16 || small)) {
        layer->rescale = ldexp(1, ilogb(greatest));
        layer->multiplier *= layer->rescale;
        layer->has_multiplier = true;
    }
    status = count_rounded(c, layer, diags);
    if (!status && layer->input_scales && layer->inexact)
        status =
            ck_refuse(c, layer, TVM_UNSUPPORTED, diags,
                      "%" PRIu64 " products of its scales and pre_quant_scale are no numbers of %s; let the "
                      "program that quantizes fold pre_quant_scale into the layer before",
                      layer->inexact, tvm_dtype_same(layer->scale_type, TVM_BF16) ? "bf16" : "f16");
    return status;
}

/* ---- by how much weights change ---- */

/* Sums over the codes of the group of each of some columns. */
typedef struct group_sums {
    double first[COLUMNS], second[COLUMNS]; /* of the levels, and of their squares */
    uint8_t codes[ROWS * STRIDE];
} group_sums;

/* W - W' of a group is a line over the level: its square's sum follows from those of levels and squares. */
static void add_group(ck_layer *layer, const group_sums *sums, uint64_t index, uint64_t g, uint64_t column,
                      uint64_t columns) {
    double count = (double)layer->group;
    for (uint64_t j = 0; j < columns; j++) {
        ck_group group = ck_group_at(layer, index, g, column + j);
        double pair[2], s1 = sums->first[j], s2 = sums->second[j];
        uint16_t codes[2];
        if (!isfinite(s1)) continue; /* codes of NaN */
        written(layer, &group, pair, codes);
        double scale = pair[0] * layer->rescale, slope = group.scale - (group.constant ? 0 : scale);
        double start = ck_value(layer, &group, 0), off = start + scale * pair[1];
        layer->norm += group.scale * group.scale * s2 + 2 * group.scale * start * s1 + start * start * count;
        layer->lost += slope * slope * s2 + 2 * slope * off * s1 + off * off * count;
    }
}

/* The same of values that are written as such. */
static tvm_status add_values(const checkpoint *c, ck_layer *layer, const uint8_t *codes,
                             const double levels[256], const ck_group *groups, uint64_t columns,
                             tvm_diags *diags) {
    for (uint64_t j = 0; j < columns; j++) {
        uint16_t code;
        double value = ck_value(layer, &groups[j], levels[codes[j]]) * layer->multiplier;
        double kept = ck_rounded(layer->float_type, value, &code);
        if (!isfinite(kept))
            return ck_refuse(
                c, layer, TVM_UNSUPPORTED, diags, "a weight is %g, beyond the range of %s", value,
                tvm_dtype_same(layer->float_type, TVM_BF16) ? "bf16" : "f16; that of bf16 is wider");
        layer->norm += value * value;
        layer->lost += (value - kept) * (value - kept);
    }
    return TVM_OK;
}

static tvm_status sum_columns(const checkpoint *c, ck_layer *layer, group_sums *sums, uint64_t index,
                              uint64_t column, const double levels[256], tvm_diags *diags) {
    uint64_t columns = layer->n - column < COLUMNS ? layer->n - column : COLUMNS, rows[ROWS];
    ck_group *groups = layer->plain ? calloc(COLUMNS, sizeof *groups) : NULL;
    tvm_status status = layer->plain && !groups ? tvm_diag_no_memory(diags) : TVM_OK;
    for (uint64_t row = 0; !status && row < layer->k; row += ROWS) {
        uint64_t count = layer->k - row < ROWS ? layer->k - row : ROWS;
        for (uint64_t i = 0; i < count; i++) rows[i] = layer->order ? layer->order[row + i] : row + i;
        layer->format->take(layer, index, rows, count, column, columns, sums->codes, STRIDE);
        for (uint64_t i = 0; !status && i < count; i++) {
            const uint8_t *codes = sums->codes + i * STRIDE;
            uint64_t place = (row + i) % layer->group, g = (row + i) / layer->group;
            if (!place) memset(sums->first, 0, sizeof sums->first);
            if (!place) memset(sums->second, 0, sizeof sums->second);
            for (uint64_t j = 0; groups && !place && j < columns; j++)
                groups[j] = ck_group_at(layer, index, g, column + j);
            if (groups) status = add_values(c, layer, codes, levels, groups, columns, diags);
            for (uint64_t j = 0; !groups && j < columns; j++) {
                sums->first[j] += levels[codes[j]];
                sums->second[j] += levels[codes[j]] * levels[codes[j]];
            }
            if (!groups && place == layer->group - 1) add_group(layer, sums, index, g, column, columns);
        }
    }
    free(groups);
    return status;
}

static tvm_status find_error(const checkpoint *c, ck_layer *layer, tvm_diags *diags) {
    double levels[256];
    group_sums *sums = malloc(sizeof *sums);
    tvm_status status = sums ? TVM_OK : tvm_diag_no_memory(diags);
    for (unsigned code = 0; code < 256; code++)
        levels[code] = code >> layer->bits ? 0 : ck_level(layer, code);
    for (uint64_t index = 0; index < layer->count; index++)
        for (uint64_t column = 0; !status && column < layer->n; column += COLUMNS)
            status = sum_columns(c, layer, sums, index, column, levels, diags);
    free(sums);
    return status;
}

/* ---- all layers ---- */

/* Where stored rows are moved: the group of each. */
static tvm_status find_groups(ck_layer *layer, tvm_diags *diags) {
    if (!layer->order) return TVM_OK;
    layer->group_of = calloc(layer->k, sizeof *layer->group_of);
    if (!layer->group_of) return tvm_diag_no_memory(diags);
    for (uint64_t i = 0; i < layer->k; i++) layer->group_of[layer->order[i]] = (uint32_t)(i / layer->group);
    return TVM_OK;
}

static tvm_status choose(void *closure, unsigned thread, uint64_t piece, tvm_diags *diags) {
    checkpoint *c = closure;
    ck_layer *layer = &c->layers[piece];
    tvm_dtype plain = c->options->plain, scales = c->options->scale_type;
    (void)thread;
    layer->plain = layer->plain || plain.kind != TVM_KIND_NONE;
    layer->float_type = plain.kind != TVM_KIND_NONE ? plain : scales.kind != TVM_KIND_NONE ? scales : TVM_F16;
    if (layer->plain && layer->stacked)
        return ck_refuse(c, layer, TVM_UNSUPPORTED, diags, "a stack of matrices is not written as floats");
    double *sums = calloc(layer->n, sizeof *sums);
    tvm_status status = sums ? choose_scales(c, layer, sums, diags) : tvm_diag_no_memory(diags);
    free(sums);
    if (!status && (layer->plain || c->options->to)) status = find_groups(layer, diags);
    if (status || (layer->plain ? tvm_dtype_same(layer->float_type, TVM_F32) : !layer->inexact))
        return status;
    return find_error(c, layer, diags);
}

tvm_status ck_choose_scales(checkpoint *c, tvm_diags *diags) {
    unsigned threads = tvm_work_threads(c->options->threads);
    if (threads > c->layer_count) threads = c->layer_count ? (unsigned)c->layer_count : 1;
    return tvm_work(c->layer_count, threads, choose, c, NULL, diags);
}

double ck_error_of(const ck_layer *layer) {
    return layer->norm > 0 ? sqrt(layer->lost / layer->norm) : 0;
}

void ck_tell_errors(const checkpoint *c) {
    uint64_t count = 0, all = 0;
    double lost = 0, norm = 0, worst = 0;
    const char *name = "";
    bool zeros = false;
    for (size_t i = 0; i < c->layer_count; i++) {
        const ck_layer *layer = &c->layers[i];
        double error = ck_error_of(layer);
        const char *form = ck_blocks_name(layer);
        if (c->options->tell)
            c->options->tell(c->options->closure, layer->name, form ? form : layer->format->name, error);
        count += layer->inexact;
        all += layer->count * groups_of(layer) * layer->n * (layer->has_offsets ? 2 : 1);
        zeros = zeros || layer->has_offsets;
        lost += layer->lost, norm += layer->norm;
        if (error > worst) worst = error, name = layer->name;
    }
    tvm_place place = {.file = c->options->input};
    if (count)
        tvm_diag_add(c->options->warnings, TVM_ARGUMENT, &place, NULL,
                     "%" PRIu64 " of %" PRIu64
                     " scales%s are rounded: the layers that have them change by %.2g of "
                     "their norm, '%.120s' by %.2g, the most",
                     count, all, zeros ? " and zero points" : "", sqrt(lost / norm), name, worst);
    else if (worst > 0)
        tvm_diag_add(
            c->options->warnings, TVM_ARGUMENT, &place, NULL,
            "weights are rounded: those that are written as floats change by %.2g of their norm, '%.120s' by "
            "%.2g, the most",
            sqrt(lost / norm), name, worst);
}
