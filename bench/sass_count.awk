# Counts the instructions of the loop around the HMMA in nvdisasm's listing of one kernel; see sass_count.
/^\.L_/ { sub(/:.*/, ""); label[$0] = n + 1 }
match($0, /^[ \t]*\/\*[0-9a-f]+\*\/[ \t]*/) {
    line = substr($0, RLENGTH + 1)
    if (match(line, /^@!?U?P[0-9T]+ +/)) line = substr(line, RLENGTH + 1)
    text[++n] = line
    sub(/[ ;].*/, "", line)
    code[n] = line
}
# The loop of most HMMA: ptxas may have unrolled it, and left a rest.
END {
    for (i = 1; i <= n; i++) {
        if (code[i] !~ /^BRA/ || !match(text[i], /\.L_[A-Za-z0-9_]+/)) continue
        to = label[substr(text[i], RSTART, RLENGTH)]
        if (!to || to > i) continue
        mma = 0
        for (j = to; j <= i; j++) mma += code[j] ~ /^HMMA/
        if (mma > most) { most = mma; begin = to; end = i }
    }
    if (!most) { print type ": no loop with HMMA"; exit 1 }
    for (i = begin; i <= end; i++) {
        op = code[i]
        if (op ~ /^(HMMA|NOP)/) continue
        all++
        if (op ~ /^LOP3/) lop++
        else if (op ~ /^(SHF|SGXT|IMAD\.SHL|IMAD\.U32|USHF|PRMT|UPRMT)/) shift++
        else if (op ~ /^H(ADD|MUL|FMA|MNMX)2/ && op !~ /F32/) half++
        else if (op ~ /^(F2F|I2F|F2I)/) cvt++
        else other++
    }
    pairs = most * 2
    printf "%-9s %6.2f %6.2f %6.2f %6.2f %6.2f %6.2f\n", type, lop / pairs, shift / pairs, half / pairs, cvt / pairs, other / pairs, all / pairs
}
