/* The process that owns the device: it loads a variant, checks its results against the reference's, and
 * measures it. The parent never touches the device, so that it can start another one when a variant has
 * brought this one down. */
#include "tune.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "run_bind.h"
#include "run_check.h"
#include "runtime.h"

enum {
    ROTATED_BYTES = 192 << 20, /* of all copies of a shape's tensors: over three times the L2 of an H200 */
    COPIES = 32,
    REST_MS = 100 /* before each measurement on a GPU */
};

/* A shape's tensors on the device, once for all variants. */
typedef struct tensors {
    bool made;
    tvm_status status; /* of making them, which is not tried again */
    char why[TUNE_WHY];
    tvm_run_binding binding;       /* the default variant's: of the reference, or of this device */
    void *initial[TVM_MAX_PARAMS]; /* contents before a launch */
    tvm_run_check reference;       /* contents after the reference has run */
    tvm_value copies[COPIES][TVM_MAX_PARAMS];
    unsigned copy_count;
} tensors;

typedef struct worker {
    tune *t;
    tvm_context *context, *interpreter; /* of the reference, unless a kernel of the device is one */
    tvm_program *reference_program;
    tvm_kernel *reference_kernel;
    tvm_program *device_program; /* the default variant on the device, whose binding has the tensors */
    tvm_kernel *device_kernel;
    tensors shapes[TUNE_SHAPES];
} worker;

/* ---- programs ---- */

static tvm_status failed(tvm_context *context, tvm_status status, tvm_diags *diags) {
    return status ? tvm_diag_add(diags, status, NULL, NULL, "%s", tvm_message(context)) : TVM_OK;
}

static tvm_status load(const worker *w, tvm_context *context, uint32_t variant, const char *name,
                       tvm_program **program, tvm_kernel **kernel, tvm_diags *diags) {
    char path[TUNE_TEXT];
    tvm_status status =
        failed(context, tvm_load_file(context, tune_path(w->t, variant, path), program), diags);
    if (status) return status;
    size_t count = tvm_kernel_count(*program);
    if (name) return failed(context, tvm_get_kernel(*program, name, kernel), diags);
    if (count - (*program)->program->entry_count != 1 && (*program)->program->entry_count != 1)
        return tvm_diag_add(diags, TVM_USAGE, NULL, NULL,
                            "the program has %zu kernels and entries, and --kernel names none", count);
    *kernel = tvm_kernel_at(*program, count - 1);
    return TVM_OK;
}

uint32_t tune_first_built(const tune *t) {
    char path[TUNE_TEXT];
    for (uint32_t v = 0; v < t->count; v++)
        if (access(tune_path(t, v, path), R_OK) == 0) return v;
    return 0;
}

/* ---- a shape's tensors ---- */

static tvm_status read_back(const tvm_run_binding *b, size_t i, void **bytes, tvm_diags *diags) {
    *bytes = malloc(b->values[i].bytes ? b->values[i].bytes : 1);
    if (!*bytes) return tvm_diag_no_memory(diags);
    return failed(b->context, tvm_memory_read(b->context, *bytes, b->values[i].data, b->values[i].bytes),
                  diags);
}

/* Runs the reference on its own tensors and keeps what they are then. */
static tvm_status run_reference(worker *w, tensors *x, const tune_shape *shape, tvm_diags *diags) {
    tvm_context *context = w->interpreter ? w->interpreter : w->context;
    tvm_run_binding *b = calloc(1, sizeof *b);
    if (!b) return tvm_diag_no_memory(diags);
    tvm_status status = tvm_run_bind(context, w->reference_kernel, &shape->args, b, diags);
    if (!status) status = tvm_run_upload(b, diags);
    if (!status) status = failed(context, tvm_launchv(w->reference_kernel, NULL, b->values, b->count), diags);
    if (!status) status = failed(context, tvm_synchronize(context, NULL), diags);
    if (!status) status = tvm_run_check_copy(&x->reference, b, diags);
    tvm_run_unbind(b);
    free(b);
    return status;
}

