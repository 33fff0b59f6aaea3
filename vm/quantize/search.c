#include "vector.h"

#include "load.h"
#include "search.h"

#include <math.h>
#include <string.h>

/* Columns that are searched together, and rows whose sums are f32 before they are added to those of f64. */
enum { STRIP = 64, RUN = 128, TOGETHER = 4, WINDOWS = 2, SAMPLE = 1024 };

/* Weights of a strip are kept divided by a power of two, `base`, so that the scale that just holds the
 * largest is from 1 to 2. A float type counts as divided by `unit`, which brings its largest value there,
 * too. Scales below are in these units but for `real` ones. */
typedef struct searcher {
    const pack_scaler *scaler;
    const pack_coder *coder;
    const float *strip;  /* [rows, STRIP] */
    const float *weight; /* importance of the rows, or NULL */
    size_t rows, columns;
    double unit;
    /* of the type, in its unit */
    float low, high;
    uint32_t least_normal, to_rounder; /* floats: see round_float */
    float base[STRIP], least[STRIP], greatest[STRIP];
    /* the candidate of each column, and its sums */
    float inverse[STRIP], lows[WINDOWS][STRIP], highs[WINDOWS][STRIP];
    double first[WINDOWS][STRIP], second[WINDOWS][STRIP];
    /* the best so far: its sums, first / second is the scale */
    double best_first[STRIP], best_second[STRIP];
    float zero[STRIP];
    double error[STRIP];               /* of the scales as they are stored */
    double total[STRIP], plain[STRIP]; /* importance * weight^2; weight^2 */
    float mean[STRIP];                 /* weighed by the importance */
    float hold[STRIP];                 /* the scale with which the largest weight is just not cut off */
    float times[STRIP], step[STRIP];   /* candidates, as parts of it, from one to the next */
} searcher;

/* ---- sums of a candidate ---- */

/* The value nearest to x, which is within the type's: of a float of so large an ulp that what is lost is x's
 * bits below the type's mantissa. The exponent of that float is that of x, or of the least normal number, and
 * 23 - mantissa. */
INLINE float round_float(float x, uint32_t least_normal, uint32_t to_rounder) {
    uint32_t exponent = tvm_f32_bits(x) & 0x7f800000;
    exponent = exponent > least_normal ? exponent : least_normal;
    float rounder = tvm_f32_from_bits(exponent + to_rounder);
    return (x + rounder) - rounder;
}

/* What of the sums is wanted. With q the values of the codes:
 * PRODUCTS: first = the sum of importance * weight * q, second = that of importance * q^2. The best scale for
 * these codes is first / second, and leaves the error total - first^2 / second. PAIRS: the same for two
 * windows of codes with one scale, of integers. RESIDUALS: first = the sum of importance * (weight / scale -
 * q)^2, which is exact enough for types of 8 bits, too. */
typedef enum sum_kind { PRODUCTS, PAIRS, RESIDUALS } sum_kind;

INLINE float within(float x, float low, float high) {
    x = x > low ? x : low;
    return x < high ? x : high;
}

/* What a row adds to the sums of column j. */
INLINE void add_weight(const searcher *s, size_t row, size_t j, sum_kind kind, bool is_float, bool weighted,
                       uint32_t least_normal, uint32_t to_rounder, float first[WINDOWS],
                       float second[WINDOWS]) {
    float x = s->strip[row * STRIP + j], scaled = x * s->inverse[j], weight = weighted ? s->weight[row] : 1;
    float q = is_float ? round_float(within(scaled, s->lows[0][j], s->highs[0][j]), least_normal, to_rounder)
                       : (scaled + ROUNDER) - ROUNDER;
    for (int w = 0; w < (kind == PAIRS ? WINDOWS : 1); w++) {
        float value = is_float ? q : within(q, s->lows[w][j], s->highs[w][j]);
        float heavy = weighted ? value * weight : value, rest = scaled - value;
        first[w] += kind == RESIDUALS ? weighted ? weight * rest * rest : rest * rest : x * heavy;
        if (kind != RESIDUALS) second[w] += heavy * value;
    }
}

