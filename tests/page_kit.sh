# shellcheck shell=sh
# What the scripts that try a page's examples share, behind script_kit.sh: the current folder has the examples' files.

# examples_of PAGE: the text of the page's examples, without what roff needs
examples_of() {
    awk '/^\.EE/ { on = 0 } on; /^\.EX/ { on = 1 }' "$1" | sed -e 's/^\\&//' -e 's/\\-/-/g' -e 's/\\e/\\/g'
}

# Runs a command, which a backslash may continue; the page's own lines are those of the command and what it prints.
command=
run() {
    [ -n "$command" ] || return 0
    # $? is that of the command before
    eval "(exit $status); $command" >printed 2>err </dev/null
    status=$?
    cat printed >>made
    if [ $status -eq 0 ]; then
        verdict yes "$command"
    else
        verdict no "$command: exit status $status" "$(cat err)"
    fi
    command=
}

# try_page FILE: the commands of the examples, run one after the other, print what the examples say. On a difference the
# page is shown as it would have to be.
try_page() {
    status=0
    continued=no
    : >made
    while IFS= read -r line; do
        case $continued$line in
        yes*)
            printf '%s\n' "$line" >>made
            command="$command$line"
            ;;
        no'$ '*)
            run
            printf '%s\n' "$line" >>made
            command=${line#??}
            ;;
        *) continue ;;
        esac
        continued=no
        case $command in
        *\\)
            command=${command%?}
            continued=yes
            ;;
        esac
    done <"$1"
    run
    sed 's/ *$//' "$1" >said.plain
    sed 's/ *$//' made >made.plain
    if difference=$(diff -u said.plain made.plain); then
        verdict yes 'what the page quotes is what the tools print'
    else
        verdict no 'what the page quotes is what the tools print' "$difference"
    fi
}