/* More sets of tensors with the same contents, so that one measurement reads none of them from the L2. */
static tvm_status make_copies(const worker *w, tensors *x, tvm_diags *diags) {
    const tvm_run_binding *b = &x->binding;
    uint64_t bytes = 0;
    memcpy(x->copies[0], b->values, b->count * sizeof *b->values);
    x->copy_count = 1;
    for (size_t i = 0; i < b->count; i++) bytes += b->values[i].bytes;
    if (tvm_device(w->context) == TVM_DEVICE_CPU || !bytes) return TVM_OK;
    while (x->copy_count < COPIES && x->copy_count * bytes < ROTATED_BYTES) {
        tvm_value *copy = x->copies[x->copy_count];
        memcpy(copy, b->values, b->count * sizeof *copy);
        for (size_t i = 0; i < b->count; i++) {
            if (!b->params[i].info.is_tensor) continue;
            tvm_status status = tvm_memory_alloc(w->context, copy[i].bytes, &copy[i].data);
            if (!status) status = tvm_memory_write(w->context, copy[i].data, x->initial[i], copy[i].bytes);
            if (status) return failed(w->context, status, diags);
        }
        x->copy_count++;
    }
    return TVM_OK;
}

static tvm_status make_tensors(worker *w, unsigned number, tvm_diags *diags) {
    tensors *x = &w->shapes[number];
    const tune_shape *shape = &w->t->shapes[number];
    x->made = true;
    tvm_status status = tvm_run_bind(w->context, w->device_kernel, &shape->args, &x->binding, diags);
    if (!status) status = tvm_run_upload(&x->binding, diags);
    for (size_t i = 0; !status && i < x->binding.count; i++)
        if (x->binding.params[i].info.is_tensor) status = read_back(&x->binding, i, &x->initial[i], diags);
    bool checks_apart = false;
    for (unsigned s = 0; s < w->t->shape_count; s++)
        checks_apart = checks_apart || w->t->shapes[s].check_only;
    x->reference.symbol = w->t->options.reference ? w->t->options.reference : "the interpreter";
    if (!status && (shape->check_only || !checks_apart)) status = run_reference(w, x, shape, diags);
    if (!status && !shape->check_only) status = make_copies(w, x, diags);
    return status;
}

/* ---- a task ---- */

static void explain(tune_answer *answer, tune_state state, const char *shape, const tvm_diags *diags) {
    answer->state = state;
    snprintf(answer->why, sizeof answer->why, "%s%s%.200s", shape, *shape ? ": " : "",
             diags->count ? diags->items[0].message : "out of memory");
    for (char *c = answer->why; *c; c++)
        if (*c == '\n') *c = ' ';
}

static tvm_status check(worker *w, tensors *x, tvm_kernel *kernel, tvm_diags *diags) {
    tvm_run_binding b = x->binding;
    tvm_status status = TVM_OK;
    b.function = kernel;
    for (size_t i = 0; !status && i < b.count; i++)
        if (b.params[i].info.is_tensor)
            status = failed(w->context,
                            tvm_memory_write(w->context, b.values[i].data, x->initial[i], b.values[i].bytes),
                            diags);
    if (!status) status = failed(w->context, tvm_launchv(kernel, NULL, b.values, b.count), diags);
    if (!status) status = failed(w->context, tvm_synchronize(w->context, NULL), diags);
    return status;
}

