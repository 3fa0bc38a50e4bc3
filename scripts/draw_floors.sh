#!/bin/sh
# draw_floors.sh - writes docs/floors.svg to stdout: the floors of docs/design.md, and which folder
# includes which. Rows are the folders of that table, the lowest last. A dot says that files of this
# row include files of the folder with that number. An include upwards is a red dot, right of the
# steps.
# `make docs` runs it; tests/check/check_drawing.sh holds the committed drawing to the tree.
set -eu
cd "$(dirname "$0")/.."

# The folders of the table of floors, lowest first, with the first clause of what is there.
floors() {
    awk -F '|' '/^\| `src\// {
        folder = $2; what = $3
        gsub(/[ `]/, "", folder); sub(/^ +/, "", what); sub(/ +$/, "", what); gsub(/`/, "", what)
        sub(/[:;].*/, "", what); if (length(what) > 72) { sub(/,[^,]*$/, "", what) }
        if (length(what) > 72) what = substr(what, 1, 71) "…"
        print folder "|" what
    }' docs/design.md
}

# includer|included, by folder, for every include between folders of src/.
includes() {
    grep -rHoE '^ *# *include "[^"]+/[^"/]+"' src --include='*.c' --include='*.h' --include='*.cu' \
        --include='*.cuh' --include='*.inl' --include='*.def' |
        sed -E 's~^(.*)/[^/:]*: *# *include "(.*)/[^/"]*"$~\1|src/\2~
            s~^(src/[a-z]+)/([a-z]+)[|]src/\.\./([a-z]+)$~\1/\2|\1/\3~' | sort -u
}

{ floors; echo --; includes; } | awk -F '|' '
    $0 == "--" { uses = 1; next }
    !uses { n++; folder[n] = $1; what[n] = $2; at[$1] = n; next }
    ($1 in at) && ($2 in at) && $1 != $2 { dot[at[$1], at[$2]] = 1 }
    function text(x, y, class, s) {
        gsub(/&/, "\\&amp;", s); gsub(/</, "\\&lt;", s)
        printf "<text x=\"%d\" y=\"%d\" class=\"%s\">%s</text>\n", x, y, class, s
    }
    function box(x, y, width, fill) {
        printf "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"20\" ", x, y, width
        printf "fill=\"%s\"/>\n", fill
    }
    END {
        row = 22; cell = 16; left = 200; top = 56; right = left + n * cell + 14
        width = right + 470; height = top + n * row + 34
        printf "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" ", width, height
        printf "font-family=\"sans-serif\" font-size=\"12\">\n"
        print "<style>.f{font-family:monospace}.w{fill:#555}"
        print ".n{fill:#777;font-size:10px;text-anchor:middle}</style>"
        printf "<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n", width, height
        text(14, 24, "t", "A folder includes only folders below it: dots stand left of the steps.")
        for (i = n; i >= 1; i--) {
            y = top + (n - i) * row
            box(8, y, right - 16, i % 2 ? "#eef3fa" : "#e2eaf5")
            text(14, y + 15, "f", i "  " substr(folder[i], 5))
            for (j = 1; j <= n; j++) {
                if (!dot[i, j]) continue
                printf "<circle cx=\"%d\" cy=\"%d\" r=\"4\" ", left + j * cell - 8, y + 10
                printf "fill=\"%s\"/>\n", j < i ? "#1f4e8c" : "#d00"
            }
            box(left + (i - 1) * cell, y, cell, "#c9d6e8")
            text(right, y + 15, "w", what[i])
        }
        for (j = 1; j <= n; j++) text(left + j * cell - 8, top + n * row + 12, "n", j)
        print "</svg>"
    }'
