/* tvm-tune: the ranks of an MPI job, and messages between them. */
#ifndef TVM_TUNE_RANKS_H
#define TVM_TUNE_RANKS_H

#include <stdbool.h>
#include <stddef.h>

#include "diag.h"

enum { TUNE_ANY_RANK = -1 };

typedef struct tune_ranks {
    int rank, size;
    int local; /* among those of this machine */
} tune_ranks;

double tune_now(void); /* seconds, monotonic */

/* Gives rank 0 of 1 where no launcher of MPI has started the process; otherwise MPI ends when the process
 * exits. It fails where a launcher has started the process and tvm-tune was built without MPI. */
tvm_status tune_ranks_begin(tune_ranks *ranks, tvm_diags *diags);
/* False when the message was not taken within `limit` seconds; the bytes must then stay in place. */
bool tune_ranks_send(int to, const void *bytes, size_t size, double limit);
/* A message of exactly this size; the rank that sent it, or -1: none came within `limit` seconds. */
int tune_ranks_receive(int from, void *bytes, size_t size, double limit);

#endif