/* Sums over a run of rows in f32, some rows at a time, are added to those in f64. */
INLINE void sums_of_body(searcher *s, sum_kind kind, bool is_float, bool weighted) {
    uint32_t least_normal = s->least_normal, to_rounder = s->to_rounder;
    const int windows = kind == PAIRS ? WINDOWS : 1;
    memset(s->first, 0, sizeof s->first);
    memset(s->second, 0, sizeof s->second);
    for (size_t start = 0; start < s->rows; start += RUN) {
        size_t end = s->rows - start < RUN ? s->rows : start + RUN, row = start;
        float first[WINDOWS][STRIP] = {0}, second[WINDOWS][STRIP] = {0};
        for (; row < end; row += TOGETHER)
            for (size_t j = 0; j < STRIP; j++) {
                float one[WINDOWS], two[WINDOWS];
                for (int w = 0; w < windows; w++) one[w] = first[w][j], two[w] = second[w][j];
                for (size_t i = 0; i < TOGETHER; i++)
                    add_weight(s, row + i, j, kind, is_float, weighted, least_normal, to_rounder, one, two);
                for (int w = 0; w < windows; w++) first[w][j] = one[w], second[w][j] = two[w];
            }
        for (int w = 0; w < windows; w++)
            for (size_t j = 0; j < STRIP; j++) {
                s->first[w][j] += (double)first[w][j];
                s->second[w][j] += (double)second[w][j];
            }
    }
}

INLINE void sums_body(searcher *s, sum_kind kind) {
    bool is_float = s->coder->type.kind == TVM_KIND_FLOAT;
    if (kind == PAIRS && s->weight)
        sums_of_body(s, PAIRS, false, true);
    else if (kind == PAIRS)
        sums_of_body(s, PAIRS, false, false);
    else if (kind == PRODUCTS && is_float && s->weight)
        sums_of_body(s, PRODUCTS, true, true);
    else if (kind == PRODUCTS && is_float)
        sums_of_body(s, PRODUCTS, true, false);
    else if (kind == PRODUCTS && s->weight)
        sums_of_body(s, PRODUCTS, false, true);
    else if (kind == PRODUCTS)
        sums_of_body(s, PRODUCTS, false, false);
    else if (is_float && s->weight)
        sums_of_body(s, RESIDUALS, true, true);
    else if (is_float)
        sums_of_body(s, RESIDUALS, true, false);
    else if (s->weight)
        sums_of_body(s, RESIDUALS, false, true);
    else
        sums_of_body(s, RESIDUALS, false, false);
}

/* ---- a strip of columns ---- */

/* Rows of up to STRIP columns, 0 beyond them, divided by the base; their extremes. */
INLINE void load_body(searcher *s, load_f16 *load, pack_float type, const pack_rows *rows, float *strip) {
    float divide[STRIP];
    for (size_t j = 0; j < STRIP; j++) {
        divide[j] = 1 / s->base[j];
        s->least[j] = s->greatest[j] = 0;
    }
    for (size_t i = 0; i < rows->rows; i++) {
        float *restrict to = strip + i * STRIP;
        size_t at = i * rows->stride;
        if (type == PACK_F16)
            load((const uint16_t *)rows->data + at, to, rows->columns);
        else if (type == PACK_BF16)
            load_bf16((const uint16_t *)rows->data + at, to, rows->columns);
        else
            memcpy(to, (const float *)rows->data + at, rows->columns * sizeof *to);
        for (size_t j = rows->columns; j < STRIP; j++) to[j] = 0;
        for (size_t j = 0; j < STRIP; j++) {
            to[j] *= divide[j];
            s->least[j] = to[j] < s->least[j] ? to[j] : s->least[j];
            s->greatest[j] = to[j] > s->greatest[j] ? to[j] : s->greatest[j];
        }
    }
    /* rows are added TOGETHER at a time */
    memset(strip + rows->rows * STRIP, 0, (TOGETHER - 1) * STRIP * sizeof *strip);
}

/* The mean; where rows have an importance, the sums of importance * weight^2 and of weight^2. */
INLINE void totals_body(searcher *s) {
    memset(s->total, 0, sizeof s->total);
    memset(s->plain, 0, sizeof s->plain);
    double all = 0, sums_of_all[STRIP] = {0};
    for (size_t start = 0; start < s->rows; start += RUN) {
        size_t end = s->rows - start < RUN ? s->rows : start + RUN;
        float sum[STRIP] = {0}, plain[STRIP] = {0}, mean[STRIP] = {0};
        for (size_t i = start; i < end; i++) {
            const float *restrict x = s->strip + i * STRIP;
            float weight = s->weight ? s->weight[i] : 1;
            all += (double)weight;
            for (size_t j = 0; j < STRIP; j++) mean[j] += x[j] * weight;
            for (size_t j = 0; s->weight && j < STRIP; j++) {
                plain[j] += x[j] * x[j];
                sum[j] += x[j] * x[j] * weight;
            }
        }
        for (size_t j = 0; j < STRIP; j++) {
            s->total[j] += (double)sum[j];
            s->plain[j] += (double)plain[j];
            sums_of_all[j] += (double)mean[j];
        }
    }
    for (size_t j = 0; j < STRIP; j++) s->mean[j] = (float)(sums_of_all[j] / (all > 0 ? all : 1));
}

