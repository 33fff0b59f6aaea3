/* The checker of certificates: alone it is trusted for what it confirms. See check_impl.h for the rules.
 *
 * A certificate says of a kernel which scalars are followed, which mbarriers form rings, and what holds
 * wherever a loop's head is reached or a role begins (invariants). Nothing in it is believed. Whoever made it
 * (isa/prove/certify.c searches for it), the checker goes through the kernel once from each invariant, and
 * confirms a claim only if each path from one invariant comes to others, and no pair of accesses on the way
 * is without order. A wrong certificate confirms less, never something false.
 *
 * Claims are those of prove.h, of shared memory and of waits; global memory is none of them. */
#ifndef TVM_ISA_CHECK_CHECK_H
#define TVM_ISA_CHECK_CHECK_H

#include "program.h"

enum { TVM_CHECK_TEXT = 240 };

typedef struct tvm_checked_claim {
    bool holds;
    uint32_t insn;             /* else: where the reason is; TVM_NONE */
    char text[TVM_CHECK_TEXT]; /* the reason */
} tvm_checked_claim;

typedef struct tvm_checked {
    tvm_checked_claim races;     /* on shared memory: there are none */
    tvm_checked_claim deadlocks; /* no wait for an mbarrier lasts for ever */
    bool waits_for_blocks; /* lock-semaphore or take-global wait for what other blocks do: not looked at */
    uint64_t steps;        /* of work */
} tvm_checked;

/* Checks a kernel of a verified program; count words, 0: no certificate, which suffices for what needs no
 * invariant. Fails for want of memory alone. */
tvm_status tvm_check(const tvm_ir_program *program, uint32_t kernel, const uint32_t *words, uint32_t count,
                     tvm_checked *checked, tvm_diags *diags);

#endif
