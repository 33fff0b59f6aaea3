# shellcheck shell=sh
# What the scripts that run pytest share: they count in passed and failed.
# Threads of BLAS and OpenMP would stand beside those of the interpreter.
export OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1
passed=0
failed=0

# word WORD LOG: the number before it in pytest's last line, "1 failed, 82 passed, 5 skipped in 1.55s"; 0 without
word() { tail -n 1 "$2" | tr ',' '\n' | awk -v word="$1" 'index($2, word) == 1 { n = $1 } END { print n + 0 }'; }

# run_pytest LOG PYTHON ARGUMENT...: runs pytest and shows its log. One that ends without having counted has failed, and
# so has one that has run nothing.
run_pytest() {
    log=$1
    by=$2
    shift 2
    "$by" -m pytest -q -rs -p no:cacheprovider "$@" >"$log" 2>&1
    status=$?
    cat "$log"
    now=$(($(word failed "$log") + $(word error "$log")))
    well=$(word passed "$log")
    if [ "$now" -eq 0 ] && { [ $status -ne 0 ] || [ "$well" -eq 0 ]; }; then now=1; fi
    passed=$((passed + well))
    failed=$((failed + now))
}

# ended: the last line, and the status
ended() {
    echo "$passed passed, $failed failed"
    [ "$failed" -eq 0 ]
}