/* ---- candidates of a strip ---- */

/* The scale with which the largest weight of a column is just not cut off, below the middle of integers. */
INLINE void hold_body(searcher *s, bool own) {
    float part = own ? 1 / (float)s->scaler->positive : -1 / s->low;
    float floor = (float)(s->scaler->floor * s->unit);
    for (size_t j = 0; j < STRIP; j++) {
        float least = s->least[j], greatest = s->greatest[j];
        float reach = own ? greatest - least : greatest > -least ? greatest : -least;
        float scale = reach * part, lowest = floor / s->base[j];
        s->hold[j] = scale > 0 && scale < lowest ? lowest : scale;
    }
}

/* Candidates of these scales in window 0; 0: none, its sums are those of values that are 0. */
INLINE void propose_body(searcher *s, bool own, const float *scale, const float *zero) {
    float most = (float)s->scaler->positive;
    for (size_t j = 0; j < STRIP; j++) {
        s->inverse[j] = scale[j] != 0 ? 1 / scale[j] : 0;
        s->lows[0][j] = own ? -zero[j] : s->low;
        s->highs[0][j] = own ? most - zero[j] : s->high;
    }
}

/* Candidates of the part `times` of the scale that holds all. The zero point is the one next to that which
 * puts the middle of the codes in the middle of the weights: half-way between the extremes where these are
 * held, the mean where most of them is cut off. In window 1 that on the other side of it, or without zero
 * points the codes of a negative scale. */
INLINE void candidates_body(searcher *s, bool own) {
    float most = (float)s->scaler->positive, zero[STRIP] = {0}, other[STRIP] = {0}, scale[STRIP];
    for (size_t j = 0; j < STRIP; j++) scale[j] = s->hold[j] * s->times[j];
    for (size_t j = 0; own && j < STRIP; j++) {
        float held = s->times[j], inverse = scale[j] != 0 ? 1 / scale[j] : 0;
        float centre = held * (s->least[j] + s->greatest[j]) / 2 + (1 - held) * s->mean[j];
        float middle = most / 2 - centre * inverse;
        middle = within(middle, 0, most);
        zero[j] = (middle + ROUNDER) - ROUNDER;
        other[j] = within(zero[j] + (middle > zero[j] ? 1.0f : -1.0f), 0, most);
    }
    propose_body(s, own, scale, zero);
    for (size_t j = 0; j < STRIP; j++) {
        s->lows[1][j] = own ? -other[j] : -s->high;
        s->highs[1][j] = own ? most - other[j] : -s->low;
    }
}

/* Keeps what is better than the best so far, with the scale that is best for its codes: of the window
 * `mirrored` a negative one. By how much the error is below that of zeros, first^2 / second, is compared. */
INLINE void keep_body(searcher *s, int w, bool mirrored) {
    for (size_t j = 0; j < STRIP; j++) {
        double first = s->first[w][j], second = s->second[w][j];
        bool better = first * first * s->best_second[j] > s->best_first[j] * s->best_first[j] * second;
        s->best_first[j] = better ? mirrored ? -first : first : s->best_first[j];
        s->best_second[j] = better ? second : s->best_second[j];
        s->zero[j] = better ? -s->lows[w][j] : s->zero[j];
    }
}

