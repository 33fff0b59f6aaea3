#include "tool.h"
#include "output.h"

#include <signal.h>

/* The signal's own action is back when this runs (SA_RESETHAND), and takes place when it returns, before that
 * of any other, as all of them wait for that. */
static void end_process(int signal) {
    tvm_output_remove_temporaries();
    raise(signal);
}

void tvm_tool_signals(void) {
    static const int ending[] = {SIGHUP, SIGINT, SIGTERM};
    struct sigaction action = {.sa_handler = end_process, .sa_flags = (int)SA_RESETHAND};
    sigfillset(&action.sa_mask);
    for (size_t i = 0; i < sizeof ending / sizeof *ending; i++) {
        struct sigaction before;
        if (!sigaction(ending[i], NULL, &before) && before.sa_handler == SIG_DFL)
            sigaction(ending[i], &action, NULL);
    }
    signal(SIGXFSZ, SIG_IGN);
}
