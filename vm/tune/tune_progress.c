/* The progress bar: "[######..................] 12/48 variants, 0:32 left" on a terminal. */
#include "tune.h"

#include <stdarg.h>
#include <unistd.h>

enum { BAR = 24 };

static bool is_shown(const tune *t) {
    return !t->options.quiet && isatty(STDERR_FILENO);
}

void tune_progress_show(const tune_progress *p) {
    if (!is_shown(p->t)) return;
    double now = tune_now(), budget = p->t->options.seconds;
    unsigned full = p->all ? p->done * BAR / p->all : BAR;
    double left = p->done ? (now - p->begun) / p->done * (p->all - p->done) : 0;
    if (budget > 0 && left > budget - (now - p->t->begun)) left = budget - (now - p->t->begun);
    fprintf(stderr, "\r[%.*s%.*s] %u/%u %s", (int)full, "########################", (int)(BAR - full),
            "........................", p->done, p->all, p->what);
    if (p->done && left > 0) fprintf(stderr, ", %d:%02d left", (int)left / 60, (int)left % 60);
    fprintf(stderr, "\033[K");
}

void tune_progress_end(const tune *t) {
    if (is_shown(t)) fprintf(stderr, "\r\033[K");
}

void tune_say(const tune *t, const char *format, ...) {
    va_list arguments;
    if (t->options.quiet) return;
    tune_progress_end(t);
    fprintf(stderr, "tvm-tune: ");
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, "\n");
}
