/* A fuzzing target (tests/fuzz_*.c) without libFuzzer, so that each runs in every build: a fixed number of
 * inputs, each made from the kept corpus, the cases and some small files, by mutations that depend on its
 * number alone; and those of the kept corpus as they are.
 *
 * That is tests/fuzz_corpus/X.txt, what libFuzzer has found to reach more of the code: inputs with an empty
 * line between them, each as printf's %b has it, over several lines. tests/fuzz_seeds writes both.
 *
 *   test_fuzz_X [COUNT [FIRST]]      inputs to try, and the first one's number */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "assembler.h"
#include "case_file.h"
#include "generate/generate.h"
#include "gguf_kit.h"
#include "vbc.h"

enum { MOST_BYTES = 1 << 16, SEEDS = 1024, MUTATIONS = 4 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);

/* ---- the corpus ---- */

typedef struct seed {
    uint8_t *bytes;
    size_t size;
} seed;

static seed corpus[SEEDS];
static unsigned corpus_count;

static void keep(const void *bytes, size_t size) {
    if (corpus_count == SEEDS || size > MOST_BYTES / 2) return;
    seed *s = &corpus[corpus_count++];
    *s = (seed){malloc(size + 1), size};
    if (!s->bytes) abort();
    memcpy(s->bytes, bytes, size);
}

static const char *top(void) {
    const char *folder = getenv("srcdir");
    return folder ? folder : ".";
}

/* \\ or \0 and three octal digits. */
static const char *unescape(const char *text, uint8_t *out) {
    if (text[1] == '\\') {
        *out = '\\';
        return text + 2;
    }
    *out = (uint8_t)((text[2] - '0') << 6 | (text[3] - '0') << 3 | (text[4] - '0'));
    return text + 5;
}

/* The inputs of the kept corpus. */
static void keep_found(void) {
    static uint8_t input[MOST_BYTES];
    char path[4096], line[256];
    size_t size = 0;
    snprintf(path, sizeof path, "%s/tests/fuzz_corpus/%s.txt", top(), FUZZ_NAME);
    FILE *file = fopen(path, "r");
    if (!file) abort();
    while (fgets(line, sizeof line, file)) {
        if (line[0] == '\n') keep(input, size), size = 0;
        for (const char *c = line; *c != '\n' && *c && size < MOST_BYTES; size++)
            if (*c == '\\')
                c = unescape(c, &input[size]);
            else
                input[size] = (uint8_t)*c++;
    }
    if (size) keep(input, size);
    fclose(file);
}

#if defined FUZZ_ASSEMBLE || defined FUZZ_VBC || defined FUZZ_LAYOUT

/* What follows `.layout NAME =` in the lines of a text. */
static void keep_layouts(const char *text) {
    while ((text = strstr(text, ".layout ")) != NULL) {
        size_t length = strcspn(text, "\n"), equals = strcspn(text, "=");
        if (equals + 2 < length) keep(text + equals + 2, length - equals - 2);
        text += length;
    }
}

static void keep_case(const case_file *c, const char *folder) {
#if defined FUZZ_ASSEMBLE
    (void)folder;
    if (c->program) keep(c->program, strlen(c->program));
#elif defined FUZZ_LAYOUT
    (void)folder;
    if (c->program) keep_layouts(c->program);
#else
    tvm_diags diags = {0};
    tvm_ir_program *program = NULL;
    uint8_t *bytes = NULL;
    size_t size = 0;
    if (!c->errors && case_assemble(c, folder, &program, &diags) == TVM_OK &&
        tvm_vbc_write(program, TVM_VBC_LINES, &bytes, &size, &diags) == TVM_OK)
        keep(bytes, size);
    free(bytes);
    tvm_ir_program_free(program);
    tvm_diags_free(&diags);
#endif
}

static void make_corpus(void) {
    char folder[4096];
    snprintf(folder, sizeof folder, "%s/tests/cases", top());
    char **paths = case_list(folder);
    if (!paths) abort();
    keep_layouts(".layout L = spatial(8, 4).local(2, 2)\n.layout M = auto(16, 64)\n");
    for (char **path = paths; *path; path++) {
        case_file *c = case_read(*path);
        if (!c) abort();
        keep_case(c, folder);
        case_free(c);
        free(*path);
    }
    free(paths);
}

#elif defined FUZZ_NPY

/* Format 1.0: magic, version, length of the header, the header, the elements. */
static void keep_npy(const char *header) {
    uint8_t bytes[512] = "\x93NUMPY\x01\x00";
    size_t length = strlen(header);
    bytes[8] = (uint8_t)length, bytes[9] = (uint8_t)(length >> 8);
    memcpy(bytes + 10, header, length);
    for (size_t i = 0; i < 64; i++) bytes[10 + length + i] = (uint8_t)i;
    keep(bytes, 10 + length + 64);
}

static void make_corpus(void) {
    keep_npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4, 4), }                      \n");
    keep_npy("{'descr': '|b1', 'fortran_order': False, 'shape': (64,), }                       \n");
    keep_npy("{'descr': '<f2', 'fortran_order': True, 'shape': (4, 8), }                       \n");
    keep_npy("{'descr': '<i8', 'fortran_order': False, 'shape': (), }                          \n");
    keep_npy("{'descr': '|V1', 'fortran_order': False, 'shape': (2, 4, 8), }                   \n");
}

#elif defined FUZZ_GGUF