#define INSTANCES(suffix, attribute)                                                                         \
    attribute static void sums_##suffix(searcher *s, sum_kind kind) {                                        \
        sums_body(s, kind);                                                                                  \
    }                                                                                                        \
    attribute static void totals_##suffix(searcher *s) {                                                     \
        totals_body(s);                                                                                      \
    }                                                                                                        \
    attribute static void hold_##suffix(searcher *s, bool own) {                                             \
        if (own)                                                                                             \
            hold_body(s, true);                                                                              \
        else                                                                                                 \
            hold_body(s, false);                                                                             \
    }                                                                                                        \
    attribute static void propose_##suffix(searcher *s, bool own, const float *scale, const float *zero) {   \
        if (own)                                                                                             \
            propose_body(s, true, scale, zero);                                                              \
        else                                                                                                 \
            propose_body(s, false, scale, zero);                                                             \
    }                                                                                                        \
    attribute static void candidates_##suffix(searcher *s, bool own) {                                       \
        if (own)                                                                                             \
            candidates_body(s, true);                                                                        \
        else                                                                                                 \
            candidates_body(s, false);                                                                       \
    }                                                                                                        \
    attribute static void keep_##suffix(searcher *s, int w, bool mirrored) {                                 \
        if (mirrored)                                                                                        \
            keep_body(s, w, true);                                                                           \
        else                                                                                                 \
            keep_body(s, w, false);                                                                          \
    }                                                                                                        \
    attribute static void load_##suffix(searcher *s, pack_float type, const pack_rows *rows, float *strip) { \
        load_body(s, load_f16_##suffix, type, rows, strip);                                                  \
    }

INSTANCES(baseline, )

#ifdef VECTOR_X86
INSTANCES(avx2, TARGET_256)
INSTANCES(avx512, TARGET_512)
#endif

static void sums(searcher *s, sum_kind kind) {
    DISPATCH(sums, (s, kind));
}

/* ---- candidates ---- */

static double to_real(const searcher *s, size_t j) {
    return (double)s->base[j] / s->unit;
}

static bool own_zero(const searcher *s) {
    return s->scaler->scaling == PACK_OWN_ZERO;
}

/* How scales are tried: `count` of them from `from` to `to` times the one that holds the largest weight. */
typedef struct plan {
    unsigned count;
    double from, to;
    bool pairs; /* for each, two zero points, or those of the other sign, too: codes reach farther below than
                   above 0 */
} plan;

static plan plan_of(const searcher *s) {
    static const double from[] = {0, 0.2, 0.25, 0.35, 0.45, 0.6, 0.75, 0.85, 0.9};
    tvm_dtype type = s->coder->type;
    if (type.kind == TVM_KIND_FLOAT)
        return (plan){
            .count = s->weight ? 10 : 8, .from = type.mantissa && type.exponent < 3 ? 0.35 : 0.5, .to = 1.5};
    plan p = {.count = 6, .from = from[type.bits], .to = 1, .pairs = type.bits <= 4};
    if (p.pairs) p.count = s->weight ? 6 : 5; /* weighed, the range is wider */
    if (own_zero(s)) p.from *= 0.9;
    if (!own_zero(s) && type.bits > 1) p.to = (double)s->low / -(double)s->high;
    return p;
}

static void try_all(searcher *s, bool pairs) {
    DISPATCH(candidates, (s, own_zero(s)));
    sums(s, pairs ? PAIRS : PRODUCTS);
    for (int w = 0; w <= pairs; w++) DISPATCH(keep, (s, w, w && !own_zero(s)));
}

static void forget(searcher *s) {
    memset(s->best_first, 0, sizeof s->best_first);
    memset(s->zero, 0, sizeof s->zero);
    for (size_t j = 0; j < STRIP; j++) s->best_second[j] = 1;
}

static double best_scale(const searcher *s, size_t j) {
    return s->best_first[j] / s->best_second[j];
}

/* Around the best, and from there to the best scale for its codes, whose codes may be better again. What was
 * the best of a sample is first tried with all rows. */
static void refine(searcher *s, bool sampled) {
    static const float around[] = {0, -0.5f, 0.5f};
    enum { AROUND = sizeof around / sizeof *around };
    float scale[STRIP], zero[STRIP], candidate[STRIP];
    for (size_t j = 0; j < STRIP; j++) scale[j] = (float)best_scale(s, j);
    memcpy(zero, s->zero, sizeof zero);
    if (sampled) forget(s);
    for (size_t i = !sampled; i <= AROUND; i++) {
        for (size_t j = 0; j < STRIP; j++)
            candidate[j] =
                i < AROUND ? scale[j] * (1 + around[i] * (s->step[j] - 1)) : (float)best_scale(s, j);
        DISPATCH(propose, (s, own_zero(s), candidate, i < AROUND ? zero : s->zero));
        sums(s, PRODUCTS);
        DISPATCH(keep, (s, 0, false));
    }
}

