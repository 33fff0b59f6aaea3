/* Status codes shared by every part of Tilus VM. Installed: part of the public interface (tvm.h). */
#ifndef TVM_STATUS_H
#define TVM_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

/* A row a status: identifier, value, what it means. Values are stable. */
#define TVM_STATUS_TABLE(X)                                                                                  \
    X(OK, 0, "success")                                                                                      \
    X(USAGE, 1, "wrong usage of a tool or function")                                                         \
    X(NO_MEMORY, 2, "out of host memory")                                                                    \
    X(IO, 3, "a file cannot be read or written")                                                             \
    X(SYNTAX, 4, "malformed program text")                                                                   \
    X(INVALID, 5, "a program that breaks a rule of the language")                                            \
    X(FORMAT, 6, "a malformed or corrupted file")                                                            \
    X(VERSION, 7, "a file of an unknown version")                                                            \
    X(ARGUMENT, 8, "launch arguments that do not fit the kernel")                                            \
    X(NOT_FOUND, 9, "no such kernel, file or device")                                                        \
    X(UNSUPPORTED, 10, "not supported by this target or build")                                              \
    X(NO_DEVICE, 11, "no usable GPU or driver")                                                              \
    X(NO_PTXAS, 12, "no ptxas to translate with")                                                            \
    X(PTXAS, 13, "ptxas failed")                                                                             \
    X(DRIVER, 14, "a CUDA driver call failed")                                                               \
    X(FAULT, 15, "a kernel faulted while it ran")                                                            \
    X(DEVICE_MEMORY, 16, "out of device memory")

typedef enum tvm_status {
#define TVM_STATUS_ENUM(id, value, text) TVM_##id = value,
    TVM_STATUS_TABLE(TVM_STATUS_ENUM)
#undef TVM_STATUS_ENUM
} tvm_status;

#ifdef __cplusplus
}
#endif
#endif
