#include "checkpoint_impl.h"
#include "fileio.h"

#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_FILES = 4096, CONFIG_MAX = 16 << 20 };

static tvm_status io_error(const char *path, const char *doing, tvm_diags *diags) {
    tvm_place place = {.file = path};
    return tvm_diag_add(diags, TVM_IO, &place, NULL, "cannot %s: %s", doing, strerror(errno));
}

/* ---- files ---- */

/* The tensors of a matrix by itself get a layer's name. */
static tvm_status name_matrix(ck_file *file, tvm_diags *diags) {
    const char *format = tvm_safetensors_metadata(&file->tensors, "format");
    if (!format || strcmp(format, "tilusvm-weights")) return TVM_OK;
    for (size_t i = 0; i < file->tensors.count; i++) {
        char *name = NULL;
        if (asprintf(&name, "linear.%s", file->tensors.items[i].name) < 0) return tvm_diag_no_memory(diags);
        free(file->tensors.items[i].name);
        file->tensors.items[i].name = name;
    }
    return TVM_OK;
}

static tvm_status open_file(ck_file *file, tvm_diags *diags) {
    struct stat info;
    const char *slash = strrchr(file->path, '/');
    file->name = slash ? slash + 1 : file->path;
    tvm_status status = tvm_file_open(file->path, &file->descriptor, diags);
    if (status) return status;
    if (fstat(file->descriptor, &info)) return io_error(file->path, "read", diags);
    file->size = (size_t)info.st_size;
    void *bytes = file->size ? mmap(NULL, file->size, PROT_READ, MAP_PRIVATE, file->descriptor, 0) : NULL;
    if (bytes == MAP_FAILED) return io_error(file->path, "map", diags);
    file->bytes = bytes;
    status = ck_is_gguf(file) ? ck_read_gguf(file, diags)
                              : tvm_safetensors_read(file->descriptor, file->path, &file->tensors, diags);
    if (status) return status;
    close(file->descriptor); /* a model of many files leaves few descriptors to others */
    file->descriptor = -1;
    return name_matrix(file, diags);
}

static bool ends_with(const char *text, const char *end) {
    size_t length = strlen(text), tail = strlen(end);
    return length >= tail && !strcmp(text + length - tail, end);
}

static tvm_status add_path(checkpoint *c, char *path, tvm_diags *diags) {
    ck_file *files = path ? realloc(c->files, (c->file_count + 1) * sizeof *files) : NULL;
    if (!files) {
        free(path);
        return tvm_diag_no_memory(diags);
    }
    c->files = files;
    c->files[c->file_count++] = (ck_file){.path = path, .descriptor = -1};
    return TVM_OK;
}

static char *joined(const char *folder, const char *name) {
    char *path = NULL;
    return asprintf(&path, "%s/%s", folder, name) < 0 ? NULL : path;
}

static int by_path(const void *a, const void *b) {
    const ck_file *x = a, *y = b;
    return strcmp(x->path, y->path);
}

/* The .safetensors files of a folder, by name. */
static tvm_status list_folder(checkpoint *c, tvm_diags *diags) {
    const char *folder = c->options->input;
    tvm_place place = {.file = folder};
    DIR *entries = opendir(folder);
    if (!entries) return io_error(folder, "open for reading", diags);
    tvm_status status = TVM_OK;
    for (struct dirent *entry; !status && (entry = readdir(entries));)
        if (entry->d_name[0] != '.' && ends_with(entry->d_name, ".safetensors"))
            status = c->file_count < MOST_FILES ? add_path(c, joined(folder, entry->d_name), diags)
                                                : tvm_diag_add(diags, TVM_UNSUPPORTED, &place, NULL,
                                                               "there are more than %d files", MOST_FILES);
    closedir(entries);
    if (!status && !c->file_count)
        status = tvm_diag_add(diags, TVM_NOT_FOUND, &place, NULL, "the folder has no .safetensors files");
    if (!status) qsort(c->files, c->file_count, sizeof *c->files, by_path);
    return status;
}

/* ---- tensors ---- */

static int by_name(const void *a, const void *b) {
    const ck_tensor *x = a, *y = b;
    return strcmp(x->header->name, y->header->name);
}

