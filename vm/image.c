#include "image.h"
#include "numbers.h"
#include "ptx_compiler.h"
#include "vbc.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* An image as bytes: this, the ABI of the kernels (tvm_abi_encode), padding to 16 bytes, the code, a NUL. */
typedef struct image_header {
    uint32_t abi_words;
    uint32_t ptx;
    uint64_t code_size;
    char made_by[TVM_IMAGE_MADE_BY_MAX];
} image_header;

enum { IMAGE_FORMAT = 3 }; /* of these bytes: part of the key */

static size_t code_offset(uint32_t abi_words) {
    size_t end = sizeof(image_header) + abi_words * sizeof(uint32_t);
    return tvm_round_up(end, 16);
}

static tvm_status encode(const tvm_module *module, uint8_t **bytes, size_t *size, tvm_diags *diags) {
    bool ptx = !module->cubin;
    const void *code = ptx ? (const void *)module->ptx : module->cubin;
    image_header header = {.ptx = ptx, .code_size = ptx ? module->ptx_size : module->cubin_size};
    uint32_t *abi;
    tvm_status status = tvm_module_abi(module, &abi, &header.abi_words, diags);
    if (status) return status;
    memcpy(header.made_by, module->made_by, sizeof header.made_by);
    size_t offset = code_offset(header.abi_words);
    uint8_t *image = calloc(1, offset + header.code_size + 1);
    if (image) {
        memcpy(image, &header, sizeof header);
        memcpy(image + sizeof header, abi, header.abi_words * sizeof *abi);
        memcpy(image + offset, code, header.code_size);
        *bytes = image;
        *size = offset + header.code_size + 1;
    }
    free(abi);
    return image ? TVM_OK : tvm_diag_no_memory(diags);
}

/* Takes bytes when they are an image of the request's program; TVM_FORMAT, without a message, when they are
 * not. */
static tvm_status decode(uint8_t *bytes, size_t size, const tvm_image_request *request, tvm_image *image,
                         tvm_diags *diags) {
    image_header header;
    if (size < sizeof header) return TVM_FORMAT;
    memcpy(&header, bytes, sizeof header);
    size_t offset = code_offset(header.abi_words);
    if (size < offset + 1 || header.code_size != size - offset - 1 || bytes[size - 1] ||
        !memchr(header.made_by, '\0', sizeof header.made_by))
        return TVM_FORMAT;
    tvm_status status = tvm_abi_decode((const uint32_t *)(const void *)(bytes + sizeof header),
                                       header.abi_words, request->program, request->target.arch,
                                       tvm_target_traits_of(request->target), &image->kernels);
    if (status == TVM_NO_MEMORY) tvm_diag_no_memory(diags);
    if (status) return status;
    image->kernel_count = request->program->kernel_count;
    image->ptx = header.ptx != 0;
    image->code = bytes + offset;
    image->code_size = header.code_size;
    image->bytes = bytes;
    memcpy(image->made_by, header.made_by, sizeof image->made_by);
    return TVM_OK;
}

/* ---- the key ---- */

/* What tells one file from another that takes its place: its path, size and time of change; malloc'ed. */
static char *identity(const char *what, const char *path) {
    struct stat info;
    char *text;
    if (stat(path, &info) ||
        asprintf(&text, "%s %s, %lld bytes, changed %lld.%09ld", what, path, (long long)info.st_size,
                 (long long)info.st_mtim.tv_sec, info.st_mtim.tv_nsec) < 0)
        return NULL;
    return text;
}

/* Fills the version of a ptxas. Running it would cost more than all the rest of a cache hit, so that what it
 * said is kept in the cache too. */
