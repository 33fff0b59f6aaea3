#include "runtime.h"

#include <stdlib.h>
#include <string.h>

#include "codegen.h"

/* Of a thread whose record could not be allocated. A failure without text is one for want of memory. */
static const tvm_message_record no_memory = {.failed = true};

static void print_diag(FILE *stream, const tvm_diag *diag) {
    if (diag->file) {
        fprintf(stream, "%s:", diag->file);
        if (diag->line) fprintf(stream, "%u:", diag->line);
        if (diag->line && diag->column) fprintf(stream, "%u:", diag->column);
        fputc(' ', stream);
    }
    fputs(diag->message ? diag->message : tvm_status_text(diag->status), stream);
    if (diag->hint) fprintf(stream, "\n  hint: %s", diag->hint);
}

char *tvm_message_text(tvm_status status, const tvm_diags *diags) {
    char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    if (!stream) return NULL;
    for (size_t i = 0; i < diags->count; i++) {
        if (i) fputc('\n', stream);
        print_diag(stream, &diags->items[i]);
    }
    if (!diags->count) fputs(tvm_status_text(diags->lost ? TVM_NO_MEMORY : status), stream);
    bool failed = ferror(stream);
    if (fclose(stream) || failed) {
        free(text);
        return NULL;
    }
    return text;
}

/* ---- messages: one record per thread and context, found through a key of the context ---- */

static void record_free(tvm_message_record *record) {
    free(record->text);
    free(record);
}

/* A thread that spoke with the context ends. */
static void record_destroy(void *pointer) {
    tvm_message_record *record = pointer;
    if (record == &no_memory) return;
    pthread_mutex_lock(&record->context->lock);
    *record->link = record->next;
    if (record->next) record->next->link = record->link;
    pthread_mutex_unlock(&record->context->lock);
    record_free(record);
}

static tvm_message_record *record_of_thread(tvm_context *context) {
    tvm_message_record *record = pthread_getspecific(context->key);
    if (record && record != &no_memory) return record;
    record = calloc(1, sizeof *record);
    if (!record) return NULL;
    if (pthread_setspecific(context->key, record)) {
        free(record);
        return NULL;
    }
    record->context = context;
    pthread_mutex_lock(&context->lock);
    record->next = context->messages;
    record->link = &context->messages;
    if (record->next) record->next->link = &record->next;
    context->messages = record;
    pthread_mutex_unlock(&context->lock);
    return record;
}

static void record_failure(tvm_context *context, tvm_status status, const tvm_diags *diags) {
    tvm_message_record *record = record_of_thread(context);
    if (!record) {
        if (pthread_setspecific(context->key, &no_memory)) atomic_store(&context->unheard, true);
        return;
    }
    free(record->text);
    record->text = tvm_message_text(status, diags);
    record->failed = true;
    tvm_log(&context->observer, TVM_LOG_ERROR, "%s",
            record->text ? record->text : tvm_status_text(TVM_NO_MEMORY));
}

tvm_status tvm_context_finish(tvm_context *context, tvm_status status, tvm_diags *diags) {
    if (status) {
        record_failure(context, status, diags);
    } else {
        tvm_message_record *record = pthread_getspecific(context->key);
        if (record == &no_memory)
            pthread_setspecific(context->key, NULL);
        else if (record)
            record->failed = false;
        if (atomic_load_explicit(&context->unheard, memory_order_relaxed))
            atomic_store(&context->unheard, false);
    }
    tvm_diags_free(diags);
    return status;
}

tvm_status tvm_context_missing(tvm_context *context, const char *function) {
    if (!context) return TVM_USAGE;
    tvm_diags diags = {0};
    tvm_diag_add(&diags, TVM_USAGE, NULL, NULL, "%s: an argument that it needs is NULL or none of its values",
                 function);
    return tvm_context_finish(context, TVM_USAGE, &diags);
}

const char *tvm_message(const tvm_context *context) {
    if (!context) return "there is no context: out of memory, or tvm_context_create was not called";
    const tvm_message_record *record = pthread_getspecific(context->key);
    if (!record && atomic_load(&context->unheard)) record = &no_memory;
    if (!record || !record->failed) return "";
    return record->text ? record->text : tvm_status_text(TVM_NO_MEMORY);
}

/* ---- contexts ---- */

static tvm_context *context_new(void) {
    tvm_context *context = calloc(1, sizeof *context);
    if (!context) return NULL;
    if (pthread_mutex_init(&context->lock, NULL)) {
        free(context);
        return NULL;
    }
    if (pthread_mutex_init(&context->observer.lock, NULL)) {
        pthread_mutex_destroy(&context->lock);
        free(context);
        return NULL;
    }
    if (!tvm_memory_table_open(&context->limits.memory)) {
        pthread_mutex_destroy(&context->observer.lock);
        pthread_mutex_destroy(&context->lock);
        free(context);
        return NULL;
    }
    if (pthread_key_create(&context->key, record_destroy)) {
        tvm_memory_table_close(&context->limits.memory);
        pthread_mutex_destroy(&context->observer.lock);
        pthread_mutex_destroy(&context->lock);
        free(context);
        return NULL;
    }
    return context;
}

