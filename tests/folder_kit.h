/* A folder of a test's own, with scripts that stand in for programs. */
#ifndef TVM_TESTS_FOLDER_KIT_H
#define TVM_TESTS_FOLDER_KIT_H

#include "check_kit.h"
#include <ftw.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static inline void folder_make(char folder[64]) {
    strcpy(folder, "/tmp/tvm-test-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

static inline int folder_remove_item(const char *path, const struct stat *info, int kind, struct FTW *where) {
    (void)info, (void)kind, (void)where;
    return remove(path);
}

/* With all that is in it. */
static inline void folder_remove(const char *folder) {
    ck_assert_int_eq(nftw(folder, folder_remove_item, 8, FTW_DEPTH | FTW_PHYS), 0);
}

/* A shell script of these lines, as printf makes them. */
static inline void folder_script(const char *path, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static inline void folder_script(const char *path, const char *format, ...) {
    FILE *script = fopen(path, "w");
    ck_assert_ptr_nonnull(script);
    fputs("#!/bin/sh\n", script);
    va_list arguments;
    va_start(arguments, format);
    vfprintf(script, format, arguments);
    va_end(arguments);
    ck_assert_int_eq(fclose(script), 0);
    ck_assert_int_eq(chmod(path, 0700), 0);
}

/* FOLDER/ptxas, which every search finds first: it is of this version, such as "99.0, V99.0.1", makes a cubin
 * that names its target, and appends the first two words of each command line to FOLDER/ptxas.log. */
static inline void folder_ptxas(const char *folder, const char *version) {
    char path[80];
    snprintf(path, sizeof path, "%s/ptxas", folder);
    folder_script(path,
                  "echo \"$1 $2\" >>%s.log\n"
                  "case $1 in --version) echo 'Cuda compilation tools, release %s';;\n"
                  "*) printf '\\177ELF made for %%s' \"$2\" >\"$4\";; esac\n",
                  path, version);
    setenv("TVM_PTXAS", path, 1);
}

/* The same, but one that ends well only when `count` of it run at the same time, and keeps no log. */
static inline void folder_meeting_ptxas(const char *folder, int count) {
    char path[80];
    snprintf(path, sizeof path, "%s/ptxas", folder);
    folder_script(path,
                  "case $1 in --version) echo 'release 99.0, V99.0.1'; exit;; esac\n"
                  ": >'%s/here.'$$\ni=0\n"
                  "while set -- \"$1\" \"$2\" \"$3\" \"$4\" '%s'/here.*; [ $# -lt %d ]; do\n"
                  "    [ $i -lt 1000 ] || exit 1\n    i=$((i+1))\n    sleep 0.01\ndone\n"
                  "printf '\\177ELF made for %%s' \"$2\" >\"$4\"\n",
                  folder, folder, count + 4);
    setenv("TVM_PTXAS", path, 1);
}

#endif
