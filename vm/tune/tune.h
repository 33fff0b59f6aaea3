/* tvm-tune: its parts, and how data flows.
 *
 *   tune_space.c     the program's space (.tune) -> variants: one bytecode file each in a folder of its own,
 * made by all cores, translated and compiled where a target is known; what cannot be is dropped tune_shapes.c
 * the shapes file -> shapes, each of a class tune_worker.c    a process that owns the device: checks a
 * variant against the reference, and measures it. What it does with a bad variant (a fault that takes the
 * device along, a kernel that never ends) costs the variant and the process, not the run tune_team.c      the
 * worker of this process and, over tune_ranks.c, those of the other ranks of an MPI job tune_run.c hands the
 * variants out, all quickly and then those that may be the best in turn tune_progress.c  the bar that a
 * terminal shows tune_choose.c    the times -> a variant for each class tune_write.c     the chosen ones as
 * program text or bytecode tune_log.c       the JSON log, and what --resume takes from it tune_picture.c the
 * costs of the space, drawn */
#ifndef TVM_TUNE_H
#define TVM_TUNE_H

#include "assembler.h"
#include "codegen.h"
#include "run_args.h"
#include "source_file.h"
#include "tune_ranks.h"
#include "tvm.h"

enum {
    TUNE_WHY = 320,
    TUNE_LABEL = 200,
    TUNE_SHAPES = 256,
    TUNE_CLASSES = 64,
    TUNE_TEXT = 256,
    TUNE_FOLDER = 232
};

typedef enum tune_state {
    TUNE_WAITING, /* to be measured; at the end: time was over */
    TUNE_DROPPED, /* it cannot be, or not well: shared memory, registers, spills */
    TUNE_WRONG,   /* its results are not the reference's */
    TUNE_FAILED,
    TUNE_TIMED,
    TUNE_STATES
} tune_state;
extern const char *const tune_state_names[TUNE_STATES];

/* What is made least. */
typedef enum tune_cost { TUNE_TIME, TUNE_INSTRUCTIONS, TUNE_BYTES, TUNE_COSTS } tune_cost;
extern const char *const tune_cost_names[TUNE_COSTS], *const tune_cost_units[TUNE_COSTS];

typedef struct tune_variant {
    char label[TUNE_LABEL];  /* "BM=64 STAGES=2" */
    char suffix[TUNE_LABEL]; /* "BM64_STAGES2", of names */
    tune_state state;
    char why[TUNE_WHY];
    int registers;   /* -1: not known */
    int64_t spilled; /* bytes of a thread in local memory; -1: not known */
    uint64_t shared; /* bytes of a block */
    double *costs;   /* by shape: NAN: not measured, or not for this shape; of TUNE_TIME in microseconds */
    bool measured;   /* now or in the log: it is not done again */
    int rank;        /* that measured it; -1: none has */
} tune_variant;

typedef struct tune_shape {
    char text[TUNE_TEXT]; /* as it stands in the file */
    tvm_run_args args;
    unsigned class_number;
    bool check_only;
} tune_shape;

typedef struct tune_options {
    const char *input, *kernel;
    tvm_source_options source;
    tvm_context_options device;
    const char *target; /* NULL: the device's */
    const char *shapes, *reference;
    const char *log, *resume, *from, *svg, *output, *cases;
    const char **words; /* of --args */
    size_t word_count;
    tune_cost cost;
    double tolerance, gain, seconds, limit;
    int64_t spills; /* bytes that a thread may spill */
    unsigned jobs, repeats;
    bool quiet, allow_interpreter;
    FILE *messages; /* of the command line's errors; NULL: standard error */
} tune_options;

typedef struct tune_device {
    char text[TUNE_TEXT];             /* as tvm_device_name has it */
    unsigned target, multiprocessors; /* 90; of the interpreter what was asked for, 0: none */
    bool is_gpu;
} tune_device;