static tvm_status measure(worker *w, tensors *x, tvm_kernel *kernel, unsigned repeats, double *cost,
                          tvm_diags *diags) {
    const tvm_value *sets[COPIES];
    tune_cost what = w->t->options.cost;
    if (what != TUNE_TIME) {
        tvm_launch_counts counts = {0};
        tvm_status status =
            failed(w->context, tvm_launch_counted(kernel, x->copies[0], x->binding.count, &counts), diags);
        *cost =
            (double)(what == TUNE_BYTES ? counts.global_read + counts.global_written : counts.instructions);
        return status;
    }
    for (unsigned i = 0; i < x->copy_count; i++) sets[i] = x->copies[i];
    if (tvm_device(w->context) != TVM_DEVICE_CPU)
        nanosleep(&(struct timespec){.tv_nsec = REST_MS * 1000000L}, NULL);
    return failed(w->context, tvm_time_sets(kernel, sets, x->copy_count, x->binding.count, repeats, cost),
                  diags);
}

/* The shape with this variant: NAN where it is not for these sizes. */
static bool do_shape(worker *w, unsigned number, const tune_task *task, tvm_kernel *kernel,
                     tune_answer *answer) {
    tensors *x = &w->shapes[number];
    const tune_shape *shape = &w->t->shapes[number];
    const tvm_kernel *variant;
    tvm_diags diags = {0};
    answer->costs[number] = NAN;
    if (!x->made) {
        x->status = make_tensors(w, number, &diags);
        if (x->status) snprintf(x->why, sizeof x->why, "%.300s", diags.count ? diags.items[0].message : "");
        tvm_diags_free(&diags);
    }
    if (x->status) {
        answer->state = TUNE_FAILED;
        snprintf(answer->why, sizeof answer->why, "%.100s: %.200s", shape->text, x->why);
        return false;
    }
    tvm_status status = tvm_kernel_check(kernel, x->binding.values, x->binding.count, &variant);
    if (status == TVM_ARGUMENT) return true;
    if (status) failed(w->context, status, &diags);
    bool thorough = task->shape != UINT32_MAX, has_reference = false;
    for (size_t i = 0; i < x->binding.count; i++) has_reference = has_reference || x->reference.data[i];
    if (!status && !thorough && has_reference) {
        status = check(w, x, kernel, &diags);
        if (!status) {
            tvm_run_binding b = x->binding;
            b.function = kernel;
            status = tvm_run_check_against(&x->reference, &b, w->t->options.tolerance, NULL, &diags);
            if (status == TVM_INVALID) {
                explain(answer, TUNE_WRONG, shape->text, &diags);
                tvm_diags_free(&diags);
                return false;
            }
        }
    }
    if (!status && !shape->check_only)
        status = measure(w, x, kernel, task->repeats, &answer->costs[number], &diags);
    if (status) explain(answer, TUNE_FAILED, shape->text, &diags);
    tvm_diags_free(&diags);
    return !status;
}

static void do_variant(worker *w, const tune_task *task, tune_answer *answer) {
    tvm_program *program = NULL;
    tvm_kernel *kernel = NULL;
    tvm_kernel_info info;
    tvm_diags diags = {0};
    tvm_status status = load(w, w->context, task->variant, w->t->options.kernel, &program, &kernel, &diags);
    if (!status) status = failed(w->context, tvm_prepare(kernel), &diags);
    if (status) explain(answer, TUNE_FAILED, "", &diags);
    bool gpu = tvm_device(w->context) != TVM_DEVICE_CPU;
    for (size_t k = 0; !status && gpu && k < tvm_kernel_count(program); k++) {
        if (program->functions[k].entry || tvm_get_kernel_info(&program->functions[k], &info)) continue;
        if (info.registers > answer->registers) answer->registers = info.registers;
    }
    bool good = !status;
    for (unsigned pass = 0; pass < 2; pass++) /* what is for checking alone comes first */
        for (unsigned s = 0; good && s < w->t->shape_count; s++)
            if (w->t->shapes[s].check_only == !pass && (task->shape == UINT32_MAX || task->shape == s))
                good = do_shape(w, s, task, kernel, answer);
    bool any = false;
    for (unsigned s = 0; s < w->t->shape_count; s++) any = any || !isnan(answer->costs[s]);
    if (good && !any) {
        answer->state = TUNE_DROPPED;
        snprintf(answer->why, sizeof answer->why, "it is for none of the shapes");
    } else if (good) {
        answer->state = TUNE_TIMED;
    }
    tvm_program_free(program);
    tvm_diags_free(&diags);
}

