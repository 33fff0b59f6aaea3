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

# TVM_TRY_LINK(VARIABLE, FLAGS, [PROLOGUE]): adds FLAGS to VARIABLE if a program compiles and links with them.
AC_DEFUN([TVM_TRY_LINK], [
  AC_MSG_CHECKING([whether $CC takes $2])
  tvm_saved_CFLAGS=$CFLAGS
  CFLAGS="$CFLAGS -Werror $2"
  AC_LINK_IFELSE([AC_LANG_PROGRAM([$3], [])], [AC_MSG_RESULT([yes]); $1="$$1 $2"], [AC_MSG_RESULT([no])])
  CFLAGS=$tvm_saved_CFLAGS
])

# TVM_HARDEN: what the compiler has of a stack protector, checked string functions (of optimized code alone: the C
# library's headers refuse it elsewhere), full RELRO and position-independent executables. Not beside sanitizers, which
# check more, and do not know the checked functions.
AC_DEFUN([TVM_HARDEN], [
  TVM_HARDEN_CFLAGS=
  TVM_HARDEN_LDFLAGS=
  TVM_PIE_LDFLAGS=
  TVM_HARDENED=
  AS_IF([test "x$enable_hardening" != xno && test "x$TVM_SANITIZERS" = x], [
    TVM_TRY_LINK([TVM_HARDEN_CFLAGS], [-fstack-protector-strong])
    TVM_TRY_LINK([TVM_HARDEN_CFLAGS], [-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3], [[#include <string.h>]])
    TVM_TRY_LINK([TVM_HARDEN_LDFLAGS], [-Wl,-z,relro -Wl,-z,now])
    tvm_pie=
    TVM_TRY_LINK([tvm_pie], [-fPIE -pie])
    AS_IF([test "x$tvm_pie" != x], [TVM_HARDEN_CFLAGS="$TVM_HARDEN_CFLAGS -fPIE"; TVM_PIE_LDFLAGS=-pie])
    AS_CASE([$TVM_HARDEN_CFLAGS], [*stack*FORTIFY*PIE*],
      [AS_IF([test "x$TVM_HARDEN_LDFLAGS" != x], [TVM_HARDENED=yes])])
  ])
  AC_SUBST([TVM_HARDEN_CFLAGS])
  AC_SUBST([TVM_HARDEN_LDFLAGS])
  AC_SUBST([TVM_PIE_LDFLAGS])
  AC_SUBST([TVM_HARDENED])
])

# TVM_VERSION_SCRIPT: does the linker give the symbols of a shared library versions?
AC_DEFUN([TVM_VERSION_SCRIPT], [
  printf 'TVM_TEST { global: tvm_symbol; local: *; };\n' >conftest.map
  have_version_script=
  tvm_saved_LDFLAGS=$LDFLAGS
  LDFLAGS="$LDFLAGS -shared -Wl,--version-script=conftest.map"
  tvm_saved_CFLAGS=$CFLAGS
  CFLAGS="$CFLAGS -fPIC"
  AC_MSG_CHECKING([whether the linker takes --version-script])
  AC_LINK_IFELSE([AC_LANG_SOURCE([[int tvm_symbol(void); int tvm_symbol(void) { return 0; }]])],
    [have_version_script=yes], [have_version_script=no])
  AC_MSG_RESULT([$have_version_script])
  LDFLAGS=$tvm_saved_LDFLAGS
  CFLAGS=$tvm_saved_CFLAGS
  rm -f conftest.map
  AM_CONDITIONAL([HAVE_VERSION_SCRIPT], [test "x$have_version_script" = xyes])
])

# TVM_FIND_PYTHON: the interpreter that the Python package is built for and tested with: --with-python, else the first of
# python3 and /usr/bin/python3 that has its headers, one that also has numpy and pytest before others. Sets have_python,
# have_python_tests; substitutes PYTHON, PYTHON_CPPFLAGS. The package needs position-independent code of the library.
AC_DEFUN([TVM_FIND_PYTHON], [
  have_python=no
  have_python_tests=no
  PYTHON=
  PYTHON_CPPFLAGS=
  AS_CASE([$with_python],
    [no], [tvm_python_candidates=],
    [yes|check], [tvm_python_candidates="python3 /usr/bin/python3"],
    [tvm_python_candidates=$with_python])
  tvm_python_headers='import sys, sysconfig, os
folder = sysconfig.get_path("include")
sys.exit(sys.version_info < (3, 11) or not os.path.exists(folder + "/Python.h") or print(folder))'
  AC_MSG_CHECKING([for Python 3.11 with its headers])
  for tvm_python in $tvm_python_candidates; do
    AS_IF([test $have_python_tests = no && tvm_folder=`$tvm_python -c "$tvm_python_headers" 2>/dev/null`], [
      tvm_tests=no
      AS_IF([$tvm_python -c 'import numpy, pytest' 2>/dev/null], [tvm_tests=yes])
      AS_IF([test $have_python = no || test $tvm_tests = yes],
        [have_python=yes; have_python_tests=$tvm_tests; PYTHON=$tvm_python; PYTHON_CPPFLAGS="-isystem $tvm_folder"])])
  done
  AC_MSG_RESULT([${PYTHON:-no}])
  AS_IF([test "x$enable_shared$pic_mode" = xnodefault && test $have_python = yes],
    [AC_MSG_NOTICE([--disable-shared without --with-pic: the Python package is not built])
     have_python=no; have_python_tests=no])
  AS_CASE([$with_python], [no|check], [],
    [AS_IF([test $have_python = no],
      [AC_MSG_ERROR([the Python package cannot be built: no Python 3.11 with headers, or no --with-pic])])])
  AC_SUBST([PYTHON])
  AC_SUBST([PYTHON_CPPFLAGS])
])
