# The instruction index of vasm(5), from the rows of isa/opcodes.def: mnemonic, operands, semantics.
BEGIN { RS = "TVM_OP\\("; FS = "\n" }
NR > 1 {
    row = $0
    sub(/\/\*.*/, "", row)
    n = 0
    rest = row
    while (match(rest, /"[^"]*"/)) {
        text[++n] = substr(rest, RSTART + 1, RLENGTH - 2)
        rest = substr(rest, RSTART + RLENGTH)
    }
    if (n != 3) next
    split(row, field, /, */)
    result = field[4] == "NONE" ? "" : field[4] == "SCALAR" ? "scalar = " : field[4] == "SHARED" ? "shared = " : field[4] == "GLOBAL" ? "global = " : "register = "
    operands = text[2]
    gsub(/-/, "\\-", operands)
    name = text[1]
    gsub(/-/, "\\-", name)
    printf ".TP\n.B %s%s\n.I %s\n.br\n%s\n", result, name, operands, text[3]
}