/* ---- the process ---- */

typedef struct greeting {
    tvm_status status;
    tune_device device; /* or, as its text, why there is none */
} greeting;

static tvm_status open_reference(worker *w, tvm_diags *diags) {
    uint32_t first = tune_first_built(w->t);
    tvm_status status =
        load(w, w->context, first, w->t->options.kernel, &w->device_program, &w->device_kernel, diags);
    if (status) return status;
    if (w->t->options.reference)
        return failed(w->context,
                      tvm_get_kernel(w->device_program, w->t->options.reference, &w->reference_kernel),
                      diags);
    tvm_context_options options = w->t->options.device;
    options.device = TVM_DEVICE_CPU;
    tvm_launch_env env = tvm_context_launch_env(w->context); /* on which shapes may depend */
    options.target = env.target;
    options.multiprocessors = env.multiprocessors;
    status = tvm_context_create(&options, &w->interpreter);
    if (status) return failed(w->interpreter, status, diags);
    return load(w, w->interpreter, first, w->t->options.kernel, &w->reference_program, &w->reference_kernel,
                diags);
}

static bool send_all(int to, const void *bytes, size_t size) {
    for (size_t done = 0; done < size;) {
        ssize_t n = write(to, (const char *)bytes + done, size - done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        done += (size_t)n;
    }
    return true;
}

/* limit: seconds; negative: none. */
static bool receive_all(int from, void *bytes, size_t size, double limit) {
    double end = tune_now() + limit;
    for (size_t done = 0; done < size;) {
        struct pollfd ready = {.fd = from, .events = POLLIN};
        double rest = limit < 0 ? -1 : end - tune_now();
        if (limit >= 0 && rest <= 0) return false;
        int n = poll(&ready, 1, limit < 0 ? -1 : (int)fmin(rest * 1e3 + 1, 1e6));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return false;
        if (n == 0) continue;
        ssize_t got = read(from, (char *)bytes + done, size - done);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        done += (size_t)got;
    }
    return true;
}

/* Each rank of a machine has a GPU of its own: its number among those that CUDA_VISIBLE_DEVICES leaves. */
static int ordinal_of(const tune *t) {
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    int count = visible && *visible ? 1 : INT_MAX;
    for (const char *c = visible; c && *c; c++) count += *visible && *c == ',';
    return t->options.device.ordinal + t->ranks.local % count;
}

static int serve(tune *t, int from, int to) {
    worker *w = calloc(1, sizeof *w);
    greeting hello = {.status = TVM_OK};
    tune_task task;
    tune_answer answer;
    bool opened = false;
    if (!w) return 1;
    w->t = t;
    tvm_context_options options = t->options.device;
    options.ordinal = ordinal_of(t);
    hello.status = tvm_context_create(&options, &w->context);
    snprintf(hello.device.text, sizeof hello.device.text, "%s",
             hello.status ? tvm_message(w->context) : tvm_device_name(w->context));
    if (!hello.status) {
        tvm_launch_env env = tvm_context_launch_env(w->context);
        hello.device.is_gpu = tvm_device(w->context) != TVM_DEVICE_CPU;
        hello.device.target = hello.device.is_gpu ? env.target : t->options.device.target;
        hello.device.multiprocessors = env.multiprocessors;
    }
    if (!send_all(to, &hello, sizeof hello) || hello.status) return 1;
    while (receive_all(from, &task, sizeof task, -1)) {
        tvm_diags diags = {0};
        answer = (tune_answer){.state = TUNE_FAILED, .registers = -1, .spilled = -1};
        for (unsigned s = 0; s < TUNE_SHAPES; s++) answer.costs[s] = NAN;
        tvm_status status = opened ? TVM_OK : open_reference(w, &diags);
        opened = opened || !status;
        if (status)
            explain(&answer, TUNE_FAILED, "the reference", &diags);
        else
            do_variant(w, &task, &answer);
        tvm_diags_free(&diags);
        if (!send_all(to, &answer, sizeof answer)) break;
    }
    return 0;
}

const tune_worker tune_no_worker = {.pid = -1, .to = -1, .from = -1};

tvm_status tune_worker_start(tune *t, tune_worker *w, tvm_diags *diags) {
    int down[2], up[2];
    greeting hello;
    *w = tune_no_worker;
    if (pipe2(down, O_CLOEXEC))
        return tvm_diag_add(diags, TVM_IO, NULL, NULL, "no pipe: %s", strerror(errno));
    if (pipe2(up, O_CLOEXEC)) {
        close(down[0]), close(down[1]);
        return tvm_diag_add(diags, TVM_IO, NULL, NULL, "no pipe: %s", strerror(errno));
    }
    fflush(NULL);
    pid_t parent = getpid();
    w->pid = fork();
    if (w->pid == 0) {
        close(down[1]), close(up[0]);
        /* what it runs may take long, and nobody would want the answer */
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != parent) _exit(1);
        _exit(serve(t, down[0], up[1]));
    }
    close(down[0]), close(up[1]);
    w->to = down[1];
    w->from = up[0];
    if (w->pid < 0) return tvm_diag_add(diags, TVM_IO, NULL, NULL, "no process: %s", strerror(errno));
    if (!receive_all(w->from, &hello, sizeof hello, -1))
        return tvm_diag_add(diags, TVM_NO_DEVICE, NULL, NULL, "the process that opens the device has ended");
    if (hello.status) return tvm_diag_add(diags, hello.status, NULL, NULL, "%s", hello.device.text);
    t->device = hello.device;
    return TVM_OK;
}

