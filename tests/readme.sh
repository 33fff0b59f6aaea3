#!/bin/sh
# The C example of README compiles against the public headers, links with the library, and runs.
set -eu
srcdir=${srcdir:-.}
work=$(mktemp -d tests/readme.XXXXXX)
trap 'rm -rf "$work"' EXIT
# block START: the indented block of README whose first line matches START
block() {
    awk -v start="$1" '$0 ~ "^    " start { on = 1 } /^[^ ]/ { on = 0 } on { sub(/^    /, ""); print }' "$srcdir/README"
}
block '/[*] example.c' >"$work/example.c"
block '; axpy.vasm' >"$work/axpy.vasm"
mkdir "$work/include"
cp "$srcdir/vm/tvm.h" "$srcdir/isa/tvm_status.h" "$work/include"
# shellcheck disable=SC2086
$CC $TEST_CFLAGS -I"$work/include" -c "$work/example.c" -o "$work/example.o"
# shellcheck disable=SC2086
$LIBTOOL --silent --tag=CC --mode=link $CC $TEST_CFLAGS -static -o "$work/example" "$work/example.o" libtilusvm.la $LIBS
./tvm-as -o "$work/axpy.vbc" "$work/axpy.vasm"
output=$(cd "$work" && ./example)
if [ "$output" != "y[999] = 2999" ]; then
    echo "readme.sh: the example printed: $output"
    echo "0 passed, 1 failed"
    exit 1
fi
echo "1 passed, 0 failed"
