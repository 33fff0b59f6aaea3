/* A folder that each test of a suite has for itself: fixtures make and remove it. */
#ifndef TVM_TESTS_OWN_FOLDER_KIT_H
#define TVM_TESTS_OWN_FOLDER_KIT_H

#include "folder_kit.h"

static char folder[64];

/* A path in it; the last 64 stay as they are. */
static const char *in_folder(const char *name) {
    static char paths[64][160];
    static unsigned next;
    char *path = paths[next++ % 64];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static void setup(void) {
    folder_make(folder);
}

static void teardown(void) {
    folder_remove(folder);
}

#endif