static tvm_status sort_tensors(checkpoint *c, tvm_diags *diags) {
    size_t count = 0;
    for (size_t i = 0; i < c->file_count; i++) count += c->files[i].tensors.count;
    c->tensors = calloc(count + 1, sizeof *c->tensors);
    c->claimed = calloc(count + 1, sizeof *c->claimed);
    if (!c->tensors || !c->claimed) return tvm_diag_no_memory(diags);
    for (size_t i = 0; i < c->file_count; i++)
        for (size_t j = 0; j < c->files[i].tensors.count; j++) {
            const tvm_safetensor *header = &c->files[i].tensors.items[j];
            const ck_change *changes = c->files[i].changes;
            c->tensors[c->tensor_count++] = (ck_tensor){.header = header,
                                                        .data = c->files[i].bytes + header->offset,
                                                        .change = changes ? &changes[j] : NULL,
                                                        .file = i};
        }
    if (count) qsort(c->tensors, count, sizeof *c->tensors, by_name);
    for (size_t i = 1; i < count; i++) {
        tvm_place place = {.file = c->files[c->tensors[i].file].path};
        if (!by_name(&c->tensors[i - 1], &c->tensors[i]))
            return tvm_diag_add(diags, TVM_FORMAT, &place, NULL, "tensor '%.80s' is in '%.80s', too",
                                c->tensors[i].header->name, c->files[c->tensors[i - 1].file].name);
    }
    return TVM_OK;
}

static const ck_tensor *look_up(const checkpoint *c, const char *name, const char *suffix) {
    char full[512];
    if ((size_t)snprintf(full, sizeof full, "%s%s", name, suffix) >= sizeof full) return NULL;
    tvm_safetensor header = {.name = full};
    ck_tensor key = {.header = &header};
    return c->tensor_count ? bsearch(&key, c->tensors, c->tensor_count, sizeof key, by_name) : NULL;
}

ck_tensor ck_find(const checkpoint *c, const char *name, const char *suffix) {
    const ck_tensor *found = look_up(c, name, suffix);
    return found ? *found : (ck_tensor){0};
}

ck_tensor ck_claim(const checkpoint *c, const char *name, const char *suffix) {
    const ck_tensor *found = look_up(c, name, suffix);
    if (found) c->claimed[found - c->tensors] = 1;
    return found ? *found : (ck_tensor){0};
}

/* ---- configuration ---- */

static void copy_text(char *to, size_t size, const json_t *value) {
    const char *text = json_string_value(value);
    snprintf(to, size, "%s", text ? text : "");
    for (; *to; to++) *to = *to >= 'A' && *to <= 'Z' ? (char)(*to + 32) : *to;
}

static void add_width(ck_config *config, const json_t *bits) {
    json_int_t value = json_integer_value(bits);
    if (value > 0 && value < 64) config->widths |= UINT64_C(1) << value;
}

static void add_group(ck_config *config, const json_t *group) {
    json_int_t value = json_integer_value(group);
    for (unsigned log = 0; log < 16; log++)
        if (value == (json_int_t)1 << log) config->groups |= UINT64_C(1) << log;
}

static void set_block(ck_config *config, const json_t *block) {
    json_int_t outputs = json_integer_value(json_array_get(block, 0)),
               inputs = json_integer_value(json_array_get(block, 1));
    if (outputs <= 0 || inputs <= 0) return;
    config->block[0] = (uint64_t)outputs;
    config->block[1] = (uint64_t)inputs;
}

/* What is said of all layers, or of groups of layers. */
static void read_widths(ck_config *config, json_t *quantization) {
    const char *key;
    json_t *group, *groups = json_object_get(quantization, "config_groups");
    add_width(config, json_object_get(quantization, "bits"));
    add_group(config, json_object_get(quantization, "group_size"));
    json_object_foreach(quantization, key, group) { /* MLX: by the name of a layer */
        if (strcmp(key, "config_groups")) add_width(config, json_object_get(group, "bits"));
        if (strcmp(key, "config_groups")) add_group(config, json_object_get(group, "group_size"));
    }
    add_width(config, json_object_get(quantization, "w_bit"));
    set_block(config, json_object_get(quantization, "weight_block_size"));
    json_object_foreach(groups, key, group) {
        const json_t *weights = json_object_get(group, "weights");
        add_width(config, json_object_get(weights, "num_bits"));
        set_block(config, json_object_get(weights, "block_structure"));
    }
}