static void make_corpus(void) {
    static gguf_file file;
    static uint8_t bytes[GGUF_DATA + 3 * GGUF_HEAD];
    for (int i = 0; i < 2; i++) {
        gguf_start(&file, i ? "llama" : "gemma2");
        gguf_number(&file, "llama.attention.head_count", 2);
        gguf_number(&file, "general.alignment", 32);
        gguf_tensor(&file, "blk.0.attn_q.weight", 2, 8, 32, 144);
        gguf_tensor(&file, "blk.0.attn_norm.weight", 0, 0, 8, 32);
        keep(bytes, gguf_bytes(&file, bytes));
    }
}

#else

/* Eight bytes of length, JSON, the data. */
static void keep_safetensors(const char *header) {
    uint8_t bytes[512] = {0};
    size_t length = strlen(header);
    bytes[0] = (uint8_t)length, bytes[1] = (uint8_t)(length >> 8);
    memcpy(bytes + 8, header, length);
    keep(bytes, 8 + length + 64);
}

static void make_corpus(void) {
    keep_safetensors("{\"a\":{\"dtype\":\"F32\",\"shape\":[4,4],\"data_offsets\":[0,64]}}");
    keep_safetensors(
        "{\"__metadata__\":{\"format\":\"pt\"},\"w\":{\"dtype\":\"F16\",\"shape\":[2,8],"
        "\"data_offsets\":[0,32]},\"s\":{\"dtype\":\"BF16\",\"shape\":[16],\"data_offsets\":[32,64]}}");
    keep_safetensors(
        "{\"q\":{\"dtype\":\"U8\",\"shape\":[64],\"data_offsets\":[0,64]},\"e\":{\"dtype\":\"I64\","
        "\"shape\":[0],\"data_offsets\":[64,64]}}");
}

#endif

/* ---- mutations ---- */

static uint64_t state;

static size_t below(size_t n) {
    return n ? (size_t)(generate_bits(&state) % n) : 0;
}

static size_t erase(uint8_t *data, size_t size) {
    size_t at = below(size), length = 1 + below(size - at < 32 ? size - at : 32);
    memmove(data + at, data + at + length, size - at - length);
    return size - length;
}

/* Bytes from elsewhere in the input, or from another one. */
static size_t insert(uint8_t *data, size_t size, size_t room) {
    const seed *other = &corpus[below(corpus_count)];
    size_t length = 1 + below(24), at = below(size + 1), from;
    if (length > room - size) length = room - size;
    if (length == 0 || length > other->size) return size;
    from = below(other->size - length + 1);
    memmove(data + at + length, data + at, size - at);
    memcpy(data + at, other->bytes + from, length);
    return size + length;
}

/* A number, of which there are many in a container, becomes another one. */
static void change_number(uint8_t *data, size_t size) {
    static const uint32_t numbers[] = {0,  1,   2,    3,     7,          8,          31,        32,
                                       64, 255, 4096, 65535, 0x7fffffff, 0x80000000, 0xffffffff};
    size_t width = (size_t)1 << below(4), at;
    uint64_t value = 0;
    if (width > size) return;
    at = below((size - width) / width + 1) * width;
    memcpy(&value, data + at, width);
    switch (below(4)) {
    case 0:
        value = numbers[below(sizeof numbers / sizeof *numbers)];
        break;
    case 1:
        value += 1 + below(4);
        break;
    case 2:
        value -= 1 + below(4);
        break;
    default:
        value ^= UINT64_C(1) << below(8 * width);
    }
    memcpy(data + at, &value, width);
}

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size) {
    for (size_t i = 1 + below(MUTATIONS); i > 0; i--) {
        size_t way = size ? below(8) : 7;
        if (way < 4)
            change_number(data, size);
        else if (way == 4)
            data[below(size)] = (uint8_t)generate_bits(&state);
        else if (way == 5)
            size = erase(data, size);
        else
            size = insert(data, size, max_size);
    }
    return size;
}

/* ---- the run ---- */

static volatile unsigned long now;

static void say(int signal_number) {
    char text[64];
    int length = snprintf(text, sizeof text, "input %lu ends the process\n", now);
    if (write(STDERR_FILENO, text, (size_t)length) != length) _exit(EXIT_FAILURE);
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

static void try_input(unsigned long number) {
    static uint8_t buffer[MOST_BYTES];
    now = number;
    state = number;
    const seed *from = &corpus[below(corpus_count)];
    size_t size = from->size;
    memcpy(buffer, from->bytes, size);
#if defined FUZZ_VBC || defined FUZZ_SAFETENSORS
    size = LLVMFuzzerCustomMutator(buffer, size, MOST_BYTES, (unsigned)generate_bits(&state));
#else
    size = LLVMFuzzerMutate(buffer, size, MOST_BYTES);
#endif
    LLVMFuzzerTestOneInput(buffer, size);
}

int main(int argc, char **argv) {
    unsigned long count = argc > 1 ? strtoul(argv[1], NULL, 0) : FUZZ_COUNT,
                  first = argc > 2 ? strtoul(argv[2], NULL, 0) : 1;
    keep_found();
    signal(SIGABRT, say);
    for (unsigned i = 0; i < corpus_count; i++) LLVMFuzzerTestOneInput(corpus[i].bytes, corpus[i].size);
    unsigned found = corpus_count;
    make_corpus();
    if (found == 0 || corpus_count == found) abort();
    for (unsigned long n = first; n < first + count; n++) try_input(n);
    printf("%lu inputs, made of %u\n", count, corpus_count);
    for (unsigned i = 0; i < corpus_count; i++) free(corpus[i].bytes);
    return EXIT_SUCCESS;
}
