/* The ranks of an MPI job: the functions of MPI that tvm-tune needs. Each message has a limit of time, as a
 * lost rank neither takes nor sends any. */
#include "config.h"

#include "tune_ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { NAP_MS = 1, TAG = 1 };

double tune_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Has a launcher of MPI started this process? Each says so in its own way: Open MPI, MPICH, Slurm's PMIx. */
static bool is_launched(void) {
    static const char *const signs[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "PMI_RANK"};
    for (unsigned i = 0; i < sizeof signs / sizeof *signs; i++)
        if (getenv(signs[i])) return true;
    return false;
}

#ifdef HAVE_MPI
#include <mpi.h>
#include <pthread.h>
#include <stdint.h>
#include <unistd.h>

enum { LAST_SECONDS = 10 };

static void *give_up(void *status) {
    sleep(LAST_SECONDS);
    _exit((int)(intptr_t)status);
}

/* MPI_Finalize waits for all ranks; of Open MPI, for ever where one was killed. So the process ends without
 * it. */
static void finish(int status, void *unused) {
    pthread_t thread;
    (void)unused;
    fflush(NULL);
    if (pthread_create(&thread, NULL, give_up, (void *)(intptr_t)status) == 0) pthread_detach(thread);
    MPI_Finalize();
}

tvm_status tune_ranks_begin(tune_ranks *ranks, tvm_diags *diags) {
    MPI_Comm neighbours;
    *ranks = (tune_ranks){.size = 1};
    if (!is_launched()) return TVM_OK;
    if (MPI_Init(NULL, NULL) != MPI_SUCCESS || on_exit(finish, NULL))
        return tvm_diag_add(diags, TVM_IO, NULL, NULL, "MPI cannot be initialized");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &ranks->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks->size);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &neighbours);
    MPI_Comm_rank(neighbours, &ranks->local);
    MPI_Comm_free(&neighbours);
    return TVM_OK;
}

static void nap(void) {
    nanosleep(&(struct timespec){.tv_nsec = NAP_MS * 1000000L}, NULL);
}

bool tune_ranks_send(int to, const void *bytes, size_t size, double limit) {
    MPI_Request request;
    int done = 0;
    double end = tune_now() + limit;
    if (MPI_Isend(bytes, (int)size, MPI_BYTE, to, TAG, MPI_COMM_WORLD, &request) != MPI_SUCCESS) return false;
    for (;;) {
        if (MPI_Test(&request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return false;
        if (done) return true;
        if (tune_now() > end) break;
        nap();
    }
    MPI_Cancel(&request);
    MPI_Request_free(&request);
    return false;
}

int tune_ranks_receive(int from, void *bytes, size_t size, double limit) {
    MPI_Status status;
    int there = 0, got = 0;
    double end = tune_now() + limit;
    if (from == TUNE_ANY_RANK) from = MPI_ANY_SOURCE;
    for (;;) {
        if (MPI_Iprobe(from, TAG, MPI_COMM_WORLD, &there, &status) != MPI_SUCCESS) return -1;
        if (there) break;
        if (tune_now() >= end) return -1;
        nap();
    }
    MPI_Get_count(&status, MPI_BYTE, &got);
    if (got != (int)size || MPI_Recv(bytes, got, MPI_BYTE, status.MPI_SOURCE, TAG, MPI_COMM_WORLD,
                                     MPI_STATUS_IGNORE) != MPI_SUCCESS)
        return -1;
    return status.MPI_SOURCE;
}

#else

tvm_status tune_ranks_begin(tune_ranks *ranks, tvm_diags *diags) {
    *ranks = (tune_ranks){.size = 1};
    return is_launched() ? tvm_diag_add(diags, TVM_UNSUPPORTED, NULL, "configure where pkg-config finds MPI",
                                        "this tvm-tune was built without MPI: it runs alone, without mpirun")
                         : TVM_OK;
}

bool tune_ranks_send(int to, const void *bytes, size_t size, double limit) {
    return (void)to, (void)bytes, (void)size, (void)limit, false;
}

int tune_ranks_receive(int from, void *bytes, size_t size, double limit) {
    return (void)from, (void)bytes, (void)size, (void)limit, -1;
}

#endif
