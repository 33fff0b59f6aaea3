" Programs of Tilus VM, what they include, and graphs.
autocmd BufRead,BufNewFile *.vasm,*.vasminc,*.graph setfiletype vasm
