/* The files of a model's folder that go with the weights: its configuration, its tokenizer, its licence. */
#include "checkpoint_export.h"
#include "fileio.h"
#include "output.h"

#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { COPIED_FILE = 64 << 20 /* the largest file that is copied */ };

static bool is_beside(const char *name) {
    static const char *const ends[] = {".json", ".txt", ".model", ".jinja", ".tiktoken", ".md"};
    static const char *const others[] = {"model.safetensors.index.json", "quantize_config.json",
                                         "hf_quant_config.json"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (!strcmp(name, others[i])) return false;
    const char *end = strrchr(name, '.');
    for (size_t i = 0; end && i < sizeof ends / sizeof *ends; i++)
        if (!strcmp(end, ends[i])) return true;
    return false;
}

static char *joined(const char *folder, const char *name) {
    char *path = NULL;
    return asprintf(&path, "%s/%s", folder, name) < 0 ? NULL : path;
}

/* ---- links ---- */

/* Does the absolute path lie in the folder `inside`, relative to the model's? */
static bool lies_in(const char *path, const char *model, const char *inside) {
    char *relative = joined(model, inside), *folder = relative ? realpath(relative, NULL) : NULL;
    size_t length = folder ? strlen(folder) : 0;
    bool lies = folder && !strncmp(path, folder, length) && path[length] == '/';
    free(relative);
    free(folder);
    return lies;
}

/* A folder from elsewhere must not bring a file of its reader's into a copy that may be published. The model
 * hub's cache has links from snapshots/REVISION to its own blobs. */
static tvm_status check_link(const char *model, const char *path, tvm_diags *diags) {
    tvm_place place = {.file = path};
    char *target = realpath(path, NULL);
    if (!target) return tvm_diag_add(diags, TVM_IO, &place, NULL, "cannot follow it: %s", strerror(errno));
    char *real = realpath(model, NULL), *snapshots = real ? strrchr(real, '/') : NULL;
    bool hub = snapshots && snapshots - real >= 10 && !strncmp(snapshots - 10, "/snapshots", 10);
    bool known = lies_in(target, model, ".") || (hub && lies_in(target, model, "../../blobs"));
    tvm_status status = TVM_OK;
    if (!known)
        status = tvm_diag_add(diags, TVM_UNSUPPORTED, &place, "put a copy of that file in its place",
                              "this is a link out of the folder, to '%.200s'; it is not copied", target);
    free(real);
    free(target);
    return status;
}

static tvm_status add_beside(checkpoint *c, const char *name, tvm_diags *diags) {
    struct stat info, link;
    char **names = realloc(c->beside, (c->beside_count + 1) * sizeof *names);
    char *path = joined(c->options->input, name);
    tvm_status status = names && path ? TVM_OK : tvm_diag_no_memory(diags);
    if (names) c->beside = names;
    if (!status && !stat(path, &info) && S_ISREG(info.st_mode) && info.st_size <= COPIED_FILE) {
        if (!lstat(path, &link) && S_ISLNK(link.st_mode)) status = check_link(c->options->input, path, diags);
        if (!status && !(names[c->beside_count] = strdup(name))) status = tvm_diag_no_memory(diags);
        if (!status) c->beside_count++;
    }
    free(path);
    return status;
}

tvm_status ck_find_beside(checkpoint *c, tvm_diags *diags) {
    DIR *entries = opendir(c->options->input);
    tvm_status status = TVM_OK;
    if (!entries) return TVM_OK;
    for (struct dirent *entry; !status && (entry = readdir(entries));)
        if (is_beside(entry->d_name)) status = add_beside(c, entry->d_name, diags);
    closedir(entries);
    return status;
}

/* ---- copies ---- */

static tvm_status write_small(const char *folder, const char *name, const void *bytes, size_t size,
                              tvm_diags *diags) {
    char *path = joined(folder, name);
    if (!path) return tvm_diag_no_memory(diags);
    tvm_status status = tvm_file_write(path, bytes, size, diags);
    free(path);
    return status;
}

tvm_status ck_write_json(const char *folder, const char *name, void *json, tvm_diags *diags) {
    char *text = json ? json_dumps(json, JSON_INDENT(2)) : NULL;
    tvm_status status =
        text ? write_small(folder, name, text, strlen(text), diags) : tvm_diag_no_memory(diags);
    free(text);
    return status;
}

static tvm_status write_config(const checkpoint *c, const uint8_t *bytes, size_t size, tvm_diags *diags) {
    json_error_t error;
    json_t *root = json_loadb((const char *)bytes, size, 0, &error);
    tvm_place place = {.file = c->options->input};
    if (!json_is_object(root)) {
        json_decref(root);
        return tvm_diag_add(diags, TVM_FORMAT, &place, NULL, "config.json is no JSON object");
    }
    json_object_del(root, "compression_config");
    json_object_del(root, "quantization_config");
    if (ck_has_codes(c))
        json_object_set_new(root, "quantization_config",
                            c->plan.target == CK_OURS
                                ? json_pack("{s:s, s:i}", "quant_method", "tilusvm", "version", 1)
                                : ck_export_config(c));
    tvm_status status = ck_write_json(c->options->output, "config.json", root, diags);
    json_decref(root);
    return status;
}

tvm_status ck_copy_beside(const checkpoint *c, tvm_diags *diags) {
    tvm_status status = TVM_OK;
    for (size_t i = 0; !status && i < c->beside_count; i++) {
        const char *name = c->beside[i];
        uint8_t *bytes = NULL;
        size_t size = 0;
        char *path = joined(c->options->input, name);
        status = path ? tvm_file_read(path, COPIED_FILE, &bytes, &size, diags) : tvm_diag_no_memory(diags);
        if (!status && !strcmp(name, "config.json"))
            status = write_config(c, bytes, size, diags);
        else if (!status)
            status = write_small(c->options->output, name, bytes, size, diags);
        free(bytes);
        free(path);
    }
    return status;
}
