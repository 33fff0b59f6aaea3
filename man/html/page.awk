# A page of the HTML manual out of mandoc's: links to the other pages, a name for each instruction of vasm(5), programs
# of the language in colours, and the pictures of the layouts that its examples print.
# Variables: opcodes, the instruction table; pages, the names of the pages, "vasm(5) tvm-as(1) ..."; page, this one's
# name; pictures, how many pictures were made for it.
function read_table(    line, text) {
    while ((getline line < opcodes) > 0)
        if (line ~ /^TVM_OP/ && match(line, /"[^"]*"/)) {
            text = substr(line, RSTART + 1, RLENGTH - 2)
            is_word[text] = "i"
        }
    close(opcodes)
}
function span(class, text) { return "<span class=\"" class "\">" text "</span>" }
# The first token of a line of a program, whose characters may be HTML's entities: sets token and class.
function next_token(line, first,    word) {
    class = ""
    if (match(line, /^(;|\/\/).*/)) class = "c"
    else if (match(line, /^&quot;([^&]|&[^q])*&quot;/)) class = "s"
    else if (match(line, /^%[A-Za-z_][A-Za-z0-9_]*/)) class = "v"
    else if (first && match(line, /^\.[a-z]+/)) class = "d"
    else if (match(line, /^[0-9][0-9A-Za-z_.]*/)) class = "n"
    else if (match(line, /^[A-Za-z_][A-Za-z0-9_]*(-[a-z]+)*/)) {
        word = substr(line, 1, RLENGTH)
        if (!(word in is_word)) match(line, /^[A-Za-z_][A-Za-z0-9_]*/)
        word = substr(line, 1, RLENGTH)
        if (word in is_word) class = is_word[word]
        else if (word ~ TYPES) class = "t"
    } else if (!match(line, /^(&[a-z0-9#]+;|<[^>]*>|[ \t]+)/)) match(line, /^./)
    token = substr(line, 1, RLENGTH)
}
function coloured(line,    made, first) {
    made = ""
    for (first = 1; line != ""; first = first && token ~ /^[ \t]*$/) {
        next_token(line, first)
        made = made (class == "" ? token : span(class, token))
        line = substr(line, length(token) + 1)
    }
    return made
}
# Is it a line of a program: a directive, or a statement with an instruction or a variable?
function is_program(line) { return line ~ /^ *\.[a-z]+( |$)/ || line ~ /^ *%[a-z]/ || line ~ /^ *[a-z]+(-[a-z]+)+ / }
# What stands between <pre> and </pre>, whose lines that begin with a dollar sign are commands.
function block(text,    count, lines, i, made, program, commands) {
    count = split(text, lines, "\n")
    for (i = 1; i <= count; i++) {
        if (is_program(lines[i])) program = 1
        if (lines[i] ~ /^\$ /) commands = 1
    }
    if (commands) program = 0
    made = ""
    for (i = 1; i <= count; i++) {
        if (lines[i] == "<br/>") continue
        if (lines[i] ~ /^\$ /) {
            program = lines[i] ~ /^\$ (cat|sed) .*\.vasm$/
            if (lines[i] ~ /^\$ tvm-as --print-/) drawn++
            lines[i] = span("p", "$") span("k", substr(lines[i], 2))
        } else if (program) lines[i] = coloured(lines[i])
        made = made (made == "" ? "" : "\n") lines[i]
    }
    return made
}
function figures(from,    made) {
    made = ""
    for (from++; from <= drawn && from <= pictures; from++)
        made = made "<figure><img src=\"" page "-" from ".svg\" alt=\"what the command above prints\"></figure>\n"
    return made
}
# name(section), as mandoc writes a reference, to a link where there is such a page.
function linked(text,    made, name, section) {
    made = ""
    while (match(text, /<b>[a-z_][a-z0-9_-]*<\/b>\([1-8]\)/)) {
        made = made substr(text, 1, RSTART - 1)
        name = substr(text, RSTART + 3, RLENGTH - 10)
        section = substr(text, RSTART + RLENGTH - 2, 1)
        if (index(" " pages " ", " " name "(" section ") "))
            made = made "<a href=\"" name "." section ".html\">" name "(" section ")</a>"
        else made = made substr(text, RSTART, RLENGTH)
        text = substr(text, RSTART + RLENGTH)
    }
    return made text
}
# Before the page's text the list of its sections.
function contents(text,    rest, list, id, title, at) {
    rest = text
    while (match(rest, /<h1 class="Sh" id="[^"]*"><a class="permalink" href="[^"]*">[^<]*<\/a>/)) {
        title = substr(rest, RSTART, RLENGTH)
        rest = substr(rest, RSTART + RLENGTH)
        id = title
        sub(/^<h1 class="Sh" id="/, "", id)
        sub(/".*$/, "", id)
        sub(/<\/a>$/, "", title)
        sub(/^.*>/, "", title)
        list = list "<a href=\"#" id "\">" title "</a>\n"
    }
    at = index(text, "<div class=\"manual-text\">")
    return substr(text, 1, at - 1) "<nav class=\"sections\">\n" list "</nav>\n" substr(text, at)
}
# The entries of the section INSTRUCTIONS, by their mnemonics.
function named(text,    at, made, tag, name) {
    at = index(text, "<h1 class=\"Sh\" id=\"INSTRUCTIONS\">")
    if (!at) return text
    made = substr(text, 1, at - 1)
    text = substr(text, at)
    while (match(text, /<dt[^>]*>(<a [^>]*>)?<b>[^<]*<\/b>(<\/a>)?<\/dt>/)) {
        made = made substr(text, 1, RSTART - 1)
        tag = substr(text, RSTART, RLENGTH)
        text = substr(text, RSTART + RLENGTH)
        sub(/^.*<b>/, "", tag)
        sub(/<\/b>.*$/, "", tag)
        gsub(/[ \n]+/, " ", tag)
        name = tag
        sub(/^.* = /, "", name)
        made = made "<dt id=\"i-" name "\"><a class=\"permalink\" href=\"#i-" name "\"><b>" tag "</b></a></dt>"
    }
    return made text
}
BEGIN {
    TYPES = "^(bool|[iu][1-8]|[iu](16|32|64)|b?f16|tf32|f32|f64|e8m0|f[3-8]_e[0-9]m[0-9])$"
    words = "to step end elif unroll pipeline warps by registers global strides"
    count = split(words, word, " ")
    for (i = 1; i <= count; i++) is_word[word[i]] = "k"
    read_table()
}
{ text = text $0 "\n" }
END {
    gsub(/<pre><\/pre>\n?/, "", text)
    text = contents(named(linked(text)))
    while ((at = index(text, "<pre>")) && (end = index(text, "</pre>"))) {
        before = drawn
        printf "%s<pre>%s</pre>\n", substr(text, 1, at - 1), block(substr(text, at + 5, end - at - 5))
        printf "%s", figures(before)
        text = substr(text, end + 6)
    }
    printf "%s", text
}
