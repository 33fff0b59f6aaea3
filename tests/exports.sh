#!/bin/sh
# The shared library exports the functions that tvm.h declares, and nothing else.
srcdir=${srcdir:-.}
library=.libs/libtilusvm.so
[ -f "$library" ] || {
    echo "exports.sh: no shared library was configured"
    exit 0
}
# Preprocessed, so that comments are gone; a declaration is a name before a parenthesis outside of any other.
declared=$($CC -E -P -I"$srcdir/isa" "$srcdir/vm/tvm.h" | tr '\n' ' ' | grep -o 'tvm_[a-z0-9_]* *(' | tr -d ' (' | sort -u)
exported=$($NM -D --defined-only "$library" | sed -n 's/^[0-9a-f]* [A-Z] //p' | sort -u)
if [ "$declared" != "$exported" ]; then
    echo "exports.sh: declared in tvm.h:" "$declared"
    echo "exports.sh: exported:" "$exported"
    echo "0 passed, 1 failed"
    exit 1
fi
echo "1 passed, 0 failed"
