/* The tensors of a GGUF file under the names that transformers' models have, and what else llama.cpp's
 * converter (convert_hf_to_gguf.py) changed: it moved rows of the projections of queries and keys of Llama,
 * and added 1 to the weights of Gemma's norms. A row of `families` is an architecture, as
 * general.architecture has it. */
#include "checkpoint_impl.h"
#include "gguf.h"

#include <inttypes.h>
#include <stdlib.h>

/* A module of theirs and of ours, # for the number of the layer; ours NULL: it is for the configuration. */
typedef struct module_name {
    const char *theirs, *ours;
} module_name;

static const module_name shared[] = {
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm"},
    {"output", "lm_head"},
    {"rope_freqs", NULL},
    {"rope_factors_long", NULL},
    {"rope_factors_short", NULL},
    {"blk.#.attn_norm", "model.layers.#.input_layernorm"},
    {"blk.#.attn_q", "model.layers.#.self_attn.q_proj"},
    {"blk.#.attn_k", "model.layers.#.self_attn.k_proj"},
    {"blk.#.attn_v", "model.layers.#.self_attn.v_proj"},
    {"blk.#.attn_output", "model.layers.#.self_attn.o_proj"},
    {"blk.#.attn_q_norm", "model.layers.#.self_attn.q_norm"},
    {"blk.#.attn_k_norm", "model.layers.#.self_attn.k_norm"},
    {"blk.#.ffn_norm", "model.layers.#.post_attention_layernorm"},
    {"blk.#.ffn_gate", "model.layers.#.mlp.gate_proj"},
    {"blk.#.ffn_up", "model.layers.#.mlp.up_proj"},
    {"blk.#.ffn_down", "model.layers.#.mlp.down_proj"},
    {NULL, NULL},
};
static const module_name of_gemma2[] = {
    {"blk.#.post_attention_norm", "model.layers.#.post_attention_layernorm"},
    {"blk.#.ffn_norm", "model.layers.#.pre_feedforward_layernorm"},
    {"blk.#.post_ffw_norm", "model.layers.#.post_feedforward_layernorm"},
    {NULL, NULL},
};
static const module_name of_phi3[] = {
    {"blk.#.attn_qkv", "model.layers.#.self_attn.qkv_proj"},
    {"blk.#.ffn_up", "model.layers.#.mlp.gate_up_proj"},
    {NULL, NULL},
};
static const module_name of_olmo2[] = {
    {"blk.#.post_attention_norm", "model.layers.#.post_attention_layernorm"},
    {"blk.#.post_ffw_norm", "model.layers.#.post_feedforward_layernorm"},
    {NULL, NULL},
};
static const module_name of_glm4[] = {
    {"blk.#.post_attention_norm", "model.layers.#.post_self_attn_layernorm"},
    {"blk.#.post_ffw_norm", "model.layers.#.post_mlp_layernorm"},
    {"blk.#.ffn_up", "model.layers.#.mlp.gate_up_proj"},
    {NULL, NULL},
};
/* The stacks of gate and up are two in the file, which transformers has as one: storage.load takes both. */
static const module_name of_mixtures[] = {
    {"blk.#.ffn_gate_inp", "model.layers.#.mlp.gate"},
    {"blk.#.ffn_gate_exps", "model.layers.#.mlp.experts.gate_proj"},
    {"blk.#.ffn_up_exps", "model.layers.#.mlp.experts.up_proj"},
    {"blk.#.ffn_down_exps", "model.layers.#.mlp.experts.down_proj"},
    {"blk.#.ffn_gate_inp_shexp", "model.layers.#.mlp.shared_expert_gate"},
    {"blk.#.ffn_gate_shexp", "model.layers.#.mlp.shared_expert.gate_proj"},
    {"blk.#.ffn_up_shexp", "model.layers.#.mlp.shared_expert.up_proj"},
    {"blk.#.ffn_down_shexp", "model.layers.#.mlp.shared_expert.down_proj"},
    {NULL, NULL},
};

