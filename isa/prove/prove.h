/* Proofs that a kernel has no races on shared memory and no deadlock, for all arguments of a launch.
 *
 * The promise. tvm-memory(7) says what orders two accesses; the sanitizer of the interpreter is that page as
 * a program. A kernel is proved free of races if no launch of it, whatever its arguments, has two accesses of
 * an element of shared memory by different threads of a block, one of which writes, that nothing on that page
 * orders; the bytes of a copy that has not been waited for count as being written, or read, until it has. It
 * is proved free of deadlock if none of its waits lasts for ever, loops of `while` and other launches aside.
 * Not part of it: elements that were never written, indices outside of a tensor, what faults
 * do.
 *
 * The method. Control is structured and each team does its instructions in the order of the text, so a team
 * is one thread of control. walk.c explores a team's states: where it is, what its scalars are as far as
 * places in shared memory or conditions depend on them (a number, a class modulo a number, or unknown), and
 * which of its accesses nothing has ordered yet. An unknown condition goes both ways, a loop with an unknown
 * end goes on or ends at each turn, an unknown index is any place. So each path of each launch is one of
 * those explored. A loop or condition in which nothing accesses shared memory, orders what does, or assigns a
 * scalar that bears on either is passed over (alike.c): whatever it does changes no state. records.c has what
 * orders the accesses of one team, sites.c which elements an access touches, and by which threads, places.c
 * where.
 * Indices that are not known are compared by the loops that count them, or by a scalar: if the index is
 * a * v + b of a loop's variable v, all of it without wrapping, then the loop's end E says v <= E - 1 and its
 * start S says v >= S. With E at most s * t, for a scalar s and a number t, a tile of e elements, b + e <= a,
 * ends at a * s * t or before it; with S at least s * t and b >= 0 one begins there or behind. This stays
 * true while s is not assigned, which ends what is known of it, so that two such tiles have no element in
 * common.
 *
 * Teams of different roles are ordered by rings of mbarriers. A pair (full, empty) of mbarriers, of which the
 * second is open, is a ring between producers and consumers if
 *   - producers alone wait for `empty` and arrive at `full`, each of them by turns, the wait first;
 *   - consumers alone wait for `full` and arrive at `empty`, each of them by turns, the wait first;
 *   - arrivals of `full` is the number of producers, arrivals of `empty` that of consumers.
 * Then phase i of `full` is made of the i-th arrivals of all producers: none can arrive again before it has
 * waited for phase i of `empty`, which has an arrival of each consumer, and each of these has waited for
 * phase i of `full`. The same holds the other way round. So what a producer does between its wait and its
 * arrival, which is called holding the ring, comes before or after what a consumer does while it holds it,
 * never beside it; and what a team did before it let go of the ring comes before what it does after it has
 * taken it again. Two teams may touch the same elements, one of them writing, only if both hold one ring from
 * its two sides meanwhile (rings.c).
 * Half of a ring is an mbarrier at which each of some teams arrives at most once, and for which each of
 * others, or of the same teams, waits at most once: its only phase that is waited for comes after all that
 * the former did before they arrived. If all teams come to their ends, with each phase of a ring waited for
 * (turns.c), then what a consumer does after its last wait comes after all that the ring brings: the number
 * of its waits does not depend on how fast others are.
 * That they come to their ends is found by running them in one order, with decisions that are not known taken
 * both ways; those of different teams that follow alike from the same scalars are taken alike. Two roles
 * decide alike if what assigns the scalars of their decisions, with the loops and conditions around it, is
 * the same text but for names, of `let` and `for` alone (alike.c).
 *
 * Blocks of a cluster are ordered by sync-cluster where each stands outside of loops and conditions
 * (clusters.c); where one does not, blocks may be out of step, and nothing is known to order them.
 *
 * What take-global waits for comes from blocks of lower indices (handovers.c), and so does a count of blocks
 * that lock-semaphore waits for (census.c). A loop that is known to run at least one turn (floors.c) is not
 * left before it has.
 *
 * The checker and the prover are one pass: nothing is searched for but which pairs of mbarriers are rings,
 * what holds in all turns of a loop (loops.c), and factors by which facts contradict each other (refute.c); a
 * wrong guess is found by the walk, and checked. Who doubts a proof runs the pass again, or the checker of
 * isa/check, which is smaller, on a certificate (certify.h).
 *
 * Limits: copies to other blocks of a cluster, and arrivals at their mbarriers, are not looked at; that what
 * other blocks release, or put, comes is taken for granted where that is not proved, and said
 * (TVM_PROVED_IF). Places that depend on what the launch or memory says, where they would have to differ, are
 * not proved. */
#ifndef TVM_ISA_PROVE_PROVE_H
#define TVM_ISA_PROVE_PROVE_H

#include "program.h"
#include "text.h"

typedef enum tvm_proof_verdict {
    TVM_PROVED,     /* for all arguments */
    TVM_PROVED_IF,  /* if what waits for other blocks is waited for no longer than until these have done their
                     * part;  the text names an instruction */
    TVM_NOT_PROVED, /* the text says what is missing */
    TVM_REFUTED     /* every block that runs, and has no fault before, has what the text says */
} tvm_proof_verdict;

enum { TVM_PROOF_TEXT = 480 };

/* Of races, or of deadlocks. */
typedef struct tvm_proof_part {
    tvm_proof_verdict verdict;
    uint32_t insn, other; /* the instructions that it is about; TVM_NONE: none */
    char text[TVM_PROOF_TEXT];
} tvm_proof_part;

typedef struct tvm_proof {
    tvm_proof_part races, deadlocks;
    tvm_proof_part global; /* races on global memory, see global_impl.h */
    uint64_t steps;        /* of work that it took */
} tvm_proof;

/* Of a kernel of a verified program. Fails for want of memory alone. */
tvm_status tvm_prove(const tvm_ir_program *program, uint32_t kernel, tvm_proof *proof, tvm_diags *diags);

/* The same, with seconds for what tvm_prove gives up after some 10 ms. */
tvm_status tvm_prove_long(const tvm_ir_program *program, uint32_t kernel, tvm_proof *proof, tvm_diags *diags);

/* Adds a diagnostic of status TVM_OK for each race or deadlock that is shown with little work. */
tvm_status tvm_warn_refuted(const tvm_ir_program *program, tvm_diags *diags);

/* Adds three lines, `KERNEL: races: VERDICT` and the same of deadlocks and of global memory, with the place
 * and the text where it is not proved. */
void tvm_proof_add(tvm_text *text, const tvm_ir_program *program, uint32_t kernel, const tvm_proof *proof);

/* tvm_verify and tvm_prove_long; TVM_INVALID with an error for each kernel that is not proved free of both.
 */
tvm_status tvm_verify_proved(tvm_ir_program *program, tvm_diags *diags);

#endif
