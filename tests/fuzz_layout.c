/* Fuzzing target: layout expressions, by themselves. */
#include "fuzz_kit.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    tvm_diags diags = {0};
    char *picture = NULL;
    char *expression = malloc(size + 1);
    if (!expression) return 0;
    if (size) memcpy(expression, data, size);
    expression[size] = '\0';
    tvm_status status = tvm_print_layout(&(tvm_picture_request){.expression = expression}, &picture, &diags);
    fuzz_status(status, &diags);
    if (status == TVM_OK) FUZZ_REQUIRE(picture[0] != '\0', &diags);
    tvm_diags_free(&diags);
    free(picture);
    free(expression);
    return 0;
}
