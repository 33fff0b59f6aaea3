# TVM_CHECK_CFLAGS(VARIABLE, FLAGS): puts those of FLAGS that the compiler takes into VARIABLE.
AC_DEFUN([TVM_CHECK_CFLAGS], [
  $1=
  tvm_saved_CFLAGS=$CFLAGS
  for tvm_flag in m4_normalize([$2]); do
    AC_MSG_CHECKING([whether $CC takes $tvm_flag])
    CFLAGS="$tvm_saved_CFLAGS -Werror $tvm_flag"
    AC_COMPILE_IFELSE([AC_LANG_PROGRAM([], [])],
      [AC_MSG_RESULT([yes]); $1="$$1 $tvm_flag"], [AC_MSG_RESULT([no])])
  done
  CFLAGS=$tvm_saved_CFLAGS
])

# TVM_FIND_CUDA: looks for cuda.h by --with-cuda, $CUDA_HOME, the toolkit's default prefix and the compiler's own path.
# Sets have_cuda, cuda_include; substitutes CUDA_CPPFLAGS; defines HAVE_CUDA_H and TVM_CUDA_PREFIX.
AC_DEFUN([TVM_FIND_CUDA], [
  have_cuda=no
  cuda_prefix=
  cuda_include=
  CUDA_CPPFLAGS=
  AS_CASE([$with_cuda],
    [no], [tvm_cuda_candidates=],
    [yes|check], [tvm_cuda_candidates="${CUDA_HOME} /usr/local/cuda /opt/cuda /usr"],
    [tvm_cuda_candidates=$with_cuda])
  AC_MSG_CHECKING([for cuda.h])
  for tvm_dir in $tvm_cuda_candidates; do
    AS_IF([test "x$have_cuda" = xno && test -f "$tvm_dir/include/cuda.h"],
      [have_cuda=yes; cuda_prefix=$tvm_dir; cuda_include=$tvm_dir/include])
  done
  AS_IF([test "x$have_cuda" = xyes],
    [AC_MSG_RESULT([$cuda_include])
     AS_IF([test "x$cuda_include" != x/usr/include], [CUDA_CPPFLAGS="-isystem $cuda_include"])
     AC_DEFINE([HAVE_CUDA_H], [1], [Define to 1 if cuda.h was found: the GPU is supported.])],
    [AC_MSG_RESULT([no])
     AS_CASE([$with_cuda], [no|check], [],
       [AC_MSG_ERROR([cuda.h was not found under $tvm_cuda_candidates])])])
  AC_DEFINE_UNQUOTED([TVM_CUDA_PREFIX], ["$cuda_prefix"],
    [Prefix of the CUDA toolkit found by configure, or empty.])
  AC_SUBST([CUDA_CPPFLAGS])
])
