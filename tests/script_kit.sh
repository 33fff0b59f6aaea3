# shellcheck shell=sh
# What the scripts that test programs share: they count in passed and failed.
passed=0
failed=0

# verdict OK NAME [TEXT]: counts, and shows what went wrong
verdict() {
    if [ "$1" = yes ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf 'not ok: %s\n' "$2"
        [ $# -lt 3 ] || printf '%s\n' "$3"
    fi
}

# runs NAME STATUS COMMAND...: the command's exit status; its output is left in out and err
runs() {
    name=$1
    expected=$2
    shift 2
    "$@" >out 2>err </dev/null
    status=$?
    if [ $status -eq "$expected" ]; then
        verdict yes "$name"
    else
        verdict no "$name: status $status, not $expected" "$(cat out err)"
    fi
}

# says NAME FILE TEXT...: each text stands in the file
says() {
    name=$1
    file=$2
    shift 2
    for text in "$@"; do
        if grep -F -q -e "$text" "$file"; then
            verdict yes "$name"
        else
            verdict no "$name: '$text' is not said" "$(cat "$file")"
        fi
    done
}

# same NAME A B: equal files
same() {
    if cmp -s "$2" "$3"; then verdict yes "$1"; else verdict no "$1: $2 and $3 differ" "$(cmp "$2" "$3" 2>&1)"; fi
}

# absent NAME FILE
absent() {
    if [ ! -e "$2" ]; then verdict yes "$1"; else verdict no "$1: $2 is there"; fi
}
