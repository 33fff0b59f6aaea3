# The index of instructions, from isa/opcodes.def: a heading a topic, and of each row the mnemonic, which leads to its
# entry in vasm(5), and its semantics.
function html(text) { gsub(/&/, "\\&amp;", text); gsub(/</, "\\&lt;", text); gsub(/>/, "\\&gt;", text); return text }
/^\/\* ==== .* ==== \*\/$/ {
    gsub(/^\/\* ==== | ==== \*\/$/, "")
    printf "%s<section class=\"Sh\">\n<h1 class=\"Sh\">%s</h1>\n<dl class=\"index\">\n", open, html($0)
    open = "</dl>\n</section>\n"
}
/^TVM_OP/ { row = "" }
/^TVM_OP/, /\)$/ { row = row " " $0 }
/\)$/ && row != "" {
    n = 0
    gsub(/" +"/, "", row) # a string in two lines
    while (match(row, /"[^"]*"/)) {
        text[++n] = substr(row, RSTART + 1, RLENGTH - 2)
        row = substr(row, RSTART + RLENGTH)
    }
    printf "<dt><a href=\"vasm.5.html#i-%s\">%s</a></dt><dd>%s</dd>\n", html(text[1]), html(text[1]), html(text[3])
    row = ""
}
END { printf "%s", open }
