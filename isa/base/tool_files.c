#include "tool_files.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- kinds ---- */

/* The extensions that mean one kind, the first the usual one; another extension, such as .txt, says nothing.
 */
static const struct kind_row {
    const char *text, *extensions[3];
    bool binary;
} kinds[TVM_FILE_KINDS] = {
    [TVM_FILE_BYTECODE] = {"bytecode", {".vbc"}, true},
    [TVM_FILE_PROGRAM] = {"a program's text", {".vasm", ".vasminc"}, false},
    [TVM_FILE_PTX] = {"PTX", {".ptx"}, false},
    [TVM_FILE_CUBIN] = {"a cubin", {".cubin"}, true},
    [TVM_FILE_REPORT] = {"a report in plain text", {NULL}, false},
    [TVM_FILE_HTML] = {"a page in HTML", {".html", ".htm"}, false},
    [TVM_FILE_SVG] = {"a picture in SVG", {".svg"}, false},
    [TVM_FILE_JSON] = {"JSON", {".json"}, false},
    [TVM_FILE_NPY] = {"an array as NumPy stores it", {".npy"}, true},
    [TVM_FILE_SAFETENSORS] = {"tensors in the format safetensors", {".safetensors", ".tvmw"}, true},
    [TVM_FILE_FOLDER] = {"a folder", {NULL}, false},
};

/* The kind that the path's extension means; TVM_FILE_KINDS: none. */
static tvm_file_kind kind_of(const char *path) {
    const char *slash = strrchr(path, '/'), *dot = strrchr(slash ? slash : path, '.');
    for (unsigned k = 0; dot && k < TVM_FILE_KINDS; k++)
        for (unsigned i = 0; i < 3 && kinds[k].extensions[i]; i++)
            if (strcasecmp(dot, kinds[k].extensions[i]) == 0) return (tvm_file_kind)k;
    return TVM_FILE_KINDS;
}

static tvm_status check_kind(const char *path, tvm_file_kind kind, tvm_diags *diags) {
    const tvm_place place = {.file = path};
    tvm_file_kind meant = kind_of(path);
    const char *usual = kinds[kind].extensions[0];
    char hint[64];
    if (meant == kind || meant == TVM_FILE_KINDS) return TVM_OK;
    snprintf(hint, sizeof hint, "choose a name that ends in %s", usual ? usual : ".txt");
    return tvm_diag_add(diags, TVM_USAGE, &place, kind == TVM_FILE_FOLDER ? NULL : hint,
                        "the output is %s, but its name says %s", kinds[kind].text, kinds[meant].text);
}

/* ---- files ---- */

static bool identify(const char *path, bool output, struct stat *found) {
    int standard = output ? STDOUT_FILENO : STDIN_FILENO;
    bool there = strcmp(path, "-") == 0 ? fstat(standard, found) == 0 : stat(path, found) == 0;
    /* Terminals, pipes and the like lose nothing where they are read and written. */
    return there && (S_ISREG(found->st_mode) || S_ISDIR(found->st_mode) || S_ISBLK(found->st_mode));
}

static void add(tvm_tool_files *files, const char *path, const struct stat *found, bool output) {
    tvm_tool_file *more = reallocarray(files->items, files->count + 1, sizeof *more);
    if (more) files->items = more;
    char *copy = more ? strdup(path) : NULL;
    files->failed = files->failed || !copy;
    if (copy) more[files->count++] = (tvm_tool_file){copy, found->st_dev, found->st_ino, output};
}

/* Calls `each` with the path of every file that stands in the folder. */
static void walk_folder(tvm_tool_files *files, const char *path,
                        void (*each)(tvm_tool_files *files, const char *path, void *data), void *data) {
    DIR *folder = opendir(path);
    for (const struct dirent *entry; folder && (entry = readdir(folder));) {
        char *inside;
        if (entry->d_name[0] == '.' && (!entry->d_name[1] || !strcmp(entry->d_name, ".."))) continue;
        if (asprintf(&inside, "%s/%s", path, entry->d_name) < 0) {
            files->failed = true;
            break;
        }
        each(files, inside, data);
        free(inside);
    }
    if (folder) closedir(folder);
}

static void reads_inside(tvm_tool_files *files, const char *path, void *data) {
    struct stat found;
    (void)data;
    if (identify(path, false, &found) && !S_ISDIR(found.st_mode)) add(files, path, &found, false);
}

void tvm_tool_reads(tvm_tool_files *files, const char *path) {
    struct stat found;
    if (!identify(path, false, &found)) return;
    add(files, path, &found, false);
    if (S_ISDIR(found.st_mode)) walk_folder(files, path, reads_inside, NULL);
}

