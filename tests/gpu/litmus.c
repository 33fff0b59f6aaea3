/* What orders memory in generated code, on the GPU: the kernels of litmus_rounds.h, 10^8 rounds each, many
 * blocks at a time. No element may be another round's. tests/test_litmus.c has what the memory model says of
 * the same patterns. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "litmus_rounds.h"
#include "suite.h"

enum { ALL_ROUNDS = 100 * 1000 * 1000, BLOCKS = 512, LAUNCHES = 4 };

/* Tiles of which each element is the tile's number; malloc'ed. */
static float *tiles(size_t elements) {
    float *data = malloc(ROUNDS_ROWS * elements * sizeof *data);
    if (data == NULL) abort();
    for (size_t i = 0; i < ROUNDS_ROWS * elements; i++) data[i] = (float)(i / elements);
    return data;
}

/* Elements that were not the round's; UINT64_MAX: it was not launched. */
static uint64_t bad_elements(tvm_context *context, const gpu_test *test, int64_t blocks, int64_t rounds) {
    float *x = tiles(ROUNDS_TILE), *u = tiles(ROUNDS_WIDE);
    size_t elements = (size_t)blocks * ROUNDS_TILE;
    const gpu_arg args[] = {ARG_SCALAR(blocks),
                            ARG_SCALAR(rounds),
                            ARG_IN(TVM_F32, (size_t)ROUNDS_ROWS * ROUNDS_TILE, x),
                            ARG_IN(TVM_F32, (size_t)ROUNDS_ROWS * ROUNDS_WIDE, u),
                            ARG_OUT(TVM_F32, elements),
                            ARG_OUT(TVM_I(32), (size_t)blocks * ROUNDS_FLAGS),
                            ARG_OUT(TVM_I(32), elements)};
    enum { ARGS = sizeof args / sizeof *args };
    uint8_t *outputs[GPU_MAX_ARGS] = {0};
    uint64_t bad = UINT64_MAX;
    if (gpu_launch(context, test, "k", args, ARGS, outputs)) {
        bad = 0;
        for (size_t i = 0; i < elements; i++) {
            uint32_t here;
            memcpy(&here, outputs[ARGS - 1] + i * sizeof here, sizeof here);
            bad += here;
        }
    }
    for (size_t i = 0; i < ARGS; i++) free(outputs[i]);
    free(x);
    free(u);
    return bad;
}

static bool run_rounds(suite *s, const gpu_test *test) {
    const rounds_row *row = test->data;
    bool has_clusters = s->target >= 90;
    if (strstr(row->head, ".cluster") && !has_clusters) return true;
    for (unsigned i = 0; i < LAUNCHES; i++) {
        uint64_t bad = bad_elements(s->gpu, test, BLOCKS, ALL_ROUNDS / BLOCKS / LAUNCHES + 1);
        if (bad == 0) continue;
        if (bad != UINT64_MAX) printf("%s: %" PRIu64 " elements are not the round's\n", test->name, bad);
        return false;
    }
    return true;
}

void gpu_add_litmus(suite *s, gpu_group *group) {
    (void)s;
    for (size_t i = 0; i < ROUNDS; i++) {
        char name[96], text[4096];
        snprintf(name, sizeof name, "litmus: %s", rounds_rows[i].patterns);
        snprintf(text, sizeof text, "%s%s%s%s", ROUNDS_BEGIN, rounds_rows[i].head, rounds_rows[i].body,
                 ROUNDS_END);
        gpu_test *test = gpu_add(group, name, text, NULL, NULL, 0);
        test->run = run_rounds;
        test->data = &rounds_rows[i];
    }
}