static tvm_status open_with(tvm_context *context, const tvm_device_ops *ops,
                            const tvm_context_options *options, tvm_diags *diags) {
    tvm_status status = ops->open(options, &context->observer, &context->device, diags);
    if (!status) context->ops = ops;
    return status;
}

/* The GPU when there is one; else the interpreter, and why. */
static tvm_status open_auto(tvm_context *context, const tvm_context_options *options, tvm_diags *diags) {
    tvm_diags reasons = {0};
    tvm_status status = open_with(context, &tvm_device_cuda, options, &reasons);
    if ((status == TVM_NO_DEVICE || status == TVM_UNSUPPORTED) && !options->cuda_context) {
        context->note = strdup(reasons.count ? reasons.items[0].message : tvm_status_text(status));
        tvm_diags_free(&reasons);
        return open_with(context, &tvm_device_cpu, options, diags);
    }
    for (size_t i = 0; i < reasons.count; i++)
        tvm_diag_add(diags, reasons.items[i].status, NULL, reasons.items[i].hint, "%s",
                     reasons.items[i].message);
    tvm_diags_free(&reasons);
    return status;
}

static tvm_status open_device(tvm_context *context, const tvm_context_options *options, tvm_diags *diags) {
    switch (options->device) {
    case TVM_DEVICE_AUTO:
        return open_auto(context, options, diags);
    case TVM_DEVICE_CPU:
        return open_with(context, &tvm_device_cpu, options, diags);
    case TVM_DEVICE_CUDA:
        return open_with(context, &tvm_device_cuda, options, diags);
    }
    return tvm_diag_add(diags, TVM_USAGE, NULL, NULL, "%d is no kind of device", (int)options->device);
}

static void log_device(tvm_context *context) {
    tvm_log(&context->observer, TVM_LOG_INFO, "running on %s%s%s%s", tvm_device_name(context),
            context->note ? " (no GPU: " : "", context->note ? context->note : "", context->note ? ")" : "");
}

tvm_status tvm_context_create(const tvm_context_options *options, tvm_context **context) {
    static const tvm_context_options defaults = {0};
    if (!context) return TVM_USAGE;
    *context = context_new();
    if (!*context) return TVM_NO_MEMORY;
    tvm_diags diags = {0};
    if (!options) options = &defaults;
    tvm_status status = tvm_observer_open(&(*context)->observer, options, &diags);
    if (!status) status = open_device(*context, options, &diags);
    if (!status) log_device(*context);
    return tvm_context_finish(*context, status, &diags);
}

static tvm_status trace_stop(tvm_context *context, tvm_diags *diags) {
    tvm_status status = TVM_OK;
    if (context->ops->trace_end) status = context->ops->trace_end(context->device, diags);
    tvm_status written = tvm_observer_trace_end(&context->observer, diags);
    return status ? status : written;
}

void tvm_context_free(tvm_context *context) {
    if (!context) return;
    if (context->ops && context->observer.trace) trace_stop(context, NULL);
    if (context->ops) context->ops->close(context->device);
    tvm_observer_close(&context->observer);
    pthread_key_delete(context->key);
    while (context->messages) {
        tvm_message_record *record = context->messages;
        context->messages = record->next;
        record_free(record);
    }
    tvm_memory_table_close(&context->limits.memory);
    pthread_mutex_destroy(&context->observer.lock);
    pthread_mutex_destroy(&context->lock);
    free(context->note);
    free(context);
}

const char *tvm_device_name(const tvm_context *context) {
    return context && context->ops ? context->ops->name(context->device) : "no device";
}

tvm_device_kind tvm_device(const tvm_context *context) {
    return context && context->ops ? context->ops->kind : TVM_DEVICE_AUTO;
}

const char *tvm_context_note(const tvm_context *context) {
    return context->note;
}

const char *tvm_context_warning(const tvm_context *context) {
    return context->ops ? context->ops->warning(context->device) : NULL;
}

tvm_launch_env tvm_context_launch_env(const tvm_context *context) {
    const tvm_device_ops *ops = context->ops;
    uint32_t target = ops->target(context->device);
    return (tvm_launch_env){.multiprocessors = ops->multiprocessors(context->device),
                            .target = target,
                            .traits = ops->code_target
                                          ? tvm_target_traits_of(*ops->code_target(context->device))
                                          : tvm_target_traits_for(target)};
}

/* ---- what goes straight to the device ---- */

tvm_status tvm_context_usable(const tvm_context *context, tvm_diags *diags) {
    if (context->ops) return TVM_OK;
    return tvm_diag_add(diags, TVM_USAGE, NULL, NULL, "the context has no device: tvm_context_create failed");
}

tvm_status tvm_synchronize(tvm_context *context, void *stream) {
    if (!context) return TVM_USAGE;
    tvm_diags diags = {0};
    tvm_status status = tvm_context_usable(context, &diags);
    tvm_span span = tvm_span_begin(&context->observer, TVM_SPAN_SYNCHRONIZE, tvm_device_name(context));
    if (!status) status = context->ops->synchronize(context->device, stream, &diags);
    tvm_span_end(&context->observer, &span);
    return tvm_context_finish(context, status, &diags);
}