void tvm_tool_reads_tensor(tvm_tool_files *files, const char *path) {
    const char *colon = strrchr(path, ':');
    char *file = colon && colon > path && access(path, F_OK) ? strndup(path, (size_t)(colon - path)) : NULL;
    tvm_tool_reads(files, file ? file : path);
    free(file);
}

/* ---- outputs ---- */

/* A file that is not there yet is known by its folder and its name. */
static const tvm_tool_file *find(const tvm_tool_files *files, const struct stat *found, const char *name) {
    for (size_t i = 0; i < files->count; i++) {
        const tvm_tool_file *file = &files->items[i];
        if (file->device != found->st_dev || file->inode != found->st_ino) continue;
        if (!name || (file->output && !strcmp(basename(file->path), name))) return file;
    }
    return NULL;
}

static tvm_status refuse(const char *path, const tvm_tool_file *other, tvm_diags *diags) {
    const tvm_place place = {.file = strcmp(path, "-") == 0 ? NULL : path};
    bool same = strcmp(path, other->path) == 0;
    return tvm_diag_add(diags, TVM_USAGE, &place, "write to another file",
                        same ? "the output is %s%s" : "the output is the same file as %s '%s'",
                        other->output ? "another output" : "an input",
                        same ? other->output ? " too" : " too, which it would destroy" : other->path);
}

typedef struct inside {
    tvm_diags *diags;
    tvm_status status;
} inside;

static void writes_inside(tvm_tool_files *files, const char *path, void *data) {
    inside *in = data;
    struct stat found;
    const tvm_tool_file *other = !in->status && identify(path, true, &found) && !S_ISDIR(found.st_mode)
                                     ? find(files, &found, NULL)
                                     : NULL;
    if (other) in->status = refuse(path, other, in->diags);
}

/* The folder in which a file will be made. */
static bool identify_folder_of(const char *path, struct stat *found) {
    const char *slash = strrchr(path, '/');
    char *folder = slash ? strndup(path, (size_t)(slash - path) + 1) : NULL;
    bool there = (!slash || folder) && stat(slash ? folder : ".", found) == 0;
    free(folder);
    return there;
}

/* What was named before and is the same file; *found is what tells it from others, or zero. */
static const tvm_tool_file *find_same(const tvm_tool_files *files, const char *path, struct stat *found) {
    bool standard = strcmp(path, "-") == 0;
    for (size_t i = 0; standard && i < files->count; i++)
        if (files->items[i].output && strcmp(files->items[i].path, "-") == 0) return &files->items[i];
    if (identify(path, true, found)) return find(files, found, NULL);
    *found = (struct stat){0};
    if (standard || access(path, F_OK) == 0 || !identify_folder_of(path, found)) return NULL;
    return find(files, found, basename(path));
}

static tvm_status check_place(tvm_tool_files *files, const char *path, tvm_file_kind kind, tvm_diags *diags) {
    struct stat found;
    inside in = {.diags = diags};
    const tvm_tool_file *other = find_same(files, path, &found);
    if (other) return refuse(path, other, diags);
    if (kind == TVM_FILE_FOLDER) walk_folder(files, path, writes_inside, &in);
    add(files, path, &found, true);
    return in.status;
}

static tvm_status check_standard(const char *path, tvm_file_kind kind, tvm_diags *diags) {
    if (strcmp(path, "-") != 0) return TVM_OK;
    if (kind == TVM_FILE_FOLDER)
        return tvm_diag_add(diags, TVM_USAGE, NULL, NULL, "a folder cannot be written to standard output");
    if (!kinds[kind].binary || !isatty(STDOUT_FILENO)) return TVM_OK;
    return tvm_diag_add(diags, TVM_USAGE, NULL, "write to a file, or to another program by a pipe",
                        "%s is not written to a terminal", kinds[kind].text);
}

tvm_status tvm_tool_writes(tvm_tool_files *files, const char *path, tvm_file_kind kind, tvm_diags *diags) {
    tvm_status status = check_place(files, path, kind, diags);
    if (!status) status = check_standard(path, kind, diags);
    if (!status) status = check_kind(path, kind, diags);
    return !status && files->failed ? tvm_diag_no_memory(diags) : status;
}

void tvm_tool_files_free(tvm_tool_files *files) {
    for (size_t i = 0; i < files->count; i++) free(files->items[i].path);
    free(files->items);
    *files = (tvm_tool_files){0};
}