static tvm_status ask_ptxas(tvm_ptx_compiler *compiler, tvm_cache *cache, tvm_diags *warnings,
                            tvm_diags *diags) {
    char *description = identity("version of ptxas", compiler->path);
    uint8_t *bytes = NULL;
    size_t size = 0;
    tvm_status status = TVM_OK;
    if (description) {
        tvm_cache_key key = tvm_cache_key_of(description, NULL, 0);
        if (tvm_cache_get(cache, key, &bytes, &size) && size && !bytes[size - 1]) {
            compiler->version = (char *)bytes;
        } else {
            free(bytes);
            status = tvm_ptx_compiler_ask(compiler, diags);
            if (!status)
                tvm_cache_put(cache, key, compiler->version, strlen(compiler->version) + 1, warnings);
        }
        free(description);
        if (!status) return TVM_OK;
    }
    return tvm_diag_add(diags, TVM_PTXAS, NULL, NULL, "the version of '%s' cannot be told", compiler->path);
}

/* What the compiler's results depend on, malloc'ed. A library is known by its file: opening it would cost
 * more than a cache hit. */
static tvm_status compiler_identity(tvm_ptx_compiler *compiler, tvm_cache *cache, char **text,
                                    tvm_diags *warnings, tvm_diags *diags) {
    tvm_status status = TVM_OK;
    *text = NULL;
    switch (compiler->kind) {
    case TVM_PTX_BY_NVJITLINK:
        *text = identity("nvJitLink", compiler->path);
        break;
    case TVM_PTX_BY_PTXAS:
        status = ask_ptxas(compiler, cache, warnings, diags);
        if (!status) *text = strdup(compiler->version);
        break;
    case TVM_PTX_BY_DRIVER:
        *text = strdup("PTX");
    }
    return *text || status ? status : tvm_diag_no_memory(diags);
}

static tvm_status image_key(const tvm_image_request *request, tvm_ptx_compiler *compiler, tvm_cache_key *key,
                            tvm_diags *warnings, tvm_diags *diags) {
    char name[16], other[16], *made_by, *description;
    uint8_t *program;
    size_t size;
    tvm_status status = compiler_identity(compiler, request->cache, &made_by, warnings, diags);
    if (status) return status;
    tvm_target machine;
    bool elsewhere = tvm_target_machine(request->target, request->capability, &machine) &&
                     !tvm_target_same(machine, request->target);
    int length = asprintf(&description, "image %d for %s%s%s, code generator %d%s, %s", IMAGE_FORMAT,
                          tvm_target_name(request->target, name), elsewhere ? " on " : "",
                          elsewhere ? tvm_target_name(machine, other) : "", TVM_CODEGEN_VERSION,
                          request->counts_turns ? ", turns counted" : "", made_by);
    free(made_by);
    if (length < 0) return tvm_diag_no_memory(diags);
    status = tvm_vbc_write(request->program, 0, &program, &size, diags);
    if (!status) {
        *key = tvm_cache_key_of(description, program, size);
        free(program);
    }
    free(description);
    return status;
}

/* ---- making ---- */

/* Where nvJitLink fails and no ptxas stands in for it, the driver is left to compile: it may know more. */
static bool leave_to_driver(const tvm_ptx_compiler *compiler, tvm_diags *failure, tvm_diags *warnings) {
    char *ptxas = NULL;
    if (compiler->kind != TVM_PTX_BY_NVJITLINK || !tvm_ptxas_find(&ptxas, NULL)) {
        free(ptxas);
        return false;
    }
    tvm_diag_add(warnings, TVM_PTXAS, NULL, NULL, "the driver's compiler takes the place of nvJitLink: %s",
                 failure->count ? failure->items[0].message : "out of memory");
    return true;
}

static bool has_code(const tvm_module *module) {
    for (size_t k = 0; k < module->kernel_count; k++)
        if (!module->kernels[k].abi.absence) return true;
    return false;
}

