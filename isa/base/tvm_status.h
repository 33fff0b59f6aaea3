/* Status codes shared by every part of Tilus VM. Installed: part of the public interface (tvm.h). */
#ifndef TVM_STATUS_H
#define TVM_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

/* A row a status: identifier, value, what it means, what to do about it ("": the message says so itself).
 * Values are stable. */
#define TVM_STATUS_TABLE(X)                                                                                  \
    X(OK, 0, "success", "")                                                                                  \
    X(USAGE, 1, "wrong usage of a tool or function", "")                                                     \
    X(NO_MEMORY, 2, "out of host memory", "")                                                                \
    X(IO, 3, "a file cannot be read or written", "")                                                         \
    X(SYNTAX, 4, "malformed program text", "")                                                               \
    X(INVALID, 5, "a program that breaks a rule of the language", "")                                        \
    X(FORMAT, 6, "a malformed or corrupted file", "")                                                        \
    X(VERSION, 7, "a file of an unknown version", "")                                                        \
    X(ARGUMENT, 8, "launch arguments that do not fit the kernel", "")                                        \
    X(NOT_FOUND, 9, "no such kernel, file or device", "")                                                    \
    X(UNSUPPORTED, 10, "not supported by this target or build", "")                                          \
    X(NO_DEVICE, 11, "no usable GPU or driver", "nvidia-smi tells what the driver sees")                     \
    X(NO_PTXAS, 12, "no ptxas to translate with",                                                            \
      "install the CUDA toolkit, or set TVM_PTXAS to the path of ptxas")                                     \
    X(PTXAS, 13, "ptxas failed", "")                                                                         \
    X(DRIVER, 14, "a CUDA driver call failed", "")                                                           \
    X(FAULT, 15, "a kernel faulted while it ran",                                                            \
      "the CUDA context is lost with all that it holds: free the programs and the tvm_context and create "   \
      "another, in a new process where the driver refuses to (tvm_status(3)); compute-sanitizer shows the "  \
      "access, tvm-run --device=cpu checks it")                                                              \
    X(DEVICE_MEMORY, 16, "out of device memory",                                                             \
      "free memory of the GPU and call again: the context works on; nvidia-smi shows who holds it")          \
    X(DEVICE_LOST, 17, "the GPU is lost",                                                                    \
      "this process cannot use the GPU again: run on another one; the kernel log (Xid) and nvidia-smi -q "   \
      "tell why, and whether it needs a reset")                                                              \
    X(DRIVER_OLD, 18, "the CUDA driver is too old for the code",                                             \
      "update the driver, or set TVM_PTXAS to the ptxas of a CUDA toolkit that is not newer than it")        \
    X(IMAGE, 19, "the CUDA driver refuses the code",                                                         \
      "the code is not for this GPU or is damaged: tvm-run --cache-clear removes what was kept")             \
    X(RESOURCES, 20, "a kernel needs more of the multiprocessor than there is",                              \
      "assemble it with smaller tiles, fewer stages or fewer warps: tvm-cc --explain shows what they take")  \
    X(TIMEOUT, 21, "a kernel ran longer than the system allows",                                             \
      "the GPU also serves a display, or the kernel does not end: launch smaller grids or use another GPU; " \
      "the CUDA context is lost: free the programs and the tvm_context and create another")                  \
    X(CONTEXT, 22, "the CUDA context does not exist any more",                                               \
      "free the programs and the tvm_context before the CUcontext they run in is destroyed or reset, and "   \
      "create another")                                                                                      \
    X(LIMIT, 23, "a limit that the context sets", "")                                                        \
    X(CANCELLED, 24, "the launch was cancelled", "")                                                         \
    X(SANITIZER, 25, "the sanitizer has found errors", "")

typedef enum tvm_status {
#define TVM_STATUS_ENUM(id, value, text, advice) TVM_##id = value,
    TVM_STATUS_TABLE(TVM_STATUS_ENUM)
#undef TVM_STATUS_ENUM
} tvm_status;

#ifdef __cplusplus
}
#endif
#endif