/* Where the weights of important rows are smaller than others, so is the least candidate. */
static void start_candidates(searcher *s, const plan *p) {
    double rows = 0, most = p->count - 1, step = pow(p->to / p->from, 1 / most);
    for (size_t i = 0; s->weight && i < s->rows; i++) rows += (double)s->weight[i];
    for (size_t j = 0; j < STRIP; j++) {
        s->times[j] = (float)p->from;
        s->step[j] = (float)step;
        if (!s->weight || !(s->total[j] > 0)) continue;
        double ratio = sqrt(s->total[j] / rows / (s->plain[j] / (double)s->rows));
        if (ratio >= 1) continue;
        if (ratio < 0.01) ratio = 0.01;
        s->times[j] *= (float)ratio;
        s->step[j] *= (float)pow(ratio, -1 / most);
    }
}

/* Of a long group SAMPLE rows tell which candidate is best: `to` gets every so-many-th of them, and their
 * importance. */
static void take_sample(searcher *s, float *to) {
    size_t step = s->rows / SAMPLE;
    float *weights = to + (SAMPLE + TOGETHER) * STRIP;
    memset(to + SAMPLE * STRIP, 0, (TOGETHER * STRIP) * sizeof *to);
    for (size_t i = 0; i < SAMPLE; i++) {
        memcpy(to + i * STRIP, s->strip + i * step * STRIP, STRIP * sizeof *to);
        if (s->weight) weights[i] = s->weight[i * step];
    }
    s->strip = to;
    s->rows = SAMPLE;
    if (s->weight) s->weight = weights;
}

static void search(searcher *s, float *sample) {
    const float *strip = s->strip, *weight = s->weight;
    size_t rows = s->rows;
    plan p = plan_of(s);
    start_candidates(s, &p);
    if (rows >= 2 * SAMPLE) take_sample(s, sample);
    for (unsigned i = 0; i < p.count; i++) {
        try_all(s, p.pairs);
        for (size_t j = 0; j < STRIP; j++) s->times[j] *= s->step[j];
    }
    s->strip = strip;
    s->weight = weight;
    s->rows = rows;
    refine(s, rows >= 2 * SAMPLE);
}

/* ---- the scales as they are stored ---- */

typedef struct found {
    uint16_t *scales, *zeros;
    pack_divisors to;
} found;

static float half_value(const pack_scaler *scaler, uint16_t code) {
    return scaler->bf16 ? tvm_bf16_to_f32(code) : tvm_f16_to_f32(code);
}

/* The scale's code: of the two around it the nearer one, or the other. */
static uint16_t scale_code(const pack_scaler *scaler, double real, bool other) {
    uint16_t code = scaler->bf16 ? tvm_f64_to_bf16(real) : tvm_f64_to_f16(real);
    if (!other) return code;
    double magnitude = fabs(real), nearer = fabs((double)half_value(scaler, code));
    if (magnitude > nearer) return (uint16_t)(code + 1);
    return code & 0x7fff ? (uint16_t)(code - 1) : code;
}

/* Sets `error` to that of the scales as they were found without a search. */
static void start(searcher *s, const found *f) {
    float scale[STRIP] = {0}, zero[STRIP] = {0};
    for (size_t j = 0; j < s->columns; j++) {
        scale[j] = (float)((double)half_value(s->scaler, f->scales[j]) / to_real(s, j));
        zero[j] = own_zero(s) ? f->to.offsets[j] : 0;
    }
    DISPATCH(propose, (s, own_zero(s), scale, zero));
    sums(s, RESIDUALS);
    for (size_t j = 0; j < s->columns; j++)
        s->error[j] = (double)scale[j] * (double)scale[j] * s->first[0][j];
}

static void store(const searcher *s, size_t j, uint16_t code, float zero, const found *f) {
    float scale = half_value(s->scaler, code);
    f->scales[j] = code;
    f->to.divisors[j] = scale;
    f->to.reciprocals[j] = 1 / scale;
    if (!own_zero(s)) return;
    f->to.offsets[j] = zero;
    f->zeros[j] = s->scaler->bf16 ? tvm_f64_to_bf16((double)zero) : tvm_f64_to_f16((double)zero);
}