/* NAME beside the files; no error where there is none. */
static tvm_status read_config(checkpoint *c, const char *folder, const char *name, const char *member,
                              tvm_diags *diags) {
    ck_config *config = &c->config;
    uint8_t *bytes;
    size_t size;
    if (config->path[0] ||
        (size_t)snprintf(config->path, sizeof config->path, "%s/%s", folder, name) >= sizeof config->path ||
        access(config->path, F_OK)) {
        if (!config->method[0]) config->path[0] = '\0';
        return TVM_OK;
    }
    tvm_status status = tvm_file_read(config->path, CONFIG_MAX, &bytes, &size, diags);
    if (status) return status;
    json_error_t error;
    tvm_place place = {.file = config->path};
    json_t *root = json_loadb((const char *)bytes, size, 0, &error);
    free(bytes);
    if (!root) return tvm_diag_add(diags, TVM_FORMAT, &place, NULL, "this is not JSON: %s", error.text);
    json_t *quantization = member ? json_object_get(root, member) : root;
    if (json_is_object(quantization)) {
        copy_text(config->method, sizeof config->method, json_object_get(quantization, "quant_method"));
        if (!config->method[0])
            copy_text(config->method, sizeof config->method, json_object_get(quantization, "quant_algo"));
        if (!config->method[0]) snprintf(config->method, sizeof config->method, "%s", member ? "" : "gptq");
        copy_text(config->checkpoint_format, sizeof config->checkpoint_format,
                  json_object_get(quantization, "checkpoint_format"));
        copy_text(config->version, sizeof config->version, json_object_get(quantization, "version"));
        copy_text(config->linear_class, sizeof config->linear_class,
                  json_object_get(quantization, "linear_class"));
        read_widths(config, quantization);
    } else {
        config->path[0] = '\0';
    }
    json_decref(root);
    return TVM_OK;
}

tvm_status ck_open(checkpoint *c, tvm_diags *diags) {
    const char *input = c->options->input;
    struct stat info;
    if (stat(input, &info)) return io_error(input, "open for reading", diags);
    c->folder = S_ISDIR(info.st_mode);
    tvm_status status = c->folder ? list_folder(c, diags) : add_path(c, strdup(input), diags);
    for (size_t i = 0; !status && i < c->file_count; i++) status = open_file(&c->files[i], diags);
    if (!status) status = sort_tensors(c, diags);
    char *folder = strdup(input), *slash = folder ? strrchr(folder, '/') : NULL;
    if (!status && !folder) status = tvm_diag_no_memory(diags);
    if (folder && !c->folder) strcpy(slash ? slash : folder, slash ? "" : ".");
    if (!status) status = read_config(c, folder, "config.json", "quantization_config", diags);
    if (!status) status = read_config(c, folder, "config.json", "quantization", diags);
    if (!status) status = read_config(c, folder, "quantize_config.json", NULL, diags);
    if (!status) status = read_config(c, folder, "hf_quant_config.json", "quantization", diags);
    free(folder);
    return status;
}

void ck_close(checkpoint *c) {
    for (size_t i = 0; i < c->file_count; i++) {
        ck_file *file = &c->files[i];
        if (file->bytes) munmap((void *)(uintptr_t)file->bytes, file->size);
        if (file->descriptor >= 0) close(file->descriptor);
        tvm_safetensors_free(&file->tensors);
        free(file->changes);
        free(file->path);
    }
    for (size_t i = 0; i < c->layer_count; i++) {
        free(c->layers[i].name);
        free(c->layers[i].order);
        free(c->layers[i].input_scales);
        free(c->layers[i].group_of);
        free(c->layers[i].place_of);
    }
    for (size_t i = 0; i < c->beside_count; i++) free(c->beside[i]);
    free(c->beside);
    free(c->files);
    free(c->tensors);
    free(c->claimed);
    free(c->layers);
}
