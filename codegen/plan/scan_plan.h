/* The digits of the axis of a scan, and how their totals are combined: see emit/emit_scan.c. */
#ifndef TVM_CODEGEN_SCAN_PLAN_H
#define TVM_CODEGEN_SCAN_PLAN_H

#include "reduce.h"
#include "reduce_plan.h"

typedef struct scan_digit {
    uint32_t size;
    bool spatial;
    uint32_t weight;   /* in the local index, or the thread number */
    unsigned shuffled; /* spatial: its low bits whose partners are lanes of the warp */
    uint32_t left;     /* spatial: totals that are left after the shuffles */
    bool of_warps;     /* spatial: then every warp holds one */
} scan_digit;

typedef struct scan_plan {
    reduce_op op;
    tvm_scan insn;
    uint32_t result, locals, threads;
    const tvm_layout *layout;
    scan_digit digits[TVM_MAX_MODES];
    unsigned count;
    uint32_t lines;                    /* of the axis that a thread has parts of */
    uint32_t parts[TVM_MAX_MODES + 1]; /* blocks of digit d on that a thread has parts of */
} scan_plan;

void tvm_scan_plan(scan_plan *s, const tvm_ir_program *program, const tvm_ir_kernel *kernel,
                   const tvm_insn *insn);
uint32_t tvm_scan_value_bytes(const scan_plan *s);
/* Bytes of scratch memory for one total of each thread. */
uint32_t tvm_scan_each_bytes(const scan_plan *s, const scan_digit *digit);
/* Totals of digit d that a thread exchanges at a time, where `taken` bytes of the block's shared memory are
 * taken. */
uint32_t tvm_scan_chunk(const scan_plan *s, unsigned d, tvm_target target, uint64_t taken);

#endif