void tune_worker_stop(tune_worker *w) {
    if (w->to >= 0) close(w->to);
    if (w->from >= 0) close(w->from);
    if (w->pid > 0) {
        kill(w->pid, SIGKILL);
        while (waitpid(w->pid, NULL, 0) < 0 && errno == EINTR) continue;
    }
    *w = tune_no_worker;
}

void tune_worker_give(tune_worker *w, const tune_task *task) {
    w->begun = tune_now();
    send_all(w->to, task, sizeof *task); /* where it has ended, taking the answer tells */
}

bool tune_worker_take(const tune *t, tune_worker *w, tune_answer *answer, int milliseconds) {
    struct pollfd ready = {.fd = w->from, .events = POLLIN};
    double left = w->begun + t->options.limit - tune_now();
    bool late = left <= 0;
    int status = 0;
    if (!late && poll(&ready, 1, milliseconds) <= 0) return false;
    if (!late && receive_all(w->from, answer, sizeof *answer, left)) return true;
    *answer = (tune_answer){.state = TUNE_FAILED, .registers = -1, .spilled = -1};
    for (unsigned s = 0; s < TUNE_SHAPES; s++) answer->costs[s] = NAN;
    late = tune_now() - w->begun >= t->options.limit;
    if (!late && waitpid(w->pid, &status, 0) == w->pid) w->pid = -1;
    if (late)
        snprintf(answer->why, sizeof answer->why, "it took longer than %g seconds", t->options.limit);
    else if (WIFSIGNALED(status))
        snprintf(answer->why, sizeof answer->why, "the process that ran it was ended by signal %d",
                 WTERMSIG(status));
    else
        snprintf(answer->why, sizeof answer->why, "the process that ran it has ended");
    return true;
}

tvm_status tune_worker_renew(tune *t, tune_worker *w, const tune_answer *answer, tvm_diags *diags) {
    if (answer->state != TUNE_FAILED) return TVM_OK;
    tune_worker_stop(w);
    return tune_worker_start(t, w, diags);
}