static tvm_status compile(const tvm_ptx_compiler *compiler, tvm_observer *observer, tvm_module *module,
                          tvm_diags *warnings, tvm_diags *diags) {
    tvm_diags failure = {0};
    if (compiler->kind == TVM_PTX_BY_DRIVER || !has_code(module)) return TVM_OK;
    tvm_span span = tvm_span_begin(observer, TVM_SPAN_PTXAS, compiler->path);
    tvm_status status = tvm_ptx_compile(compiler, module, &failure);
    tvm_span_end(observer, &span);
    if (status == TVM_PTXAS && leave_to_driver(compiler, &failure, warnings)) status = TVM_OK;
    for (size_t i = 0; status && i < failure.count; i++)
        tvm_diag_add(diags, failure.items[i].status, NULL, failure.items[i].hint, "%s",
                     failure.items[i].message);
    if (status && !failure.count) tvm_diag_no_memory(diags);
    tvm_diags_free(&failure);
    return status;
}

static tvm_status build(const tvm_image_request *request, const tvm_ptx_compiler *compiler, uint8_t **bytes,
                        size_t *size, tvm_diags *warnings, tvm_diags *diags) {
    tvm_module *module = NULL;
    char name[16];
    tvm_span span =
        tvm_span_begin(request->observer, TVM_SPAN_TRANSLATE, tvm_target_name(request->target, name));
    const tvm_translate_options options = {.counts_turns = request->counts_turns};
    tvm_status status = tvm_translate_with(request->program, request->target, &options, &module, diags);
    tvm_span_end(request->observer, &span);
    if (!status) tvm_target_machine(request->target, request->capability, &module->machine);
    if (!status) status = compile(compiler, request->observer, module, warnings, diags);
    if (!status) status = encode(module, bytes, size, diags);
    if (module) tvm_module_free(module);
    return status;
}

static tvm_status find_or_build(const tvm_image_request *request, const tvm_ptx_compiler *compiler,
                                tvm_image *image, tvm_diags *warnings, tvm_diags *diags) {
    uint8_t *bytes = NULL;
    size_t size = 0;
    tvm_cache_claim claim;
    if (tvm_cache_get_or_claim(request->cache, image->key, TVM_CACHE_WAIT_MS, &claim, &bytes, &size)) {
        image->source = TVM_IMAGE_CACHED;
        tvm_status found = decode(bytes, size, request, image, diags);
        if (found == TVM_OK) return TVM_OK;
        free(bytes);
        if (found == TVM_NO_MEMORY) return found;
    }
    image->source = TVM_IMAGE_MADE;
    tvm_status status = build(request, compiler, &bytes, &size, warnings, diags);
    if (!status) tvm_cache_put(request->cache, image->key, bytes, size, warnings);
    tvm_cache_release(&claim);
    if (status) return status;
    status = decode(bytes, size, request, image, diags);
    if (!status) return TVM_OK;
    free(bytes);
    return status == TVM_FORMAT ? tvm_diag_add(diags, TVM_UNSUPPORTED, NULL, NULL,
                                               "the code generator left out kernels of the program")
                                : status;
}

static tvm_status make(const tvm_image_request *request, tvm_ptx_compiler *compiler, tvm_image *image,
                       tvm_diags *warnings, tvm_diags *diags) {
    *image = (tvm_image){.target = request->target};
    tvm_status status = image_key(request, compiler, &image->key, warnings, diags);
    return status ? status : find_or_build(request, compiler, image, warnings, diags);
}

static tvm_status find_compiler(const tvm_image_request *request, tvm_ptx_compiler *compiler,
                                tvm_diags *warnings, tvm_diags *diags) {
    *compiler = (tvm_ptx_compiler){0};
    tvm_target machine;
    if (!tvm_target_machine(request->target, request->capability, &machine)) return TVM_OK;
    return tvm_ptx_compiler_find(compiler, warnings, diags);
}