tvm_status tvm_memory_alloc(tvm_context *context, size_t bytes, void **data) {
    if (!context || !data) return tvm_context_missing(context, __func__);
    *data = NULL;
    tvm_diags diags = {0};
    tvm_status status = tvm_context_usable(context, &diags);
    if (!status) status = context->ops->memory_alloc(context->device, bytes, data, &diags);
    if (!status && !tvm_memory_table_add(&context->limits.memory, *data, bytes)) {
        context->ops->memory_free(context->device, *data, NULL);
        *data = NULL;
        status = tvm_diag_no_memory(&diags);
    }
    return tvm_context_finish(context, status, &diags);
}

tvm_status tvm_memory_free(tvm_context *context, void *data) {
    if (!context) return TVM_USAGE;
    tvm_diags diags = {0};
    tvm_status status = tvm_context_usable(context, &diags);
    if (!status && data) {
        tvm_memory_table_remove(&context->limits.memory, data);
        status = context->ops->memory_free(context->device, data, &diags);
    }
    return tvm_context_finish(context, status, &diags);
}

tvm_status tvm_memory_write(tvm_context *context, void *to, const void *from, size_t bytes) {
    if (!context) return TVM_USAGE;
    tvm_diags diags = {0};
    tvm_status status = tvm_context_usable(context, &diags);
    if (!status && bytes) status = context->ops->memory_write(context->device, to, from, bytes, &diags);
    return tvm_context_finish(context, status, &diags);
}

tvm_status tvm_memory_read(tvm_context *context, void *to, const void *from, size_t bytes) {
    if (!context) return TVM_USAGE;
    tvm_diags diags = {0};
    tvm_status status = tvm_context_usable(context, &diags);
    if (!status && bytes) status = context->ops->memory_read(context->device, to, from, bytes, &diags);
    return tvm_context_finish(context, status, &diags);
}

/* ---- the timeline ---- */

tvm_status tvm_trace_start(tvm_context *context, const char *path) {
    if (!context || !path) return tvm_context_missing(context, __func__);
    tvm_diags diags = {0};
    tvm_status status = tvm_context_usable(context, &diags);
    if (!status) status = tvm_observer_trace(&context->observer, path, &diags);
    if (!status && context->ops->trace_begin) {
        status = context->ops->trace_begin(context->device, &diags);
        if (status) tvm_observer_trace_end(&context->observer, NULL);
    }
    return tvm_context_finish(context, status, &diags);
}

tvm_status tvm_trace_stop(tvm_context *context) {
    if (!context) return TVM_USAGE;
    tvm_diags diags = {0};
    tvm_status status = tvm_context_usable(context, &diags);
    if (!status) status = trace_stop(context, &diags);
    return tvm_context_finish(context, status, &diags);
}

/* ---- limits (launch_limits.h) ---- */

tvm_status tvm_set_limits(tvm_context *context, const tvm_limits *limits) {
    static const tvm_limits none = {0};
    if (!context) return TVM_USAGE;
    if (!limits) limits = &none;
    tvm_limits_state *state = &context->limits;
    atomic_store(&state->scratch_bytes, limits->scratch_bytes);
    atomic_store(&state->blocks, limits->blocks);
    atomic_store(&state->instructions, limits->instructions);
    atomic_store(&state->milliseconds, limits->milliseconds);
    atomic_store(&state->turns, limits->turns);
    atomic_store(&state->co_resident, limits->co_resident != 0);
    atomic_store(&state->known_sizes, limits->known_sizes != 0);
    atomic_store(&state->no_embedded_code, limits->no_embedded_code != 0);
    return tvm_context_finish(context, TVM_OK, &(tvm_diags){0});
}

tvm_status tvm_set_sanitizer(tvm_context *context, tvm_sanitize sanitize) {
    if (!context) return TVM_USAGE;
    tvm_diags diags = {0};
    tvm_status status = tvm_context_usable(context, &diags);
    if (!status && (unsigned)sanitize > TVM_SANITIZE_JSON)
        status =
            tvm_diag_add(&diags, TVM_USAGE, NULL, NULL, "there is no sanitizer number %d", (int)sanitize);
    if (!status && sanitize && context->ops->kind != TVM_DEVICE_CPU)
        status = tvm_diag_add(&diags, TVM_UNSUPPORTED, NULL, NULL,
                              "launches on a GPU are not checked: the sanitizer is the interpreter's");
    if (!status) atomic_store(&context->limits.sanitize, (unsigned)sanitize);
    return tvm_context_finish(context, status, &diags);
}

tvm_status tvm_cancel(tvm_context *context) {
    if (!context) return TVM_USAGE;
    tvm_diags diags = {0};
    tvm_status status = tvm_context_usable(context, &diags);
    if (!status && context->ops->kind != TVM_DEVICE_CPU)
        status = tvm_diag_add(&diags, TVM_UNSUPPORTED, NULL, NULL, "launches on a GPU cannot be cancelled");
    if (!status) atomic_fetch_add(&context->limits.cancelled, 1);
    return tvm_context_finish(context, status, &diags);
}
