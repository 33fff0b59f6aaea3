#include "graph_text.h"

#include <stdlib.h>

void tvm_graph_text_free(tvm_graph_text *text) {
    if (!text) return;
    for (uint32_t i = 0; i < text->launch_count; i++) {
        tvm_graph_text_launch *launch = &text->launches[i];
        free(launch->name);
        free(launch->file);
        free(launch->arguments);
        free(launch->after);
    }
    for (uint32_t i = 0; i < text->program_count; i++) tvm_ir_program_free(text->programs[i]);
    tvm_ir_program_free(text->head);
    free(text->launches);
    free(text);
}
