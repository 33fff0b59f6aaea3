#include "image.h"
#include "vbc.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* An image as bytes: this, the kernels, padding to 16 bytes, the code, a NUL. */
typedef struct image_header {
    uint32_t kernel_count;
    uint32_t ptx;
    uint64_t code_size;
} image_header;

static size_t code_offset(uint32_t kernel_count) {
    size_t end = sizeof(image_header) + kernel_count * sizeof(tvm_image_kernel);
    return (end + 15) / 16 * 16;
}

static tvm_status encode(const tvm_module *module, uint8_t **bytes, size_t *size, tvm_diags *diags) {
    bool ptx = !module->cubin;
    const void *code = ptx ? (const void *)module->ptx : module->cubin;
    image_header header = {.kernel_count = (uint32_t)module->kernel_count,
                           .ptx = ptx,
                           .code_size = ptx ? module->ptx_size : module->cubin_size};
    size_t offset = code_offset(header.kernel_count);
    uint8_t *image = calloc(1, offset + header.code_size + 1);
    if (!image) return tvm_diag_no_memory(diags);
    memcpy(image, &header, sizeof header);
    for (uint32_t i = 0; i < header.kernel_count; i++) {
        tvm_image_kernel kernel = {module->kernels[i].threads, module->kernels[i].shared_bytes};
        memcpy(image + sizeof header + i * sizeof kernel, &kernel, sizeof kernel);
    }
    memcpy(image + offset, code, header.code_size);
    *bytes = image;
    *size = offset + header.code_size + 1;
    return TVM_OK;
}

/* Takes bytes when they are an image of `kernel_count` kernels; false otherwise. */
static bool decode(uint8_t *bytes, size_t size, uint32_t kernel_count, tvm_image *image) {
    image_header header;
    size_t offset = code_offset(kernel_count);
    if (size < offset + 1) return false;
    memcpy(&header, bytes, sizeof header);
    if (header.kernel_count != kernel_count || header.code_size != size - offset - 1 || bytes[size - 1])
        return false;
    image->kernels = (const tvm_image_kernel *)(const void *)(bytes + sizeof header);
    image->kernel_count = kernel_count;
    image->ptx = header.ptx != 0;
    image->code = bytes + offset;
    image->code_size = header.code_size;
    image->bytes = bytes;
    return true;
}

/* ---- the key ---- */

/* The version line of ptxas, malloc'ed. Running it would cost more than all the rest of a cache hit, so that
 * what it said is kept in the cache too, under the program's path, size and time of change. NULL when it
 * cannot be told. */
static char *ptxas_version(const char *path, const tvm_cache *cache, tvm_diags *warnings, tvm_diags *diags) {
    struct stat info;
    char *description;
    if (stat(path, &info)) return NULL;
    if (asprintf(&description, "version of ptxas %s, %lld bytes, changed %lld.%09ld", path,
                 (long long)info.st_size, (long long)info.st_mtim.tv_sec, info.st_mtim.tv_nsec) < 0)
        return NULL;
    tvm_cache_key key = tvm_cache_key_of(description);
    free(description);
    uint8_t *bytes = NULL;
    size_t size = 0;
    if (tvm_cache_get(cache, key, &bytes, &size) && size && !bytes[size - 1]) return (char *)bytes;
    free(bytes);
    char *version = NULL;
    if (tvm_ptxas_version(path, &version, diags)) return NULL;
    tvm_cache_put(cache, key, version, strlen(version) + 1, warnings);
    return version;
}

/* `version` is ptxas', NULL for the driver's compiler. */
static tvm_status image_key(const tvm_ir_program *program, tvm_target target, const char *version,
                            tvm_cache_key *key, tvm_diags *diags) {
    uint64_t hash[2];
    char name[16], *description;
    tvm_status status = tvm_vbc_hash(program, hash, diags);
    if (status) return status;
    if (asprintf(&description, "program %016llx%016llx for %s, code generator %d, %s",
                 (unsigned long long)hash[0], (unsigned long long)hash[1], tvm_target_name(target, name),
                 TVM_CODEGEN_VERSION, version ? version : "PTX") < 0)
        return tvm_diag_no_memory(diags);
    *key = tvm_cache_key_of(description);
    free(description);
    return TVM_OK;
}

/* ---- making ---- */

/* Translates, and assembles with ptxas if its path is given. */
static tvm_status build(const tvm_ir_program *program, tvm_target target, const char *ptxas,
                        tvm_observer *observer, uint8_t **bytes, size_t *size, tvm_diags *diags) {
    tvm_module *module = NULL;
    char name[16];
    tvm_span span = tvm_span_begin(observer, TVM_SPAN_TRANSLATE, tvm_target_name(target, name));
    tvm_status status = tvm_translate(program, target, &module, diags);
    tvm_span_end(observer, &span);
    if (!status && ptxas) {
        span = tvm_span_begin(observer, TVM_SPAN_PTXAS, ptxas);
        status = tvm_ptxas(module, ptxas, diags);
        tvm_span_end(observer, &span);
    }
    if (!status) status = encode(module, bytes, size, diags);
    if (module) tvm_module_free(module);
    return status;
}

static tvm_status find_or_build(const tvm_ir_program *program, tvm_target target, const char *ptxas,
                                const tvm_cache *cache, tvm_observer *observer, tvm_image *image,
                                tvm_diags *warnings, tvm_diags *diags) {
    uint8_t *bytes = NULL;
    size_t size = 0;
    if (tvm_cache_get(cache, image->key, &bytes, &size)) {
        image->cached = decode(bytes, size, program->kernel_count, image);
        if (image->cached) return TVM_OK;
        free(bytes);
    }
    tvm_status status = build(program, target, ptxas, observer, &bytes, &size, diags);
    if (status) return status;
    tvm_cache_put(cache, image->key, bytes, size, warnings);
    if (decode(bytes, size, program->kernel_count, image)) return TVM_OK;
    free(bytes);
    return tvm_diag_add(diags, TVM_UNSUPPORTED, NULL, NULL,
                        "the code generator left out kernels of the program");
}

/* *ptxas is NULL when there is none: the driver's compiler does. One that was asked for and is missing is
 * worth a word. */
static tvm_status find_ptxas(char **ptxas, tvm_diags *warnings, tvm_diags *diags) {
    const char *chosen = getenv("TVM_PTXAS");
    tvm_status status = tvm_ptxas_find(ptxas, chosen && *chosen ? warnings : NULL);
    if (!status) return TVM_OK;
    *ptxas = NULL;
    return status == TVM_NO_PTXAS ? TVM_OK
                                  : tvm_diag_add(diags, status, NULL, NULL, "%s", tvm_status_text(status));
}

tvm_status tvm_image_make(const tvm_ir_program *program, tvm_target target, const tvm_cache *cache,
                          tvm_observer *observer, tvm_image *image, tvm_diags *warnings, tvm_diags *diags) {
    *image = (tvm_image){0};
    char *ptxas = NULL, *version = NULL;
    tvm_status status = find_ptxas(&ptxas, warnings, diags);
    if (!status && ptxas) {
        version = ptxas_version(ptxas, cache, warnings, diags);
        if (!version)
            status = tvm_diag_add(diags, TVM_PTXAS, NULL, NULL, "the version of '%s' cannot be told", ptxas);
    }
    if (!status) status = image_key(program, target, version, &image->key, diags);
    if (!status) status = find_or_build(program, target, ptxas, cache, observer, image, warnings, diags);
    free(version);
    free(ptxas);
    return status;
}

void tvm_image_free(tvm_image *image) {
    free(image->bytes);
    *image = (tvm_image){0};
}