/* What was found, rounded to the type of scales, where it has a smaller error than what stands there. */
static void replace(searcher *s, const double *scale, const float *zero, bool other, const found *f) {
    uint16_t codes[STRIP];
    double real[STRIP];
    float inner_scale[STRIP] = {0};
    for (size_t j = 0; j < s->columns; j++) {
        double wanted = scale[j] * to_real(s, j), floor = s->scaler->floor;
        /* where the weights reach the floor the scale is not below it */
        if (floor > 0 && (double)fabsf(half_value(s->scaler, f->scales[j])) >= floor && wanted < floor)
            wanted = floor;
        codes[j] = scale_code(s->scaler, wanted, other);
        real[j] = (double)half_value(s->scaler, codes[j]);
        if (!isfinite(real[j])) real[j] = 0;
        inner_scale[j] = (float)(real[j] / to_real(s, j));
    }
    DISPATCH(propose, (s, own_zero(s), inner_scale, zero));
    sums(s, RESIDUALS);
    for (size_t j = 0; j < s->columns; j++) {
        double inner = (double)inner_scale[j], error = inner * inner * s->first[0][j];
        if (real[j] == 0 || !(error < s->error[j])) continue;
        s->error[j] = error;
        store(s, j, codes[j], zero[j], f);
    }
}

/* ---- a group ---- */

static void set_type(searcher *s) {
    const pack_coder *coder = s->coder;
    s->unit = 1;
    s->low = -(float)s->scaler->negative;
    s->high = (float)s->scaler->positive;
    if (coder->type.kind != TVM_KIND_FLOAT) return;
    unsigned exponent = (unsigned)ilogb(s->scaler->positive);
    s->unit = ldexp(1, (int)exponent);
    s->high = (float)(s->scaler->positive / s->unit);
    s->low = -s->high;
    s->least_normal = coder->least_normal - (exponent << 23);
    s->to_rounder = (coder->shift << 23) | 0x400000;
}

static void search_strip(searcher *s, const found *f, float *sample) {
    double scale[STRIP];
    float zero[STRIP];
    if (s->weight || own_zero(s)) DISPATCH(totals, (s));
    DISPATCH(hold, (s, own_zero(s)));
    forget(s);
    search(s, sample);
    for (size_t j = 0; j < STRIP; j++) scale[j] = best_scale(s, j);
    memcpy(zero, s->zero, sizeof zero);
    start(s, f);
    replace(s, scale, zero, false, f);
    if (s->scaler->bf16) replace(s, scale, zero, true, f); /* whose steps are large */
}

size_t tvm_pack_search_bytes(size_t rows) {
    return (rows + TOGETHER + SAMPLE + TOGETHER) * (STRIP + 1) * sizeof(float);
}

/* A power of two about as large as the scale, which f32 and its reciprocal hold. */
static float base_of(float scale, double unit) {
    double magnitude = fabs((double)scale) * unit;
    int exponent = magnitude > 0 && magnitude < 0x1p126 ? ilogb(magnitude) : 0;
    return ldexpf(1, exponent < -125 ? -125 : exponent > 125 ? 125 : exponent);
}

static bool is_moderate(float scale) {
    uint32_t magnitude = tvm_f32_bits(scale) & 0x7fffffff;
    return !magnitude || (magnitude >= PACK_MODERATE_LEAST && magnitude <= PACK_MODERATE_GREATEST);
}

void tvm_pack_search(const pack_scaler *scaler, const pack_coder *coder, pack_float type,
                     const pack_rows *rows, const float *importance, uint16_t *scales, uint16_t *zeros,
                     pack_divisors *to, void *memory) {
    float *strip = memory, *weights = strip + (rows->rows + TOGETHER) * STRIP;
    searcher s = {.scaler = scaler, .coder = coder, .strip = strip, .rows = rows->rows};
    float *sample = weights + rows->rows + TOGETHER;
    if (importance) {
        memset(weights + rows->rows, 0, TOGETHER * sizeof *weights);
        s.weight = memcpy(weights, importance, rows->rows * sizeof *weights);
    }
    set_type(&s);
    for (size_t column = 0; column < rows->columns; column += STRIP) {
        found f = {scales + column,
                   zeros + column,
                   {to->divisors + column, to->reciprocals + column, to->offsets + column, to->moderate}};
        pack_rows part = *rows;
        part.data = (const uint8_t *)rows->data + column * (type == PACK_F32 ? 4 : 2);
        part.columns = s.columns = rows->columns - column < STRIP ? rows->columns - column : STRIP;
        for (size_t j = 0; j < STRIP; j++)
            s.base[j] = j < s.columns ? base_of(half_value(scaler, scales[column + j]), s.unit) : 1;
        DISPATCH(load, (&s, type, &part, strip));
        search_strip(&s, &f, sample);
        for (size_t j = 0; j < s.columns; j++)
            to->moderate = to->moderate && is_moderate(half_value(scaler, scales[column + j]));
    }
}