tvm_status tvm_image_embedded(const tvm_image_request *request, tvm_image *image, tvm_diags *warnings,
                              tvm_diags *diags) {
    uint64_t hash[2];
    tvm_ptx_compiler compiler;
    *image = (tvm_image){0};
    if (!request->program->image_count) return TVM_OK;
    tvm_status status = tvm_vbc_hash(request->program, hash, diags);
    if (status) return status;
    tvm_image_note_stale(request->program, hash, warnings);
    if (tvm_image_find_embedded(request, hash, TVM_EMBEDDED_EXACT, image)) return TVM_OK;
    status = find_compiler(request, &compiler, NULL, diags);
    if (!status && compiler.kind == TVM_PTX_BY_DRIVER &&
        !tvm_image_find_embedded(request, hash, TVM_EMBEDDED_LOWER, image))
        tvm_image_find_embedded(request, hash, TVM_EMBEDDED_PTX_FOR, image);
    tvm_ptx_compiler_free(&compiler);
    return status;
}

tvm_status tvm_image_make(const tvm_image_request *request, tvm_image *image, tvm_diags *warnings,
                          tvm_diags *diags) {
    tvm_ptx_compiler compiler;
    *image = (tvm_image){0};
    tvm_status status = find_compiler(request, &compiler, warnings, diags);
    if (!status) status = make(request, &compiler, image, warnings, diags);
    tvm_ptx_compiler_free(&compiler);
    return status;
}

/* ---- modules of several programs ---- */

static tvm_status module_key(const tvm_image_request *request, tvm_ptx_compiler *compiler,
                             const tvm_module *module, tvm_cache_key *key, tvm_diags *warnings,
                             tvm_diags *diags) {
    char name[16], *made_by, *description;
    tvm_status status = compiler_identity(compiler, request->cache, &made_by, warnings, diags);
    if (status) return status;
    int length = asprintf(&description, "cubin of PTX for %s, %s",
                          tvm_target_name(tvm_module_machine(module), name), made_by);
    free(made_by);
    if (length < 0) return tvm_diag_no_memory(diags);
    *key = tvm_cache_key_of(description, (const uint8_t *)module->ptx, module->ptx_size);
    free(description);
    return TVM_OK;
}

static tvm_status find_or_compile(const tvm_image_request *request, tvm_ptx_compiler *compiler,
                                  tvm_module *module, tvm_diags *warnings, tvm_diags *diags) {
    tvm_cache_key key;
    tvm_status status = module_key(request, compiler, module, &key, warnings, diags);
    if (status || tvm_cache_get(request->cache, key, &module->cubin, &module->cubin_size)) return status;
    module->cubin = NULL;
    status = compile(compiler, request->observer, module, warnings, diags);
    if (!status && module->cubin)
        tvm_cache_put(request->cache, key, module->cubin, module->cubin_size, warnings);
    return status;
}

tvm_status tvm_image_compile(const tvm_image_request *request, tvm_module *module, tvm_diags *warnings,
                             tvm_diags *diags) {
    tvm_ptx_compiler compiler;
    tvm_target_machine(request->target, request->capability, &module->machine);
    tvm_status status = find_compiler(request, &compiler, warnings, diags);
    if (!status && compiler.kind != TVM_PTX_BY_DRIVER)
        status = find_or_compile(request, &compiler, module, warnings, diags);
    tvm_ptx_compiler_free(&compiler);
    return status;
}

void tvm_image_free(tvm_image *image) {
    free(image->kernels);
    free(image->bytes);
    *image = (tvm_image){0};
}

const char *tvm_image_origin(const tvm_image *image, char origin[TVM_IMAGE_ORIGIN_MAX]) {
    static const char *const sources[] = {[TVM_IMAGE_MADE] = "",
                                          [TVM_IMAGE_CACHED] = ", from the cache",
                                          [TVM_IMAGE_EMBEDDED] = ", embedded in the program"};
    char target[16];
    bool by = !image->ptx && image->made_by[0];
    snprintf(origin, TVM_IMAGE_ORIGIN_MAX, "%s for %s%s%s%s%s", image->ptx ? "PTX" : "cubin",
             tvm_target_name(image->target, target), sources[image->source], by ? ", by " : "",
             by ? image->made_by : "", image->ptx ? ", compiled by the driver" : "");
    return origin;
}
