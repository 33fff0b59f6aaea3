# The instruction index of vasm(5), from isa/opcodes.def: a subsection a topic; of each row the result, the mnemonic,
# the operands and the semantics, and the version of the language where it is not the first.
/^\/\* ==== .* ==== \*\/$/ {
    topic = $0
    gsub(/^\/\* ==== | ==== \*\/$/, "", topic)
    printf ".SS %s\n", topic
}
/^TVM_OP/ { row = "" }
/^TVM_OP/, /\)$/ { row = row " " $0 }
/\)$/ && row != "" {
    n = 0
    gsub(/" +"/, "", row) # a string in two lines
    rest = row
    while (match(rest, /"[^"]*"/)) {
        text[++n] = substr(rest, RSTART + 1, RLENGTH - 2)
        rest = substr(rest, RSTART + RLENGTH)
    }
    split(row, field, /, */)
    kind = field[7]
    result = kind == "NONE" ? "" : tolower(kind) " = "
    since = field[4] > 1 ? " (\\fB.vasm " field[4] "\\fR)" : ""
    operands = text[2]
    gsub(/-/, "\\-", operands)
    name = text[1]
    gsub(/-/, "\\-", name)
    printf ".TP\n.B %s%s\n%s.br\n%s%s\n", result, name, operands == "" ? "" : ".I " operands "\n", text[3], since
    row = ""
}
