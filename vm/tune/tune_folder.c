/* The folder of the variants' files. A separate process removes it when tvm-tune has ended, however it ended.
 */
#include "tune.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void remove_all(const char *folder) {
    char path[TUNE_FOLDER + NAME_MAX + 2];
    DIR *all = opendir(folder);
    for (struct dirent *entry; all && (entry = readdir(all));) {
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (entry->d_name[0] != '.') unlink(path);
    }
    if (all) closedir(all);
    rmdir(folder);
}

/* Ends when nobody has the pipe's other end any more: tvm-tune, and the process of the device. */
static void keep(const char *folder, int end) {
    static const int ignored[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM};
    char byte;
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++) signal(ignored[i], SIG_IGN);
    /* who reads tvm-tune's output is not to wait for this process */
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) close(fd);
    while (read(end, &byte, 1) < 0 && errno == EINTR) continue;
    remove_all(folder);
    _exit(0);
}

tvm_status tune_folder_make(tune *t, tvm_diags *diags) {
    const char *top = getenv("TMPDIR");
    int ends[2];
    if (!top || !*top) top = "/tmp";
    t->keeper = -1;
    if ((size_t)snprintf(t->folder, sizeof t->folder, "%s/tvm-tune-XXXXXX", top) >= sizeof t->folder) {
        t->folder[0] = 0;
        return tvm_diag_add(diags, TVM_IO, NULL, "set TMPDIR to a shorter path",
                            "the path of TMPDIR is too long: %s", top);
    }
    if (!mkdtemp(t->folder)) {
        tvm_status status = tvm_diag_add(diags, TVM_IO, NULL, NULL, "%s: %s", t->folder, strerror(errno));
        t->folder[0] = 0;
        return status;
    }
    if (pipe2(ends, O_CLOEXEC))
        return tvm_diag_add(diags, TVM_IO, NULL, NULL, "no pipe: %s", strerror(errno));
    fflush(NULL);
    t->keeper = fork();
    if (t->keeper == 0) {
        close(ends[1]);
        keep(t->folder, ends[0]);
    }
    close(ends[0]);
    t->kept = ends[1];
    if (t->keeper > 0) return TVM_OK;
    close(t->kept);
    return tvm_diag_add(diags, TVM_IO, NULL, NULL, "no process: %s", strerror(errno));
}

void tune_folder_remove(tune *t) {
    if (!t->folder[0]) return;
    if (t->keeper > 0) {
        close(t->kept);
        while (waitpid(t->keeper, NULL, 0) < 0 && errno == EINTR) continue;
    } else {
        remove_all(t->folder);
    }
}
