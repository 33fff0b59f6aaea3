# A template with the words of the language put in: awk -f fill.awk WORDS TEMPLATE. WORDS has `KIND WORD` a line.
# @KIND|@ becomes the kind's words with `|` between them, the longest first, so that no word hides one that it begins;
# a dot in a word becomes what -v dot= says. @KIND@ becomes them with blanks between them. A kind that is not there is
# an error.
NR == FNR {
    kind = $1
    list[kind, ++count[kind]] = $2
    next
}

function joined(kind, between,    i, j, n, word, text) {
    n = count[kind]
    if (!n) {
        print "fill.awk: no words of kind " kind | "cat >&2"
        bad = 1
        exit 1
    }
    for (i = 2; i <= n && between == "|"; i++) {
        word = list[kind, i]
        for (j = i - 1; j && length(list[kind, j]) < length(word); j--) list[kind, j + 1] = list[kind, j]
        list[kind, j + 1] = word
    }
    for (i = 1; i <= n; i++) {
        word = list[kind, i]
        text = text (i > 1 ? between : "") (between == "|" ? escaped(word) : word)
    }
    return text
}

function escaped(word,    at, text) {
    while ((at = index(word, "."))) {
        text = text substr(word, 1, at - 1) dot
        word = substr(word, at + 1)
    }
    return text word
}

{
    line = $0
    out = ""
    while (match(line, /@[a-z]+\|?@/)) {
        name = substr(line, RSTART + 1, RLENGTH - 2)
        alternatives = sub(/\|$/, "", name)
        out = out substr(line, 1, RSTART - 1) joined(name, alternatives ? "|" : " ")
        line = substr(line, RSTART + RLENGTH)
    }
    print out line
}
END { exit bad }
