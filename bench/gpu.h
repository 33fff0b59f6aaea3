/* What the measuring programs share: the device, memory, random numbers, programs, and times by the protocol
 * of CUDA-graph replays over rotating copies of the data.
 *
 * Functions that return bool give false on failure, and bench.why tells why. bench.lost says that the CUDA
 * context is gone (a kernel faulted), so that nothing more can be measured. */
#ifndef BENCH_GPU_H
#define BENCH_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda_driver.h"
#include "tvm.h"

enum {
    BENCH_LAUNCHES = 40,   /* of a graph, at least */
    BENCH_LEAST_LARGE = 8, /* of data above BENCH_LARGE bytes */
    BENCH_LARGE = 1 << 30,
    BENCH_REPLAYS = 15, /* that the median is taken of */
    BENCH_WARM_UP = 3,
    BENCH_JOBS = 32, /* that take turns, at most */
    BENCH_COPIES_MAX = 256
};

typedef CUresult bench_launch_ex(const CUlaunchConfig *, CUfunction, void **, void **);

typedef struct bench {
    tvm_context *context;
    tvm_cuda_driver driver;     /* of a GPU only, like the next four */
    bench_launch_ex *launch_ex; /* NULL: no programmatic dependent launch (CUDA 12, sm_90) */
    CUdevice device;
    bool retained; /* the device's primary context, which is then current */
    CUstream stream;
    bool cuda, lost;
    unsigned multiprocessors, target; /* target: 80, 90, ..., of the code */
    size_t l2;                        /* bytes; 0 when unknown */
    double rest;                      /* seconds without launches before each measurement */
    uint64_t random;
    char why[2048];
} bench;

/* cpu: the interpreter, with which there are no times. Close in any case. */
bool bench_open(bench *b, bool cpu, uint64_t seed);
/* The GPU with code for a target that is older than its own, as 80; 0: its own. */
bool bench_open_gpu(bench *b, unsigned target, uint64_t seed);
/* The interpreter with what launches see of another device; 0: its own. */
bool bench_open_cpu(bench *b, unsigned multiprocessors, unsigned target, uint64_t seed);
void bench_close(bench *b);

bool bench_fail(bench *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool bench_ok(bench *b, tvm_status status, const char *what);
bool bench_driver_ok(bench *b, CUresult result, const char *what);

/* 64 random bits; random bytes. */
uint64_t bench_random(bench *b);
void bench_fill_random(bench *b, void *to, size_t bytes);
double bench_seconds(void); /* of a clock that only goes forward */

/* Device memory. free takes NULL. */
bool bench_alloc(bench *b, size_t bytes, void **data);
void bench_free(bench *b, void *data);
bool bench_write(bench *b, void *to, const void *from, size_t bytes);
bool bench_read(bench *b, void *to, const void *from, size_t bytes);
bool bench_wait(bench *b);

/* Copies of the same data, which launches take in turn, so that what one reads is no longer in the L2: more
 * than three times the L2 together, at least three. */
typedef struct bench_copies {
    size_t bytes; /* of one */
    unsigned count;
    void *at[BENCH_COPIES_MAX];
} bench_copies;
bool bench_copies_make(bench *b, size_t bytes, bench_copies *copies);
void bench_copies_free(bench *b, bench_copies *copies);
/* Launches of a graph: a multiple of the copies, at least `least`, or BENCH_LEAST_LARGE where each takes
 * long. */
unsigned bench_copies_launches(const bench_copies *copies, unsigned least);

/* A bytecode file, or, where the path ends in .vasm, the program assembled with these -D NAME=VALUE. */
bool bench_load(bench *b, const char *path, const char *const *defines, size_t define_count,
                tvm_program **program);

/* Puts launch number i on b->stream. */
typedef bool bench_enqueue(bench *b, unsigned i, void *data);
typedef struct bench_time {
    double median, least; /* microseconds a launch */
} bench_time;
/* The times of `replays` replays (at most BENCH_REPLAYS) of a graph of `launches`. What is launched must have
 * been launched once before, as nothing can be loaded into a capture. */
bool bench_measure(bench *b, bench_enqueue *enqueue, void *data, unsigned launches, unsigned replays,
                   bench_time *time);

/* The same for several, whose replays take turns, so that what the clock does in the meantime meets all. */
typedef struct bench_job {
    bench_enqueue *enqueue;
    void *data;
    unsigned launches;
} bench_job;
bool bench_measure_in_turn(bench *b, const bench_job *jobs, unsigned count, unsigned replays,
                           bench_time *times);

/* ---- gpu_floor.c: the time of a kernel that only reads */

typedef struct bench_floor bench_floor;
bench_floor *bench_floor_open(void); /* NULL when out of memory */
void bench_floor_close(bench *b, bench_floor *f);
/* The time to read the first `bytes` of each copy, the best of several grids; with `pdl` each launch may
 * begin while the last one drains (programmatic dependent launch; sm_90, CUDA 12). Measured once for a number
 * of bytes. */
bool bench_floor_time(bench *b, bench_floor *f, const bench_copies *copies, size_t bytes, bool pdl,
                      double *microseconds);

#endif