typedef struct tune {
    tune_options options;
    tune_ranks ranks;
    char *text; /* of the program */
    size_t text_size;
    tvm_tune_space space;
    tune_variant *variants; /* by point; the first is the default */
    uint32_t count;
    tune_shape shapes[TUNE_SHAPES];
    unsigned shape_count;
    char classes[TUNE_CLASSES][TUNE_TEXT]; /* conditions; "": for all others */
    unsigned class_count;
    unsigned chosen[TUNE_CLASSES]; /* variants; UINT32_MAX: none */
    double gains[TUNE_CLASSES];    /* percent of the default's cost; NAN: the default has none */
    char folder[TUNE_FOLDER];      /* of the variants' files; "": none yet */
    int keeper, kept;              /* the process that removes it, at the end of this pipe */
    tune_device device;
    double begun;
    tvm_tool_files files;
} tune;

/* The path of a variant's bytecode. */
const char *tune_path(const tune *t, uint32_t variant, char path[TUNE_TEXT]);

/* ---- tune_space.c ---- */
/* Also adds the program's files, included ones too, to those that are read. */
tvm_status tune_space_read(tune *t, tvm_diags *diags);
/* Assembles and compiles all that are waiting; those that cannot be are dropped. `idle` (NULL: none) is
 * called meanwhile.
 */
typedef void tune_idle(void *data, unsigned done, unsigned all);
tvm_status tune_space_build(tune *t, tune_idle *idle, void *data, tvm_diags *diags);

/* ---- tune_folder.c ---- */
tvm_status tune_folder_make(tune *t, tvm_diags *diags);
void tune_folder_remove(tune *t);

/* ---- tune_shapes.c ---- */
tvm_status tune_shapes_read(tune *t, tvm_diags *diags);
void tune_shapes_free(tune *t);

/* ---- tune_worker.c ---- */
typedef struct tune_worker {
    int pid, to, from; /* pipes */
    double begun;      /* with its task */
} tune_worker;
extern const tune_worker tune_no_worker;
/* What the worker is asked for: a variant is checked and measured on every shape (shape UINT32_MAX), or
 * measured thoroughly on one. */
typedef struct tune_task {
    uint32_t variant, shape, repeats;
} tune_task;
typedef struct tune_answer {
    tune_state state;
    char why[TUNE_WHY];
    int registers;
    int64_t spilled;
    double costs[TUNE_SHAPES];
} tune_answer;
/* Starts the process, which opens the device: t->device. */
tvm_status tune_worker_start(tune *t, tune_worker *w, tvm_diags *diags);
void tune_worker_stop(tune_worker *w);
void tune_worker_give(tune_worker *w, const tune_task *task);
/* Waits for the answer for so many milliseconds; false: not yet. That of a worker which is gone, or has taken
 * more than options.limit seconds, says so. */
bool tune_worker_take(const tune *t, tune_worker *w, tune_answer *answer, int milliseconds);
/* Another process after an answer that may have brought the old one down, or its device. */
tvm_status tune_worker_renew(tune *t, tune_worker *w, const tune_answer *answer, tvm_diags *diags);
/* The first variant that was built: what it is measured against, and whose binding makes the tensors. */
uint32_t tune_first_built(const tune *t);

/* ---- tune_progress.c ---- */
typedef struct tune_progress {
    const tune *t;
    const char *what; /* "variants" */
    unsigned done, all;
    double begun;
} tune_progress;
void tune_progress_show(const tune_progress *p);
/* Takes the bar away. */
void tune_progress_end(const tune *t);
/* A line on standard error, unless --quiet. */
void tune_say(const tune *t, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- the others ---- */
/* May the choice be written? Times of the interpreter choose for no GPU: TVM_UNSUPPORTED, unless they are
 * allowed. The device is known. */
tvm_status tune_check_device(const tune *t, tvm_diags *diags);
tvm_status tune_measure(tune *t, tvm_diags *diags);
void tune_choose(tune *t);
void tune_print(const tune *t, FILE *out);
/* Does its extension ask for bytecode in the place of text? */
bool tune_writes_bytecode(const char *path);
tvm_status tune_write(const tune *t, tvm_diags *diags);
tvm_status tune_cases_write(const tune *t, tvm_diags *diags);
tvm_status tune_log_write(const tune *t, tvm_diags *diags);
/* What it knows of the variants; of options.from also the device. */
tvm_status tune_log_read(tune *t, const char *path, tvm_diags *diags);
tvm_status tune_svg_write(const tune *t, tvm_diags *diags);

#endif