static const struct family {
    const char *architecture;
    const module_name *own; /* before the shared ones */
    bool turned;            /* rows of queries and keys are moved */
    bool shifted;           /* 1 is added to norms */
} families[] = {
    {"llama", NULL, true, false},
    {"qwen2", NULL, false, false},
    {"qwen3", NULL, false, false},
    {"gemma", NULL, false, true},
    {"gemma2", of_gemma2, false, true},
    {"gemma3", of_gemma2, false, true},
    {"phi3", of_phi3, false, false},
    {"olmo2", of_olmo2, false, false},
    {"glm4", of_glm4, false, false},
    {"qwen2moe", of_mixtures, false, false},
    {"qwen3moe", of_mixtures, false, false},
};
#define KNOWN_FAMILIES                                                                                       \
    "llama (Mistral is such a one), qwen2, qwen3, qwen2moe, qwen3moe, gemma, gemma2, gemma3, phi3, olmo2 "   \
    "and glm4"

typedef struct gguf_model {
    const struct family *family;
    const char *path;
    char architecture[64];
    uint64_t heads, key_heads;
    tvm_diags *diags;
} gguf_model;

static tvm_status refuse(const gguf_model *m, tvm_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static tvm_status refuse(const gguf_model *m, tvm_status status, const char *format, ...) {
    char text[768];
    tvm_place place = {.file = m->path};
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return tvm_diag_add(m->diags, status, &place, NULL, "%s", text);
}

/* ---- names ---- */

/* The end of a name behind that of the module, as `theirs` has it: ".weight"; NULL: it is another one's.
 * number gets what stands for #. */
static const char *behind(const char *name, const char *theirs, char number[24]) {
    number[0] = '\0';
    for (; *theirs; theirs++) {
        if (*theirs != '#') {
            if (*name++ != *theirs) return NULL;
            continue;
        }
        size_t length = strspn(name, "0123456789");
        if (!length || length > 9) return NULL;
        memcpy(number, name, length);
        number[length] = '\0';
        name += length;
    }
    return !strcmp(name, ".weight") || !strcmp(name, ".bias") ? name : NULL;
}

static const module_name *find_in(const module_name *rows, const char *name, const char **end,
                                  char number[24]) {
    for (; rows && rows->theirs; rows++)
        if ((*end = behind(name, rows->theirs, number)) != NULL) return rows;
    return NULL;
}

/* "model.layers." "7" ".mlp.up_proj" ".weight" */
static char *name_of(const module_name *row, const char *number, const char *end) {
    char *name = NULL;
    const char *hash = strchr(row->ours, '#');
    int made = hash ? asprintf(&name, "%.*s%s%s%s", (int)(hash - row->ours), row->ours, number, hash + 1, end)
                    : asprintf(&name, "%s%s", row->ours, end);
    return made < 0 ? NULL : name;
}

/* ---- what else was changed ---- */

static bool ends(const char *text, const char *end) {
    size_t length = strlen(text), tail = strlen(end);
    return length >= tail && !strcmp(text + length - tail, end);
}

static tvm_status find_change(const gguf_model *m, const module_name *row, const tvm_gguf_tensor *tensor,
                              ck_change *change) {
    *change = (ck_change){.plain = !strcmp(row->ours, "model.embed_tokens")};
    bool queries = ends(row->ours, ".q_proj"), keys = ends(row->ours, ".k_proj");
    if (m->family->shifted && ends(row->ours, "norm") && ends(tensor->name, ".weight")) {
        change->added = 1;
        if (tensor->rank != 1 || strcmp(tensor->type->name, "F32"))
            return refuse(m, TVM_UNSUPPORTED, "tensor '%s' is %s; a vector of F32 is expected", tensor->name,
                          tensor->type->name);
    }
    if (!m->family->turned || !(queries || keys)) return TVM_OK;
    uint64_t rows = tensor->rank == 1 ? tensor->shape[0] : tensor->shape[tensor->rank - 2];
    change->heads = queries ? m->heads : m->key_heads;
    if (tensor->rank > 2 || rows / 2 % change->heads || rows % 2)
        return refuse(m, TVM_FORMAT, "tensor '%s' has %" PRIu64 " rows, not those of %" PRIu64 " heads",
                      tensor->name, rows, change->heads);
    return TVM_OK;
}

uint64_t ck_row_of_file(const ck_tensor *tensor, uint64_t row) {
    uint64_t heads = tensor->change ? tensor->change->heads : 0;
    if (!heads) return row;
    uint64_t rows = tensor->header->shape[tensor->header->rank == 1 ? 0 : tensor->header->rank - 2],
             size = rows / heads;
    uint64_t place = row % size;
    return row - place + place % (size / 2) * 2 + place / (size / 2);
}

/* ---- the file ---- */

static tvm_status add_tensor(const gguf_model *m, const tvm_gguf_tensor *from, ck_file *file) {
    char number[24];
    const char *end;
    const module_name *row = find_in(m->family->own, from->name, &end, number);
    if (!row) row = find_in(shared, from->name, &end, number);
    if (!row)
        return refuse(
            m, TVM_UNSUPPORTED,
            "tensor '%s' has no known name in transformers' models of the architecture %s; quantize the model that "
            "the file was made of with tilusvm.quantize_",
            from->name, m->architecture);
    if (!row->ours) return TVM_OK;
    tvm_status status = find_change(m, row, from, &file->changes[file->tensors.count]);
    if (status) return status;
    tvm_safetensor *to = &file->tensors.items[file->tensors.count++];
    *to = (tvm_safetensor){.name = name_of(row, number, end),
                           .dtype = strdup(from->type->name),
                           .type = from->type->type,
                           .rank = from->rank,
                           .offset = from->offset,
                           .bytes = from->bytes};
    memcpy(to->shape, from->shape, from->rank * sizeof *from->shape);
    if (to->rank == 1 && ends(row->ours, "_gate")) { /* of one row, which the file has as a vector */
        to->shape[1] = to->shape[0];
        to->shape[0] = 1;
        to->rank = 2;
    }
    return to->name && to->dtype ? TVM_OK : tvm_diag_no_memory(m->diags);
}

static tvm_status find_heads(gguf_model *m, const tvm_gguf *read) {
    char key[128];
    if (!m->family->turned) return TVM_OK;
    snprintf(key, sizeof key, "%s.attention.head_count", m->architecture);
    if (!tvm_gguf_number(read, key, &m->heads) || !m->heads || m->heads > INT32_MAX)
        return refuse(m, TVM_FORMAT, "%s is not there, or no number of heads", key);
    m->key_heads = m->heads;
    snprintf(key, sizeof key, "%s.attention.head_count_kv", m->architecture);
    tvm_gguf_number(read, key, &m->key_heads);
    if (!m->key_heads || m->key_heads > INT32_MAX)
        return refuse(m, TVM_FORMAT, "%s is no number of heads", key);
    return TVM_OK;
}

static tvm_status find_family(gguf_model *m, const tvm_gguf *read) {
    if (!tvm_gguf_text(read, "general.architecture", m->architecture, sizeof m->architecture))
        return refuse(m, TVM_FORMAT, "general.architecture is not there, or no name");
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (!strcmp(m->architecture, families[i].architecture)) m->family = &families[i];
    if (m->family) return find_heads(m, read);
    return refuse(
        m, TVM_UNSUPPORTED,
        "the names that tensors of the architecture %s have in transformers are not known, only those "
        "of " KNOWN_FAMILIES "; quantize the model that the file was made of with tilusvm.quantize_",
        m->architecture);
}

bool ck_is_gguf(const ck_file *file) {
    return tvm_gguf_is(file->bytes, file->size);
}

tvm_status ck_read_gguf(ck_file *file, tvm_diags *diags) {
    gguf_model model = {.path = file->path, .diags = diags};
    tvm_gguf read;
    tvm_status status = tvm_gguf_read(file->bytes, file->size, file->path, &read, diags);
    if (!status) status = find_family(&model, &read);
    file->tensors.items = calloc(read.tensor_count + 1, sizeof *file->tensors.items);
    file->changes = calloc(read.tensor_count + 1, sizeof *file->changes);
    if (!status && (!file->tensors.items || !file->changes)) status = tvm_diag_no_memory(diags);
    for (size_t i = 0; !status && i < read.tensor_count; i++)
        status = add_tensor(&model, &read.tensors[i], file);
    tvm_gguf_free(&read);
    return status;
}
